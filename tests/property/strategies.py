"""JSON texts as a peer may write them, and what Python's own reader says of them."""

from __future__ import annotations

import json
from typing import Any, Final, NoReturn

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

# No time is measured; the same examples in each run, so that a failure is a change of the code.
PROPERTY: Final = settings(
    deadline=None,
    derandomize=True,
    max_examples=50,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
MOST_DIGITS: Final = 4000  # of an integer that is a number everywhere

SPACES: Final = st.sampled_from(["", "", "", " ", "\t", "\r\n", " \n"])
CHARACTERS: Final = st.one_of(
    st.sampled_from("[]{}:,/ aid\u2028\u0085é€😀Ã©\x7f"),
    st.characters(min_codepoint=0x20, exclude_categories=("Cs",), exclude_characters='"\\'),
)
ESCAPES: Final = st.one_of(
    st.sampled_from(['\\"', "\\\\", "\\/", "\\b", "\\f", "\\n", "\\r", "\\t"]),
    st.integers(0, 0xFFFF).map(lambda code: f"\\u{code:04x}"),
    st.sampled_from(["\\ud800", "\\udfff", "\\ud83d\\ude00", "\\u00c3\\u00a9", "\\u0000"]),
)
STRINGS: Final = st.lists(st.one_of(CHARACTERS, ESCAPES), max_size=5).map(
    lambda parts: '"' + "".join(parts) + '"'
)
INTEGERS: Final = st.one_of(
    st.integers().map(str),
    st.sampled_from(["7" * 400, "-" + "7" * 4301]),
)
FLOATS: Final = st.sampled_from(
    ["0.0", "-0", "-0.0", "1e999", "-1e999", "1E-9", "1.5e+3", "1e-999"]
)
WORDS: Final = st.sampled_from(["null", "true", "false"])
KEYS: Final = st.one_of(
    st.sampled_from(['"id"', '"params"', '"result"', '"_meta"', '"é"', '"\\u00c3\\u00a9"', '"x"']),
    STRINGS,
)


def spaced(part: Any) -> Any:
    """A part with blanks around it."""
    return st.tuples(SPACES, part, SPACES).map("".join)


def arrays(values: Any) -> Any:
    inside = st.lists(spaced(values), max_size=4).map(",".join)
    return st.tuples(inside, SPACES).map(lambda t: "[" + t[0] + t[1] + "]")


def objects(values: Any, keys: Any = KEYS) -> Any:
    inside = st.lists(
        st.tuples(spaced(keys), st.just(":"), spaced(values)).map("".join), max_size=4
    ).map(",".join)
    return st.tuples(inside, SPACES).map(lambda t: "{" + t[0] + t[1] + "}")


ATOMS: Final = st.one_of(WORDS, INTEGERS, FLOATS, STRINGS)
VALUES: Final = st.recursive(
    ATOMS, lambda inner: st.one_of(arrays(inner), objects(inner)), max_leaves=12
)
OBJECTS: Final = objects(VALUES)
IDS: Final = st.one_of(st.integers(-(10**18), 10**18).map(str), STRINGS)
PLAIN_VALUES: Final = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)


def refuse(name: str) -> NoReturn:
    raise ValueError(name)


def reference(line: bytes) -> Any:
    """The value of a JSON text in UTF-8 by Python's own reader. Raises ValueError."""
    return json.loads(
        line.decode("utf-8"),
        parse_constant=refuse,
        parse_int=lambda digits: int(digits) if len(digits) <= MOST_DIGITS else digits,
    )


def depth_of(value: Any) -> int:
    """How many levels a value has, without recursion."""
    deepest, rest = 0, [(value, 0)]
    while rest:
        item, above = rest.pop()
        if isinstance(item, (dict, list)):
            deepest = max(deepest, above + 1)
            inner = item.values() if isinstance(item, dict) else item
            rest += [(part, above + 1) for part in inner]
    return deepest
