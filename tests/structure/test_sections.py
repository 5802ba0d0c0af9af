"""The file keeps its own rules: the map, the banners, and which section may use which."""

from __future__ import annotations

import ast
import importlib.util
import sys
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.structure import product
from tests.structure.product import HEAD, PLUMBING, SECTIONS, TREE, Section, section_of

if TYPE_CHECKING:
    from collections.abc import Iterator


def may_use(user: Section, owner: Section) -> bool:
    """Upwards only; and a room is open to wiring alone."""
    return user == owner or (
        owner.line < user.line and (owner.floor != "rooms" or user.floor == "wiring")
    )


def stored_in(part: ast.AST) -> set[str]:
    """The names that a part of the tree binds."""
    names = (node for node in ast.walk(part) if isinstance(node, ast.Name))
    return {name.id for name in names if isinstance(name.ctx, ast.Store)}


class Uses(ast.NodeVisitor):
    """Collects the uses of names of the module: those of a scope's own are none."""

    def __init__(self) -> None:
        self.found: list[tuple[ast.Name, bool]] = []  # and: does only the type checker see it?
        self._own: list[set[str]] = []
        self._for_types = False

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        for outside in (
            *node.decorator_list,
            *node.args.defaults,
            *filter(None, node.args.kw_defaults),
        ):
            self.visit(outside)
        arguments = [a for a in ast.walk(node.args) if isinstance(a, ast.arg)]
        annotations = [a.annotation for a in arguments if a.annotation]
        self._visit_types([*annotations, *([node.returns] if node.returns else [])])
        self._visit_scope({a.arg for a in arguments}, node.body)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._visit_scope(
            {a.arg for a in ast.walk(node.args) if isinstance(a, ast.arg)}, [node.body]
        )

    def visit_ListComp(self, node: ast.ListComp) -> None:
        self._visit_comprehension(node)

    def visit_SetComp(self, node: ast.SetComp) -> None:
        self._visit_comprehension(node)

    def visit_DictComp(self, node: ast.DictComp) -> None:
        self._visit_comprehension(node)

    def visit_GeneratorExp(self, node: ast.GeneratorExp) -> None:
        self._visit_comprehension(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self._visit_types([node.annotation])
        self.visit(node.target)
        if node.value is not None:
            self.visit(node.value)

    def visit_If(self, node: ast.If) -> None:
        if product.is_for_types(node):
            self._visit_types(node.body)
        else:
            self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        is_use = isinstance(node.ctx, ast.Load) and not any(node.id in own for own in self._own)
        if is_use:
            self.found.append((node, self._for_types))

    def _visit_comprehension(
        self, node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
    ) -> None:
        self._own.append(stored_in(node))
        self.generic_visit(node)
        self._own.pop()

    def _visit_types(self, nodes: list[ast.expr] | list[ast.stmt]) -> None:
        before, self._for_types = self._for_types, True
        for node in nodes:
            self.visit(node)
        self._for_types = before

    def _visit_scope(self, own: set[str], body: list[ast.stmt] | list[ast.expr]) -> None:
        self._own.append(own.union(*map(stored_in, body)))
        for part in body:
            self.visit(part)
        self._own.pop()


def homes() -> dict[str, Section]:
    """Where each name of the module lives; impure modules are out of reach of the pure."""
    found: dict[str, Section] = {}
    for statement in TREE.body:
        for name in product.names_bound_by(statement):
            found[name] = PLUMBING if name in product.IMPURE else section_of(statement)
    return found


def types_of_ports() -> set[str]:
    """Names that exist for the type checker alone."""
    return {
        name
        for statement in TREE.body
        if product.is_for_types(statement)
        for name in product.names_bound_by(statement)
        if name not in product.IMPURE
    }


def wrong_uses() -> Iterator[str]:
    home, for_types = homes(), types_of_ports()
    for statement in TREE.body:
        uses = Uses()
        uses.visit(statement)
        for use, is_for_types in uses.found:
            user, owner = section_of(use), home.get(use.id)
            if owner is None or user is HEAD or may_use(user, owner):
                continue
            if is_for_types and use.id in for_types:
                continue
            if is_for_types and user.slug == "ports" and owner.floor == "pure":
                continue  # a port may name the values that pass through it
            yield f"line {use.lineno}: {user.slug} uses {use.id} of {owner.slug}"


def test_the_map_names_the_sections_in_the_order_of_the_file() -> None:
    assert product.map_of(ast.get_docstring(TREE, clean=False) or "") == [
        (section.floor, section.slug) for section in SECTIONS
    ]


def test_no_slug_is_used_twice() -> None:
    slugs = [section.slug for section in SECTIONS]
    assert sorted(set(slugs)) == sorted(slugs)


def test_the_floors_follow_each_other_and_each_has_a_section() -> None:
    floors = [section.floor for section in SECTIONS]
    assert floors == sorted(floors, key=product.FLOORS.index)
    assert set(floors) == set(product.FLOORS)


def test_each_section_is_closed_before_the_next_begins() -> None:
    marks = [line for line in product.LINES if line.startswith(("# region", "# endregion"))]
    assert len(marks) == 2 * len(SECTIONS)
    assert all(mark.startswith("# region") for mark in marks[::2])
    assert set(marks[1::2]) == {"# endregion"}


def test_only_imports_the_version_and_the_start_stand_outside_the_sections() -> None:
    closed, outside = True, []
    for number, line in enumerate(product.LINES, start=1):
        if line.startswith(("# region", "# endregion")):
            closed = line.startswith("# endregion")
        elif closed:
            outside.append(number)
    allowed = (ast.Import, ast.ImportFrom, ast.Expr, ast.If)
    wrong = [
        node.lineno
        for node in TREE.body
        if node.lineno in outside and not isinstance(node, allowed)
        if set(product.names_bound_by(node)) - {"TYPE_CHECKING", "__version__"}
    ]
    assert not wrong


def test_each_section_says_under_its_banner_what_it_is() -> None:
    silent = [s.slug for s in SECTIONS if not product.LINES[s.line].startswith("# ")]
    assert not silent


@pytest.mark.parametrize("slug", [section.slug for section in SECTIONS])
def test_the_section_has_its_unit_tests(slug: str) -> None:
    assert (product.ROOT / "tests" / "unit" / f"test_{slug}.py").is_file()


def test_every_unit_test_file_has_its_section() -> None:
    names = {path.stem for path in (product.ROOT / "tests" / "unit").glob("test_*.py")}
    assert names <= {f"test_{section.slug}" for section in SECTIONS}


def test_every_name_is_used_only_where_it_may_be() -> None:
    wrong = list(wrong_uses())
    assert not wrong, "\n".join(wrong)


def test_words_and_pure_sections_import_nothing() -> None:
    wrong = [
        f"line {node.lineno}: {section_of(node).slug} imports"
        for node in ast.walk(TREE)
        if isinstance(node, (ast.Import, ast.ImportFrom))
        if section_of(node).floor in {"words", "pure"}
    ]
    assert not wrong, "\n".join(wrong)


SOURCE_OF_STANDARD_LIBRARY: Final = Path(sysconfig.get_path("stdlib")).resolve()


def is_standard(module: str) -> bool:
    name = module.partition(".")[0]
    if sys.version_info >= (3, 10):
        return name in sys.stdlib_module_names
    found = importlib.util.find_spec(name)
    if found is None or found.origin is None:
        return False
    source = Path(found.origin)
    is_inside = source.is_absolute() and SOURCE_OF_STANDARD_LIBRARY in source.resolve().parents
    return found.origin in {"built-in", "frozen"} or (
        is_inside and "site-packages" not in source.parts
    )


def test_every_import_is_of_the_standard_library() -> None:
    imported = [m for node in ast.walk(TREE) for m in product.modules_imported_by(node)]
    assert imported
    assert [module for module in imported if not is_standard(module)] == []


def test_an_installed_package_would_not_pass_for_the_standard_library() -> None:
    assert not is_standard("pytest")
    assert is_standard("json")


def test_only_child_starts_processes() -> None:
    for_types = product.nodes_for_types()
    users = {
        section_of(node).slug
        for node in ast.walk(TREE)
        if isinstance(node, (ast.Import, ast.ImportFrom)) and node not in for_types
        if "subprocess" in product.modules_imported_by(node)
    }
    assert users == {"child"}


def test_only_a_later_part_may_use_http() -> None:
    """`http.client` is for the sections http and sign_in, which this file does not have."""
    imported = {m for node in ast.walk(TREE) for m in product.modules_imported_by(node)}
    assert not {m for m in imported if m.partition(".")[0] in {"http", "ssl", "socket", "urllib"}}
