"""Calls with three rounds each, all at once: each ends as it must, and nothing of it is left."""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from typing import Any, Final

import pytest

from tests.support.running import INITIALIZE, SMALL, RunningBridge
from tests.support.waits import until

pytestmark = pytest.mark.stress
SEEDS: Final = range(int(os.environ.get("MCP_BRIDGE_TEST_SEEDS", "10")))
CALLS: Final = 64
ROUNDS: Final = 3
ALL_KINDS: Final[dict[str, Any]] = {
    "elicitation": {"form": {}, "url": {}},
    "sampling": {},
    "roots": {},
}


def question(dice: random.Random, call: int, number: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """An input request, and its answer: both name their call and their round."""
    text = f"{call}.{number}"
    kind = dice.choice(("form", "url", "sampling"))
    if kind == "url":
        address = f"https://example.com/{text}"
        params: dict[str, Any] = {"mode": "url", "message": text, "url": address}
        action = dice.choice(("accept", "decline", "cancel"))
        return {"method": "elicitation/create", "params": params}, {"action": action}
    if kind == "form":
        schema = {"type": "object", "properties": {"a": {"type": "string"}}}
        params = {"mode": "form", "message": text, "requestedSchema": schema}
        answer = {"action": "accept", "content": {"a": text}}
        return {"method": "elicitation/create", "params": params}, answer
    said = {"role": "assistant", "model": "m", "content": {"type": "text", "text": text}}
    messages = [{"role": "user", "content": {"type": "text", "text": text}}]
    params = {"messages": messages, "maxTokens": 1}
    return {"method": "sampling/createMessage", "params": params}, said


def text_of(params: dict[str, Any]) -> str:
    """What the question names."""
    messages = params.get("messages")
    return str(messages[0]["content"]["text"] if messages else params["message"])


class Storm:
    """All calls of one seed. The test's thread is the client, the server, and what cancels."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)  # noqa: S311 - a seed, no secret
        self.bridge = RunningBridge(limits=SMALL.replace(requests=CALLS, line_bytes=1 << 20))
        self.cancelled = set(self.dice.sample(range(CALLS), CALLS // 3))
        self.ended: set[int] = set()  # cancelled by now
        self.answered: Counter[int] = Counter()
        self.due: dict[str, dict[str, Any]] = {}  # the answer by the text of its question
        self.open: list[tuple[str, str]] = []  # questions of the client: id and text
        self.rounds: Counter[int] = Counter()
        self.expected: dict[int, dict[str, Any]] = {}  # inputResponses of the next round
        self.upstream: list[dict[str, Any]] = []

    def run(self) -> None:
        self.bridge.client.send(
            id="i", method="initialize", params={**INITIALIZE, "capabilities": ALL_KINDS}
        )
        discover = self.bridge.server.hear()
        self.bridge.server.answer(discover, supportedVersions=["2026-07-28"], capabilities={})
        self.bridge.client.hear()
        for call in range(CALLS):
            self.bridge.client.send(id=call, method="tools/call", params={"name": str(call)})
        until(self.is_over, "the end of every call")
        self.look()

    def is_over(self) -> bool:
        """One step; are all calls answered or cancelled, and is nothing left of them?"""
        self.listen()
        steps = [self.serve] * bool(self.upstream) + [self.answer] * bool(self.open)
        waiting = self.cancelled - self.ended
        if waiting and self.dice.random() < 0.2:
            steps.append(self.cancel)
        if steps:
            self.dice.choice(steps)()
            return False
        if waiting and len(self.answered) + len(self.ended) + len(waiting) == CALLS:
            self.cancel()
        return len(set(self.answered) | self.ended) == CALLS and not self.bridge.bridge._slots._busy

    def listen(self) -> None:
        while True:
            lines = self.bridge.server.heard.so_far()
            if not lines:
                break
            request = self.bridge.server.hear()
            if request["method"] == "tools/call":
                self.upstream.append(request)
        while self.bridge.client.heard.so_far():
            frame = self.bridge.client.hear()
            if frame.get("method") == "notifications/cancelled":
                off = frame["params"]["requestId"]
                assert frame["params"]["reason"] == "the client canceled the request"
                if self.dice.random() < 0.5:  # half of them are answered all the same, late
                    self.open = [one for one in self.open if one[0] != off]
            elif "id" in frame and "method" in frame:
                self.open.append((frame["id"], text_of(frame["params"])))
            elif "id" in frame:
                assert "result" in frame, frame
                self.answered[frame["id"]] += 1

    def serve(self) -> None:
        request = self.upstream.pop(self.dice.randrange(len(self.upstream)))
        params = request["params"]
        call = int(params["name"])
        number = self.rounds[call]
        assert params.get("inputResponses") == self.expected.pop(call, None)
        assert params.get("requestState") == (f"{call}.{number}" if number else None)
        if number == ROUNDS:
            self.bridge.server.answer(request, content=[])
            return
        self.rounds[call] += 1
        requests, self.expected[call] = {}, {}
        for key in self.dice.sample("abcdef", self.dice.randint(1, 4)):
            asked, answer = question(self.dice, call, number * 10 + ord(key))
            requests[key], self.expected[call][key] = asked, answer
            self.due[text_of(asked["params"])] = answer
        self.bridge.server.say(
            id=request["id"],
            result={
                "resultType": "input_required",
                "inputRequests": requests,
                "requestState": f"{call}.{number + 1}",
            },
        )

    def answer(self) -> None:
        request_id, text = self.open.pop(self.dice.randrange(len(self.open)))
        self.bridge.client.send(id=request_id, result=self.due[text])

    def cancel(self) -> None:
        call = self.dice.choice(sorted(self.cancelled - self.ended))
        self.ended.add(call)
        self.bridge.client.send(method="notifications/cancelled", params={"requestId": call})

    def look(self) -> None:
        self.bridge.client.heard_so_far()  # the bridge has read the last cancellation
        until(lambda: not self.bridge.bridge._slots._busy, "the end of every worker")
        assert max(self.answered.values(), default=1) == 1
        assert set(range(CALLS)) - self.cancelled <= set(self.answered)
        assert self.bridge.bridge._slots._in_flight == {}
        pending = self.bridge.bridge._pending
        assert pending._waiting == {}
        self.bridge.client.close()
        assert self.bridge.wait_exit() == 0
        opened, complete = Counter[str](), Counter[str]()
        for line in self.bridge.client._all:
            frame = json.loads(line)
            if frame.get("method") == "notifications/elicitation/complete":
                complete[frame["params"]["elicitationId"]] += 1
            elif frame.get("params", {}).get("mode") == "url":
                opened[frame["params"]["elicitationId"]] += 1
        assert set(opened.values()) <= {1}
        assert set(complete.values()) <= {1}
        assert set(complete) <= set(opened)


@pytest.mark.parametrize("seed", SEEDS)
def test_each_call_ends_as_it_must_and_leaves_nothing_behind(seed: int) -> None:
    storm = Storm(seed)
    try:
        storm.run()
    finally:
        storm.bridge.release()
