"""Blocking: while the body of a task waits for the ends of others, the kernel knows, and may lend its slot meanwhile.

When the wait is over, and the slot was lent, the body needs it again (S7). The kernel says when it may go on; until
then it waits here. An exception out of nowhere (Ctrl-C) ends that too: the body is about to end then.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable
from threading import Lock
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

from whywait.support.lazy import asyncio
from whywait.support.waiters import Awaited
from whywait.task.surroundings import task_here

T = TypeVar("T")


class Core(Protocol):
    """What tells the kernel."""

    def blocks(self, execution: Any, wait: Blocking, /) -> None:  # noqa: ANN401 - of its own kind
        """Record that the body of a task waits for the ends of others."""

    def unblocks(self, execution: Any, wait: Blocking, waiter: Any, /) -> bool:  # noqa: ANN401 - as above
        """Record that it does no more; if it has to wait for its slot, return True and release ``waiter`` then."""


class Ending(Protocol):
    """A task that waits for others, or that is waited for."""

    @property
    def core(self) -> Core:
        """What it belongs to."""

    @property
    def is_done(self) -> bool:
        """Whether it has ended."""


class Blocking:
    """One wait of the body that the caller runs in, if any, for the ends of tasks of the same authority."""

    __slots__ = ("_here", "on", "others")

    def __init__(self, others: Iterable[Ending]) -> None:
        """Begin the wait."""
        here: Any = task_here()
        self.others = (
            () if here is None else tuple(each for each in others if each.core is here.core and each is not here)
        )
        self.on: Any = None  # the one of them that was told of
        self._here: Ending | None = here if self.others else None
        if self._here is not None:
            self._here.core.blocks(self._here, self)

    def look_again(self) -> None:
        """Tell of another task if the one that was told of has ended."""
        if self._here is not None and (self.on is None or self.on.is_done):
            self._here.core.blocks(self._here, self)

    def end(self) -> None:
        """End the wait, and block until the body may go on."""
        if self._here is not None:
            waiter = Lock()
            waiter.acquire()
            if self._here.core.unblocks(self._here, self, waiter):
                waiter.acquire()

    def __enter__(self) -> Self:
        """Use as a block."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """End the wait."""
        self.end()

    async def over(self, awaitable: Awaitable[T]) -> T:
        """Await something on the running loop and end the wait with it."""
        try:
            return await awaitable
        except GeneratorExit:  # the loop is gone, and nothing can be awaited any more
            if self._here is not None:
                self._here.core.unblocks(self._here, self, None)
                self._here = None
            raise
        finally:
            await self._end_async()

    async def _end_async(self) -> None:
        """End the wait without blocking the loop; a cancellation comes through when the body may go on."""
        if self._here is None:
            return
        waiter = Awaited()
        cancelled: BaseException | None = None
        if self._here.core.unblocks(self._here, self, waiter):
            while not waiter.future.done():
                try:
                    await asyncio.shield(waiter.future)
                except asyncio.CancelledError as error:
                    cancelled = error
        if cancelled is not None:
            raise cancelled
