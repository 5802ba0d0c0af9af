"""The section `limits`: read only, and changed as a whole."""

from __future__ import annotations

import pytest

from mcp_bridge_vscode import LIMITS, MOST_LINE_BYTES, MOST_SECONDS, Limits


def test_a_limit_cannot_be_changed_in_place() -> None:
    with pytest.raises(AttributeError, match="rounds is read only"):
        LIMITS.rounds = 11
    assert LIMITS.rounds == 10


def test_replace_gives_the_same_limits_but_for_the_named_ones() -> None:
    changed = LIMITS.replace(requests=2, line_bytes=100)
    assert (changed.requests, changed.line_bytes) == (2, 100)
    assert changed.list_seconds == LIMITS.list_seconds
    assert LIMITS.requests == 256


def test_replace_keeps_what_was_replaced_before() -> None:
    changed = LIMITS.replace(requests=2).replace(rounds=3)
    assert (changed.requests, changed.rounds) == (2, 3)


def test_a_limit_that_does_not_exist_is_refused() -> None:
    with pytest.raises(AttributeError, match="request_count"):
        Limits(request_count=3)


def test_the_stop_fits_into_what_the_client_waits() -> None:
    """VS Code sends TERM 10 s after it has closed our stdin."""
    steps = 3 * LIMITS.grace_seconds + 2 * LIMITS.log_flush_seconds
    assert steps < LIMITS.watchdog_seconds < 10


def test_the_bounds_of_the_options_hold_the_defaults() -> None:
    assert LIMITS.line_bytes <= MOST_LINE_BYTES
    assert max(LIMITS.discover_seconds, LIMITS.call_seconds) <= MOST_SECONDS


def test_the_edges_of_a_long_line_are_shorter_than_the_line() -> None:
    assert 2 * LIMITS.edge_bytes < LIMITS.line_bytes


def test_a_client_may_nest_less_than_a_server_and_both_less_than_python() -> None:
    assert LIMITS.client_depth < LIMITS.server_depth < 500
