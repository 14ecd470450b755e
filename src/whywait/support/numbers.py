"""Numbers in a row, each given out once, whatever threads ask for them."""

from __future__ import annotations

from whywait.support.forks import own
from whywait.support.locks import SafeLock


class Numbers:
    """Gives out 1, 2, 3... An ``itertools.count`` gives two threads the same without a global interpreter lock."""

    __slots__ = ("__weakref__", "_last", "_lock")

    def __init__(self) -> None:
        """Begin before 1."""
        self._lock = SafeLock()
        self._last = 0

    def next(self) -> int:
        """Return the next number."""
        with self._lock:
            self._last += 1
            return self._last

    def let_go(self) -> None:
        """In a fork of this process: a thread that is not there may have the lock."""
        self._lock = SafeLock()
        own(self)
