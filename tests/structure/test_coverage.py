"""Each section of words and each pure one is covered, lines and branches, by its own tests.

All of these tests run once, under coverage, which notes the test that ran each line; then each
section is looked at as if its own file alone had run. What runs at import counts for all, and
tests with random or huge examples do not count. It is done in a copy: the file may change.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from coverage import Coverage, CoverageData
from coverage.python import PythonFileReporter

from tests.structure import product
from tests.structure.product import SECTIONS

WAIT: Final = 300.0  # bounds every wait of this file
COVERED: Final = [s.slug for s in SECTIONS if s.floor in {"words", "pure"} and s.slug != "ports"]
NOT_HUGE: Final = "not (in_time or a_second or any_depth or cost_little or much_larger)"
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


class Measured:
    """All of these tests have run in a copy of the project."""

    def __init__(self, copy: Path) -> None:
        file = str(copy / product.FILE.name)
        self._file = os.path.realpath(file)
        self._reporter = PythonFileReporter(file, Coverage(config_file=str(copy / "rc")))
        self._data = CoverageData(str(copy / "data"))
        self._data.read()
        exits = self._reporter.exit_counts()
        self._lines = self._reporter.lines()
        self._branches = {arc for arc in self._reporter.arcs() if exits.get(arc[0], 0) > 1}

    def missed_by(self, slug: str, lines: range) -> list[str]:
        """What the tests of one section have not run of these lines."""
        self._data.set_query_contexts([rf"test_{slug}\.", "^$"])
        run = self._reporter.translate_lines(self._data.lines(self._file) or [])
        arcs = self._reporter.translate_arcs(self._data.arcs(self._file) or [])
        assert any(line in lines for line in run), "nothing was measured"
        missed = sorted(line for line in self._lines - run if line in lines)
        jumps = sorted(arc for arc in self._branches - arcs if arc[0] in lines and arc[0] in run)
        return [*map(str, missed), *(f"{start} to {end}" for start, end in jumps)]


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Measured:
    copy = tmp_path_factory.mktemp("coverage")
    without = shutil.ignore_patterns("__pycache__", "cases")
    shutil.copytree(product.ROOT / "tests", copy / "tests", ignore=without)
    shutil.copy(product.ROOT / "pyproject.toml", copy)
    (copy / product.FILE.name).write_text(product.TEXT, encoding="utf-8")
    (copy / "rc").write_text(SETTINGS, encoding="utf-8")
    names = [f"tests/unit/test_{slug}.py" for slug in COVERED]
    there = [name for name in names if (copy / name).is_file()]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("COV")}
    environment["COVERAGE_FILE"] = str(copy / "data")
    python = (sys.executable, "-m", "coverage", "run", "--rcfile=rc", "-m", "pytest", "-q")
    done = subprocess.run(  # noqa: S603 - this Python
        [*python, "-m", "not hypothesis", "-k", NOT_HUGE, *there],
        cwd=copy,
        env=environment,
        capture_output=True,
        text=True,
        timeout=WAIT,
        check=False,
    )
    if done.returncode not in {0, 1}:  # 1: a test failed, which shows where it stands
        raise RuntimeError(done.stdout[-2000:] + done.stderr[-2000:])
    return Measured(copy)


@pytest.mark.parametrize("slug", COVERED)
def test_the_section_is_covered_by_its_own_tests(slug: str, measured: Measured) -> None:
    missed = measured.missed_by(slug, lines_of(slug))
    assert not missed, f"{slug}: never run: {', '.join(missed)}"
