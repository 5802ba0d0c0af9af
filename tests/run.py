"""Run every check of this repository: python3 tests/run.py

It needs a Python of 3.9 or newer with `venv`, and for the real clients and servers of the tests
also a Python of 3.10 or newer, node and npm. Everything else it installs into a cache folder and
uses again, until a version that is pinned here or in pyproject.toml changes:

    MCP_BRIDGE_TEST_CACHE     the folder; ~/.cache/mcp-bridge-vscode-tests when it is not set
    MCP_BRIDGE_TEST_REQUIRE   with "all", a part that is missing is a failure and not a skip

The order: lint, format, types, all tests on the Python that runs this, then the tests that are not
marked `peer` or `stress` on each other Python of 3.9 to 3.14 that is found.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parent.parent
CACHE: Final = Path(
    os.environ.get("MCP_BRIDGE_TEST_CACHE") or Path.home() / ".cache" / "mcp-bridge-vscode-tests"
).expanduser()

# mcp 1.x and 2.x cannot share an environment, and both need a newer Python than the product.
PEER_REQUIREMENTS: Final = {
    "mcp1": ("mcp==1.30.0",),
    "mcp2": ("mcp==2.3.0", "mcp-types==2.3.0"),
}
NPM_REQUIREMENTS: Final = (
    "@modelcontextprotocol/sdk@1.32.2",
    "@modelcontextprotocol/server@2.4.0",
    "zod@4.6.7",
)
PRODUCT_PYTHONS: Final = tuple((3, minor) for minor in range(9, 15))
PEER_PYTHONS: Final = tuple((3, minor) for minor in range(13, 9, -1))  # the first one found
NODE_AT_LEAST: Final = 20

NOT_ON_EVERY_PYTHON: Final = {"mypy", "ruff", "types-jsonschema"}  # they run once
QUICK: Final = "not peer and not stress"

INSTALL_SECONDS: Final = 600.0
STEP_SECONDS: Final = 900.0
PROBE_SECONDS: Final = 30.0


# --- Where things are -------------------------------------------------------------------------


class MissingPartError(Exception):
    """A part that the tests use is not on this machine; the text says which and why."""


def own_requirements() -> tuple[str, ...]:
    """The extra `test` of pyproject.toml; there is no tomllib before Python 3.11."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    extra = re.search(r"^test = (\[.*?^\])", text, re.MULTILINE | re.DOTALL)
    if extra is None:
        raise SystemExit("pyproject.toml has no extra `test`")
    return tuple(ast.literal_eval(extra.group(1)))


def folder_of(name: str, requirements: Sequence[str]) -> Path:
    """One folder for each set of pinned versions: a new pin is a new folder."""
    digest = hashlib.sha256("\n".join(sorted(requirements)).encode()).hexdigest()[:12]
    return CACHE / f"{name}-{digest}"


def python_of(venv: Path) -> Path:
    return venv / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def is_ready(folder: Path) -> bool:
    """Whether the folder was made to the end, and the Python below it is still there."""
    made_by_npm = (folder / "node_modules").is_dir()
    return (folder / "ready").is_file() and (made_by_npm or python_of(folder).exists())


def peer_python(name: str) -> Path:
    """The Python of the environment `mcp1` or `mcp2`. Raises MissingPartError."""
    folder = folder_of(name, PEER_REQUIREMENTS[name])
    if not is_ready(folder):
        raise MissingPartError(f"{name} is not there: run python3 tests/run.py once")
    return python_of(folder)


def npm_folder() -> Path:
    """The folder whose node_modules has the npm SDKs. Raises MissingPartError."""
    folder = folder_of("npm", NPM_REQUIREMENTS)
    if not is_ready(folder):
        raise MissingPartError("the npm folder is not there: run python3 tests/run.py once")
    return folder


# --- Pythons ----------------------------------------------------------------------------------


def probe(python: str) -> tuple[int, int] | None:
    """The version of a Python that starts and can make environments, else None."""
    question = "import ensurepip, venv, sys; print(*sys.version_info[:2])"
    try:
        answer = subprocess.run(  # noqa: S603 - a Python that was found on this machine
            [python, "-c", question],
            capture_output=True,
            check=True,
            text=True,
            timeout=PROBE_SECONDS,
        )
        major, minor = answer.stdout.split()
        return int(major), int(minor)
    except (OSError, ValueError, subprocess.SubprocessError):
        return None


def find_pythons() -> dict[tuple[int, int], str]:
    """The Pythons of this machine, one for each version; the running one comes first."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    candidates = [sys.executable]
    candidates += sorted(str(path) for path in (pyenv / "versions").glob("3.*/bin/python"))
    for major, minor in PRODUCT_PYTHONS:
        on_path = shutil.which(f"python{major}.{minor}")
        candidates += [on_path] if on_path else []
    found: dict[tuple[int, int], str] = {}
    for python in candidates:
        version = probe(python)
        if version is not None:
            found.setdefault(version, python)
    return found


# --- Making the environments ------------------------------------------------------------------


@contextlib.contextmanager
def alone_with(folder: Path) -> Iterator[None]:
    """Two runs at the same time make each folder once. Where there is no flock, they take turns."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(f"{folder}.lock", "w", encoding="utf-8") as lock:
        try:
            import fcntl  # POSIX only
        except ImportError:
            yield
            return
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def run_quietly(command: Sequence[str], folder: Path) -> None:
    """Run one step of an installation; its output is shown only when it fails."""
    try:
        subprocess.run(  # noqa: S603 - pip and npm with the pinned versions above
            command,
            cwd=folder,
            check=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=INSTALL_SECONDS,
        )
    except FileNotFoundError as exc:
        raise MissingPartError(f"{command[0]} is not installed") from exc
    except subprocess.CalledProcessError as exc:
        print(exc.stdout)
        raise MissingPartError(f"{command[0]} failed with exit code {exc.returncode}") from exc
    except subprocess.TimeoutExpired as exc:
        raise MissingPartError(f"{command[0]} took more than {INSTALL_SECONDS:.0f} s") from exc


def make_venv(name: str, python: str, requirements: Sequence[str]) -> Path:
    """An environment with these requirements, made now or earlier; returns its Python."""
    folder = folder_of(name, requirements)
    with alone_with(folder):
        if is_ready(folder) and probe(str(python_of(folder))):
            return python_of(folder)
        say(f"making {folder}: {' '.join(requirements)}")
        shutil.rmtree(folder, ignore_errors=True)
        run_quietly([python, "-m", "venv", str(folder)], CACHE)
        pip = [str(python_of(folder)), "-m", "pip", "--disable-pip-version-check", "install"]
        run_quietly([*pip, "--quiet", *requirements], folder)
        (folder / "ready").write_text("\n".join(requirements), encoding="utf-8")
    return python_of(folder)


def make_npm_folder() -> None:
    npm, node = shutil.which("npm"), shutil.which("node")
    if npm is None or node is None:
        raise MissingPartError("npm and node are not installed")
    folder = folder_of("npm", NPM_REQUIREMENTS)
    with alone_with(folder):
        if is_ready(folder):
            return
        version = subprocess.run(  # noqa: S603 - node of this machine
            [node, "--version"], capture_output=True, check=False, text=True, timeout=PROBE_SECONDS
        ).stdout.strip()
        if int(version.lstrip("v").split(".")[0] or 0) < NODE_AT_LEAST:
            raise MissingPartError(f"node {version} is older than {NODE_AT_LEAST}")
        say(f"making {folder}: {' '.join(NPM_REQUIREMENTS)}")
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        (folder / "package.json").write_text('{"private": true}', encoding="utf-8")
        run_quietly(
            [npm, "install", "--ignore-scripts", "--no-audit", "--no-fund", *NPM_REQUIREMENTS],
            folder,
        )
        (folder / "ready").write_text("\n".join(NPM_REQUIREMENTS), encoding="utf-8")


def make_peer(name: str, python: str | None) -> str | None:
    """Make what the tests run as processes; a sentence that says why it is missing, or None."""
    try:
        if name == "npm":
            make_npm_folder()
        elif python is None:
            return f"{name}: there is no Python of 3.10 to 3.13 that can make environments"
        else:
            make_venv(name, python, PEER_REQUIREMENTS[name])
    except MissingPartError as exc:
        return f"{name}: {exc}"
    return None


# --- The steps --------------------------------------------------------------------------------


class Outcome(NamedTuple):
    """What one step came to. A step without tests of its own counts as one check."""

    name: str
    passed: int
    failed: int
    skipped: int
    seconds: float


def say(text: str) -> None:
    print(f"[run] {text}", flush=True)


def run_step(name: str, command: Sequence[str]) -> int:
    """Run one command in the root of the repository, with its output shown; its exit code."""
    say(f"{name}: {' '.join(command)}")
    try:
        return subprocess.run(  # noqa: S603 - a tool of the environment made above
            command, cwd=ROOT, check=False, stdin=subprocess.DEVNULL, timeout=STEP_SECONDS
        ).returncode
    except subprocess.TimeoutExpired:
        say(f"{name}: stopped after {STEP_SECONDS:.0f} s")
        return -1


def run_tool(name: str, python: Path, *arguments: str) -> Outcome:
    started = time.monotonic()
    failed = int(run_step(name, [str(python), "-m", *arguments]) != 0)
    return Outcome(name, 1 - failed, failed, 0, time.monotonic() - started)


def run_pytest(name: str, python: Path, marks: str, arguments: Sequence[str]) -> Outcome:
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [str(python), "-m", "pytest", f"--junitxml={report}"]
        command += ["-m", marks] if marks else []
        code = run_step(name, [*command, *arguments])
        passed, failed, skipped = counts_of(report)
    if code != 0 and failed == 0:  # nothing collected, a bad option, a time-out
        failed = 1
    return Outcome(name, passed, failed, skipped, time.monotonic() - started)


def counts_of(report: Path) -> tuple[int, int, int]:
    """Passed, failed and skipped of a JUnit file; zeros when pytest wrote none."""
    if not report.exists():
        return 0, 0, 0
    tree = ElementTree.parse(report)  # noqa: S314 - pytest wrote it a moment ago
    total = failed = skipped = 0
    for suite in tree.iter("testsuite"):
        total += int(suite.get("tests", 0))
        failed += int(suite.get("failures", 0)) + int(suite.get("errors", 0))
        skipped += int(suite.get("skipped", 0))
    return max(total - failed - skipped, 0), failed, skipped


def run_all(options: argparse.Namespace, arguments: Sequence[str]) -> list[Outcome]:
    pythons = find_pythons()
    say("Pythons: " + ", ".join(f"{a}.{b} {path}" for (a, b), path in sorted(pythons.items())))
    current = sys.version_info[:2]
    if current not in pythons:
        raise SystemExit(f"{sys.executable} cannot make environments: install its venv module")

    requirements = own_requirements()
    own = make_venv(f"python{current[0]}.{current[1]}", sys.executable, requirements)
    # Frames are checked by the environment mcp2 in every test, not in those of the peers only.
    names = ("mcp2",) if options.quick else ("mcp1", "mcp2", "npm")
    python = next((pythons[version] for version in PEER_PYTHONS if version in pythons), None)
    missing = [sentence for name in names if (sentence := make_peer(name, python))]
    for sentence in missing:
        say(f"missing: {sentence}")

    outcomes = [
        run_tool("lint", own, "ruff", "check"),
        run_tool("format", own, "ruff", "format", "--check"),
        run_tool("types", own, "mypy"),
    ]
    if missing and os.environ.get("MCP_BRIDGE_TEST_REQUIRE") == "all":
        outcomes.append(Outcome("parts that are missing", 0, len(missing), 0, 0.0))

    marks = QUICK if options.quick else "" if options.stress else "not stress"
    outcomes.append(run_pytest(f"tests on {current[0]}.{current[1]}", own, marks, arguments))
    if options.quick:
        return outcomes

    others = [version for version in PRODUCT_PYTHONS if version in pythons and version != current]
    return outcomes + [run_quick_tests(version, pythons[version], arguments) for version in others]


def run_quick_tests(version: tuple[int, int], python: str, arguments: Sequence[str]) -> Outcome:
    """The tests of the product itself on one more Python, without the tools that run once."""
    name = f"python{version[0]}.{version[1]}"
    fewer = [text for text in own_requirements() if text.split("==")[0] not in NOT_ON_EVERY_PYTHON]
    try:
        own = make_venv(name, python, fewer)
    except MissingPartError as exc:
        say(f"missing: {name}: {exc}")
        return Outcome(f"an environment for {name}", 0, 1, 0, 0.0)
    return run_pytest(f"quick tests on {name}", own, QUICK, arguments)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "--quick", action="store_true", help="lint, format, types, quick tests, one Python"
    )
    parser.add_argument("--stress", action="store_true", help="with the tests marked `stress`")
    parser.add_argument("pytest_args", nargs="*", metavar="-- args", help="handed to pytest")
    options = parser.parse_args(argv)

    outcomes = run_all(options, options.pytest_args)
    print()
    for outcome in outcomes:
        word = "FAILED" if outcome.failed else "ok"
        print(f"{word:>6}  {outcome.name}  ({outcome.passed} passed, {outcome.seconds:.0f} s)")
    failed = sum(outcome.failed for outcome in outcomes)
    skipped = sum(outcome.skipped for outcome in outcomes)
    passed = sum(outcome.passed for outcome in outcomes)
    print(
        f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""),
        flush=True,
    )
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
