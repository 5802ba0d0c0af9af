"""The work for a hostile input grows with its size and no faster: steps are counted, no time."""

from __future__ import annotations

import json
import re
import sys
from typing import Any, Callable

import pytest

import mcp_bridge_vscode as bridge
from mcp_bridge_vscode import (
    BridgeError,
    LineFramer,
    clean_text,
    is_deeper,
    meta_to_modern,
    parse_frame,
    parse_json,
    parse_object,
    progress_to_legacy,
    recover_id,
    result_to_legacy,
)

SMALL, LARGE = 300, 1200  # four times as large
FILE = bridge.__file__


def steps_of(work: Callable[[], object]) -> int:
    """How many lines of the product run."""
    count = 0

    def trace(frame: Any, event: str, _: object) -> Any:
        nonlocal count
        if frame.f_code.co_filename != FILE:
            return None
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def refused(line: bytes) -> None:
    with pytest.raises(BridgeError):
        parse_frame(line, 200)


def fed_in_bytes(size: int, text: bytes) -> None:
    framer = LineFramer(64, 16)
    for byte in text * size:
        framer.feed(bytes([byte]))


def listed(size: int) -> None:
    tools = [{"name": f"é{n}", "inputSchema": {"type": "array"}} for n in range(size)]
    line = json.dumps({"tools": tools, "é": [1]}).encode()
    result_to_legacy("tools/list", parse_object(line), [])


HOSTILE: dict[str, Callable[[int], object]] = {
    "many openers": lambda n: refused(b"[" * n * 100),
    "many members": lambda n: parse_frame(b"{%s}" % b",".join(b'"%d":1' % i for i in range(n)), 9),
    "many equal members": lambda n: parse_frame(b"{%s}" % b",".join([b'"a":1'] * n), 9),
    "many escapes": lambda n: is_deeper(b'"' + b'\\"[' * n + b'"', 5),
    "many strings": lambda n: is_deeper(b'"[",' * n, 5),
    "open strings": lambda n: recover_id(b'"' * n),
    "long backslashes": lambda n: recover_id(b'{"a":"' + b"\\" * n, b"\\" * n),
    "many ids": lambda n: recover_id(b'{"a":{"id":1},' * n, b'"id":1}' * n),
    "an integer of many digits": lambda n: parse_json(b"1" * n * 10),
    "a long text": lambda n: clean_text("\x1b" * n * 1000, 200),
    "an endless line": lambda n: fed_in_bytes(n, b"x"),
    "many line ends": lambda n: fed_in_bytes(n, b"\r\n"),
    "many keys of meta": lambda n: meta_to_modern(
        parse_object(json.dumps({f"vscode.{i}": 1 for i in range(n)}).encode())
    ),
    "a progress of many members": lambda n: progress_to_legacy(
        parse_object(json.dumps({"progress": 1, **{str(i): 1 for i in range(n)}}).encode()), b"1"
    ),
    "many tools": lambda n: listed(n // 10),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_four_times_the_input_is_about_four_times_the_work(name: str) -> None:
    small, large = (steps_of(lambda n=n: HOSTILE[name](n)) for n in (SMALL, LARGE))  # type: ignore[misc] # bound now
    assert small > 0
    assert large <= 4.5 * small + 50


def test_quadratic_work_would_be_seen() -> None:
    code = compile("for a in range(n):\n for b in range(n):\n  pass", FILE, "exec")
    small, large = (steps_of(lambda n=n: exec(code, {"n": n})) for n in (10, 40))  # type: ignore[misc] # noqa: S102
    assert large > 4.5 * small + 50


def test_what_is_looked_for_in_a_line_has_no_pattern_that_goes_back_and_forth() -> None:
    """What stands under a star never ends in another one: `(a+)*` tries every way to split."""
    owners = (getattr(value, "__self__", value) for value in vars(bridge).values())
    texts = [owner.pattern for owner in owners if isinstance(owner, re.Pattern)]
    assert len(texts) >= 3
    nested = re.compile(r"[^\\][+*]\)[+*]")
    for text in texts:
        shown = text.decode("latin-1") if isinstance(text, bytes) else text
        assert not nested.search(shown), shown
