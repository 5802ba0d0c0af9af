"""The section `bridge`: the rooms together, from the first line to the stop."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Final

import pytest

import mcp_bridge_vscode as product
from mcp_bridge_vscode import EXIT_CODES, State, StopReason
from tests.requirements import requirement
from tests.support.running import INITIALIZE, SMALL, RunningBridge
from tests.support.waits import WAIT_SECONDS, until

ROOT: Final = Path(__file__).parents[2]


def test_a_request_is_answered(ready: RunningBridge) -> None:
    ready.client.send(id=1, method="tools/list", params={})
    ready.server.answer(ready.server.hear(), tools=[], ttlMs=0, cacheScope="private")
    assert ready.client.hear() == {"id": 1, "result": {"tools": []}}


@requirement("stop.exit-codes")
def test_each_reason_of_a_stop_has_its_exit_code() -> None:
    assert dict(EXIT_CODES) == {
        StopReason.END_OF_INPUT: 0,
        StopReason.SERVER_LOST: 1,
        StopReason.INTERNAL_ERROR: 1,
    }


@requirement("r7", "stop.end-of-input")
def test_the_end_of_the_input_stops_the_server_and_then_the_bridge(ready: RunningBridge) -> None:
    ready.server.may_stop.clear()
    ready.client.close()
    ready.wait_state(State.CLOSING)
    assert ready.exit_codes == []
    ready.server.may_stop.set()
    assert ready.wait_exit() == 0
    assert ready.server.run.stopped.is_set()
    assert not ready.server.run.killed.is_set()


def test_the_end_of_the_input_before_initialize_ends_the_bridge(bridge: RunningBridge) -> None:
    bridge.client.close()
    assert bridge.wait_exit() == 0
    assert bridge.server.runs == []


@requirement("stop.watchdog")
def test_a_stop_that_hangs_ends_after_8_seconds_with_a_warning_and_a_kill(
    ready: RunningBridge,
) -> None:
    ready.server.may_stop.clear()
    ready.client.close()
    began = ready.clock.now()
    until(lambda: ready.clock.has_waiter_until(began + 8.0), "the watchdog")
    ready.clock.advance(7.9)
    assert ready.exit_codes == []
    ready.clock.advance(0.1)
    assert ready.wait_exit() == 0
    assert ready.server.run.killed.is_set()
    ready.stderr.heard("vscode: warning: the bridge did not stop in 8 s")


@requirement("stop.second-signal", "decisions.11")
def test_a_second_signal_kills_the_server_and_ends_at_once(ready: RunningBridge) -> None:
    ready.server.may_stop.clear()
    ready.bridge.handle_signal()
    until(lambda: ready.clock.has_waiter_until(ready.clock.now() + 8.0), "the watchdog")
    assert ready.exit_codes == []
    ready.bridge.handle_signal()
    assert ready.wait_exit() == 0
    assert ready.server.run.killed.is_set()


@requirement("stop.second-signal")
def test_a_signal_after_the_end_of_the_input_is_a_second_one(ready: RunningBridge) -> None:
    ready.server.may_stop.clear()
    ready.client.close()
    until(lambda: ready.clock.has_waiter_until(ready.clock.now() + 8.0), "the watchdog")
    ready.bridge.handle_signal()
    assert ready.wait_exit() == 0
    assert ready.server.run.killed.is_set()


WATCHED: Final = f"""
import os, signal, sys, threading
sys.path.insert(0, {str(ROOT)!r})
import mcp_bridge_vscode as product
signals = [getattr(signal, name) for name in ("SIGTERM", "SIGINT", "SIGHUP")]
signal.signal(signal.SIGHUP, signal.SIG_IGN)
heard = []
def hear():
    heard.append(1)
    if len(heard) == 2:
        os._exit(7)
product.watch_signals(hear)
assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
signal.pthread_sigmask(signal.SIG_BLOCK, signals)  # so the main thread does not wake up
for number in reversed(signals):
    os.kill(os.getpid(), number)
lock = threading.Lock()
lock.acquire()
lock.acquire()
"""


@requirement("stop.signal", "stop.second-signal")
@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="a mask is a matter of POSIX")
def test_each_signal_is_heard_although_the_main_thread_waits_and_one_that_is_ignored_never() -> (
    None
):
    """As when a signal comes in the moment in which the main thread begins to wait."""
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-I", "-S", "-c", WATCHED], timeout=WAIT_SECONDS, check=False
    )
    assert done.returncode == 7


@requirement("stop.signal", "lifecycle.closing")
def test_after_a_signal_requests_get_no_response(ready: RunningBridge) -> None:
    ready.server.may_stop.clear()
    ready.bridge.handle_signal()
    ready.wait_state(State.CLOSING)
    ready.client.send(id=1, method="tools/list", params={})
    ready.server.may_stop.set()
    assert ready.wait_exit() == 0
    ready.release()
    assert ready.client.heard.rest() == []
    assert ready.server.heard.rest() == []


@requirement("loss.in-flight", "stop.exit-codes")
def test_the_loss_of_the_server_wins_over_a_later_end_of_the_input(ready: RunningBridge) -> None:
    ready.server.run.exit("code 7")
    ready.client.close()
    assert ready.wait_exit() == 1
    ready.stderr.heard("bridge: error: the upstream server exited with code 7")


@requirement("loss.in-flight")
def test_the_log_has_the_loss_of_the_server_however_soon_the_stop_is_done(
    ready: RunningBridge, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin_stop = ready.bridge._begin_stop

    def begin_and_be_preempted(reason: StopReason) -> None:
        begin_stop(reason)
        ready.wait_exit()

    monkeypatch.setattr(ready.bridge, "_begin_stop", begin_and_be_preempted)
    ready.server.run.exit("code 7")
    assert ready.wait_exit() == 1
    ready.release()
    assert any(b"upstream server exited with code 7" in line for line in ready.stderr.lines.rest())


def test_the_end_of_a_server_during_the_stop_is_no_loss(ready: RunningBridge) -> None:
    ready.server.may_stop.clear()
    ready.client.close()
    ready.wait_state(State.CLOSING)
    until(lambda: ready.bridge._connection._is_shut, "the last step of the stop")
    ready.server.run.exit("signal SIGTERM")
    ready.server.may_stop.set()
    assert ready.wait_exit() == 0
    ready.release()
    assert not [line for line in ready.stderr.lines.rest() if b": error: " in line]


@requirement("decisions.9")
def test_a_broken_stdout_is_the_end_of_the_input(ready: RunningBridge) -> None:
    ready.client.send(id=1, method="tools/call", params={"name": "a"})
    call = ready.server.hear()
    ready.client.break_stdout()
    ready.client.send(id=2, method="ping")  # the last that it reads
    assert ready.client.heard.take() is None
    ready.client.send(id=3, method="ping")
    assert ready.server.hear()["params"]["requestId"] == call["id"]
    assert ready.wait_exit() == 0


@requirement("decisions.4", "errors.internal")
def test_a_worker_that_fails_unseen_ends_the_bridge_with_code_1(ready: RunningBridge) -> None:
    def fail() -> None:
        raise ZeroDivisionError("a secret")

    ready.bridge._workers.run(fail)
    assert ready.wait_exit() == 1
    line = ready.stderr.heard("internal error of a worker")
    assert "ZeroDivisionError" in line
    assert "secret" not in line


def test_a_stop_that_fails_ends_the_bridge_all_the_same(
    ready: RunningBridge, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        ready.bridge._workers.close()
        raise OSError("a secret")

    monkeypatch.setattr(ready.bridge._connection, "shut", fail)
    ready.client.close()
    ready.wait_exit()
    assert "secret" not in ready.stderr.heard("internal error of the stop")


@requirement("stop.any-state")
@pytest.mark.parametrize("how", ["close", "signal", "loss"])
@pytest.mark.parametrize("busy", [0, 3])
def test_a_bridge_stops_from_every_state_with_nothing_left(how: str, busy: int) -> None:
    running = RunningBridge(limits=SMALL.replace(grace_seconds=1.0))
    running.initialize()
    for number in range(busy):
        running.client.send(id=number, method="tools/call", params={"name": "a"})
        running.server.hear()
    if how == "close":
        running.client.close()
    elif how == "signal":
        running.bridge.handle_signal()
    else:
        running.server.run.exit("code 0")
        causes = [running.client.hear()["error"]["data"]["cause"] for _ in range(busy)]
        assert causes == ["upstream_exited"] * busy
    assert running.wait_exit() == (1 if how == "loss" else 0)
    running.release()


@requirement("stop.any-state")
def test_many_bridges_start_and_stop_at_random_moments_of_their_start() -> None:
    for step in range(12):
        running = RunningBridge()
        running.client.send(id=1, method="initialize", params=INITIALIZE)
        if step % 3:
            request = running.server.hear()
            if step % 3 == 2:
                running.server.say(
                    id=request["id"],
                    result={"supportedVersions": [product.MODERN_VERSION], "capabilities": {}},
                )
        running.client.close()
        assert running.wait_exit() == 0
        running.release()


def test_stops_that_are_wanted_at_once_are_one(ready: RunningBridge) -> None:
    gate = threading.Barrier(4)
    found: list[bool] = []

    def ask() -> None:
        gate.wait(WAIT_SECONDS)
        found.append(ready.bridge.request_stop(StopReason.END_OF_INPUT))

    threads = [threading.Thread(target=ask, name="fake", daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_SECONDS)
    assert sorted(found) == [False, False, False, True]
    assert ready.wait_exit() == 0
