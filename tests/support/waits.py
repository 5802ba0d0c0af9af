"""The one bound of every real wait in the process of the tests, and how to wait."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final, Generic, TypeVar

WAIT_SECONDS: Final = 10.0  # a good run never comes near it
_PAUSE: Final = threading.Event()  # never set: between two looks at what tells nobody

Item = TypeVar("Item")


def until(is_so: Callable[[], bool], what: str) -> None:
    """Waits for what tells nobody, such as the end of a thread of the product."""
    for _ in range(int(WAIT_SECONDS * 1000)):
        if is_so():
            return
        _PAUSE.wait(0.001)
    raise AssertionError(f"in vain waited for: {what}")


class Inbox(Generic[Item]):
    """What came, in its order: one thread puts it in, and the test takes it out."""

    def __init__(self) -> None:
        self._changed = threading.Condition()  # guards the two fields below
        self._items: list[Item] = []
        self._is_ended = False

    def put(self, item: Item) -> None:
        with self._changed:
            self._items.append(item)
            self._changed.notify_all()

    def end(self) -> None:
        """Nothing comes any more."""
        with self._changed:
            self._is_ended = True
            self._changed.notify_all()

    def take(self) -> Item | None:
        """The oldest one; None when nothing comes."""
        return self.take_where(lambda _: True)

    def take_where(self, is_wanted: Callable[[Item], bool]) -> Item | None:
        """The oldest one that is wanted; None when it does not come."""
        with self._changed:
            found: list[Item] = []

            def look() -> bool:
                found[:] = [item for item in self._items if is_wanted(item)][:1]
                return bool(found) or self._is_ended

            self._changed.wait_for(look, WAIT_SECONDS)
            if found:
                self._items.remove(found[0])
            return found[0] if found else None

    def wait_end(self) -> None:
        with self._changed:
            is_ended = self._changed.wait_for(lambda: self._is_ended, WAIT_SECONDS)
        assert is_ended, f"more may come after: {self.so_far()}"

    def rest(self) -> list[Item]:
        """What nobody has taken, once nothing comes any more."""
        self.wait_end()
        return self.so_far()

    def so_far(self) -> list[Item]:
        """What nobody has taken yet. More may be on its way: that nothing else has come, this
        proves only after something that came on the same way later.
        """
        with self._changed:
            return list(self._items)
