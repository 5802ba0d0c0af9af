"""The product's file as text and as a tree: its map, its sections, and who uses which name."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).resolve().parent.parent.parent
FILE: Final = ROOT / "mcp_bridge_vscode.py"
TEXT: Final = FILE.read_text(encoding="utf-8")
LINES: Final = TEXT.splitlines()
TREE: Final = ast.parse(TEXT)

FLOORS: Final = ("words", "pure", "plumbing", "rooms", "wiring")
# What waits, talks to the system, or differs from run to run: not for words and pure sections.
IMPURE: Final = frozenset(
    "http os queue random secrets signal socket ssl subprocess sys threading time".split()
)


class Section(NamedTuple):
    line: int
    floor: str
    slug: str


HEAD: Final = Section(0, "head", "head")
MAP_LINE: Final = re.compile(r"^(?:([A-Z]+) +| {4,})([a-z_]+) {2,}\S")
BANNER: Final = re.compile(r"^# region (\S+) (\S+)(?: -+)?$")


def sections() -> list[Section]:
    """The banners, in the order of the file."""
    found = []
    for number, line in enumerate(LINES, start=1):
        banner = BANNER.match(line)
        if banner is not None:
            found.append(Section(number, banner.group(1), banner.group(2)))
    return found


def map_of(text: str) -> list[tuple[str, str]]:
    """Floor and slug of each section in the map at the top, in its order."""
    found, floor = [], ""
    for line in text.splitlines():
        row = MAP_LINE.match(line)
        if row is not None and (row.group(1) or "").lower() in {"", *FLOORS}:
            floor = (row.group(1) or floor).lower()
            if floor:
                found.append((floor, row.group(2)))
        elif not line.strip():
            floor = ""  # the map is over
    return found


def section_of(node: ast.stmt | ast.expr | ast.excepthandler) -> Section:
    """The section in which a node stands."""
    return max((s for s in [HEAD, *SECTIONS] if s.line <= node.lineno), key=lambda s: s.line)


SECTIONS: Final = sections()
PLUMBING: Final = next(section for section in SECTIONS if section.floor == "plumbing")


def is_for_types(node: ast.AST) -> bool:
    """Is it `if TYPE_CHECKING:`, of which nothing exists at run time?"""
    return (
        isinstance(node, ast.If)
        and isinstance(node.test, ast.Name)
        and node.test.id == "TYPE_CHECKING"
    )


def names_bound_by(statement: ast.stmt) -> Iterator[str]:
    """The names of the module that a statement of its top level binds."""
    if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
        yield statement.name
    elif isinstance(statement, (ast.Import, ast.ImportFrom)):
        for alias in statement.names:
            yield (alias.asname or alias.name).partition(".")[0]
    elif isinstance(statement, ast.If):
        for child in (*statement.body, *statement.orelse):
            yield from names_bound_by(child)
    elif isinstance(statement, (ast.Assign, ast.AnnAssign)):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        for target in targets:
            for node in ast.walk(target):
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                    yield node.id


def modules_imported_by(node: ast.AST) -> list[str]:
    """The modules that an import statement names; none for other nodes."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        return [node.module or ""]
    return []


def nodes_for_types() -> set[ast.AST]:
    """Every node under an `if TYPE_CHECKING`."""
    found: set[ast.AST] = set()
    for node in ast.walk(TREE):
        if is_for_types(node):
            found.update(ast.walk(node))
    return found


def functions() -> Iterator[tuple[str, ast.FunctionDef]]:
    """Each function and method with its name, a method's with that of its class."""
    for node in ast.walk(TREE):
        if isinstance(node, ast.ClassDef):
            for child in node.body:
                if isinstance(child, ast.FunctionDef):
                    yield f"{node.name}.{child.name}", child
        elif isinstance(node, ast.Module):
            for statement in node.body:
                if isinstance(statement, ast.FunctionDef):
                    yield statement.name, statement


def length_of(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def text_at(node: ast.stmt | ast.expr) -> str:
    """The source of a node, with all of its last line: the comment is there."""
    return "\n".join(LINES[node.lineno - 1 : node.end_lineno])


def dotted(node: ast.expr) -> str:
    """`a.b.c` for such an expression, else the last attribute or nothing."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        before = dotted(node.value)
        return f"{before}.{node.attr}" if before else node.attr
    return ""


def calls(tree: ast.AST = TREE) -> Iterator[tuple[str, ast.Call]]:
    """Each call with the dotted name of what is called."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield dotted(node.func), node


def keywords(call: ast.Call) -> set[str]:
    return {keyword.arg for keyword in call.keywords if keyword.arg}


def value_of(name: str) -> ast.expr:
    """What the module assigns to a name."""
    for statement in TREE.body:
        if (
            isinstance(statement, ast.AnnAssign)
            and isinstance(statement.target, ast.Name)
            and statement.target.id == name
            and statement.value is not None
        ):
            return statement.value
    raise LookupError(name)


def class_named(name: str) -> ast.ClassDef:
    for node in ast.walk(TREE):
        if isinstance(node, ast.ClassDef) and node.name == name:
            return node
    raise LookupError(name)


def dict_keys(name: str, inside: ast.AST) -> list[str]:
    """The keys of the dict display that is assigned to the attribute `name` somewhere inside."""
    for node in ast.walk(inside):
        targets = (
            [node.target]
            if isinstance(node, ast.AnnAssign)
            else node.targets
            if isinstance(node, ast.Assign)
            else []
        )
        value = getattr(node, "value", None)
        if any(dotted(t).endswith(name) for t in targets) and isinstance(value, ast.Dict):
            return [str(k.value) for k in value.keys if isinstance(k, ast.Constant)]
    raise LookupError(name)
