"""The stop: end of stdin, signals, a parent that is killed, and processes that ignore all of it."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable

import pytest

from mcp_bridge_vscode import LIMITS
from tests.support.processes import PROGRAM, SLACK_SECONDS, STOP_SECONDS, Bridge, text_of

STOPS = {"SIGTERM": signal.SIGTERM, "SIGINT": signal.SIGINT, "SIGHUP": signal.SIGHUP}
GRACE_SECONDS = LIMITS.grace_seconds
STUBBORN = ("--ignore-eof", "--ignore-term")


def idle(bridge: Bridge) -> None:
    bridge.initialize()
    bridge.server()


def call_in_flight(bridge: Bridge) -> None:
    bridge.initialize()
    key = bridge.send_call("hold")
    bridge.server().hear(heard="tools/call", id=key)


def initialize_in_flight(bridge: Bridge) -> None:
    bridge.send_initialize()
    bridge.server().hear(heard="server/discover")


def nothing_sent(bridge: Bridge) -> None:
    bridge.ask("ping")


STATES = [nothing_sent, initialize_in_flight, idle, call_in_flight]
NAMES = [state.__name__ for state in STATES]


def bridge_in(state: Callable[[Bridge], None], *flags: str) -> Bridge:
    return Bridge(*(["--silent"] if state is initialize_in_flight else []), *flags)


# --- Each way to stop, in each state ------------------------------------------------------------


@pytest.mark.parametrize("state", STATES, ids=NAMES)
@pytest.mark.parametrize("way", ["end of stdin", *STOPS])
def test_a_stop_ends_bridge_and_server_with_exit_code_0(
    way: str, state: Callable[[Bridge], None]
) -> None:
    with bridge_in(state) as bridge:
        state(bridge)
        answered = len(bridge.frames.items())
        if way in STOPS:
            bridge.signal(STOPS[way])
        else:
            bridge.close_stdin()
        assert bridge.wait() == 0
        bridge.wait_gone()
        assert len(bridge.frames.whole()) == answered, "what is in flight is not answered"


def test_the_server_hears_that_a_call_in_flight_is_cancelled_when_the_client_goes() -> None:
    with Bridge() as bridge:
        call_in_flight(bridge)
        bridge.close_stdin()
        assert bridge.wait() == 0
        events = bridge.server().events.whole()
        [told] = [one for one in events if one.get("heard") == "notifications/cancelled"]
        assert '"requestId":2' in told["line"].replace(" ", "")


def test_the_server_sees_the_end_of_its_stdin_before_any_signal() -> None:
    with Bridge("--ignore-term") as bridge:
        idle(bridge)
        assert bridge.end() == 0
        told = [event.get("done") for event in bridge.server().events.whole() if "done" in event]
        assert told == ["stdin"]


def test_a_signal_that_was_ignored_at_the_start_stays_ignored() -> None:
    program = ("/bin/sh", "-c", "trap '' HUP; exec \"$@\"", "sh", *PROGRAM)
    with Bridge(program=program) as bridge:
        bridge.initialize()
        ignored = int(bridge.status_text("SigIgn"), 16)
        assert ignored & 1 << (signal.SIGHUP - 1)
        bridge.signal(signal.SIGHUP)
        bridge.echo()
        assert bridge.end() == 0


# --- Those that do not want to go ---------------------------------------------------------------


def test_whatever_ignores_the_stop_is_gone_within_the_bound() -> None:
    kinds = {
        "ignores the end of stdin": ["--ignore-eof"],
        "ignores TERM as well": [*STUBBORN],
        "never read anything": [*STUBBORN, "--never-read"],
        "has a helper that ignores TERM": ["--grandchild", "deaf"],
        "all of it": [*STUBBORN, "--grandchild", "deaf"],
        "the helper holds stdout": [*STUBBORN, "--grandchild", "deaf+stdout"],
    }
    bridges = {kind: Bridge(*flags) for kind, flags in kinds.items()}
    with contextlib.ExitStack() as stack:
        for bridge in bridges.values():
            stack.enter_context(bridge)
        for kind, bridge in bridges.items():
            bridge.send_initialize()
            bridge.server()
            if kind != "never read anything":
                bridge.answer(1)
            if "helper" in kind or kind == "all of it":
                bridge.grandchild()
        started = time.monotonic()
        for bridge in bridges.values():
            bridge.close_stdin()
        for kind, bridge in bridges.items():
            assert bridge.wait() == 0, kind
            assert time.monotonic() - started < STOP_SECONDS + SLACK_SECONDS, kind
            bridge.wait_gone()


def test_a_helper_that_holds_the_stdout_of_a_server_that_has_gone_costs_no_grace() -> None:
    with Bridge("--grandchild", "session+stdout", keeps=["grandchild"]) as bridge:
        idle(bridge)
        helper = bridge.grandchild()
        started = time.monotonic()
        assert bridge.end() == 0
        assert time.monotonic() - started < 2 * GRACE_SECONDS
        assert not helper.is_gone()


def test_a_second_signal_ends_a_stubborn_server_before_its_graces_are_over() -> None:
    with Bridge(*STUBBORN, "--grandchild", "deaf") as bridge:
        call_in_flight(bridge)
        helper = bridge.grandchild()
        bridge.signal(signal.SIGTERM)
        bridge.server().hear(done="stdin")  # the stop has begun
        bridge.signal(signal.SIGTERM)
        assert bridge.wait() == 0
        bridge.wait_gone()
        for life in (bridge.server(), helper):
            assert "SIGTERM" not in [event.get("done") for event in life.events.whole()]


def test_a_second_signal_ends_a_helper_whose_server_has_gone_already() -> None:
    with Bridge("--grandchild", "deaf") as bridge:
        idle(bridge)
        helper = bridge.grandchild()
        bridge.signal(signal.SIGTERM)
        helper.hear(done="SIGTERM")  # its grace has begun
        bridge.signal(signal.SIGTERM)
        assert bridge.wait() == 0
        helper.wait_gone()


def test_a_client_that_stopped_reading_does_not_delay_the_stop() -> None:
    with Bridge() as bridge:
        bridge.initialize()
        bridge.pause()
        bridge.send_call("text", {"count": 5_000_000, "kind": "ascii"})
        bridge.wait_readable()
        started = time.monotonic()
        assert bridge.end() == 0
        assert time.monotonic() - started < 2 * GRACE_SECONDS
        bridge.forgive_cut_line()


# --- Deaths that leave us no time ---------------------------------------------------------------


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="the kernel ties the child on Linux")
@pytest.mark.parametrize("state", STATES[1:], ids=NAMES[1:])
@pytest.mark.parametrize("flags", [(), STUBBORN], ids=["good", "stubborn"])
def test_no_server_outlives_a_bridge_that_is_killed(
    state: Callable[[Bridge], None], flags: tuple[str, ...]
) -> None:
    with bridge_in(state, *flags) as bridge:
        state(bridge)
        bridge.signal(signal.SIGKILL)
        assert bridge.wait() == -signal.SIGKILL
        bridge.server().wait_gone()


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs a kernel that tells of a parent")
@pytest.mark.parametrize("state", STATES, ids=NAMES)
def test_a_bridge_whose_parent_is_killed_ends_although_its_stdin_stays_open(
    state: Callable[[Bridge], None],
) -> None:
    # The shell is the host, the test the third process that holds the pipe to stdin.
    flags = ["--silent"] if state is initialize_in_flight else []
    host = ("/bin/sh", "-c", '"$@"; exit $?', "sh", *PROGRAM)
    with Bridge(*flags, program=host) as bridge:
        state(bridge)
        bridge.signal(signal.SIGKILL)
        assert bridge.wait() == -signal.SIGKILL
        assert bridge.frames.wait_end(), "the bridge holds its stdout open: it lives"
        bridge.wait_gone()


def test_a_host_that_kills_the_tree_leaves_first_leaves_nothing() -> None:
    with Bridge(*STUBBORN) as bridge:
        call_in_flight(bridge)
        os.kill(bridge.server().pid, signal.SIGTERM)
        bridge.signal(signal.SIGTERM)
        bridge.signal(signal.SIGKILL)
        bridge.wait()
        bridge.server().wait_gone()


# --- What the server started --------------------------------------------------------------------


@pytest.mark.parametrize("way", ["end of stdin", "SIGTERM"])
def test_helpers_in_the_group_are_gone_after_a_stop(way: str) -> None:
    with Bridge("--grandchild", "group") as bridge:
        idle(bridge)
        helper = bridge.grandchild()
        if way in STOPS:
            bridge.signal(STOPS[way])
        assert bridge.end() == 0
        helper.wait_gone()


def test_a_shell_its_server_and_the_server_s_helper_are_all_gone() -> None:
    with Bridge(
        "--grandchild", "group", wrapper=("/bin/sh", "-c", '"$@"; exit $?', "sh")
    ) as bridge:
        idle(bridge)
        assert bridge.server().parent != bridge.pid
        helper = bridge.grandchild()
        assert bridge.end() == 0
        helper.wait_gone()


def test_a_helper_with_a_session_of_its_own_lives_on_after_the_stop() -> None:
    with Bridge("--grandchild", "session", keeps=["grandchild"]) as bridge:
        idle(bridge)
        helper = bridge.grandchild()
        assert bridge.end() == 0
        bridge.server().wait_gone()
        assert not helper.is_gone()


def test_five_hundred_calls_start_one_server() -> None:
    with Bridge() as bridge:
        bridge.initialize()
        keys = [bridge.send_call("echo", {"text": str(number)}) for number in range(200)]
        for number, key in enumerate(keys):
            assert text_of(bridge.answer(key)) == str(number)
        for number in range(300):
            bridge.echo(str(number))
        assert bridge.end() == 0
        assert [life.role for life in bridge.lives()] == ["server"]
