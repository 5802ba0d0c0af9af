"""The client of a bridge in this process: at the other end of its pipes, in the test's hand."""

from __future__ import annotations

import json
import os
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

from tests.support.frames import FrameChecker
from tests.support.waits import WAIT_SECONDS, Inbox


def read_lines(descriptor: int, handle: Callable[[bytes], None]) -> None:
    """Every line until the end, an unfinished one too."""
    rest = b""
    while True:
        chunk = os.read(descriptor, 1 << 16)
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines if chunk else [*lines, *filter(None, [rest])]:
            handle(line)
        if not chunk:
            return


def parse_or_none(line: bytes) -> dict[str, Any] | None:
    """The object in a line, as a test may look at it."""
    try:
        frame = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return frame if isinstance(frame, dict) else None


class StdoutBrokenError(Exception):
    """The client reads no more."""


class FakeClient:
    """Writes to the stdin of a bridge and reads its stdout.

    Threads: one of ours reads; the test does the rest. Whatever the test looks at, a line that
    is no JSON object, a second answer and an answer to nothing are found by `faults()`.
    """

    def __init__(self, checker: FrameChecker | None = None) -> None:
        self.bridge_stdin, self._stdin = os.pipe()
        self._stdout, self.bridge_stdout = os.pipe()
        self._checker = checker
        self._asked: Counter[str] = Counter()
        self.heard: Inbox[bytes] = Inbox()
        self._all: list[bytes] = []
        self._fences = 0
        self._is_stdin_open = True
        self._is_breaking = False
        self._may_read = threading.Event()
        self._may_read.set()
        self._reader = threading.Thread(target=self._run, name="fake client", daemon=True)
        self._reader.start()

    def _run(self) -> None:
        try:
            read_lines(self._stdout, self._hear_line)
        except StdoutBrokenError:
            os.close(self._stdout)
        self.heard.end()

    def stop_reading(self) -> None:
        """From the next line on nothing of stdout is read."""
        self._may_read.clear()

    def go_on_reading(self) -> None:
        self._may_read.set()

    def break_stdout(self) -> None:
        """After the next line nobody is at the other end of the bridge's stdout any more."""
        self._is_breaking = True

    def _hear_line(self, line: bytes) -> None:
        self._may_read.wait(WAIT_SECONDS)
        self._all.append(line)
        if self._checker is not None:
            self._checker.check("to_client", line)
        if self._is_breaking:
            raise StdoutBrokenError
        self.heard.put(line)

    def send_raw(self, data: bytes) -> None:
        """The bytes go out as they are."""
        self._note(data)
        self._write(data)

    def send_in_pieces(self, data: bytes) -> None:
        """The same, byte by byte."""
        self._note(data)
        for byte in data:
            self._write(bytes([byte]))

    def _note(self, data: bytes) -> None:
        for line in data.split(b"\n"):
            frame = parse_or_none(line)
            if frame is not None and "id" in frame and "method" in frame:
                self._asked[json.dumps(frame["id"])] += 1
            if self._checker is not None and line.strip():
                self._checker.check("from_client", line)

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._stdin, view) :]

    def send(self, **members: Any) -> None:
        """One frame goes out."""
        self.send_raw(json.dumps({"jsonrpc": "2.0", **members}).encode() + b"\n")

    def hear(self) -> dict[str, Any]:
        """The next frame of the bridge."""
        line = self.heard.take()
        assert line is not None, "the client hears nothing more"
        frame = parse_or_none(line)
        assert frame is not None, line
        assert frame.pop("jsonrpc") == "2.0", line
        return frame

    def heard_so_far(self) -> list[dict[str, Any]]:
        """Every frame that was written before this call and that nobody took.

        The answer of a ping goes the same way, through the output and both ends of the pipe.
        """
        self._fences += 1
        fence = f"fence {self._fences}"
        self.send(id=fence, method="ping")
        pong = self.heard.take_where(lambda line: (parse_or_none(line) or {}).get("id") == fence)
        assert pong is not None, "no ping is answered any more"
        return [json.loads(line) for line in self.heard.so_far()]

    def ask(self, request_id: int | str, method: str, **params: Any) -> dict[str, Any]:
        """A request and the very next frame."""
        self.send(id=request_id, method=method, params=params)
        return self.hear()

    def close(self) -> None:
        """The end of the bridge's input."""
        if self._is_stdin_open:
            self._is_stdin_open = False
            os.close(self._stdin)

    def release(self) -> None:
        """The bridge has ended: its ends of the pipes close, and all it said has been read."""
        self.close()
        self.go_on_reading()
        os.close(self.bridge_stdout)
        self._reader.join(WAIT_SECONDS)
        assert not self._reader.is_alive()
        if not self._is_breaking:
            os.close(self._stdout)
        os.close(self.bridge_stdin)

    def faults(self) -> list[str]:
        """What no bridge may ever do, whatever it was told."""
        found = []
        answered: Counter[str] = Counter()
        for line in self._all:
            frame = parse_or_none(line)
            if frame is None:
                found.append(f"stdout has a line that is no JSON object: {line[:200]!r}")
            elif "method" not in frame and frame.get("id") is not None:
                answered[json.dumps(frame["id"])] += 1
        for key, count in answered.items():
            # What the bridge only recovered from a broken line, nobody asked in a whole one.
            if count > max(1, self._asked[key]):
                found.append(f"request {key} was answered {count} times")
        return found
