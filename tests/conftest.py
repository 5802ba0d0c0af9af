"""What holds around every test: nothing of it is left behind."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import frames
from tests.support.running import RunningBridge
from tests.support.waits import until

OF_THE_PRODUCT = (
    "worker", "standby", "stop", "watchdog", "log", "upstream reader", "listen owner",
    "parent watch", "fake",
)  # fmt: skip

# A shell that starts us in the background makes us ignore these, and so would what we start.
for _name in ("SIGHUP", "SIGINT"):
    _number = getattr(signal, _name, None)
    if _number is not None and signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, signal.SIG_DFL)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update", action="store_true", help="write what the transcripts heard")


def threads_of_ours() -> set[threading.Thread]:
    """The threads that the product or our fakes started; other libraries have theirs."""
    return {t for t in threading.enumerate() if t.name.startswith(OF_THE_PRODUCT)}


def children() -> set[int]:
    """The child processes of this process, as far as the system tells; not the frame checker."""
    found: set[int] = set()
    for listed in Path("/proc/self/task").glob("*/children"):
        try:
            found |= {int(pid) for pid in listed.read_text().split()}
        except OSError:
            continue  # the thread has ended
    checker = frames._validator  # one process for a whole run of tests
    return found - ({checker.pid} if checker is not None else set())


@pytest.fixture(autouse=True)
def _nothing_is_left_behind() -> Iterator[None]:
    threads, processes = threads_of_ours(), children()
    yield
    until(lambda: threads_of_ours() <= threads, f"the end of {threads_of_ours() - threads}")
    until(lambda: children() <= processes, f"the end of the processes {children() - processes}")


@pytest.fixture
def bridge() -> Iterator[RunningBridge]:
    """A bridge in this process, before its initialize."""
    running = RunningBridge()
    yield running
    running.release()


@pytest.fixture
def ready(bridge: RunningBridge) -> RunningBridge:
    """A bridge in this process whose client has its initialize result."""
    bridge.initialize()
    return bridge
