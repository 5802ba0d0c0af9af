"""No change is lost on its way to the client, and none is told again while the client knows of it.

A model client and a model server speak with the real owner of the listen stream. Four queues lie
between them, and hypothesis says who takes the next step: the server, the bridge on either side,
its owner, or the client. Streams end, are refused, time out and are opened anew meanwhile.
"""

from __future__ import annotations

import json
import random
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from hypothesis import event, given, settings
from hypothesis import strategies as st

import mcp_bridge_vscode as product
from mcp_bridge_vscode import LIST_CHANGE_OF, BridgeError, parse_frame
from tests.requirements import requirement
from tests.support.clock import FakeClock

if TYPE_CHECKING:
    from mcp_bridge_vscode import EventSink, Piece, RawObject, UpstreamCall

ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"
CANCELLED: Final = "notifications/cancelled"
UPDATED: Final = "notifications/resources/updated"
ID: Final = "io.modelcontextprotocol/subscriptionId"
LISTS: Final = ("tools/list", "prompts/list")
URIS: Final = ("a", "b")
CAPABILITIES: Final[Any] = {
    "tools": {"listChanged": True},
    "prompts": {"listChanged": True},
    "resources": {"subscribe": True},
}
SILENT: Final = product.Log(2, product.LogLevel.ERROR, product.LIMITS)


def parsed(**members: Any) -> RawObject:
    return parse_frame(json.dumps({"jsonrpc": "2.0", **members}).encode(), 64)


class Exchange:
    """A listen request of the bridge."""

    def __init__(
        self, number: int, call: UpstreamCall, on_settled: Callable[[], None], on_event: EventSink
    ) -> None:
        self.request_id = number
        self.call = call
        self.started = 0.0
        self.is_sent = True
        self.reply: RawObject | None = None
        self.failure: BridgeError | None = None
        self.on_settled = on_settled
        self.on_event = on_event


class Change:
    """A request of the client that changes its subscriptions."""

    def __init__(self, uri: str, is_added: bool, hear: Callable[[str], None]) -> None:
        self.uri = uri
        self.is_added = is_added
        self.is_cancelled = False
        self._is_answered = False
        self._hear = hear

    def is_over(self) -> bool:
        return self.is_cancelled or self._is_answered

    def take_answer(self) -> list[Piece] | None:
        if self.is_over():
            return None
        self._is_answered = True
        return [json.dumps({"done": True}).encode() + b"\n"]

    def fail(self, _error: BridgeError) -> None:
        if not self.is_over():
            self._is_answered = True
            self._hear("failed")

    def fail_with(self, _reply: RawObject) -> None:
        self.fail(BridgeError(product.Cause.INTERNAL))


class World:
    """The client, the bridge and the server, and what is under way between them."""

    def __init__(self, *, may_lose: bool) -> None:
        self.may_lose = may_lose
        self.clock = FakeClock()
        self.to_bridge: deque[tuple[str, Any]] = deque()  # from the client
        self.to_server: deque[tuple[str, Any]] = deque()
        self.from_server: deque[tuple[str, Any]] = deque()
        self.to_client: deque[tuple[str, Any]] = deque()
        # The server:
        self.version = dict.fromkeys((*LISTS, *URIS), 0)
        self.streams: dict[int, tuple[set[str], set[str]]] = {}  # streams: lists and URIs
        # The bridge:
        self.exchanges: dict[int, Exchange] = {}
        self.count = 0
        self.is_outstanding = dict.fromkeys(LISTS, False)
        self.listener = product.Listener(
            connection=self,
            write_from=self.write_from,
            limits=product.LIMITS,
            clock=self.clock,
            log=SILENT,
            on_crash=lambda *_: None,
        )
        self.listener.configure(CAPABILITIES)
        self.listener._next_at = self.clock.now()  # start() without its thread
        self.is_owner_woken = False
        # The client:
        self.known = dict.fromkeys((*LISTS, *URIS), -1)
        self.is_stale = dict.fromkeys((*LISTS, *URIS), False)
        self.asking: set[str] = set()
        self.needed = dict.fromkeys(LISTS, -1)
        self.subscribed: set[str] = set()
        self.change: Change | None = None
        for method in LISTS:
            self.ask(method)

    # --- The connection of the listener -------------------------------------------------------

    def open(self, *_: object) -> None:
        raise AssertionError

    def close(self) -> None:
        raise AssertionError

    settle_as_ready = close

    def flush(self) -> None:
        pass

    def prepare(
        self,
        call: UpstreamCall,
        on_settled: Callable[[], None],
        _on_progress: object,
        on_event: EventSink | None = None,
    ) -> Exchange:
        assert on_event is not None
        self.count += 1
        exchange = Exchange(self.count, call, on_settled, on_event)
        self.exchanges[self.count] = exchange
        return exchange

    def send(self, exchange: Any) -> None:
        text = b"{" + b",".join(bytes(member) for member in exchange.call.members) + b"}"
        self.to_server.append(("listen", (exchange.request_id, json.loads(text)["notifications"])))

    def forget(self, exchange: Any) -> None:
        self.exchanges.pop(exchange.request_id, None)

    def abandon(self, exchange: Any, _reason: str, _outcome: str) -> None:
        if self.exchanges.pop(exchange.request_id, None) is not None:
            self.to_server.append(("cancel", exchange.request_id))

    def write_from(
        self, produce: Callable[[], list[Piece] | None], *, is_more: bool = False
    ) -> None:
        del is_more
        for line in b"".join(produce() or ()).splitlines():
            frame = json.loads(line)
            method = frame.get("method", "done")
            if method == UPDATED:
                self.to_client.append((UPDATED, frame["params"]["uri"]))
            else:
                for asked in LISTS:
                    if LIST_CHANGE_OF[asked] == method:
                        assert not self.is_outstanding[asked], "it was told and not asked for since"
                        self.is_outstanding[asked] = True
                self.to_client.append((method, None))

    # --- Steps --------------------------------------------------------------------------------

    def steps(self) -> list[Callable[[], None]]:
        """What may happen next."""
        found = [self.tool_call, self.change_list, self.change_resource]
        if self.may_lose:
            found.append(self.let_time_pass)
            found += [self.end_stream] * bool(self.streams)
        if self.change is None:
            found += [self.subscribe, self.unsubscribe]
        else:
            found.append(self.cancel_change)
        return found + self.due_steps() * 3

    def due_steps(self) -> list[Callable[[], None]]:
        """What will happen some time, whatever else does."""
        found = []
        if self.to_bridge:
            found.append(self.read_client)
        if self.from_server:
            found.append(self.read_server)
        if self.to_server:
            found.append(self.serve)
        if self.to_client:
            found.append(self.hear)
        if self.listener._said or self.listener._next_at is not None or self.is_owner_woken:
            found.append(self.run_owner)
        for what, is_stale in self.is_stale.items():
            if is_stale and what not in self.asking:
                found.append(lambda what=what: self.ask(what))  # type: ignore[misc]  # one each
        return found

    def run_owner(self) -> None:
        self.is_owner_woken = False
        if not self.listener._said and self.listener._opening is None:
            due = self.listener._next_at
            if due is not None and due > self.clock.now():
                self.clock.advance(due - self.clock.now())
        while self.listener._said:
            self.listener._said.popleft()()
        self.listener._go_on()

    def let_time_pass(self) -> None:
        self.clock.advance(10)
        self.run_owner()

    # The server's

    def tell(self, what: str) -> None:
        for number, (lists, uris) in self.streams.items():
            if what in lists:
                self.from_server.append(("event", (number, LIST_CHANGE_OF[what], {})))
            elif what in uris:
                self.from_server.append(("event", (number, UPDATED, {"uri": what})))

    def change_list(self) -> None:
        what = LISTS[self.version["tools/list"] % 2]
        self.version[what] += 1
        self.tell(what)

    def change_resource(self) -> None:
        what = URIS[sum(self.version.values()) % 2]
        self.version[what] += 1
        self.tell(what)

    def tool_call(self) -> None:
        """A call of the client that changes the list of tools; the result comes after it."""
        self.version["tools/list"] += 1
        self.tell("tools/list")
        self.from_server.append(("result", self.version["tools/list"]))

    def serve(self) -> None:
        what, value = self.to_server.popleft()
        if what == "listen":
            number, wanted = value
            lists = {"tools/list"} if wanted.get("toolsListChanged") else set()
            lists |= {"prompts/list"} if wanted.get("promptsListChanged") else set()
            uris = set(wanted.get("resourceSubscriptions", ()))
            if self.may_lose and self.streams and number % 7 == 0:
                self.from_server.append(("refused", number))
                return
            self.streams[number] = (lists, uris)
            self.from_server.append(("event", (number, ACKNOWLEDGED, {"notifications": wanted})))
        elif what == "cancel":
            self.streams.pop(value, None)
        else:
            self.from_server.append(("reply", (value, self.version[value])))

    def end_stream(self) -> None:
        number = next(iter(self.streams))
        del self.streams[number]
        ends = ("ended", number), ("event", (number, CANCELLED, {"requestId": number}))
        self.from_server.append(ends[number % 2])

    # The bridge's

    def read_server(self) -> None:
        what, value = self.from_server.popleft()
        if what == "event":
            number, method, params = value
            exchange = self.exchanges.get(number)
            if exchange is not None:
                raw = parsed(method=method, params={**params, "_meta": {ID: number}})
                exchange.on_event(method, raw.object("params"))
        elif what in ("ended", "refused"):
            exchange = self.exchanges.pop(value, None)
            if exchange is not None:
                is_end = what == "ended"
                answer = {"result": {}} if is_end else {"error": {"code": -1, "message": ""}}
                exchange.reply = parsed(id=value, **answer)
                exchange.on_settled()
        else:
            self.to_client.append((what, value))

    def read_client(self) -> None:
        what, value = self.to_bridge.popleft()
        if what == "ask":
            if value in LISTS:
                self.listener.list_changes.note_asked(value)
                self.is_outstanding[value] = False
            self.to_server.append(("ask", value))
        elif what == "change":
            self.listener.request_change(value)
        else:
            value.is_cancelled = True
            self.is_owner_woken = True

    # The client's

    def ask(self, what: str) -> None:
        self.asking.add(what)
        self.is_stale[what] = False
        self.to_bridge.append(("ask", what))

    def subscribe(self) -> None:
        self.start_change(URIS[self.count % 2], is_added=True)

    def unsubscribe(self) -> None:
        self.start_change(URIS[self.count % 2], is_added=False)

    def start_change(self, uri: str, *, is_added: bool) -> None:
        self.change = Change(uri, is_added, lambda text: self.to_client.append((text, None)))
        if not is_added:
            self.subscribed.discard(uri)
        self.to_bridge.append(("change", self.change))

    def cancel_change(self) -> None:
        assert self.change is not None
        if any(what in ("done", "failed") for what, _ in self.to_client):
            return  # it has its answer
        self.subscribed.discard(self.change.uri)  # nobody can say now
        self.to_bridge.append(("cancel", self.change))
        self.change.take_answer = lambda: None  # type: ignore[method-assign]  # no slot any more
        self.change.fail = lambda _error: None  # type: ignore[method-assign]
        self.change = None

    def hear(self) -> None:
        what, value = self.to_client.popleft()
        if what == "reply":
            method, version = value
            self.asking.discard(method)
            self.known[method] = version
            if method in LISTS and version < self.needed[method]:
                assert self.is_stale[method], "the list is older than a result that came before"
        elif what == "result":
            self.needed["tools/list"] = max(self.needed["tools/list"], value)
            is_known = self.is_stale["tools/list"] or "tools/list" in self.asking
            if not self.may_lose and self.exchanges and self.known["tools/list"] >= 0:
                assert is_known or self.known["tools/list"] >= value, "a result before its change"
        elif what == UPDATED:
            self.is_stale[value] = True
        elif what in ("done", "failed"):
            change, self.change = self.change, None
            assert change is not None
            if what == "done" and change.is_added:
                self.subscribed.add(change.uri)
                self.is_stale[change.uri] = True
            elif what == "failed" and not change.is_added:
                self.is_stale[change.uri] = True
        else:
            for method in LISTS:
                self.is_stale[method] |= LIST_CHANGE_OF[method] == what

    # --- The end ------------------------------------------------------------------------------

    def drain(self) -> None:
        """All that is under way arrives; nothing new happens."""
        for _ in range(2000):
            due = self.due_steps()
            if not due:
                return
            due[0]()
        raise AssertionError("the bridge never comes to rest")


@requirement("listen.bursts", "listen.gap", "listen.order", "decisions.26")
@given(seed=st.integers(0, 1 << 32), length=st.integers(0, 600), may_lose=st.booleans())
@settings(max_examples=300, deadline=None)
def test_no_change_is_lost_and_none_is_told_again_while_it_is_outstanding(
    seed: int, length: int, may_lose: bool
) -> None:
    dice = random.Random(seed)  # noqa: S311  # a test
    world = World(may_lose=may_lose)
    if not may_lose:
        world.drain()  # the stream is open before anything changes
    for _ in range(length):
        dice.choice(world.steps())()
    world.drain()
    event(f"streams: {min(world.count, 5)}")
    for what in (*LISTS, *world.subscribed):
        assert world.known[what] == world.version[what], f"a change of {what} was lost"
