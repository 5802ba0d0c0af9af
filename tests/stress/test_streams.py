"""Real servers whose listen stream ends at random moments: no change is lost, none told twice."""

from __future__ import annotations

import json
import random
import sys
from collections import Counter
from typing import Any, Final

import pytest

from tests.peer.test_peers import SERVERS, server_command
from tests.requirements import requirement
from tests.run import ROOT
from tests.stress.scale import FACTOR
from tests.support.processes import ISOLATED, Bridge
from tests.support.reading import frames_of

pytestmark = [pytest.mark.stress, pytest.mark.peer]

BREAKER: Final = ROOT / "tests" / "support" / "stream_breaker.py"
CHANGED: Final = "notifications/tools/list_changed"
UPDATED: Final = "notifications/resources/updated"
ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"
TOUCHED: Final = "note://fixed"
UNTOUCHED: Final = "note://bytes"  # it is updated after gaps alone
ROUNDS: Final = 200 * FACTOR

# The real parts, with a stream that comes back soon.
PROGRAM: Final = """
import sys
sys.path.insert(0, {root!r})
import mcp_bridge_vscode as product
limits = product.LIMITS.replace(listen_wait_seconds=0.005, most_listen_wait_seconds=0.02)
log = product.Log(2, product.LogLevel.WARNING, limits)
command = sys.argv[sys.argv.index("--") + 1:]
product.Bridge(command=command, fallback_name="stress", log=log, limits=limits).run()
"""


class Client:
    """The client of one bridge, which asks for the list of tools when it is told to."""

    def __init__(self, bridge: Bridge, dice: random.Random) -> None:
        self._bridge = bridge
        self._dice = dice
        self._frames = frames_of(bridge)
        self._count = 0  # of what was sent
        self.is_stale = False  # told of a change, and has not asked since
        self.asked_at = self.touched_at = 0
        self.answers: dict[Any, Any] = {}
        self.heard: Counter[str] = Counter()
        self.updated: Counter[str] = Counter()

    def send(self, method: str, params: Any) -> int:
        self._count += 1
        self._bridge.send(method, params, self._count)
        return self._count

    def call(self, tool: str, **arguments: Any) -> int:
        return self.send("tools/call", {"name": tool, "arguments": arguments})

    def touch(self) -> int:
        self.touched_at = self.call("touch", uri=TOUCHED)
        return self.touched_at

    def ask(self) -> None:
        self.is_stale = False
        self.asked_at = self.send("tools/list", {})

    def hear(self) -> None:
        """The next frame; sometimes the client asks for the list then, when it has to."""
        frame = next(self._frames)
        method = frame.get("method")
        if method is None:
            assert frame["id"] not in self.answers, "answered twice"
            self.answers[frame["id"]] = frame
        elif method == UPDATED:
            self.updated[frame["params"]["uri"]] += 1
        else:
            self.heard[method] += 1
            if method == CHANGED:
                assert not self.is_stale, "a change was told again, and says nothing new"
                self.is_stale = True
        if self.is_stale and self._dice.random() < 0.5:
            self.ask()

    def answer(self, key: int) -> Any:
        while key not in self.answers:
            self.hear()
        return self.answers[key]

    def told(self) -> Counter[str]:
        """What the servers told the bridge so far; the client has heard all that came of it."""
        text = self.answer(self.call("break", how="tell"))["result"]["content"][0]["text"]
        return Counter(json.loads(text))


def play_round(client: Client, dice: random.Random, how: str) -> None:
    """Some calls that change things, and somewhere among them the end of the stream."""
    gaps = client.updated[UNTOUCHED]
    calls = [client.touch() for _ in range(dice.randrange(3))]
    while dice.random() < 0.5 and calls and calls[-1] not in client.answers:
        client.hear()
    calls.append(client.call("break", how=how))
    calls += [client.touch() for _ in range(dice.randrange(3))]
    for key in calls:
        client.answer(key)
    while client.updated[UNTOUCHED] == gaps:
        client.hear()
    assert client.is_stale or client.asked_at > client.touched_at, "a change was lost"


@requirement("listen.gap", "listen.ends", "listen.bursts", "decisions.26")
@pytest.mark.parametrize("server", SERVERS)
def test_streams_that_end_at_random_lose_no_change_and_repeat_none(server: str) -> None:
    dice = random.Random(f"{server} {ROUNDS}")  # noqa: S311  # a test
    command = [sys.executable, *ISOLATED, str(BREAKER), "--", *server_command(server)]
    program = (sys.executable, "-I", "-S", "-c", PROGRAM.format(root=str(ROOT)))
    with Bridge(command=command, program=program, reads=False, checks_frames=False) as bridge:
        client = Client(bridge, dice)
        params = {"protocolVersion": "2025-11-25", "capabilities": {}}
        info = {"name": "stress", "version": "1"}
        client.answer(client.send("initialize", {**params, "clientInfo": info}))
        bridge.notify("notifications/initialized")
        for uri in (TOUCHED, UNTOUCHED):
            assert client.answer(client.send("resources/subscribe", {"uri": uri}))["result"] == {}
        client.told()
        now = before = client.told()
        gaps = client.updated[UNTOUCHED]
        for number in range(ROUNDS):
            how = "kill" if number % 10 == 9 else dice.choice(("result", "cancel"))
            play_round(client, dice, how)
            now = client.told()
            streams = number + 1
            updates = now[UPDATED] - before[UPDATED]
            assert now[ACKNOWLEDGED] - before[ACKNOWLEDGED] == streams
            assert client.updated[UNTOUCHED] - gaps == streams
            assert client.updated[TOUCHED] - gaps == streams + updates
        changes = now[CHANGED] - before[CHANGED]
        assert ROUNDS / 2 < client.heard[CHANGED] <= changes + ROUNDS + 3
        assert client.heard["notifications/prompts/list_changed"] <= 1  # nobody asked
