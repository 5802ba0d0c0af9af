"""The section `upstream`: our requests to the server by id, and what the server says."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import mcp_bridge_vscode as product
from mcp_bridge_vscode import Cause, LogLevel, LongLine, ServerReader, UpstreamCall
from tests.requirements import requirement
from tests.support.clock import FakeClock
from tests.support.running import SMALL, RunningBridge, RunningLog
from tests.support.waits import until

PAUSE = SMALL.round_pause_seconds


class Room:
    """A reader of a server's lines, with what it told its neighbours."""

    def __init__(self) -> None:
        self.stderr = RunningLog(LogLevel.DEBUG, SMALL)
        self.lost: list[str] = []
        self.pauses: list[bool] = []
        self.settled: list[int] = []
        self.progress: list[product.RawObject] = []
        self.reader = ServerReader(
            SMALL,
            FakeClock(),
            self.stderr.writer,
            on_lost=self.lost.append,
            on_pause=lambda: self.pauses.append(True),
            on_log=lambda _params: None,
        )

    def prepare(self) -> product.UpstreamExchange:
        exchange = self.reader.prepare(
            UpstreamCall("tools/list", [], client_id=b"1"),
            lambda: self.settled.append(exchange.request_id),
            self.progress.append,
            None,
        )
        return exchange

    def say(self, line: bytes) -> None:
        self.reader.handle_line(line)


@pytest.fixture
def room() -> Iterator[Room]:
    room = Room()
    yield room
    room.stderr.release()


def failure_of(exchange: product.UpstreamExchange) -> Cause | None:
    return None if exchange.failure is None else exchange.failure.cause


@requirement("ids.upstream")
def test_upstream_ids_are_integers_from_1_and_never_used_again(room: Room) -> None:
    ids = []
    for _ in range(5):
        exchange = room.prepare()
        ids.append(exchange.request_id)
        room.say(b'{"jsonrpc":"2.0","id":%d,"result":{}}' % exchange.request_id)
    assert ids == [1, 2, 3, 4, 5]
    assert room.settled == ids


@requirement("replies.double")
def test_the_first_reply_counts(room: Room) -> None:
    exchange = room.prepare()
    room.say(b'{"jsonrpc":"2.0","id":1,"result":{"n":1}}')
    room.say(b'{"jsonrpc":"2.0","id":1,"result":{"n":2}}')
    assert room.settled == [1]
    assert exchange.reply is not None
    result = exchange.reply.object("result")
    assert result is not None
    assert result.value() == {"n": 1}
    room.stderr.heard("dropped a reply: no request waits for its id")


@pytest.mark.parametrize("raw_id", [b'"1"', b"1.0", b"true", b"null", b"[1]", b"-1", b"1e0", b"2"])
@requirement("replies.unknown")
def test_a_reply_with_another_id_settles_nobody(room: Room, raw_id: bytes) -> None:
    room.prepare()
    room.say(b'{"jsonrpc":"2.0","result":{},"id":%s}' % raw_id)
    assert room.settled == []


def test_a_forgotten_request_is_never_settled(room: Room) -> None:
    exchange = room.prepare()
    assert room.reader.forget(exchange.request_id, "cancelled")
    assert not room.reader.forget(exchange.request_id, "cancelled")
    room.say(b'{"jsonrpc":"2.0","id":1,"result":{}}')
    room.reader.handle_end("code 0")
    assert room.settled == []


@requirement("upstream-lines.too-long", "errors.invalid_response")
def test_a_line_over_the_limit_fails_its_request_as_soon_as_its_id_is_known(room: Room) -> None:
    first, second = room.prepare(), room.prepare()
    line = LongLine(b'{"jsonrpc":"2.0","id":1,"result":{"x":"')
    room.reader.handle_long_line(line)
    assert failure_of(first) is Cause.INVALID_RESPONSE
    room.stderr.heard("warning: dropped a line of the server of more than 4096 bytes")
    line.ended = True
    room.reader.handle_long_line(line)
    assert room.settled == [1]
    assert failure_of(second) is None


@requirement("upstream-lines.too-long")
def test_the_id_of_a_long_line_may_stand_at_its_end(room: Room) -> None:
    exchange = room.prepare()
    line = LongLine(b'{"jsonrpc":"2.0","result":{"x":"')
    room.reader.handle_long_line(line)
    assert room.settled == []
    line.ended, line.tail = True, b'xxx"},"id":1}'
    room.reader.handle_long_line(line)
    assert failure_of(exchange) is Cause.INVALID_RESPONSE


@requirement("initialize.exit", "errors.closed")
def test_the_end_before_ready_is_no_loss_and_names_the_status(room: Room) -> None:
    exchange = room.prepare()
    room.reader.handle_end("code 3")
    assert exchange.failure is not None
    assert exchange.failure.cause is Cause.CLOSED
    assert "code 3" in exchange.failure.detail
    assert room.lost == []
    with pytest.raises(product.BridgeError):
        room.reader.check_alive()


@requirement("loss.in-flight", "errors.upstream_exited")
def test_the_end_in_ready_is_a_loss_told_once_and_fails_what_waits(room: Room) -> None:
    room.reader.settle_as_ready()
    first, second = room.prepare(), room.prepare()
    room.reader.handle_end("signal SIGKILL")
    room.reader.settle_as_ready()
    assert room.lost == ["signal SIGKILL"]
    assert failure_of(first) is failure_of(second) is Cause.UPSTREAM_EXITED
    assert room.pauses  # the failures go out


@requirement("loss.in-flight")
def test_an_end_that_came_just_before_ready_is_a_loss_too(room: Room) -> None:
    room.reader.handle_end("code 0")
    room.reader.settle_as_ready()
    assert room.lost == ["code 0"]


def test_the_end_that_a_stop_wants_is_no_loss_and_no_warning(room: Room) -> None:
    room.reader.settle_as_ready()
    room.reader.expect_end()
    room.reader.handle_end("code 0")
    assert room.lost == []
    assert not [line for line in room.stderr.logged() if b": warning: " in line]


@requirement("loss.deaf", "errors.transport_failed")
def test_a_server_that_takes_nothing_fails_what_waits_and_is_no_loss(room: Room) -> None:
    exchange = room.prepare()
    room.reader.settle_as_ready()
    room.reader.handle_deaf()
    assert failure_of(exchange) is Cause.TRANSPORT_FAILED
    assert room.lost == []


@requirement("progress.by-request")
def test_progress_finds_its_request_by_the_id_alone(room: Room) -> None:
    room.prepare()
    for token in (b"1", b'"1"', b"1.0", b"true", b"2", b"null"):
        room.say(
            b'{"jsonrpc":"2.0","method":"notifications/progress",'
            b'"params":{"progressToken":%s,"progress":1}}' % token
        )
    assert [params.get("progressToken") for params in room.progress] == [1]


@requirement("errors.out_of_memory")
def test_a_line_for_which_there_is_no_memory_fails_its_request(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    exchange = room.prepare()

    def parse(*_: object) -> product.RawObject:
        raise MemoryError

    monkeypatch.setattr(product, "parse_frame", parse)
    room.say(b'{"jsonrpc":"2.0","id":1,"result":{}}')
    assert failure_of(exchange) is Cause.INVALID_RESPONSE
    room.stderr.heard("(out_of_memory)")


# --- Connection -------------------------------------------------------------------------------


def test_a_request_without_a_connection_is_refused(bridge: RunningBridge) -> None:
    connection = bridge.bridge._connection
    with pytest.raises(product.BridgeError) as raised:
        connection.prepare(UpstreamCall("tools/list", []), lambda: None, None)
    assert raised.value.cause is Cause.TRANSPORT_FAILED


def test_a_connection_that_was_shut_opens_no_server(bridge: RunningBridge) -> None:
    connection = bridge.bridge._connection
    connection.shut()
    connection.open({"name": "c", "version": "1"}, {})
    assert not bridge.server.run.is_started
    assert bridge.server.run.stopped.is_set()


@requirement("cancel.client")
@pytest.mark.parametrize("round_number", [1, 2])
def test_a_request_that_is_over_before_it_is_sent_is_not_sent_and_not_cancelled(
    ready: RunningBridge, monkeypatch: pytest.MonkeyPatch, round_number: int
) -> None:
    """Else the server would hear of the cancellation first, and then of the request."""
    send = product.Connection.send

    def send_too_late(connection: product.Connection, exchange: product.Exchange) -> None:
        if exchange.call.round_number == round_number and exchange.call.method == "tools/call":
            ready.bridge._slots.end_all("it is over")
        send(connection, exchange)

    monkeypatch.setattr(product.Connection, "send", send_too_late)
    ready.client.send(id=1, method="tools/call", params={"name": "t"})
    if round_number == 2:
        asked = {"resultType": "input_required", "requestState": "s"}
        ready.server.say(id=ready.server.hear()["id"], result=asked)
        until(lambda: ready.clock.has_waiter_until(ready.clock.now() + PAUSE), "the pause")
        ready.clock.advance(PAUSE)
    until(lambda: not ready.bridge._slots._in_flight, "the end of the request")
    ready.client.send(id=2, method="tools/list", params={})
    assert ready.server.hear()["method"] == "tools/list"


@requirement("log.no-cancellation")
def test_a_cancellation_that_the_server_does_not_take_is_a_debug_line() -> None:
    running = RunningBridge(level=LogLevel.DEBUG)
    running.initialize()
    running.client.send(id=1, method="tools/list", params={})
    running.server.hear()
    running.server.queue_error = product.BridgeError(Cause.TRANSPORT_FAILED)
    running.client.send(method="notifications/cancelled", params={"requestId": 1})
    running.stderr.heard("debug: the server takes no cancellation any more")
    running.release()


@requirement("results.order")
def test_what_the_server_says_in_one_read_goes_out_in_its_order(ready: RunningBridge) -> None:
    for number in (1, 2):
        ready.client.send(
            id=number, method="tools/call", params={"name": "a", "_meta": {"progressToken": number}}
        )
    first, second = (ready.server.hear()["id"] for _ in range(2))
    ready.server.run.say_lines(
        [
            b'{"jsonrpc":"2.0","method":"notifications/progress",'
            b'"params":{"progressToken":%d,"progress":1}}' % first,
            b'{"jsonrpc":"2.0","id":%d,"result":{"content":[]}}' % second,
            b'{"jsonrpc":"2.0","id":%d,"result":{"content":[]}}' % first,
        ]
    )
    heard = [ready.client.hear() for _ in range(3)]
    assert [h.get("method", h.get("id")) for h in heard] == ["notifications/progress", 2, 1]
