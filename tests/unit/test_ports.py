"""The section `ports`: types alone, of which nothing exists at run time."""

from __future__ import annotations

import ast

import pytest

import mcp_bridge_vscode as bridge
from tests.structure import product


def statements() -> list[ast.stmt]:
    return [node for node in product.TREE.body if product.section_of(node).slug == "ports"]


def names() -> list[str]:
    return sorted(name for node in statements() for name in product.names_bound_by(node))


def test_the_section_is_one_block_for_the_type_checker() -> None:
    assert [product.is_for_types(node) for node in statements()] == [True]


@pytest.mark.parametrize("name", names())
def test_no_port_exists_at_run_time(name: str) -> None:
    assert not hasattr(bridge, name)


def test_each_port_says_whose_it_is_and_what_each_call_does() -> None:
    silent = [
        node.name
        for statement in statements()
        for node in ast.walk(statement)
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and not ast.get_docstring(node)
    ]
    assert silent == []


def test_a_port_does_nothing() -> None:
    bodies = [
        step
        for statement in statements()
        for node in ast.walk(statement)
        if isinstance(node, ast.FunctionDef)
        for step in node.body
    ]
    assert bodies
    assert all(isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant) for s in bodies)


def test_each_port_is_named_by_somebody() -> None:
    used = {node.id for node in ast.walk(product.TREE) if isinstance(node, ast.Name)}
    in_texts = " ".join(
        node.value
        for node in ast.walk(product.TREE)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )
    assert [name for name in names() if name not in used and f'"{name}"' not in in_texts] == []
