"""Calls and cancels at random: each call is answered once or, once cancelled, at most once."""

from __future__ import annotations

import collections
import json
import random

import pytest

from tests.stress.scale import FACTOR
from tests.support.processes import Bridge, Id

pytestmark = pytest.mark.stress
SEEDS = range(10 * FACTOR)
CALLS = 64


def play(bridge: Bridge, dice: random.Random, calls: int) -> tuple[dict[Id, str], set[Id]]:
    """Calls go out; some are cancelled at once, some later, some after their answer."""
    tools: dict[Id, str] = {}
    cancelled: set[Id] = set()
    for _ in range(calls):
        tool = dice.choice(("echo", "text", "flood", "hold", "hold"))
        arguments = {
            "echo": {"text": "x" * dice.choice((1, 100, 70_000))},
            "text": {"count": dice.choice((1, 70_000)), "kind": "emoji"},
            "flood": {"count": dice.randrange(100)},
        }
        key = bridge.send_call(tool, arguments.get(tool))
        tools[key] = tool
        if dice.random() < 0.3:
            victim = dice.choice(list(tools))
            cancelled.add(victim)
            bridge.cancel(victim)
            if dice.random() < 0.3:
                bridge.cancel(victim)  # a second time
    for key, tool in tools.items():
        if tool == "hold" and key not in cancelled:
            cancelled.add(key)
            bridge.cancel(key)
    return tools, cancelled


@pytest.mark.parametrize("seed", SEEDS)
def test_each_call_has_one_outcome_whatever_is_cancelled(seed: int) -> None:
    dice = random.Random(seed)  # noqa: S311 - a seed, no secret
    with Bridge(checks_frames=False) as bridge:
        bridge.initialize()
        tools, cancelled = play(bridge, dice, CALLS)
        for key, tool in tools.items():
            if tool != "hold" and key not in cancelled:
                assert "result" in bridge.answer(key)
        bridge.echo("the last call")
        counts = collections.Counter(frame.key() for frame in bridge.frames.items())
        for key, tool in tools.items():
            most = 0 if tool == "hold" else 1
            least = 0 if key in cancelled else most
            assert least <= counts[json.dumps(key)] <= most, (key, tool)
        # What is cancelled is forgotten: there is room for as many as at the start.
        more = [bridge.send_call("echo", {"text": "again"}) for _ in range(200)]
        assert all("result" in bridge.answer(key) for key in more)
        assert bridge.end() == 0
