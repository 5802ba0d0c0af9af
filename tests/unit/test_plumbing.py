"""The section `plumbing`: time, signals, ranked locks, threads, descriptors, the log."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterator

import pytest

import mcp_bridge_vscode as product
from mcp_bridge_vscode import Clock, LockRank, LogLevel, Once, RankedLock, Signal, Workers
from tests.requirements import requirement
from tests.support.clock import FakeClock
from tests.support.running import SMALL, RunningLog
from tests.support.waits import WAIT_SECONDS, until

LINGER = 10.0


def in_thread(body: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=body, name="fake thread", daemon=True)
    thread.start()
    return thread


def join(*threads: threading.Thread) -> None:
    for thread in threads:
        thread.join(WAIT_SECONDS)
        assert not thread.is_alive()


# --- Clock, Signal, Once ----------------------------------------------------------------------


def test_a_moment_that_has_passed_ends_the_wait_at_once() -> None:
    clock = Clock()
    assert clock.wait(Signal(), clock.now() - 1) is False


def test_the_clock_tells_that_the_signal_came_first() -> None:
    signal = Signal()
    signal.set()
    clock = Clock()
    assert clock.wait(signal, clock.now() + WAIT_SECONDS) is True
    signal.set()
    assert clock.wait(signal, None) is True


def test_the_clock_never_goes_back() -> None:
    clock = Clock()
    moments = [clock.now() for _ in range(1000)]
    assert moments == sorted(moments)


def test_a_signal_that_is_set_before_the_wait_is_not_lost() -> None:
    signal = Signal()
    signal.set()
    assert signal.wait(None) is True


def test_waiting_takes_the_signal_down() -> None:
    signal = Signal()
    signal.set()
    signal.wait(None)
    assert signal.wait(0) is False


def test_a_signal_set_twice_is_set_once() -> None:
    signal = Signal()
    signal.set()
    signal.set()
    assert [signal.wait(0), signal.wait(0)] == [True, False]


def test_a_signal_lets_the_thread_that_waits_go_on() -> None:
    signal = Signal()
    gone_on: list[bool] = []
    thread = in_thread(lambda: gone_on.append(signal.wait(WAIT_SECONDS)))
    signal.set()
    join(thread)
    assert gone_on == [True]


def test_a_wait_of_very_many_seconds_is_a_wait() -> None:
    signal = Signal()
    signal.set()
    assert signal.wait(1e300) is True


def test_only_one_of_many_threads_is_the_first() -> None:
    for _ in range(50):
        once, gate = Once(), threading.Barrier(4)
        found: list[bool] = []

        def ask(once: Once = once, gate: threading.Barrier = gate, to: list[bool] = found) -> None:
            gate.wait(WAIT_SECONDS)
            to.append(once.first())

        join(*[in_thread(ask) for _ in range(4)])
        assert sorted(found) == [False, False, False, True]


def test_a_once_is_over_when_somebody_was_first() -> None:
    once = Once()
    assert not once.is_over()
    once.first()
    assert once.is_over()


# --- RankedLock -------------------------------------------------------------------------------


def test_locks_are_taken_in_the_order_of_their_ranks() -> None:
    first, last = RankedLock(LockRank.LIFECYCLE), RankedLock(LockRank.OUTPUT)
    with first, last:
        pass
    with first, last:  # what was released is forgotten
        pass


@pytest.mark.parametrize("rank", [LockRank.LIFECYCLE, LockRank.OUTPUT])
@requirement("plumbing.lock-order")
def test_a_lock_objects_when_the_order_is_broken(rank: LockRank) -> None:
    upper, lower = RankedLock(rank), RankedLock(LockRank.OUTPUT)
    with lower:
        with pytest.raises(RuntimeError), upper:
            pass
        with pytest.raises(RuntimeError):
            upper.acquire()
    assert upper.acquire(0)  # the refused lock was not taken
    upper.release()


def test_what_another_thread_holds_does_not_count_for_the_order() -> None:
    upper, lower = RankedLock(LockRank.LIFECYCLE), RankedLock(LockRank.OUTPUT)
    took: list[bool] = []

    def take() -> None:
        with upper:
            took.append(True)

    with lower:
        join(in_thread(take))
    assert took == [True]


def test_a_lock_that_is_held_is_not_acquired_in_time_and_leaves_no_trace() -> None:
    lock, other = RankedLock(LockRank.OUTPUT), RankedLock(LockRank.LIFECYCLE)
    found: list[bool] = []

    def try_both() -> None:
        found.append(lock.acquire(0))
        with other:  # would be out of order if the failed one counted
            found.append(True)

    with lock:
        join(in_thread(try_both))
    assert found == [False, True]


# --- Workers ----------------------------------------------------------------------------------


class Shop:
    """Workers over a fake clock, with what they did."""

    def __init__(self, most_idle: int = 2) -> None:
        self.clock = FakeClock()
        self.errors: list[tuple[str, BaseException]] = []
        self.done: list[str] = []
        self.changed = threading.Condition()
        self.workers = Workers(
            most_idle=most_idle,
            linger=LINGER,
            clock=self.clock,
            on_error=lambda where, error: self.errors.append((where, error)),
        )

    def job(self, name: str) -> Callable[[], None]:
        def run() -> None:
            with self.changed:
                self.done.append(name)
                self.changed.notify_all()

        return run

    def wait_done(self, count: int) -> list[str]:
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.done) >= count, WAIT_SECONDS)
            return list(self.done)

    def at(self, seconds: float) -> float:
        return self.clock.now() + seconds

    def wait_idle(self, count: int) -> None:
        until(lambda: len(self.workers._idle) == count, f"{count} idle workers")

    def wait_standby(self, moment: float) -> None:
        until(lambda: self.clock.has_waiter_until(moment), "the standby that waits")


@pytest.fixture
def shop() -> Iterator[Shop]:
    shop = Shop()
    yield shop
    shop.workers.close()


def worker_threads() -> int:
    return sum(thread.name == "worker" for thread in threading.enumerate())


def test_a_job_runs_on_a_worker_that_is_used_again(shop: Shop) -> None:
    seen: list[int] = []
    for count in (1, 2, 3):
        shop.workers.run(lambda: seen.append(threading.get_ident()))
        until(lambda count=count: len(seen) == count, "the job")  # type: ignore[misc]
        shop.wait_idle(1)
    assert len(set(seen)) == 1


def test_workers_above_the_idle_ones_end(shop: Shop) -> None:
    gate = threading.Barrier(5)

    def wait_for_all() -> None:
        gate.wait(WAIT_SECONDS)

    for _ in range(4):
        shop.workers.run(wait_for_all)
    assert worker_threads() == 4
    gate.wait(WAIT_SECONDS)
    until(lambda: worker_threads() == 2, "the end of two workers")
    shop.wait_idle(2)


def test_a_job_that_fails_is_told_and_its_worker_goes_on(shop: Shop) -> None:
    def fail() -> None:
        raise KeyboardInterrupt

    shop.workers.run(fail)
    shop.wait_idle(1)
    shop.workers.run(shop.job("next"))
    assert shop.wait_done(1) == ["next"]
    ((where, error),) = shop.errors
    assert where == "a worker"
    assert isinstance(error, KeyboardInterrupt)


@requirement("plumbing.reserve")
def test_a_released_job_costs_no_worker_and_never_runs(shop: Shop) -> None:
    reservation = shop.workers.reserve(shop.job("never"), shop.at(5))
    shop.workers.release(reservation)
    shop.clock.advance(100)
    shop.workers.start(reservation)
    shop.workers.run(shop.job("last"))
    assert shop.wait_done(1) == ["last"]
    assert worker_threads() == 1


@requirement("plumbing.reserve")
def test_a_reserved_job_starts_when_it_is_due_and_not_before(shop: Shop) -> None:
    shop.workers.reserve(shop.job("due"), shop.at(5))
    shop.wait_standby(shop.at(5))
    shop.clock.advance(4.9)
    assert shop.done == []
    shop.clock.advance(0.1)
    assert shop.wait_done(1) == ["due"]


def test_reserved_jobs_start_each_at_its_time(shop: Shop) -> None:
    moments = [shop.at(5), shop.at(6), shop.at(7)]
    reservations = [shop.workers.reserve(shop.job(str(m)), m) for m in moments]
    shop.workers.release(reservations[1])
    shop.wait_standby(moments[0])
    shop.clock.advance(5)
    shop.wait_done(1)
    shop.wait_standby(moments[2])
    shop.clock.advance(2)
    assert shop.wait_done(2) == [str(moments[0]), str(moments[2])]


def test_a_reserved_job_that_is_told_to_start_does_so_once(shop: Shop) -> None:
    reservation = shop.workers.reserve(shop.job("once"), shop.at(5))
    shop.workers.start(reservation)
    assert shop.wait_done(1) == ["once"]
    shop.workers.start(reservation)
    shop.workers.release(reservation)
    shop.clock.advance(10)
    shop.workers.run(shop.job("last"))
    assert shop.wait_done(2) == ["once", "last"]


def test_of_many_who_start_and_release_a_job_one_decides(shop: Shop) -> None:
    for _ in range(100):
        gate = threading.Barrier(3)
        ran: list[bool] = []
        reservation = shop.workers.reserve(lambda to=ran: to.append(True), shop.at(5))  # type: ignore[misc]

        def act(what: Callable[[product.Reservation], None]) -> None:
            gate.wait(WAIT_SECONDS)  # noqa: B023 - joined below
            what(reservation)  # noqa: B023

        join(
            in_thread(lambda: act(shop.workers.start)),
            in_thread(lambda: act(shop.workers.start)),
            in_thread(lambda: act(shop.workers.release)),
        )
        until(lambda: len(shop.workers._idle) == worker_threads(), "the end of the jobs")
        assert len(ran) <= 1
        assert reservation not in shop.workers._reserved


def test_the_standby_lingers_once_and_then_waits_for_the_next_reservation(shop: Shop) -> None:
    reservation = shop.workers.reserve(shop.job("never"), shop.at(5))
    shop.wait_standby(shop.at(5))
    shop.workers.release(reservation)
    shop.clock.advance(5)
    shop.wait_standby(shop.at(LINGER))
    shop.clock.advance(LINGER)
    until(lambda: shop.workers._looks_at == product.INFINITE, "the long wait")
    shop.workers.reserve(shop.job("due"), shop.at(3))
    shop.wait_standby(shop.at(3))
    shop.clock.advance(3)
    assert shop.wait_done(1) == ["due"]


def test_closed_workers_end_and_reserved_jobs_never_run(shop: Shop) -> None:
    held, may_end = threading.Event(), threading.Event()

    def hold() -> None:
        held.set()
        may_end.wait(WAIT_SECONDS)

    shop.workers.run(hold)
    assert held.wait(WAIT_SECONDS)
    shop.workers.run(shop.job("idle"))
    shop.wait_idle(1)
    shop.workers.reserve(shop.job("never"), shop.at(5))
    shop.workers.close()
    until(lambda: worker_threads() == 1, "the end of the idle worker")
    may_end.set()
    until(lambda: worker_threads() == 0, "the end of the busy worker")
    shop.clock.advance(10)
    assert shop.done == ["idle"]


def test_a_job_after_the_close_still_runs_and_its_worker_ends(shop: Shop) -> None:
    shop.workers.close()
    shop.workers.run(shop.job("late"))
    assert shop.wait_done(1) == ["late"]
    until(lambda: worker_threads() == 0, "the end of the worker")


# --- Descriptors ------------------------------------------------------------------------------


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for end in ends:
        try:
            os.close(end)
        except OSError:
            continue  # the test closed it


def test_small_pieces_go_out_in_one_and_big_ones_are_not_copied() -> None:
    big = bytes(1 << 16)
    pieces = list(product.join_small([b"a", b"b", big, b"c", memoryview(b"d")]))
    assert [bytes(piece) for piece in pieces] == [b"ab", big, b"cd"]
    assert pieces[1] is big


def test_many_small_pieces_go_out_in_bounded_ones() -> None:
    pieces = list(product.join_small([b"x" * 1000] * 200))
    assert b"".join(bytes(piece) for piece in pieces) == b"x" * 200_000
    assert max(len(piece) for piece in pieces) < 1 << 17


def test_all_is_written_to_a_pipe_that_takes_it_bit_by_bit(pipe: tuple[int, int]) -> None:
    read, write = pipe
    os.set_blocking(write, False)
    data = os.urandom(1 << 20)
    got = bytearray()

    def drain() -> None:
        while len(got) < len(data):
            got.extend(product.read_some(read))

    thread = in_thread(drain)
    product.write_all(write, [data[:10], data[10:]])
    join(thread)
    assert bytes(got) == data


def test_a_read_waits_for_a_pipe_that_never_blocks(pipe: tuple[int, int]) -> None:
    read, write = pipe
    os.set_blocking(read, False)
    got: list[bytes] = []
    thread = in_thread(lambda: got.append(product.read_some(read)))
    os.write(write, b"x")
    join(thread)
    assert got == [b"x"]


def test_the_end_of_a_pipe_reads_as_nothing(pipe: tuple[int, int]) -> None:
    os.close(pipe[1])
    assert product.read_some(pipe[0]) == b""


def test_waiting_for_a_descriptor_tells_whether_it_is_ready(pipe: tuple[int, int]) -> None:
    read, write = pipe
    assert product.wait_for(read, for_writing=False, seconds=0) is False
    assert product.wait_for(write, for_writing=True, seconds=0) is True
    os.write(write, b"x")
    assert product.wait_for(read, for_writing=False, seconds=None) is True


def test_started_threads_have_their_name_and_do_not_hold_the_process() -> None:
    seen: list[threading.Thread] = []
    thread = product.start_thread("worker", lambda: seen.append(threading.current_thread()))
    join(thread)
    assert seen == [thread]
    assert (thread.name, thread.daemon) == ("worker", True)


# --- Log --------------------------------------------------------------------------------------


@pytest.fixture
def log() -> Iterator[RunningLog]:
    running = RunningLog(LogLevel.DEBUG, SMALL)
    yield running
    running.release()


@requirement("log.form")
def test_a_line_has_the_program_the_scope_the_level_and_the_text(log: RunningLog) -> None:
    log.writer.error("vscode", "one")
    log.writer.warning("bridge", "two")
    log.writer.info("mcp_client", "three")
    log.writer.debug("mcp_router", "four")
    log.writer.close(WAIT_SECONDS)
    assert [log.lines.take() for _ in range(4)] == [
        b"mcp-bridge-vscode: vscode: error: one",
        b"mcp-bridge-vscode: bridge: warning: two",
        b"mcp-bridge-vscode: mcp_client: info: three",
        b"mcp-bridge-vscode: mcp_router: debug: four",
    ]


@requirement("log.clean")
def test_control_characters_make_no_second_line(log: RunningLog) -> None:
    log.writer.info("bridge", "a\nb\r\x1b[31m\x00\x7f\x85\u2028\u202e\ufeffc\ud800")
    assert log.heard("info: a") == "mcp-bridge-vscode: bridge: info: a b  [31m      c?"


def test_a_very_long_line_is_cut(log: RunningLog) -> None:
    log.writer.info("bridge", "x" * 100_000)
    assert len(log.heard("xxx")) == 4000


def test_the_first_of_a_kind_is_a_warning_and_the_others_are_debug_lines(log: RunningLog) -> None:
    log.writer.warn_once("bridge", "a", "a 1")
    log.writer.warn_once("bridge", "b", "b 1")
    log.writer.warn_once("bridge", "a", "a 2")
    assert ": warning: " in log.heard("a 1")
    assert ": warning: " in log.heard("b 1")
    assert ": debug: " in log.heard("a 2")


@pytest.mark.parametrize("level", list(LogLevel))
@requirement("log.levels")
def test_lines_above_the_level_are_not_written(level: LogLevel) -> None:
    running = RunningLog(level, SMALL)
    for write in (
        running.writer.error,
        running.writer.warning,
        running.writer.info,
        running.writer.debug,
    ):
        write("bridge", "text")
    running.release()
    names = [line.split(b": ")[2].decode() for line in running.lines.rest()]
    assert names == ["error", "warning", "info", "debug"][: level + 1]
    assert running.writer.is_debug() is (level is LogLevel.DEBUG)


def fill(descriptor: int) -> None:
    """The pipe takes nothing more."""
    os.set_blocking(descriptor, False)
    for size in (1 << 16, 1):
        try:
            while True:
                os.write(descriptor, b"#" * size)
        except BlockingIOError:
            continue
    os.set_blocking(descriptor, True)


@requirement("log.full-stderr", "decisions.10")
def test_a_full_stderr_blocks_nobody_and_drops_lines_with_a_count(pipe: tuple[int, int]) -> None:
    read, write = pipe
    fill(write)
    writer = product.Log(write, LogLevel.INFO, SMALL.replace(log_lines=3.0))
    for number in range(10):
        writer.info("bridge", f"line {number}")  # none of these waits
    writer.close(0)
    got = os.read(read, 1 << 20)
    until(writer._ended.is_set, "the end of the log")
    os.set_blocking(read, False)
    got += os.read(read, 1 << 20)
    text = got.strip(b"#").decode()
    counts = re.findall(r"vscode: warning: (\d+) log lines were dropped\n", text)
    assert sum(map(int, counts)) == 7
    assert re.findall(r"line \d", text) == ["line 0", "line 1", "line 2"]


@requirement("decisions.10")
def test_a_stderr_that_is_gone_is_no_failure(pipe: tuple[int, int]) -> None:
    os.close(pipe[0])
    writer = product.Log(pipe[1], LogLevel.INFO, SMALL)
    writer.info("bridge", "nobody reads")
    writer.info("bridge", "this either")
    writer.close(WAIT_SECONDS)
    assert writer._ended.is_set()


def test_closing_a_log_that_said_nothing_waits_for_nothing(pipe: tuple[int, int]) -> None:
    product.Log(pipe[1], LogLevel.INFO, SMALL).close(WAIT_SECONDS)


def test_each_line_is_one_write(monkeypatch: pytest.MonkeyPatch, pipe: tuple[int, int]) -> None:
    writes: list[bytes] = []
    write = os.write

    def spy(descriptor: int, data: bytes) -> int:
        if descriptor == pipe[1]:
            writes.append(bytes(data))
        return write(descriptor, data)

    monkeypatch.setattr(os, "write", spy)
    writer = product.Log(pipe[1], LogLevel.INFO, SMALL)
    for number in range(5):
        writer.info("bridge", f"line {number}")
    writer.close(WAIT_SECONDS)
    assert [data.count(b"\n") for data in writes] == [1] * 5
    assert all(data.endswith(b"\n") for data in writes)
