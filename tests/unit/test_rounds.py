"""The section `rounds`, with the client, the server and the clock in the test's hand."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any, Final

import pytest

import mcp_bridge_vscode as product
from mcp_bridge_vscode import (
    METHODS,
    BridgeError,
    Cause,
    ClientRequest,
    PendingTable,
    RequestOverError,
    Rounds,
)
from tests.requirements import requirement
from tests.support.clock import FakeClock
from tests.support.running import INITIALIZE, RunningBridge, RunningLog
from tests.support.waits import WAIT_SECONDS, until

FORM: Final = {
    "method": "elicitation/create",
    "params": {
        "mode": "form",
        "message": "Who?",
        "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}},
    },
}
ROOTS: Final = {"method": "roots/list"}
DECLINE: Final[dict[str, Any]] = {"action": "decline"}


def url(text: str) -> dict[str, Any]:
    return {
        "method": "elicitation/create",
        "params": {"mode": "url", "message": "Open", "url": text},
    }


def frame(**members: Any) -> product.RawObject:
    return product.parse_frame(json.dumps({"jsonrpc": "2.0", **members}).encode(), 200)


def asks(requests: dict[str, Any] | None, **more: Any) -> product.RawObject:
    asked = {} if requests is None else {"inputRequests": requests}
    return frame(id=1, result={"resultType": "input_required", **asked, **more})


DONE: Final = frame(id=1, result={"resultType": "complete", "content": []})


class Table(PendingTable):
    """The real table, which notes what happens to it."""

    def __init__(self, notes: list[Any]) -> None:
        super().__init__()
        self._notes = notes

    def register(self, count: int, wake: Callable[[], None]) -> list[product.Pending]:
        entries = super().register(count, wake)
        self._notes.append(("registered", [entry.request_id for entry in entries]))
        return entries

    def withdraw(self, pending: Any) -> list[str]:
        ids = super().withdraw(pending)
        self._notes.append(("withdrawn", ids))
        return ids

    def is_empty(self) -> bool:
        return not self._waiting


class Work:
    """A slot in the hands of rounds: `replies` are what the server says to the retries."""

    def __init__(self, world: World, method: str) -> None:
        self.request = ClientRequest(
            7, b"7", METHODS[method], frame(params={"a": 1}).object("params")
        )
        self.meta: product.RawObject | None = None
        self.has_progress = False
        self.is_over = False
        self.reason: str | None = "the reason"
        self.signal = product.Signal()
        self.waits: list[float] = []
        self._world = world

    def check_open(self) -> None:
        if self.is_over:
            raise RequestOverError

    def claim(self) -> None:
        self.check_open()

    def end_reason(self) -> str | None:
        return self.reason if self.is_over else None

    def end(self) -> None:
        self.is_over = True
        self.signal.set()

    def wait(self, until: float) -> None:
        self.waits.append(until)
        self._world.clock.wait(self.signal, until)

    def wake(self) -> None:
        self.signal.set()

    def exchange(self, call: product.UpstreamCall, limit: float) -> product.RawObject:
        self._world.calls.append((call, limit))
        reply = self._world.replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return reply

    def frame_of(self, reply: product.RawObject) -> list[product.Piece]:
        return [reply.line]


class World:
    """What is around one run of rounds. `answers` says what the client does with each question."""

    def __init__(self, log: RunningLog, **limits: float) -> None:
        self.notes: list[Any] = []
        self.table = Table(self.notes)
        self.clock = FakeClock()
        self.calls: list[tuple[product.UpstreamCall, float]] = []
        self.replies: list[product.RawObject | Exception] = []
        self.on_question: Callable[[dict[str, Any]], None] = lambda _: None
        self.log = log
        self.rounds = Rounds(
            asking=self.table,
            write_from=self.write_from,
            limits=product.Limits().replace(**limits),
            clock=self.clock,
            log=log.writer,
        )
        self.rounds.capabilities = {
            "elicitation": {"form": {}, "url": {}},
            "sampling": {},
            "roots": {},
        }
        self.work = Work(self, "tools/call")

    def write_from(
        self, produce: Callable[[], list[product.Piece] | None], *, is_more: bool = False
    ) -> None:
        assert not is_more
        heard = [json.loads(bytes(piece)) for piece in produce() or ()]
        self.notes += heard
        for one in heard:
            if "id" in one:
                self.on_question(one)

    def answer(self, question: dict[str, Any], **members: Any) -> None:
        assert self.table.settle(question["id"], frame(id=question["id"], **members))

    def run(self, first: product.RawObject, *replies: product.RawObject | Exception) -> Any:
        self.replies += replies
        try:
            return json.loads(b"".join(self.rounds.run(self.work, first)))
        finally:
            assert self.table.is_empty()

    def members(self, number: int) -> dict[str, Any]:
        """The params of a retry."""
        return dict(json.loads(b"{" + b",".join(self.calls[number][0].members) + b"}"))


@pytest.fixture
def log() -> Any:
    log = RunningLog(product.LogLevel.DEBUG, product.Limits())
    yield log
    log.release()


@pytest.fixture
def world(log: RunningLog) -> World:
    return World(log)


def in_thread(world: World, first: product.RawObject) -> tuple[threading.Thread, list[Any]]:
    """Rounds run on a thread of their own; what they end with."""
    ended: list[Any] = []

    def run() -> None:
        try:
            ended.append(world.run(first))
        except (BridgeError, RequestOverError) as error:
            ended.append(error)

    thread = threading.Thread(target=run, name="fake worker", daemon=True)
    thread.start()
    return thread, ended


@requirement("questions.entries")
def test_entries_are_in_the_table_before_the_questions_go_out(world: World) -> None:
    world.on_question = lambda q: world.answer(
        q, result=DECLINE if "mode" in q["params"] else {"roots": []}
    )
    world.run(asks({"f": FORM, "r": ROOTS}), DONE)
    assert world.notes[0] == ("registered", ["b-1", "b-2"])
    assert [note["id"] for note in world.notes[1:3]] == ["b-1", "b-2"]
    assert world.notes[3] == ("withdrawn", [])
    assert len(world.notes) == 4


@requirement("questions.entries", "questions.cancelled")
def test_entries_leave_the_table_before_the_client_hears_that_a_question_is_off(
    world: World,
) -> None:
    world.on_question = lambda q: world.work.end() if q["id"] == "b-2" else None
    with pytest.raises(RequestOverError):
        world.run(asks({"f": FORM, "r": ROOTS}))
    assert world.notes[3] == ("withdrawn", ["b-1", "b-2"])
    assert [note["params"] for note in world.notes[4:]] == [
        {"requestId": one, "reason": "the reason"} for one in ("b-1", "b-2")
    ]


@requirement("questions.cancelled")
def test_a_request_that_is_over_asks_nothing_and_takes_nothing_back(world: World) -> None:
    world.work.end()
    with pytest.raises(RequestOverError):
        world.run(asks({"f": FORM}))
    assert world.notes == [("registered", ["b-1"]), ("withdrawn", ["b-1"])]
    assert world.calls == []


@requirement("questions.complete", "questions.cancelled")
def test_a_url_that_was_opened_is_complete_whatever_becomes_of_the_request(world: World) -> None:
    def on_question(question: dict[str, Any]) -> None:
        if question["params"].get("mode") == "url":
            world.answer(question, result={"action": "accept"})
        else:
            world.work.end()

    world.on_question = on_question
    with pytest.raises(RequestOverError):
        world.run(asks({"u": url("https://a.example/"), "f": FORM}))
    assert world.notes[-1]["method"] == "notifications/elicitation/complete"
    assert world.notes[-1]["params"] == {"elicitationId": "elicitation-1"}
    assert world.notes[-2]["params"] == {"requestId": "b-2", "reason": "the reason"}


@requirement("questions.complete")
@pytest.mark.parametrize("answer", [{"result": {}}, {"error": {"code": 1, "message": "m"}}])
def test_a_url_that_was_not_opened_is_never_complete(world: World, answer: Any) -> None:
    world.on_question = lambda q: world.answer(q, **answer)
    try:
        world.run(asks({"u": url("https://a.example/")}), DONE)
    except BridgeError as error:
        assert error.cause is Cause.INVALID_CLIENT_ANSWER  # noqa: PT017 - one of two outcomes
    assert [note for note in world.notes if "complete" in str(note)] == []


@requirement("questions.complete")
def test_every_opened_url_is_complete_when_the_server_fails(world: World) -> None:
    world.on_question = lambda q: world.answer(q, result={"action": "accept"})
    first = asks({key: url(f"https://{key}.example/") for key in "ab"})
    with pytest.raises(BridgeError):
        world.run(first, BridgeError(Cause.TIMEOUT))
    assert [note["params"]["elicitationId"] for note in world.notes[-2:]] == [
        "elicitation-1",
        "elicitation-2",
    ]


@requirement("questions.empty-rounds")
def test_the_pause_of_rounds_without_questions_doubles_up_to_its_limit(log: RunningLog) -> None:
    world = World(log, round_pause_seconds=0.5, most_pause_seconds=3.0)
    pauses: list[float] = []

    def wait(until: float) -> None:
        pauses.append(until - world.clock.now())
        world.clock.advance(pauses[-1])

    world.work.wait = wait  # type: ignore[method-assign]
    world.run(
        asks(None, requestState="0"), *[asks({}, requestState=str(n)) for n in range(1, 5)], DONE
    )
    assert pauses == [0.5, 1.0, 2.0, 3.0, 3.0]
    assert [world.members(n)["requestState"] for n in range(5)] == list("01234")
    assert all("inputResponses" not in world.members(n) for n in range(5))


@requirement("questions.empty-rounds", "questions.cancelled")
def test_a_pause_ends_at_once_with_the_request(world: World) -> None:
    thread, ended = in_thread(world, asks(None, requestState="s"))
    until(lambda: bool(world.work.waits), "the pause")
    world.work.wake()  # by nothing that matters: the pause goes on
    until(lambda: len(world.work.waits) == 2, "the pause again")
    world.work.end()
    thread.join()
    assert isinstance(ended[0], RequestOverError)
    assert world.calls == []


@requirement("questions.timeout", "limits.answers")
def test_the_hour_begins_when_the_questions_go_out(world: World) -> None:
    world.on_question = lambda _: world.clock.advance(3600.0)
    with pytest.raises(BridgeError) as raised:
        world.run(asks({"f": FORM}))
    assert raised.value.cause is Cause.INPUT_TIMEOUT
    assert world.notes[-1]["params"] == {"requestId": "b-1", "reason": "no answer in time"}
    world.log.heard("no answers of the client in 3600 s (input requests without an answer: 1 of 1)")


@requirement("questions.timeout")
def test_each_round_has_the_whole_hour(world: World) -> None:
    def on_question(question: dict[str, Any]) -> None:
        world.clock.advance(3599.0)
        world.answer(question, result=DECLINE)

    world.on_question = on_question
    assert "result" in world.run(asks({"f": FORM}), asks({"f": FORM}), DONE)


@requirement("questions.round-limit")
@pytest.mark.parametrize("method", ["tools/call", "prompts/get", "resources/read"])
def test_a_retry_has_the_limit_of_a_later_round(world: World, method: str) -> None:
    world.work = Work(world, method)
    world.on_question = lambda q: world.answer(q, result=DECLINE)
    world.run(asks({"f": FORM}), DONE)
    ((call, limit),) = world.calls
    assert (call.method, call.round_number, limit) == (method, 2, 3600.0)


@requirement("questions.state")
@pytest.mark.parametrize(
    "text", [rb'"\u0000\/\ud800"', b'"' + b"x" * 65536 + b'"', '"é☃"'.encode(), b'""']
)
def test_the_state_goes_back_byte_for_byte(world: World, text: bytes) -> None:
    line = b'{"jsonrpc":"2.0","id":1,"result":{"resultType":"input_required","requestState":%s}}'
    world.work.wait = lambda until: world.clock.advance(until - world.clock.now())  # type: ignore[method-assign]
    world.run(product.parse_frame(line % text, 200), DONE)
    assert b'"requestState":' + text in b",".join(world.calls[0][0].members)


@requirement("questions.state")
def test_a_large_state_is_not_copied_and_stands_in_no_line_of_the_log(world: World) -> None:
    state = b'"token=secret' + b"x" * (16 << 20) + b'"'
    line = b'{"jsonrpc":"2.0","id":1,"result":{"resultType":"input_required","requestState":%s}}'
    reply = product.parse_frame(line % state, 200)
    world.work.wait = lambda until: world.clock.advance(until - world.clock.now())  # type: ignore[method-assign]
    with pytest.raises(BridgeError) as raised:
        world.run(*[reply] * 10)
    assert raised.value.cause is Cause.TOO_MANY_ROUNDS
    echoed = [call.members[-1] for call, _ in world.calls]
    assert len(echoed) == 9
    for piece in echoed:
        assert isinstance(piece, memoryview)
        assert piece.obj is reply.line
        assert piece == b'"requestState":' + state
    world.log.heard("asked for input in 10 rounds")
    assert b"secret" not in b"".join(world.log.logged())


@requirement("questions.round-checks", "errors.too_many_input_requests")
def test_very_many_questions_are_refused_and_a_large_key_is_cut(world: World) -> None:
    with pytest.raises(BridgeError) as raised:
        world.run(asks({str(number): ROOTS for number in range(100_000)}))
    assert raised.value.cause is Cause.TOO_MANY_INPUT_REQUESTS
    assert raised.value.detail == "100000 input requests in one round, limit: 16"
    with pytest.raises(BridgeError) as raised:
        world.run(asks({"k\r\n" * 300_000: 1}))
    assert raised.value.cause is Cause.INVALID_INPUT_REQUEST
    assert len(raised.value.detail) < 200
    assert raised.value.detail.isprintable()
    assert world.notes == []


@requirement("questions.state", "questions.round")
def test_neither_state_nor_answers_of_an_earlier_round_come_again(world: World) -> None:
    world.on_question = lambda q: world.answer(q, result=DECLINE)
    world.run(asks({"f": FORM}, requestState="1"), asks({"g": FORM}), DONE)
    assert world.members(0) == {"a": 1, "inputResponses": {"f": DECLINE}, "requestState": "1"}
    assert world.members(1) == {"a": 1, "inputResponses": {"g": DECLINE}}


@requirement("questions.client-errors")
def test_a_refusal_waits_for_the_other_answers(world: World) -> None:
    def on_question(question: dict[str, Any]) -> None:
        if question["id"] == "b-1":
            world.answer(question, error={"code": -32000, "message": "no", "data": 1.50})
        else:
            world.answer(question, result={"roots": []})

    world.on_question = on_question
    answer = world.run(asks({"one": ROOTS, "two": ROOTS}))
    assert answer["error"] == {"code": -32000, "message": "no", "data": 1.5}
    assert world.notes[3:] == [("withdrawn", [])]
    assert world.calls == []


def test_an_answer_that_comes_twice_counts_once(world: World) -> None:
    def on_question(question: dict[str, Any]) -> None:
        world.answer(question, result={"action": "cancel"})
        assert not world.table.settle(question["id"], frame(id=question["id"], result=DECLINE))

    world.on_question = on_question
    world.run(asks({"f": FORM}), DONE)
    assert world.members(0)["inputResponses"] == {"f": {"action": "cancel"}}


@requirement("questions.ten-rounds", "limits.rounds")
def test_the_last_round_puts_no_question(log: RunningLog) -> None:
    world = World(log, rounds=2)
    world.on_question = lambda q: world.answer(q, result=DECLINE)
    with pytest.raises(BridgeError) as raised:
        world.run(asks({"f": FORM}), asks({"f": FORM}))
    assert (raised.value.cause, raised.value.detail) == (Cause.TOO_MANY_ROUNDS, "limit: 2 rounds")
    assert len([note for note in world.notes if "id" in note]) == 1


@requirement("log.url-refused")
def test_a_refused_url_is_in_no_line_of_the_log(world: World) -> None:
    world.run(asks({"u": url("javascript:secret")}), DONE)
    assert "secret" not in world.log.heard("input request 'u': the bridge refused the URL")
    assert b"secret" not in b"".join(world.log.logged())
    assert world.members(0)["inputResponses"] == {"u": DECLINE}
    assert world.notes == []


# --- How slots hands a request over -----------------------------------------------------------


@pytest.fixture
def asking(bridge: RunningBridge) -> RunningBridge:
    """A bridge whose client has a call with an open question; its worker waits for the answer."""
    params = {**INITIALIZE, "capabilities": {"elicitation": {}}}
    bridge.client.send(id="i", method="initialize", params=params)
    bridge.server.answer(bridge.server.hear(), supportedVersions=["2026-07-28"], capabilities={})
    bridge.client.hear()
    bridge.client.send(id=1, method="tools/call", params={"name": "t"})
    asked = {"resultType": "input_required", "inputRequests": {"f": FORM}}
    bridge.server.say(id=bridge.server.hear()["id"], result=asked)
    assert bridge.client.hear()["id"] == "b-1"
    line_at = bridge.clock.now() + product.LIMITS.first_line_seconds
    until(lambda: bridge.clock.has_waiter_until(line_at), "the wait for the answer")
    return bridge


@requirement("slots.once")
def test_a_worker_that_begins_to_attend_too_late_takes_no_wake_up_away(
    asking: RunningBridge,
) -> None:
    """It was started at the 10 s of the first round, in the moment in which the reply came."""
    slots = asking.bridge._slots
    slots._attend(slots._in_flight[1])  # it ends at once
    asking.client.send(id="b-1", result=DECLINE)
    retry = asking.server.hear()
    assert retry["params"]["inputResponses"] == {"f": DECLINE}
    slots._attend(slots._in_flight[1])
    asking.server.answer(retry, content=[])
    assert asking.client.hear() == {"id": 1, "result": {"content": []}}


@requirement("questions.cancelled")
def test_the_reason_is_known_to_whoever_sees_that_the_request_is_over(
    asking: RunningBridge, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker wakes by itself in the moment in which the reader cancels."""
    slots = asking.bridge._slots
    slot, remove = slots._in_flight[1], slots._remove
    told: list[dict[str, Any]] = []

    def remove_after_the_worker(one: product.Slot) -> None:
        slot.wake()
        told.append(asking.client.hear())
        remove(one)

    with monkeypatch.context() as patch:
        patch.setattr(slots, "_remove", remove_after_the_worker)
        asking.client.send(method="notifications/cancelled", params={"requestId": 1})
        until(lambda: not slots._busy and not slots._in_flight, "the end of the request")
    assert told[0]["params"] == {"requestId": "b-1", "reason": "the client canceled the request"}


class LettingGo(product.Slot):
    """A slot whose exchange goes away between two looks at it, as a reply makes it go."""

    __slots__ = ("looks",)

    def __init__(self, slots: product.Slots, request: ClientRequest) -> None:
        self.looks: list[str] = []
        super().__init__(slots, request, 0.0)

    def __getattribute__(self, name: str) -> Any:
        if name == "sent":
            self.looks.append(name)
            return object() if len(self.looks) == 1 else None
        return super().__getattribute__(name)


@requirement("slots.once")
def test_a_cancellation_in_the_moment_of_the_reply_abandons_what_it_saw(
    ready: RunningBridge, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = ClientRequest(1, b"1", METHODS["tools/call"], None)
    slots = ready.bridge._slots
    slot = LettingGo(slots, request)
    abandoned: list[object] = []
    monkeypatch.setattr(slots._connection, "abandon", lambda one, *_: abandoned.append(one))
    slots._in_flight[1] = slot
    slots.cancel(1)
    assert len(abandoned) == 1
    assert abandoned[0] is not None


@requirement("loss.deaf")
def test_a_request_that_fails_before_its_slot_knows_its_exchange_has_its_error(
    ready: RunningBridge, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = ready.bridge._slots._connection._reader  # type: ignore[attr-defined]  # the real one
    prepare = reader.prepare

    def prepare_and_fail(*arguments: Any) -> product.Exchange:
        exchange: product.Exchange = prepare(*arguments)
        reader.settle(exchange.request_id, None, BridgeError(Cause.TRANSPORT_FAILED))
        return exchange

    with monkeypatch.context() as patch:
        patch.setattr(reader, "prepare", prepare_and_fail)
        answer = ready.client.ask(1, "tools/call", name="t")
    assert answer["error"]["data"] == {"cause": "transport_failed"}
    assert ready.bridge._slots._in_flight == {}


@requirement("questions.lost", "questions.end-of-input")
@pytest.mark.parametrize(
    ("event", "reason"),
    [
        ("loss", "the upstream server stopped"),
        ("end", "the client closed the connection"),
    ],
)
def test_no_thread_and_no_entry_is_left_of_an_open_question(
    asking: RunningBridge, event: str, reason: str
) -> None:
    if event == "loss":
        asking.server.run.exit("exit code 1")
        assert asking.client.hear()["error"]["data"] == {"cause": "upstream_exited"}
    else:
        asking.client.close()
    assert asking.client.hear()["params"] == {"requestId": "b-1", "reason": reason}
    asking.wait_exit()
    assert asking.bridge._pending._waiting == {}
    assert asking.bridge._slots._busy == set()
    asking.release()
    assert asking.client.heard.rest() == []


def test_a_question_in_the_moment_of_the_cancellation_is_taken_back_or_never_put(
    bridge: RunningBridge,
) -> None:
    """Both at the same time, often: no question is taken back that never went out."""
    params = {**INITIALIZE, "capabilities": {"elicitation": {}}}
    bridge.client.send(id="i", method="initialize", params=params)
    bridge.server.answer(bridge.server.hear(), supportedVersions=["2026-07-28"], capabilities={})
    bridge.client.hear()
    asked = {"resultType": "input_required", "inputRequests": {"f": FORM}}
    for number in range(100):
        bridge.client.send(id=number, method="tools/call", params={"name": "t"})
        call = bridge.server.hear("tools/call")
        gate = threading.Barrier(2)

        def cancel(number: int = number, gate: threading.Barrier = gate) -> None:
            gate.wait(WAIT_SECONDS)
            bridge.bridge._slots.cancel(number)

        thread = threading.Thread(target=cancel, name="fake cancel", daemon=True)
        thread.start()
        gate.wait(WAIT_SECONDS)
        bridge.server.say(id=call["id"], result=asked)
        thread.join(WAIT_SECONDS)
        until(lambda: not bridge.bridge._slots._busy, "the end of the call")
    heard = bridge.client.heard_so_far()
    put = [one["id"] for one in heard if one["method"] == "elicitation/create"]
    off = [one["params"]["requestId"] for one in heard if one["method"] != "elicitation/create"]
    assert put == off  # what went out was taken back, and nothing else
    assert bridge.bridge._pending._waiting == {}


@requirement("questions.elicitation-id")
def test_elicitation_ids_are_unique_over_requests(world: World) -> None:
    world.on_question = lambda q: world.answer(q, result=DECLINE)
    for _ in range(2):
        world.run(asks({"u": url("https://a.example/")}), DONE)
    ids = [note["params"]["elicitationId"] for note in world.notes if "id" in note]
    assert ids == ["elicitation-1", "elicitation-2"]
