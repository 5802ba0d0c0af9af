"""Servers that attack: what the client and its Output channel see, and what it costs us."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.support.processes import PROGRAM, WAIT_SECONDS, Bridge, Json, cause_of, text_of

MIB = 1 << 20
LIMIT = 4 * MIB
SMALL_LIMIT = ("--max-line-bytes", str(LIMIT))
FORGED = "mcp-bridge-vscode: sign in at https://evil.example"
SEQUENCES = (
    "\x1b]0;title\x07 \x1b]52;c;Y2xpcA==\x07 \x1b]8;;https://evil.example\x1b\\link\x1b]8;;\x1b\\"
    " \x9b31m \u202e reversed \u2066 \r over \x85 \u2028 \u2029 \x00"
)
BANNER = f"{SEQUENCES}\n{FORGED}\r\n".encode().decode("latin-1").replace("\x00", "\x01")


def answer_with(bridge: Bridge, member: str) -> Json:
    """The answer of the client when the server answers a call with this member."""
    return bridge.call("write", {"text": f'{{"jsonrpc":"2.0","id":@ID@,{member}}}\n'})


def own_lines(bridge: Bridge) -> list[str]:
    """The log, after its end: each line is ours, whole and clean."""
    lines = bridge.stderr().decode("utf-8").split("\n")
    assert lines.pop() == ""
    for line in lines:
        assert line.startswith("mcp-bridge-vscode: "), line
        assert not line.startswith(FORGED), line
        assert line.isprintable(), line
    return lines


# --- 1: a line without an end -------------------------------------------------------------------


def test_a_line_without_an_end_fails_its_request_at_once_and_is_not_kept() -> None:
    expect_no_cost_of_an_endless_line(400 * MIB)


def expect_no_cost_of_an_endless_line(size: int) -> None:
    with Bridge(options=SMALL_LIMIT) as bridge:
        bridge.initialize()
        bridge.echo()
        before = bridge.status("VmHWM")
        answer = bridge.call("endless", {"bytes": size})  # comes while the line goes on
        assert cause_of(answer) == "invalid_response"
        bridge.server().say("go")
        bridge.echo("the next line works")
        assert bridge.status("VmHWM") - before < 3 * LIMIT
        assert bridge.end() == 0
        warnings = [line for line in own_lines(bridge) if ": warning: " in line]
        assert len(warnings) == 1
        assert "--max-line-bytes" in warnings[0]


# --- 2: depth and digits ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    ["[" * 100_000, "[" * 100_000 + "]" * 100_000, '{"a":' * 100_000],
    ids=["open", "closed", "objects"],
)
def test_a_very_deep_answer_fails_its_request(value: str) -> None:
    with Bridge() as bridge:
        bridge.initialize()
        assert cause_of(answer_with(bridge, f'"result":{{"x":{value}}}')) == "invalid_response"
        assert cause_of(answer_with(bridge, f'"result":{value}')) == "invalid_response"
        bridge.echo()


@pytest.mark.parametrize(("levels", "passes"), [(200, True), (201, False)])
def test_the_depth_of_an_answer_has_a_limit_of_200(levels: int, passes: bool) -> None:
    inner = levels - 2  # the message and its result are two
    member = f'"result":{{"content":[],"structuredContent":{"[" * inner}{"]" * inner}}}'
    with Bridge() as bridge:
        bridge.initialize()
        answer = answer_with(bridge, member)
        assert ("result" in answer) == passes
        assert passes or cause_of(answer) == "invalid_response"


def test_an_integer_of_very_many_digits_passes_as_it_came() -> None:
    digits = "9" * 200_000
    with Bridge() as bridge:
        bridge.initialize()
        answer_with(bridge, f'"result":{{"content":[],"structuredContent":{{"n":{digits}}}}}')
        [frame] = [one for one in bridge.frames.items() if len(one.line) > len(digits)]
        assert f'"n":{digits}}}'.encode() in frame.line
        bridge.echo()


def test_an_id_of_very_many_digits_is_nobody_s() -> None:
    with Bridge() as bridge:
        bridge.initialize()
        digits = "2" * 200_000
        key = bridge.send_call(
            "write", {"text": f'{{"jsonrpc":"2.0","id":{digits},"result":{{"content":[]}}}}\n'}
        )
        bridge.echo()
        bridge.cancel(key)


# --- 3: requests of the server ------------------------------------------------------------------


def test_requests_of_the_server_reach_nobody_and_are_not_answered() -> None:
    methods = ("elicitation/create", "sampling/createMessage", "roots/list", "ping")
    lines = "".join(
        f'{{"jsonrpc":"2.0","id":{number},"method":"{method}","params":{{}}}}\n'
        for number, method in enumerate(methods, start=1)
    )
    with Bridge() as bridge:
        bridge.initialize()
        key = bridge.send_call("write", {"text": lines})
        bridge.echo()
        bridge.cancel(key)
        assert bridge.ask("ping")["result"] == {}
        assert bridge.end() == 0
        assert all(frame.key() for frame in bridge.frames.whole()), "answers and nothing else"
        heard = {event["heard"] for event in bridge.server().events.whole() if "heard" in event}
        assert heard <= {"server/discover", "tools/call", "notifications/cancelled"}
        warnings = [line for line in own_lines(bridge) if ": warning: " in line]
        assert len(warnings) == 1
        assert "elicitation/create" in warnings[0]


# --- 4: text that is made for a terminal --------------------------------------------------------


def test_the_log_shows_a_banner_cleaned_and_never_as_a_line_of_ours() -> None:
    flags = ("--banner", BANNER)
    with Bridge(*flags, options=["--log-level", "debug"]) as bridge:
        bridge.initialize()
        bridge.call("write", {"text": f"{BANNER}{{}}\n@ID@\n" + answer_line("done")})
        assert bridge.end() == 0
        lines = own_lines(bridge)
        assert sum("sign in at" in line for line in lines) == 2, "said, inside a line of ours"


def answer_line(text: str) -> str:
    result = json.dumps({"content": [{"type": "text", "text": text}]})
    return f'{{"jsonrpc":"2.0","id":@ID@,"result":{result}}}\n'


def test_the_client_gets_the_text_of_an_error_as_the_server_wrote_it() -> None:
    message = f"{SEQUENCES}\n{FORGED}\n"
    error = {"code": -32000, "message": message, "data": {"text": message}}
    with Bridge(options=["--log-level", "debug"]) as bridge:
        bridge.initialize()
        answer = answer_with(bridge, f'"error":{json.dumps(error)}')
        assert answer["error"] == error
        assert bridge.end() == 0
        own_lines(bridge)


def test_an_error_at_the_handshake_is_one_clean_line_of_the_log(tmp_path: Path) -> None:
    error = {"code": -32000, "message": f"{SEQUENCES}\n{FORGED}\n"}
    with Bridge("--reply", reply(tmp_path, "server/discover", "error", error)) as bridge:
        assert "error" in bridge.answer(bridge.send_initialize())
        assert bridge.end() == 0
        own_lines(bridge)


def reply(folder: Path, method: str, member: str, value: object) -> str:
    """The value of the flag --reply for an answer that is this big or this odd."""
    path = folder / (method.replace("/", "_") + ".json")
    path.write_bytes(b'"%s":%s' % (member.encode(), json.dumps(value).encode()))
    return f"{method}={path}"


# --- 5: strings that break writers --------------------------------------------------------------


@pytest.mark.parametrize("is_raw", [False, True], ids=["escaped", "as UTF-8"])
def test_every_string_arrives_equal(is_raw: bool) -> None:
    odd = "\x00 \u2028 \u2029 \x7f \x85 \ufeff \ufffe \U0010ffff" + (
        "" if is_raw else " \ud800 \udfff"
    )
    value = {"isError": False, "_meta": {odd: odd}, "structuredContent": {odd: [odd]}}
    content = [{"type": "text", "text": odd}, {"type": "resource_link", "name": odd, "uri": "x:y"}]
    result = json.dumps({"content": content, **value}, ensure_ascii=not is_raw)
    with Bridge() as bridge:
        bridge.initialize()
        raw = result.encode("utf-8").decode("latin-1")
        answer = answer_with(bridge, f'"result":{raw}')
        assert answer["result"] == {"content": content, **value}
        mirrored = answer_with(
            bridge, f'"result":{{"structuredContent":{{"a":{json.dumps(odd)}}}}}'
        )
        assert json.loads(text_of(mirrored)) == {"a": odd}
        bridge.echo()


# --- 6: a flood ---------------------------------------------------------------------------------


def test_a_flood_of_notifications_to_a_slow_client_costs_no_memory_and_no_threads() -> None:
    expect_no_cost_of_a_flood(10_000)


def expect_no_cost_of_a_flood(count: int) -> None:
    """Two calls with `count` notifications of each of three kinds."""
    with Bridge(checks_frames=False) as bridge:
        bridge.initialize()
        bridge.echo()
        bridge.ask("logging/setLevel", {"level": "debug"})
        memory, threads = bridge.status("VmHWM"), bridge.status("Threads")
        bridge.pause()
        keys = [bridge.send_call("flood", {"count": count}) for _ in range(2)]
        bridge.wait_readable()
        ping = bridge.send("ping")
        assert bridge.status("VmHWM") - memory < 8 * MIB
        bridge.read_on()
        assert [text_of(bridge.answer(key)) for key in keys] == ["flooded"] * 2
        assert bridge.answer(ping)["result"] == {}
        bridge.echo()
        assert bridge.status("VmHWM") - memory < 8 * MIB
        assert bridge.status("Threads") <= threads + 4
        logged = [
            frame for frame in bridge.frames.items() if b'"notifications/message"' in frame.line
        ]
        assert len(logged) == 2 * count


# --- 12: an error that makes VS Code open URLs --------------------------------------------------


def test_an_error_with_urls_to_open_reaches_the_client_without_them(tmp_path: Path) -> None:
    urls = ["command:workbench.action.terminal.new", "file:///etc/passwd", "https://evil.example"]
    elicitations = [
        {"mode": "url", "url": url, "elicitationId": "1", "message": ""} for url in urls
    ]
    error = {"code": -32042, "message": "sign in", "data": {"elicitations": elicitations}}
    flags = ("--reply", reply(tmp_path, "resources/read", "error", error))
    with Bridge(*flags) as bridge:
        bridge.initialize()
        read = bridge.ask("resources/read", {"uri": "x:y"})
        call = answer_with(bridge, f'"error":{json.dumps(error)}')
        for answer in (read, call):
            assert answer == {**answer, "error": {"code": -32603, "message": "sign in"}}
    with Bridge("--reply", reply(tmp_path, "server/discover", "error", error)) as bridge:
        answer = bridge.answer(bridge.send_initialize())
        assert answer["error"]["code"] == -32603
        assert set(answer["error"]["data"]) <= {"cause", "detail"}
        assert not [url for url in urls if url in json.dumps(answer)]


# --- 13: names of five megabytes ----------------------------------------------------------------

LARGE = ("\x1b[31m \u202e name \n " * 400_000)[: 5 * MIB]


def large_server(folder: Path) -> list[str]:
    info = {"name": LARGE, "title": LARGE, "version": "1"}
    discover = {
        "resultType": "complete",
        "supportedVersions": ["2026-07-28"],
        "capabilities": {"tools": {}},
        "instructions": LARGE,
        "ttlMs": 0,
        "cacheScope": "private",
        "_meta": {"io.modelcontextprotocol/serverInfo": info},
    }
    tool = {"name": LARGE, "title": LARGE, "inputSchema": {"type": "array", "properties": None}}
    tools = {"resultType": "complete", "tools": [tool], "ttlMs": 0, "cacheScope": "private"}
    return [
        *("--reply", reply(folder, "server/discover", "result", discover)),
        *("--reply", reply(folder, "tools/list", "result", tools)),
    ]


def test_names_of_five_megabytes_reach_the_client_and_are_cut_in_the_log(tmp_path: Path) -> None:
    with Bridge(*large_server(tmp_path), options=["--log-level", "debug"]) as bridge:
        result = bridge.initialize()
        assert result["serverInfo"] == {"name": LARGE, "title": LARGE, "version": "1"}
        assert result["instructions"] == LARGE
        [tool] = bridge.ask("tools/list")["result"]["tools"]
        assert tool["name"] == tool["title"] == LARGE
        bridge.echo()
        assert bridge.end() == 0
        assert max(map(len, own_lines(bridge))) < 1000


@pytest.mark.parametrize("form", [(), ("--json",)], ids=["text", "json"])
def test_check_shows_names_of_five_megabytes_cut_and_clean(
    tmp_path: Path, form: tuple[str, ...]
) -> None:
    with Bridge() as bridge:  # it only lends its control
        command = bridge.server_command(*large_server(tmp_path))
        done = subprocess.run(  # noqa: S603 - the product
            [*PROGRAM, "check", *form, "--", *command],
            capture_output=True,
            check=False,
            timeout=WAIT_SECONDS,
        )
    assert len(done.stdout) < 20_000
    report = done.stdout.decode("utf-8")
    assert all(line.isprintable() for line in report.splitlines())
    assert "name" in report
