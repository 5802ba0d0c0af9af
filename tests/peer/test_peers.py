"""Real legacy clients, through the bridge, to real modern servers: two of each, every pair."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.run import ROOT
from tests.support.frames import FrameChecker
from tests.support.parts import need_npm_folder, need_peer_python, need_program
from tests.support.recorder import read_record

pytestmark = pytest.mark.peer

HERE = ROOT / "tests" / "peer"
BRIDGE = ROOT / "mcp_bridge_vscode.py"
RECORDER = ROOT / "tests" / "support" / "recorder.py"
VISIT_SECONDS = 120.0

CLIENTS = ("python", "npm")
SERVERS = ("python", "npm")


class Visit(NamedTuple):
    """One run of a client: its report, and every line on both sides of the bridge."""

    report: dict[str, Any]
    frames: list[tuple[str, bytes]]
    client: str
    server: str
    stderr: str

    def messages(self, side: str, method: str | None = None) -> list[dict[str, Any]]:
        heard = [json.loads(frame) for one, frame in self.frames if one == side]
        return [message for message in heard if method is None or message.get("method") == method]


def client_command(name: str) -> list[str]:
    if name == "python":
        return [str(need_peer_python("mcp1")), str(HERE / "python_client.py")]
    return [need_program("node"), str(HERE / "npm_client.mjs"), str(need_npm_folder())]


def server_command(name: str) -> list[str]:
    if name == "python":
        return [str(need_peer_python("mcp2")), str(HERE / "python_server.py")]
    return [need_program("node"), str(HERE / "npm_server.mjs"), str(need_npm_folder())]


def recorded(command: Sequence[str], record: Path, *sides: str) -> list[str]:
    return [sys.executable, str(RECORDER), str(record), *sides, "--", *command]


def run_visit(client: str, server: str, folder: Path) -> Visit:
    near, far = folder / "near.jsonl", folder / "far.jsonl"
    upstream = recorded(server_command(server), far, "to_server", "from_server")
    bridge = [sys.executable, str(BRIDGE), "--", *upstream]
    legacy = recorded(bridge, near, "from_client", "to_client")
    done = subprocess.run(  # noqa: S603 - the programs of the test
        [*client_command(client), "--", *legacy],
        capture_output=True,
        check=False,
        stdin=subprocess.DEVNULL,
        timeout=VISIT_SECONDS,
    )
    stderr = done.stderr.decode(errors="replace")
    assert done.returncode == 0, stderr
    frames = read_record(near) + (read_record(far) if far.exists() else [])
    return Visit(json.loads(done.stdout), frames, client, server, stderr)


@pytest.fixture(scope="module", params=[(c, s) for c in CLIENTS for s in SERVERS], ids="-".join)
def visit(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Visit:
    client, server = request.param
    if not BRIDGE.exists():
        pytest.fail(f"{BRIDGE.name} is not there", pytrace=False)
    return run_visit(client, server, tmp_path_factory.mktemp("visit"))


def section(visit: Visit, name: str) -> dict[str, Any]:
    """The report, if this section of the client came to its end."""
    failures = visit.report["failures"]
    assert not {name, "connection", "stdout"} & set(failures), f"{failures}\n{visit.stderr}"
    return visit.report


def text_of(result: dict[str, Any]) -> str:
    (block,) = result["content"]
    return str(block["text"])


def test_the_server_introduces_itself(visit: Visit) -> None:
    told = section(visit, "initialize")["initialize"]
    assert told["serverInfo"] == {
        "name": f"{visit.server}-peer",
        "title": f"{'Python' if visit.server == 'python' else 'npm'} peer",
        "version": "1.2.3",
    }
    assert told["instructions"] == "Call add first."
    assert told["capabilities"] == {
        "completions": {},
        "logging": {},
        "prompts": {"listChanged": True},
        "resources": {"listChanged": True, "subscribe": True},
        "tools": {"listChanged": True},
    }
    (answer,) = [m for m in visit.messages("to_client") if "protocolVersion" in m.get("result", {})]
    assert answer["result"]["protocolVersion"] == "2025-11-25"


def test_the_server_was_driven_by_the_modern_revision(visit: Visit) -> None:
    first = visit.messages("to_server")[0]
    assert first["method"] == "server/discover"
    named = first["params"]["_meta"]["io.modelcontextprotocol/clientInfo"]
    assert named == {"name": f"{visit.client}-client", "version": "0.1"}


def test_pages_of_tools_come_one_by_one(visit: Visit) -> None:
    report = section(visit, "lists_tools")
    assert report["tool_pages"] == [
        ["add", "echo", "slow", "cancel_count"],
        ["weather", "order", "fail", "log"],
        ["touch", "ask_name", "ask_url", "think"],
        ["list_roots"],
    ]
    assert report["tools"]["weather"]["outputSchema"]["type"] == "object"


def test_every_array_schema_has_items_that_copilot_takes(visit: Visit) -> None:
    properties = section(visit, "lists_tools")["tools"]["order"]["inputSchema"]["properties"]
    arrays = [one for one in properties.values() if one.get("type") == "array"]
    assert len(arrays) >= 2
    assert all(isinstance(one["items"], dict) for one in arrays)


def test_tools_answer(visit: Visit) -> None:
    calls = section(visit, "calls_tools")["calls"]
    assert text_of(calls["add"]) == "5"
    assert text_of(calls["echo"]) == "\u2028 \U0001f600 \x7f é"
    assert text_of(calls["order"]) == "3 items, 1 tags, 1 prices, 2x3"
    assert calls["weather"]["structuredContent"] == {
        "city": "Rome",
        "degrees": 21.5,
        "wind": [3, 4],
    }
    assert json.loads(text_of(calls["weather"])) == calls["weather"]["structuredContent"]


def test_a_tool_error_is_a_result(visit: Visit) -> None:
    failed = section(visit, "calls_tools")["calls"]["fail"]
    assert failed["isError"] is True
    assert "no reason" in text_of(failed)


def test_progress_comes_in_order_before_the_answer(visit: Visit) -> None:
    report = section(visit, "calls_tools")
    assert report["progress"] == [[step, 3, f"step {step} of 3"] for step in (1, 2, 3)]
    assert text_of(report["calls"]["slow"]) == "3 steps"


def test_answers_find_their_callers(visit: Visit) -> None:
    answers = section(visit, "calls_in_parallel")["parallel"]
    assert answers == {str(index): str(index) for index in range(20)}


def test_resources_are_listed_and_read(visit: Visit) -> None:
    report = section(visit, "reads_resources")
    assert report["resources"] == ["note://fixed", "note://bytes"]
    assert report["templates"] == ["note://named/{name}"]
    reads = report["reads"]
    assert reads["note://fixed"][0]["text"] == "a fixed note"
    assert reads["note://bytes"][0]["blob"] == "AAECAwQFBgc="
    assert reads["note://named/cats"][0]["text"] == "a note about cats"


def test_an_error_of_the_server_keeps_code_message_and_data(visit: Visit) -> None:
    error = section(visit, "reads_resources")["reads"]["note://none"]["error"]
    assert error["code"] == -32602
    assert "note://none" in error["message"]
    assert error["data"] == {"uri": "note://none"}


def test_prompts_are_listed_and_got(visit: Visit) -> None:
    report = section(visit, "gets_prompts")
    (prompt,) = report["prompts"]
    assert prompt["title"] == "Review code"
    assert [one["name"] for one in prompt["arguments"]] == ["code", "language"]
    text = "Review this beta code: x = 1"
    assert report["prompt"] == [{"role": "user", "content": {"type": "text", "text": text}}]


def test_arguments_are_completed(visit: Visit) -> None:
    completions = section(visit, "completes")["completions"]
    assert completions["prompt"] == {"values": ["alpha"], "total": 1, "hasMore": False}
    assert completions["template"]["values"] == ["alpha", "beta", "gamma"]


def test_a_cancelled_call_stops_the_server_and_gets_no_answer(visit: Visit) -> None:
    assert section(visit, "cancels")["cancelled_calls"] == "1"
    (cancelled,) = visit.messages("from_client", "notifications/cancelled")
    answered = [message.get("id") for message in visit.messages("to_client")]
    assert cancelled["params"]["requestId"] not in answered
    (upstream,) = [
        message
        for message in visit.messages("to_server", "tools/call")
        if message["params"]["arguments"].get("steps") == 200
    ]
    told = [
        message["params"]["requestId"]
        for message in visit.messages("to_server", "notifications/cancelled")
    ]
    assert upstream["id"] in told


def test_log_messages_come_from_the_level_on(visit: Visit) -> None:
    logs = section(visit, "hears_logs")["logs"]
    assert logs == [
        {"level": level, "logger": "peer", "data": f"{level}: hello"}
        for level in ("warning", "error")
    ]


def test_a_change_of_a_subscribed_resource_is_heard(visit: Visit) -> None:
    changes = section(visit, "hears_changes")["changes"]
    updated = [one for one in changes if one["method"] == "notifications/resources/updated"]
    assert {"method": "notifications/resources/updated", "params": {"uri": "note://fixed"}} in [
        {"method": one["method"], "params": one["params"]} for one in updated
    ]
    assert any(one["method"] == "notifications/tools/list_changed" for one in changes)


@pytest.mark.parametrize("action", ["accept", "decline", "cancel"])
def test_each_answer_to_a_question_reaches_the_server(visit: Visit, action: str) -> None:
    answers = section(visit, "answers_questions")["answers"][action]
    state = "waiting for page" if visit.server == "python" else "waiting for ask_url"
    assert text_of(answers["ask_name"]) == ("Ada, 36, green" if action == "accept" else action)
    assert text_of(answers["ask_url"]) == f"{state}: {action}"
    if action == "decline":  # the client's error is that of its own request
        for tool in ("think", "list_roots"):
            error = answers[tool]["error"]
            assert error["code"] == -32000
            assert error["message"].endswith("refused")  # the npm client puts words before
        return
    thought = "why? because (a-model)" if action == "accept" else "why?  ()"
    assert text_of(answers["think"]) == thought
    assert text_of(answers["list_roots"]) == ("file:///a" if action == "accept" else "")


def test_a_url_that_was_accepted_is_complete_before_the_answer(visit: Visit) -> None:
    section(visit, "answers_questions")
    questions = visit.messages("to_client", "elicitation/create")
    urls = [one["params"] for one in questions if one["params"].get("mode") == "url"]
    complete = visit.messages("to_client", "notifications/elicitation/complete")
    ids = [one["elicitationId"] for one in urls]
    assert len(set(ids)) == 3
    assert [one["params"]["elicitationId"] for one in complete] == ids[:1]


def test_questions_reach_the_client_as_the_server_asked(visit: Visit) -> None:
    report = section(visit, "answers_questions")
    asked = report["questions"][:4]
    assert len(report["questions"]) == 12
    assert [one["method"] for one in asked] == [
        "elicitation/create",
        "elicitation/create",
        "sampling/createMessage",
        "roots/list",
    ]
    assert asked[1]["params"]["url"] == "https://example.com/step?n=1"
    assert asked[1]["params"]["elicitationId"]


def test_a_ping_is_answered(visit: Visit) -> None:
    assert section(visit, "pings")["ping"] == {}


def test_every_frame_fits_the_official_types(visit: Visit) -> None:
    need_peer_python("mcp2")
    checker = FrameChecker()
    for side, frame in visit.frames:
        checker.check(side, frame)
    problems = checker.problems()
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize("server", SERVERS)
def test_the_servers_of_these_tests_refuse_the_handshake(server: str) -> None:
    params = {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "c", "version": "1"},
    }
    line = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params})
    done = subprocess.run(  # noqa: S603 - the programs of the test
        server_command(server),
        capture_output=True,
        check=False,
        input=line.encode() + b"\n",
        timeout=VISIT_SECONDS,
    )
    answer = json.loads(done.stdout)
    assert answer["error"]["code"] == -32022
    assert answer["error"]["data"]["supported"] == ["2026-07-28"]


def test_the_recorder_passes_every_byte_and_keeps_every_line(tmp_path: Path) -> None:
    cat = [need_program("cat")]
    lines = [b'{"a": 1}', b"", b"\xff\xfe", b"no line end"]
    done = subprocess.run(  # noqa: S603 - the programs of the test
        recorded(cat, tmp_path / "record", "from_client", "to_client"),
        capture_output=True,
        check=True,
        input=b"\n".join(lines),
        timeout=VISIT_SECONDS,
    )
    assert done.stdout == b"\n".join(lines)
    record = read_record(tmp_path / "record")
    for side in ("from_client", "to_client"):
        assert [frame for one, frame in record if one == side] == lines


def test_the_recorder_ends_with_the_exit_code_of_its_command(tmp_path: Path) -> None:
    command = recorded([shutil.which("false") or "false"], tmp_path / "record", "a", "b")
    with subprocess.Popen(  # noqa: S603 - the programs of the test
        command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
    ) as process:
        assert process.wait(VISIT_SECONDS) == 1
