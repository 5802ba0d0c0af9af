"""The checker of frames finds what the official types do not allow, and lets the rest be."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.frames import FrameChecker
from tests.support.parts import need_peer_python

CAPABILITIES: dict[str, Any] = {"io.modelcontextprotocol/clientCapabilities": {}}
VERSION = {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}
CLIENT = {"io.modelcontextprotocol/clientInfo": {"name": "c", "version": "1"}}
META = {**CAPABILITIES, **VERSION, **CLIENT}


@pytest.fixture
def checker() -> FrameChecker:
    need_peer_python("mcp2")
    return FrameChecker()


def tell(checker: FrameChecker, side: str, **members: Any) -> None:
    checker.check(side, json.dumps({"jsonrpc": "2.0", **members}).encode() + b"\n")


def ask(checker: FrameChecker, method: str, **params: Any) -> None:
    tell(checker, "from_client", id=1, method=method, params=params)


def answer(checker: FrameChecker, **result: Any) -> None:
    tell(checker, "to_client", id=1, result=result)


def tool(**members: Any) -> dict[str, Any]:
    return {"name": "t", "inputSchema": {"type": "object"}, **members}


def only_problem(checker: FrameChecker) -> str:
    (problem,) = checker.problems()
    return problem


def test_a_good_conversation_has_no_problem(checker: FrameChecker) -> None:
    ask(checker, "tools/call", name="t", _meta={"progressToken": "p"})
    params = {"name": "t", "_meta": {**META, "progressToken": 1}}
    tell(checker, "to_server", id=1, method="tools/call", params=params)
    tell(checker, "from_server", id=1, result={"resultType": "complete", "content": []})
    progress = {"progressToken": "p", "progress": 1, "total": 2.5}
    tell(checker, "to_client", method="notifications/progress", params=progress)
    answer(checker, content=[{"type": "text", "text": "x"}], structuredContent={"a": None})
    assert checker.problems() == []


def test_a_result_is_checked_by_the_method_of_its_request(checker: FrameChecker) -> None:
    ask(checker, "tools/list")
    answer(checker, tools=[{"name": "t"}])
    assert "to_client result tools/list: tools.0.inputSchema (missing)" in only_problem(checker)


def test_a_number_is_not_taken_for_a_string(checker: FrameChecker) -> None:
    ask(checker, "tools/list")
    answer(checker, tools=[tool(title=5)])
    assert "tools.0.title (string_type)" in only_problem(checker)


def test_null_is_no_optional_member(checker: FrameChecker) -> None:
    ask(checker, "tools/list")
    answer(checker, tools=[], nextCursor=None)
    assert "nextCursor (null)" in only_problem(checker)


@pytest.mark.parametrize("member", ["resultType", "ttlMs", "cacheScope"])
def test_a_modern_member_does_not_reach_the_client(checker: FrameChecker, member: str) -> None:
    ask(checker, "tools/list")
    answer(checker, tools=[], **{member: 1})
    assert f"{member} (modern)" in only_problem(checker)


def test_modern_meta_does_not_reach_the_client(checker: FrameChecker) -> None:
    meta = {"io.modelcontextprotocol/subscriptionId": 3}
    params = {"uri": "a:b", "_meta": meta}
    tell(checker, "to_client", method="notifications/resources/updated", params=params)
    assert "subscriptionId (modern)" in only_problem(checker)


def test_a_second_answer_is_a_problem(checker: FrameChecker) -> None:
    ask(checker, "ping")
    answer(checker)
    answer(checker)
    assert "id (unknown)" in only_problem(checker)


def test_an_id_of_another_type_is_another_id(checker: FrameChecker) -> None:
    ask(checker, "ping")
    tell(checker, "to_client", id="1", result={})
    assert "id (unknown)" in only_problem(checker)


def test_progress_after_the_answer_is_a_problem(checker: FrameChecker) -> None:
    ask(checker, "tools/call", name="t", _meta={"progressToken": 0})
    answer(checker, content=[])
    params = {"progressToken": 0, "progress": 1}
    tell(checker, "to_client", method="notifications/progress", params=params)
    assert "progressToken (unknown)" in only_problem(checker)


def test_a_form_with_a_nested_property_is_a_problem(checker: FrameChecker) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "object"}}}
    params = {"message": "m", "requestedSchema": schema}
    tell(checker, "to_client", id="b-1", method="elicitation/create", params=params)
    assert any("properties.a" in problem for problem in checker.problems())


def test_a_method_of_the_other_revision_is_a_problem(checker: FrameChecker) -> None:
    tell(checker, "to_client", method="notifications/subscriptions/acknowledged", params={})
    tell(checker, "to_server", id=1, method="ping", params={"_meta": META})
    tell(checker, "to_server", method="notifications/initialized")
    places = [problem.split(": ")[0] for problem in checker.problems()]
    assert places[:2] == [
        "to_client notification notifications/subscriptions/acknowledged",
        "to_server request ping",
    ]
    assert "to_server notification notifications/initialized" in places[2:]


@pytest.mark.parametrize("missing", sorted(META))
def test_every_upstream_request_has_its_envelope(checker: FrameChecker, missing: str) -> None:
    meta = {key: value for key, value in META.items() if key != missing}
    tell(checker, "to_server", id=1, method="server/discover", params={"_meta": meta})
    problems = checker.problems()
    assert problems
    assert all(missing.rpartition("/")[2] in problem for problem in problems)


def test_an_upstream_id_is_never_used_again(checker: FrameChecker) -> None:
    for _ in range(2):
        tell(checker, "to_server", id=1, method="tools/list", params={"_meta": META})
    assert "id (reused)" in only_problem(checker)


def test_the_bridge_never_answers_the_server(checker: FrameChecker) -> None:
    tell(checker, "to_server", id=1, result={})
    assert "(response)" in only_problem(checker)


@pytest.mark.parametrize(
    "line", [b"hello", b'{"a": NaN}', b'{"a": 1, "a": 2}', b'"\xff"', b"[1]", b""]
)
def test_a_line_that_is_no_json_object_is_a_problem(checker: FrameChecker, line: bytes) -> None:
    checker.check("to_client", line)
    assert "to_client line:" in only_problem(checker)


def test_what_the_table_exempts_is_no_problem(checker: FrameChecker) -> None:
    ask(checker, "tools/call", name="t")
    answer(checker, content=[], structuredContent=[1])
    ask(checker, "tools/list")
    answer(checker, tools=[{"name": "t", "inputSchema": {"oneOf": [True]}}])
    tell(checker, "to_client", id=None, error={"code": -32700, "message": "no JSON"})
    assert checker.problems() == []


def test_a_hostile_server_of_one_case_is_exempt_there_only(checker: FrameChecker) -> None:
    checker.hostile = ["to_client result tools/list: tools.*.title (string_type)"]
    ask(checker, "tools/list")
    answer(checker, tools=[tool(title=5), tool(description=6)])
    assert "tools.1.description" in only_problem(checker)
