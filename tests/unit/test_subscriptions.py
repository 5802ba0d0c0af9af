"""The section `subscriptions`: the filter, what the client hears, when a stream comes again."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mcp_bridge_vscode import (
    LIMITS,
    LIST_CHANGES,
    LIST_KINDS,
    Comeback,
    ListChanges,
    RawObject,
    build_filter,
    build_updated,
    declared_kinds,
    event_to_legacy,
    may_subscribe,
    parse_object,
    read_acknowledgment,
    subscription_id,
)
from tests.requirements import requirement

ID = "io.modelcontextprotocol/subscriptionId"
TOOLS, PROMPTS, RESOURCES = (kind.change for kind in LIST_KINDS)
UPDATED = "notifications/resources/updated"


def raw(value: Any) -> RawObject:
    return parse_object(json.dumps(value).encode())


# What the server declares ------------------------------------------------------------


@requirement("listen.filter")
@pytest.mark.parametrize(
    ("capabilities", "expected"),
    [
        ({"tools": {"listChanged": True}}, ["tools"]),
        (
            {
                "resources": {"listChanged": True},
                "prompts": {"listChanged": True},
                "tools": {"listChanged": True},
            },
            ["tools", "prompts", "resources"],
        ),
        ({"tools": {"listChanged": False}, "prompts": {}, "resources": {"subscribe": True}}, []),
        ({"tools": {"listChanged": 1}, "prompts": {"listChanged": "true"}}, []),
        ({"tools": None, "prompts": [], "resources": True, "logging": {"listChanged": True}}, []),
        ({}, []),
        (None, []),
        ([], []),
    ],
)
def test_a_list_is_listened_to_when_its_changes_are_declared(
    capabilities: Any, expected: list[str]
) -> None:
    assert [kind.capability for kind in declared_kinds(capabilities)] == expected


@pytest.mark.parametrize(
    ("capabilities", "expected"),
    [
        ({"resources": {"subscribe": True}}, True),
        ({"resources": {"subscribe": False}}, False),
        ({"resources": {"subscribe": 1}}, False),
        ({"resources": {"listChanged": True}}, False),
        ({"resources": None}, False),
        ({}, False),
        (None, False),
    ],
)
def test_resources_are_subscribed_to_when_the_server_declares_it(
    capabilities: Any, expected: bool
) -> None:
    assert may_subscribe(capabilities) is expected


# The filter and its acknowledgment -----------------------------------------------------


def filter_of(*capabilities: str, uris: tuple[str, ...] = ()) -> Any:
    kinds = declared_kinds({name: {"listChanged": True} for name in capabilities})
    (piece,) = build_filter(kinds, uris)
    return json.loads(b"{" + bytes(piece) + b"}")


@requirement("listen.filter")
def test_the_filter_has_the_declared_lists_and_the_subscribed_uris() -> None:
    assert filter_of() == {"notifications": {}}
    assert filter_of("tools", "resources", uris=("b", "a", "é\ud800\n")) == {
        "notifications": {
            "toolsListChanged": True,
            "resourcesListChanged": True,
            "resourceSubscriptions": ["b", "a", "é\ud800\n"],
        }
    }
    assert filter_of("prompts") == {"notifications": {"promptsListChanged": True}}


@requirement("listen.honoured")
def test_an_acknowledgment_names_what_is_honoured() -> None:
    honoured = read_acknowledgment(
        raw(
            {
                "notifications": {
                    "toolsListChanged": True,
                    "promptsListChanged": False,
                    "resourcesListChanged": 1,
                    "resourceSubscriptions": ["a", 1, None, "é"],
                }
            }
        )
    )
    assert honoured is not None
    assert honoured.fields == {"toolsListChanged"}
    assert honoured.uris == {"a", "é"}


@requirement("listen.honoured")
@pytest.mark.parametrize("uris", [None, "a", {"a": 1}, 5])
def test_uris_of_a_wrong_shape_are_not_honoured(uris: Any) -> None:
    honoured = read_acknowledgment(raw({"notifications": {"resourceSubscriptions": uris}}))
    assert honoured is not None
    assert (honoured.fields, honoured.uris) == (set(), set())


@requirement("listen.honoured")
@pytest.mark.parametrize("params", [None, {}, {"notifications": None}, {"notifications": [True]}])
def test_an_acknowledgment_may_say_nothing_of_what_is_honoured(params: Any) -> None:
    assert read_acknowledgment(None if params is None else raw(params)) is None


@requirement("listen.streams")
@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({"_meta": {ID: 7}}, 7),
        ({"_meta": {ID: "7"}}, "7"),
        ({"_meta": {"subscriptionId": 7}}, None),
        ({"_meta": [7]}, None),
        ({}, None),
        (None, None),
    ],
)
def test_a_notification_names_its_stream_in_meta(params: Any, expected: object) -> None:
    assert subscription_id(None if params is None else raw(params)) == expected


# What the client hears -----------------------------------------------------------------


def event(method: str, params: str | None) -> str | None:
    pieces = event_to_legacy(method, None if params is None else parse_object(params.encode()))
    if pieces is None:
        return None
    text = b"".join(pieces).decode()
    assert text.endswith("}\n")
    assert json.loads(text)["jsonrpc"] == "2.0"
    return text[len('{"jsonrpc":"2.0","method":') : -2]


@requirement("listen.events")
@pytest.mark.parametrize("method", sorted(LIST_CHANGES))
@pytest.mark.parametrize(
    ("params", "expected"),
    [
        (None, ""),
        ("{}", ""),
        (f'{{"_meta":{{"{ID}":1}}}}', ""),
        (f'{{ "_meta" : {{ "{ID}" : 1 , "x":"é" }} }}', ',"params":{"_meta":{"x":"é"}}'),
        (f'{{"_meta":{{"{ID}":1}},"y": 1.0}}', ',"params":{"y": 1.0}'),
        ('{"_meta":{"x":1}}', ',"params":{"_meta":{"x":1}}'),
        ('{"_meta":[]}', ',"params":{"_meta":[]}'),
    ],
)
def test_a_list_change_loses_the_subscription_id_and_an_empty_meta(
    method: str, params: str | None, expected: str
) -> None:
    assert event(method, params) == f'"{method}"{expected}'


@requirement("listen.events")
@pytest.mark.parametrize(
    ("params", "expected"),
    [
        (f'{{"_meta":{{"{ID}":1}},"uri":"é\\ud800"}}', '{"uri":"é\\ud800"}'),
        (f'{{"uri": "a","_meta":{{"b":[1e2],"{ID}":1}}}}', '{"uri": "a","_meta":{"b":[1e2]}}'),
        (f'{{"_meta":{{"{ID}":0,"{ID}":1}},"uri":"a"}}', '{"uri":"a"}'),
    ],
)
def test_an_update_stays_as_it_came_but_for_the_subscription_id(params: str, expected: str) -> None:
    assert event(UPDATED, params) == f'"{UPDATED}","params":{expected}'


@requirement("listen.events")
@pytest.mark.parametrize("params", [None, "{}", '{"uri":null}', '{"uri":1}', '{"uri":["a"]}'])
def test_an_update_without_a_uri_is_none(params: str | None) -> None:
    assert event(UPDATED, params) is None


@requirement("listen.events")
@pytest.mark.parametrize(
    "method",
    [
        "notifications/subscriptions/acknowledged", "notifications/cancelled",
        "notifications/message", "notifications/progress", "notifications/roots/list_changed",
        "notifications/tools/list_changed ", "tools/list", "",
    ],
)  # fmt: skip
def test_every_other_method_is_none_for_the_client(method: str) -> None:
    assert event(method, '{"uri":"a"}') is None


@requirement("listen.gap")
def test_an_update_that_may_have_been_missed_names_its_uri() -> None:
    assert json.loads(build_updated("é\n")) == {
        "jsonrpc": "2.0",
        "method": UPDATED,
        "params": {"uri": "é\n"},
    }
    assert build_updated("é\n").count(b"\n") == 1


# List changes that say nothing new -----------------------------------------------------


@requirement("listen.bursts", "decisions.26")
def test_a_change_says_nothing_new_until_the_client_asks_for_the_list() -> None:
    changes = ListChanges()
    assert changes.mark(TOOLS)
    assert not changes.mark(TOOLS)
    assert changes.mark(PROMPTS)
    changes.note_asked("tools/list")
    assert changes.mark(TOOLS)
    assert not changes.mark(TOOLS)
    assert not changes.mark(PROMPTS)


@requirement("listen.bursts", "decisions.26")
@pytest.mark.parametrize("method", ["resources/list", "resources/templates/list"])
def test_resources_have_two_lists(method: str) -> None:
    changes = ListChanges()
    assert changes.mark(RESOURCES)
    changes.note_asked(method)
    assert changes.mark(RESOURCES)


@requirement("listen.bursts")
def test_what_is_no_list_and_what_nobody_told_changes_nothing() -> None:
    changes = ListChanges()
    changes.note_asked("tools/call")
    changes.note_asked("tools/list")
    assert changes.mark(TOOLS)
    changes.note_asked("tools/call")
    changes.note_asked("prompts/list")
    assert not changes.mark(TOOLS)


# When a stream comes again -------------------------------------------------------------


def waits(count: int, *, is_lost: bool, comeback: Comeback | None = None) -> list[float]:
    comeback = comeback or Comeback(LIMITS)
    return [comeback.after(is_lost=is_lost, lived_seconds=0.0) for _ in range(count)]


@requirement("listen.waits", "decisions.28")
def test_a_stream_that_the_server_ended_waits_ever_longer_up_to_half_a_minute() -> None:
    assert waits(9, is_lost=False) == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]


@requirement("listen.waits", "decisions.28")
def test_a_lost_stream_comes_at_once_three_times_in_a_row_and_then_waits() -> None:
    assert waits(10, is_lost=True) == [0, 0, 0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0]


@requirement("listen.waits", "decisions.28")
def test_ten_seconds_of_life_reset_both_and_less_does_not() -> None:
    comeback = Comeback(LIMITS)
    assert waits(5, is_lost=True, comeback=comeback)[-1] == 1.0
    assert comeback.after(is_lost=True, lived_seconds=9.999) == 2.0
    assert comeback.after(is_lost=True, lived_seconds=10.0) == 0.0
    assert waits(3, is_lost=True, comeback=comeback) == [0, 0, 0.5]
    assert comeback.after(is_lost=False, lived_seconds=10.0) == 0.5


@requirement("listen.waits")
def test_tries_at_once_and_waits_are_counted_apart() -> None:
    comeback = Comeback(LIMITS)
    assert waits(2, is_lost=False, comeback=comeback) == [0.5, 1.0]
    assert waits(4, is_lost=True, comeback=comeback) == [0, 0, 0, 2.0]
