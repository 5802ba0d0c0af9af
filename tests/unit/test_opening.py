"""The section `opening`: what initialize does, with a server that says what the test hands it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

import mcp_bridge_vscode as product
from mcp_bridge_vscode import METHODS, BridgeError, Cause, Lifecycle, Opening, State
from tests.requirements import requirement
from tests.support.fake_server import DISCOVERED
from tests.support.running import INITIALIZE, RunningLog

EVERYTHING: Final[dict[str, Any]] = {"elicitation": {"form": {}}, "roots": {"listChanged": True}}


def frame(**members: Any) -> product.RawObject:
    return product.parse_frame(json.dumps({"jsonrpc": "2.0", **members}).encode(), 200)


def discovered(**members: Any) -> product.RawObject:
    return frame(id=1, result={**DISCOVERED, **members})


class World:
    """The neighbours of opening. `acts` is what was done to them, in its order."""

    def __init__(self, log: RunningLog, **limits: float) -> None:
        self.acts: list[Any] = []
        self.replies: list[product.RawObject | Exception] = []
        self.open_error: BridgeError | None = None
        self.before_opened: Callable[[], None] = lambda: None
        self.lifecycle = Lifecycle()
        self.lifecycle.move(State.AWAITING_INITIALIZE, State.INITIALIZING)
        self.log = log
        self.is_over = False
        self.request = product.ClientRequest(
            0, b"0", METHODS["initialize"], frame(params=INITIALIZE).object("params")
        )
        self.meta: product.RawObject | None = None
        self.has_progress = False
        self.opening = Opening(
            connection=self,  # type: ignore[arg-type]  # the part of it that opening uses
            lifecycle=self.lifecycle,
            limits=product.Limits().replace(**limits),
            log=log.writer,
            fallback_name="fallback",
            on_opened=self._hear_opened,
        )

    def _hear_opened(self, client: dict[str, Any], server: dict[str, Any]) -> None:
        self.acts.append(("opened", client, server, self.lifecycle.state))
        self.before_opened()

    # --- The connection ------------------------------------------------------------------------

    def open(self, client_info: dict[str, Any], capabilities: dict[str, Any]) -> None:
        self.acts.append(("open", client_info, capabilities))
        if self.open_error is not None:
            raise self.open_error

    def close(self) -> None:
        self.acts.append(("close", self.lifecycle.state))

    def settle_as_ready(self) -> None:
        self.acts.append(("settle_as_ready", self.lifecycle.state))

    # --- The slot --------------------------------------------------------------------------------

    def check_open(self) -> None:
        if self.is_over:
            raise product.RequestOverError

    def claim(self) -> None:
        self.check_open()

    def end_reason(self) -> str | None:
        return None

    def wait(self, until: float) -> None:
        raise AssertionError(until)

    def wake(self) -> None:
        raise AssertionError

    def frame_of(self, reply: product.RawObject) -> list[product.Piece]:
        raise AssertionError(reply)

    def exchange(self, call: product.UpstreamCall, limit: float) -> product.RawObject:
        self.acts.append((call.method, call.members, limit))
        reply = self.replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return reply

    # --- The test ------------------------------------------------------------------------------

    def run(self, *replies: product.RawObject | Exception) -> dict[str, Any]:
        self.replies += replies
        answer: dict[str, Any] = json.loads(b"".join(self.opening.run(self)))
        return answer

    def fails(self, *replies: product.RawObject | Exception) -> BridgeError:
        """Its failure; nothing of the server is left, and initialize may come again."""
        with pytest.raises(BridgeError) as raised:
            self.run(*replies)
        assert self.acts[-1] == ("close", State.INITIALIZING)
        assert self.lifecycle.state is State.AWAITING_INITIALIZE
        assert not [act for act in self.acts if act[0] in ("opened", "settle_as_ready")]
        return raised.value


@pytest.fixture
def log() -> Iterator[RunningLog]:
    log = RunningLog(product.LogLevel.INFO, product.Limits())
    yield log
    log.release()


@pytest.fixture
def world(log: RunningLog) -> World:
    return World(log)


@requirement("lifecycle.order")
def test_the_state_is_ready_before_there_is_an_answer(world: World) -> None:
    answer = world.run(discovered(instructions="Be kind."))
    assert answer["result"]["protocolVersion"] == "2025-11-25"
    assert answer["result"]["instructions"] == "Be kind."
    assert world.lifecycle.state is State.READY
    info = {"name": "client", "version": "1"}
    assert world.acts == [
        ("open", info, {}),
        ("server/discover", [], 60.0),
        ("opened", {}, {"tools": {}}, State.INITIALIZING),
        ("settle_as_ready", State.READY),
    ]
    world.log.heard("info: initialize from client 1")
    world.log.heard("info: the upstream server is ready")


def test_the_capabilities_of_both_sides_are_told_before_the_state_is_ready(world: World) -> None:
    params = {**INITIALIZE, "capabilities": {**EVERYTHING, "tasks": {"list": {}}}}
    world.request.params = frame(params=params).object("params")
    world.run(discovered(capabilities={"prompts": {}}))
    (_, client, server, state) = world.acts[2]
    assert client.keys() == EVERYTHING.keys()
    assert server == {"prompts": {}}
    assert state is State.INITIALIZING


@requirement("initialize.params", "errors.invalid_params")
def test_params_that_are_not_valid_open_no_server(world: World) -> None:
    world.request.params = None
    error = world.fails()
    assert error.cause is Cause.INVALID_PARAMS
    assert [act[0] for act in world.acts] == ["close"]


@requirement("initialize.spawn", "log.cannot-start")
def test_a_server_that_cannot_start_is_asked_nothing(world: World) -> None:
    world.open_error = BridgeError(Cause.SPAWN_FAILED, "there is no such program")
    assert world.fails().cause is Cause.SPAWN_FAILED
    world.log.heard("warning: cannot start the upstream command: there is no such program")


@requirement("initialize.silence", "limits.discover")
def test_silence_is_a_failed_discover(log: RunningLog) -> None:
    world = World(log, discover_seconds=3.0)
    error = world.fails(BridgeError(Cause.TIMEOUT))
    assert (error.cause, error.detail) == (Cause.DISCOVER_FAILED, "no response in 3 s")
    log.heard("warning: server/discover failed: no response in 3 s")


@requirement("initialize.odd-refusal")
def test_an_odd_refusal_is_tried_once_more_and_no_more(log: RunningLog) -> None:
    refusal = frame(
        id=1, error={"code": -32022, "message": "m", "data": {"supported": ["2026-07-28"]}}
    )
    assert "result" in World(log).run(refusal, discovered())
    error = World(log).fails(refusal, refusal)
    assert (error.cause, error.code) == (Cause.DISCOVER_FAILED, -32022)


@pytest.mark.parametrize(
    ("reply", "cause"),
    [
        (frame(id=1, error={"code": -32601, "message": "no such method"}), Cause.DISCOVER_FAILED),
        (frame(id=1, error=5), Cause.INVALID_RESPONSE),
        (frame(id=1, result=[]), Cause.INVALID_RESPONSE),
        (discovered(resultType="input_required"), Cause.INVALID_RESPONSE),
        (discovered(supportedVersions=["2099-01-01"]), Cause.DISCOVER_FAILED),
        (BridgeError(Cause.CLOSED, "exit code 1"), Cause.CLOSED),
        (BridgeError(Cause.TRANSPORT_FAILED), Cause.TRANSPORT_FAILED),
    ],
)
@requirement("initialize.discover-error", "initialize.wrong-result", "initialize.again")
def test_a_server_that_does_not_answer_as_it_should_fails_initialize(
    world: World, reply: product.RawObject | Exception, cause: Cause
) -> None:
    assert world.fails(reply).cause is cause
    world.log.heard("warning: server/discover failed: ")


@requirement("initialize.cancelled")
@pytest.mark.parametrize("moment", ["exchange", "claim"])
def test_a_cancelled_initialize_leaves_nothing_half_done(world: World, moment: str) -> None:
    reply: product.RawObject | Exception = product.RequestOverError()
    if moment == "claim":
        world.is_over, reply = True, discovered()
    with pytest.raises(product.RequestOverError):
        world.run(reply)
    assert world.acts[-1][0] == "close"
    assert "settle_as_ready" not in [act[0] for act in world.acts]
    assert world.lifecycle.state is State.AWAITING_INITIALIZE


@requirement("lifecycle.closing")
def test_a_bridge_that_stops_meanwhile_stays_closing_and_gives_no_answer(world: World) -> None:

    def stop() -> None:
        world.lifecycle.close(None)

    world.before_opened = stop
    with pytest.raises(product.RequestOverError):
        world.run(discovered())
    assert world.acts[-1] == ("close", State.CLOSING)
    assert world.lifecycle.state is State.CLOSING
