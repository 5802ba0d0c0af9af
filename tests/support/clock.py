"""A clock that stands still until a test moves it."""

from __future__ import annotations

import threading

import mcp_bridge_vscode as product


class _Waiter:
    def __init__(self, signal: product.Signal, until: float | None) -> None:
        self.signal = signal
        self.until = until
        self.is_over = False


class FakeClock(product.Clock):
    """Fake seconds. wait() ends with its signal, or when the time has been moved to `until`.

    Threads: any. A moment that has been reached is never missed: who begins to wait for it later
    does not wait.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards the two fields below
        self._now = 1000.0
        self._waiters: list[_Waiter] = []  # until each has woken up, or its moment has come

    def now(self) -> float:
        return self._now

    def wait(self, event: product.Signal, until: float | None) -> bool:
        with self._lock:
            if until is not None and self._now >= until:
                return event.wait(0)
            waiter = _Waiter(event, until)
            self._waiters.append(waiter)
        event.wait(None)
        with self._lock:
            if waiter in self._waiters:
                self._waiters.remove(waiter)
            return not waiter.is_over

    def advance(self, seconds: float) -> None:
        """Time goes on; who waited for a moment that has come goes on too."""
        with self._lock:
            self._now += seconds
            due = [
                waiter
                for waiter in self._waiters
                if waiter.until is not None and waiter.until <= self._now
            ]
            for waiter in due:
                self._waiters.remove(waiter)
                waiter.is_over = True
                waiter.signal.set()

    def has_waiter_until(self, until: float) -> bool:
        """Does a thread wait for this very moment?"""
        with self._lock:
            return any(waiter.until == until for waiter in self._waiters)
