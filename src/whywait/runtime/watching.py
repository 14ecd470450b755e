"""Watching: threads and coroutines that wait until something holds in the kernel, such as that a scope has ended."""

from __future__ import annotations

import threading
from collections.abc import Callable

from whywait.runtime.mending import Mending
from whywait.support.lazy import asyncio
from whywait.support.waiters import Awaited, refuse_on_loop


class Watching(Mending):
    """The lock of a kernel, and the watchers that hear when a condition holds under it."""

    def __init__(self) -> None:
        """Begin without watchers."""
        super().__init__()
        self._watchers: list[tuple[Callable[[], bool], Callable[[], None]]] = []

    def watch(self, condition: Callable[[], bool], tell: Callable[[], None]) -> None:
        """Call ``tell`` once, under the lock, as soon as ``condition`` holds."""
        with self.lock:
            if condition():
                tell()
            else:
                self._watchers.append((condition, tell))

    def unwatch(self, tell: Callable[[], None]) -> None:
        """Do not call ``tell`` any more."""
        with self.lock:
            self._watchers = list(filter(lambda watcher: watcher[1] is not tell, self._watchers))

    def wait_until(self, condition: Callable[[], bool], timeout_s: float | None, what: str, instead: str) -> bool:
        """Block until a condition, asked under the lock, holds; return whether that was in time.

        On an event loop this is refused: ``what`` would freeze it, ``instead`` would not.
        """
        with self.lock:
            if condition():
                return True
        refuse_on_loop(what, instead)
        return self.block_until(condition, timeout_s)

    def block_until(self, condition: Callable[[], bool], timeout_s: float | None) -> bool:
        """Do the same wherever it is called, on an event loop too."""
        waiter = threading.Lock()
        waiter.acquire()
        tell = waiter.release
        self.watch(condition, tell)
        try:
            return waiter.acquire(timeout=-1 if timeout_s is None else timeout_s)
        finally:
            self.unwatch(tell)

    async def wait_until_async(self, condition: Callable[[], bool], timeout_s: float | None) -> bool:
        """Do the same without blocking the event loop."""
        waiter = Awaited()
        tell = waiter.release
        self.watch(condition, tell)
        try:
            done, _ = await asyncio.wait([waiter.future], timeout=timeout_s)
        finally:
            self.unwatch(tell)
        return bool(done)

    def _tell_watchers(self) -> None:
        """Tell those whose condition holds now, under the lock; doing it twice does no harm."""
        waiting = []
        for condition, tell in self._watchers:
            if condition():
                tell()
            else:
                waiting.append((condition, tell))
        self._watchers = waiting
