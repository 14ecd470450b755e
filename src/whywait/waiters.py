"""Waiters: threads and coroutines that wait, side by side, for something that a lock guards.

Whoever changes what is guarded rings afterwards; whoever waits looks again. Ringing takes no lock, so that a
finaliser may do it.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Any

from whywait.errors import WhywaitError
from whywait.lazy import asyncio, running_loop


def finish(waiter: asyncio.Future[None]) -> None:
    """Let whoever awaits a future go on."""
    if not waiter.done():
        waiter.set_result(None)


def ringer(loop: asyncio.AbstractEventLoop, waiter: asyncio.Future[None]) -> Callable[[], None]:
    """Return a function that finishes a future of a loop from any thread."""

    def ring() -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(finish, waiter)

    return ring


def refuse_on_loop(what: str, instead: str) -> None:
    """Raise if this thread runs an event loop, which a blocking call would freeze."""
    if running_loop() is not None:
        raise WhywaitError(f"{what} would freeze the running event loop: use `{instead}`")


class Waiters:
    """A lock, and whoever waits for what it guards to change."""

    __slots__ = ("_bells", "lock")

    def __init__(self) -> None:
        """Start with nobody."""
        self.lock = threading.Lock()
        self._bells: deque[Callable[[], object]] = deque()

    def ring(self) -> None:
        """Let everybody look again."""
        bells = self._bells
        while bells:
            with contextlib.suppress(IndexError):  # another thread rings too
                bells.popleft()()

    def wait(
        self, look: Callable[[], Any], timeout: float | None = None, between: Callable[[], object] | None = None
    ) -> bool:
        """Block until ``look()``, called under the lock, is true; return whether that was in time.

        ``between`` is called, without the lock, whenever somebody has rung.
        """
        until = None if timeout is None else monotonic() + timeout
        while True:
            bell = threading.Lock()
            bell.acquire()
            with self.lock:
                if look():
                    return True
                self._bells.append(bell.release)
            if not bell.acquire(timeout=-1 if until is None else max(0.0, until - monotonic())):
                with self.lock:
                    with contextlib.suppress(ValueError):
                        self._bells.remove(bell.release)
                    return bool(look())
            if between is not None:
                between()

    async def wait_async(self, look: Callable[[], Any], between: Callable[[], Awaitable[object]] | None = None) -> None:
        """Do the same without blocking the event loop and without a timeout."""
        loop = asyncio.get_running_loop()
        while True:
            waiter: asyncio.Future[None] = loop.create_future()
            with self.lock:
                if look():
                    return
                self._bells.append(ringer(loop, waiter))
            await waiter
            if between is not None:
                await between()
