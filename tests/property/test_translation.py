"""What no rule names survives the bridge byte for byte, ids do, and peers' texts are clean."""

from __future__ import annotations

import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import mcp_bridge_vscode as bridge
from mcp_bridge_vscode import (
    RawObject,
    UpstreamCall,
    build_error,
    build_request,
    build_response,
    clean_text,
    params_to_modern,
    parse_frame,
    parse_object,
    result_to_legacy,
)
from tests.property.strategies import IDS, OBJECTS, PROPERTY, reference

FORWARDED = sorted(
    method for method, row in bridge.METHODS.items() if row.carried is bridge.Carried.FORWARDED
)
BY_RULES = {"resultType", "ttlMs", "cacheScope", "_meta", "nextCursor", "tools", "content"}
MODERN = '"resultType":"complete","ttlMs":1,"cacheScope":"public"'
EXTRAS = st.sampled_from(
    ["", ',"_meta":{"é":[1.0]}', ',"nextCursor":"é"', ',"tools":[{"name":"é"}]', ',"content":[1]']
)


def with_members(text: str, members: str) -> str:
    """The object with more members at its end."""
    return "{" + members + "}" if text[1:-1].strip() == "" else text[:-1] + "," + members + "}"


def texts_of(found: RawObject) -> dict[str, bytes]:
    return {key: bytes(found.raw(key)) for key in found.members}


@pytest.mark.parametrize("method", FORWARDED)
@PROPERTY
@given(text=OBJECTS, extra=EXTRAS)
def test_what_no_rule_names_goes_to_the_client_byte_for_byte(
    method: str, text: str, extra: str
) -> None:
    result = parse_object(with_members(text, MODERN + extra).encode())
    frame = b"".join(build_response(b"1", result_to_legacy(method, result, [])))
    found = parse_frame(frame, 200).object("result")
    assert found is not None
    before, after = texts_of(result), texts_of(found)
    assert {k: v for k, v in before.items() if k not in BY_RULES} == {
        k: v for k, v in after.items() if k not in BY_RULES
    }
    assert not {"resultType", "ttlMs", "cacheScope"} & set(after)


@PROPERTY
@given(OBJECTS)
def test_the_params_go_to_the_server_byte_for_byte(text: str) -> None:
    params = parse_object(text.encode())
    call = UpstreamCall("tools/call", params_to_modern(params), has_progress=True)
    frame = parse_frame(b"".join(build_request(7, call, b'"a":1', None)), 200)
    found = frame.object("params")
    assert found is not None
    before, after = texts_of(params), texts_of(found)
    for ours in (before, after):
        ours.pop("_meta", None)
        ours.pop("task", None)
    assert after == before
    assert found.get("_meta") == {"a": 1, "progressToken": 7}


@PROPERTY
@given(IDS, OBJECTS)
def test_the_id_of_a_request_is_the_id_of_its_answer(raw_id: str, result: str) -> None:
    request = parse_frame(('{"jsonrpc":"2.0","id":' + raw_id + "}").encode(), 64)
    client_id = bytes(request.raw("id"))
    for answer in (
        b"".join(build_response(client_id, [result.encode()])),
        build_error(client_id, b'{"code":1,"message":""}'),
    ):
        assert answer.endswith(b"}\n")
        assert bytes(parse_frame(answer[:-1], 200).raw("id")) == raw_id.encode()


@PROPERTY
@given(OBJECTS, st.dictionaries(st.sampled_from(["id", "x", "new"]), st.none() | st.just(b"[1]")))
def test_a_rebuilt_object_differs_in_the_changes_alone(text: str, changes: Any) -> None:
    original = parse_object(text.encode())
    found = parse_object(b"".join(bridge.rebuild(original, changes)))
    wanted = {k: v for k, v in texts_of(original).items() if k not in changes}
    wanted.update({key: text for key, text in changes.items() if text is not None})
    assert texts_of(found) == wanted
    assert found.value() == reference(found.line)


# Texts of peers ------------------------------------------------------------------------------

TEXTS = st.text(
    st.characters() | st.sampled_from("\x1b\r\n\u202e\u2066\u061c\u2028\ufeff\x9b\ud800")
)
DIRECTIONS = set("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


@PROPERTY
@given(TEXTS, st.integers(3, 40))
def test_a_clean_text_is_one_short_line_without_any_control(text: str, limit: int) -> None:
    shown = clean_text(text, limit)
    assert len(shown) <= limit
    assert not {unicodedata.category(c) for c in shown} & {"Cc", "Cs", "Zl", "Zp"}
    assert not DIRECTIONS & set(shown)
    assert len(shown.splitlines()) <= 1
    shown.encode("utf-8")


@PROPERTY
@given(TEXTS, st.integers(3, 40))
def test_a_clean_text_is_clean_already(text: str, limit: int) -> None:
    shown = clean_text(text, limit)
    assert clean_text(shown, limit) == shown


@PROPERTY
@given(st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E)))
def test_an_ordinary_text_is_not_touched(text: str) -> None:
    assert clean_text(text, len(text) + 3) == text
