"""Real modern servers that change: what a client that lists, subscribes and unsubscribes hears."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.peer.test_peers import SERVERS, server_command
from tests.requirements import requirement
from tests.support.processes import Bridge, text_of

pytestmark = pytest.mark.peer

TOOLS = "notifications/tools/list_changed"
UPDATED = "notifications/resources/updated"
FIXED = "note://fixed"


@pytest.fixture(params=SERVERS)
def bridge(request: pytest.FixtureRequest) -> Iterator[Bridge]:
    with Bridge(command=[*server_command(request.param), "--spare"]) as running:
        running.initialize()
        yield running


def notified(bridge: Bridge, method: str) -> list[Any]:
    """The params of the notifications of this method so far, in their order."""
    messages = [frame.message for frame in bridge.frames.items()]
    return [one.get("params") for one in messages if one.get("method") == method]


def tools(bridge: Bridge) -> list[str]:
    """The names of the whole list."""
    names: list[str] = []
    params: dict[str, str] = {}
    while True:
        result = bridge.ask("tools/list", params)["result"]
        names += [tool["name"] for tool in result["tools"]]
        if "nextCursor" not in result:
            return names
        params = {"cursor": result["nextCursor"]}


def wait_for_stream(bridge: Bridge) -> None:
    assert bridge.frames.find(lambda frame: frame.message.get("method") == TOOLS)


@requirement("o6", "listen.order")
def test_a_tool_that_disables_another_makes_the_client_list_again_and_see_it_gone(
    bridge: Bridge,
) -> None:
    wait_for_stream(bridge)
    assert "spare" in tools(bridge)
    before = len(notified(bridge, TOOLS))
    assert text_of(bridge.call("disable_spare")) == "disabled"
    assert len(notified(bridge, TOOLS)) == before + 1  # it came before the answer
    assert "spare" not in tools(bridge)


@requirement("o7", "subscribe.steps")
def test_a_subscribed_resource_updates_until_it_is_unsubscribed(bridge: Bridge) -> None:
    wait_for_stream(bridge)
    assert bridge.ask("resources/subscribe", {"uri": FIXED})["result"] == {}
    assert notified(bridge, UPDATED) == []
    for count in (1, 2):
        assert text_of(bridge.call("touch", {"uri": FIXED})) == "touched"
        assert notified(bridge, UPDATED) == [{"uri": FIXED}] * count
    bridge.call("touch", {"uri": "note://bytes"})
    assert bridge.ask("resources/unsubscribe", {"uri": FIXED})["result"] == {}
    tools(bridge)
    bridge.call("touch", {"uri": FIXED})
    assert notified(bridge, UPDATED) == [{"uri": FIXED}] * 2
    assert len(notified(bridge, TOOLS)) >= 2  # lists are still listened to
