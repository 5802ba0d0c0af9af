"""The demo server: answers as basic/index and the pages of each feature ask for."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest

import mcp_bridge_vscode as bridge

if TYPE_CHECKING:
    from collections.abc import Iterator

WAIT = 20.0  # bounds every wait of this file
FILE = str(Path(bridge.__file__).resolve())
PREFIX = "io.modelcontextprotocol/"
META = {f"{PREFIX}protocolVersion": "2026-07-28", f"{PREFIX}clientCapabilities": {}}


class Demo:
    """A demo server between two pipes, and a client that sends lines and reads them."""

    def __init__(self) -> None:
        server_in, self.to_server = os.pipe()
        self.from_server, server_out = os.pipe()
        self.lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self.descriptors = [server_in, self.from_server, server_out]
        self.last_id = 0
        run = bridge.DemoServer(server_in, server_out).run
        self.server = threading.Thread(target=run, daemon=True)
        self.reader = threading.Thread(target=self.run_reader, daemon=True)
        self.server.start()
        self.reader.start()

    def run_reader(self) -> None:
        with os.fdopen(os.dup(self.from_server), "rb") as stream:
            for line in stream:
                self.lines.put(line)

    def write(self, line: bytes) -> None:
        os.write(self.to_server, line + b"\n")

    def say(self, method: str, **params: Any) -> int:
        """A request goes out with the _meta that it must have."""
        self.last_id += 1
        params.setdefault("_meta", META)
        message = {"jsonrpc": "2.0", "id": self.last_id, "method": method, "params": params}
        self.write(json.dumps(message).encode())
        return self.last_id

    def hear(self) -> Any:
        return json.loads(self.lines.get(timeout=WAIT))

    def ask(self, method: str, **params: Any) -> Any:
        """The result of a request that has no notifications."""
        request_id = self.say(method, **params)
        answer = self.hear()
        assert answer["id"] == request_id
        return answer["result"]

    def error_of(self, method: str, **params: Any) -> Any:
        request_id = self.say(method, **params)
        answer = self.hear()
        assert answer["id"] == request_id
        return answer["error"]

    def call(self, name: str, **arguments: Any) -> Any:
        return self.ask("tools/call", name=name, arguments=arguments)

    def close_input(self) -> None:
        os.close(self.to_server)
        self.server.join(WAIT)
        assert not self.server.is_alive()


@pytest.fixture
def demo() -> Iterator[Demo]:
    it = Demo()
    yield it
    if it.server.is_alive():
        it.close_input()
    os.close(it.descriptors.pop())  # what the server wrote to: the reader ends
    it.reader.join(WAIT)
    assert not it.reader.is_alive()
    for descriptor in it.descriptors:
        os.close(descriptor)


def text(result: Any) -> str:
    [part] = result["content"]
    assert part["type"] == "text"
    return str(part["text"])


def test_discover_tells_what_the_server_is(demo: Demo) -> None:
    result = demo.ask("server/discover")
    assert result["supportedVersions"] == ["2026-07-28"]
    assert result["resultType"] == "complete"
    assert result["_meta"][f"{PREFIX}serverInfo"] == {
        "name": "demo",
        "title": "Bridge demo",
        "version": bridge.__version__,
    }
    assert result["instructions"]
    assert set(result["capabilities"]) >= {"tools", "prompts", "resources", "completions"}


def test_initialize_is_refused_with_words_that_name_the_revision(demo: Demo) -> None:
    error = demo.error_of("initialize", _meta={}, protocolVersion="2025-11-25")
    assert error["code"] == -32602
    assert "2026-07-28" in error["message"]
    assert error["data"] == {"supported": ["2026-07-28"]}


def test_another_version_is_refused_with_the_supported_ones(demo: Demo) -> None:
    error = demo.error_of("tools/list", _meta={**META, f"{PREFIX}protocolVersion": "2027-01-01"})
    assert error["code"] == -32022
    assert error["data"] == {"supported": ["2026-07-28"], "requested": "2027-01-01"}


@pytest.mark.parametrize(
    ("meta", "code"),
    [
        ({}, -32602),
        ({f"{PREFIX}protocolVersion": 1, f"{PREFIX}clientCapabilities": {}}, -32602),
        ({f"{PREFIX}protocolVersion": "2026-07-28"}, -32602),
        ({**META, f"{PREFIX}clientCapabilities": []}, -32602),
        ({**META, f"{PREFIX}logLevel": "loud"}, -32602),
    ],
)
def test_a_request_without_its_meta_is_malformed(demo: Demo, meta: object, code: int) -> None:
    assert demo.error_of("tools/list", _meta=meta)["code"] == code


@pytest.mark.parametrize(
    "method", ["ping", "initialize", "resources/subscribe", "logging/setLevel"]
)
def test_an_unknown_method_is_told_so(demo: Demo, method: str) -> None:
    assert demo.error_of(method)["code"] == -32601


def test_add_answers_in_text_and_in_structure(demo: Demo) -> None:
    result = demo.call("add", a=2, b=0.5)
    assert text(result) == "2 + 0.5 = 2.5"
    assert result["structuredContent"] == {"sum": 2.5}


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("add", {"a": 1}),
        ("add", {"a": True, "b": 1}),
        ("add", {"a": "1", "b": 1}),
        ("add", {"a": 1e308, "b": 1e308}),
        ("add", {"a": 10**400, "b": 0.5}),
        ("echo", {"text": 1}),
        ("slow", {"seconds": -1}),
        ("slow", {"seconds": 3601}),
        ("slow", {"steps": 1.5}),
        ("slow", {"steps": 0}),
        ("slow", {"steps": "2"}),
    ],
)
def test_wrong_arguments_are_the_tool_s_own_error(
    demo: Demo, name: str, arguments: dict[str, object]
) -> None:
    result = demo.call(name, **arguments)
    assert result["isError"] is True
    assert text(result)


def test_echo_returns_every_character(demo: Demo) -> None:
    said = "a\u2028\x00\u202e\U0001f600\ud800"
    assert text(demo.call("echo", text=said)) == said


def test_an_unknown_tool_is_a_protocol_error(demo: Demo) -> None:
    assert demo.error_of("tools/call", name="none")["code"] == -32602


@pytest.mark.parametrize("token", [0, 7, "token"])
def test_slow_tells_its_progress_to_who_gave_a_token(demo: Demo, token: int | str) -> None:
    meta = {**META, "progressToken": token}
    arguments = {"seconds": 0, "steps": 3}
    request_id = demo.say("tools/call", _meta=meta, name="slow", arguments=arguments)
    heard = [demo.hear() for _ in range(4)]
    assert [m["params"]["progress"] for m in heard[:3]] == [1, 2, 3]
    assert {m["params"]["progressToken"] for m in heard[:3]} == {token}
    assert {m["params"]["total"] for m in heard[:3]} == {3}
    assert heard[3]["id"] == request_id


def test_slow_is_quiet_without_a_token_and_a_level(demo: Demo) -> None:
    assert text(demo.call("slow", seconds=0, steps=2)) == "done after 2 steps"


@pytest.mark.parametrize(("level", "count"), [("debug", 1), ("info", 1), ("notice", 0)])
def test_a_log_message_comes_from_its_level_on(demo: Demo, level: str, count: int) -> None:
    meta = {**META, f"{PREFIX}logLevel": level}
    demo.say("tools/call", _meta=meta, name="slow", arguments={"seconds": 0})
    heard = [demo.hear() for _ in range(count + 1)]
    assert [m.get("method") for m in heard] == ["notifications/message"] * count + [None]


def test_others_are_answered_while_slow_runs_and_a_cancelled_one_never_is(demo: Demo) -> None:
    demo.say("tools/call", name="slow", arguments={"seconds": 3000})
    cancelled = {"requestId": demo.last_id, "reason": "enough"}
    assert text(demo.call("echo", text="meanwhile")) == "meanwhile"
    note = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancelled}
    demo.write(json.dumps(note).encode())
    demo.write(json.dumps({**note, "params": {"requestId": [1]}}).encode())
    assert text(demo.call("echo", text="after")) == "after"
    demo.close_input()
    assert demo.lines.empty()


def test_the_end_of_the_input_cancels_what_runs(demo: Demo) -> None:
    before = threading.active_count()
    demo.say("tools/call", name="slow", arguments={"seconds": 3000})
    demo.call("echo", text="slow has begun")
    demo.close_input()
    for thread in threading.enumerate():
        if thread.name.startswith("demo "):
            thread.join(WAIT)
    assert threading.active_count() < before + 1


def test_every_tool_of_the_table_is_listed_and_known(demo: Demo) -> None:
    tools = {tool["name"]: tool for tool in demo.ask("tools/list")["tools"]}
    assert [*tools, "extra"] == list(bridge.DEMO_TOOLS)
    for tool in tools.values():
        assert tool["inputSchema"]["type"] == "object"
        assert tool["description"]
    steps = tools["slow"]["inputSchema"]["properties"]
    assert steps["seconds"]["maximum"] == bridge.DEMO_MOST_SECONDS
    assert steps["steps"]["maximum"] == bridge.DEMO_MOST_STEPS


def test_the_schemas_are_right_but_for_the_one_that_is_to_be_refused(demo: Demo) -> None:
    for tool in demo.ask("tools/list")["tools"]:
        schema = tool["inputSchema"]
        if tool["name"] != "refused_schema":
            jsonschema.Draft7Validator.check_schema(schema)
            jsonschema.Draft7Validator.check_schema(tool.get("outputSchema", {}))
            continue
        assert "draft" not in schema["$schema"]
        meta_schema = jsonschema.Draft7Validator(jsonschema.Draft7Validator.META_SCHEMA)
        valid = [name for name, part in schema["properties"].items() if meta_schema.is_valid(part)]
        # VS Code's copy of the meta-schema also wants the values of an enum to differ, and an
        # array without items passes it, but then stops a chat.
        assert valid == ["color", "tags"]
        assert "items" not in schema["properties"]["tags"]


def test_the_refused_schema_s_tool_can_be_called(demo: Demo) -> None:
    assert text(demo.call("refused_schema", tags=[], code="x")) == "arguments: code, tags"
    assert text(demo.call("refused_schema")) == "arguments: none"


@pytest.mark.parametrize("method", sorted({*bridge.DEMO_LISTS, "tools/list"}))
def test_a_list_has_one_page(demo: Demo, method: str) -> None:
    page = demo.ask(method)
    assert "nextCursor" not in page
    assert (page["ttlMs"], page["cacheScope"]) == (0, "private")
    assert demo.error_of(method, cursor="2")["code"] == -32602


def test_every_listed_resource_can_be_read(demo: Demo) -> None:
    listed = demo.ask("resources/list")["resources"]
    assert {item["uri"] for item in listed} == set(bridge.DEMO_TEXTS)
    for item in listed:
        [part] = demo.ask("resources/read", uri=item["uri"])["contents"]
        assert (part["uri"], part["mimeType"]) == (item["uri"], item["mimeType"])


def test_the_template_can_be_read_and_nothing_else(demo: Demo) -> None:
    [template] = demo.ask("resources/templates/list")["resourceTemplates"]
    uri = template["uriTemplate"].replace("{name}", "Ada")
    [part] = demo.ask("resources/read", uri=uri)["contents"]
    assert "Ada" in part["text"]
    for unknown in ("demo:///greeting/", "demo:///none", ""):
        error = demo.error_of("resources/read", uri=unknown)
        assert (error["code"], error["data"]) == (-32602, {"uri": unknown})


def test_the_prompt_needs_its_argument(demo: Demo) -> None:
    [prompt] = demo.ask("prompts/list")["prompts"]
    arguments = {"name": "Ada", "style": "pirate"}
    [message] = demo.ask("prompts/get", name=prompt["name"], arguments=arguments)["messages"]
    assert message == {
        "role": "user",
        "content": {"type": "text", "text": "Greet Ada. Style: pirate."},
    }
    assert demo.error_of("prompts/get", name=prompt["name"])["code"] == -32602
    assert demo.error_of("prompts/get", name="none", arguments=arguments)["code"] == -32602


@pytest.mark.parametrize(
    ("ref", "name", "typed", "values"),
    [
        ({"type": "ref/prompt", "name": "greet"}, "style", "F", ["formal", "friendly"]),
        (
            {"type": "ref/prompt", "name": "greet"},
            "name",
            "",
            ["Ada", "Alan", "Grace", "Katherine"],
        ),
        ({"type": "ref/resource", "uri": "demo:///greeting/{name}"}, "name", "gr", ["Grace"]),
    ],
)
def test_an_argument_is_completed_as_typed(
    demo: Demo, ref: object, name: str, typed: str, values: list[str]
) -> None:
    argument = {"name": name, "value": typed}
    result = demo.ask("completion/complete", ref=ref, argument=argument)
    assert result["completion"]["values"] == values


@pytest.mark.parametrize(
    ("ref", "name"),
    [
        ({"type": "ref/prompt", "name": "none"}, "name"),
        ({"type": "ref/prompt", "name": "greet"}, "none"),
        ({"type": "ref/resource", "uri": ["odd"]}, "name"),
    ],
)
def test_an_argument_that_is_unknown_has_no_completion(demo: Demo, ref: object, name: str) -> None:
    argument = {"name": name, "value": ""}
    assert demo.error_of("completion/complete", ref=ref, argument=argument)["code"] == -32602


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"{", -32700),
        (b"\xff\xfe", -32700),
        (b"[]", -32600),
        (b'{"jsonrpc":"2.0","id":1}', -32600),
        (b'{"jsonrpc":"2.0","id":null,"method":"tools/list"}', -32600),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"tools/list"}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":2}', -32600),
    ],
)
def test_a_bad_line_gets_an_error_without_an_id(demo: Demo, line: bytes, code: int) -> None:
    demo.write(line)
    answer = demo.hear()
    assert answer["error"]["code"] == code
    assert "id" not in answer
    assert text(demo.call("echo", text="goes on")) == "goes on"


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"   \r",
        b'{"jsonrpc":"2.0","method":"notifications/initialized"}',
        b'{"jsonrpc":"2.0","id":1,"result":{}}',
        b'{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"x"}}',
    ],
)
def test_a_line_that_asks_nothing_gets_nothing(demo: Demo, line: bytes) -> None:
    demo.write(line)
    assert text(demo.call("echo", text="goes on")) == "goes on"


def test_a_client_that_reads_no_more_is_no_crash() -> None:
    server_in, to_server = os.pipe()
    from_server, server_out = os.pipe()
    os.close(from_server)
    os.write(to_server, b'{"jsonrpc":"2.0","id":1,"method":"server/discover"}\n')
    os.close(to_server)
    bridge.DemoServer(server_in, server_out).run()
    os.close(server_in)
    os.close(server_out)


def test_arguments_are_refused(capfd: pytest.CaptureFixture[str]) -> None:
    assert bridge.run_demo(["--secret=value"]) == 2
    shown = capfd.readouterr()
    assert shown.err.startswith("mcp-bridge-vscode: vscode: error: demo")
    assert "value" not in shown.err
    assert not shown.out


def test_the_process_ends_with_its_input() -> None:
    argv = [sys.executable, "-I", "-S", FILE, "demo"]
    request = {"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": {"_meta": META}}
    done = subprocess.run(  # noqa: S603 - the file under test
        argv, input=json.dumps(request).encode(), capture_output=True, timeout=WAIT, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert json.loads(done.stdout)["result"]["supportedVersions"] == ["2026-07-28"]
