"""Start-stop rounds in many states: python3 tests/stress/rounds.py --rounds 1000

Each round starts the bridge with a server, brings both into a state, ends them in one of the ways
that VS Code or a broken machine has, and looks: is everything gone, is the exit code right, was
the bound kept? That a process is gone is told by the kernel, which closes its connection. The time
is from the act that ends the bridge until nothing of it is left.
"""

from __future__ import annotations

import argparse
import random
import signal
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, NamedTuple

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from tests.support.processes import SLACK_SECONDS, STOP_SECONDS, Bridge, cause_of

BOUND_SECONDS: Final = STOP_SECONDS + SLACK_SECONDS
STUBBORN: Final = ("--ignore-eof", "--ignore-term")


def idle(bridge: Bridge) -> None:
    bridge.initialize()


def call_in_flight(bridge: Bridge) -> None:
    bridge.initialize()
    bridge.send_call("hold")
    bridge.server().hear(heard="tools/call")


def initialize_in_flight(bridge: Bridge) -> None:
    bridge.send_initialize()
    bridge.server().hear(heard="server/discover")


def many_calls(bridge: Bridge) -> None:
    bridge.initialize()
    for number in range(20):
        bridge.send_call("echo", {"text": str(number)})
    bridge.send_call("hold")


def client_stops_reading(bridge: Bridge) -> None:
    bridge.initialize()
    bridge.pause()
    bridge.send_call("text", {"count": 1_000_000, "kind": "ascii"})
    bridge.wait_readable()
    bridge.forgive_cut_line()


def with_helper(bridge: Bridge) -> None:
    bridge.initialize()
    bridge.grandchild()


def end_of_stdin(bridge: Bridge) -> None:
    bridge.close_stdin()


def by_signal(number: int) -> Callable[[Bridge], None]:
    return lambda bridge: bridge.signal(number)


def host_that_kills_the_tree(bridge: Bridge) -> None:
    bridge.server().kill()
    bridge.signal(signal.SIGTERM)
    bridge.signal(signal.SIGKILL)


class Kind(NamedTuple):
    """One kind of round."""

    state: Callable[[Bridge], None]
    act: Callable[[Bridge], None]
    codes: tuple[int, ...]
    flags: tuple[str, ...] = ()


KINDS: Final = {
    "idle, stdin ends": Kind(idle, end_of_stdin, (0,)),
    "idle, SIGTERM": Kind(idle, by_signal(signal.SIGTERM), (0,)),
    "idle, kill -9": Kind(idle, by_signal(signal.SIGKILL), (-9,)),
    "call in flight, stdin ends": Kind(call_in_flight, end_of_stdin, (0,)),
    "call in flight, SIGINT": Kind(call_in_flight, by_signal(signal.SIGINT), (0,)),
    "call in flight, kill -9": Kind(call_in_flight, by_signal(signal.SIGKILL), (-9,)),
    "call in flight, tree killed": Kind(call_in_flight, host_that_kills_the_tree, (0, 1, -9)),
    "call in flight, server killed": Kind(call_in_flight, lambda b: b.server().kill(), (1,)),
    "initialize in flight, stdin ends": Kind(
        initialize_in_flight, end_of_stdin, (0,), ("--silent",)
    ),
    "many calls, stdin ends": Kind(many_calls, end_of_stdin, (0,)),
    "client stops reading, stdin ends": Kind(client_stops_reading, end_of_stdin, (0,)),
    "nobody does anything, stdin ends": Kind(client_stops_reading, end_of_stdin, (0,), STUBBORN),
    "ignores EOF and TERM, stdin ends": Kind(call_in_flight, end_of_stdin, (0,), STUBBORN),
    "ignores EOF and TERM, SIGHUP": Kind(idle, by_signal(signal.SIGHUP), (0,), STUBBORN),
    "ignores EOF and TERM, kill -9": Kind(idle, by_signal(signal.SIGKILL), (-9,), STUBBORN),
    "deaf helper, stdin ends": Kind(with_helper, end_of_stdin, (0,), ("--grandchild", "deaf")),
}


class Round(NamedTuple):
    """What one round came to; `problem` is empty when all was right."""

    kind: str
    seconds: float
    problem: str


def run_round(name: str) -> Round:
    kind = KINDS[name]
    seconds = 0.0
    try:
        with Bridge(*kind.flags, checks_frames=False) as bridge:
            kind.state(bridge)
            started = time.monotonic()
            kind.act(bridge)
            code = bridge.wait()
            bridge.wait_gone()
            if kind.codes == (1,):
                assert cause_of(bridge.answer(2)) == "upstream_exited"
            seconds = time.monotonic() - started
        if code not in kind.codes:
            return Round(name, seconds, f"exit code {code}")
        if seconds > BOUND_SECONDS:
            return Round(name, seconds, f"took {seconds:.1f} s")
    except Exception as error:  # noqa: BLE001 - a round that fails is a line of the table
        return Round(name, seconds, f"{type(error).__name__}: {error}"[:500])
    return Round(name, seconds, "")


def run_rounds(count: int, at_once: int, seed: int) -> list[Round]:
    """Each kind about as often, in an order that the seed makes."""
    names = [name for _ in range(count // len(KINDS) + 1) for name in KINDS][:count]
    random.Random(seed).shuffle(names)  # noqa: S311 - an order, no secret
    with ThreadPoolExecutor(at_once) as pool:
        return list(pool.map(run_round, names))


def table(rounds: Sequence[Round]) -> str:
    lines = [f"{'':<34}{'rounds':>7}{'failed':>8}{'median s':>10}{'longest s':>11}"]
    for name in [*KINDS, "all"]:
        of_kind = [one for one in rounds if name in (one.kind, "all")]
        if of_kind:
            seconds = [one.seconds for one in of_kind]
            failed = sum(bool(one.problem) for one in of_kind)
            lines.append(
                f"{name:<34}{len(of_kind):>7}{failed:>8}"
                f"{statistics.median(seconds):>10.2f}{max(seconds):>11.2f}"
            )
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--at-once", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    started = time.monotonic()
    rounds = run_rounds(options.rounds, options.at_once, options.seed)
    print(table(rounds))
    for one in rounds:
        if one.problem:
            print(f"FAILED {one.kind}: {one.problem}")
    print(f"{time.monotonic() - started:.0f} s, {options.at_once} at once, seed {options.seed}")
    return int(any(one.problem for one in rounds))


if __name__ == "__main__":
    sys.exit(main())
