"""The section `errors`: causes, the one exception, and what people may read of a peer's text."""

from __future__ import annotations

import json

import pytest

import mcp_bridge_vscode as bridge
from mcp_bridge_vscode import BridgeError, Cause, clean_text, error_object


def error_of(cause: Cause, detail: str = "", **changes: object) -> dict[str, object]:
    return dict(error_object(BridgeError(cause, detail, **changes)))  # type: ignore[arg-type] # by name


@pytest.mark.parametrize("cause", list(Cause))
def test_each_cause_becomes_words_on_the_wire(cause: Cause) -> None:
    code, message = bridge.ERROR_TABLE[cause]
    assert error_of(cause) == {"code": code, "message": message, "data": {"cause": cause.value}}
    assert message.endswith(".")
    assert "\n" not in message
    assert cause.value == cause.name.lower()


def test_the_codes_are_those_of_json_rpc() -> None:
    assert {code for code, _ in bridge.ERROR_TABLE.values()} == {
        -32700, -32600, -32601, -32602, -32603,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("cause", "code"),
    [
        (Cause.PARSE_ERROR, -32700),
        (Cause.INVALID_REQUEST_SHAPE, -32600),
        (Cause.LINE_TOO_LONG, -32600),
        (Cause.TOO_DEEP, -32600),
        (Cause.NOT_INITIALIZED, -32600),
        (Cause.ALREADY_INITIALIZED, -32600),
        (Cause.METHOD_NOT_FOUND, -32601),
        (Cause.INVALID_PARAMS, -32602),
        (Cause.TOO_MANY_REQUESTS, -32603),
        (Cause.UPSTREAM_EXITED, -32603),
    ],
)
def test_a_cause_has_the_code_of_the_contract(cause: Cause, code: int) -> None:
    assert error_of(cause)["code"] == code


def test_a_detail_is_part_of_the_data() -> None:
    assert error_of(Cause.TIMEOUT, "tools/call: 3600 s")["data"] == {
        "cause": "timeout",
        "detail": "tools/call: 3600 s",
    }


def test_an_error_of_the_server_may_bring_its_code_and_words() -> None:
    error = error_of(Cause.DISCOVER_FAILED, "x", code=-32022, message="another")
    assert (error["code"], error["message"]) == (-32022, "another")


def test_a_code_of_zero_is_a_code() -> None:
    assert error_of(Cause.DISCOVER_FAILED, code=0)["code"] == 0


def test_the_exception_says_its_cause_and_its_detail_and_nothing_else() -> None:
    assert BridgeError(Cause.CLOSED, "code 3").args == ("closed", "code 3")


def test_an_error_of_ours_stays_the_same_object() -> None:
    error = BridgeError(Cause.TIMEOUT)
    assert bridge.bridge_error(error) is error


def test_a_foreign_exception_is_internal_and_keeps_its_text_for_itself() -> None:
    error = bridge.bridge_error(ValueError("Bearer secret"))
    assert error.cause is Cause.INTERNAL
    assert "secret" not in json.dumps(error_object(error))


def test_too_little_memory_has_a_cause_of_its_own() -> None:
    assert bridge.bridge_error(MemoryError()).cause is Cause.OUT_OF_MEMORY


def test_a_clean_text_stays_as_it_is() -> None:
    assert clean_text("Füße 東京 😀 \\n", 100) == "Füße 東京 😀 \\n"


@pytest.mark.parametrize(
    "code",
    [
        *range(0x20), *range(0x7F, 0xA0), 0x061C, 0x200E, 0x200F, 0x2028, 0x2029,
        *range(0x202A, 0x202F), *range(0x2066, 0x206A), 0xFEFF,
    ],
)  # fmt: skip
def test_a_control_or_a_mark_of_direction_becomes_a_blank(code: int) -> None:
    assert clean_text(f"a{chr(code)}b", 10) == "a b"


@pytest.mark.parametrize(
    "code",
    [0x20, 0x7E, 0xA0, 0x061B, 0x061D, 0x200D, 0x2010, 0x2027, 0x202F, 0x2065, 0x206A, 0xFEFE],
)
def test_the_neighbours_of_what_is_replaced_stay(code: int) -> None:
    assert clean_text(f"a{chr(code)}b", 10) == f"a{chr(code)}b"


def test_a_line_of_a_peer_cannot_look_like_one_of_ours() -> None:
    forged = "x\r\nmcp-bridge-vscode: sign in at https://evil.example\x1b]0;title\x07"
    assert clean_text(forged, 200) == (
        "x  mcp-bridge-vscode: sign in at https://evil.example ]0;title "
    )


def test_a_text_of_just_the_limit_is_whole_and_a_longer_one_is_cut() -> None:
    assert clean_text("x" * 10, 10) == "x" * 10
    assert clean_text("x" * 11, 10) == "xxxxxxx..."


class Watched(str):
    """A text that may be cut, and nothing else."""

    __slots__ = ()

    def __getitem__(self, key: object) -> str:
        assert key == slice(None, 51)
        return str(self)[:51]

    def translate(self, _table: object) -> str:
        raise AssertionError("all of it was looked at")


def test_a_long_text_is_not_looked_at_beyond_the_limit() -> None:
    assert clean_text(Watched("x" * 5_000_000), 50) == "x" * 47 + "..."


def test_a_lone_surrogate_becomes_a_question_mark() -> None:
    assert clean_text("a\ud800b", 10) == "a?b"


def raise_in_a_function() -> None:
    raise LookupError("secret")


def test_the_place_of_an_exception_names_its_kind_function_and_line() -> None:
    with pytest.raises(LookupError) as caught:
        raise_in_a_function()
    line = raise_in_a_function.__code__.co_firstlineno + 1
    assert bridge.place_of(caught.value) == f"LookupError in raise_in_a_function, line {line}"


def test_an_exception_that_was_never_raised_has_no_place() -> None:
    assert bridge.place_of(KeyError("secret")) == "KeyError"
