"""The section `messages`: JSON in and out, the text of each member, ids, depth, lost ids."""

from __future__ import annotations

import json
from typing import Any

import pytest

import mcp_bridge_vscode as bridge
from mcp_bridge_vscode import (
    BridgeError,
    Cause,
    LongInteger,
    RawObject,
    encode_frame,
    encode_json,
    id_key,
    is_deeper,
    parse_frame,
    parse_json,
    parse_object,
    recover_id,
    scan_elements,
)

DEPTH = 64
MANY_DIGITS = b"1" * 5000  # more than int() takes
BIG = b"x" * (1 << 16)


def shown(value: object) -> str:
    """The id of a test, cut."""
    return repr(value)[:40]


def frame(line: bytes | str, depth: int = DEPTH) -> RawObject:
    return parse_frame(line if isinstance(line, bytes) else line.encode(), depth)


def cause_of(line: bytes | str, depth: int = DEPTH) -> Cause:
    with pytest.raises(BridgeError) as caught:
        frame(line, depth)
    return caught.value.cause


# A frame ------------------------------------------------------------------------


def test_each_member_has_its_value_and_its_text() -> None:
    found = frame(b' { "id" : 7 ,\t"method":"tools/list", "x": [1, {"a": null}] } ')
    assert found.value() == {"id": 7, "method": "tools/list", "x": [1, {"a": None}]}
    assert bytes(found.raw("id")) == b"7"
    assert bytes(found.raw("x")) == b'[1, {"a": null}]'
    assert found.kept({"id"}) == [b'"method":"tools/list"', b'"x": [1, {"a": null}]']


def test_a_member_that_is_not_there_is_none() -> None:
    found = frame(b'{"a":null}')
    assert "a" in found
    assert "b" not in found
    assert found.get("a") is found.get("b") is found.peek("b") is found.get_str("b") is None
    assert found.object("b") is None


@pytest.mark.parametrize("text", [b"{}", b" {} ", b"{ }", b"{\r\n\t}"])
def test_an_empty_object_has_no_member(text: bytes) -> None:
    assert frame(text).members == {}


def test_params_and_result_know_their_own_members() -> None:
    found = frame(b'{"params":{"name":"x","arguments":{"a":1}},"result":{},"other":{"b":2}}')
    params = found.object("params")
    assert params is found.peek("params")
    assert params is not None
    assert bytes(params.raw("arguments")) == b'{"a":1}'
    assert found.get("params") == {"name": "x", "arguments": {"a": 1}}
    assert found.value()["result"] == {}


def test_any_other_object_gets_its_members_when_somebody_asks() -> None:
    found = frame(b'{"params":{"_meta":{"progressToken": "t", "y":2}}}').object("params")
    assert found is not None
    meta = found.object("_meta")
    assert meta is not None
    assert bytes(meta.raw("progressToken")) == b'"t"'


def test_what_is_no_object_has_no_members_of_its_own() -> None:
    found = frame(b'{"params":[1],"x":"{}"}')
    assert found.object("params") is found.object("x") is None


def test_of_two_equal_members_the_last_counts() -> None:
    found = frame(b'{"id":1,"id":2,"x":{"a":1,"a":2}}')
    assert found.value() == {"id": 2, "x": {"a": 2}}
    assert found.kept(()) == [b'"id":2', b'"x":{"a":1,"a":2}']


def test_text_that_is_not_ascii_is_read_from_its_own_bytes() -> None:
    found = frame('{"id":"é","x":["€"],"n":1,"b":true,"z":null,"p":{"ü":"😀"},"s":"plain"}')
    assert found.value() == {
        "id": "é", "x": ["€"], "n": 1, "b": True, "z": None, "p": {"ü": "😀"}, "s": "plain",
    }  # fmt: skip
    assert bytes(found.raw("id")).decode() == '"é"'
    assert found.get_str("id") == "é"
    assert found.get_str("s") == "plain"
    assert found.get_str("n") is None


def test_two_keys_that_look_alike_in_bytes_stay_two() -> None:
    """The escapes spell the two bytes of the other key, each as a character."""
    found = frame('{"\\u00c3\\u00a9":1,"é":2,"params":{"é":3,"\\u00c3\\u00a9":4}}')
    assert found.value() == {"Ã©": 1, "é": 2, "params": {"é": 3, "Ã©": 4}}
    inner = parse_object('{"é":3,"\\u00c3\\u00a9":4}'.encode())
    assert inner.value() == {"é": 3, "Ã©": 4}


def test_an_escaped_key_is_the_same_key() -> None:
    assert frame(b'{"\\u0069d":5}').get("id") == 5


def test_an_escape_can_say_a_string_that_is_not_ascii_in_ascii() -> None:
    assert frame(b'{"x":"\\u00e9\\ud83d\\ude00"}').get_str("x") == "é😀"


def test_a_lone_surrogate_is_kept() -> None:
    found = frame(b'{"x":"\\ud800"}')
    assert found.get("x") == "\ud800"
    assert bytes(found.raw("x")) == b'"\\ud800"'


def test_line_separators_are_ordinary_characters() -> None:
    text = "a\u2028b\u2029c\u0085d"
    assert frame(json.dumps({"x": text}, ensure_ascii=False)).get("x") == text


def test_a_big_member_is_not_copied() -> None:
    found = frame(b'{"small":1,"big":"' + BIG + b'"}')
    small, big = found.kept(())
    assert bytes(small) == b'"small":1'
    assert isinstance(big, memoryview)
    assert big.obj is found.line
    assert bytes(big) == b'"big":"' + BIG + b'"'
    assert isinstance(found.raw("big"), memoryview)
    assert isinstance(found.raw("small"), bytes)


@pytest.mark.parametrize(
    "text",
    [
        b"", b" ", b"{", b'{"', b'{"a"', b'{"a":', b'{"a":1', b'{"a":1,', b"{,}", b'{"a" 1}',
        b'{"a":1 "b":2}', b'{"a":1}}', b'{"a":1} x', b"{1:2}", b'{"a":}', b'{"a":1,}', b"{a:1}",
        b"{'a':1}", b'{"a":tru}', b'{"a":01}', b'{"a":+1}', b'{"a":.5}', b'{"a":"\n"}',
        b'{"a":"\\x"}', b'{"a":"\\u12"}', b"nul", b"[1", b'{"params":{"a"}}', b'{"result":{"a":}}',
        b'{"a":NaN}', b'{"a":Infinity}', b'{"a":[-Infinity]}', b"NaN", b"\xef\xbb\xbf{}",
        b'{"a":"\xff"}', b'{"a":"\xed\xa0\x80"}', b'{"a":"\xc0\xaf"}', b'{"a":"\xe2\x82"}', b"\0{}",
        b'{"a":1}\0', b'{"a":\x0b1}', b'{"n":' + MANY_DIGITS + b"x}", b"{} {}",
        b'{"n":' + MANY_DIGITS + b',"a":NaN}', b'{"n":' + MANY_DIGITS + b',"a":[x]}', b"\xff",
    ],
    ids=shown,
)  # fmt: skip
def test_what_is_not_json_in_utf_8_is_a_parse_error(text: bytes) -> None:
    assert cause_of(text) is Cause.PARSE_ERROR


@pytest.mark.parametrize(
    "text", [b"1", b"[]", b'"x"', b"null", b" [1, 2] ", MANY_DIGITS, b"-0.5"], ids=shown
)
def test_json_that_is_no_object_has_not_the_shape_of_a_request(text: bytes) -> None:
    assert cause_of(text) is Cause.INVALID_REQUEST_SHAPE


def test_utf_16_is_not_guessed() -> None:
    assert cause_of('{"a":1}'.encode("utf-16")) is Cause.PARSE_ERROR


def test_a_number_that_is_too_large_for_a_float_goes_on_as_its_text() -> None:
    found = frame(b'{"a":1e999,"b":-1e999}')
    assert bytes(found.raw("a")) == b"1e999"
    assert found.get("a") == float("inf")


@pytest.mark.parametrize("sign", [b"", b"-"])
def test_an_integer_of_very_many_digits_is_kept_as_its_text(sign: bytes) -> None:
    digits = sign + MANY_DIGITS
    found = frame(b'{"id":' + digits + b',"params":{"_meta":{"x":' + digits + b',"y":1}}}')
    assert found.get("id") == digits.decode()
    assert type(found.peek("id")) is LongInteger
    params = found.object("params")
    assert params is not None
    meta = params.object("_meta")
    assert meta is not None
    assert bytes(meta.raw("x")) == digits
    assert meta.get("y") == 1
    assert found.get_str("id") is None


def test_an_integer_of_very_many_digits_beside_other_characters_is_read_too() -> None:
    found = frame(b'{"x":[' + MANY_DIGITS + ',"é"]}'.encode())
    assert found.get("x") == [MANY_DIGITS.decode(), "é"]


def test_an_integer_of_many_digits_that_python_takes_is_a_number() -> None:
    assert frame(b'{"a":' + b"9" * 400 + b"}").get("a") == int("9" * 400)


# Depth --------------------------------------------------------------------------


def nested(levels: int, opener: bytes = b"[", closer: bytes = b"]") -> bytes:
    return b'{"a":' + opener * (levels - 1) + b"1" + closer * (levels - 1) + b"}"


@pytest.mark.parametrize(("opener", "closer"), [(b"[", b"]"), (b'{"b":', b"}")])
def test_the_depth_is_exact(opener: bytes, closer: bytes) -> None:
    assert frame(nested(DEPTH, opener, closer)).get("a")
    assert cause_of(nested(DEPTH + 1, opener, closer)) is Cause.TOO_DEEP


def test_the_depth_error_names_the_limit() -> None:
    with pytest.raises(BridgeError) as caught:
        frame(nested(4), 3)
    assert caught.value.detail == "limit: 3 levels"


def test_brackets_in_strings_are_no_levels() -> None:
    line = json.dumps({"a": "[{" * 1000, "b": '"[' * 100, "\\": "\\", "c": "\\[", 'd"[': "\\\\"})
    assert frame(line, 2).get("a") == "[{" * 1000


def test_brackets_side_by_side_are_no_levels() -> None:
    assert frame(b'{"a":[' + b",".join([b"[]"] * 500) + b"]}", 3).get("a") == [[]] * 500


def test_a_line_of_100000_openers_ends_at_once() -> None:
    assert cause_of(b"[" * 100_000, 200) is Cause.TOO_DEEP


def test_a_string_over_the_border_of_a_window_stays_a_string() -> None:
    window = bridge._DEPTH_WINDOW
    line = b'{"a":"' + b"[" * (window + 100) + b'","b":[[1]]}'
    assert not is_deeper(line, 3)
    assert is_deeper(line, 2)


def test_closing_brackets_that_nothing_opened_do_not_make_room() -> None:
    """The scanner stops at the first one, so what follows is not read."""
    assert cause_of(b"]" * 10 + b"[" * 10, 5) is Cause.PARSE_ERROR


# Elements and objects of a text that is known to be valid -----------------------------


def test_each_element_of_an_array_has_its_place() -> None:
    raw = '[ 1 , {"a":[2]},"é]," ,\n[ ] ]'.encode()
    assert [raw[a:b].decode() for a, b in scan_elements(raw)] == ["1", '{"a":[2]}', '"é],"', "[ ]"]


@pytest.mark.parametrize("raw", [b"[]", b"[ ]", b"[\n]"])
def test_an_empty_array_has_no_element(raw: bytes) -> None:
    assert scan_elements(raw) == []


def test_an_element_may_have_very_many_digits() -> None:
    raw = b"[1," + MANY_DIGITS + b',{"a":' + MANY_DIGITS + b"}]"
    assert [b - a for a, b in scan_elements(raw)] == [1, 5000, 5006]


# JSON values --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b"1", 1),
        (b' {"a": [true, null]}\n', {"a": [True, None]}),
        ('"é"'.encode(), "é"),
        (b"1e999", float("inf")),
        (MANY_DIGITS, MANY_DIGITS.decode()),
    ],
    ids=shown,
)
def test_a_json_text_becomes_its_value(text: bytes, value: Any) -> None:
    assert parse_json(text) == value


@pytest.mark.parametrize(
    "text",
    [
        b"", b" ", b"x", b"1 2", b"[", b"[x]", b"NaN", b"[Infinity]", b"-Infinity", b'"\xff"',
        MANY_DIGITS + b" 1", b"[" + MANY_DIGITS + b",x]", b"[" + MANY_DIGITS + b",NaN]",
        b"\xef\xbb\xbf1",
    ],
    ids=shown,
)  # fmt: skip
def test_what_is_no_json_text_has_no_value(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_json(text)


def test_a_value_becomes_compact_ascii() -> None:
    text = encode_json({"a": [1, 2.5, None, True], "é": "😀\n"})
    assert text == b'{"a":[1,2.5,null,true],"\\u00e9":"\\ud83d\\ude00\\n"}'


def test_a_frame_is_one_line_of_a_message() -> None:
    text = encode_frame(id="b-1", method="m", params={"a": "\n"})
    assert text == b'{"jsonrpc":"2.0","id":"b-1","method":"m","params":{"a":"\\n"}}\n'


def test_a_lone_surrogate_is_written_as_its_escape() -> None:
    assert encode_json("\ud800x\udfff") == b'"\\ud800x\\udfff"'


def test_an_infinity_is_written_as_the_largest_number() -> None:
    text = encode_json({"a": [float("inf"), 1.5, "x"], "b": {"c": float("-inf")}, "d": None})
    largest = b"1.7976931348623157e+308"
    assert text == b'{"a":[%s,1.5,"x"],"b":{"c":-%s},"d":null}' % (largest, largest)


@pytest.mark.parametrize(("refuses", "is_bounded"), [(True, True), (False, False)])
def test_it_is_known_whether_python_bounds_the_digits_itself(
    monkeypatch: pytest.MonkeyPatch, refuses: bool, is_bounded: bool
) -> None:
    def convert(text: str) -> int:
        assert len(text) > 4300
        if refuses:
            raise ValueError
        return 1

    monkeypatch.setattr(bridge, "int", convert, raising=False)
    assert bridge._is_int_bounded() is is_bounded


# UTF-8 --------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", "a", "é€😀", "\U0010ffff"])
def test_utf_8_is_utf_8(text: str) -> None:
    assert bridge.is_utf8(text.encode())


@pytest.mark.parametrize("line", [b"\x80", b"\xc3", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xc1a"])
def test_what_is_not_utf_8_is_seen(line: bytes) -> None:
    assert not bridge.is_utf8(line)


@pytest.mark.parametrize("shift", range(4))
def test_a_character_over_the_border_of_a_window_is_whole(shift: int) -> None:
    before = b"x" * (bridge._DEPTH_WINDOW - shift)
    assert bridge.is_utf8(before + "😀".encode() + b"x")
    assert not bridge.is_utf8(before + "😀".encode()[:3])
    assert not bridge.is_utf8(before + "😀".encode()[:3] + b"x")


# Ids ----------------------------------------------------------------------------


@pytest.mark.parametrize("value", [0, 1, -1, "", "1", "é", LongInteger("1" * 5000)], ids=shown)
def test_a_string_or_an_integer_is_an_id(value: object) -> None:
    assert id_key(value) is value


@pytest.mark.parametrize("value", [True, False, None, 1.0, 1.5, [], {}, b"1"])
def test_anything_else_is_none(value: object) -> None:
    assert id_key(value) is None


@pytest.mark.parametrize(
    ("head", "found"),
    [
        (b'{"jsonrpc":"2.0","id":7,"method":"x', b"7"),
        (b'{"id":"a b","x', b'"a b"'),
        (b'{ "id" : -12 , "x', b"-12"),
        (b'{"a":{"id":1},"id":2,', b"2"),
        (b'{"a":[{"id":1}],"b":"\\"id\\":3","id":2}', b"2"),
        ('{"id":"é","x'.encode(), '"é"'.encode()),
        (b'{"id":"\\ud800","x', b'"\\ud800"'),
        (b'{"a":tru,"id":4}', b"4"),
        (b'{"id":' + b"1" * 200 + b",", b"1" * 200),
        (b'{"x":"id","id":5}', b"5"),
    ],
)
def test_the_id_is_found_at_the_begin_of_a_broken_line(head: bytes, found: bytes) -> None:
    assert recover_id(head) == found


@pytest.mark.parametrize(
    "head",
    [
        b"", b"{}", b'{"id":', b'{"id"', b'{"id":null,', b'{"id":true,', b'{"id":1.0,',
        b'{"id":1e3,',
        b'{"id":[1],', b'{"id":{"id":1}}', b'{"a":{"id":1}', b'{"params":{"id":1},"x', b'[{"id":1}',
        b'"id":1', b'{"id":7', b'{"id":"abc', b'{"x":"\\"id\\":7,', b'{"a":"id\\":7', b'{"id":7x,',
        b'{"id":"\xff",', b'{"id":01,', b'{"id":"5 and more', b'{"id":"[{5,', b'{"idx":1,',
        b'{"x":"text, \\"id\\": 5, more',
    ],
)  # fmt: skip
def test_no_id_is_made_up(head: bytes) -> None:
    assert recover_id(head) == b""


@pytest.mark.parametrize(
    ("tail", "found"),
    [
        (b'xxx","jsonrpc":"2.0","id":7}', b"7"),
        (b'xxx,"id": "a" }\r', b'"a"'),
        (b'{"id":-3}', b"-3"),
        (b'"id":"\\"}"}', b'"\\"}"'),
        (b'"id":7', b""),
        (b'"id":7}}', b""),
        (b'"id":7.5}', b""),
        (b'"id":null}', b""),
        (b'"id":7} x', b""),
        (b'\\"id\\":7}', b""),
    ],
)
def test_an_id_is_found_at_the_end_of_a_long_line(tail: bytes, found: bytes) -> None:
    assert recover_id(b'{"result":{"x":"yyyy', tail) == found


def test_the_id_at_the_begin_counts_more_than_one_at_the_end() -> None:
    assert recover_id(b'{"id":1,"x":"', b'"id":2}') == b"1"


def test_an_id_at_the_begin_that_is_cut_is_not_replaced_by_one_at_the_end() -> None:
    assert recover_id(b'{"id":"abc', b'def","params":{"id":2}') == b""
