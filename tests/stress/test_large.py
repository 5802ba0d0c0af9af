"""Messages of 60 MiB and floods of gigabytes: they pass, and memory stays near the message."""

from __future__ import annotations

import hashlib
import json

import pytest

from tests.process.test_hostile import expect_no_cost_of_a_flood, expect_no_cost_of_an_endless_line
from tests.stress.scale import FACTOR
from tests.support.processes import Bridge, text_of

pytestmark = pytest.mark.stress
MIB = 1 << 20
SIZE = 60 * MIB
SIGNS = {"ascii": "x", "emoji": "\N{GRINNING FACE}"}
MOST_TIMES = {"ascii": 4.0, "emoji": 8.0}  # of the message, for the peak above an idle bridge


def count_of(kind: str) -> int:
    return SIZE // len(SIGNS[kind].encode())


def report(name: str, kind: str, before: int, peak: int) -> None:
    times = (peak - before) / SIZE
    print(f"{name}, {kind}: peak {peak / MIB:.0f} MiB, {times:.2f} times the message above idle")
    assert times < MOST_TIMES[kind]


@pytest.mark.parametrize("kind", list(SIGNS))
def test_an_argument_of_60_mib_reaches_the_server_whole(kind: str) -> None:
    text = SIGNS[kind] * count_of(kind)
    arguments = json.dumps({"text": text}, ensure_ascii=False).encode()
    frame = b'{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"digest","arguments":'
    with Bridge(checks_frames=False) as bridge:
        bridge.initialize()
        bridge.echo()
        before = bridge.status("VmHWM")
        bridge.write(frame + arguments + b"}}\n")
        assert text_of(bridge.answer(9)) == hashlib.sha256(text.encode()).hexdigest()
        report("argument", kind, before, bridge.status("VmHWM"))
        bridge.echo()


@pytest.mark.parametrize("kind", list(SIGNS))
def test_a_result_of_60_mib_reaches_the_client_whole(kind: str) -> None:
    count = count_of(kind)
    with Bridge(checks_frames=False) as bridge:
        bridge.initialize()
        bridge.echo()
        before = bridge.status("VmHWM")
        assert text_of(bridge.call("text", {"count": count, "kind": kind})) == SIGNS[kind] * count
        report("result", kind, before, bridge.status("VmHWM"))
        bridge.echo()


def test_ten_gigabytes_without_a_line_end_cost_a_few_times_the_limit() -> None:
    expect_no_cost_of_an_endless_line(10_000_000_000)


def test_very_many_notifications_cost_no_memory_and_no_threads() -> None:
    expect_no_cost_of_a_flood(50_000 * FACTOR)  # in each of two calls, of each of three kinds
