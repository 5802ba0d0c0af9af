"""Every requirement has a test, and every test that names one names one that exists."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from tests.requirements import _BY_PAGE, DIVERGENCES, REQUIREMENTS
from tests.support.transcripts import all_cases

TESTS = Path(__file__).resolve().parent.parent


def named_in(path: Path) -> Iterator[tuple[str, str]]:
    """Each id that a decorator of a file names, with its test."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            continue
        for mark in node.decorator_list:
            if (
                isinstance(mark, ast.Call)
                and isinstance(mark.func, ast.Name)
                and mark.func.id == "requirement"
            ):
                for argument in mark.args:
                    assert isinstance(argument, ast.Constant), f"{path.name}: {node.name}"
                    yield str(argument.value), f"{path.name}: {node.name}"


def covered() -> dict[str, list[str]]:
    """The tests by the id that they name."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(TESTS.glob("**/test_*.py")):
        for name, test in named_in(path):
            found[name].append(test)
    for case in all_cases():
        for name in case.covers:
            found[name].append(case.path.name)
    return found


def test_every_requirement_has_a_test() -> None:
    assert sorted(set(REQUIREMENTS) - set(covered())) == []


def test_every_id_that_a_test_names_is_a_requirement() -> None:
    unknown = {name: tests for name, tests in covered().items() if name not in REQUIREMENTS}
    assert unknown == {}


def test_every_requirement_and_divergence_has_its_page_and_says_something() -> None:
    rows = [tuple(row) for row in (*REQUIREMENTS.values(), *DIVERGENCES)]
    assert [row for row in rows if not all(text.strip() for text in row)] == []


def test_no_id_stands_under_two_pages() -> None:
    rows = [name for names in _BY_PAGE.values() for name in names]
    assert sorted(rows) == sorted(REQUIREMENTS)
