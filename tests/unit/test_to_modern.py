"""The section `to_modern`: the frames for the server."""

from __future__ import annotations

import json
from typing import Any

import pytest

import mcp_bridge_vscode as bridge
from mcp_bridge_vscode import (
    METHODS,
    ClientRequest,
    RawObject,
    UpstreamCall,
    build_cancelled,
    build_envelope,
    build_request,
    client_meta,
    meta_to_modern,
    params_to_modern,
    parse_object,
    progress_token,
)

ENVELOPE = build_envelope({"name": "é", "version": "1"}, {"elicitation": {}})
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "é", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}},
}


def raw(text: str) -> RawObject:
    return parse_object(text.encode())


def meta_of(text: str) -> RawObject | None:
    return client_meta(raw('{"_meta":' + text + "}"))


def built(call: UpstreamCall, level: str | None = None, request_id: int = 7) -> Any:
    text = b"".join(build_request(request_id, call, ENVELOPE, level))
    assert text.endswith(b"}\n")
    assert text.count(b"\n") == 1
    return json.loads(text)


# Params ---------------------------------------------------------------------------


def test_every_member_but_meta_and_task_goes_on_as_it_came() -> None:
    params = raw('{"name": "é" ,"_meta":{"x":1},"task":{"ttl":1},"arguments" : {"a": 1e2}}')
    assert [bytes(member).decode() for member in params_to_modern(params)] == [
        '"name": "é"',
        '"arguments" : {"a": 1e2}',
    ]


def test_missing_params_are_none() -> None:
    assert params_to_modern(None) == []
    assert client_meta(None) is None
    assert client_meta(raw("{}")) is None


def test_a_request_of_the_client_knows_its_method_by_its_row() -> None:
    request = ClientRequest("a", b'"a"', METHODS["tools/call"], None)
    assert (request.key, request.raw_id, request.method) == ("a", b'"a"', "tools/call")
    assert request.params is None


@pytest.mark.parametrize(
    ("raw_id", "shown"),
    [
        (b"7", "7"),
        ('"é"'.encode(), '"é"'),
        (b'"\\n\x1b"', '"\\n "'),
        (b'"' + b"x" * 500_000 + b'"', '"' + "x" * 60 + "..."),
        (b'"' + "é".encode() * 100 + b'"', '"' + "é" * 60 + "..."),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_a_request_is_shown_with_an_id_that_people_may_read(raw_id: bytes, shown: str) -> None:
    request = ClientRequest("a", raw_id, METHODS["tools/call"], None)
    assert request.shown_id() == shown
    assert request.shown() == f"request {shown} (tools/call)"


# The progress token ---------------------------------------------------------------


@pytest.mark.parametrize("token", ["0", "1", '"t"', '""', "true", "1.5", '"é"', "1" * 400])
def test_any_value_can_be_a_progress_token(token: str) -> None:
    assert progress_token(meta_of('{"progressToken": ' + token + " }")) == token.encode()


@pytest.mark.parametrize("token", ["null", "[]", "[1]", "{}", '{"a":1}'])
def test_null_and_structures_are_no_token(token: str) -> None:
    assert progress_token(meta_of('{"progressToken":' + token + "}")) is None


@pytest.mark.parametrize("meta", ["{}", "[]", "null", '"progressToken"', '{"other":1}'])
def test_without_a_token_there_is_none(meta: str) -> None:
    assert progress_token(meta_of(meta)) is None


def test_without_params_there_is_no_token() -> None:
    assert progress_token(client_meta(None)) is None


# Meta that passes -----------------------------------------------------------------


def passed(*keys: str) -> list[str]:
    """Those of the keys that go to the server."""
    meta = parse_object(json.dumps(dict.fromkeys(keys, 1), ensure_ascii=False).encode())
    text = b"{" + b",".join(bytes(member) for member in meta_to_modern(meta)) + b"}"
    return list(json.loads(text))


def test_the_keys_of_vs_code_and_of_tracing_pass() -> None:
    keys = ["traceparent", "tracestate", "vscode.conversationId", "vscode.a-b_c.d", "vscode.x/y"]
    assert passed(*keys) == keys


@pytest.mark.parametrize(
    "key",
    [
        "progressToken", "baggage", "Traceparent", "vscode", "VSCODE.x", "xvscode.y",
        "traceparent ", "io.modelcontextprotocol/protocolVersion", "vscode.", "vscode.x-",
        "vscode.é", "vscode.a b", "vscode.a\n", "vscode.x//y", "vscode./y", "vscode.1x/y",
        "vscode.mcp/x", "vscode.modelcontextprotocol/x", "vscode.modelcontextprotocol.a/x", "",
        "vscode." + "x" * 1000,
    ],
)  # fmt: skip
def test_every_other_key_is_dropped(key: str) -> None:
    assert passed("traceparent", key) == ["traceparent"]


@pytest.mark.parametrize("key", ["vscode.amcp/x", "vscode.a.mcp/x", "vscode.x/", "vscode.mcp.x"])
def test_only_the_second_label_of_a_prefix_is_reserved(key: str) -> None:
    assert passed(key) == [key]


def test_a_value_that_passes_is_the_text_that_came() -> None:
    meta = meta_of('{"vscode.x": {"é": 1e999} ,"y":1}')
    assert [bytes(m).decode() for m in meta_to_modern(meta)] == ['"vscode.x": {"é": 1e999}']


def test_without_meta_nothing_passes() -> None:
    assert meta_to_modern(None) == []


# Frames ---------------------------------------------------------------------------


def test_a_request_carries_its_version_and_its_capabilities() -> None:
    assert built(UpstreamCall("tools/list", [])) == {
        "jsonrpc": "2.0",
        "id": 7,
        "method": "tools/list",
        "params": {"_meta": META},
    }


def test_a_request_has_its_params_as_they_came() -> None:
    big = memoryview(b'"big":"' + b"x" * 100_000 + b'"')
    call = UpstreamCall("tools/call", [b'"name":"x"', big])
    pieces = build_request(7, call, ENVELOPE, None)
    assert big in pieces  # not copied
    params = built(call)["params"]
    assert params["name"] == "x"
    assert params["big"] == "x" * 100_000


def test_the_progress_token_is_our_own_id() -> None:
    call = UpstreamCall("tools/call", [], has_progress=True)
    assert built(call, request_id=12)["params"]["_meta"] == {**META, "progressToken": 12}


def test_the_log_level_of_the_client_is_told() -> None:
    meta = built(UpstreamCall("tools/call", []), level="warning")["params"]["_meta"]
    assert meta == {**META, "io.modelcontextprotocol/logLevel": "warning"}


def test_meta_that_passes_stands_beside_ours() -> None:
    call = UpstreamCall("tools/call", [b'"name":"x"'], meta=[b'"vscode.x":1'], has_progress=True)
    params = built(call)["params"]
    assert params["_meta"] == {**META, "progressToken": 7, "vscode.x": 1}
    assert params["name"] == "x"


def test_a_call_is_of_the_first_round_unless_it_says_another() -> None:
    assert UpstreamCall("x", []).round_number == 1
    assert UpstreamCall("x", [], round_number=3, client_id=b"4").round_number == 3


def test_the_envelope_is_the_inside_of_an_object() -> None:
    assert json.loads(b"{" + ENVELOPE + b"}") == META


def test_the_envelope_is_ascii_whatever_the_name_is() -> None:
    envelope = build_envelope({"name": "\ud800\u2028é", "version": "1"}, {})
    assert envelope.isascii()
    assert json.loads(b"{" + envelope + b"}")[bridge.META_CLIENT_INFO]["name"] == "\ud800\u2028é"


def test_a_cancellation_names_the_request_and_the_reason() -> None:
    text = build_cancelled(7, "the client canceled\nthe request")
    assert text.count(b"\n") == 1
    assert json.loads(text) == {
        "jsonrpc": "2.0",
        "method": "notifications/cancelled",
        "params": {"requestId": 7, "reason": "the client canceled\nthe request"},
    }
