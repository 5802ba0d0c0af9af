"""The section `to_legacy`: what the server answered, as a client of 2025-11-25 reads it."""

from __future__ import annotations

import json
from typing import Any

import pytest

import mcp_bridge_vscode as bridge
from mcp_bridge_vscode import (
    BridgeError,
    Cause,
    RawObject,
    build_error,
    build_response,
    discover_error,
    error_to_legacy,
    is_odd_refusal,
    log_to_legacy,
    parse_error_reply,
    parse_object,
    progress_to_legacy,
    rebuild,
    result_to_legacy,
)

SERVER_INFO = '"io.modelcontextprotocol/serverInfo"'
MODERN = '"resultType":"complete","ttlMs":0,"cacheScope":"public"'
METHODS = sorted(m for m, r in bridge.METHODS.items() if r.carried is bridge.Carried.FORWARDED)
LISTS = sorted(bridge.LIST_METHODS)
MANY_DIGITS = "1" * 5000


def raw(text: str) -> RawObject:
    return parse_object(text.encode())


def text_of(method: str, result: str, notes: list[str] | None = None) -> str:
    """The result for the client, as its text."""
    return b"".join(result_to_legacy(method, raw(result), [] if notes is None else notes)).decode()


def frame(error: str) -> RawObject:
    return raw('{"jsonrpc":"2.0","id":1,"error":' + error + "}")


# Frames ---------------------------------------------------------------------------


def test_a_response_has_the_id_of_the_client_as_it_came() -> None:
    text = b"".join(build_response(b'"\\u00e9"', [b'{"a":', b"1}"]))
    assert text == b'{"jsonrpc":"2.0","id":"\\u00e9","result":{"a":1}}\n'


def test_an_error_has_the_id_of_the_client_as_it_came() -> None:
    text = build_error(b"1e0", b'{"code":1,"message":"x"}')
    assert text == b'{"jsonrpc":"2.0","id":1e0,"error":{"code":1,"message":"x"}}\n'


def test_an_object_is_rebuilt_with_what_has_changed() -> None:
    original = raw('{"a": 1 ,"b":2,"c":{"d": 3}}')
    text = b"".join(rebuild(original, {"a": None, "b": b"4", "e": b"[5]", "f": None}))
    assert text == b'{"c":{"d": 3},"b":4,"e":[5]}'


@pytest.mark.parametrize("changes", [{}, {"a": None}])
def test_an_object_without_members_is_empty(changes: dict[str, Any]) -> None:
    assert b"".join(rebuild(raw("{}"), changes)) == b"{}"


def test_big_members_are_not_copied() -> None:
    pieces = result_to_legacy("resources/read", raw('{"a":1,"b":"' + "x" * 100_000 + '"}'), [])
    assert [type(piece) for piece in pieces if len(piece) > 1000] == [memoryview]


# The result rules -----------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_the_members_of_the_modern_revision_are_removed(method: str) -> None:
    result = json.loads(text_of(method, "{" + MODERN + ',"x":1}'))
    assert result["x"] == 1
    assert not {"resultType", "ttlMs", "cacheScope"} & set(result)


@pytest.mark.parametrize("method", METHODS)
def test_what_no_rule_names_is_the_text_that_came(method: str) -> None:
    member = '"x" : {"é": 1e999,"\\ud800":[ 1.0,' + MANY_DIGITS + "]}"
    assert member in text_of(method, "{" + MODERN + "," + member + "}")


@pytest.mark.parametrize(
    ("meta", "kept"),
    [
        ("{}", None),
        ("{" + SERVER_INFO + ":{}}", None),
        ("{" + SERVER_INFO + ':1,"a":2}', '{"a":2}'),
        ('{"a": 2,' + SERVER_INFO + ':{"name":"é"},"b":"é"}', '{"a": 2,"b":"é"}'),
        pytest.param(
            '{"a":' + MANY_DIGITS + "," + SERVER_INFO + ":1}",
            '{"a":' + MANY_DIGITS + "}",
            id="many digits",
        ),
        ('{ "a":1 }', '{ "a":1 }'),
        ("null", "null"),
        ("[]", "[]"),
    ],
)
def test_meta_loses_the_name_of_the_server_and_goes_when_it_is_empty(
    meta: str, kept: str | None
) -> None:
    expected = "{}" if kept is None else '{"_meta":' + kept + "}"
    assert text_of("prompts/get", '{"_meta":' + meta + "}") == expected


@pytest.mark.parametrize("method", LISTS)
@pytest.mark.parametrize("cursor", ["null", "0", "false", "[]", "{}", MANY_DIGITS])
def test_a_cursor_that_is_no_string_is_removed(method: str, cursor: str) -> None:
    assert text_of(method, '{"nextCursor":' + cursor + "}") == "{}"


@pytest.mark.parametrize("method", LISTS)
@pytest.mark.parametrize("cursor", ['""', '"é"', '"2"'])
def test_a_cursor_that_is_a_string_stays(method: str, cursor: str) -> None:
    result = '{"nextCursor":' + cursor + "}"
    assert text_of(method, result) == result


def test_only_a_list_has_a_cursor() -> None:
    assert text_of("resources/read", '{"nextCursor":null}') == '{"nextCursor":null}'


# tools/call -----------------------------------------------------------------------


@pytest.mark.parametrize("content", ["", '"content":null', '"content":{}', '"content":"x"'])
def test_a_call_without_a_content_array_gets_an_empty_one(content: str) -> None:
    assert text_of("tools/call", "{" + content + "}") == '{"content":[]}'


@pytest.mark.parametrize("content", ["[]", '[{"type":"text","text":"é"}]', "[1, null]"])
def test_a_content_array_stays_as_it_came(content: str) -> None:
    result = '{"content":' + content + ',"isError":true}'
    assert text_of("tools/call", result) == result


@pytest.mark.parametrize(
    "structured", ['{"a":  "é\\ud800"}', "[1]", "0", "false", '""', "1e999", "1" * 400]
)
def test_structured_content_without_text_gets_a_text(structured: str) -> None:
    result = json.loads(text_of("tools/call", '{"structuredContent":' + structured + "}"))
    assert result["content"] == [{"type": "text", "text": structured}]
    assert text_of("tools/call", '{"structuredContent":' + structured + "}").startswith(
        '{"structuredContent":' + structured
    )


def test_the_text_comes_behind_the_blocks_that_are_there() -> None:
    result = text_of(
        "tools/call", '{"content":[ {"type":"image", "x":"é"} , 3 ],"structuredContent":{}}'
    )
    assert '"content":[ {"type":"image", "x":"é"} , 3 ,{"type":"text","text":"{}"}]' in result
    json.loads(result)


def test_structured_content_with_a_text_block_gets_no_other() -> None:
    result = '{"content":[{"type":"image"},{"type":"text"}],"structuredContent":{"a":1}}'
    assert text_of("tools/call", result) == result


@pytest.mark.parametrize("content", ["", ',"content":[]', ',"content":[{"type":"image"}]'])
def test_structured_content_of_null_gets_no_text(content: str) -> None:
    result = json.loads(text_of("tools/call", '{"structuredContent":null' + content + "}"))
    assert {"type": "text"} not in [{"type": b["type"]} for b in result["content"]]
    assert result["structuredContent"] is None


def test_only_a_call_has_content() -> None:
    assert text_of("prompts/get", '{"structuredContent":{}}') == '{"structuredContent":{}}'


# tools/list -----------------------------------------------------------------------


def tool(**members: Any) -> dict[str, Any]:
    return {"name": "t", "inputSchema": {"type": "object"}, **members}


def listed(*tools: Any) -> tuple[list[Any], list[str]]:
    """The tools that the client gets, and the notes."""
    notes: list[str] = []
    text = text_of("tools/list", json.dumps({"tools": tools}, ensure_ascii=False), notes)
    return json.loads(text)["tools"], notes


def test_tools_that_need_nothing_stay_as_they_came() -> None:
    result = '{"tools": [ {"name":"é" , "inputSchema": {"type":"object"} }, 3, null ]}'
    notes: list[str] = []
    assert text_of("tools/list", result, notes) == result
    assert notes == []


def test_only_the_tool_that_needs_it_changes() -> None:
    good = '{ "name":"good", "inputSchema":{"type":"object"}, "x": ' + MANY_DIGITS + "}"
    bad = '{"name":"bad","inputSchema":{"type":"array"} , "y": "é"}'
    notes: list[str] = []
    text = text_of("tools/list", '{"tools":[' + good + " , " + bad + "]}", notes)
    assert good in text
    changed = '{"name":"bad","y": "é","inputSchema":{"type":"array","items":{}}}'
    assert text == '{"tools":[' + good + "," + changed + "]}"
    assert notes == ["tool 'bad': added an items schema at '' of the input schema"]


def test_an_output_schema_whose_root_is_no_object_is_removed() -> None:
    obj = tool(outputSchema={"type": "object"})
    assert listed(obj) == ([obj], [])
    others: tuple[Any, ...] = (
        *(None, True, "object", [], {}, {"type": "array"}, {"type": ["object"]}),
    )
    for schema in others:
        assert listed(tool(outputSchema=schema), obj)[0] == [tool(), obj]


def test_a_tool_without_an_input_schema_gets_one() -> None:
    tools, notes = listed({"name": "t"})
    assert tools == [tool()]
    assert len(notes) == 1


def test_the_name_of_a_tool_is_clean_and_short_in_a_note() -> None:
    tools, notes = listed({"name": "a\nb\x1b" + "x" * 5000}, {"name": 3})
    assert tools[0]["name"] == "a\nb\x1b" + "x" * 5000
    assert notes[0].startswith("tool 'a b xxx")
    assert len(notes[0]) < 300
    assert notes[1].startswith("tool '': ")


@pytest.mark.parametrize("tools", ["null", "{}", '"x"', "[]", "[1,[],null]"])
def test_tools_of_a_wrong_shape_stay_as_they_came(tools: str) -> None:
    assert text_of("tools/list", '{"tools":' + tools + "}") == '{"tools":' + tools + "}"


def test_a_list_without_tools_stays_without() -> None:
    assert text_of("tools/list", "{}") == "{}"


def test_the_tools_of_another_list_are_not_looked_at() -> None:
    result = '{"tools":[{"name":"t"}]}'
    assert text_of("prompts/list", result) == result


# resultType -----------------------------------------------------------------------


@pytest.mark.parametrize("text", ["{}", '{"resultType":"complete"}', '{"x":{"resultType":1}}'])
def test_a_result_without_a_type_is_complete(text: str) -> None:
    bridge.check_complete(raw(text))


@pytest.mark.parametrize("kind", ['"input_required"', '"Complete"', "null", "1", "[]", '"é"'])
def test_a_result_of_another_type_is_none_for_the_client(kind: str) -> None:
    with pytest.raises(BridgeError) as caught:
        bridge.check_complete(raw('{"resultType":' + kind + "}"))
    assert caught.value.cause is Cause.INVALID_RESPONSE


# Errors ---------------------------------------------------------------------------

NO_ERRORS = [
    "null", "[]", '"x"', "{}", '{"code":1}', '{"message":"x"}', '{"code":"1","message":"x"}',
    '{"code":1.0,"message":"x"}', '{"code":true,"message":"x"}', '{"code":1,"message":null}',
    '{"code":' + MANY_DIGITS + ',"message":"x"}',
]  # fmt: skip


def test_an_error_of_the_server_goes_on_as_it_came() -> None:
    text = '{"code" : -32602,"message":"é","data":{"a": 1e999},"more":[ ]}'
    assert error_to_legacy(frame(text)).decode() == text


@pytest.mark.parametrize("code", ["-32042", " -32042 ", '1,"code":-32042', '0,"c\\u006fde":-32042'])
def test_urls_of_a_server_are_never_opened_for_an_error(code: str) -> None:
    text = '{"code":' + code + ',"message":"é","data":{"elicitations":[{"url":"command:x"}]}}'
    assert json.loads(error_to_legacy(frame(text))) == {"code": -32603, "message": "é"}


@pytest.mark.parametrize("text", NO_ERRORS, ids=lambda text: text[:40])
def test_what_has_not_the_shape_of_an_error_is_none(text: str) -> None:
    assert parse_error_reply(frame(text)) is None
    with pytest.raises(BridgeError) as caught:
        error_to_legacy(frame(text))
    assert caught.value.cause is Cause.INVALID_RESPONSE
    assert discover_error(frame(text)).cause is Cause.INVALID_RESPONSE


def test_a_frame_without_an_error_has_none() -> None:
    assert parse_error_reply(raw("{}")) is None
    assert not is_odd_refusal(raw("{}"))


def test_a_server_that_does_not_know_discover_is_of_the_older_revision() -> None:
    error = discover_error(frame('{"code":-32601,"message":"no\\nsuch method"}'))
    assert (error.cause, error.code) == (Cause.DISCOVER_FAILED, -32601)
    assert error.detail == "error -32601: no such method"
    assert "older revision" in error.message


def test_the_error_for_initialize_has_no_urls_either() -> None:
    error = discover_error(frame('{"code":-32042,"message":"m","data":{"elicitations":[]}}'))
    assert error.code == -32603
    assert set(bridge.error_object(error)) == {"code", "message", "data"}
    assert bridge.error_object(error)["data"] == {
        "cause": "discover_failed",
        "detail": "error -32042: m",
    }


def test_the_text_of_a_server_is_cut_in_the_error_for_initialize() -> None:
    error = discover_error(frame(json.dumps({"code": 1, "message": "x\x1b" * 5_000_000})))
    assert len(error.detail) < 300
    assert "\x1b" not in error.detail


@pytest.mark.parametrize(
    ("data", "named"),
    [
        ('{"supported":["2027-01-01"]}', "2027-01-01"),
        ('{"supported":[]}', "none"),
        ('{"supported":"x"}', "none"),
        ("[]", "none"),
        ("null", "none"),
    ],
)
def test_a_server_of_other_revisions_is_told_from_one_that_is_older(data: str, named: str) -> None:
    error = discover_error(frame('{"code":-32022,"message":"x","data":' + data + "}"))
    assert (error.cause, error.code) == (Cause.DISCOVER_FAILED, -32022)
    assert error.detail.endswith(f"it names: {named}")
    assert error.message == bridge.ERROR_TABLE[Cause.DISCOVER_FAILED][1]


@pytest.mark.parametrize(
    ("error", "is_odd"),
    [
        ('{"code":-32022,"data":{"supported":["2026-07-28"]}}', True),
        ('{"code":-32022,"data":{"supported":["2027-01-01"]}}', False),
        ('{"code":-32022,"data":{"supported":"2026-07-28"}}', False),
        ('{"code":-32022,"data":["2026-07-28"]}', False),
        ('{"code":-32022}', False),
        ('{"code":-32601,"data":{"supported":["2026-07-28"]}}', False),
        ("[]", False),
    ],
)
def test_a_refusal_of_the_very_version_that_it_supports_is_odd(error: str, is_odd: bool) -> None:
    assert is_odd_refusal(frame(error)) is is_odd


# Notifications --------------------------------------------------------------------


def progress(params: str, token: bytes = b'"t"') -> str | None:
    pieces = progress_to_legacy(raw(params), token)
    return None if pieces is None else b"".join(pieces).decode()


@pytest.mark.parametrize(
    ("params", "sent"),
    [
        ('{"progressToken":5,"progress":1}', '"progress":1'),
        (
            '{"total": 2.50 ,"progress":1e999,"message":"é","x":1}',
            '"progress":1e999,"total":2.50,"message":"é"',
        ),
        ('{"progress":0,"total":null,"message":null}', '"progress":0'),
        ('{"progress":-1,"message":""}', '"progress":-1,"message":""'),
    ],
)
def test_progress_goes_on_under_the_token_of_the_client(params: str, sent: str) -> None:
    assert progress(params) == (
        '{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"t",'
        + sent
        + "}}\n"
    )


@pytest.mark.parametrize(
    "params",
    [
        "{}", '{"progress":null}', '{"progress":"1"}', '{"progress":true}', '{"progress":[]}',
        '{"progress":1,"total":"2"}', '{"progress":1,"total":false}', '{"progress":1,"message":2}',
        '{"progress":1,"message":["é"]}', '{"progress":' + MANY_DIGITS + "}",
        '{"progress":1,"message":' + MANY_DIGITS + "}",
    ],
    ids=lambda text: text[:40],
)  # fmt: skip
def test_progress_that_is_not_valid_is_dropped(params: str) -> None:
    assert progress(params) is None


def log(params: str, lowest: str | None = "info") -> str | None:
    pieces = log_to_legacy(raw(params), lowest)
    return None if pieces is None else b"".join(pieces).decode()


@pytest.mark.parametrize(
    ("params", "sent"),
    [
        ('{"level":"info","data": null }', '"level":"info","data":null'),
        (
            '{"data":{"é": 1.0},"_meta":{"x":1},"logger":"é","level":"error","y":2}',
            '"level":"error","logger":"é","data":{"é": 1.0}',
        ),
        ('{"level":"emergency","logger":3,"data":[]}', '"level":"emergency","data":[]'),
        ('{"level":"info","logger":' + MANY_DIGITS + ',"data":1}', '"level":"info","data":1'),
    ],
)
def test_a_log_message_goes_on_without_meta(params: str, sent: str) -> None:
    assert log(params) == (
        '{"jsonrpc":"2.0","method":"notifications/message","params":{' + sent + "}}\n"
    )


@pytest.mark.parametrize(
    "params",
    [
        "{}", '{"level":"info"}', '{"data":1}', '{"level":"loud","data":1}', '{"level":1,"data":1}',
        '{"level":"debug","data":1}', '{"level":["info"],"data":1}',
    ],
)  # fmt: skip
def test_a_log_message_below_the_level_or_not_valid_is_dropped(params: str) -> None:
    assert log(params) is None


def test_without_a_level_no_log_message_goes_on() -> None:
    assert log('{"level":"emergency","data":1}', None) is None
    assert log_to_legacy(None, "debug") is None


@pytest.mark.parametrize("lowest", bridge.LOG_LEVELS)
def test_a_message_of_just_the_level_goes_on(lowest: str) -> None:
    assert log('{"level":"' + lowest + '","data":1}', lowest) is not None
