"""Rules that hold for every line of the file: waits, locks, handlers, sizes, forbidden calls."""

from __future__ import annotations

import ast
import re
from typing import Final

import pytest

import mcp_bridge_vscode as bridge
from tests.structure import product
from tests.structure.product import TREE, dotted, section_of

# Waits ------------------------------------------------------------------------

WAITS: Final = frozenset(
    "wait acquire poll sleep join communicate wait_for select wait_empty close".split()
)


def is_bare_number(node: ast.expr) -> bool:
    """Is there a number in it, and no name that says what it is?"""
    parts = list(ast.walk(node))
    has_number = any(isinstance(n, ast.Constant) and type(n.value) in (int, float) for n in parts)
    return has_number and not any(isinstance(n, (ast.Name, ast.Attribute)) for n in parts)


def bare_waits(tree: ast.AST) -> list[int]:
    return [
        call.lineno
        for name, call in product.calls(tree)
        if name.rpartition(".")[2] in WAITS
        for argument in (*call.args, *(keyword.value for keyword in call.keywords))
        if is_bare_number(argument)
    ]


def test_no_wait_has_a_bare_number() -> None:
    assert bare_waits(TREE) == []


@pytest.mark.parametrize("text", ["e.wait(2)", "lock.acquire(timeout=-0.5)", "time.sleep(60 * 2)"])
def test_a_bare_number_would_be_seen(text: str) -> None:
    assert bare_waits(ast.parse(text)) == [1]


def test_a_name_in_a_wait_is_enough() -> None:
    assert bare_waits(ast.parse("e.wait(4 * grace); e.wait(None); ','.join(a)")) == []


# Programs, and what runs text as code (threat model, rule 8) --------------------

STARTERS: Final = frozenset(
    "Popen startfile ShellExecute ShellExecuteW ShellExecuteA webbrowser system popen eval exec"
    " compile __import__ pickle marshal shelve import_module posix_spawn posix_spawnp fork"
    " forkpty check_call check_output getoutput getstatusoutput pty".split()
)
STARTER_FAMILIES: Final = re.compile(r"^(exec[lv]p?e?|spawn[lv]p?e?)$")


def starters(tree: ast.AST) -> list[tuple[str, int]]:
    """Every use of something that starts a program or runs text as code."""
    found = []
    for node in ast.walk(tree):
        name = ""
        if isinstance(node, (ast.Name, ast.Attribute)):
            whole = dotted(node)
            name = whole.rpartition(".")[2]
            if whole in {"re.compile", "subprocess.run", "subprocess.call"}:
                name = name if whole != "re.compile" else ""
                found += [(name, node.lineno)] if name else []
                continue
        elif isinstance(node, ast.keyword) and node.arg == "shell":
            found.append(("shell=", node.value.lineno))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            name = node.value  # getattr(os, "execv")
        elif isinstance(node, ast.alias):
            name = node.name
        if name in STARTERS or STARTER_FAMILIES.match(name) or name.startswith("urllib.request"):
            found.append((name, getattr(node, "lineno", 0)))
    return found


def test_one_place_starts_a_program_and_none_runs_text_as_code() -> None:
    """The child, from the command line; the section sign_in is not there yet."""
    found = starters(TREE)
    assert {name for name, _ in found} == {"Popen"}
    started = [call for name, call in product.calls() if name == "subprocess.Popen"]
    assert [section_of(call).slug for call in started] == ["child"]
    types = {line for _, line in found} - {started[0].lineno}
    assert all("subprocess.Popen[bytes]" in product.LINES[line - 1] for line in types)


@pytest.mark.parametrize(
    "text",
    [
        "os.execv(a, b)",
        "exec(a)",
        "subprocess.run(a)",
        "f(a, shell=True)",
        "import pickle",
        "import urllib.request",
        "os.startfile(a)",
        "getattr(os, 'system')(a)",
        "from os import spawnv",
    ],
)
def test_another_way_to_start_something_would_be_seen(text: str) -> None:
    assert starters(ast.parse(text))


def test_a_compiled_expression_is_no_such_thing() -> None:
    assert starters(ast.parse("import re; x = re.compile('a')")) == []


# Locks and handlers -------------------------------------------------------------


LOCKS: Final = frozenset({"RankedLock", "Lock", "RLock", "Condition"})


def test_each_lock_says_what_it_guards() -> None:
    silent = [
        node.lineno
        for node in ast.walk(TREE)
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and isinstance(node.value, ast.Call)
        if dotted(node.value.func).rpartition(".")[2] in LOCKS
        if not re.search(r"# .*(guards|the only place)", product.text_at(node))
    ]
    assert silent == []


def test_only_plumbing_makes_locks_that_know_no_order() -> None:
    makers = {
        section_of(call).slug
        for name, call in product.calls()
        if name in {"threading.Lock", "threading.RLock", "threading.Condition"}
    }
    assert makers == {"plumbing"}


def test_each_rank_of_the_lock_order_has_its_lock() -> None:
    made = {dotted(call.args[0]) for name, call in product.calls() if name == "RankedLock"}
    assert made == {f"LockRank.{rank.name}" for rank in bridge.LockRank}


def test_only_plumbing_starts_threads() -> None:
    makers = {section_of(call).slug for name, call in product.calls() if name == "threading.Thread"}
    assert makers == {"plumbing"}


def test_no_handler_only_passes() -> None:
    silent = [
        node.lineno
        for node in ast.walk(TREE)
        if isinstance(node, ast.ExceptHandler)
        if all(
            isinstance(step, ast.Pass)
            or (isinstance(step, ast.Expr) and isinstance(step.value, ast.Constant))
            for step in node.body
        )
    ]
    assert silent == []
    assert "contextlib.suppress" not in {name for name, _ in product.calls()}


def test_no_handler_catches_without_a_name_of_the_exception() -> None:
    bare = [n.lineno for n in ast.walk(TREE) if isinstance(n, ast.ExceptHandler) and n.type is None]
    assert bare == []


def test_no_text_of_an_exception_goes_on() -> None:
    """Rule 3: a cause and a detail of ours do; `error` in an f-string is its text."""
    ours = {"UsageError"}  # its text is written by us, for people
    wrong = []
    for handler in ast.walk(TREE):
        if not isinstance(handler, ast.ExceptHandler) or handler.name is None:
            continue
        if handler.type is not None and dotted(handler.type) in ours:
            continue
        for node in ast.walk(handler):
            shown: list[ast.expr] = []
            if isinstance(node, ast.FormattedValue):
                shown = [node.value]
            elif isinstance(node, ast.Call) and dotted(node.func) in {"str", "repr"}:
                shown = list(node.args)
            wrong += [
                f"line {part.lineno}"
                for part in shown
                if isinstance(part, ast.Name) and part.id == handler.name
            ]
    assert wrong == []


def test_stdout_and_stderr_are_written_as_descriptors_alone() -> None:
    """print, sys.stdout and logging belong to whoever imports the file."""
    names = {name for name, _ in product.calls()}
    assert "print" not in names
    used = {dotted(n) for n in ast.walk(TREE) if isinstance(n, ast.Attribute)}
    assert not used & {"sys.stdout", "sys.__stdout__", "sys.stderr", "sys.__stderr__"}


def test_deadlines_are_monotonic() -> None:
    used = {dotted(n) for n in ast.walk(TREE) if isinstance(n, ast.Attribute)}
    assert not used & {"time.time", "time.sleep", "datetime.now"}


# Sizes --------------------------------------------------------------------------

FUNCTION_LINES: Final = 50
CLASS_LINES: Final = 400
# What is longer, how long it may be, and why that is better than two.
LONG: Final[dict[str, tuple[int, str]]] = {
    "Bridge.__init__": (95, "the wiring itself: one keyword argument a line"),
}


def longer_than_usual() -> dict[str, int]:
    found = {
        name: product.length_of(node)
        for name, node in product.functions()
        if product.length_of(node) > FUNCTION_LINES
    }
    for node in ast.walk(TREE):
        if isinstance(node, ast.ClassDef) and product.length_of(node) > CLASS_LINES:
            found[node.name] = product.length_of(node)
    return found


def test_what_is_long_is_long_for_a_reason() -> None:
    found = longer_than_usual()
    wrong = [
        f"{name} has {length} lines; allowed: {LONG.get(name, (0, ''))[0]}"
        for name, length in sorted(found.items())
        if length > LONG.get(name, (0, ""))[0]
    ]
    assert not wrong, "\n".join(wrong)


def test_no_reason_is_kept_for_what_is_short_by_now() -> None:
    assert set(LONG) <= set(longer_than_usual())
    assert all(reason for _, reason in LONG.values())


# Lint ---------------------------------------------------------------------------


def test_each_exemption_names_its_rule_and_its_reason() -> None:
    pattern = re.compile(r"# (?:noqa|type: ignore)(.*)$")
    naming = {"N802"}  # the name is that of a function of Windows or of a base class
    wrong = []
    for number, line in enumerate(product.LINES, start=1):
        found = pattern.search(line)
        if found is None:
            continue
        rest = found.group(1)
        codes = set(re.findall(r"[A-Z]+\d+|\[[a-z-]+\]", rest.partition("#")[0]))
        if not codes or ("#" not in rest and not codes <= naming):
            wrong.append(number)
    assert wrong == []
