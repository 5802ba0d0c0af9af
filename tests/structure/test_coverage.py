"""Each section of words and each pure one is covered, lines and branches, by its own tests.

All of these tests run once, under coverage, which notes the test that ran each line; then each
section is looked at as if its own file alone had run. What runs at import counts for all, and
tests with random examples do not count. It happens in a copy: one may edit the file meanwhile.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from tests.structure import product
from tests.structure.product import SECTIONS

WAIT: Final = 300.0  # bounds every wait of this file
COVERED: Final = [s.slug for s in SECTIONS if s.floor in {"words", "pure"} and s.slug != "ports"]
SETTINGS: Final = """\
[run]
branch = true
source_pkgs = mcp_bridge_vscode
dynamic_context = test_function
"""


def lines_of(slug: str) -> range:
    """The lines of a section, up to the banner of the next."""
    first = next(section.line for section in SECTIONS if section.slug == slug)
    later = [section.line for section in SECTIONS if section.line > first]
    return range(first, min(later, default=len(product.LINES)))


def run_coverage(copy: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("COV")}
    environment["COVERAGE_FILE"] = str(copy / "data")
    python = (sys.executable, "-m", "coverage", arguments[0], "--rcfile=rc")
    return subprocess.run(  # noqa: S603 - this Python
        [*python, *arguments[1:]],
        cwd=copy,
        env=environment,
        capture_output=True,
        text=True,
        timeout=WAIT,
        check=False,
    )


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project, in which all of these tests have run."""
    pytest.importorskip("coverage")
    copy = tmp_path_factory.mktemp("coverage")
    without = shutil.ignore_patterns("__pycache__", "cases")
    shutil.copytree(product.ROOT / "tests", copy / "tests", ignore=without)
    shutil.copy(product.ROOT / "pyproject.toml", copy)
    (copy / product.FILE.name).write_text(product.TEXT, encoding="utf-8")
    (copy / "rc").write_text(SETTINGS, encoding="utf-8")
    names = [f"tests/unit/test_{slug}.py" for slug in COVERED]
    there = [name for name in names if (copy / name).is_file()]
    done = run_coverage(copy, "run", "-m", "pytest", "-q", "-m", "not hypothesis", *there)
    if done.returncode not in {0, 1}:  # 1: a test failed, which shows where it stands
        raise RuntimeError(done.stdout[-2000:] + done.stderr[-2000:])
    return copy


@pytest.mark.parametrize("slug", COVERED)
def test_the_section_is_covered_by_its_own_tests(slug: str, measured: Path) -> None:
    report = measured / f"{slug}.json"
    done = run_coverage(measured, "json", f"--contexts=test_{slug}[.],^$", "-o", str(report))
    assert done.returncode == 0, done.stdout + done.stderr
    files = json.loads(report.read_text(encoding="utf-8"))["files"]
    found: dict[str, Any] = files[product.FILE.name]
    lines = lines_of(slug)
    missed = [str(line) for line in found["missing_lines"] if line in lines]
    missed += [f"{a} to {b}" for a, b in found["missing_branches"] if a in lines]
    assert any(line in lines for line in found["executed_lines"])
    assert not missed, f"{slug}: never run: {', '.join(missed)}"
