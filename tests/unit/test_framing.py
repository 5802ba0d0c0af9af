"""The section `framing`: chunks of bytes, split anywhere, become lines."""

from __future__ import annotations

from typing import Union

import pytest

from mcp_bridge_vscode import LineFramer, LongLine

LIMIT, EDGE = 20, 4
MARK = b"\xef\xbb\xbf"
# A line as the tests compare it: the bytes, or head, tail and "has it ended?" of a long one.
Seen = Union[bytes, "tuple[bytes, bytes, bool]"]


def framer(limit: int = LIMIT) -> LineFramer:
    return LineFramer(limit, EDGE)


def seen(lines: list[bytes | LongLine]) -> list[Seen]:
    return [x if isinstance(x, bytes) else (x.head, x.tail, x.ended) for x in lines]


def fed(*chunks: bytes, limit: int = LIMIT) -> list[Seen]:
    """What each chunk gave, at the moment when it gave it."""
    cutter = framer(limit)
    return [line for chunk in chunks for line in seen(cutter.feed(chunk))]


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_a_line_ends_at_lf_and_a_cr_before_it_is_no_part_of_it(end: bytes) -> None:
    assert fed(b"one" + end) == [b"one"]
    assert fed(b"one" + end + b"two" + end) == [b"one", b"two"]
    assert fed(b"o", b"ne" + end[:1], end[1:] or b"x\n")[0] == b"one"


@pytest.mark.parametrize("split", [0, 1, 2, 3])
def test_one_cr_is_cut_wherever_the_chunk_ends(split: int) -> None:
    text = b"a\r\r\n"
    assert fed(text[:split], text[split:]) == [b"a\r"]


def test_other_line_ends_are_ordinary_characters() -> None:
    text = "a\u2028b\u2029c\u0085d\x0be\x0cf\rg".encode()
    assert fed(text + b"\n", limit=100) == [text]


def test_a_line_without_an_end_is_not_given_yet() -> None:
    cutter = framer()
    assert cutter.feed(b"one") == []
    assert cutter.finish() == b"one"
    assert cutter.feed(b"\n") == [b"one"]
    assert cutter.finish() == b""


@pytest.mark.parametrize("blank", [b"\n", b"\r\n", b"  \t\r\n", b"\n\n\n", b"\r\r\n"])
def test_blank_lines_are_left_out(blank: bytes) -> None:
    assert fed(blank) == []
    assert fed(b"a\n" + blank + b"b\n") == [b"a", b"b"]
    assert fed(b" ", blank, b"b\n") == [b"b"]


def test_an_empty_chunk_changes_nothing() -> None:
    assert fed(b"", b"a", b"", b"b\n", b"") == [b"ab"]


def test_blanks_around_a_message_stay() -> None:
    assert fed(b" {} \n") == [b" {} "]


# The byte order mark --------------------------------------------------------------


@pytest.mark.parametrize("split", [0, 1, 2, 3, 4])
def test_a_byte_order_mark_at_the_start_is_dropped(split: int) -> None:
    text = MARK + b"{}\n"
    assert fed(text[:split], text[split:]) == [b"{}"]


def test_a_byte_order_mark_in_three_pieces_is_dropped() -> None:
    assert fed(MARK[:1], MARK[1:2], MARK[2:], b"{}\n") == [b"{}"]


def test_a_mark_elsewhere_is_part_of_its_line() -> None:
    assert fed(MARK + MARK + b"a\n", MARK + b"b\n") == [MARK + b"a", MARK + b"b"]


def test_what_only_begins_like_a_mark_is_kept() -> None:
    assert fed(b"\xef", b"\xbba\n") == [b"\xef\xbba"]
    assert fed(b"\xef", b"\n") == [b"\xef"]


def test_half_a_mark_at_the_end_is_what_is_left() -> None:
    cutter = framer()
    cutter.feed(MARK[:2])
    assert cutter.finish() == MARK[:2]


# The limit ------------------------------------------------------------------------


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_a_line_of_just_the_limit_is_a_line(end: bytes) -> None:
    line = b"x" * LIMIT
    assert fed(line + end) == [line]
    assert fed(line, end) == [line]
    assert fed(line[:5], line[5:] + end[:1], end[1:] or b"y\n")[0] == line


def test_one_byte_more_is_too_long_however_it_comes() -> None:
    line = b"abcd" + b"x" * (LIMIT - 7) + b"wxyz"
    assert len(line) == LIMIT + 1
    # only its end shows that the last byte is no CR
    expected = [(b"abcd", b"", False), (b"abcd", b"wxyz", True)]
    assert fed(line + b"\n") == expected
    assert fed(line, b"\n") == expected
    assert fed(line + b"\nnext\n")[-1] == b"next"


def test_a_long_line_is_told_when_it_passes_the_limit_and_when_it_ends() -> None:
    cutter = framer()
    assert cutter.feed(b"head" + b"x" * (LIMIT - 4)) == []
    assert seen(cutter.feed(b"yyyyy")) == [(b"head", b"", False)]
    assert cutter.feed(b"z" * 100) == []
    assert seen(cutter.feed(b"tail\nnext\n")) == [(b"head", b"tail", True), b"next"]


def test_a_line_that_begins_and_ends_in_one_chunk_is_told_twice_too() -> None:
    """Who refuses it at its end does so once."""
    assert fed(b"x" * 100 + b"y\n") == [(b"xxxx", b"", False), (b"xxxx", b"xxxy", True)]


def test_the_tail_is_gathered_over_small_chunks() -> None:
    cutter = framer()
    for byte in b"abcdefgh" + b"x" * LIMIT + b"ijkl":
        cutter.feed(bytes([byte]))
    assert seen(cutter.feed(b"\n")) == [(b"abcd", b"ijkl", True)]


def test_the_tail_of_a_long_line_has_its_cr() -> None:
    assert fed(b"x" * 100 + b"abc\r\n")[-1] == (b"xxxx", b"abc\r", True)


def test_nothing_of_a_long_line_is_left_when_the_input_ends() -> None:
    cutter = framer()
    cutter.feed(b"x" * 100)
    assert cutter.finish() == b""


def test_two_long_lines_are_two() -> None:
    lines = fed(b"a" * 100 + b"\n" + b"b" * 100 + b"\n")
    assert [line[0] for line in lines] == [b"aaaa", b"aaaa", b"bbbb", b"bbbb"]


def held_by(value: object) -> int:
    """How many bytes of text an object holds, whatever it is made of."""
    if isinstance(value, (bytes, bytearray)):
        return len(value)
    if isinstance(value, (list, tuple)):
        return sum(held_by(item) for item in value)
    if isinstance(value, LongLine):
        return len(value.head) + len(value.tail)
    return sum(held_by(item) for item in vars(value).values()) if hasattr(value, "__dict__") else 0


def test_an_endless_line_takes_no_more_memory_than_the_limit() -> None:
    """Counted, not measured: what the framer holds after each chunk."""
    cutter, most = framer(), 0
    for _ in range(2000):
        cutter.feed(b"x" * 13)
        most = max(most, held_by(cutter))
    assert LIMIT - 13 <= most <= LIMIT + 1 + 2 * EDGE
