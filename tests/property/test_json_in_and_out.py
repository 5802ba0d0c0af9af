"""Whatever JSON comes in is read as Python's own reader reads it, and nothing else is raised."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import mcp_bridge_vscode as bridge
from mcp_bridge_vscode import (
    BridgeError,
    Cause,
    RawObject,
    encode_json,
    is_deeper,
    is_utf8,
    parse_frame,
    parse_json,
    parse_object,
    scan_elements,
)
from tests.property.strategies import (
    OBJECTS,
    PLAIN_VALUES,
    PROPERTY,
    VALUES,
    arrays,
    depth_of,
    reference,
)

DEPTH = 100
PARSE_ERRORS = st.sampled_from(
    [
        b"\\",
        b'"',
        b"[",
        b"}",
        b",",
        b":",
        b"NaN",
        b"Infinity",
        b"\xff",
        b"\xc3",
        b"0",
        b"x",
        b"\0",
        b" ",
    ]
)


def outcome(line: bytes, depth: int = DEPTH) -> Any:
    """The frame, or the cause of its refusal; nothing else may be raised."""
    try:
        return parse_frame(line, depth)
    except BridgeError as error:
        return error.cause


def expected(line: bytes) -> Any:
    """The value of the frame, or the cause, by Python's own reader."""
    try:
        value = reference(line)
    except ValueError:
        return Cause.PARSE_ERROR
    return value if isinstance(value, dict) else Cause.INVALID_REQUEST_SHAPE


def assert_same(line: bytes) -> None:
    found, wanted = outcome(line), expected(line)
    if isinstance(wanted, Cause):
        assert found is wanted
        return
    assert isinstance(found, RawObject)
    assert found.value() == wanted
    assert list(found.members) == list(wanted)


@PROPERTY
@given(OBJECTS)
@example('{"\\u00c3\\u00a9":1,"é":2}')
@example('{"params":{"é":1,"\\u00c3\\u00a9":2},"x":' + "7" * 6000 + "}")
def test_a_frame_has_the_members_that_python_reads(text: str) -> None:
    assert_same(text.encode())


@PROPERTY
@given(VALUES)
def test_a_value_is_the_one_that_python_reads(text: str) -> None:
    assert parse_json(text.encode()) == reference(text.encode())


@PROPERTY
@given(OBJECTS)
def test_the_text_of_each_member_is_that_of_its_value(text: str) -> None:
    line = text.encode()
    for found in (parse_frame(line, DEPTH), parse_object(line)):
        for key in found.members:
            assert reference(bytes(found.raw(key))) == found.get(key)
            inner = found.object(key)
            assert (inner is not None) is isinstance(found.get(key), dict)
            if inner is not None:
                assert inner.value() == found.get(key)
                assert all(reference(bytes(inner.raw(k))) == inner.get(k) for k in inner.members)


@PROPERTY
@given(OBJECTS)
def test_the_members_together_are_the_object_again(text: str) -> None:
    line = text.encode()
    kept = parse_frame(line, DEPTH).kept(())
    assert reference(b"{" + b",".join(map(bytes, kept)) + b"}") == reference(line)


@PROPERTY
@given(arrays(VALUES))
def test_the_elements_of_an_array_are_where_they_stand(text: str) -> None:
    raw = text.encode()
    assert [reference(raw[a:b]) for a, b in scan_elements(raw)] == reference(raw)


@PROPERTY
@given(OBJECTS, st.data())
def test_a_broken_frame_is_refused_exactly_when_python_refuses_it(
    text: str, data: st.DataObject
) -> None:
    line = text.encode()
    start = data.draw(st.integers(0, len(line)))
    end = data.draw(st.integers(start, min(len(line), start + 3)))
    assert_same(line[:start] + data.draw(st.one_of(st.just(b""), PARSE_ERRORS)) + line[end:])


@PROPERTY
@given(st.binary(max_size=40))
def test_any_bytes_give_a_frame_or_an_error_of_ours(line: bytes) -> None:
    assert_same(line)


@PROPERTY
@given(st.binary(max_size=60), st.integers(0, 20))
def test_at_any_depth_nothing_but_an_error_of_ours_is_raised(line: bytes, depth: int) -> None:
    assert isinstance(outcome(line, depth), (RawObject, Cause))


@pytest.mark.parametrize("constant", ["NaN", "Infinity", "-Infinity"])
@PROPERTY
@given(data=st.data())
def test_what_is_no_number_is_no_json(constant: str, data: st.DataObject) -> None:
    before, after = data.draw(VALUES), data.draw(VALUES)
    line = f'{{"a":[{before},{constant},{after}]}}'.encode()
    assert outcome(line) is Cause.PARSE_ERROR


# Depth --------------------------------------------------------------------------------


@PROPERTY
@given(VALUES, st.integers(0, 6))
def test_the_depth_is_the_one_of_the_value(text: str, depth: int) -> None:
    line = text.encode()
    assert is_deeper(line, depth) is (depth_of(reference(line)) > depth)


@PROPERTY
@given(OBJECTS, st.integers(1, 6))
def test_a_frame_is_refused_exactly_beyond_its_depth(text: str, depth: int) -> None:
    line = text.encode()
    is_refused = outcome(line, depth) is Cause.TOO_DEEP
    assert is_refused is (depth_of(reference(line)) > depth)


@PROPERTY
@given(st.lists(st.sampled_from(["[", '{"k":', '{ "[": "]", "k" :']), min_size=1, max_size=250))
def test_deep_nesting_is_exact_at_the_limit(openers: list[str]) -> None:
    closers = ["]" if opener == "[" else "}" for opener in reversed(openers)]
    line = ('{"a":' + "".join(openers) + "1" + "".join(closers) + "}").encode()
    levels = len(openers) + 1
    assert isinstance(outcome(line, levels), RawObject)
    assert outcome(line, levels - 1) is Cause.TOO_DEEP


@PROPERTY
@given(st.binary(max_size=60), st.integers(0, 5))
def test_what_protects_the_scanner_never_lets_more_levels_through(line: bytes, depth: int) -> None:
    """For any bytes: what a scanner opens before it stops is within the limit, or it is told."""
    opened = most = 0
    in_string = is_escaped = False
    for byte in line:
        if is_escaped:
            is_escaped = False
        elif in_string:
            is_escaped = byte == 0x5C
            in_string = byte != 0x22
        elif byte in b"[{":
            opened += 1
            most = max(most, opened)
        elif byte in b"]}":
            opened -= 1
        elif byte == 0x22:
            in_string = True
        elif byte == 0x5C:
            break  # no scanner goes on behind a backslash that is in no string
    if most > depth:
        assert is_deeper(line, depth)


@pytest.mark.parametrize("window", [4, 5, 7])
@PROPERTY
@given(text=VALUES, depth=st.integers(0, 5))
def test_neither_depth_nor_utf_8_depend_on_the_window(window: int, text: str, depth: int) -> None:
    line, before = text.encode(), bridge._DEPTH_WINDOW
    try:
        bridge._DEPTH_WINDOW = window  # type: ignore[misc] # small, so that borders fall anywhere
        assert is_deeper(line, depth) is (depth_of(reference(line)) > depth)
        assert is_utf8(line)
    finally:
        bridge._DEPTH_WINDOW = before  # type: ignore[misc] # as it was


@pytest.mark.parametrize("window", [4, 5, 1 << 20])
@PROPERTY
@given(line=st.binary(max_size=12))
def test_utf_8_is_what_python_decodes(window: int, line: bytes) -> None:
    try:
        line.decode("utf-8")
        is_text = True
    except UnicodeDecodeError:
        is_text = False
    before = bridge._DEPTH_WINDOW
    try:
        bridge._DEPTH_WINDOW = window  # type: ignore[misc] # small, so that borders fall anywhere
        assert is_utf8(line) is is_text
    finally:
        bridge._DEPTH_WINDOW = before  # type: ignore[misc] # as it was


# Out ------------------------------------------------------------------------------------


@PROPERTY
@given(PLAIN_VALUES)
def test_what_is_written_is_read_again(value: Any) -> None:
    text = encode_json(value)
    assert text.isascii()
    assert not set(text) & set(b"\r\n")
    assert parse_json(text) == value


@PROPERTY
@given(VALUES)
def test_what_was_read_can_be_written(text: str) -> None:
    """Also with numbers beyond a float: they become the largest ones."""
    value = parse_json(text.encode())
    again = parse_json(encode_json(value))
    assert depth_of(again) == depth_of(value)
    assert encode_json(again) == encode_json(value)
