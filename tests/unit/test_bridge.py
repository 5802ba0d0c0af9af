"""The whole bridge, from its first line to its stop."""

from __future__ import annotations

from tests.support.running import RunningBridge


def test_a_request_is_answered(ready: RunningBridge) -> None:
    ready.client.send(id=1, method="tools/list", params={})
    request = ready.server.hear()
    ready.server.answer(request, tools=[], ttlMs=0, cacheScope="private")
    assert ready.client.hear() == {"id": 1, "result": {"tools": []}}
    ready.client.close()
    assert ready.wait_exit() == 0
