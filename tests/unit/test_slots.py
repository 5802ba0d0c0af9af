"""The section `slots`: one client request from its line to its answer, once or never."""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING

import pytest

import mcp_bridge_vscode as product
from mcp_bridge_vscode import ProgressGate, State
from tests.requirements import requirement
from tests.support.fake_server import DISCOVERED
from tests.support.running import INITIALIZE, RunningBridge
from tests.support.waits import WAIT_SECONDS, until

if TYPE_CHECKING:
    from mcp_bridge_vscode import Piece

# --- ProgressGate -----------------------------------------------------------------------------


def frame(text: str) -> list[Piece]:
    return [text.encode()]


@requirement("progress.rate", "decisions.15")
def test_the_gate_lets_so_many_through_in_a_second_and_holds_the_newest() -> None:
    gate = ProgressGate(2)
    assert gate.pass_or_hold(frame("1"), 10.0) == frame("1")
    assert gate.pass_or_hold(frame("2"), 10.1) == frame("2")
    assert gate.pass_or_hold(frame("3"), 10.2) is None
    assert gate.pass_or_hold(frame("4"), 10.9) is None
    assert gate.due == 11.0
    assert gate.take_held(10.95) is None
    assert gate.take_held(11.0) == frame("4")
    assert gate.take_held(11.0) is None


def test_what_was_held_counts_for_its_second() -> None:
    gate = ProgressGate(2)
    for text in "123":
        gate.pass_or_hold(frame(text), 10.0)
    assert gate.take_held(11.0) == frame("3")
    assert gate.pass_or_hold(frame("4"), 11.1) == frame("4")
    assert gate.pass_or_hold(frame("5"), 11.2) is None


def test_a_newer_one_that_passes_takes_the_place_of_what_was_held() -> None:
    gate = ProgressGate(1)
    gate.pass_or_hold(frame("1"), 10.0)
    gate.pass_or_hold(frame("2"), 10.5)
    assert gate.pass_or_hold(frame("3"), 11.0) == frame("3")
    assert gate.due is None
    assert gate.take_held() is None


def test_just_before_the_answer_what_is_held_comes_in_any_case() -> None:
    gate = ProgressGate(1)
    gate.pass_or_hold(frame("1"), 10.0)
    gate.pass_or_hold(frame("2"), 10.5)
    assert gate.take_held() == frame("2")


# --- Races of a request -----------------------------------------------------------------------


@requirement("slots.once")
def test_a_request_that_is_cancelled_while_it_is_answered_has_one_outcome() -> None:
    """Both at the same time, often: the answer comes once or never, and the id is free again."""
    running = RunningBridge(level=product.LogLevel.DEBUG)
    running.initialize()
    upstream: dict[int, int] = {}  # the id at the server, and that of the client
    for number in range(200):
        running.client.send(id=number, method="tools/list", params={})
        request = running.server.hear("tools/list")  # the last cancellation may come before it
        upstream[request["id"]] = number
        gate = threading.Barrier(2)

        def cancel(number: int = number, gate: threading.Barrier = gate) -> None:
            gate.wait(WAIT_SECONDS)
            running.client.send(method="notifications/cancelled", params={"requestId": number})

        thread = threading.Thread(target=cancel, name="fake cancel", daemon=True)
        thread.start()
        gate.wait(WAIT_SECONDS)
        running.server.answer(request, tools=[])
        thread.join(WAIT_SECONDS)
    answers = running.client.heard_so_far()
    assert [answer["result"] for answer in answers] == [{"tools": []}] * len(answers)
    answered = [answer["id"] for answer in answers]
    log = b"\n".join(running.stderr.logged()).decode()
    unanswered = [int(number) for number in re.findall(r"no answer for request (\d+) ", log)]
    assert sorted(answered + unanswered) == list(range(200))
    cancelled = [frame["params"]["requestId"] for frame in running.server.heard_so_far()]
    assert {upstream[one] for one in cancelled} <= set(unanswered)
    # The others of them had their reply in the very moment, too late for the client.
    assert len(set(cancelled)) == len(cancelled) == log.count("dropped a reply")
    assert running.bridge._slots._in_flight == {}
    running.release()


@requirement("initialize.cancelled", "slots.once")
@pytest.mark.parametrize("moment", ["claim", "settle_as_ready"])
def test_an_initialize_cancelled_after_the_reply_of_the_server_is_never_half_done(
    bridge: RunningBridge, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """The cancellation comes after the reply: there is an answer, or a new initialize works."""
    owner = product.Slot if moment == "claim" else product.Connection
    go_on = getattr(owner, moment)

    def cancel_and_go_on(*arguments: object) -> None:
        bridge.bridge._slots.cancel("first")
        go_on(*arguments)

    monkeypatch.setattr(owner, moment, cancel_and_go_on)
    bridge.client.send(id="first", method="initialize", params=INITIALIZE)
    bridge.server.say(id=bridge.server.hear()["id"], result=DISCOVERED)
    until(lambda: bridge.bridge._slots._busy == set(), "the end of the first initialize")
    monkeypatch.undo()
    if moment == "claim":
        bridge.initialize()
    else:
        assert bridge.client.hear()["id"] == "first"
        bridge.wait_state(State.READY)


@requirement("stop.end-of-input")
def test_the_stop_waits_for_an_initialize_that_is_at_work(bridge: RunningBridge) -> None:
    bridge.server.may_stop.clear()
    bridge.client.send(id=1, method="initialize", params=INITIALIZE)
    bridge.server.hear()
    bridge.client.send(method="notifications/cancelled", params={"requestId": 1})
    bridge.server.hear()
    bridge.client.close()
    until(lambda: bridge.bridge._lifecycle.state is State.CLOSING, "the begin of the stop")
    assert bridge.exit_codes == []
    bridge.server.may_stop.set()
    assert bridge.wait_exit() == 0


@requirement("progress.after-cancel", "slots.once")
def test_progress_that_meets_a_cancellation_does_not_come_after_it(
    ready: RunningBridge, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cancellation comes when the progress has found its request and is not written yet."""
    translate = product.progress_to_legacy

    def cancel_and_translate(params: product.RawObject, token: bytes) -> list[Piece] | None:
        ready.bridge._slots.cancel(1)
        return translate(params, token)

    params = {"name": "a", "_meta": {"progressToken": "t"}}
    ready.client.send(id=1, method="tools/call", params=params)
    token = ready.server.hear()["id"]
    monkeypatch.setattr(product, "progress_to_legacy", cancel_and_translate)
    ready.server.say(
        method="notifications/progress", params={"progressToken": token, "progress": 1}
    )
    assert ready.server.hear()["method"] == "notifications/cancelled"
    assert ready.client.ask(2, "ping") == {"id": 2, "result": {}}


@requirement("limits.in-flight")
def test_256_requests_are_in_flight_and_the_next_is_refused() -> None:
    running = RunningBridge(limits=product.LIMITS.replace(log_flush_seconds=WAIT_SECONDS))
    running.initialize()
    for number in range(256):
        running.client.send(id=number, method="tools/list", params={})
    requests = [running.server.hear() for _ in range(256)]
    refused = running.client.ask("more", "tools/list")
    assert refused["error"]["data"] == {"cause": "too_many_requests"}
    running.stderr.heard('rejected request "more" (tools/list)')
    for request in reversed(requests):
        running.server.answer(request, tools=[])
    assert {running.client.hear()["id"] for _ in range(256)} == set(range(256))
    running.release()


@requirement("errors.out_of_memory")
def test_a_reply_for_which_there_is_no_memory_fails_its_request(
    ready: RunningBridge, monkeypatch: pytest.MonkeyPatch
) -> None:
    def translate(*_: object) -> list[Piece]:
        raise MemoryError

    ready.client.send(id=1, method="tools/list", params={})
    request = ready.server.hear()
    with monkeypatch.context() as patch:
        patch.setattr(product, "result_to_legacy", translate)
        ready.server.answer(request, tools=[])
    assert ready.client.hear()["error"]["data"] == {"cause": "out_of_memory"}


@requirement("decisions.4", "errors.internal")
def test_an_unexpected_failure_of_a_slot_fails_its_request_alone(
    ready: RunningBridge, monkeypatch: pytest.MonkeyPatch
) -> None:
    def translate(*_: object) -> list[Piece]:
        raise ZeroDivisionError("a secret")

    ready.client.send(id=1, method="tools/list", params={})
    request = ready.server.hear()
    with monkeypatch.context() as patch:
        patch.setattr(product, "result_to_legacy", translate)
        ready.server.answer(request, tools=[])
    error = ready.client.hear()["error"]
    assert (error["code"], error["data"]) == (-32603, {"cause": "internal"})
    line = ready.stderr.heard("internal error")
    assert "bridge: error: request 1 (tools/list): " in line
    assert "secret" not in line
    assert ready.client.ask(2, "ping") == {"id": 2, "result": {}}


def test_a_quick_request_costs_no_worker(ready: RunningBridge) -> None:
    until(lambda: len(ready.bridge._workers._idle) > 0, "the worker of initialize")
    before = {t for t in threading.enumerate() if t.name == "worker"}
    for number in range(50):
        ready.client.send(id=number, method="tools/list", params={})
        ready.server.answer(ready.server.hear(), tools=[])
        assert ready.client.hear()["id"] == number
    assert {t for t in threading.enumerate() if t.name == "worker"} <= before
