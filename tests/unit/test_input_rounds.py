"""The section `input_rounds`: which questions reach the client, and what its answers become."""

from __future__ import annotations

import itertools
import json
import time
from typing import Any, Final

import pytest

import mcp_bridge_vscode as bridge
from mcp_bridge_vscode import Cause, ClientRefusedError, InputSession, Question
from tests.support.frames import FrameChecker
from tests.support.parts import need_peer_python

EVERYTHING: Final[Any] = {
    "elicitation": {"form": {}, "url": {}},
    "sampling": {"tools": {}, "context": {}},
    "roots": {},
}
VS_CODE: Final[Any] = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}
MISSHAPEN: Final = "the input request does not have the shape of the schema"
URL: Final = "https://example.com/connect?id=1"
CONTINUE: Final = {
    "type": "object",
    "properties": {
        "continue": {
            "type": "string",
            "title": "Continue",
            "enum": ["Continue"],
            "default": "Continue",
        }
    },
    "required": ["continue"],
}


def form(**params: Any) -> dict[str, Any]:
    properties = {"name": {"type": "string", "minLength": 1}}
    schema = {"type": "object", "properties": properties, "required": ["name"]}
    params = {"message": "Who are you?", "requestedSchema": schema, **params}
    return {"method": "elicitation/create", "params": params}


def empty_form(**params: Any) -> dict[str, Any]:
    return form(requestedSchema={"type": "object", "properties": {}}, **params)


def url(address: Any = URL, **params: Any) -> dict[str, Any]:
    params = {"mode": "url", "message": "Sign in.", "url": address, **params}
    return {"method": "elicitation/create", "params": params}


def text(words: str = "Hello") -> dict[str, Any]:
    return {"type": "text", "text": words}


def said(role: str, content: Any) -> dict[str, Any]:
    return {"role": role, "content": content}


def sampling(*messages: Any, **params: Any) -> dict[str, Any]:
    params = {"messages": [*messages] or [said("user", text())], "maxTokens": 100, **params}
    return {"method": "sampling/createMessage", "params": params}


def use(name: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": name, "name": "weather", "input": {}}


def outcome(name: str) -> dict[str, Any]:
    return {"type": "tool_result", "toolUseId": name, "content": [text("18 degrees")]}


ROOTS: Final = {"method": "roots/list"}


def reply_with(result: str) -> bridge.RawObject:
    return bridge.parse_frame(f'{{"jsonrpc":"2.0","id":7,"result":{result}}}'.encode(), 200)


def result_of(**members: Any) -> bridge.RawObject:
    """The result member of an InputRequiredResult, as the slot has it."""
    reply = reply_with(json.dumps({"resultType": "input_required", **members}))
    result = reply.object("result")
    assert result is not None
    return result


def session_of(capabilities: Any = None, most: int = 16) -> InputSession:
    numbers = itertools.count(1)
    declared: Any = EVERYTHING if capabilities is None else capabilities
    return InputSession(declared, lambda: f"elicitation-{next(numbers)}", most)


def ask(request: Any, session: InputSession | None = None, key: str = "k") -> Question:
    """The question of a round that has only this one."""
    session = session or session_of()
    (question,) = session.read_round(result_of(inputRequests={key: request}))
    assert question.key == key
    return question


def failure_of(session: InputSession, **members: Any) -> tuple[Cause, str]:
    with pytest.raises(bridge.BridgeError) as raised:
        session.read_round(result_of(**members))
    return raised.value.cause, raised.value.detail


def failure_of_request(request: Any, capabilities: Any = None) -> tuple[Cause, str]:
    return failure_of(session_of(capabilities), inputRequests={"good": form(), "k": request})


def answer(question: Question, **members: Any) -> Any:
    """What a frame of the client says."""
    line = json.dumps({"jsonrpc": "2.0", "id": "b-1", **members}).encode()
    return bridge.read_answer(question, bridge.parse_frame(line, 64))


def wrong_answer(question: Question, **members: Any) -> str:
    with pytest.raises(bridge.BridgeError) as raised:
        answer(question, **members)
    assert raised.value.cause is Cause.INVALID_CLIENT_ANSWER
    return raised.value.detail


# Checks of the whole round ----------------------------------------------------

OF_THE_ROUND: Final[tuple[tuple[dict[str, Any], str], ...]] = (
    ({"inputRequests": None}, "the inputRequests member is not an object"),
    ({"inputRequests": []}, "the inputRequests member is not an object"),
    ({"inputRequests": "k", "requestState": "s"}, "the inputRequests member is not an object"),
    ({"requestState": None}, "the requestState member is not a string"),
    ({"requestState": 3, "inputRequests": {}}, "the requestState member is not a string"),
    ({"requestState": {"a": "b"}}, "the requestState member is not a string"),
    ({}, "the result asks for nothing"),
)


@pytest.mark.parametrize(("members", "detail"), OF_THE_ROUND, ids=lambda value: str(value)[:50])
def test_a_round_of_a_wrong_shape_fails(members: dict[str, Any], detail: str) -> None:
    assert failure_of(session_of(), **members) == (Cause.INVALID_INPUT_REQUEST, detail)


def test_an_integer_of_very_many_digits_is_no_state() -> None:
    result = reply_with('{"requestState":' + "1" * 5000 + "}").object("result")
    assert result is not None
    with pytest.raises(bridge.BridgeError):
        session_of().read_round(result)


@pytest.mark.parametrize("members", [{"requestState": "s"}, {"inputRequests": {}}], ids=str)
def test_a_round_may_ask_for_nothing_but_another_round(members: dict[str, Any]) -> None:
    assert session_of().read_round(result_of(**members)) == []


def test_sixteen_questions_are_put_in_their_order() -> None:
    keys = [str(n) for n in range(16, 0, -1)]
    questions = session_of().read_round(result_of(inputRequests=dict.fromkeys(keys, ROOTS)))
    assert [question.key for question in questions] == keys


@pytest.mark.parametrize("count", [17, 100_000])
def test_more_questions_than_the_limit_fail_the_round(count: int) -> None:
    requests = dict.fromkeys((str(n) for n in range(count)), ROOTS)
    assert failure_of(session_of(), inputRequests=requests) == (
        Cause.TOO_MANY_INPUT_REQUESTS,
        f"{count} input requests in one round, limit: 16",
    )


@pytest.mark.parametrize(
    ("result", "is_so"),
    [
        ('{"resultType":"input_required"}', True),
        ('{"resultType":"input_required","é":1}', True),
        ('{"resultType":"complete"}', False),
        ('{"resultType":["input_required"]}', False),
        ("{}", False),
        ("null", False),
        ('["input_required"]', False),
    ],
)
def test_only_a_result_of_that_type_asks_for_input(result: str, is_so: bool) -> None:
    assert bridge.asks_for_input(reply_with(result)) is is_so


def test_an_error_does_not_ask_for_input() -> None:
    line = b'{"jsonrpc":"2.0","id":7,"error":{"resultType":"input_required"}}'
    assert not bridge.asks_for_input(bridge.parse_frame(line, 200))


# Checks before the client gets a question -------------------------------------

WRONG_SHAPES: Final[tuple[Any, ...]] = (
    *(None, True, 3, "elicitation/create", [], {}),
    {"method": None, "params": {}},
    {"method": ["roots/list"]},
    {"method": "roots/list", "params": None},
    {"method": "roots/list", "params": []},
    {"method": "roots/list", "params": {"_meta": None}},
    {"method": "tools/call", "params": {"name": "t"}},
    {"method": "initialize", "params": {}},
    {"method": "notifications/cancelled", "params": {"requestId": 1}},
    {"method": "elicitation/create"},
    form(message=None),
    form(message=["m"]),
    form(mode="constructor"),
    form(mode=None),
    form(mode=["form"]),
    form(mode="URL"),
    form(requestedSchema=None),
    form(requestedSchema=[]),
    form(requestedSchema="{}"),
    form(_meta=3),
    url(None),
    url(3),
    url([URL]),
    url(message=None),
    {"method": "sampling/createMessage"},
    sampling(messages=None),
    sampling(messages={"role": "user"}),
    sampling("Hello"),
    sampling(said("system", text())),
    sampling({"role": "user"}),
    sampling({"content": text()}),
    sampling(said("user", "Hello")),
    sampling(said("user", None)),
    sampling(said("user", [text(), "Hello"])),
    sampling(said("user", {"text": "Hello"})),
    sampling(said("user", {"type": ["text"], "text": "Hello"})),
    sampling(said("user", {"type": "video", "data": "", "mimeType": ""})),
    sampling(said("user", {"type": "text"})),
    sampling(said("user", {"type": "text", "text": 3})),
    sampling(said("user", text()), said("user", "Hello")),
    sampling(said("user", {"type": "image", "data": "AA=="})),
    sampling(said("user", {"type": "image", "mimeType": "image/png"})),
    sampling(said("user", {"type": "audio", "data": "AA=="})),
    sampling(said("user", {"type": "audio", "mimeType": "audio/wav"})),
    sampling(said("user", {"type": "resource", "resource": {}})),
    sampling(said("assistant", {"type": "tool_use", "id": "1", "name": "n"})),
    sampling(said("assistant", {"type": "tool_use", "id": 1, "name": "n", "input": {}})),
    sampling(said("user", {"type": "tool_result", "toolUseId": "1"})),
    sampling(said("user", {"type": "tool_result", "toolUseId": "1", "content": "x"})),
    sampling(maxTokens=None),
    sampling(maxTokens="100"),
    sampling(maxTokens=True),
    sampling(systemPrompt=3),
    sampling(temperature="hot"),
    sampling(temperature=None),
    sampling(stopSequences="END"),
    sampling(modelPreferences=[]),
    sampling(metadata="m"),
    sampling(tools={}),
    sampling(toolChoice="auto"),
)


@pytest.mark.parametrize("request_", WRONG_SHAPES, ids=lambda value: json.dumps(value)[:90])
@pytest.mark.parametrize("capabilities", [EVERYTHING, {"elicitation": {}}], ids=["all", "few"])
def test_an_input_request_of_a_wrong_shape_fails_the_round(
    request_: Any, capabilities: Any
) -> None:
    assert failure_of_request(request_, capabilities) == (
        Cause.INVALID_INPUT_REQUEST,
        f"input request 'k': {MISSHAPEN}",
    )


@pytest.mark.parametrize(
    "request_", [form(message="7"), sampling(said("user", text("7")))], ids=str
)
def test_an_integer_of_very_many_digits_is_no_text(request_: Any) -> None:
    asked = '{"inputRequests":' + json.dumps({"k": request_}) + "}"
    result = reply_with(asked).object("result")
    assert result is not None
    assert len(session_of().read_round(result)) == 1
    result = reply_with(asked.replace('"7"', "7" * 5000)).object("result")
    assert result is not None
    with pytest.raises(bridge.BridgeError) as raised:
        session_of().read_round(result)
    assert raised.value.detail == f"input request 'k': {MISSHAPEN}"


TOOLS_DETAIL: Final = "sampling with tools needs sampling.tools, and the client did not declare it"
UNDECLARED: Final[tuple[tuple[Any, Any, str], ...]] = (
    (form(), {}, "the client did not declare elicitation.form"),
    (form(), {"elicitation": {"url": {}}}, "the client did not declare elicitation.form"),
    (form(requestedSchema={"type": "text"}), {}, "the client did not declare elicitation.form"),
    (empty_form(), {}, "the client did not declare elicitation.form"),
    (url(), {}, "the client did not declare elicitation.url"),
    (url(), {"elicitation": {}}, "the client did not declare elicitation.url"),
    (url(), {"elicitation": {"form": {}}}, "the client did not declare elicitation.url"),
    (url("javascript:x"), {}, "the client did not declare elicitation.url"),
    (sampling(), {}, "the client did not declare sampling"),
    (sampling(tools=[]), {}, "the client did not declare sampling"),
    (sampling(tools=[]), VS_CODE, TOOLS_DETAIL),
    (sampling(toolChoice={"mode": "none"}), VS_CODE, TOOLS_DETAIL),
    (sampling(said("assistant", use("1"))), VS_CODE, TOOLS_DETAIL),
    (sampling(said("user", [outcome("1")])), VS_CODE, TOOLS_DETAIL),
    (ROOTS, {}, "the client did not declare roots"),
)


@pytest.mark.parametrize(
    ("request_", "capabilities", "detail"), UNDECLARED, ids=lambda value: json.dumps(value)[:40]
)
def test_what_the_client_did_not_declare_fails_the_round(
    request_: Any, capabilities: Any, detail: str
) -> None:
    session = session_of({"roots": {}, **capabilities} if request_ is not ROOTS else capabilities)
    requests = {"good": ROOTS, "k": request_} if request_ is not ROOTS else {"k": ROOTS}
    assert failure_of(session, inputRequests=requests) == (
        Cause.UNDECLARED_INPUT_REQUEST,
        f"input request 'k': {detail}",
    )


def test_an_empty_elicitation_capability_means_forms_alone() -> None:
    assert ask(form(), session_of({"elicitation": {}})).params


@pytest.mark.parametrize("context", ["thisServer", "allServers", 3])
def test_the_context_of_sampling_is_not_examined(context: Any) -> None:
    params = ask(sampling(includeContext=context), session_of(VS_CODE)).params
    assert params is not None
    assert params["includeContext"] == context


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array"},
        {"type": "object", "properties": {"a": {"type": "object"}}},
        {"type": "object", "properties": {"a": {"$ref": "#/properties/a"}}},
        {"type": "object", "properties": {}, "required": ["a"]},
    ],
    ids=json.dumps,
)
def test_a_schema_that_makes_no_form_fails_the_round(schema: Any) -> None:
    assert failure_of_request(form(requestedSchema=schema)) == (
        Cause.INVALID_INPUT_REQUEST,
        "input request 'k': the requestedSchema does not compile",
    )


def test_the_key_in_a_detail_is_cut_and_clean() -> None:
    key = "a\n\x1b[31m\u202e\u2028\ud800" + "x" * (1 << 20)
    for request, session in (("junk", session_of()), (ROOTS, session_of({}))):
        _, detail = failure_of(session, inputRequests={key: request})
        assert detail.startswith("input request 'a  [31m  ?xxx")
        assert detail.isprintable()
        assert len(detail) < 250
    question = ask(form(), key=key)
    assert len(wrong_answer(question, result={"action": "accept"})) < 250


@pytest.mark.parametrize("key", ["", "__proto__", "a.b/c", "\u00e9", "0"])
def test_a_key_may_be_any_text(key: str) -> None:
    assert ask(ROOTS, key=key).key == key


# Tool results in sampling -----------------------------------------------------

ASKED: Final = said("user", text("Weather?"))
BALANCED: Final[tuple[list[Any], ...]] = (
    [ASKED, said("assistant", use("1")), said("user", outcome("1"))],
    [ASKED, said("assistant", [use("1")]), said("user", [outcome("1")])],
    [said("assistant", [use("1"), use("2")]), said("user", [outcome("2"), outcome("1")])],
    [said("assistant", [text(), use("1")]), said("user", outcome("1")), said("assistant", text())],
    [
        said("assistant", use("1")),
        said("user", outcome("1")),
        said("assistant", use("1")),
        said("user", outcome("1")),
        ASKED,
    ],
    [said("assistant", [use("1"), use("1")]), said("user", [outcome("1"), outcome("1")])],
)
UNBALANCED: Final[tuple[list[Any], ...]] = (
    [said("assistant", use("1"))],
    [said("assistant", use("1")), ASKED],
    [said("assistant", use("1")), ASKED, said("user", outcome("1"))],
    [said("assistant", [use("1"), use("2")]), said("user", outcome("1"))],
    [said("assistant", use("1")), said("user", [outcome("1"), outcome("2")])],
    [said("assistant", use("1")), said("user", [outcome("1"), outcome("1")])],
    [said("assistant", use("1")), said("user", outcome("2"))],
    [said("assistant", use("1")), said("user", [text("Here:"), outcome("1")])],
    [said("assistant", use("1")), said("assistant", outcome("1"))],
    [said("assistant", [use("1"), use("2")]), *(said("user", outcome(n)) for n in "12")],
    [said("user", outcome("1"))],
    [ASKED, said("user", outcome("1"))],
    [said("user", use("1")), said("user", outcome("1"))],
)


@pytest.mark.parametrize("messages", BALANCED, ids=range(len(BALANCED)))
def test_tool_results_that_follow_their_uses_reach_the_client(messages: list[Any]) -> None:
    question = ask(sampling(*messages, tools=[{"name": "weather"}]))
    assert question.params == {
        "messages": messages,
        "maxTokens": 100,
        "tools": [{"name": "weather"}],
    }


@pytest.mark.parametrize("messages", UNBALANCED, ids=range(len(UNBALANCED)))
def test_tool_results_that_do_not_follow_their_uses_fail_the_round(messages: list[Any]) -> None:
    assert failure_of_request(sampling(*messages)) == (
        Cause.INVALID_INPUT_REQUEST,
        "input request 'k': the sampling messages do not obey the tool result rules",
    )


def test_many_messages_are_checked_in_time() -> None:
    pair = [said("assistant", [use(str(n)) for n in range(50)])]
    pair += [said("user", [outcome(str(n)) for n in range(50)])]
    result = result_of(inputRequests={"k": sampling(*pair * 500)})
    started = time.process_time()
    session_of().read_round(result)
    assert time.process_time() - started < 30  # of the processor: what is not linear takes minutes


# The URL rule -----------------------------------------------------------------

SHOWN: Final = (
    "https://example.com",
    "https://example.com/",
    "HTTPS://Example.com/A?b=c#d",
    "https://example.com:8443/x",
    "https://example.com:/x",
    "https://example.com:0/",
    "https://example.com:65535/",
    "https://example.com./",
    "https://example.com?x",
    "https://example.com#x",
    "https://example.com/@evil.example",
    "https://example.com/?u=a@b:c",
    "https://example.com/a[1]=2&b=%5C%zz",
    "https://example.com/~user/!$&'()*+,;=:@",
    "https://xn--mnchen-3ya.example/",
    "https://xn--80ak6aa92e.com/",
    "https://a_b.example/",
    "https://localhost/",
    "https://10.0.0.1/",
    "https://255.255.255.255/",
    "https://1.2.3.4.example/",
    "https://123abc/",
    "https://0xyz.example/",
    "https://[::1]/",
    "https://[::]/",
    "https://[2001:DB8::8a2e:370:7334]:8443/x",
    "https://[1:2:3:4:5:6:7:8]/",
    "https://[1:2:3:4:5:6:7::]/",
    "https://" + "a" * 253 + "/",
    "http://localhost",
    "http://LOCALHOST:8080/cb?x#y",
    "http://127.0.0.1/",
    "http://127.0.0.1:3000/x",
    "http://127.255.255.255/",
    "http://[::1]:1/",
    "HTTP://[::1]",
)
REFUSED: Final = (
    # other schemes, and none
    *("", " ", "example.com", "//example.com/", "/x", "?x", "#x", "https", "https:", "://x"),
    *("javascript:alert(1)", "JavaScript://example.com/%0aalert(1)", "data:text/html,x"),
    *("vscode://ext/x", "vscode-insiders://ext", "command:workbench.action.quit", "ms-settings:"),
    *("file:///etc/passwd", "file://host/share", "ftp://example.com/", "ws://localhost/"),
    *("view-source:https://example.com", "blob:https://example.com/x", "about:blank"),
    *("mailto:a@b", "tel:1", "urn:a:b", "httpss://example.com/", "xhttps://example.com/"),
    *("http+unix://localhost/", "https.://example.com/", "http\u017f://example.com/"),
    # too few or too many slashes, no host
    *("https:/example.com", "https:example.com", "https:///example.com", "https:////example.com"),
    *("https://", "https:///", "https://?x", "https://#x", "https://:443/", "http:localhost"),
    # backslash
    *(r"https:\\example.com", r"https:/\example.com/", r"https://good.example\@evil.example/"),
    *(r"https://good.example\.evil.example/", r"https://good.example/\evil", r"https:\/\/x/"),
    *(r"https://good.example?\@evil.example", r"http://localhost\@evil.example/"),
    # user information
    *("https://user@example.com/", "https://user:pass@example.com/", "https://@example.com/"),
    *("https://good.example@evil.example/", "https://good.example:443@evil.example/"),
    *("https://good.example%40evil.example/", "http://127.0.0.1@evil.example/"),
    *("http://localhost:80@evil.example/", "http://user@localhost/", "http://[::1]@evil.example/"),
    # blanks, tabs, line ends, controls, and marks that no URL has
    *(" https://example.com/", "https://example.com/ ", "https://exa mple.com/", "https: //x/"),
    *("https://exam\tple.com/", "ht\ntps://example.com/", "https://example.com/\r\nX: y"),
    *("https://example.com\n", "https://example.com/\n", "\thttps://example.com/", "https://a\0/"),
    *("https://example.com/\x00", "https://example.com/\x1b[31m", "https://example.com/\x7f"),
    *("https://example.com/\x85", "https://example.com/\u2028", "https://example.com/\u202e"),
    *('https://example.com/"', "https://example.com/<b>", "https://example.com/`id`"),
    *("https://example.com/^", "https://example.com/{a}", "https://example.com/a|b"),
    # other letters and dots
    *("https://ex\u00e4mple.com/", "https://\u0430pple.com/", "https://example\u3002com/"),
    *("https://example\uff0ecom/", "https://example.com/\u00e4", "https://\u2460\u2461/"),
    *("https://good.example\u2044evil.example/", "https://good.example\uff03.evil.example/"),
    *("http://127\u30020\u30020\u30021/", "http://loca\u017fhost/", "http://localho\u017ft/"),
    *("http://\u0661\u0662\u0667.0.0.1/", "http://127.0.0.\u0661/", "https://exa\u00admple.com/"),
    *("https://exa\u200dmple.com/", "https://\ud800/", "http\u02d0//example.com"),
    # a percent sign in the host
    *("https://exam%70le.com/", "https://%65xample.com/", "http://%6cocalhost/", "https://a%2f/"),
    # punycode that stands for plain letters
    *("https://xn--google-.com/", "https://a.xn--localhost-/", "https://xn--/", "https://XN--a-.b"),
    # what a browser takes for another address
    *("https://2130706433/", "https://0/", "https://0x7f000001/", "https://0x/", "https://1.2.3/"),
    *("https://127.1/", "https://0177.0.0.1/", "https://1.2.3.04/", "https://1.2.3.4./"),
    *("https://1.2.3.256/", "https://1.2.3.4.5/", "https://example.123/", "https://example.0xa/"),
    *("https://256.256.256.256/", "https://1.2.3.0x4/", "https://example.com.1./"),
    # http to anything but this machine
    *("http://example.com/", "http://10.0.0.1/", "http://192.168.0.1/", "http://128.0.0.1/"),
    *("http://localhost.", "http://localhost./", "http://localhost.evil.example/"),
    *("http://evil.localhost/", "http://localhost.localdomain/", "http://xlocalhost/"),
    *("http://127.0.0.1.evil.example/", "http://127.0.0.1.nip.io/", "http://a.127.0.0.1/"),
    *("http://0.0.0.0/", "http://0/", "http://2130706433/", "http://0x7f.1/", "http://127.1/"),
    *("http://127.0.1/", "http://127.0.0.01/", "http://127.0.0.010/", "http://0177.0.0.1/"),
    *("http://127.0.0.1./", "http://127.0.0.256/", "http://127.0.0/", "http://1270.0.0.1/"),
    *("http://127.0.0.1.1/", "http://[::]/", "http://[0:0:0:0:0:0:0:1]/", "http://[::01]/"),
    *("http://[::ffff:127.0.0.1]/", "http://[::ffff:7f00:1]/", "http://[::2]/"),
    *("http://169.254.169.254/", "http://metadata/", "http://ip6-localhost/"),
    # broken brackets and zones
    *("https://[]/", "https://[::1/", "https://::1/", "https://[::1]x/", "https://[::1].x/"),
    *("https://[:]/", "https://[:::]/", "https://[1:2]/", "https://[1::2::3]/", "https://[::g]/"),
    *("https://[12345::]/", "https://[1:2:3:4:5:6:7:8:9]/", "https://[1:2:3:4:5:6:7:8::]/"),
    *("https://[fe80::1%25eth0]/", "https://[fe80::1%eth0]/", "https://[v1.a]/", "http://[::1%1]/"),
    *("https://[::1]:x/", "https://[example.com]/", "https://[[::1]]/", "https://[::1.2.3.4]/"),
    # ports
    *("https://example.com:99999/", "https://example.com:65536/", "https://example.com:-1/"),
    *("https://example.com:+1/", "https://example.com:x/", "https://example.com:80:80/"),
    *("https://example.com:0000443/", "https://example.com:8_0/", "https://example.com:\u0661/"),
    *("http://localhost:80.evil.example/", "http://localhost:99999/", "http://127.0.0.1:x/"),
    # too long
    "https://" + "a" * 254 + "/",
)


def test_a_url_to_https_or_to_this_machine_is_shown() -> None:
    assert [address for address in SHOWN if not bridge.may_show_url(address)] == []


def test_each_other_url_is_refused() -> None:
    assert [address for address in REFUSED if bridge.may_show_url(address)] == []


def test_a_refused_url_is_declined_and_never_shown() -> None:
    question = ask(url("https://user@example.com/"))
    assert question.params is None
    assert bridge.read_answer(question, None) == {"action": "decline"}


def test_a_refused_url_does_not_fail_the_questions_beside_it() -> None:
    requests = {"bad": url("file:///x"), "good": url(), "roots": ROOTS}
    bad, good, roots = session_of().read_round(result_of(inputRequests=requests))
    assert (bad.params, roots.params) == (None, {})
    assert good.params is not None
    assert good.params["elicitationId"] == "elicitation-1"


def test_a_huge_url_is_looked_at_in_time() -> None:
    started = time.process_time()
    for tail in ("", "\n", "\u00e4"):
        for head in ("https://example.com/", "https://", "https://a.", "https://[", "https://0x"):
            shown = bridge.may_show_url(head + "1" * (8 << 20) + tail)
            assert shown is (head == "https://example.com/" and not tail)
    assert time.process_time() - started < 30  # of the processor, as above


# The questions ----------------------------------------------------------------


def frame_of(question: Question) -> dict[str, Any]:
    frame = bridge.build_question("b-1", question)
    assert frame.endswith(b"}\n")
    assert frame.count(b"\n") == 1
    found: dict[str, Any] = json.loads(frame)
    return found


def test_each_kind_of_question_goes_out_with_its_params_but_no_task() -> None:
    extra: dict[str, Any] = {"task": {"ttl": 1}, "_meta": {"a": [1.5, None]}, "x-own": {"b": "\n"}}
    kept = {key: value for key, value in extra.items() if key != "task"}
    for request in (form(**extra), url(**extra), sampling(**extra)):
        frame = frame_of(ask(request))
        added = {"elicitationId": "elicitation-1"} if "url" in request["params"] else {}
        added.update({"mode": "form"} if "requestedSchema" in request["params"] else {})
        expected = {k: v for k, v in request["params"].items() if k != "task"}
        assert frame == {
            "jsonrpc": "2.0",
            "id": "b-1",
            "method": request["method"],
            "params": {**expected, **kept, **added},
        }
    for request in (ROOTS, {"method": "roots/list", "params": {"task": {}}}):
        assert frame_of(ask(request))["params"] == {}


def test_what_goes_to_the_client_is_valid_by_the_official_types() -> None:
    need_peer_python("mcp2")
    checker = FrameChecker()
    session = session_of()
    messages = [said("assistant", use("1")), said("user", outcome("1"))]
    requests = {"f": form(), "e": empty_form(), "u": url(), "s": sampling(*messages), "r": ROOTS}
    questions = session.read_round(result_of(inputRequests=requests))
    for number, question in enumerate(questions):
        checker.check("to_client", bridge.build_question(f"b-{number}", question))
    accept(questions[2])
    checker.check("to_client", bridge.build_question("b-9", ask(url(), session)))
    checker.check("to_client", bridge.build_completed("elicitation-1"))
    assert not checker.problems()


@pytest.mark.parametrize("mode", [{}, {"mode": "form"}])
def test_a_form_without_a_mode_is_a_form(mode: dict[str, Any]) -> None:
    assert frame_of(ask(form(**mode)))["params"]["mode"] == "form"


def test_the_client_gets_the_form_that_it_can_show() -> None:
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/A"}},
        "$defs": {"A": {"enum": [1, 2]}},
    }
    question = ask(form(requestedSchema=schema))
    assert frame_of(question)["params"]["requestedSchema"] == {
        "type": "object",
        "properties": {"a": {"type": "string", "enum": ["1", "2"]}},
    }
    accepted = {"action": "accept", "content": {"a": "2"}}
    assert answer(question, result=accepted) == {"action": "accept", "content": {"a": 2}}


def test_an_elicitation_id_of_the_server_is_replaced_by_ours() -> None:
    session = session_of()
    requests = {"a": url(elicitationId="same"), "b": url(URL + "2", elicitationId="same")}
    questions = session.read_round(result_of(inputRequests=requests))
    ids = [frame_of(question)["params"]["elicitationId"] for question in questions]
    assert ids == ["elicitation-1", "elicitation-2"]


def test_a_question_in_any_letters_is_one_line_of_ascii() -> None:
    words = "\u00e9\u2028\u0085\U0001f600\ud800\r\n\0"
    frame = bridge.build_question("b-1", ask(form(message=words)))
    assert frame.isascii()
    assert frame.count(b"\n") == 1
    assert json.loads(frame)["params"]["message"] == words


# Answers of the client --------------------------------------------------------

ELICITATIONS: Final = {"form": form(), "empty form": empty_form(), "url": url()}
ERROR: Final = {"code": -32000, "message": "No.", "data": {"why": [1.0, "\u00e9"]}}


@pytest.mark.parametrize("kind", ELICITATIONS)
@pytest.mark.parametrize("action", ["decline", "cancel"])
@pytest.mark.parametrize("content", [{}, {"content": {"name": "Ada"}}, {"content": None}], ids=str)
def test_a_refusal_of_an_elicitation_has_no_content(
    kind: str, action: str, content: dict[str, Any]
) -> None:
    question = ask(ELICITATIONS[kind])
    assert answer(question, result={"action": action, **content}) == {"action": action}


@pytest.mark.parametrize("kind", ELICITATIONS)
def test_an_error_or_a_broken_answer_to_an_elicitation_is_a_cancel(kind: str) -> None:
    question = ask(ELICITATIONS[kind])
    assert bridge.read_answer(question, None) == {"action": "cancel"}
    assert answer(question, error=ERROR) == {"action": "cancel"}
    wrong: list[Any] = [None, "no", {}, {"code": "x", "message": "m"}, {"code": 1}, []]
    for error in wrong:
        assert answer(question, error=error) == {"action": "cancel"}


@pytest.mark.parametrize("kind", ELICITATIONS)
@pytest.mark.parametrize(
    "result",
    [None, "accept", [], {}, {"action": "Accept"}, {"action": None}, {"action": ["accept"]}],
    ids=json.dumps,
)
def test_an_answer_to_an_elicitation_without_an_action_is_invalid(kind: str, result: Any) -> None:
    question = ask(ELICITATIONS[kind])
    assert wrong_answer(question, result=result).startswith("input request 'k': ")


def test_accepted_content_that_fits_goes_to_the_server() -> None:
    content = {"name": "Ad\u00e4\ud800", "more": [1.5]}
    result = {"action": "accept", "content": content, "_meta": {"a": 1}}
    assert answer(ask(form()), result=result) == {"action": "accept", "content": content}


@pytest.mark.parametrize(
    "members",
    [
        {},
        {"content": None},
        {"content": []},
        {"content": "Ada"},
        {"content": {}},
        {"content": {"name": ""}},
        {"content": {"name": ["Ada"]}},
        {"content": {"Name": "Ada"}},
    ],
    ids=json.dumps,
)
def test_accepted_content_that_does_not_fit_is_invalid(members: dict[str, Any]) -> None:
    detail = wrong_answer(ask(form()), result={"action": "accept", **members})
    assert detail == "input request 'k': the content is not valid against the requestedSchema"


def test_a_form_without_a_required_property_may_be_accepted_without_content() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    question = ask(form(requestedSchema=schema))
    assert answer(question, result={"action": "accept"}) == {"action": "accept", "content": {}}


@pytest.mark.parametrize("content", [{}, {"content": {"a": 1}}], ids=str)
def test_an_accepted_url_never_has_content(content: dict[str, Any]) -> None:
    assert answer(ask(url()), result={"action": "accept", **content}) == {"action": "accept"}


SAMPLED: Final[tuple[dict[str, Any], ...]] = (
    {"role": "assistant", "content": text(), "model": "m"},
    {"role": "assistant", "content": [text(), use("1")], "model": "m", "stopReason": "toolUse"},
    {"role": "assistant", "content": [], "model": "m", "_meta": {"a": 1}},
    {"role": "user", "content": text(""), "model": "", "stopReason": "cancelled"},  # Copilot's no
    {"role": "assistant", "content": {"type": "image", "data": "", "mimeType": "x"}, "model": "m"},
)


@pytest.mark.parametrize("result", SAMPLED, ids=range(len(SAMPLED)))
def test_a_sampling_result_goes_to_the_server_as_it_came(result: dict[str, Any]) -> None:
    assert answer(ask(sampling()), result=result) == result


@pytest.mark.parametrize(
    "result",
    [
        None,
        [],
        {},
        {"role": "assistant", "content": text()},
        {"role": "assistant", "model": "m"},
        {"role": "assistant", "content": "Hello", "model": "m"},
        {"role": "assistant", "content": [None], "model": "m"},
        {"role": "system", "content": text(), "model": "m"},
        {"role": ["user"], "content": text(), "model": "m"},
        {"role": "assistant", "content": text(), "model": 3},
        {"role": "assistant", "content": text(), "model": "m", "stopReason": None},
        {"action": "accept"},
    ],
    ids=json.dumps,
)
def test_a_sampling_result_of_a_wrong_shape_is_invalid(result: Any) -> None:
    assert wrong_answer(ask(sampling()), result=result).startswith("input request 'k': the ")


def test_only_the_roots_of_files_go_to_the_server() -> None:
    kept = [{"uri": "file:///a", "name": "A", "_meta": {"x": 1}}, {"uri": "file://host/b"}]
    gone = ["vscode-remote://ssh/a", "untitled:a", "https://example.com/", "file:/a", " file:///a"]
    roots = [kept[0], *({"uri": uri} for uri in gone), kept[1]]
    assert answer(ask(ROOTS), result={"roots": roots, "_meta": {}}) == {"roots": kept}
    assert answer(ask(ROOTS), result={"roots": []}) == {"roots": []}


@pytest.mark.parametrize(
    "result",
    [
        None,
        {},
        {"roots": None},
        {"roots": {"uri": "file:///a"}},
        {"roots": ["file:///a"]},
        {"roots": [{"name": "a"}]},
        {"roots": [{"uri": 3}]},
        {"roots": [{"uri": "file:///a", "name": None}]},
        {"roots": [{"uri": "file:///a"}, None]},
    ],
    ids=json.dumps,
)
def test_a_list_of_roots_of_a_wrong_shape_is_invalid(result: Any) -> None:
    assert wrong_answer(ask(ROOTS), result=result).startswith("input request 'k': the ")


@pytest.mark.parametrize("request_", [sampling(), ROOTS], ids=["sampling", "roots"])
def test_an_error_to_sampling_or_roots_is_the_error_of_the_request(request_: Any) -> None:
    line = b'{"id":"b-1", "error" : {"code":-32000, "message":"N\\u006f.","data":{"a":1.0}} }'
    with pytest.raises(ClientRefusedError) as raised:
        bridge.read_answer(ask(request_), bridge.parse_frame(line, 64))
    assert raised.value.error == b'{"code":-32000, "message":"N\\u006f.","data":{"a":1.0}}'
    assert raised.value.message == "No."


@pytest.mark.parametrize("request_", [sampling(), ROOTS], ids=["sampling", "roots"])
def test_a_broken_answer_to_sampling_or_roots_is_invalid(request_: Any) -> None:
    question = ask(request_)
    with pytest.raises(bridge.BridgeError) as raised:
        bridge.read_answer(question, None)
    assert raised.value.cause is Cause.INVALID_CLIENT_ANSWER
    assert raised.value.detail == "input request 'k': the answer is a line that is not valid"
    assert wrong_answer(question, error="no") == raised.value.detail


# The Continue form ------------------------------------------------------------


def test_a_form_without_a_property_becomes_the_continue_form() -> None:
    question = ask(empty_form(mode="form", _meta={"a": 1}))
    assert frame_of(question)["params"] == {
        "mode": "form",
        "message": "Who are you?",
        "requestedSchema": CONTINUE,
    }
    for content in ({}, {"content": {"continue": "Continue"}}, {"content": None}):
        assert answer(question, result={"action": "accept", **content}) == {
            "action": "accept",
            "content": {},
        }


def accept(question: Question) -> None:
    assert answer(question, result={"action": "accept"}) == {"action": "accept"}


def test_a_url_that_the_user_accepted_becomes_the_continue_form() -> None:
    session = session_of()
    accept(ask(url(), session))
    question = ask(url(message="Again"), session, key="other")
    assert frame_of(question)["params"] == {
        "mode": "form",
        "message": "Complete the step in the web browser. Then select Continue.",
        "requestedSchema": CONTINUE,
    }
    result = {"action": "accept", "content": {"continue": "Continue"}}
    assert answer(question, result=result) == {"action": "accept"}
    assert answer(question, result={"action": "decline"}) == {"action": "decline"}
    assert answer(question, result={"action": "cancel"}) == {"action": "cancel"}
    assert answer(question, error=ERROR) == {"action": "cancel"}
    assert bridge.read_answer(question, None) == {"action": "cancel"}


@pytest.mark.parametrize("action", ["decline", "cancel"])
def test_a_url_that_the_user_did_not_accept_is_shown_again_as_a_new_step(action: str) -> None:
    session = session_of()
    answer(ask(url(), session), result={"action": action})
    assert frame_of(ask(url(), session))["params"]["elicitationId"] == "elicitation-2"
    assert session.take_completed() == []


def test_without_forms_the_client_gets_the_same_step_again() -> None:
    session = session_of({"elicitation": {"url": {}}})
    for _ in range(2):
        question = ask(url(), session)
        assert frame_of(question)["params"]["elicitationId"] == "elicitation-1"
        accept(question)
    assert session.take_completed() == ["elicitation-1"]


def test_another_url_is_another_step() -> None:
    session = session_of()
    accept(ask(url(), session))
    question = ask(url(URL + "#2"), session)
    assert frame_of(question)["params"]["elicitationId"] == "elicitation-2"


# The complete notification ----------------------------------------------------


def complete(session: InputSession, **requests: Any) -> list[str]:
    """The steps that are complete after a round with these requests."""
    return session.take_completed(session.read_round(result_of(inputRequests=requests)))


def test_a_step_is_complete_when_the_next_result_does_not_ask_for_its_url() -> None:
    session = session_of()
    accept(ask(url(), session))
    accept(ask(url(URL + "2"), session))
    assert complete(session, x=url(), y=url(URL + "2")) == []
    assert complete(session, x=url(), y=ROOTS, z=url("file:///x")) == ["elicitation-2"]
    assert complete(session, y=form(url=URL)) == ["elicitation-1"]
    assert session.take_completed() == []


def test_every_accepted_step_is_complete_when_the_rounds_stop() -> None:
    session = session_of()
    requests = {"a": url(), "b": url(), "c": url(URL + "3"), "d": url(URL + "4")}
    questions = session.read_round(result_of(inputRequests=requests))
    for question in questions[:3]:
        accept(question)
    answer(questions[3], result={"action": "decline"})
    assert session.take_completed() == ["elicitation-1", "elicitation-2", "elicitation-3"]


def test_a_result_that_asks_for_nothing_completes_every_step() -> None:
    session = session_of()
    accept(ask(url(), session))
    assert complete(session) == ["elicitation-1"]


def test_a_url_whose_step_is_complete_gets_a_new_step() -> None:
    session = session_of()
    accept(ask(url(), session))
    assert complete(session) == ["elicitation-1"]
    question = ask(url(), session)
    assert frame_of(question)["params"]["elicitationId"] == "elicitation-2"


def test_a_step_of_one_request_is_unknown_to_another() -> None:
    accepted, other = session_of(), session_of()
    accept(ask(url(), accepted))
    assert frame_of(ask(url(), other))["params"]["mode"] == "url"
    assert other.take_completed() == []


def test_the_complete_notification_names_the_step() -> None:
    frame = bridge.build_completed("elicitation-7")
    assert frame.endswith(b"\n")
    assert json.loads(frame) == {
        "jsonrpc": "2.0",
        "method": "notifications/elicitation/complete",
        "params": {"elicitationId": "elicitation-7"},
    }


# The retry, and the state of the request --------------------------------------

FIRST: Final[list[Any]] = [b'"name": "t"', b'"arguments" : {"b":1.0,"a":"\\u00e9"}']


def retry(result: str, responses: dict[str, Any] | None = None) -> bytes:
    found = reply_with(result).object("result")
    assert found is not None
    return b",".join(bridge.retry_members(FIRST, found, responses or {}))


def test_the_retry_has_the_first_params_then_the_answers_then_the_state() -> None:
    sent = retry('{"requestState":"s\\u0000\\/","x":1}', {"k": {"action": "accept"}})
    assert sent == (
        b",".join(FIRST)
        + b',"inputResponses":{"k":{"action":"accept"}}'
        + b',"requestState":"s\\u0000\\/"'
    )
    assert FIRST == [b'"name": "t"', b'"arguments" : {"b":1.0,"a":"\\u00e9"}']


def test_without_answers_or_a_state_the_retry_has_none() -> None:
    assert retry("{}") == b",".join(FIRST)
    assert retry('{"inputRequests":{},"requestState":""}') == (
        b",".join(FIRST) + b',"requestState":""'
    )


def test_the_state_of_an_earlier_round_is_not_kept() -> None:
    assert b"one" in retry('{"requestState":"one"}')
    assert b"one" not in retry('{"requestState":"two"}')
    assert b"requestState" not in retry("{}", {"k": {"action": "cancel"}})


def test_of_two_states_the_last_is_sent_once() -> None:
    sent = retry('{"requestState":"one","requestState" : "two"}')
    assert json.loads(b"{" + sent + b"}")["requestState"] == "two"
    assert sent.count(b"requestState") == 1


def test_a_state_of_the_client_is_no_state_of_the_server() -> None:
    line = b'{"id":1,"params":{"requestState":"own","a":1,"inputResponses":{},"task":{}}}'
    params = bridge.parse_frame(line, 64).object("params")
    assert bridge.params_to_modern(params) == [b'"a":1']


def test_a_big_state_is_not_copied() -> None:
    state = '"' + "s\u00e9" * (1 << 20) + '"'
    found = reply_with('{"requestState":' + state + "}").object("result")
    assert found is not None
    member = bridge.retry_members([], found, {})[0]
    assert isinstance(member, memoryview)
    assert member.obj is found.line
    assert bytes(member) == b'"requestState":' + state.encode()


def error_reply(error: str) -> bridge.RawObject:
    return bridge.parse_frame(f'{{"jsonrpc":"2.0","id":7,"error":{error}}}'.encode(), 200)


def refused(method: str, error: str) -> dict[str, Any] | None:
    pieces = bridge.state_refused(method, b'"c1"', error_reply(error))
    return None if pieces is None else json.loads(b"".join(pieces))


INVALID: Final = (
    '{"code":-32602,"message":"Stale \\u00e9 state","data":{"reason":"x","n":1.0},"own":1}'
)


def test_a_refused_state_of_a_call_is_a_result_that_says_what_to_do() -> None:
    frame = refused("tools/call", INVALID)
    assert frame is not None
    (block,) = frame["result"].pop("content")
    assert frame == {"jsonrpc": "2.0", "id": "c1", "result": {"isError": True}}
    assert block["type"] == "text"
    assert "did not accept the state" in block["text"]
    assert "Stale \u00e9 state" in block["text"]
    assert block["text"].endswith("Run the tool again.")


@pytest.mark.parametrize("method", ["prompts/get", "resources/read"])
def test_a_refused_state_of_another_method_is_an_error_with_the_same_text(method: str) -> None:
    frame, call = refused(method, INVALID), refused("tools/call", INVALID)
    assert frame is not None
    assert call is not None
    shown = call["result"]["content"][0]["text"].replace("Run the tool again.", "")
    assert frame == {
        "jsonrpc": "2.0",
        "id": "c1",
        "error": {
            "code": -32602,
            "message": shown + "Send the request again.",
            "data": {"reason": "x", "n": 1.0},
            "own": 1,
        },
    }
    bare = refused(method, '{"code":-32602,"message":"m"}')
    assert bare is not None
    assert set(bare["error"]) == {"code", "message"}


@pytest.mark.parametrize(
    "error",
    [
        '{"code":-32603,"message":"m"}',
        '{"code":-32602.0,"message":"m"}',
        '{"code":"-32602","message":"m"}',
        '{"code":-32602}',
        "null",
    ],
)
def test_any_other_error_is_no_refused_state(error: str) -> None:
    assert refused("tools/call", error) is None


def test_a_result_is_no_refused_state() -> None:
    assert bridge.state_refused("tools/call", b"1", reply_with('{"code":-32602}')) is None
