"""List changes and results keep the order in which the server wrote them; and what idling costs."""

from __future__ import annotations

import json
import random
import sys
import threading
from pathlib import Path
from typing import Any, Final

import pytest

from tests.requirements import requirement
from tests.run import ROOT
from tests.support.processes import ISOLATED, Bridge
from tests.support.reading import frames_of

SERVER: Final = ROOT / "tests" / "support" / "changing_server.py"
COMMAND: Final = (sys.executable, *ISOLATED, str(SERVER))
CHANGED: Final = "notifications/tools/list_changed"
CALLS: Final = 10_000
IN_FLIGHT: Final = 64
IDLE_SECONDS: Final = 2.0


class Client:
    """The client's side of the pipes: it counts which versions of the list it may know of.

    A result names the version of the list that its call made. When it comes, the client must be
    about to ask for the list (it heard of a change since it last asked), or ask for it right now,
    or have it: the list that it gets then is not older than the result.
    """

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice
        self.is_stale = False  # it heard of a change, and has not asked since
        self.is_asking = False
        self.known = -1  # the version of the list that it has
        self.needed = 0  # that of the last result
        self.changes = self.lists = 0
        self.results: set[int] = set()
        self.quiet: set[int] = set()
        self._last_id = 1000

    def call(self) -> bytes:
        self._last_id += 1
        name = "quiet" if self._dice.random() < 0.1 else "change"
        return self._request(self._last_id, "tools/call", {"name": name})

    def list(self) -> bytes:
        self._last_id += 1
        self.is_stale, self.is_asking = False, True
        self.lists += 1
        return self._request(self._last_id, "tools/list", {})

    def _request(self, key: int, method: str, params: Any) -> bytes:
        frame = {"jsonrpc": "2.0", "id": key, "method": method, "params": params}
        return json.dumps(frame).encode() + b"\n"

    def hear(self, frame: Any) -> bool:
        """A frame of the bridge; is it the result of a call?"""
        if "method" in frame:
            assert frame == {"jsonrpc": "2.0", "method": CHANGED}
            assert not self.is_stale, "a change was told again, and says nothing new"
            self.is_stale = True
            self.changes += 1
            return False
        assert "result" in frame, frame
        assert frame["id"] not in self.results, "answered twice"
        self.results.add(frame["id"])
        if "tools" in frame["result"]:
            self.is_asking = False
            self.known = int(frame["result"]["tools"][0]["name"])
            assert self.is_stale or self.known >= self.needed, "the list is older than a result"
            return False
        self.needed = int(frame["result"]["content"][0]["text"])
        is_told = self.is_stale or self.is_asking or self.known >= self.needed
        assert is_told, "a result came before its list change"
        return True


@requirement("listen.order", "listen.bursts", "decisions.26")
def test_no_result_comes_before_the_list_change_that_was_written_before_it() -> None:
    dice = random.Random(26)  # noqa: S311  # a test
    with Bridge(command=COMMAND, checks_frames=False, reads=False) as bridge:
        client = Client(dice)
        frames = frames_of(bridge)
        bridge.send_initialize()
        assert "result" in next(frames)
        bridge.notify("notifications/initialized")
        assert client.hear(next(frames)) is False  # of the first stream
        bridge.write(client.list() + b"".join(client.call() for _ in range(IN_FLIGHT)))
        sent, done = IN_FLIGHT, 0
        while done < CALLS:
            out = b""
            if client.hear(next(frames)):
                done += 1
                if sent < CALLS:
                    out = client.call()
                    sent += 1
            if client.is_stale and not client.is_asking and dice.random() < 0.3:
                out += client.list()
            if out:
                bridge.write(out)
        assert client.changes > CALLS / 1000
    assert len(client.results) >= CALLS


# --- Idling -----------------------------------------------------------------------------------

# The real parts, with a thread that stands by for a tenth of a second and not for ten.
SHORT_STANDBY: Final = """
import os, sys
sys.path.insert(0, {root!r})
import mcp_bridge_vscode as product
limits = product.LIMITS.replace(first_line_seconds=0.1)
log = product.Log(2, product.LogLevel.WARNING, limits)
command = sys.argv[sys.argv.index("--") + 1:]
product.watch_parent(lambda: None)
product.Bridge(command=command, fallback_name="idle", log=log, limits=limits).run()
"""


def costs(pid: int) -> dict[str, tuple[int, ...]]:
    """Of each thread: how often it ran, and its time on a processor, in ticks."""
    found = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            lines = (task / "status").read_text().splitlines()
            ticks = (task / "stat").read_text().rpartition(")")[2].split()[11:13]
        except FileNotFoundError:
            continue  # the thread has ended
        status = dict(line.split(":", 1) for line in lines)
        switches = int(status["voluntary_ctxt_switches"])
        found[task.name] = (switches, *(int(tick) for tick in ticks))
    return found


@requirement("listen.idle")
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc tells what threads do")
def test_an_open_stream_costs_nothing_while_nothing_happens() -> None:
    program = (sys.executable, "-I", "-S", "-c", SHORT_STANDBY.format(root=str(ROOT)))
    with Bridge(command=COMMAND, program=program) as bridge:
        bridge.initialize()
        assert bridge.frames.find(lambda frame: frame.message.get("method") == CHANGED)
        bridge.ask("tools/list")
        before: dict[str, tuple[int, ...]] = {}
        for _ in range(20):  # until the thread that stands by sleeps without a limit
            before, last = costs(bridge.pid), before
            if before == last:
                break
            threading.Event().wait(0.5)
        threading.Event().wait(IDLE_SECONDS)  # what is measured is the bridge at rest
        assert costs(bridge.pid) == before
        assert len(before) >= 4  # the reader, the stop, the owner, the reader of the server
