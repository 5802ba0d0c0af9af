"""The section `front_end`: the lifecycle states, stdout, and what the reader answers itself."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import mcp_bridge_vscode as product
from mcp_bridge_vscode import BridgeError, Cause, Lifecycle, Output, PendingTable, State
from tests.requirements import requirement
from tests.support.fake_client import FakeClient
from tests.support.running import SMALL, RunningBridge, RunningLog
from tests.support.waits import WAIT_SECONDS, until

# --- Lifecycle --------------------------------------------------------------------------------


def test_the_state_moves_only_from_where_it_is() -> None:
    lifecycle = Lifecycle()
    assert not lifecycle.move(State.INITIALIZING, State.READY)
    assert lifecycle.move(State.AWAITING_INITIALIZE, State.INITIALIZING)
    assert not lifecycle.move(State.AWAITING_INITIALIZE, State.INITIALIZING)
    assert lifecycle.state is State.INITIALIZING


@requirement("lifecycle.closing")
def test_closing_is_never_left_and_keeps_its_first_reason() -> None:
    lifecycle, lost = Lifecycle(), BridgeError(Cause.UPSTREAM_EXITED)
    assert lifecycle.close(lost) is State.AWAITING_INITIALIZE
    assert lifecycle.close(None) is State.CLOSING
    assert not lifecycle.move(State.AWAITING_INITIALIZE, State.INITIALIZING)
    assert (lifecycle.state, lifecycle.closed_by) == (State.CLOSING, lost)


# --- Output -----------------------------------------------------------------------------------


class Stdout:
    """An output over a pipe. Its jobs run when the test says so, or on threads of their own."""

    def __init__(self) -> None:
        self.read, self.write = os.pipe()
        self.jobs: list[Callable[[], None]] = []
        self.broken: list[bool] = []
        self.has_threads = False
        self.output = Output(self.write, self.run_worker, lambda: self.broken.append(True), 3)

    def run_worker(self, job: Callable[[], None]) -> None:
        if self.has_threads:
            threading.Thread(target=job, name="fake worker", daemon=True).start()
        else:
            self.jobs.append(job)

    def run_jobs(self) -> None:
        while self.jobs:
            self.jobs.pop(0)()

    def got(self) -> bytes:
        os.set_blocking(self.read, False)
        try:
            return os.read(self.read, 1 << 20)
        except BlockingIOError:
            return b""


@pytest.fixture
def stdout() -> Iterator[Stdout]:
    stdout = Stdout()
    yield stdout
    for end in (stdout.read, stdout.write):
        try:
            os.close(end)
        except OSError:
            continue  # the test closed it


def test_a_written_frame_is_out_when_the_call_returns(stdout: Stdout) -> None:
    stdout.output.write_from(lambda: [b"a", memoryview(b"b\n")])
    assert stdout.got() == b"ab\n"


def test_frames_with_more_to_come_go_out_together(stdout: Stdout) -> None:
    stdout.output.write_from(lambda: [b"a\n"], is_more=True)
    stdout.output.write_from(lambda: None, is_more=True)
    assert stdout.got() == b""
    stdout.output.flush()
    assert stdout.got() == b"a\n"


@requirement("decisions.9")
def test_a_posted_frame_is_written_by_a_worker_and_not_by_who_posts(stdout: Stdout) -> None:
    stdout.output.post(b"a\n")
    stdout.output.post(b"b\n")
    assert stdout.got() == b""
    assert len(stdout.jobs) == 1  # one worker for all that was posted so far
    stdout.run_jobs()
    assert stdout.got() == b"a\nb\n"
    stdout.output.post(b"c\n")
    stdout.run_jobs()
    assert stdout.got() == b"c\n"


@requirement("decisions.9")
def test_posted_frames_go_out_with_the_next_one_that_is_written(stdout: Stdout) -> None:
    stdout.output.post(b"posted\n")
    stdout.output.write_from(lambda: [b"written\n"])
    assert sorted(stdout.got().split()) == [b"posted", b"written"]
    stdout.run_jobs()
    assert stdout.got() == b""


@requirement("decisions.9")
def test_a_client_that_writes_and_never_reads_is_gone_at_the_limit(stdout: Stdout) -> None:
    for _ in range(3):
        stdout.output.post(b"a\n")
    assert stdout.broken == []
    stdout.output.post(b"b\n")
    assert stdout.broken == [True]
    stdout.run_jobs()
    assert stdout.got() == b"a\na\na\n"


@requirement("decisions.9")
def test_a_broken_stdout_is_told_once_and_ends_all_writing(stdout: Stdout) -> None:
    os.close(stdout.read)
    stdout.output.write_from(lambda: [b"a\n"])
    stdout.output.write_from(lambda: [b"b\n"])
    assert stdout.broken == [True]


def test_a_closed_output_has_written_what_was_posted_and_writes_nothing_more(
    stdout: Stdout,
) -> None:
    stdout.output.post(b"posted\n")
    stdout.has_threads = True
    stdout.output.close(WAIT_SECONDS)
    assert stdout.got() == b"posted\n"
    stdout.output.write_from(lambda: [b"a\n"])
    stdout.output.post(b"b\n")
    stdout.run_jobs()
    assert stdout.got() == b""
    assert stdout.broken == []


@requirement("decisions.9", "stop.blocked-stdout")
def test_a_write_that_is_stuck_does_not_delay_the_close(stdout: Stdout) -> None:
    def write() -> None:
        stdout.output.write_from(lambda: [b"x" * (1 << 20)])

    writer = threading.Thread(target=write, name="fake writer", daemon=True)
    writer.start()
    assert os.read(stdout.read, 1) == b"x"  # it has begun, and a pipe holds less than that
    stdout.has_threads = True
    stdout.output.close(0)
    assert writer.is_alive()
    os.close(stdout.read)
    writer.join(WAIT_SECONDS)
    assert stdout.broken == [True]


# --- PendingTable -----------------------------------------------------------------------------


def test_questions_have_ids_of_their_own_and_are_settled_once() -> None:
    table, woken = PendingTable(), []
    first, second = table.register(2, lambda: woken.append(True))
    (third,) = table.register(1, lambda: woken.append(True))
    assert [one.request_id for one in (first, second, third)] == ["b-1", "b-2", "b-3"]
    assert table.settle("b-2", None)
    assert not table.settle("b-2", None)
    assert (second.is_answered, first.is_answered, len(woken)) == (True, False, 1)
    assert table.withdraw([first, second, third]) == ["b-1", "b-3"]
    assert not table.settle("b-1", None)
    assert len(woken) == 1


# --- FrontEnd in closing ----------------------------------------------------------------------


class Closing:
    """A front end whose connection is closing; its answers."""

    def __init__(self, closed_by: BridgeError | None) -> None:
        self.client = FakeClient()
        self.stderr = RunningLog(product.LogLevel.DEBUG, SMALL)
        self.lifecycle = Lifecycle()
        self.lifecycle.close(closed_by)
        self.admitted: list[object] = []
        self.front_end = product.FrontEnd(
            descriptor=self.client.bridge_stdin,
            output=Output(self.client.bridge_stdout, lambda job: job(), lambda: None, 10),
            lifecycle=self.lifecycle,
            limits=SMALL,
            log=self.stderr.writer,
            admit=self.admitted.append,
            cancel=lambda _key: None,
            flush_requests=lambda: None,
            settle=lambda _key, _answer: False,
            start_listening=lambda: None,
            takes_changes=lambda: False,
            note_asked=lambda _method: None,
        )

    def ask(self, *methods: str) -> dict[str, Any]:
        """The answers by method, after the end of the input."""
        for method in methods:
            self.client.send(id=method, method=method, params={"level": "info"})
        self.client.close()
        self.front_end.run_reader()
        self.client.release()
        self.stderr.release()
        assert self.admitted == []
        answers = [json.loads(line) for line in self.client.heard.rest()]
        return {answer["id"]: answer.get("result", answer.get("error")) for answer in answers}


@requirement("lifecycle.closing", "errors.upstream_exited")
def test_after_the_loss_of_the_server_each_request_gets_its_error() -> None:
    answers = Closing(BridgeError(Cause.UPSTREAM_EXITED)).ask("tools/list", "initialize", "no/such")
    assert {answer["data"]["cause"] for answer in answers.values()} == {"upstream_exited"}
    assert {answer["code"] for answer in answers.values()} == {-32603}
    assert len(answers) == 3


@pytest.mark.parametrize("closed_by", [None, BridgeError(Cause.UPSTREAM_EXITED)])
@requirement("lifecycle.closing")
def test_ping_set_level_and_discover_keep_their_rules_in_closing(
    closed_by: BridgeError | None,
) -> None:
    answers = Closing(closed_by).ask("ping", "logging/setLevel", "server/discover")
    assert answers["ping"] == answers["logging/setLevel"] == {}
    assert answers["server/discover"]["code"] == -32601


@requirement("lifecycle.closing")
def test_after_the_end_of_the_input_a_request_gets_no_response() -> None:
    answers = Closing(None).ask("tools/list", "initialize", "no/such", "ping")
    assert answers == {"ping": {}}


# --- The reader -------------------------------------------------------------------------------


@requirement("decisions.9", "reader.never-blocks")
def test_the_reader_goes_on_while_nobody_reads_stdout() -> None:
    """More answers than a pipe holds, a client that reads none, and a cancellation after them."""
    running = RunningBridge()
    running.initialize()
    running.client.send(id="call", method="tools/call", params={"name": "a"})
    call = running.server.hear()
    running.client.stop_reading()
    running.client.send_raw(b"".join(b"not json %d\n" % n for n in range(1500)))
    running.client.send(method="notifications/cancelled", params={"requestId": "call"})
    cancelled = running.server.hear()
    assert cancelled["params"]["requestId"] == call["id"]
    running.client.go_on_reading()
    for _ in range(1500):
        assert running.client.hear()["error"]["code"] == -32700
    running.release()


def test_an_unfinished_last_line_has_no_effect(ready: RunningBridge) -> None:
    ready.client.send_raw(b'{"jsonrpc":"2.0","id":1,"method":"ping"}')
    ready.client.close()
    ready.release()
    assert ready.client.heard.rest() == []


@requirement("bad-lines.goes-on")
def test_lines_arrive_however_their_bytes_are_split(ready: RunningBridge) -> None:
    line = '{"jsonrpc":"2.0","id":"é","method":"ping"}\r\n'.encode()
    ready.client.send_in_pieces(line)
    assert ready.client.hear() == {"id": "é", "result": {}}


@requirement("errors.out_of_memory")
def test_a_line_for_which_there_is_no_memory_is_answered(
    ready: RunningBridge, monkeypatch: pytest.MonkeyPatch
) -> None:
    def parse(_line: bytes, _depth: int) -> product.RawObject:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(product, "parse_frame", parse)
        answer = ready.client.ask(1, "ping")
    assert answer["error"]["data"] == {"cause": "out_of_memory"}
    assert ready.client.ask(2, "ping") == {"id": 2, "result": {}}


@requirement("decisions.4", "errors.internal")
def test_an_unexpected_failure_of_the_reader_ends_the_bridge_with_code_1(
    bridge: RunningBridge, monkeypatch: pytest.MonkeyPatch
) -> None:
    def parse(_line: bytes, _depth: int) -> product.RawObject:
        raise ZeroDivisionError("a secret")

    with monkeypatch.context() as patch:
        patch.setattr(product, "parse_frame", parse)
        bridge.client.send(id=1, method="ping")
        assert bridge.wait_exit() == 1
    line = bridge.stderr.heard("internal error")
    assert "vscode: error: " in line
    assert "ZeroDivisionError" in line
    assert "secret" not in line


def test_the_level_is_what_was_set_last(ready: RunningBridge) -> None:
    ready.client.ask(1, "logging/setLevel", level="info")
    ready.client.ask(2, "logging/setLevel", level="loud")
    until(lambda: ready.bridge.front_end.level == "info", "the level")
