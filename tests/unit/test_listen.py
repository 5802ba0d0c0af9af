"""The room `listen`: the one owner of subscriptions/listen, its streams and the client's changes.

The owner runs as it does in a bridge, on its own thread; the connection, the client and the clock
are in the test's hand. What the test says for the server is handled on the test's own thread, which
so is the upstream reader.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

import pytest

import mcp_bridge_vscode as product
from mcp_bridge_vscode import BridgeError, Cause, parse_frame
from tests.requirements import requirement
from tests.support.clock import FakeClock
from tests.support.running import RunningLog
from tests.support.waits import WAIT_SECONDS, until

if TYPE_CHECKING:
    from mcp_bridge_vscode import EventSink, Piece, ProgressSink, RawObject, UpstreamCall

ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"
CANCELLED: Final = "notifications/cancelled"
TOOLS: Final = "notifications/tools/list_changed"
PROMPTS: Final = "notifications/prompts/list_changed"
UPDATED: Final = "notifications/resources/updated"
ID: Final = "io.modelcontextprotocol/subscriptionId"
LISTS: Final = {"tools": {"listChanged": True}, "prompts": {"listChanged": True}}
ALL: Final = {**LISTS, "resources": {"subscribe": True}}
ONLY_RESOURCES: Final = {"resources": {"subscribe": True}}
LOSSES: Final = (Cause.TIMEOUT, Cause.TRANSPORT_FAILED, Cause.TOO_MANY_REQUESTS)


class OwnerClock(FakeClock):
    """A fake clock that one thread waits by. It sleeps from the moment in which it begins to wait
    until it has woken up, or the moment has come that it waits for.
    """

    def __init__(self) -> None:
        super().__init__()
        self.waits = 0  # so often it has begun to wait

    def wait(self, event: product.Signal, until: float | None) -> bool:
        self.waits += 1
        return super().wait(event, until)

    def is_asleep(self) -> bool:
        with self._lock:
            return bool(self._waiters)

    def sleeps_until(self) -> float | None:
        """None: it waits for a signal alone."""
        with self._lock:
            (waiter,) = self._waiters
            return waiter.until


class Stream:
    """A listen request as the server sees it; it is the exchange of the product as well."""

    def __init__(
        self, number: int, call: UpstreamCall, on_settled: Callable[[], None], on_event: EventSink
    ) -> None:
        self.request_id = number
        self.call = call
        self.started = 0.0
        self.is_sent = True
        self.reply: RawObject | None = None
        self.failure: BridgeError | None = None
        self._on_settled = on_settled
        self._on_event = on_event

    def filter(self) -> dict[str, Any]:
        text = b"{" + b",".join(bytes(member) for member in self.call.members) + b"}"
        wanted: dict[str, Any] = json.loads(text)["notifications"]
        return wanted

    def uris(self) -> list[str]:
        return list(self.filter().get("resourceSubscriptions", ()))

    def acknowledge(self, **notifications: Any) -> None:
        """All that was asked is honoured, or what is named."""
        self.say(ACKNOWLEDGED, notifications=notifications or self.filter())

    def say(self, method: str, **params: Any) -> None:
        params["_meta"] = {ID: self.request_id}
        frame = {"jsonrpc": "2.0", "method": method, "params": params}
        self._on_event(method, parse_frame(json.dumps(frame).encode(), 64).object("params"))

    def update(self, uri: str) -> None:
        self.say(UPDATED, uri=uri)

    def settle(self, reply: dict[str, Any] | None, failure: BridgeError | None = None) -> None:
        if reply is not None:
            frame = {"jsonrpc": "2.0", "id": self.request_id, **reply}
            self.reply = parse_frame(json.dumps(frame).encode(), 64)
        self.failure = failure
        self._on_settled()

    def complete(self) -> None:
        self.settle({"result": {"resultType": "complete"}})

    def cancel(self) -> None:
        self.say(CANCELLED, requestId=self.request_id)

    def refuse(self, code: int = -32603, message: str = "no") -> None:
        self.settle({"error": {"code": code, "message": message}})

    def fail(self, cause: Cause) -> None:
        self.settle(None, BridgeError(cause))


class Change:
    """A resources/subscribe or /unsubscribe of the client."""

    def __init__(self, uri: str, hear: Callable[[str], None], *, is_added: bool = True) -> None:
        self.uri = uri
        self.is_added = is_added
        self._hear = hear
        self._is_over = False
        self._sign = "+" if is_added else "-"

    def cancel(self) -> None:
        self._is_over = True

    def is_over(self) -> bool:
        return self._is_over

    def take_answer(self) -> list[Piece] | None:
        if self._is_over:
            return None
        self._is_over = True
        return [json.dumps({"answer": f"{self._sign}{self.uri}"}).encode() + b"\n"]

    def fail(self, error: BridgeError) -> None:
        self._fail(error.cause.value)

    def fail_with(self, reply: RawObject) -> None:
        error: Any = reply.get("error")
        self._fail(str(error["code"]))

    def _fail(self, what: str) -> None:
        if not self._is_over:
            self._is_over = True
            self._hear(f"{self._sign}{self.uri}: {what}")


class Listening:
    """A listener with everything around it."""

    def __init__(self, capabilities: dict[str, Any]) -> None:
        self.clock = OwnerClock()
        self.stderr = RunningLog(product.LogLevel.DEBUG, product.LIMITS)
        self.send_error: BridgeError | None = None
        self.before_write: Callable[[], None] | None = None  # the next one
        self.heard: list[str] = []
        self.told: list[str] = []  # what the server hears beside the requests
        self.forgotten: list[int] = []
        self.crashes: list[BaseException] = []
        self._streams: list[Stream] = []
        self._seen = 0
        self.listener = product.Listener(
            connection=self,
            write_from=self._write_from,
            limits=product.LIMITS,
            clock=self.clock,
            log=self.stderr.writer,
            on_crash=lambda _, error: self.crashes.append(error),
        )
        self.listener.configure(capabilities)

    # --- The connection --------------------------------------------------------------------

    def open(self, *_: object) -> None:
        raise AssertionError("the listener opens nothing")

    def close(self) -> None:
        raise AssertionError("the listener closes nothing")

    def settle_as_ready(self) -> None:
        raise AssertionError("the server is ready long since")

    def flush(self) -> None:
        pass

    def prepare(
        self,
        call: UpstreamCall,
        on_settled: Callable[[], None],
        on_progress: ProgressSink | None,
        on_event: EventSink | None = None,
    ) -> Stream:
        assert call.method == "subscriptions/listen"
        assert on_progress is None
        assert on_event is not None
        return Stream(len(self._streams) + 1, call, on_settled, on_event)

    def send(self, exchange: Any) -> None:
        self._streams.append(exchange)
        if self.send_error is not None:
            raise self.send_error

    def forget(self, exchange: Any) -> None:
        self.forgotten.append(exchange.request_id)

    def abandon(self, exchange: Any, reason: str, outcome: str) -> None:
        assert outcome == "cancelled"
        self.told.append(f"{exchange.request_id}: {reason}")

    # --- The client ------------------------------------------------------------------------

    def _write_from(
        self, produce: Callable[[], list[Piece] | None], *, is_more: bool = False
    ) -> None:
        del is_more
        before, self.before_write = self.before_write, None
        if before is not None:
            before()
        for line in b"".join(produce() or ()).splitlines():
            frame = json.loads(line)
            if frame.get("method") == UPDATED:
                self.heard.append(f"updated {frame['params']['uri']}")
            elif "method" in frame:
                self.heard.append(frame["method"].split("/")[1])
            else:
                self.heard.append(frame["answer"])

    def hears(self) -> list[str]:
        """What the client heard since it was last asked."""
        self.settle()
        heard, self.heard = self.heard, []
        return heard

    def change(self, uri: str, *, is_added: bool = True) -> Change:
        change = Change(uri, self.heard_append, is_added=is_added)
        self.listener.request_change(change)
        return change

    def heard_append(self, text: str) -> None:
        self.heard.append(text)

    # --- The test --------------------------------------------------------------------------

    def start(self) -> Stream:
        """The owner runs; its first stream."""
        self.listener.start()
        return self.opened()

    def open_stream(self, *uris: str) -> Stream:
        """The owner runs; its stream is acknowledged, and carries these URIs."""
        stream = self.start()
        stream.acknowledge()
        for uri in uris:
            self.change(uri)
            stream = self.opened()
            stream.acknowledge()
        self.listener.list_changes.note_asked("tools/list")
        self.listener.list_changes.note_asked("prompts/list")
        self.hears()
        self.told.clear()
        return stream

    def settle(self) -> None:
        """The owner has done all there is to do, and sleeps or has ended; or there is none.

        What is said leaves the queue after the owner has woken up. So the order matters here: it
        is asleep again when the queue is found empty first.
        """
        said, clock, ended = self.listener._said, self.clock, self.listener._finished
        if self.listener._start_once.is_over():
            until(
                lambda: ended.is_set() or (not said and clock.is_asleep()), "the sleep of the owner"
            )

    def opened(self) -> Stream:
        """The one stream that the owner has opened since."""
        self.settle()
        new = self._streams[self._seen :]
        self._seen = len(self._streams)
        assert len(new) == 1, f"{len(new)} streams were opened"
        return new[0]

    def opens_nothing(self) -> bool:
        self.settle()
        return len(self._streams) == self._seen

    def opened_after(self, seconds: float) -> Stream:
        """The stream that is opened then, and not a moment sooner."""
        if seconds:
            assert self.opens_nothing()
            self.clock.advance(seconds - 0.001)
            assert self.opens_nothing()
            self.clock.advance(0.001)
        return self.opened()

    def is_silent(self) -> bool:
        """The owner waits for nothing but words."""
        self.settle()
        return self.clock.sleeps_until() is None

    def look(self) -> None:
        """The reader has cancelled some request; the owner has looked."""
        self.settle()
        before = self.clock.waits
        self.listener.look()
        until(lambda: self.clock.waits > before, "the look of the owner")
        self.settle()

    def stop(self) -> None:
        self.listener.stop(WAIT_SECONDS)

    def release(self) -> None:
        self.stop()
        self.stderr.release()
        assert not self.crashes


@pytest.fixture
def listening(request: pytest.FixtureRequest) -> Iterator[Listening]:
    running = Listening(getattr(request, "param", ALL))
    yield running
    running.release()


def with_capabilities(capabilities: dict[str, Any]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("listening", [capabilities], indirect=True)


# The start ----------------------------------------------------------------------------


@requirement("listen.start", "listen.filter")
def test_the_first_stream_asks_for_the_declared_lists(listening: Listening) -> None:
    stream = listening.start()
    assert stream.filter() == {"toolsListChanged": True, "promptsListChanged": True}
    listening.listener.start()
    assert listening.opens_nothing()


@requirement("listen.start")
@with_capabilities(ONLY_RESOURCES)
def test_without_lists_the_stream_opens_for_what_will_be_subscribed(listening: Listening) -> None:
    assert listening.start().filter() == {}


@requirement("listen.start")
@with_capabilities({"tools": {}, "resources": {"subscribe": False}})
def test_without_anything_to_hear_no_stream_opens(listening: Listening) -> None:
    listening.listener.start()
    assert listening.opens_nothing()
    assert not listening.listener.takes_changes()


@requirement("listen.start")
def test_changes_are_taken_once_there_is_a_stream(listening: Listening) -> None:
    assert not listening.listener.takes_changes()
    listening.start()
    assert listening.listener.takes_changes()


@requirement("listen.start")
@with_capabilities(LISTS)
def test_changes_are_not_taken_when_the_server_declares_no_updates(listening: Listening) -> None:
    listening.start()
    assert not listening.listener.takes_changes()


# Events -------------------------------------------------------------------------------


@requirement("listen.gap")
def test_the_first_acknowledgment_tells_each_declared_list(listening: Listening) -> None:
    stream = listening.start()
    assert listening.hears() == []
    stream.acknowledge()
    assert listening.hears() == ["tools", "prompts"]
    assert listening.is_silent()


@requirement("listen.events")
def test_nothing_is_heard_of_a_stream_before_its_acknowledgment(listening: Listening) -> None:
    stream = listening.start()
    stream.say(TOOLS)
    stream.update("a")
    assert listening.hears() == []


@requirement("listen.events")
def test_events_reach_the_client_in_their_order(listening: Listening) -> None:
    stream = listening.open_stream("a")
    stream.update("a")
    stream.say(TOOLS)
    stream.say("notifications/message", level="info", data=1)
    stream.say(UPDATED)
    stream.update("a/b")
    assert listening.hears() == ["updated a", "tools", "updated a/b"]
    listening.stderr.heard("dropped an event that is none for the client")


@requirement("listen.bursts", "decisions.26")
def test_a_burst_of_changes_is_told_once_until_the_client_asks(listening: Listening) -> None:
    stream = listening.open_stream()
    for _ in range(5):
        stream.say(TOOLS)
        stream.say(PROMPTS)
    assert listening.hears() == ["tools", "prompts"]
    listening.listener.list_changes.note_asked("tools/list")
    for _ in range(5):
        stream.say(TOOLS)
        stream.say(PROMPTS)
    assert listening.hears() == ["tools"]


@requirement("listen.bursts", "listen.gap")
def test_a_gap_repeats_no_list_change_that_is_outstanding(listening: Listening) -> None:
    stream = listening.open_stream("a")
    stream.say(TOOLS)
    assert listening.hears() == ["tools"]
    stream.complete()
    listening.opened_after(0.5).acknowledge()
    assert listening.hears() == ["prompts", "updated a"]


@requirement("listen.gap")
def test_each_further_acknowledgment_of_the_active_stream_is_a_gap(listening: Listening) -> None:
    stream = listening.open_stream("a", "b")
    stream.acknowledge()
    assert listening.hears() == ["tools", "prompts", "updated a", "updated b"]
    stream.acknowledge()
    assert listening.hears() == ["updated a", "updated b"]
    listening.listener.list_changes.note_asked("prompts/list")
    stream.acknowledge()
    assert listening.hears() == ["prompts", "updated a", "updated b"]


@requirement("listen.streams", "listen.gap")
def test_an_acknowledgment_of_a_stream_that_opens_is_no_gap_of_the_other(
    listening: Listening,
) -> None:
    old = listening.open_stream("a")
    listening.change("b")
    listening.opened()
    old.acknowledge()
    assert listening.hears() == ["tools", "prompts", "updated a"]


@requirement("listen.streams")
def test_once_a_newer_stream_is_active_the_older_one_is_not_heard(listening: Listening) -> None:
    old = listening.open_stream("a")
    listening.change("b")
    new = listening.opened()
    old.update("a")
    new.update("b")
    new.acknowledge()
    old.update("a")
    old.say(TOOLS)
    old.acknowledge()
    old.complete()
    new.update("b")
    assert listening.hears() == ["updated a", "+b", "updated b"]
    assert listening.told == ["1: a newer stream took its place"] or listening.told == [
        "2: a newer stream took its place"
    ]
    assert listening.is_silent()


# What is honoured ---------------------------------------------------------------------


@requirement("listen.honoured", "decisions.27")
def test_a_list_that_is_not_honoured_gets_no_change_for_a_gap(listening: Listening) -> None:
    stream = listening.start()
    stream.acknowledge(promptsListChanged=True, toolsListChanged=False)
    assert listening.hears() == ["prompts"]


@requirement("listen.honoured", "decisions.27")
def test_a_uri_that_is_not_honoured_is_answered_and_warned_of_once(listening: Listening) -> None:
    listening.start().acknowledge()
    listening.hears()
    for number in range(2):
        listening.change(f"a\n{number}")
        listening.opened().acknowledge(toolsListChanged=True)
        assert listening.hears() == [f"+a\n{number}"]
    lines = [line for line in listening.stderr.logged() if b"sends no updates" in line]
    warned = [line for line in lines if b": warning: " in line]
    assert [line.rpartition(b"resource ")[2] for line in warned] == [b"a 0", b"a 1"]


@requirement("listen.honoured")
def test_an_acknowledgment_that_says_nothing_honours_all(listening: Listening) -> None:
    stream = listening.start()
    stream.say(ACKNOWLEDGED)
    assert listening.hears() == ["tools", "prompts"]
    listening.change("a")
    listening.opened().say(ACKNOWLEDGED)
    assert listening.hears() == ["+a"]
    assert not [line for line in listening.stderr.logged() if b"no updates" in line]


# The ends of a stream -----------------------------------------------------------------


@requirement("listen.ends", "decisions.28")
@pytest.mark.parametrize("cause", LOSSES)
def test_a_lost_stream_comes_back_at_once_three_times_and_then_after_waits(
    listening: Listening, cause: Cause
) -> None:
    stream = listening.open_stream()
    for wait in (0, 0, 0, 0.5, 1, 2, 4, 8, 16, 30, 30):
        stream.fail(cause)
        stream = listening.opened_after(wait)
        line = listening.stderr.heard(f"the listen stream ended: {cause.value}. A new stream")
        assert line.endswith(f": the listen stream ended: {cause.value}. A new stream follows in"
                             f" {wait:g} s.")  # fmt: skip
        assert "bridge: warning: " in line
    stream.acknowledge()
    assert listening.hears() == ["tools", "prompts"]


@requirement("listen.ends", "decisions.28")
@pytest.mark.parametrize("is_cancelled", [False, True])
@pytest.mark.parametrize("is_acknowledged", [False, True])
def test_a_stream_that_the_server_ends_comes_back_after_waits(
    listening: Listening, is_cancelled: bool, is_acknowledged: bool
) -> None:
    stream = listening.open_stream()
    for wait in (0.5, 1, 2, 4, 8, 16, 30, 30):
        if is_acknowledged:
            stream.acknowledge()
        (stream.cancel if is_cancelled else stream.complete)()
        stream = listening.opened_after(wait)
        line = listening.stderr.heard("the upstream server ended the listen stream")
        assert line.endswith(f"A new stream follows in {wait:g} s.")
        assert "bridge: info: " in line
    assert listening.told == []
    if is_cancelled:
        assert listening.forgotten == list(range(1, 9))


@requirement("listen.ends")
def test_a_cancellation_and_then_a_result_are_one_end(listening: Listening) -> None:
    stream = listening.open_stream()
    stream.cancel()
    stream.complete()
    listening.opened_after(0.5)
    assert listening.opens_nothing()


@requirement("listen.ends")
def test_a_refused_stream_comes_back_only_with_a_change(listening: Listening) -> None:
    stream = listening.open_stream("a")
    stream.refuse(-32601, "no such\nmethod")
    line = listening.stderr.heard("refused the listen stream")
    assert line.endswith("with the error -32601: no such method. The bridge sends no more list"
                         " changes.")  # fmt: skip
    assert "bridge: warning: " in line
    assert listening.is_silent()
    listening.change("a")  # there already: nothing changes
    assert listening.hears() == ["+a"]
    assert listening.opens_nothing()
    listening.change("b")
    stream = listening.opened()
    assert stream.uris() == ["a", "b"]
    stream.acknowledge()
    assert listening.hears() == ["+b", "tools", "prompts", "updated a", "updated b"]
    stream.complete()
    listening.opened_after(0.5)


@requirement("listen.ends")
def test_a_first_stream_that_is_refused_is_no_reason_to_try_again(listening: Listening) -> None:
    listening.start().refuse(-32601)
    listening.stderr.heard("refused the listen stream with the error -32601")
    assert listening.is_silent()
    listening.change("a")
    listening.opened().refuse(-32601)
    assert listening.hears() == ["+a: -32601"]
    assert listening.is_silent()


@requirement("listen.ends")
def test_an_error_of_a_wrong_shape_is_a_refusal(listening: Listening) -> None:
    listening.start().settle({"error": "no"})
    listening.stderr.heard("refused the listen stream")
    assert listening.is_silent()


@requirement("listen.ends")
@pytest.mark.parametrize("is_open", [False, True])
@pytest.mark.parametrize("cause", [Cause.INVALID_RESPONSE, Cause.INTERNAL])
def test_another_failure_is_said_and_the_stream_does_not_come_back(
    listening: Listening, cause: Cause, is_open: bool
) -> None:
    stream = listening.open_stream() if is_open else listening.start()
    stream.fail(cause)
    what = "the listen stream failed" if is_open else "cannot start the listen stream"
    line = listening.stderr.heard(f"{what}: {cause.value}. The client gets no list changes.")
    assert "bridge: warning: " in line
    assert listening.is_silent()
    assert listening.opens_nothing()


@requirement("listen.ends")
@pytest.mark.parametrize("cause", [Cause.UPSTREAM_EXITED, Cause.CLOSED])
def test_the_end_of_the_server_is_the_end_of_listening(listening: Listening, cause: Cause) -> None:
    listening.open_stream().fail(cause)
    assert listening.is_silent()
    assert listening.opens_nothing()
    assert not [line for line in listening.stderr.logged() if b": warning: " in line]


@requirement("listen.ends")
@pytest.mark.parametrize("cause", LOSSES)
def test_a_stream_that_cannot_be_sent_is_lost(listening: Listening, cause: Cause) -> None:
    stream = listening.open_stream()
    listening.send_error = BridgeError(cause)
    stream.complete()
    assert listening.opens_nothing()
    listening.clock.advance(0.5)
    listening.settle()  # three more at once, and then a wait
    assert [stream.request_id for stream in listening._streams[1:]] == [2, 3, 4, 5]
    listening._seen = 5
    listening.send_error = None
    listening.opened_after(1).acknowledge()
    assert listening.hears() == ["tools", "prompts"]


@requirement("listen.waits", "decisions.28")
def test_ten_seconds_of_life_start_the_tries_and_the_waits_anew(listening: Listening) -> None:
    stream = listening.open_stream()
    for wait in (0, 0, 0, 0.5, 1):
        stream.fail(Cause.TRANSPORT_FAILED)
        stream = listening.opened_after(wait)
    listening.clock.advance(5)
    stream.acknowledge()
    listening.settle()
    listening.clock.advance(9.999)  # since its acknowledgment, not since it was opened
    stream.fail(Cause.TRANSPORT_FAILED)
    stream = listening.opened_after(2)
    stream.acknowledge()
    listening.settle()
    listening.clock.advance(10)
    for wait in (0, 0, 0, 0.5):
        stream.fail(Cause.TRANSPORT_FAILED)
        stream = listening.opened_after(wait)


# The limit of the acknowledgment ---------------------------------------------------------


@requirement("listen.limit")
def test_ten_seconds_without_an_acknowledgment_lose_the_stream(listening: Listening) -> None:
    stream = listening.start()
    for number, wait in ((1, 10), (2, 10), (3, 10)):
        new = listening.opened_after(wait)
        assert listening.told[-1] == f"{number}: no acknowledgment in time"
        listening.stderr.heard("ended: timeout. A new stream follows in 0 s.")
        stream.acknowledge()  # too late
        stream.say(TOOLS)
        assert listening.hears() == []
        stream = new
    listening.clock.advance(10)
    listening.stderr.heard("ended: timeout. A new stream follows in 0.5 s.")
    stream = listening.opened_after(0.5)
    stream.acknowledge()
    assert listening.hears() == ["tools", "prompts"]
    listening.clock.advance(1000)
    assert listening.opens_nothing()


@requirement("listen.limit")
def test_a_change_that_is_not_acknowledged_in_time_fails(listening: Listening) -> None:
    old = listening.open_stream("a")
    listening.change("b")
    late = listening.opened()
    listening.clock.advance(10)
    assert listening.hears() == ["+b: timeout"]
    late.acknowledge()
    old.update("a")
    assert listening.hears() == ["updated a"]
    assert listening.is_silent()


@requirement("listen.limit")
def test_an_acknowledgment_in_the_very_moment_of_the_limit_counts(listening: Listening) -> None:
    old = listening.open_stream("a")
    listening.change("b")
    new = listening.opened()
    listening.before_write = new.acknowledge
    listening.clock.advance(10)  # the owner gives up, and is too late
    assert listening.hears() == ["+b"]
    old.update("a")
    new.update("a")
    assert listening.hears() == ["updated a"]
    assert listening.is_silent()


@requirement("listen.limit")
def test_an_acknowledgment_right_after_the_limit_leaves_the_old_stream_active(
    listening: Listening,
) -> None:
    old = listening.open_stream("a")
    listening.change("b")
    late = listening.opened()
    listening.clock.advance(10)
    listening.settle()
    late.acknowledge()
    late.acknowledge()
    late.cancel()
    old.update("a")
    assert listening.hears() == ["+b: timeout", "updated a"]
    old.complete()
    stream = listening.opened_after(0.5)
    assert stream.uris() == ["a"]
    stream.acknowledge()
    assert listening.hears() == ["tools", "prompts", "updated a"]


# Changes ------------------------------------------------------------------------------


@requirement("subscribe.steps", "o7")
def test_a_change_is_answered_by_the_acknowledgment_of_a_stream_with_all_uris(
    listening: Listening,
) -> None:
    listening.open_stream("a")
    listening.change("b")
    stream = listening.opened()
    assert stream.filter() == {
        "toolsListChanged": True,
        "promptsListChanged": True,
        "resourceSubscriptions": ["a", "b"],
    }
    assert listening.hears() == []
    assert listening.told == []
    stream.acknowledge()
    assert listening.hears() == ["+b"]
    assert listening.told == ["2: a newer stream took its place"]
    listening.change("a", is_added=False)
    stream = listening.opened()
    assert stream.uris() == ["b"]
    stream.acknowledge()
    assert listening.hears() == ["-a"]


@requirement("subscribe.steps")
def test_the_answer_comes_before_the_first_update_of_the_new_stream(listening: Listening) -> None:
    old = listening.open_stream("a")
    listening.change("b")
    new = listening.opened()
    old.update("a")
    new.acknowledge()
    new.update("b")
    old.update("a")
    new.update("a")
    assert listening.hears() == ["updated a", "+b", "updated b", "updated a"]


@requirement("subscribe.nothing-new")
def test_what_changes_nothing_is_answered_at_once(listening: Listening) -> None:
    listening.open_stream("a")
    listening.change("a")
    listening.change("b", is_added=False)
    assert listening.hears() == ["+a", "-b"]
    assert listening.opens_nothing()


@requirement("subscribe.one-at-a-time")
def test_changes_are_made_one_after_the_other(listening: Listening) -> None:
    listening.open_stream()
    listening.change("a")
    listening.change("b")
    listening.change("a")
    listening.change("a", is_added=False)
    for uris, heard in ((["a"], ["+a"]), (["a", "b"], ["+b", "+a"]), (["b"], ["-a"])):
        stream = listening.opened()
        assert stream.uris() == uris
        assert listening.hears() == []
        stream.acknowledge()
        assert listening.hears() == heard
    assert listening.is_silent()


@requirement("subscribe.one-at-a-time")
def test_a_change_waits_for_the_first_stream(listening: Listening) -> None:
    first = listening.start()
    listening.change("a")
    assert listening.opens_nothing()
    first.acknowledge()
    second = listening.opened()
    assert second.uris() == ["a"]
    second.acknowledge()
    assert listening.hears() == ["tools", "prompts", "+a"]


@requirement("subscribe.last")
@with_capabilities(ONLY_RESOURCES)
def test_after_the_last_unsubscribe_nothing_is_listened_to(listening: Listening) -> None:
    stream = listening.open_stream("a")
    listening.change("a", is_added=False)
    assert listening.hears() == ["-a"]
    assert listening.told == ["2: no subscription is left"]
    stream.update("a")
    stream.acknowledge()
    stream.complete()
    assert listening.hears() == []
    assert listening.is_silent()
    assert listening.opens_nothing()
    listening.change("b")
    listening.opened().acknowledge()
    assert listening.hears() == ["+b"]


@requirement("subscribe.last")
@with_capabilities(ONLY_RESOURCES)
def test_after_the_last_unsubscribe_no_lost_stream_comes_back(listening: Listening) -> None:
    listening.open_stream("a").complete()
    listening.change("a", is_added=False)
    assert listening.hears() == ["-a"]
    listening.clock.advance(100)
    assert listening.opens_nothing()
    assert listening.is_silent()


@requirement("subscribe.failed")
@pytest.mark.parametrize(
    ("end", "heard"),
    [
        (lambda stream: stream.refuse(-32602, "bad"), "-32602"),
        (lambda stream: stream.fail(Cause.INVALID_RESPONSE), "invalid_response"),
        (lambda stream: stream.fail(Cause.TRANSPORT_FAILED), "transport_failed"),
        (lambda stream: stream.complete(), "invalid_response"),
        (lambda stream: stream.cancel(), "invalid_response"),
    ],
)
@pytest.mark.parametrize("is_added", [False, True])
def test_a_failed_change_leaves_the_old_stream_and_its_uris(
    listening: Listening, end: Callable[[Stream], None], heard: str, is_added: bool
) -> None:
    old = listening.open_stream("a", "b")
    uri = "c" if is_added else "b"
    listening.change(uri, is_added=is_added)
    end(listening.opened())
    assert listening.hears() == [f"{'+' if is_added else '-'}{uri}: {heard}"]
    assert "bridge: warning: " in listening.stderr.heard("for a change of the subscriptions failed")
    assert listening.is_silent()
    old.update("b")
    assert listening.hears() == ["updated b"]
    listening.change("d")
    assert listening.opened().uris() == ["a", "b", "d"]


@requirement("subscribe.failed")
def test_a_change_that_cannot_be_sent_fails_and_the_next_has_its_turn(listening: Listening) -> None:
    old = listening.open_stream("a")
    listening.change("b")
    opening = listening.opened()
    listening.change("c")
    listening.change("d")
    listening.send_error = BridgeError(Cause.TOO_MANY_REQUESTS)
    opening.acknowledge()
    assert listening.hears() == ["+b", "+c: too_many_requests", "+d: too_many_requests"]
    assert listening.is_silent()
    opening.update("b")
    old.update("a")
    assert listening.hears() == ["updated b"]


@requirement("subscribe.failed")
def test_a_change_whose_stream_fails_later_comes_back_like_any_other(listening: Listening) -> None:
    listening.open_stream()
    listening.change("a")
    stream = listening.opened()
    stream.acknowledge()
    assert listening.hears() == ["+a"]
    stream.complete()
    stream = listening.opened_after(0.5)
    assert stream.uris() == ["a"]
    stream.refuse()
    listening.stderr.heard("refused the listen stream")
    assert listening.is_silent()


@requirement("subscribe.failed")
def test_the_end_of_the_server_is_no_failure_of_a_change_of_its_own(listening: Listening) -> None:
    listening.open_stream()
    listening.change("a")
    listening.opened().fail(Cause.UPSTREAM_EXITED)  # slots fails all requests at once
    assert listening.hears() == []
    assert listening.is_silent()


# Changes that the client cancels ----------------------------------------------------------


@requirement("subscribe.cancelled")
def test_a_change_that_is_cancelled_before_its_turn_opens_nothing(listening: Listening) -> None:
    listening.open_stream()
    listening.change("a")
    stream = listening.opened()
    waiting = listening.change("b")
    listening.change("c")
    waiting.cancel()
    stream.acknowledge()
    assert listening.opened().uris() == ["a", "c"]
    assert listening.hears() == ["+a"]


@requirement("subscribe.cancelled")
@pytest.mark.parametrize("owner_looks_first", [False, True])
def test_a_change_that_is_cancelled_while_its_stream_opens_leaves_all_as_it_was(
    listening: Listening, owner_looks_first: bool
) -> None:
    old = listening.open_stream("a")
    change = listening.change("b")
    stream = listening.opened()
    change.cancel()
    if owner_looks_first:
        listening.look()
        assert listening.told == ["3: the client canceled the request"]
    stream.acknowledge()
    stream.acknowledge()
    stream.update("b")
    old.update("a")
    assert listening.hears() == ["updated a"]
    assert listening.told == ["3: the client canceled the request"]
    assert listening.is_silent()
    listening.change("c")
    assert listening.opened().uris() == ["a", "c"]


@requirement("subscribe.cancelled")
def test_the_next_change_does_not_wait_for_the_stream_of_a_cancelled_one(
    listening: Listening,
) -> None:
    listening.open_stream("a")
    change = listening.change("b")
    listening.opened()
    listening.change("c")
    listening.look()
    assert listening.opens_nothing()
    change.cancel()
    listening.look()
    assert listening.opened().uris() == ["a", "c"]


@requirement("subscribe.cancelled")
def test_a_cancellation_right_after_the_answer_changes_nothing(listening: Listening) -> None:
    listening.open_stream("a")
    listening.change("b")
    stream = listening.opened()
    commands = hold_owner(listening)
    stream.acknowledge()
    listening.look()
    commands()
    stream.update("b")
    assert listening.hears() == ["+b", "updated b"]
    assert listening.is_silent()


@requirement("subscribe.cancelled")
def test_a_change_that_is_cancelled_too_late_holds_without_an_answer(listening: Listening) -> None:
    old = listening.open_stream("a")
    change = listening.change("b")
    stream = listening.opened()
    is_over = change.is_over
    change.is_over = lambda: (is_over(), change.cancel())[0]  # type: ignore[func-returns-value, method-assign]  # cancelled right after it was looked at
    stream.acknowledge()
    old.update("a")
    stream.update("b")
    assert listening.hears() == ["updated b"]
    assert listening.told == ["2: a newer stream took its place"]


@requirement("subscribe.cancelled")
@pytest.mark.parametrize("ends_first", [False, True])
def test_without_a_stream_a_cancelled_change_does_not_keep_it_from_coming_back(
    listening: Listening, ends_first: bool
) -> None:
    old = listening.open_stream("a")
    if ends_first:
        old.complete()
        listening.settle()
    change = listening.change("b")
    stream = listening.opened()
    if not ends_first:
        old.complete()
    change.cancel()
    stream.acknowledge()
    new = listening.opened_after(0.5)
    assert new.uris() == ["a"]
    new.acknowledge()
    assert listening.hears() == ["tools", "prompts", "updated a"]


# Losses and changes at the same time ---------------------------------------------------------


@requirement("listen.gap", "subscribe.steps")
def test_a_stream_that_is_lost_while_the_next_opens_is_a_gap(listening: Listening) -> None:
    old = listening.open_stream("a")
    listening.change("b")
    new = listening.opened()
    old.fail(Cause.TRANSPORT_FAILED)
    new.acknowledge()
    assert listening.hears() == ["+b", "tools", "prompts", "updated a", "updated b"]
    listening.clock.advance(100)  # and no other stream is due
    assert listening.opens_nothing()
    assert listening.is_silent()


@requirement("listen.gap")
def test_what_is_a_gap_does_not_depend_on_when_the_owner_hears_of_it(listening: Listening) -> None:
    old = listening.open_stream("a")
    listening.change("b")
    new = listening.opened()
    commands = hold_owner(listening)
    old.complete()
    new.acknowledge()
    commands()
    assert listening.hears() == ["+b", "tools", "prompts", "updated a", "updated b"]
    new.update("b")
    assert listening.hears() == ["updated b"]


@requirement("listen.ends")
def test_a_stream_that_ends_right_after_its_acknowledgment_comes_back(listening: Listening) -> None:
    listening.open_stream("a")
    listening.change("b")
    stream = listening.opened()
    commands = hold_owner(listening)
    stream.acknowledge()
    stream.complete()
    commands()
    assert listening.hears() == ["+b"]
    assert listening.told == ["2: a newer stream took its place"]
    stream = listening.opened_after(0.5)
    assert stream.uris() == ["a", "b"]
    stream.acknowledge()
    assert listening.hears() == ["tools", "prompts", "updated a", "updated b"]


def hold_owner(listening: Listening) -> Callable[[], None]:
    """What the owner is told from here on, it does not hear until the result is called."""
    listening.settle()
    held: list[Callable[[], None]] = []
    listener = listening.listener
    tell = listener._tell
    setattr(listener, "_tell", held.append)  # noqa: B010  # the owner as slow as can be

    def let_go() -> None:
        setattr(listener, "_tell", tell)  # noqa: B010
        for command in held:
            tell(command)

    return let_go


@requirement("subscribe.steps", "listen.gap")
def test_a_change_while_a_stream_is_awaited_opens_at_once(listening: Listening) -> None:
    listening.open_stream("a").complete()
    listening.settle()
    listening.change("b")
    stream = listening.opened()
    assert stream.uris() == ["a", "b"]
    stream.acknowledge()
    assert listening.hears() == ["+b", "tools", "prompts", "updated a", "updated b"]
    listening.clock.advance(100)
    assert listening.opens_nothing()


@requirement("subscribe.failed")
def test_a_change_that_fails_while_a_stream_is_awaited_does_not_end_the_wait(
    listening: Listening,
) -> None:
    listening.open_stream("a").complete()
    listening.settle()
    listening.change("b")
    listening.opened().refuse()
    assert listening.hears() == ["+b: -32603"]
    stream = listening.opened_after(0.5)
    assert stream.uris() == ["a"]


# The stop -----------------------------------------------------------------------------


REASON: Final = "the client closed the connection"


@requirement("listen.stop")
def test_a_stop_while_the_stream_opens_cancels_it(listening: Listening) -> None:
    listening.start()
    listening.stop()
    assert listening.told == [f"1: {REASON}"]


@requirement("listen.stop")
def test_a_stop_while_the_stream_is_open_cancels_it(listening: Listening) -> None:
    listening.open_stream()
    listening.stop()
    assert listening.told == [f"1: {REASON}"]


@requirement("listen.stop")
def test_a_stop_during_a_change_cancels_both_streams(listening: Listening) -> None:
    listening.open_stream()
    listening.change("a")
    listening.opened()
    listening.stop()
    assert listening.told == [f"2: {REASON}", f"1: {REASON}"]
    assert listening.heard == []


@requirement("listen.stop")
def test_a_stop_while_a_stream_is_awaited_ends_the_wait(listening: Listening) -> None:
    listening.open_stream().complete()
    listening.settle()
    listening.stop()
    assert listening.told == []


@requirement("listen.stop")
def test_a_stop_is_one_and_needs_no_start(listening: Listening) -> None:
    listening.stop()
    listening.stop()
    listening.listener.start()  # the reader had seen READY just before
    assert listening.listener._finished.wait(WAIT_SECONDS)
    assert listening.opens_nothing()


@requirement("decisions.4")
def test_an_owner_that_crashes_says_so_and_no_stop_waits_for_it() -> None:
    listening = Listening(ALL)
    listening.send_error = ValueError("x")  # type: ignore[assignment]  # what nobody expects
    listening.listener.start()
    assert listening.listener._finished.wait(WAIT_SECONDS)
    listening.stop()
    (crash,) = listening.crashes
    assert isinstance(crash, ValueError)
    listening.stderr.release()
