"""Large messages, slow readers on both sides, and the limit of a line."""

from __future__ import annotations

import hashlib
import json
import sys
import time

import pytest

from tests.support.processes import PROGRAM, STOP_SECONDS, Bridge, cause_of, text_of

MIB = 1 << 20
LINE_LIMIT = 64 * MIB  # the default of --max-line-bytes
SMALL_LIMIT = ("--max-line-bytes", str(MIB))


def result_line(key: int, text: str) -> bytes:
    """The line of the client for a text of the hostile server."""
    return b'{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"%s"}]}}' % (
        key,
        text.encode(),
    )


# --- Sizes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kib", [15, 16, 17, 64, 65])
def test_results_around_the_size_of_a_pipe_arrive_byte_for_byte(kib: int) -> None:
    with Bridge() as bridge:
        bridge.initialize()
        for off in (-2, -1, 0, 1):
            key = bridge.send("ping")
            bridge.answer(key)
            assert isinstance(key, int)
            room = kib * 1024 + off - len(result_line(key + 1, ""))
            key = bridge.send_call("text", {"count": room, "kind": "ascii"})
            assert isinstance(key, int)
            assert bridge.answer_frame(key).line == result_line(key, "x" * room)
            assert len(bridge.answer_frame(key).line) == kib * 1024 + off


def test_a_whole_tool_list_comes_out_when_the_input_ends_right_after_it() -> None:
    with Bridge("--list-bytes", "200000") as bridge:
        bridge.initialize()
        bridge.pause()
        key = bridge.send("tools/list")
        bridge.wait_readable()  # a part of it is in the pipe, which cannot hold it all
        bridge.read_on()
        bridge.close_stdin()
        assert len(bridge.answer(key)["result"]["tools"]) == 100
        assert bridge.wait() == 0


def test_a_result_with_every_kind_of_character_is_what_the_server_wrote() -> None:
    with Bridge() as bridge:
        bridge.initialize()
        assert text_of(bridge.call("text", {"count": 300_000, "kind": "emoji"})) == (
            "\N{GRINNING FACE}" * 300_000
        )


# --- A client that reads slowly -----------------------------------------------------------------


def test_while_the_client_pauses_requests_still_reach_the_server_and_nothing_is_lost() -> None:
    with Bridge() as bridge:
        bridge.initialize()
        bridge.pause()
        large = bridge.send_call("text", {"count": 5_000_000, "kind": "ascii"})
        bridge.wait_readable()
        keys = [bridge.send_call("echo", {"text": str(number)}) for number in range(20)]
        pings = [bridge.send("ping") for _ in range(20)]
        bridge.server().hear(heard="tools/call", id=2)
        before = bridge.status("VmRSS")
        bridge.read_on()
        assert text_of(bridge.answer(large)) == "x" * 5_000_000
        assert [text_of(bridge.answer(key)) for key in keys] == [str(n) for n in range(20)]
        assert all(bridge.answer(key)["result"] == {} for key in pings)
        assert before < 60 * MIB


def test_pipes_that_the_client_made_non_blocking_lose_nothing() -> None:
    start = "import os, sys; [os.set_blocking(d, False) for d in (0, 1)]; os.execv(*sys.argv[1:2], "
    program = (sys.executable, "-c", start + "sys.argv[1:])", *PROGRAM)
    with Bridge(program=program) as bridge:
        bridge.initialize()
        bridge.pause()
        large = bridge.send_call("text", {"count": 2_000_000, "kind": "ascii"})
        bridge.wait_readable()
        keys = [bridge.send_call("echo", {"text": "y" * 100_000}) for _ in range(10)]
        bridge.read_on()
        assert text_of(bridge.answer(large)) == "x" * 2_000_000
        assert all(text_of(bridge.answer(key)) == "y" * 100_000 for key in keys)
        assert bridge.end() == 0


def test_a_client_that_reads_nothing_can_still_send() -> None:
    with Bridge(checks_frames=False) as bridge:
        bridge.initialize()
        bridge.ask("ping")
        threads = bridge.status("Threads")
        bridge.pause()
        # More answers than all pipes hold: the bridge reads on, or this write never returns.
        ping = '{"jsonrpc":"2.0","id":%d,"method":"ping"}\n'
        bridge.write("".join(ping % number for number in range(100, 20_100)).encode())
        assert bridge.status("Threads") <= threads + 2
        bridge.write(b'{"jsonrpc":"2.0","id":"last","method":"ping"}\n')
        bridge.read_on()
        assert bridge.answer("last")["result"] == {}


# --- A server that reads slowly -----------------------------------------------------------------


def test_large_requests_to_a_server_that_does_not_read_can_be_cancelled() -> None:
    with Bridge() as bridge:
        bridge.initialize()
        bridge.call("stop_reading")
        large = [bridge.send_call("echo", {"text": "y" * MIB}) for _ in range(8)]
        assert bridge.ask("ping")["result"] == {}
        for key in large:
            bridge.cancel(key)
        assert bridge.ask("ping")["result"] == {}
        bridge.server().say("read")
        cancelled = bridge.server_heard("notifications/cancelled")
        whole = bridge.server_heard("a long line")
        assert len(cancelled) == len(whole) == 8
        answered = {frame.key() for frame in bridge.frames.items()}
        assert not answered & {json.dumps(key) for key in large}


def test_a_large_request_arrives_whole_at_a_server_that_reads_late() -> None:
    text = "y" * (5 * MIB)
    with Bridge() as bridge:
        bridge.initialize()
        bridge.call("stop_reading")
        key = bridge.send_call("echo", {"text": text})
        assert bridge.ask("ping")["result"] == {}
        bridge.server().say("read")
        assert text_of(bridge.answer(key)) == text


def test_a_server_that_does_not_read_does_not_delay_the_stop() -> None:
    with Bridge() as bridge:
        bridge.initialize()
        bridge.call("stop_reading")
        for _ in range(8):
            bridge.send_call("echo", {"text": "y" * MIB})
        started = time.monotonic()
        assert bridge.end() == 0
        assert time.monotonic() - started < STOP_SECONDS


def test_a_server_that_fills_stderr_before_each_answer_still_answers() -> None:
    # Without lines of ours, which may go out in the midst of so much.
    with Bridge("--stderr-bytes", str(256 * 1024), options=["--log-level", "err"]) as bridge:
        bridge.initialize()
        for number in range(4):
            bridge.echo(str(number))
        assert bridge.end() == 0
        assert bridge.stderr() == (b"e" * (256 * 1024 - 1) + b"\n") * 5


# --- The limit of a line ------------------------------------------------------------------------


def call_of_bytes(key: int, size: int) -> bytes:
    """A call whose line has this many bytes, without its end."""
    start = b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":' % key
    start += b'{"name":"echo","arguments":{"text":"'
    return start + b"z" * (size - len(start) - 4) + b'"}}}'


def test_two_messages_at_the_limit_in_one_write_pass_and_a_longer_one_is_refused() -> None:
    with Bridge(options=SMALL_LIMIT, checks_frames=False) as bridge:
        bridge.initialize()
        lines = [call_of_bytes(11, MIB - 300), call_of_bytes(12, MIB - 300)]
        refused = call_of_bytes(13, MIB + 1)
        bridge.write(b"\n".join([*lines, refused, call_of_bytes(14, 200), b""]))
        for key in (11, 12):
            assert text_of(bridge.answer(key)).strip("z") == ""
        assert cause_of(bridge.answer(13)) == "line_too_long"
        assert text_of(bridge.answer(14)).strip("z") == ""
        sizes = [event["bytes"] for event in bridge.server_heard("a long line")]
        assert len(sizes) == 2
        assert min(sizes) > MIB - 300


def test_the_limit_is_the_line_and_not_one_byte_less() -> None:
    with Bridge(options=SMALL_LIMIT) as bridge:
        bridge.initialize()
        wanted = call_of_bytes(11, MIB)
        bridge.write(wanted + b"\n" + call_of_bytes(12, MIB) + b"\r\n")
        answers = [bridge.answer(11), bridge.answer(12)]
        # Its answer is a little longer than the limit, so the server's line is refused, not ours.
        assert {cause_of(answer) for answer in answers} == {"invalid_response"}
        digests = [event["digest"] for event in bridge.server_heard("a long line")]
        assert len(digests) == len(set(digests)) == 2


def test_a_line_of_the_server_at_the_limit_passes_and_a_longer_one_fails_its_request() -> None:
    with Bridge(options=SMALL_LIMIT) as bridge:
        bridge.initialize()
        for over in (0, 1):
            start = '{"jsonrpc":"2.0","id":@ID@,"result":{"content":[{"type":"text","text":"'
            end = '"}],"resultType":"complete"}}'
            room = MIB + over - len(start) - len(end) + len("@ID@") - len("2")
            answer = bridge.call("repeat", {"start": start, "count": room, "end": end})
            if over:
                assert cause_of(answer) == "invalid_response"
            else:
                assert text_of(answer) == "x" * room
        bridge.echo()


def test_a_client_line_of_100_mb_without_an_end_is_refused_and_not_kept() -> None:
    with Bridge() as bridge:
        bridge.initialize()
        bridge.echo()
        before = bridge.status("VmHWM")
        bridge.write(b'{"jsonrpc":"2.0","id":"long","method":"tools/call","params":{"x":"')
        block = b"a" * MIB
        for _ in range(100):
            bridge.write(block)
        assert bridge.status("VmHWM") - before < LINE_LIMIT * 1.5
        assert bridge.status("VmRSS") - before < LINE_LIMIT / 2, "what was read is let go"
        bridge.write(b'"}}\n')
        assert cause_of(bridge.answer("long")) == "line_too_long"
        bridge.echo()


def test_a_server_gets_each_byte_of_an_argument() -> None:
    text = "".join(map(chr, range(32, 0x800))) * 200
    line = json.dumps({"text": text}, ensure_ascii=False).encode()
    frame = b'{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"echo","arguments":'
    with Bridge() as bridge:
        bridge.initialize()
        bridge.write(frame + line + b"}}\n")
        assert text_of(bridge.answer(9)) == text
        [event] = bridge.server_heard("a long line")
        discover = bridge.server_heard("server/discover")[0]["line"]
        meta = discover[discover.index('"_meta"') : -len("}}")]
        sent = f'{{"jsonrpc":"2.0","id":{event["id"]},"method":"tools/call","params":{{{meta}'
        wanted = sent.encode() + b',"name":"echo","arguments":' + line + b"}}"
        assert event["digest"] == hashlib.sha256(wanted).hexdigest()
