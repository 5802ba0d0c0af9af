"""`check`: what it sends, what it reports, and what it says of each way to fail."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import mcp_bridge_vscode as bridge
from tests.support.frames import FrameChecker
from tests.support.parts import need_peer_python

WAIT = 60.0  # bounds every wait of this file
FILE = Path(bridge.__file__).resolve()

# A bridge that behaves as its last argument says, and keeps what it hears in $FAKE_HEARD.
FAKE = r"""
import json, os, sys, threading

how = sys.argv[-1]
heard = open(os.environ["FAKE_HEARD"], "a")


def say(**members):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **members}) + "\n")
    sys.stdout.flush()


def log(text):
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


NAME = "\x1b[31mred\nFORGED line\u202e" + "x" * 5_000_000 if how == "dirty" else "fake"
INITIALIZED = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"tools": {}, "prompts": {}, "resources": {}, "logging": {}},
    "serverInfo": {"name": NAME, "title": "A fake", "version": "1"},
    "instructions": NAME,
}
CHANGES = (
    "'a': added an items schema at '/properties/x y' of the input schema",
    "'a': the input schema at '/deep' is too deep to examine",
    "'b': removed the unknown $schema mark at '' of the input schema",
    "'gone': 7 more changes of the input schema",
)
pages = 0


def answer(method, params):
    global pages
    if method == "initialize":
        return {"result": INITIALIZED}
    if method == "tools/list":
        for change in CHANGES:
            log("mcp-bridge-vscode: bridge: info: tool " + change)
        pages += 1
        name = NAME if how == "dirty" else "ab"[pages - 1 :][:1]
        page = {"tools": [{"name": name, "title": "T"}]}
        if how == "endless" or (how == "good" and pages < 2):
            page["nextCursor"] = None if how == "endless" else "2"
        return {"result": page}
    if method == "prompts/list" and how == "no prompts":
        return {"error": {"code": -32601, "message": "no such method", "data": {"cause": "x"}}}
    if method == "resources/list" and how == "no list":
        return {"result": {"resources": "none"}}
    for kind in ("prompts", "resourceTemplates", "resources"):
        if method in (f"{kind}/list", "resources/templates/list"):
            return {"result": {"prompts": [], "resources": [], "resourceTemplates": []}}
    return {"result": {}}


log("mcp-bridge-vscode: vscode: info: hello")
if how == "usage":
    log("mcp-bridge-vscode: vscode: error: the option --nonsense is not known")
    log("usage: ...")
    sys.exit(2)
if how == "good":
    log("mcp-bridge-vscode: bridge: warning: something is odd: really")
    log("a line of the server")
if how == "noisy":
    for number in range(1000):
        log(f"mcp-bridge-vscode: mcp_router: warning: number {number}")
    log("s" * 100_000)
for line in sys.stdin:
    heard.write(line)
    heard.flush()
    message = json.loads(line)
    if "method" not in message or "id" not in message:
        continue
    if how == "silent":
        continue
    if how == "exits":
        log("Traceback of the server")
        sys.exit(7)
    if how == "no json":
        print("hello", flush=True)
    if how in ("spawn_failed", "discover_failed"):
        data = {"cause": how, "detail": "PATH searched: /nowhere"}
        error = {"code": -32603, "message": "cannot", "data": data}
        say(id=message["id"], error=error)
        continue
    if how == "asks" and message["method"] == "ping":
        for number, question in enumerate(json.loads(os.environ["FAKE_ASKS"])):
            say(id=f"b-{number}", **question)
        say(method="notifications/message", params={"level": "info", "data": 1})
    say(id=message["id"], **answer(message["method"], message.get("params")))
if how == "stubborn":
    threading.Event().wait()
sys.exit(3 if how == "bad end" else 0)
"""


class Fake:
    """Runs check in front of the fake bridge."""

    def __init__(self, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
        self.heard_file = folder / "heard"
        self.capfd = capfd

    def check(self, how: str, *options: str) -> tuple[int, str, str]:
        code = bridge.run_check([*options, "--", how])
        shown = self.capfd.readouterr()
        return code, shown.out, shown.err

    def report(self, how: str, *options: str) -> Any:
        code, out, err = self.check(how, "--json", *options)
        assert err == ""
        assert out.isascii()
        assert out.count("\n") == 1
        report = json.loads(out)
        assert code == (0 if report["ok"] else 1)
        return report

    def heard(self) -> list[Any]:
        return [json.loads(line) for line in self.heard_file.read_text().splitlines()]


@pytest.fixture
def fake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Fake:
    script = tmp_path / "fake.py"
    script.write_text(FAKE)
    monkeypatch.setattr(bridge, "self_argv", lambda: [sys.executable, str(script)])
    monkeypatch.setenv("FAKE_HEARD", str(tmp_path / "heard"))
    return Fake(tmp_path, capfd)


def failure_of(report: Any) -> Any:
    [failure] = report["failures"]
    return failure


def steps_of(report: Any) -> list[str]:
    return [step["step"] for step in report["steps"]]


def test_it_says_what_vs_code_says_in_its_order(fake: Fake) -> None:
    assert fake.report("good")["ok"]
    heard = fake.heard()
    assert [message["method"] for message in heard] == [
        "initialize",
        "logging/setLevel",
        "notifications/initialized",
        "prompts/list",
        "tools/list",
        "tools/list",
        "resources/templates/list",
        "resources/list",
        "ping",
    ]
    assert [message["id"] for message in heard if "id" in message] == list(range(1, 9))
    params = heard[0]["params"]
    assert params["protocolVersion"] == "2025-11-25"
    assert set(params["capabilities"]) == {
        "roots",
        "sampling",
        "elicitation",
        "tasks",
        "extensions",
    }
    assert set(params["clientInfo"]) == {"name", "version"}
    assert heard[1]["params"] == {"level": "info"}
    assert heard[2] == {"jsonrpc": "2.0", "method": "notifications/initialized"}
    assert [message["params"] for message in heard[3:6]] == [{}, {}, {"cursor": "2"}]


def test_the_report_holds_what_was_seen(fake: Fake) -> None:
    report = fake.report("good")
    assert report["server"] == {"name": "fake", "title": "A fake", "version": "1"}
    assert report["capabilities"] == ["tools", "prompts", "resources", "logging"]
    assert report["tools"] == [{"name": "a", "title": "T"}, {"name": "b", "title": "T"}]
    assert report["changes"][:4] == [
        {"tool": "a", "change": "added an items schema", "pointer": "/properties/x y"},
        {
            "tool": "a",
            "change": "the input schema at '/deep' is too deep to examine",
            "pointer": "",
        },
        {"tool": "b", "change": "removed the unknown $schema mark", "pointer": ""},
        {"tool": "gone", "change": "7 more changes of the input schema", "pointer": ""},
    ]
    assert report["warnings"] == [
        {"level": "warning", "scope": "bridge", "text": "something is odd: really"}
    ]
    assert (report["serverLines"], report["serverTail"]) == (1, ["a line of the server"])
    assert report["exitCode"] == 0
    assert all(step["ms"] >= 0 for step in report["steps"])
    assert steps_of(report)[-2:] == ["ping", "stop"]


def test_the_report_in_words_has_the_same(fake: Fake) -> None:
    code, out, _ = fake.check("good")
    assert code == 0
    lines = out.splitlines()
    assert lines[lines.index("tools: 2") + 1 :][:2] == [f"  {'a':<20}  T", f"  {'b':<20}  T"]
    at = lines.index("changes: 4")
    assert lines[at + 1] == f"  {'a':<20}  added an items schema  /properties/x y"
    assert lines[at + 4] == f"  {'gone':<20}  7 more changes of the input schema"
    at = lines.index("warnings: 1")
    assert lines[at + 1].endswith("  something is odd: really")
    assert any(line.startswith("  initialize") and line.endswith(" ms") for line in lines)
    assert lines[-1].startswith("OK: ")


def test_options_go_to_the_bridge_as_given(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[str]] = []
    start = bridge.start_process

    def start_and_note(argv: list[str], *, stderr_pipe: bool) -> Any:
        seen.append(argv)
        return start(argv, stderr_pipe=stderr_pipe)

    monkeypatch.setattr(bridge, "start_process", start_and_note)
    fake.report("good", "--name", "x=y", "--timeout=7", "--max-line-bytes=9", "--log-level", "info")
    assert seen[0][2:] == [
        "--discover-timeout=7",
        *("--name", "x=y", "--max-line-bytes=9", "--log-level", "info"),
        *("--", "good"),
    ]
    fake.report("good", "--discover-timeout", "8")
    assert seen[1][2:] == ["--discover-timeout=8", "--", "good"]


@pytest.mark.parametrize("cause", ["spawn_failed", "discover_failed"])
def test_an_error_of_initialize_is_told_with_its_fix(fake: Fake, cause: str) -> None:
    report = fake.report(cause)
    failure = failure_of(report)
    assert (failure["step"], failure["cause"]) == ("initialize", cause)
    assert failure["detail"] == "PATH searched: /nowhere"
    assert failure["fix"] != bridge.CHECK_OTHER_FIX
    assert steps_of(report) == ["initialize", "stop"]
    _, out, _ = fake.check(cause)
    for key in ("step", "cause", "fix"):
        assert f"  {key:<9}{failure[key]}\n" in out
    assert out.endswith("NOT OK: failed at initialize.\n")


def test_a_silent_bridge_ends_the_wait(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bridge, "CHECK_MARGIN_SECONDS", 0)
    failure = failure_of(fake.report("silent", "--timeout", "1"))
    assert (failure["step"], failure["cause"]) == ("initialize", "no_answer")
    assert "--timeout" in failure["fix"]


def test_a_bridge_that_ends_is_told_with_its_exit_code_and_the_last_lines(fake: Fake) -> None:
    report = fake.report("exits")
    failure = failure_of(report)
    assert (failure["step"], failure["cause"]) == ("initialize", "bridge_exited")
    assert failure["message"].endswith(" 7")
    assert report["serverTail"] == ["Traceback of the server"]


def test_arguments_that_the_bridge_refuses_are_exit_code_2(fake: Fake) -> None:
    code, out, err = fake.check("usage", "--nonsense=value")
    assert (code, out) == (2, "")
    assert err == "mcp-bridge-vscode: vscode: error: the option --nonsense is not known\n"


def test_a_line_that_is_no_json_is_a_failure(fake: Fake) -> None:
    failure = failure_of(fake.report("no json"))
    assert (failure["cause"], failure["detail"]) == ("bad_line", "hello")


def test_a_list_without_an_end_is_a_failure(fake: Fake) -> None:
    failure = failure_of(fake.report("endless"))
    assert (failure["step"], failure["cause"]) == ("tools/list", "endless_list")
    asked = [message for message in fake.heard() if message["method"] == "tools/list"]
    assert len(asked) == bridge.CHECK_MOST_PAGES + 1
    assert fake.heard()[-1]["method"] == "ping"  # the steps after it were taken


def test_an_error_of_one_list_does_not_hide_the_others(fake: Fake) -> None:
    report = fake.report("no prompts")
    failure = failure_of(report)
    assert (failure["step"], failure["code"]) == ("prompts/list", -32601)
    assert len(report["tools"]) == 1
    assert "ping" in steps_of(report)


def test_an_answer_without_its_list_is_a_failure(fake: Fake) -> None:
    failure = failure_of(fake.report("no list"))
    assert (failure["step"], failure["cause"]) == ("resources/list", "bad_answer")


FORM = {
    "message": "Who?",
    "requestedSchema": {
        "type": "object",
        "required": ["name"],
        "properties": {
            "name": {"type": "string", "title": "Name\x1b"},
            "mail": {"type": "string", "format": "email"},
            "day": {"type": "string", "format": "date"},
            "other": {"type": "string", "format": "other"},
            "given": {"type": "string", "default": "as given"},
            "sure": {"type": "boolean"},
            "one": {"type": "integer"},
            "most": {"type": "number", "maximum": -2.5},
            "least": {"type": "number", "minimum": 7},
            "enum": {"type": "string", "enum": ["x", "y"]},
            "named": {"type": "string", "enum": ["x", "y"], "enumNames": ["X", "Y"]},
            "titled": {"type": "string", "oneOf": [{"const": "x", "title": "The x"}]},
            "several": {"type": "array", "items": {"type": "string", "enum": ["x", "y"]}},
            "two": {
                "type": "array",
                "minItems": 2,
                "items": {"anyOf": [{"const": c, "title": c * 2} for c in "xyz"]},
            },
        },
    },
}
CONTENT = {
    "name": "example",
    "mail": "ada@example.com",
    "day": "2026-07-28",
    "other": "example",
    "given": "as given",
    "sure": True,
    "one": 1,
    "most": -2.5,
    "least": 7,
    "enum": "x",
    "named": "x",
    "titled": "x",
    "several": ["x"],
    "two": ["x", "y"],
}
SAMPLING = {"messages": [{"role": "user", "content": {"type": "text", "text": "Think."}}]}
QUESTIONS: list[dict[str, Any]] = [
    {"method": "ping"},
    {"method": "elicitation/create", "params": FORM},
    {
        "method": "elicitation/create",
        "params": {"mode": "url", "message": "Look", "url": "https://example.com/\u202ex"},
    },
    {"method": "sampling/createMessage", "params": SAMPLING},
    {"method": "roots/list"},
    {"method": "tasks/list"},
]


def answers_to(fake: Fake, *options: str) -> tuple[Any, list[Any]]:
    """The report of a run with all the questions, and what was answered to each."""
    report = fake.report("asks", *options)
    said = {m["id"]: m.get("result", m.get("error")) for m in fake.heard() if "method" not in m}
    return report, [said[f"b-{number}"] for number in range(len(QUESTIONS))]


@pytest.fixture
def asking(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> Fake:
    monkeypatch.setenv("FAKE_ASKS", json.dumps(QUESTIONS))
    return fake


def test_questions_are_accepted_with_what_fits_the_form(asking: Fake) -> None:
    report, answers = answers_to(asking)
    assert report["ok"]
    assert answers[:3] == [{}, {"action": "accept", "content": CONTENT}, {"action": "accept"}]
    assert set(answers[3]) == {"model", "role", "content"}  # as VS Code answers
    assert answers[4]["roots"][0]["uri"].startswith("file://")
    assert answers[5]["code"] == -32601
    form = bridge.Form(FORM["requestedSchema"])  # type: ignore[arg-type]  # is JSON
    assert form.read(CONTENT) == CONTENT  # type: ignore[arg-type]  # is JSON


VALIDATE = """
import json, sys
from mcp_types import methods
from pydantic import TypeAdapter

for line in sys.stdin:
    method, result = json.loads(line)
    model = methods.CLIENT_RESULTS[method, "2025-11-25"]
    TypeAdapter(model).validate_python(result, strict=True, by_name=False)
"""


@pytest.mark.parametrize("action", ["accept", "decline", "cancel"])
def test_answers_are_valid_by_the_official_types(asking: Fake, action: str) -> None:
    python = need_peer_python("mcp2")
    _, answers = answers_to(asking, "--answer", action)
    pairs = [(q["method"], answer) for q, answer in zip(QUESTIONS, answers)]
    lines = [json.dumps(pair) for pair in pairs if "code" not in pair[1]]
    assert len(lines) >= 4
    subprocess.run(  # noqa: S603 - the Python of the tests
        [python, "-c", VALIDATE], input="\n".join(lines), text=True, check=True, timeout=WAIT
    )


@pytest.mark.parametrize("action", ["decline", "cancel"])
def test_questions_are_refused_when_asked_to(asking: Fake, action: str) -> None:
    report, answers = answers_to(asking, "--answer", action)
    assert report["ok"]
    assert answers[1:3] == [{"action": action}, {"action": action}]
    assert answers[3]["code"] == -32000
    assert answers[4]["roots"]


def test_questions_are_shown_as_vs_code_shows_them(asking: Fake) -> None:
    report, _ = answers_to(asking)
    form, url, sampling, roots, unknown = report["questions"]
    assert {question["step"] for question in report["questions"]} == {"ping"}
    assert (form["kind"], form["message"]) == ("form", "Who?")
    fields = {field["title"]: field for field in form["fields"]}
    assert fields["Name "] == {"title": "Name ", "type": "string", "choices": [], "required": True}
    assert fields["mail"]["required"] is False
    assert fields["named"]["choices"] == ["X", "Y"]
    assert fields["titled"]["choices"] == ["The x"]
    assert (fields["two"]["type"], fields["two"]["choices"]) == ("array", ["xx", "yy", "zz"])
    assert (url["kind"], url["url"]) == ("url", "https://example.com/ x")
    assert url["answer"] == '{"action":"accept"}'
    assert (sampling["kind"], sampling["message"]) == ("sampling", "Think.")
    assert [question["kind"] for question in (roots, unknown)] == ["roots", "tasks"]
    lines = [line.split() for line in asking.check("asks")[1].splitlines()]
    at = lines.index(["questions:", "5"])
    assert lines[at + 1][:3] == ["ping", "form", "Who?"]
    assert lines[at + 2] == ["Name", "string", "required"]
    at = lines.index(["two", "array"])
    assert lines[at + 1 : at + 4] == [["xx"], ["yy"], ["zz"]]
    assert lines[at + 4][:5] == ["ping", "url", "Look", "https://example.com/", "x"]
    assert lines[at + 6][:2] == ["ping", "roots"]
    assert lines[at + 6][-1].startswith('{"roots":')


def test_notifications_are_counted_and_questions_are_none(asking: Fake) -> None:
    assert asking.report("asks")["notifications"] == {"notifications/message": 1}
    assert "notifications     notifications/message 1" in asking.check("asks")[1].splitlines()


def test_a_bridge_that_does_not_stop_is_killed(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bridge, "CHECK_STOP_SECONDS", 0.3)
    report = fake.report("stubborn")
    failure = failure_of(report)
    assert (failure["step"], failure["cause"]) == ("stop", "stop_failed")
    assert report["exitCode"] is None


def test_who_interrupts_gets_what_was_seen(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(bridge.CheckRun, "_read", interrupt)
    report = fake.report("good")
    assert failure_of(report)["cause"] == "interrupted"
    assert report["server"]["name"] == "fake"
    assert report["exitCode"] == 0


def test_a_bad_exit_code_is_a_failure(fake: Fake) -> None:
    report = fake.report("bad end")
    assert failure_of(report)["step"] == "stop"
    assert report["exitCode"] == 3


def test_what_a_peer_says_is_cut_and_clean(fake: Fake) -> None:
    code, out, _ = fake.check("dirty")
    assert code == 0
    assert len(out) < 10_000
    assert not any(mark in out for mark in "\x1b\u202e")
    assert not any(line.startswith("FORGED") for line in out.splitlines())
    assert "red" in out
    assert "FORGED" in json.dumps(fake.report("dirty")["server"])


def test_a_flood_of_log_lines_is_not_kept(fake: Fake) -> None:
    report = fake.report("noisy")
    assert len(report["warnings"]) == bridge.CHECK_MOST_LINES
    assert len(report["serverTail"][0]) <= bridge.CHECK_TEXT_CHARS


def test_hidden_changes_are_not_called_none() -> None:
    log = bridge.CheckLog()
    log.add(b"mcp-bridge-vscode: bridge: error: bad")
    log.add(b"mcp-bridge-vscode: sign in at https://example.com")
    log.add(b"\xff")
    assert not log.has_infos
    assert len(log.warnings) == 1
    assert log.server_lines == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ["--timeout"],
        ["--timeout="],
        ["--timeout", "0"],
        ["--timeout", "86401"],
        ["--timeout", "1.5"],
        ["--timeout=SECRET"],
        ["--timeout", "--", "SECRET"],
        ["--answer"],
        ["--answer="],
        ["--answer", "SECRET"],
        ["--answer=1"],
        ["--discover-timeout", "SECRET"],
        ["--json", "--"],
    ],
)
def test_bad_arguments_are_refused_without_their_values(
    arguments: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    assert bridge.run_check(arguments) == 2
    shown = capfd.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("mcp-bridge-vscode: vscode: error: check: ")
    assert shown.err.count("\n") == 1
    assert "SECRET" not in shown.err


def test_options_are_taken_in_both_forms_and_the_last_value_wins() -> None:
    options = bridge.CheckOptions(
        ["--timeout=1", "--timeout", "2", "--json", "--name=--json", "--", "c", "--json", "--"]
    )
    assert (options.limit, options.discover_limit, options.is_json) == (2, 2, True)
    assert options.action == "accept"
    assert bridge.CheckOptions(["--answer=decline", "--answer", "cancel"]).action == "cancel"
    assert options.for_bridge == ["--name=--json"]
    assert options.command == ["c", "--json", "--"]


@pytest.mark.parametrize("value", ["--json", "--timeout", "--answer=cancel", "--name"])
def test_a_value_may_look_like_an_option_of_check(value: str) -> None:
    options = bridge.CheckOptions(["--name", value, "--", "c"])
    assert (options.is_json, options.limit, options.action) == (False, 30, "accept")
    assert options.for_bridge == ["--name", value]


def test_it_finds_itself_as_a_file_and_in_an_archive(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert bridge.self_argv()[-1] == os.path.abspath(bridge.__file__)
    archive = tmp_path / "app.pyz"
    archive.write_bytes(b"")
    monkeypatch.setattr(bridge, "__file__", str(archive / "mcp_bridge_vscode.py"))
    assert bridge.self_argv()[-1] == str(archive)


def test_a_reader_of_the_report_that_leaves_is_no_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_descriptor: int, _pieces: object) -> None:
        raise BrokenPipeError

    report = {"ok": True, "exitCode": 0}
    monkeypatch.setattr(bridge.CheckRun, "__init__", lambda _self, _options: None)
    monkeypatch.setattr(bridge.CheckRun, "collect", lambda _self: report)
    monkeypatch.setattr(bridge, "write_all", refuse)
    assert bridge.run_check([]) == 1


def test_a_bridge_that_cannot_be_started_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bridge, "self_argv", lambda: ["no-such-python"])
    assert bridge.run_check([]) == 1
    shown = capfd.readouterr()
    assert (shown.out, shown.err.count("\n")) == ("", 1)
    assert "no-such-python" in shown.err


# From here on the real bridge.


def run_real(*arguments: str, cwd: Path | None = None) -> Any:
    """The report of `check --json` of the real file, with its exit code."""
    argv = [sys.executable, "-I", "-S", str(FILE), "check", "--json", *arguments]
    done = subprocess.run(  # noqa: S603 - the file under test
        argv, capture_output=True, timeout=WAIT, check=False, cwd=cwd
    )
    assert done.stderr == b""
    report = json.loads(done.stdout)
    assert done.returncode == (0 if report["ok"] else 1)
    return report


SERVER_THAT_REFUSES = r"""
import json, sys
for line in sys.stdin:
    request = json.loads(line)
    error = {"code": int(sys.argv[1]), "message": "no", "data": {"supported": ["2099-01-01"]}}
    answer = {"jsonrpc": "2.0", "id": request.get("id"), "error": error}
    print("a banner", json.dumps(answer), sep="\n", flush=True)
"""


def test_the_demo_server_works_through_the_bridge() -> None:
    report = run_real()
    assert report["failures"] == []
    assert [tool["name"] for tool in report["tools"]] == [
        tool["name"] for tool in json.loads(bridge.DEMO_DATA)["tools"]
    ]
    assert {change["tool"] for change in report["changes"]} == {"refused_schema"}
    told = [json.dumps(change) for change in report["changes"]]
    assert 9 <= len(told) == len(set(told))  # though the tools are listed three times
    notes = {step["step"]: step["note"] for step in report["steps"]}
    assert notes["call slow"].endswith(" (3 x notifications/progress)")
    assert notes["call count"].endswith(" (1 x notifications/resources/updated)")
    assert notes["call log_levels"].endswith(" (8 x notifications/message)")
    assert report["notifications"]["notifications/progress"] == 3
    assert report["notifications"]["notifications/elicitation/complete"] == 1
    assert report["warnings"] == []
    assert report["exitCode"] == 0


def test_what_the_bridge_says_of_the_demo_is_valid(monkeypatch: pytest.MonkeyPatch) -> None:
    need_peer_python("mcp2")
    checker, hear, write = FrameChecker(), bridge.CheckClient._put, bridge.CheckClient.write

    def hear_and_check(self: bridge.CheckClient, line: bytes) -> None:
        if line:
            checker.check("to_client", line)
        hear(self, line)

    def check_and_write(self: bridge.CheckClient, **message: Any) -> None:
        checker.check("from_client", json.dumps({"jsonrpc": "2.0", **message}).encode())
        write(self, **message)

    monkeypatch.setattr(bridge.CheckClient, "_put", hear_and_check)
    monkeypatch.setattr(bridge.CheckClient, "write", check_and_write)
    assert bridge.CheckRun(bridge.CheckOptions([])).collect()["ok"]
    assert checker.problems() == []


def test_the_questions_of_the_demo_are_all_accepted() -> None:
    questions = run_real()["questions"]
    seen = [(question["step"].split()[-1], question["kind"]) for question in questions]
    assert seen == [
        ("ask_name", "form"),
        ("ask_confirm", "form"),
        ("ask_url", "url"),
        ("ask_url", "form"),  # the Continue form: the page is open already
        ("think", "sampling"),
        ("list_roots", "roots"),
        *(("ask_rounds", kind) for kind in ("form", "form", "sampling", "form")),
    ]
    titles = [field["title"] for field in questions[0]["fields"]]
    assert titles == ["Your name", "Your age", "How to greet you", "What you drink"]


@pytest.mark.parametrize("action", ["decline", "cancel"])
def test_the_questions_of_the_demo_can_be_refused(action: str) -> None:
    report = run_real("--answer", action)
    assert report["failures"] == []
    notes = {step["step"]: step["note"] for step in report["steps"]}
    assert notes["call ask_url"] == f"page: {action} (1 x elicitation/create)"
    assert notes["call think"] == "error -32000"
    assert notes["call list_roots"].startswith('folders: {"roots":')


def run_with(monkeypatch: pytest.MonkeyPatch, otherwise: dict[str, Any]) -> Any:
    """The report of a run that hears otherwise than the bridge says, by method or by step."""
    hear = bridge.CheckClient._handle

    def hear_otherwise(self: bridge.CheckClient, message: Any) -> None:
        hear(self, {**message, **otherwise.get(message.get("method", self.step), {})})

    monkeypatch.setattr(bridge.CheckClient, "_handle", hear_otherwise)
    return bridge.CheckRun(bridge.CheckOptions([])).collect()


def test_a_change_that_does_not_arrive_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    lost = {"method": "notifications/lost"}
    report = run_with(monkeypatch, {"notifications/resources/updated": lost})
    failure = failure_of(report)
    assert (failure["step"], failure["cause"]) == ("call count", "not_heard")
    assert "notifications/resources/updated" in failure["message"]
    assert "call toggle_tool" in steps_of(report)


def test_a_tool_that_is_not_listed_and_a_wrong_answer_are_failures(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The step is also that of the answer to prompts/list, which is on its way at the same time.
    tools: dict[str, Any] = {"result": {"tools": [], "prompts": []}}
    other = {"result": {"content": [{"type": "text", "text": "other"}]}}
    report = run_with(monkeypatch, {"tools/list": tools, "call echo": other})
    causes = {failure["step"]: failure["cause"] for failure in report["failures"]}
    assert causes == {"call echo": "wrong_result", "tools/list": "wrong_result"}


def test_a_command_of_the_user_is_listed_and_no_tool_is_called() -> None:
    report = run_real("--", sys.executable, str(FILE), "demo")
    assert report["ok"]
    assert not any(step.startswith("call") for step in steps_of(report))
    assert f"{os.path.basename(sys.executable)} (and 2 arguments" in report["upstream"]
    assert str(FILE) not in json.dumps(report)  # arguments of the command may be secret


@pytest.mark.parametrize(
    ("command", "cause", "told"),
    [
        (["no-such-command-at-all"], "spawn_failed", "PATH"),
        (["./no-such-file"], "spawn_failed", "./no-such-file"),
        ([sys.executable, "-c", "raise SystemExit(9)"], "closed", "9"),
        ([sys.executable, "-c", SERVER_THAT_REFUSES, "-32601"], "discover_failed", "older"),
        ([sys.executable, "-c", SERVER_THAT_REFUSES, "-32022"], "discover_failed", "2099-01-01"),
        ([sys.executable, "-c", "input(); input()"], "discover_failed", "1 s"),
    ],
)
def test_each_way_to_fail_names_its_cause(command: list[str], cause: str, told: str) -> None:
    report = run_real("--timeout", "1", "--", *command)
    failure = failure_of(report)
    assert (failure["step"], failure["cause"]) == ("initialize", cause)
    assert told in f"{failure['message']} {failure['detail']}"
    assert failure["fix"]
    assert report["exitCode"] == 0
    path = os.environ["PATH"]
    assert json.dumps(report).count(path) == (cause == "spawn_failed" and told == "PATH")
    if SERVER_THAT_REFUSES in command:
        assert any("a banner" in str(warning["text"]) for warning in report["warnings"])


@pytest.mark.skipif(os.name == "nt", reason="there is no such permission")
def test_a_file_that_is_not_executable_is_told(tmp_path: Path) -> None:
    (tmp_path / "server").write_text("#!/bin/sh\n")
    failure = failure_of(run_real("--", "./server", cwd=tmp_path))
    assert "executable" in failure["detail"]


def test_arguments_that_only_the_bridge_knows_to_be_wrong_are_exit_code_2() -> None:
    argv = [sys.executable, str(FILE), "check", "--log-levle=SECRET", "--", "x"]
    done = subprocess.run(  # noqa: S603 - the file under test
        argv, capture_output=True, timeout=WAIT, check=False
    )
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"--log-levle" in done.stderr
    assert b"SECRET" not in done.stderr


def test_with_fewer_log_lines_the_changes_are_called_hidden() -> None:
    report = run_real("--log-level", "warn")
    assert report["ok"]
    assert report["changes"] is None


def test_the_report_says_on_which_side_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSH_CONNECTION", raising=False)
    monkeypatch.setenv("WSL_DISTRO_NAME", "Debian")
    assert bridge.check_place().endswith(", in WSL")
    monkeypatch.delenv("WSL_DISTRO_NAME")
    assert bridge.check_place().endswith(sys.platform)
