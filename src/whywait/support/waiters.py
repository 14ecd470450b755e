"""Waiters: threads and coroutines that wait, side by side, for something that a lock guards.

Each waiter hangs up a bell of its own: a lock that it sleeps on, or a future that it awaits. The steps, and the race
that each closes:

1. A waiter hangs up a fresh bell *before* it looks at anything. A change that comes after its look rings this bell, so
   the sleep of step 4 ends at once: no change falls between the look and the sleep.
2. Then it calls ``between``, which looks at what the lock does not guard: the signal of a task, say, whose listener is
   ``ring``. It may park there or raise. The signal is set before its listeners are told: it is seen here, or it rings.
3. Then it looks at what the lock guards, under the lock.
4. It sleeps until its bell rings, and begins again at 1.
5. A thread that changes what is guarded does so and *then* calls ``ring()``, which rings all bells that hang at that
   moment; to ring one twice does no harm, so what a signal breaks off can be done again. A waiter that hangs up a bell
   later looks after that, and sees the change: waiters that hang up new bells cannot keep a ringing thread busy.
6. A waiter takes its own bell off, whatever ends its wait; nobody else does, so no signal can lose one.

Ringing takes no lock, so that a finaliser may do it.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Awaitable, Callable
from threading import RLock
from time import monotonic
from typing import Any

from whywait.errors import WhywaitError
from whywait.support.lazy import asyncio
from whywait.support.notebooks import callers_loop


def call_on(loop: asyncio.AbstractEventLoop, fn: Callable[..., object], *args: Any) -> None:
    """Call a function on an event loop: at once if this thread runs that loop, else soon; never if it is closed."""
    if asyncio._get_running_loop() is loop:  # noqa: SLF001 - public for such uses, says its documentation
        fn(*args)
    else:
        with contextlib.suppress(RuntimeError):  # it is closed: nothing waits there any more
            loop.call_soon_threadsafe(fn, *args)


class Awaited:
    """What a coroutine awaits on its event loop, as ``future``, until any thread releases it, like a lock."""

    __slots__ = ("future", "is_released", "loop")

    def __init__(self) -> None:
        """Belong to the running loop."""
        self.loop = loop = asyncio.get_running_loop()
        self.future: asyncio.Future[None] = loop.create_future()
        self.is_released = False

    def release(self) -> None:
        """Let the coroutine go on; once too often does no harm."""
        if not self.is_released:
            call_on(self.loop, self._finish)
            self.is_released = True  # last: what is broken off is done again

    def _finish(self) -> None:
        if not self.future.done():
            self.future.set_result(None)


def refuse_on_loop(what: str, instead: str) -> None:
    """Raise if this thread runs an event loop for its caller, which a blocking call would freeze."""
    if callers_loop() is not None:
        raise WhywaitError(f"{what} would freeze the running event loop: use `{instead}`")


class Waiters:
    """A lock, and the threads and coroutines that wait for what it guards to change."""

    __slots__ = ("_awaited", "_bells", "lock")

    def __init__(self) -> None:
        """Start without waiters."""
        self.lock = RLock()
        self._bells: list[threading.Lock] = []  # of threads
        self._awaited: list[Awaited] = []  # those of coroutines

    def ring(self) -> None:
        """Let all waiters look again."""
        if self._bells or self._awaited:
            bells: list[threading.Lock | Awaited] = [*self._bells, *self._awaited]
            for bell in bells:
                with contextlib.suppress(RuntimeError):  # it is rung already, and its thread has not woken up yet
                    bell.release()

    def wait(
        self, look: Callable[[], Any], timeout: float | None = None, between: Callable[[], object] | None = None
    ) -> bool:
        """Block until ``look()``, called under the lock, is true; return whether that was in time.

        ``between`` is called, without the lock, before each look; what it looks at has to call :meth:`ring` as well.
        """
        until = None if timeout is None else monotonic() + timeout
        while True:
            bell = threading.Lock()
            bell.acquire()
            self._bells.append(bell)
            try:
                if between is not None:
                    between()
                with self.lock:
                    if look():
                        return True
                is_rung = bell.acquire(timeout=-1 if until is None else max(0.0, until - monotonic()))
            finally:
                self._bells.remove(bell)
            if not is_rung:
                with self.lock:
                    return bool(look())

    async def wait_async(self, look: Callable[[], Any], between: Callable[[], Awaitable[object]] | None = None) -> None:
        """Do the same without blocking the event loop and without a timeout."""
        while True:
            bell = Awaited()
            self._awaited.append(bell)
            try:
                if between is not None:
                    await between()
                with self.lock:
                    if look():
                        return
                await bell.future
            finally:
                self._awaited.remove(bell)


class Latch:
    """Stays shut until it is opened, for all that wait.

    It is what an event of the standard library is, but for what signals do: those may leave the lock inside an event
    taken for ever. To open it may be broken off by one, and is then to be done again.
    """

    __slots__ = ("_is_open", "_waiters")

    def __init__(self) -> None:
        """Begin shut."""
        self._is_open = False
        self._waiters = Waiters()

    def is_open(self) -> bool:
        """Return whether it is open."""
        return self._is_open

    def open(self) -> None:
        """Open it for good."""
        self._is_open = True
        self._waiters.ring()

    def wait(self, timeout: float | None = None) -> bool:
        """Block until it is open; return whether that was in time."""
        return self._is_open or self._waiters.wait(self.is_open, timeout)
