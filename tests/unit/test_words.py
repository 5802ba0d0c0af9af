"""The section `words`: names and numbers of the specification, and nothing that changes."""

from __future__ import annotations

import pytest

import mcp_bridge_vscode as bridge
from mcp_bridge_vscode import LOG_LEVELS, METHODS, Carried, MethodRow, State


def test_the_two_revisions_are_the_ones_we_stand_between() -> None:
    assert (bridge.LEGACY_VERSION, bridge.MODERN_VERSION) == ("2025-11-25", "2026-07-28")


def test_the_keys_of_meta_have_the_prefix_of_the_specification() -> None:
    assert {
        bridge.META_PROTOCOL_VERSION,
        bridge.META_CLIENT_INFO,
        bridge.META_CLIENT_CAPABILITIES,
        bridge.META_SERVER_INFO,
        bridge.TASKS_EXTENSION,
    } == {
        "io.modelcontextprotocol/protocolVersion",
        "io.modelcontextprotocol/clientInfo",
        "io.modelcontextprotocol/clientCapabilities",
        "io.modelcontextprotocol/serverInfo",
        "io.modelcontextprotocol/tasks",
    }


def test_the_codes_of_the_specification_are_right() -> None:
    assert (bridge.UNSUPPORTED_VERSION, bridge.URL_ELICITATION_REQUIRED) == (-32022, -32042)


def test_the_log_levels_are_those_of_syslog_from_the_lowest_on() -> None:
    assert LOG_LEVELS[0] == "debug"
    assert LOG_LEVELS[-1] == "emergency"
    assert len(set(LOG_LEVELS)) == 8


def test_a_connection_begins_before_its_initialize() -> None:
    assert [state.value for state in State] == [
        "awaiting_initialize", "initializing", "ready", "closing",
    ]  # fmt: skip


def test_no_method_can_be_added_to_the_table() -> None:
    with pytest.raises(TypeError):
        METHODS["tools/steal"] = METHODS["ping"]  # type: ignore[index] # that is the point


def test_a_row_without_a_later_limit_has_the_first_one_in_each_round() -> None:
    row = MethodRow("x/y", Carried.FORWARDED, limit="list_seconds")
    assert (row.limit, row.later_limit, row.may_ask) == ("list_seconds", "list_seconds", False)


@pytest.mark.parametrize("method", ["prompts/get", "resources/read"])
def test_a_later_round_of_a_read_may_take_as_long_as_a_call(method: str) -> None:
    assert METHODS[method].limit == "read_seconds"
    assert METHODS[method].later_limit == METHODS["tools/call"].limit


def test_a_row_takes_no_field_that_the_table_does_not_have() -> None:
    with pytest.raises(AttributeError):
        MethodRow("x/y", Carried.NOTED).color = "red"  # type: ignore[attr-defined] # no such field
