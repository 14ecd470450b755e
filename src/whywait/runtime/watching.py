"""Watching: threads and coroutines that wait until something holds in the kernel, such as that a scope has ended."""

from __future__ import annotations

import threading
from collections.abc import Callable
from threading import RLock

from whywait.support.lazy import asyncio
from whywait.support.locks import LeftBehind
from whywait.support.mutex import new_lock
from whywait.support.waiters import Awaited, refuse_on_loop


class Watching:
    """The lock of a kernel, and the watchers that hear when a condition holds under it."""

    __slots__ = ("__weakref__", "lock", "watchers")

    def __init__(self) -> None:
        """Begin with a free lock and without watchers."""
        self.lock: RLock = new_lock()
        self.watchers: list[tuple[Callable[[], bool], Callable[[], None]]] = []

    def let_go(self) -> None:
        """Be of no use in a fork of this process: none of the threads is there, and locks may be held for ever."""
        self.lock = LeftBehind()  # type: ignore[assignment] # it only refuses

    def watch(self, condition: Callable[[], bool], tell: Callable[[], None]) -> None:
        """Call ``tell`` once, under the lock, as soon as ``condition`` holds."""
        with self.lock:
            if condition():
                tell()
            else:
                self.watchers.append((condition, tell))

    def unwatch(self, tell: Callable[[], None]) -> None:
        """Do not call ``tell`` any more."""
        with self.lock:
            self.watchers = [watcher for watcher in self.watchers if watcher[1] is not tell]

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

    def tell_watchers(self) -> None:
        """Tell those whose condition holds now, under the lock."""
        waiting = []
        for condition, tell in self.watchers:
            if condition():
                tell()
            else:
                waiting.append((condition, tell))
        self.watchers = waiting
