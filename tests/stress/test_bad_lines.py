"""Lines that are no requests, between good ones: each is answered as the rules say, once."""

from __future__ import annotations

import collections
import itertools
import json
from collections.abc import Iterator
from typing import Final, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.stress.scale import FACTOR
from tests.support.processes import Bridge

pytestmark = pytest.mark.stress
LINES: Final = 10_000 * FACTOR
IN_ONE_WRITE: Final = 25
KEY: Final = "@KEY@"  # stands for an id that no other line has
NULL: Final = "null"
NOTHING: Final = ""

_numbers: Final = itertools.count(1)


class Bad(NamedTuple):
    """A line and the id of the error that answers it, as JSON text; empty for none."""

    line: bytes
    answered: str


def text_of_json(value: object) -> bytes:
    return json.dumps(value).encode()


def with_key(*members: str) -> bytes:
    return ("{" + ",".join((f'"id":"{KEY}"', '"jsonrpc":"2.0"', *members)) + "}").encode()


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=10,
)
request = st.sampled_from(("tools/call", "ping", "no/such", "tools/list")).map(
    lambda method: with_key(f'"method":"{method}"', '"params":{"x":["y",{"z":1}]}')
)


def is_no_json(line: bytes) -> bool:
    try:
        json.loads(line.decode("utf-8"))
    except ValueError:
        return bool(line.strip())
    return False


garbage = st.binary(max_size=80).filter(
    lambda line: b"\n" not in line and b"{" not in line and is_no_json(line)
)
cut = st.tuples(request, st.integers(min_value=25, max_value=70)).map(
    lambda pair: pair[0][: min(pair[1], len(pair[0]) - 1)]
)
bad_utf8 = st.tuples(request, st.sampled_from((b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xf8"))).map(
    lambda pair: pair[0].replace(b'"y"', b'"' + pair[1] + b'"')
)
deep = st.integers(min_value=64, max_value=3000).map(
    lambda levels: with_key('"method":"tools/call"', f'"params":{"[" * levels}{"]" * levels}')
)
no_object = plain.filter(lambda value: not isinstance(value, dict)).map(text_of_json)
bad_id = st.sampled_from((1.5, True, None, [], {}, [1])).map(
    lambda key: text_of_json({"jsonrpc": "2.0", "id": key, "method": "ping"})
)
SHAPES: Final[tuple[dict[str, object], ...]] = (
    {"method": "ping"},
    {"jsonrpc": "1.0", "method": "ping"},
    {"jsonrpc": 2.0, "method": "ping"},
    {"jsonrpc": "2.0", "method": 7},
    {"jsonrpc": "2.0"},
    {"jsonrpc": "2.0", "method": None},
)
bad_shape = st.sampled_from(SHAPES).map(lambda members: text_of_json({"id": KEY, **members}))
response = st.sampled_from((KEY, 1.5, None, [], {}, "b-1", 2**80)).map(
    lambda key: text_of_json({"jsonrpc": "2.0", "id": key, "result": {}})
)
notification = plain.map(
    lambda params: text_of_json({"jsonrpc": "2.0", "method": "no/such", "params": params})
)
cancel = plain.map(
    lambda key: text_of_json(
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": key}}
    )
)
blank = st.sampled_from((b"", b" ", b"\t \r", b"\r"))

named = json.dumps(KEY)
bad_lines = st.one_of(
    garbage.map(lambda line: Bad(line, NULL)),
    no_object.map(lambda line: Bad(line, NULL)),
    bad_id.map(lambda line: Bad(line, NULL)),
    cut.map(lambda line: Bad(line, named)),
    bad_utf8.map(lambda line: Bad(line, named)),
    deep.map(lambda line: Bad(line, named)),
    bad_shape.map(lambda line: Bad(line, named)),
    response.map(lambda line: Bad(line, NOTHING)),
    notification.map(lambda line: Bad(line, NOTHING)),
    cancel.map(lambda line: Bad(line, NOTHING)),
    blank.map(lambda line: Bad(line, NOTHING)),
)


@pytest.fixture(scope="module")
def long_run() -> Iterator[Bridge]:
    with Bridge(checks_frames=False) as running:
        running.initialize()
        yield running


def good_line(method: str, key: str) -> bytes:
    params = {"name": "echo", "arguments": {"text": key}} if method == "tools/call" else {}
    return text_of_json({"jsonrpc": "2.0", "id": key, "method": method, "params": params})


@settings(
    max_examples=max(1, LINES // IN_ONE_WRITE),
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
@given(
    st.lists(bad_lines, min_size=IN_ONE_WRITE, max_size=IN_ONE_WRITE),
    st.sampled_from(("ping", "tools/call", "tools/list")),
)
def test_bad_lines_are_answered_once_and_good_ones_work_between_them(
    long_run: Bridge, lines: list[Bad], method: str
) -> None:
    seen = len(long_run.frames.items())
    wanted: collections.Counter[str] = collections.Counter()
    written: list[bytes] = []
    goods = []
    for line, answered in lines:
        key = f"bad-{next(_numbers)}"
        written.append(line.replace(KEY.encode(), key.encode()))
        wanted[answered.replace(KEY, key)] += 1
        goods.append(f"good-{next(_numbers)}")
        written.append(good_line(method, goods[-1]))
        wanted[json.dumps(goods[-1])] += 1
    last = f"last-{next(_numbers)}"
    wanted[json.dumps(last)] += 1
    del wanted[NOTHING]
    long_run.write(b"\n".join([*written, good_line("ping", last), b""]))
    for key in (*goods, last):
        assert "result" in long_run.answer(key)
    frames = long_run.frames.items()[seen:]
    assert collections.Counter(frame.key() for frame in frames) == wanted
