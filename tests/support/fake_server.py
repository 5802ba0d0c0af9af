"""The server behind a bridge in this process: a transport whose other end is in the test's hand.

What the server says is handled on the thread of the test, which so is the upstream reader.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tests.support.fake_client import parse_or_none
from tests.support.frames import FrameChecker
from tests.support.waits import WAIT_SECONDS, Inbox

if TYPE_CHECKING:
    from mcp_bridge_vscode import BridgeError, Piece, Receiver

DISCOVERED: dict[str, Any] = {
    "resultType": "complete",
    "supportedVersions": ["2026-07-28"],
    "capabilities": {"tools": {}},
    "ttlMs": 0,
    "cacheScope": "private",
    "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "fake", "version": "3"}},
}


class FakeRun:
    """One run of the server: what a transport is to `upstream`."""

    def __init__(
        self, server: FakeServer, receiver: Receiver, checker: FrameChecker | None
    ) -> None:
        self._server = server
        self.checker = checker  # of its own: ids begin anew with each run
        self._receiver = receiver
        self._outbox: list[bytes] = []
        self._flush_lock = threading.Lock()  # guards the outbox while it is emptied
        self.is_started = False
        self.stopped = threading.Event()
        self.killed = threading.Event()

    # --- As the product sees it --------------------------------------------------------------

    def start(self) -> None:
        error, self._server.start_error = self._server.start_error, None
        if error is not None:
            raise error
        self.is_started = True
        self._server.started.put(self)

    def queue(self, pieces: list[Piece]) -> None:
        if self._server.queue_error is not None:
            raise self._server.queue_error
        self._outbox.append(b"".join(pieces))

    def flush(self) -> None:
        with self._flush_lock:  # the reader, workers and the owner flush at the same time
            while self._outbox:
                self._write(self._outbox.pop(0))

    def _write(self, frame: bytes) -> None:
        assert frame.endswith(b"\n"), frame
        assert frame.count(b"\n") == 1, frame
        if self.checker is not None:
            self.checker.check("to_server", frame)
        self._server.heard.put(frame[:-1])

    def stop(self) -> None:
        if not self._server.may_stop.wait(WAIT_SECONDS):
            raise AssertionError("nobody let the server stop")
        self.stopped.set()

    def kill(self) -> None:
        self.killed.set()

    # --- As the server acts ------------------------------------------------------------------

    def say_raw(self, line: bytes) -> None:
        """One line of the server, and then a pause."""
        self.say_lines([line])

    def say_lines(self, lines: list[bytes]) -> None:
        """Several lines that the bridge finds in one read."""
        for line in lines:
            if self.checker is not None:
                self.checker.check("from_server", line)
            self._receiver.handle_line(line)
        self._receiver.handle_pause()

    def exit(self, status: str) -> None:
        """The process has gone."""
        self._receiver.handle_end(status)

    def turn_deaf(self) -> None:
        """The server has closed its stdin."""
        self._receiver.handle_deaf()


class FakeServer:
    """All runs of the server of one bridge."""

    def __init__(self, new_checker: Callable[[], FrameChecker | None] = lambda: None) -> None:
        self._new_checker = new_checker
        self.started: Inbox[FakeRun] = Inbox()
        self.heard: Inbox[bytes] = Inbox()
        self.may_stop = threading.Event()
        self.may_stop.set()
        self.start_error: BridgeError | None = None  # of the next start
        self.queue_error: BridgeError | None = None  # of every frame, while it is set
        self._run: FakeRun | None = None
        self.runs: list[FakeRun] = []

    def open_transport(self, receiver: Receiver) -> FakeRun:
        self._run = FakeRun(self, receiver, self._new_checker())
        self.runs.append(self._run)
        return self._run

    @property
    def run(self) -> FakeRun:
        """The newest run."""
        assert self._run is not None, "no server was started"
        return self._run

    def problems(self) -> list[str]:
        """What the bridge told a run that the official types do not allow."""
        checkers = [run.checker for run in self.runs if run.checker is not None]
        return [problem for checker in checkers for problem in checker.problems()]

    def say_raw(self, line: bytes) -> None:
        self.run.say_raw(line)

    def say(self, **members: Any) -> None:
        """One frame of the server."""
        self.say_raw(json.dumps({"jsonrpc": "2.0", **members}).encode())

    def answer(self, request: dict[str, Any], **result: Any) -> None:
        """A complete result for a request that was heard."""
        self.say(id=request["id"], result={"resultType": "complete", **result})

    def heard_so_far(self) -> list[dict[str, Any]]:
        """Every frame that was flushed before this call and that nobody took: no thread and no
        pipe lies between.
        """
        return [json.loads(line) for line in self.heard.so_far()]

    def hear(self, method: str = "") -> dict[str, Any]:
        """The next frame of the bridge, or the next one of this method."""
        line = self.heard.take_where(
            lambda line: not method or (parse_or_none(line) or {}).get("method") == method
        )
        assert line is not None, "the server hears nothing more"
        frame = parse_or_none(line)
        assert frame is not None, line
        assert frame.pop("jsonrpc") == "2.0", line
        return frame
