"""The server stops by itself: in each state of the connection, and with calls in flight."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import mcp_bridge_vscode
from tests.support.processes import WAIT_SECONDS, Bridge, cause_of, detail_of, text_of

CALLS = 10  # in flight when the server is lost


# --- While initialize waits: the bridge stays ---------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "status"),
    [
        (("--exit-at-start", "3"), "code 3"),
        (("--exit-at-first-line", "0"), "code 0"),
        (("--exit-at-first-line", "7"), "code 7"),
    ],
)
def test_a_server_that_leaves_during_the_handshake_is_closed_with_its_exit_code(
    flags: tuple[str, ...], status: str
) -> None:
    with Bridge(*flags, "--last-words", "Traceback: it is my secret") as bridge:
        answer = bridge.answer(bridge.send_initialize())
        assert cause_of(answer) == "closed"
        assert status in detail_of(answer)
        assert "secret" not in str(answer)
        assert "older revision" in bridge.hear_log(
            f"failed: the server process ended with {status}"
        )
        assert cause_of(bridge.ask("tools/list")) == "not_initialized"
        assert bridge.ask("ping")["result"] == {}
        assert bridge.end() == 0


def test_a_server_that_is_killed_during_the_handshake_is_closed_with_the_signal() -> None:
    with Bridge("--silent") as bridge:
        key = bridge.send_initialize()
        bridge.server().hear(heard="server/discover")
        bridge.server().kill()
        answer = bridge.answer(key)
        assert cause_of(answer) == "closed"
        assert "SIGKILL" in detail_of(answer)
        assert bridge.end() == 0


def test_after_a_failed_handshake_the_next_initialize_starts_the_server_again(
    tmp_path: Path,
) -> None:
    tried = tmp_path / "tried"
    launcher = f'if [ -e "{tried}" ]; then exec "$@"; fi; : > "{tried}"; exit 3'
    with Bridge(wrapper=("/bin/sh", "-c", launcher, "sh")) as bridge:
        assert cause_of(bridge.answer(bridge.send_initialize())) == "closed"
        bridge.initialize()
        bridge.echo()
        assert bridge.end() == 0


def test_a_server_that_always_leaves_is_started_once_for_each_initialize_and_no_more(
    tmp_path: Path,
) -> None:
    starts = tmp_path / "starts"
    launcher = f'echo x >> "{starts}"; exec "$@"'
    with Bridge("--exit-at-start", "1", wrapper=("/bin/sh", "-c", launcher, "sh")) as bridge:
        for _ in range(5):
            assert cause_of(bridge.answer(bridge.send_initialize())) == "closed"
        assert bridge.end() == 0
    assert starts.read_text(encoding="utf-8") == "x\n" * 5


# --- When it was ready: the bridge ends ---------------------------------------------------------


def test_the_loss_of_an_idle_server_is_told_and_ends_the_bridge() -> None:
    with Bridge() as bridge:
        bridge.initialize()
        bridge.server().kill()
        assert bridge.wait() == 1
        assert ": error: " in bridge.hear_log("exited with signal SIGKILL")


@pytest.mark.parametrize(
    ("tool", "arguments", "status"),
    [
        ("exit", {"code": 0}, "code 0"),
        ("exit", {"code": 9}, "code 9"),
        ("half", {"code": 4}, "code 4"),
        ("signal", {"number": int(signal.SIGSEGV)}, "signal SIGSEGV"),
        ("signal", {"number": int(signal.SIGTERM)}, "signal SIGTERM"),
    ],
    ids=str,
)
def test_each_call_in_flight_is_answered_before_the_bridge_ends(
    tool: str, arguments: dict[str, int], status: str
) -> None:
    with Bridge() as bridge:
        bridge.initialize()
        keys = [bridge.send_call("hold") for _ in range(CALLS)]
        bridge.server().hear(heard="tools/call", id=CALLS + 1)
        keys.append(bridge.send_call(tool, arguments))
        causes = [cause_of(bridge.answer(key)) for key in keys]
        # Half a line names its request: that one has its own failure, the others the server's.
        assert causes[:-1] == ["upstream_exited"] * CALLS
        assert causes[-1] == "invalid_response" if tool == "half" else "upstream_exited"
        assert bridge.wait() == 1
        assert ": error: " in bridge.hear_log(f"exited with {status}")


def test_an_answer_that_came_before_the_loss_is_delivered() -> None:
    with Bridge("--exit-after", "tools/list", "--list-bytes", "200000") as bridge:
        bridge.initialize()
        tools = bridge.ask("tools/list")["result"]["tools"]
        assert len(tools) == 100
        assert len(bridge.answer_frame(2).line) > 190_000
        assert bridge.wait() == 1


def test_a_client_that_reads_late_still_hears_of_the_loss() -> None:
    with Bridge() as bridge:
        bridge.initialize()
        bridge.pause()
        large = bridge.send_call("text", {"count": 2_000_000, "kind": "ascii"})
        held = bridge.send_call("hold")
        bridge.server().hear(heard="tools/call", id=3)
        bridge.server().kill()
        bridge.server().wait_gone()
        bridge.read_on()
        assert cause_of(bridge.answer(held)) == "upstream_exited"
        assert "error" in bridge.answer(large) or len(text_of(bridge.answer(large))) == 2_000_000
        assert bridge.wait() == 1


def test_what_the_server_left_in_its_group_is_gone_with_it() -> None:
    with Bridge("--grandchild", "deaf") as bridge:
        bridge.initialize()
        helper = bridge.grandchild()
        assert helper.group == bridge.server().pid
        bridge.server().kill()
        assert bridge.wait() == 1
        helper.wait_gone()
        helper.hear(done="SIGTERM")  # it was asked first


def test_a_helper_with_a_session_of_its_own_lives_on_after_the_loss() -> None:
    with Bridge("--grandchild", "session", keeps=["grandchild"]) as bridge:
        bridge.initialize()
        helper = bridge.grandchild()
        assert helper.session == helper.pid
        bridge.server().kill()
        assert bridge.wait() == 1
        assert not helper.is_gone()


def test_answers_that_wait_to_go_out_together_go_out_before_the_output_closes() -> None:
    reads, writes = os.pipe()
    output = mcp_bridge_vscode.Output(writes, run_at_once, lambda: None, 10)
    frame: list[mcp_bridge_vscode.Piece] = [b"{}\n"]
    output.write_from(lambda: frame, is_more=True)
    output.close(WAIT_SECONDS)
    output.write_from(lambda: frame)
    os.close(writes)
    assert os.read(reads, 100) == b"{}\n", "what waited, and nothing after the end"
    os.close(reads)


def run_at_once(job: Callable[[], None]) -> None:
    threading.Thread(target=job, daemon=True).start()


# --- Half a server ------------------------------------------------------------------------------


def test_a_server_that_closes_its_stdin_fails_its_requests_and_the_bridge_stays() -> None:
    with Bridge() as bridge:
        bridge.initialize()
        bridge.call("close_stdin")
        answer = bridge.call("echo", {"text": "anyone there?"})
        assert cause_of(answer) == "transport_failed"
        assert "stdin" in detail_of(answer)
        assert bridge.ask("ping")["result"] == {}
        assert bridge.end() == 0


def test_a_server_that_closes_its_stdout_and_lives_on_is_lost() -> None:
    with Bridge() as bridge:
        bridge.initialize()
        keys = [bridge.send_call("hold"), bridge.send_call("close_stdout")]
        assert [cause_of(bridge.answer(key)) for key in keys] == ["upstream_exited"] * 2
        assert bridge.wait() == 1


def test_a_wrapper_that_ends_leaves_the_server_that_holds_its_pipes_in_charge() -> None:
    launcher = f'exec 3<&0; "$@" <&3 & exec {sys.executable} -c "" '
    with Bridge(wrapper=("/bin/sh", "-c", launcher, "sh")) as bridge:
        bridge.initialize()
        bridge.echo()
        assert bridge.server().parent != bridge.pid
        bridge.server().kill()
        assert bridge.wait() == 1


def test_the_text_of_a_call_is_not_lost_when_the_server_leaves_right_after_it() -> None:
    with Bridge() as bridge:
        bridge.initialize()
        key = bridge.send_call("text", {"count": 1_000_000, "kind": "emoji"})
        last = bridge.send_call("exit", {"code": 0})
        assert len(text_of(bridge.answer(key))) == 1_000_000
        assert cause_of(bridge.answer(last)) == "upstream_exited"
        assert bridge.wait() == 1
