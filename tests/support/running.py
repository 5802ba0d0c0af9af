"""A whole bridge in this process: its client, its server and its clock are in the test's hand."""

from __future__ import annotations

import itertools
import os
import re
import threading
from typing import Any, Final

import mcp_bridge_vscode as product
from tests import run
from tests.support.clock import FakeClock
from tests.support.fake_client import FakeClient, read_lines
from tests.support.fake_server import DISCOVERED, FakeServer
from tests.support.frames import FrameChecker
from tests.support.parts import skip_or_fail
from tests.support.waits import WAIT_SECONDS, Inbox, until

SMALL: Final = product.Limits(
    line_bytes=4096.0,
    requests=4,
    progress_per_second=3,
    log_flush_seconds=WAIT_SECONDS,
)
INITIALIZE: dict[str, Any] = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "client", "version": "1"},
}
_fences: Final = itertools.count(1)  # in the logs
LOG_LINE: Final = re.compile(r"mcp-bridge-vscode: (\w+): (error|warning|info|debug): (.*)")


def new_checker(hostile: tuple[str, ...] = ()) -> FrameChecker | None:
    """The checker of the official types, or None where it is not installed and need not be."""
    try:
        return FrameChecker(hostile)
    except run.MissingPartError as exc:
        if os.environ.get("MCP_BRIDGE_TEST_REQUIRE") == "all":
            skip_or_fail(str(exc))
        return None


class RunningLog:
    """A log of the product, and the lines that come out of it."""

    def __init__(self, level: product.LogLevel, limits: product.Limits) -> None:
        self._read, self._write = os.pipe()
        self.lines: Inbox[bytes] = Inbox()
        self._thread = threading.Thread(target=self._run, name="fake stderr", daemon=True)
        self._thread.start()
        self.writer = product.Log(self._write, level, limits)

    def _run(self) -> None:
        read_lines(self._read, self.lines.put)
        self.lines.end()

    def heard(self, text: str) -> str:
        """The first line, of those that nobody took yet, that has this text in it."""
        line = self.lines.take_where(lambda line: text in line.decode())
        assert line is not None, f"no log line has {text!r} in it, but: {self.lines.so_far()}"
        return line.decode()

    def logged(self) -> list[bytes]:
        """Every line that was logged before this call and that nobody took.

        The log's own thread writes, and a thread of ours reads: a last line goes the same way.
        """
        text = f"fence {next(_fences)}"
        self.writer.error("test", text)
        self.heard(f"test: error: {text}")
        return self.lines.so_far()

    def release(self) -> None:
        self.writer.close(WAIT_SECONDS)
        os.close(self._write)
        self._thread.join(WAIT_SECONDS)
        assert not self._thread.is_alive()
        os.close(self._read)


class RunningBridge:
    """A bridge from its start to its stop. Leave it with release()."""

    def __init__(
        self,
        *,
        limits: product.Limits = SMALL,
        level: product.LogLevel = product.LogLevel.INFO,
        hostile: tuple[str, ...] = (),
    ) -> None:
        self.checker = new_checker(hostile)
        self.client = FakeClient(self.checker)
        self.server = FakeServer(lambda: new_checker(hostile))
        self.clock = FakeClock()
        self.stderr = RunningLog(level, limits)
        self.exit_codes: list[int] = []
        self.bridge = product.Bridge(
            command=["fake"],
            fallback_name="fallback",
            log=self.stderr.writer,
            limits=limits,
            clock=self.clock,
            stdin=self.client.bridge_stdin,
            stdout=self.client.bridge_stdout,
            exit_process=self.exit_codes.append,
            open_transport=self.server.open_transport,
        )
        self._thread = threading.Thread(target=self.bridge.run, name="fake main", daemon=True)
        self._thread.start()
        self._is_released = False

    def initialize(self, **result: Any) -> dict[str, Any]:
        """The bridge is ready; the answer of initialize."""
        self.client.send(id="initialize", method="initialize", params=INITIALIZE)
        request = self.server.hear()
        assert request["method"] == "server/discover"
        self.server.say(id=request["id"], result={**DISCOVERED, **result})
        answer = self.client.hear()
        assert "result" in answer, answer
        return answer

    def wait_state(self, state: product.State) -> None:
        lifecycle = self.bridge._lifecycle  # nothing on the wire tells it
        until(lambda: lifecycle.state is state, f"the state {state.value}")

    def wait_exit(self) -> int:
        """The bridge has stopped; its exit code."""
        until(lambda: bool(self.exit_codes), "the exit of the bridge")
        return self.exit_codes[0]

    def release(self) -> None:
        """The bridge has ended, and broke no rule that holds for every one."""
        if self._is_released:
            return
        self._is_released = True
        self.server.may_stop.set()
        self.client.close()
        self._thread.join(WAIT_SECONDS)
        assert not self._thread.is_alive(), "the bridge does not end"
        self.wait_exit()
        self.client.release()
        self.server.heard.end()
        self.stderr.release()
        faults = self.client.faults() + self.server.problems()
        if self.checker is not None:
            faults += self.checker.problems()
        assert not faults, "\n".join(faults)
