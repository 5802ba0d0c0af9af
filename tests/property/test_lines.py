"""Any split of the bytes gives the same lines; the id of a broken line is found, and no other."""

from __future__ import annotations

from typing import Any, Union

from hypothesis import example, given
from hypothesis import strategies as st

from mcp_bridge_vscode import LineFramer, LongLine, recover_id
from tests.property.strategies import IDS, OBJECTS, PROPERTY, STRINGS, VALUES, reference

MARK = b"\xef\xbb\xbf"
EDGE = 5
Seen = Union[bytes, "tuple[bytes, bytes, bool]"]
PIECES = st.one_of(
    st.sampled_from([b"\n", b"\r\n", b"\r", MARK, MARK[:1], MARK[:2], b" ", b"{}", b"\t", b"\x85"]),
    st.binary(max_size=4),
    st.integers(1, 40).map(lambda size: bytes(range(64, 64 + size))),
)
STREAMS = st.lists(PIECES, max_size=12).map(b"".join)


def cut(stream: bytes, cuts: list[int], limit: int) -> tuple[list[Seen], bytes]:
    framer = LineFramer(limit, EDGE)
    borders = [0, *sorted(min(c, len(stream)) for c in cuts), len(stream)]
    found: list[bytes | LongLine] = []
    for start, end in zip(borders, borders[1:]):
        found += framer.feed(stream[start:end])
    seen = [x if isinstance(x, bytes) else (x.head, x.tail, x.ended) for x in found]
    return seen, framer.finish()


def by_the_rules(stream: bytes, limit: int) -> tuple[list[Seen], bytes]:
    """The same, by the shortest code that says what the rules say."""
    seen: list[Seen] = []
    text = stream[len(MARK) :] if stream.startswith(MARK) else stream
    *lines, rest = text.split(b"\n")
    for raw in lines:
        line = raw[:-1] if raw.endswith(b"\r") else raw
        if len(line) > limit:
            seen += [(raw[:EDGE], b"", False), (raw[:EDGE], raw[-EDGE:], True)]
        elif line.strip():
            seen.append(line)
    if len(rest) > limit + 1:
        return [*seen, (rest[:EDGE], b"", False)], b""
    return seen, rest


@PROPERTY
@given(STREAMS, st.lists(st.integers(0, 120), max_size=8), st.integers(EDGE, 30))
@example(MARK + b"a\r\n", [1, 2], 10)
@example(b"x" * 11 + b"\r\n", [11, 12], 11)
@example(b"a\r\r\n", [2], 10)
def test_any_split_gives_the_lines_of_the_rules(stream: bytes, cuts: list[int], limit: int) -> None:
    assert cut(stream, cuts, limit) == by_the_rules(stream, limit)


@PROPERTY
@given(STREAMS, st.integers(EDGE, 30))
def test_one_byte_at_a_time_gives_the_lines_of_the_rules(stream: bytes, limit: int) -> None:
    assert cut(stream, list(range(len(stream))), limit) == by_the_rules(stream, limit)


# Lost ids ---------------------------------------------------------------------------------


def is_other_key(text: str) -> bool:
    return bool(reference(text.encode()) != "id")


OTHER_KEYS = STRINGS.filter(is_other_key)
MEMBERS = st.lists(st.tuples(OTHER_KEYS, VALUES), max_size=3)


def line_of(before: Any, raw_id: str, after: Any) -> tuple[bytes, int]:
    """A request, and where the text of its id ends."""
    start = "".join(f"{key}: {value}," for key, value in before) + '"id" :' + raw_id
    end = "".join(f", {key}:{value}" for key, value in after)
    return ("{" + start + end + "}").encode(), len(("{" + start).encode())


@PROPERTY
@given(MEMBERS, IDS, MEMBERS, st.data())
@example([], '"5 and more"', [], None)
@example([('"params"', '{"id":1}')], "2", [], None)
def test_the_id_of_a_line_that_breaks_off_is_found_when_it_was_whole(
    before: Any, raw_id: str, after: Any, data: Any
) -> None:
    line, end = line_of(before, raw_id, after)
    cuts = range(len(line)) if data is None else [data.draw(st.integers(0, len(line) - 1))]
    for where in cuts:
        is_whole = where >= end if raw_id.startswith('"') else where > end
        assert recover_id(line[:where]) == (raw_id.encode() if is_whole else b"")


@PROPERTY
@given(MEMBERS, IDS, MEMBERS, st.binary(min_size=1, max_size=5), st.data())
def test_the_id_before_what_is_broken_is_found(
    before: Any, raw_id: str, after: Any, garbage: bytes, data: st.DataObject
) -> None:
    line, end = line_of(before, raw_id, after)
    where = data.draw(st.integers(end + 1, len(line)))
    assert recover_id(line[:where] + garbage + line[where:]) == raw_id.encode()


@PROPERTY
@given(st.lists(st.tuples(OTHER_KEYS, VALUES | OBJECTS), max_size=4), st.data())
def test_an_id_that_is_nested_is_never_taken(members: Any, data: st.DataObject) -> None:
    text = "{" + ",".join(f"{key}:{value}" for key, value in members) + "}"
    line = text.encode()
    where = data.draw(st.integers(0, len(line)))
    assert recover_id(line[:where]) == b""
    assert recover_id(b"[" + line) == b""


@PROPERTY
@given(MEMBERS, st.integers(-(10**18), 10**18).map(str) | STRINGS, st.sampled_from(["", " ", "\r"]))
def test_the_id_at_the_end_of_a_line_that_is_too_long_is_found(
    members: Any, raw_id: str, end: str
) -> None:
    start = '{"x":"' + "y" * 300 + '",' + "".join(f"{key}:{value}," for key, value in members)
    line = (start + '"id":' + raw_id + "}" + end).encode()
    assert recover_id(line[:256], line[-256:]) == raw_id.encode()


@PROPERTY
@given(st.binary(max_size=300), st.binary(max_size=300))
def test_from_any_bytes_comes_an_id_or_nothing(head: bytes, tail: bytes) -> None:
    found = recover_id(head, tail)
    if found:
        assert found in head or found in tail
        assert isinstance(reference(found), (int, str))


@PROPERTY
@given(
    st.lists(st.sampled_from([b'"', b"\\", b"{", b'"id"', b":", b"1", b"}", b","])).map(b"".join)
)
def test_from_pieces_of_json_comes_an_id_or_nothing(head: bytes) -> None:
    found = recover_id(head, head)
    assert not found or isinstance(reference(found), (int, str))
