"""The demo server: answers as basic/index and the pages of each feature ask for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest

import mcp_bridge_vscode as bridge
from tests.support.parts import need_peer_python
from tests.support.waits import Inbox

if TYPE_CHECKING:
    from collections.abc import Iterator

WAIT = 20.0  # bounds every wait of this file
FILE = str(Path(bridge.__file__).resolve())
PREFIX = "io.modelcontextprotocol/"
META = {f"{PREFIX}protocolVersion": "2026-07-28", f"{PREFIX}clientCapabilities": {}}
DATA = json.loads(bridge.DEMO_DATA)
NAMES = [tool["name"] for tool in DATA["tools"]]
CAPABILITIES: dict[str, Any] = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}
ASKING = {**META, f"{PREFIX}clientCapabilities": CAPABILITIES}


class Demo:
    """A demo server between two pipes, and a client that sends lines and reads them."""

    def __init__(self) -> None:
        server_in, self.to_server = os.pipe()
        self.from_server, server_out = os.pipe()
        self.lines: Inbox[bytes] = Inbox()
        self.descriptors = [server_in, self.from_server]
        self.server_out = server_out
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
        self.lines.end()

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
        line = self.lines.take()
        assert line is not None, "the client hears nothing more"
        return json.loads(line)

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

    def call_asking(self, name: str, after: Any = None, **responses: Any) -> Any:
        """The result of a tool that may ask; `after` is the one whose questions are answered."""
        more = {"inputResponses": responses} if responses else {}
        if "requestState" in (after or {}):
            more["requestState"] = after["requestState"]
        return self.ask("tools/call", _meta=ASKING, name=name, arguments={}, **more)

    def listen(self, **notifications: Any) -> tuple[int, Any]:
        """A listen stream; its id, and what of it is honored."""
        request_id = self.say("subscriptions/listen", notifications=notifications)
        heard = self.hear()
        assert heard["method"] == "notifications/subscriptions/acknowledged"
        assert heard["params"]["_meta"] == {f"{PREFIX}subscriptionId": request_id}
        return request_id, heard["params"]["notifications"]

    def cancel(self, request_id: int) -> None:
        params = {"requestId": request_id}
        note = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}
        self.write(json.dumps(note).encode())

    def hear_until(self, request_id: int) -> list[Any]:
        """All that is heard up to the answer of the request, which comes last."""
        heard = [self.hear()]
        while heard[-1].get("id") != request_id:
            heard.append(self.hear())
        return heard

    def hear_change(self, name: str) -> list[tuple[str, int]]:
        """What the streams hear before a tool answers: method and subscription id."""
        heard = self.hear_until(self.say("tools/call", name=name, arguments={}))
        assert heard[-1]["result"]["isError"] is False
        key = f"{PREFIX}subscriptionId"
        return [(m["method"].split("/", 1)[1], m["params"]["_meta"][key]) for m in heard[:-1]]

    def close_input(self) -> None:
        """The server has ended, and all it said has been read."""
        os.close(self.to_server)
        self.server.join(WAIT)
        assert not self.server.is_alive()
        for thread in threading.enumerate():
            if thread.name.startswith("demo "):
                thread.join(WAIT)
                assert not thread.is_alive()
        os.close(self.server_out)
        self.reader.join(WAIT)
        assert not self.reader.is_alive()


@pytest.fixture
def demo() -> Iterator[Demo]:
    it = Demo()
    yield it
    if it.server.is_alive():
        it.close_input()
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
    assert error["data"]["supported"] == ["2026-07-28"]


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
        ("slow", {"steps": 1001}),
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


def test_others_are_answered_while_slow_runs_and_a_cancelled_one_never_is(demo: Demo) -> None:
    demo.say("tools/call", name="slow", arguments={"seconds": 3000})
    cancelled = {"requestId": demo.last_id, "reason": "enough"}
    assert text(demo.call("echo", text="meanwhile")) == "meanwhile"
    note = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancelled}
    demo.write(json.dumps(note).encode())
    demo.write(json.dumps({**note, "params": {"requestId": [1]}}).encode())
    assert text(demo.call("echo", text="after")) == "after"
    demo.close_input()
    assert demo.lines.rest() == []


def test_the_end_of_the_input_cancels_what_runs(demo: Demo) -> None:
    number = demo.say("tools/call", name="slow", arguments={"seconds": 3000})
    demo.call("echo", text="slow has begun")
    assert f"demo {number}" in {thread.name for thread in threading.enumerate()}
    demo.close_input()  # which waits for its thread
    assert demo.lines.rest() == []


ACCEPT = {"action": "accept"}
MODEL = {"role": "assistant", "model": "m", "content": {"type": "text", "text": "Blue."}}
SHORT = (",", ":")
PERSON = {"name": "Ada", "age": 36, "style": "pirate", "drinks": ["t"]}
ROOTS = {"roots": [{"uri": "file:///a"}, {"uri": "file:///b", "name": "b"}]}


def questions(result: Any) -> dict[str, Any]:
    assert result["resultType"] == "input_required"
    assert "content" not in result
    return dict(result["inputRequests"])


@pytest.mark.parametrize(
    ("tool", "key", "method", "response", "said"),
    [
        (
            "ask_name",
            "person",
            "elicitation/create",
            {**ACCEPT, "content": PERSON},
            'person: {"name":"Ada","age":36,"style":"pirate","drinks":["t"]}',
        ),
        ("ask_confirm", "sure", "elicitation/create", {**ACCEPT, "content": {}}, "sure: accept"),
        ("ask_confirm", "sure", "elicitation/create", {"action": "cancel"}, "sure: cancel"),
        (
            "think",
            "color",
            "sampling/createMessage",
            MODEL,
            f"color: {json.dumps(MODEL, separators=SHORT)}",
        ),
        (
            "list_roots",
            "folders",
            "roots/list",
            ROOTS,
            f"folders: {json.dumps(ROOTS, separators=SHORT)}",
        ),
    ],
)
def test_a_tool_that_asks_once_says_what_was_answered(
    demo: Demo, tool: str, key: str, method: str, response: object, said: str
) -> None:
    first = demo.call_asking(tool)
    [(asked, question)] = questions(first).items()
    assert (asked, question["method"]) == (key, method)
    assert "requestState" not in first
    result = demo.call_asking(tool, first, **{key: response, "unexpected": {}})
    assert (result["resultType"], text(result)) == ("complete", said)


@pytest.mark.parametrize(
    "response",
    [
        None,
        {},
        "accept",
        {"action": "other"},
        {"action": "accept"},
        {"action": "accept", "content": {"name": ""}},
        {"action": "accept", "content": {"name": "Ada", "age": "36"}},
        {"action": "accept", "content": {"name": "Ada", "style": "x"}},
    ],
)
def test_an_answer_that_is_none_is_asked_for_again(demo: Demo, response: object) -> None:
    first = demo.call_asking("ask_name")
    assert demo.call_asking("ask_name", first, person=response) == first
    assert demo.call_asking("ask_name", first, other={**ACCEPT, "content": PERSON}) == first


def test_a_url_is_asked_for_twice(demo: Demo) -> None:
    first = demo.call_asking("ask_url")
    second = demo.call_asking("ask_url", first, page=ACCEPT)
    urls = [questions(result)["page"]["params"]["url"] for result in (first, second)]
    assert urls[0] == urls[1]
    assert bridge.may_show_url(urls[0])
    assert first["requestState"] != second["requestState"]
    assert text(demo.call_asking("ask_url", second, page=ACCEPT)) == "page: accept; page: accept"
    refused = demo.call_asking("ask_url", first, page={"action": "decline"})
    assert text(refused) == "page: decline"


def test_three_rounds_remember_their_answers_in_the_state(demo: Demo) -> None:
    first = demo.call_asking("ask_rounds")
    assert list(questions(first)) == ["pizza"]
    pizza = {**ACCEPT, "content": {"kind": "n"}}
    second = demo.call_asking("ask_rounds", first, pizza=pizza)
    assert list(questions(second)) == ["door", "wish"]
    assert second["requestState"] == 'ask_rounds, round 2 of 3, answers: pizza: {"kind":"n"}'
    door = {**ACCEPT, "content": {"mail": "ada@example.com"}}
    assert demo.call_asking("ask_rounds", second, door=door) == second  # one is missing
    third = demo.call_asking("ask_rounds", second, door=door, wish=MODEL)
    assert list(questions(third)) == ["sure"]
    result = demo.call_asking("ask_rounds", third, sure={"action": "decline"})
    wish = json.dumps(MODEL, separators=SHORT)
    assert text(result) == (
        f'pizza: {{"kind":"n"}}; door: {{"mail":"ada@example.com"}}; wish: {wish}; sure: decline'
    )


@pytest.mark.parametrize("state", ["", "ask_url, round 1 of 2", 1, None])
def test_a_state_that_was_not_given_out_is_refused(demo: Demo, state: object) -> None:
    demo.call_asking("ask_url")
    error = demo.error_of("tools/call", _meta=ASKING, name="ask_url", requestState=state)
    assert error["code"] == -32602


def test_a_state_of_another_tool_is_refused(demo: Demo) -> None:
    state = demo.call_asking("ask_url")["requestState"]
    for name in ("ask_rounds", "ask_name"):
        error = demo.error_of("tools/call", _meta=ASKING, name=name, requestState=state)
        assert error["code"] == -32602


@pytest.mark.parametrize(
    ("tool", "declared", "missing"),
    [
        ("ask_name", {}, {"elicitation": {"form": {}}}),
        ("ask_name", {"elicitation": {"url": {}}}, {"elicitation": {"form": {}}}),
        ("ask_name", {"elicitation": {}}, None),
        ("ask_url", {"elicitation": {}}, {"elicitation": {"url": {}}}),
        ("ask_url", {"elicitation": {"url": {}}}, None),
        ("think", {"elicitation": {}, "roots": {}}, {"sampling": {}}),
        ("think", {"sampling": None}, {"sampling": {}}),
        ("list_roots", {"sampling": {}}, {"roots": {}}),
        ("ask_rounds", {}, {"elicitation": {"form": {}}, "sampling": {}}),
        ("ask_rounds", {"elicitation": {}}, {"sampling": {}}),  # though round 1 needs it not
    ],
)
def test_what_the_client_did_not_declare_is_not_asked(
    demo: Demo, tool: str, declared: object, missing: object
) -> None:
    meta = {**META, f"{PREFIX}clientCapabilities": declared}
    demo.say("tools/call", _meta=meta, name=tool, arguments={})
    answer = demo.hear()
    if missing is None:
        assert questions(answer["result"])
    else:
        assert answer["error"]["code"] == -32021
        assert answer["error"]["data"] == {"requiredCapabilities": missing}


def test_every_question_passes_the_bridge_s_own_checks() -> None:
    session = bridge.InputSession(CAPABILITIES, lambda: "id", 16)
    for tool in DATA["asks"].values():
        for asks in tool["rounds"]:
            result = json.dumps({"inputRequests": asks, "requestState": "s"}).encode()
            assert len(session.read_round(bridge.parse_object(result))) == len(asks)
            for ask in asks.values():
                schema = ask.get("params", {}).get("requestedSchema")
                shown = schema and bridge.Form(schema).shown
                assert shown == schema  # it is of the restricted kind already


def test_what_a_tool_needs_is_what_it_asks() -> None:
    for tool in DATA["asks"].values():
        needs: dict[str, dict[str, object]] = {}
        for ask in (ask for asks in tool["rounds"] for ask in asks.values()):
            kind = ask["method"].partition("/")[0]
            modes = needs.setdefault(kind, {})
            if kind == "elicitation":
                modes[ask["params"].get("mode", "form")] = {}
        assert tool["needs"] == needs


def test_a_stream_hears_a_change_before_the_tool_answers(demo: Demo) -> None:
    tools, honored = demo.listen(toolsListChanged=True, promptsListChanged=True)
    assert honored == {"toolsListChanged": True}
    both, honored = demo.listen(toolsListChanged=True, resourcesListChanged=True)
    assert honored == {"toolsListChanged": True, "resourcesListChanged": True}
    changed = "tools/list_changed"
    assert demo.hear_change("toggle_tool") == [(changed, tools), (changed, both)]
    assert demo.hear_change("count") == [("resources/list_changed", both)]
    demo.cancel(tools)
    assert demo.hear_change("toggle_tool") == [(changed, both)]


def test_a_subscribed_resource_changes(demo: Demo) -> None:
    uris = ["demo:///none", "demo:///counter", 1, {}]
    stream, honored = demo.listen(resourceSubscriptions=uris, toolsListChanged=False)
    assert honored == {"resourceSubscriptions": ["demo:///counter"]}
    _, honored = demo.listen(resourceSubscriptions=["demo:///readme"])
    assert honored == {"resourceSubscriptions": ["demo:///readme"]}
    assert demo.hear_change("count") == [("resources/updated", stream)]
    assert demo.hear_change("toggle_tool") == []
    [part] = demo.ask("resources/read", uri="demo:///counter")["contents"]
    assert part["text"] == "1"
    listed = {item["uri"]: item for item in demo.ask("resources/list")["resources"]}
    assert listed["demo:///counter"]["title"] == "Counter at 1"


def test_a_stream_without_topics_is_open(demo: Demo) -> None:
    stream, honored = demo.listen(resourceSubscriptions="demo:///counter")
    assert honored == {}
    demo.close_input()
    assert demo.hear()["id"] == stream


def test_the_end_of_the_input_ends_the_streams_that_are_open(demo: Demo) -> None:
    gone, _ = demo.listen(toolsListChanged=True)
    stays, _ = demo.listen(toolsListChanged=True)
    demo.cancel(gone)
    demo.close_input()
    end = {"resultType": "complete", "_meta": {f"{PREFIX}subscriptionId": stays}}
    assert demo.hear() == {"jsonrpc": "2.0", "id": stays, "result": end}
    assert demo.lines.rest() == []


def test_the_tool_extra_comes_and_goes(demo: Demo) -> None:
    def names() -> list[str]:
        return [tool["name"] for tool in demo.ask("tools/list")["tools"]]

    assert "extra" not in names()
    assert demo.error_of("tools/call", name="extra", arguments={})["code"] == -32602
    assert text(demo.call("toggle_tool")) == "extra is there"
    assert "extra" in names()
    assert text(demo.call("extra", a=1)) == "arguments: a"
    assert text(demo.call("toggle_tool")) == "extra is gone"
    assert "extra" not in names()


@pytest.mark.parametrize("least", [None, *bridge.LOG_LEVELS])
def test_a_message_of_each_level_that_was_asked_for(demo: Demo, least: str | None) -> None:
    meta = META if least is None else {**META, f"{PREFIX}logLevel": least}
    heard = demo.hear_until(demo.say("tools/call", _meta=meta, name="log_levels", arguments={}))
    levels = [message["params"]["level"] for message in heard[:-1]]
    known = [*bridge.LOG_LEVELS]
    assert levels == ([] if least is None else known[known.index(least) :])


def test_what_changes_is_declared(demo: Demo) -> None:
    declared = demo.ask("server/discover")["capabilities"]
    assert declared["tools"] == {"listChanged": True}
    assert declared["resources"] == {"listChanged": True, "subscribe": True}
    assert declared["prompts"] == {}


VALIDATE = """
import json, sys
from mcp_types import jsonrpc, methods
from pydantic import TypeAdapter

for line in sys.stdin:
    method, frame = json.loads(line)
    if "method" in frame:
        model, value = methods.SERVER_NOTIFICATIONS[frame["method"], "2026-07-28"], frame
    elif "error" in frame:
        model, value = jsonrpc.JSONRPCError, frame
    else:
        model, value = methods.SERVER_RESULTS[method, "2026-07-28"], frame["result"]
    TypeAdapter(model).validate_python(value, strict=True, by_name=False)
"""


def test_all_that_it_says_is_valid_by_the_official_types(demo: Demo) -> None:
    python = need_peer_python("mcp2")
    meta = {**ASKING, f"{PREFIX}logLevel": "debug", "progressToken": "t"}
    topics: dict[str, Any] = {"toolsListChanged": True, "resourcesListChanged": True}
    topics["resourceSubscriptions"] = ["demo:///counter"]
    methods = {demo.say("subscriptions/listen", notifications=topics): "subscriptions/listen"}
    for method in ("tools/list", *DATA["results"]):
        methods[demo.say(method)] = method
    for uri in DATA["texts"]:
        methods[demo.say("resources/read", uri=uri)] = "resources/read"
    for name in NAMES:
        arguments = {"a": 1, "b": 2, "text": "x", "seconds": 0}
        for with_meta in (meta, META):
            said = demo.say("tools/call", _meta=with_meta, name=name, arguments=arguments)
            methods[said] = "tools/call"
    answers = {"sure": {**ACCEPT, "content": {}}, "pizza": {**ACCEPT, "content": {"kind": "m"}}}
    for more in ({"inputResponses": answers}, {"requestState": "none"}):
        for name in ("ask_confirm", "ask_rounds"):
            said = demo.say("tools/call", _meta=ASKING, name=name, arguments={}, **more)
            methods[said] = "tools/call"
    heard = []
    waiting = {said for said, method in methods.items() if method != "subscriptions/listen"}
    while waiting:
        heard.append(demo.hear())
        waiting.discard(heard[-1].get("id"))
    demo.close_input()
    heard += [json.loads(line) for line in demo.lines.rest()]
    lines = [json.dumps([methods.get(frame.get("id")), frame]) for frame in heard]
    subprocess.run(  # noqa: S603 - the Python of the tests
        [python, "-c", VALIDATE], input="\n".join(lines), text=True, check=True, timeout=WAIT
    )


def test_every_tool_of_the_table_is_listed_and_known(demo: Demo) -> None:
    tools = {tool["name"]: tool for tool in demo.ask("tools/list")["tools"]}
    assert [*tools, "extra"] == NAMES
    assert {*bridge.DEMO_TOOLS, *DATA["asks"]} == {*NAMES}
    for tool in tools.values():
        assert tool["inputSchema"]["type"] == "object"
        assert tool["description"]


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


@pytest.mark.parametrize("method", sorted({*DATA["results"], "tools/list"} - {"server/discover"}))
def test_a_list_has_one_page(demo: Demo, method: str) -> None:
    page = demo.ask(method)
    assert "nextCursor" not in page
    assert (page["ttlMs"], page["cacheScope"]) == (0, "private")
    assert demo.error_of(method, cursor="2")["code"] == -32602


def test_every_listed_resource_can_be_read(demo: Demo) -> None:
    listed = demo.ask("resources/list")["resources"]
    assert {item["uri"] for item in listed} == set(DATA["texts"])
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
        (b'{"jsonrpc":"2.0","id":true,"method":"tools/list"}', -32600),
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
