"""The tables and the code that walks them name the same methods, causes and limits, both ways."""

from __future__ import annotations

import ast
import re
from typing import Final

import mcp_bridge_vscode as bridge
from mcp_bridge_vscode import ERROR_TABLE, LIST_METHODS, METHODS, Carried, Cause, Limits
from tests.structure import product
from tests.structure.product import TREE, dotted, section_of

# Methods --------------------------------------------------------------------------

# Those that do not come from the client, so that they have no row: who sends them.
SENT_BY_OTHERS: Final = {
    "notifications/progress": "the server, and the bridge to the client",
    "notifications/elicitation/complete": "the bridge, when a question with a URL is over",
    "elicitation/create": "the bridge, for the server",
    "sampling/createMessage": "the bridge, for the server",
    "roots/list": "the bridge, for the server",
    "subscriptions/listen": "the bridge, to the server",
    "notifications/message": "the server, and the bridge to the client",
}
METHOD_NAME: Final = re.compile(
    r"^(notifications|tools|prompts|resources|completion|logging|server|sampling|roots"
    r"|elicitation|tasks|subscriptions)/[a-zA-Z_/]+$"
)
METHOD_IN_BYTES: Final = re.compile(rb'"method":"([a-zA-Z_/]+)"')


def carried(kind: Carried) -> set[str]:
    return {method for method, row in METHODS.items() if row.carried is kind}


def methods_named_in(*floors: str) -> set[str]:
    """The method names in the literals of these floors, but for the tables of words."""
    found: set[str] = set()
    for node in ast.walk(TREE):
        if isinstance(node, ast.Constant) and section_of(node).floor in floors:
            if isinstance(node.value, str) and METHOD_NAME.match(node.value):
                found.add(node.value)
            elif isinstance(node.value, bytes):
                found |= {name.decode() for name in METHOD_IN_BYTES.findall(node.value)}
    return found


def test_each_row_stands_under_its_own_name() -> None:
    assert all(name == row.method for name, row in METHODS.items())


def test_front_end_answers_exactly_the_rows_that_it_shall_answer() -> None:
    answers = product.dict_keys("_answers", product.class_named("FrontEnd"))
    assert sorted(answers) == sorted(carried(Carried.ANSWERED))


def test_the_eight_methods_of_both_revisions_are_forwarded() -> None:
    assert carried(Carried.FORWARDED) == {
        "tools/list", "tools/call", "prompts/list", "prompts/get", "resources/list",
        "resources/templates/list", "resources/read", "completion/complete",
    }  # fmt: skip


def test_the_reader_acts_on_two_notifications_alone() -> None:
    assert carried(Carried.NOTED) == {"notifications/cancelled", "notifications/initialized"}
    assert all(name.startswith("notifications/") for name in carried(Carried.IGNORED))


def test_the_lists_are_the_forwarded_methods_of_that_name() -> None:
    assert {m for m in carried(Carried.FORWARDED) if m.endswith("/list")} == LIST_METHODS


def test_the_methods_that_may_ask_are_those_of_the_revision() -> None:
    asking = {method for method, row in METHODS.items() if row.may_ask}
    assert asking == {"tools/call", "prompts/get", "resources/read"}


def test_every_method_in_the_code_has_a_row_or_is_sent_by_others() -> None:
    named = methods_named_in("pure", "rooms")
    assert named - set(METHODS) - set(SENT_BY_OTHERS) == set()
    assert set(SENT_BY_OTHERS) - named == set()


def test_no_method_is_in_both_tables() -> None:
    assert not set(METHODS) & set(SENT_BY_OTHERS)


def test_the_translators_name_forwarded_methods_alone() -> None:
    translators = {"to_legacy", "to_modern"}
    named = {
        node.value
        for node in ast.walk(TREE)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        if section_of(node).slug in translators and METHOD_NAME.match(node.value)
    }
    own = {"notifications/cancelled", "notifications/progress", "notifications/message"}
    assert named - own <= carried(Carried.FORWARDED)
    assert {"tools/call", "tools/list"} <= named


def test_each_request_for_the_server_has_a_limit_and_nothing_else_has() -> None:
    to_the_server = carried(Carried.FORWARDED) | {"initialize", "server/discover"}
    assert {method for method, row in METHODS.items() if row.limit} == to_the_server
    for method in to_the_server:
        row = METHODS[method]
        assert getattr(bridge.LIMITS, row.limit) > 0
        assert getattr(bridge.LIMITS, row.later_limit) >= getattr(bridge.LIMITS, row.limit)


def test_the_demo_knows_every_method_that_can_reach_a_server() -> None:
    own = {"server/discover", "subscriptions/listen"}  # what the bridge asks for itself
    assert set(bridge.DEMO_METHODS) == carried(Carried.FORWARDED) | own


# Causes ---------------------------------------------------------------------------


def causes_raised() -> set[str]:
    """The causes that the code makes an error with: no comparison, no table."""
    table = set(ast.walk(product.value_of("ERROR_TABLE")))
    compared = {
        child
        for node in ast.walk(TREE)
        if isinstance(node, ast.Compare)
        for child in ast.walk(node)
    }
    return {
        node.attr
        for node in ast.walk(TREE)
        if isinstance(node, ast.Attribute) and dotted(node).startswith("Cause.")
        if node not in table and node not in compared
    }


def test_each_cause_has_its_row() -> None:
    assert list(ERROR_TABLE) == list(Cause)


def test_the_table_is_written_with_one_row_a_cause() -> None:
    table = product.value_of("ERROR_TABLE")
    rows = [
        dotted(key) for d in ast.walk(table) if isinstance(d, ast.Dict) for key in d.keys if key
    ]
    assert sorted(rows) == sorted(f"Cause.{cause.name}" for cause in Cause)


def test_each_cause_is_raised_somewhere() -> None:
    assert causes_raised() == {cause.name for cause in Cause}


def test_only_errors_picks_a_code() -> None:
    """Elsewhere a code of JSON-RPC stands where a foreign one is replaced, and in the demo."""
    codes = {-32700, -32600, -32601, -32602, -32603}
    places = {
        section_of(node).slug
        for node in ast.walk(TREE)
        if isinstance(node, ast.UnaryOp) and isinstance(node.operand, ast.Constant)
        if isinstance(node.operand.value, int) and -node.operand.value in codes
    }
    assert places <= {"errors", "to_legacy", "input_rounds", "demo", "check"}


# Limits ---------------------------------------------------------------------------


def fields() -> list[str]:
    own = {name: value for name, value in vars(Limits).items() if not name.startswith("__")}
    return [name for name, value in own.items() if isinstance(value, (int, float))]


def limits_used() -> set[str]:
    used = {row.limit for row in METHODS.values()} | {row.later_limit for row in METHODS.values()}
    own = set(ast.walk(product.class_named("Limits")))
    for node in ast.walk(TREE):
        if isinstance(node, ast.Attribute) and node not in own:
            owner = dotted(node.value).rpartition(".")[2].lower().strip("_")
            if owner == "limits":
                used.add(node.attr)
    return used - {"", "replace"}


def test_each_limit_is_used_and_each_one_used_is_there() -> None:
    assert sorted(limits_used()) == sorted(fields())


def test_each_limit_says_what_it_bounds() -> None:
    silent, unknown = [], set()
    for statement in product.class_named("Limits").body:
        if isinstance(statement, ast.Assign):
            comment = product.text_at(statement).partition("  # ")[2]
            if not comment:
                silent.append(statement.lineno)
            unknown |= set(re.findall(r"[A-Z]+(?:_[A-Z]+)+", comment))
    assert silent == []
    assert unknown <= {cause.name for cause in Cause}


def test_each_limit_is_positive_and_has_its_unit_in_its_name() -> None:
    assert all(getattr(bridge.LIMITS, name) > 0 for name in fields())
    seconds = {name for name in fields() if isinstance(getattr(Limits, name), float)}
    assert seconds == {name for name in fields() if name.endswith("_seconds")}
