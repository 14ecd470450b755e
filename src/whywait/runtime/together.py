"""Several handles together: wait for them, take them as they end, gather their results; for threads and coroutines.

Every form follows the handles by done callbacks that put each ended handle into one queue, and takes the callbacks back
when it stops following. On the thread of an event loop the blocking forms refuse unless there is nothing to wait for.
"""

from __future__ import annotations

import queue
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from functools import partial
from time import monotonic
from typing import Any, Final, Generic, Literal, NamedTuple, TypeVar

from whywait.errors import ConfigError
from whywait.kernel.durations import Seconds, in_seconds
from whywait.kernel.state import Outcome
from whywait.runtime.blocking import Blocking
from whywait.runtime.execution import Execution
from whywait.runtime.handle import Handle
from whywait.support.lazy import asyncio
from whywait.support.waiters import call_on, refuse_on_loop
from whywait.support.words import counted

T = TypeVar("T")

ReturnWhen = Literal["all", "first", "first_error"]
_RETURN_WHEN: Final = ("all", "first", "first_error")


class Waited(NamedTuple, Generic[T]):
    """What :func:`wait` returns: the handles that have ended and those that have not, each in the order given."""

    done: list[Handle[T]]
    pending: list[Handle[T]]


def wait(handles: Iterable[Handle[T]], *, timeout: Seconds | None = None, return_when: ReturnWhen = "all") -> Waited[T]:
    """Block until all handles have ended, or the first, or the first that failed; return which have and which have not.

    A ``timeout`` ends the waiting only: the tasks go on.
    """
    return _wait(handles, timeout, return_when, "wait")


def _wait(
    handles: Iterable[Handle[T]], timeout: Seconds | None, return_when: ReturnWhen, called: Literal["wait", "gather"]
) -> Waited[T]:
    several, enough = _each(handles), _rule(return_when)
    if not enough(several):
        refuse_on_loop(f"{called}()", f"await whywait.{called}_async(...)")
        following: _Following[T] = _Following(several, timeout)
        try:
            with Blocking(several) as blocking:
                while not enough(several) and following.next() is not None:
                    blocking.look_again()
        finally:
            following.stop()
    return _split(several)


async def wait_async(
    handles: Iterable[Handle[T]],
    *,
    timeout: Seconds | None = None,  # noqa: ASYNC109 - as the blocking form has it, text and all
    return_when: ReturnWhen = "all",
) -> Waited[T]:
    """Do the same as :func:`wait` without blocking the event loop."""
    several, enough = _each(handles), _rule(return_when)
    if not enough(several):
        following: _Following[T] = _Following(several, timeout, on_loop=True)
        blocking = Blocking(several)

        async def follow() -> None:
            while not enough(several) and await following.next_async() is not None:
                blocking.look_again()

        try:
            await blocking.over(follow())
        finally:
            following.stop()
    return _split(several)


def gather(*handles: Handle[T], timeout: Seconds | None = None) -> list[T]:
    """Block until all handles have ended; return their results in the order given, or raise the first error.

    The first error is raised as soon as it is there; the other tasks go on. TimeoutError after ``timeout``.
    """
    return _results(_wait(handles, timeout, "first_error", "gather"), handles, timeout)


async def gather_async(*handles: Handle[T], timeout: Seconds | None = None) -> list[T]:  # noqa: ASYNC109 - as above
    """Do the same as :func:`gather` without blocking the event loop."""
    waited = await wait_async(handles, timeout=timeout, return_when="first_error")
    for each in waited.done:
        await each  # a result that is still elsewhere comes without blocking the loop
    return _results(waited, handles, timeout)


class as_completed(Generic[T]):  # noqa: N801 - used like the function of that name in the standard library
    """Yield handles as they end: ``for handle in as_completed(handles)``, or ``async for`` on an event loop.

    TimeoutError is raised when ``timeout`` has passed since the loop began and some have not ended.
    """

    def __init__(self, handles: Iterable[Handle[T]], *, timeout: Seconds | None = None) -> None:
        """Keep what is to be followed; the loop follows it."""
        self._handles = _each(handles)
        self._timeout = timeout

    def __iter__(self) -> Iterator[Handle[T]]:
        """Yield each handle when it has ended, those that have already first."""
        if not all(handle.done() for handle in self._handles):
            refuse_on_loop("as_completed() in a plain loop", "async for handle in whywait.as_completed(...)")
        following: _Following[T] = _Following(self._handles, self._timeout)
        try:
            for left in range(len(self._handles), 0, -1):
                with Blocking(following.awaited()):
                    handle = following.next()
                if handle is None:
                    raise _late(left, len(self._handles), self._timeout)
                yield handle
        finally:
            following.stop()

    async def __aiter__(self) -> AsyncIterator[Handle[T]]:
        """Do the same without blocking the event loop."""
        following: _Following[T] = _Following(self._handles, self._timeout, on_loop=True)
        try:
            for left in range(len(self._handles), 0, -1):
                handle = await Blocking(following.awaited()).over(following.next_async())
                if handle is None:
                    raise _late(left, len(self._handles), self._timeout)
                yield handle
        finally:
            following.stop()


class _Following(Generic[T]):
    """Handles that are followed to their ends, up to a deadline, in a thread or on the running event loop."""

    def __init__(self, handles: list[Handle[T]], timeout: Seconds | None, *, on_loop: bool = False) -> None:
        self._handles = handles
        self._until = None if timeout is None else monotonic() + in_seconds("timeout", timeout)
        self._queue: Any = asyncio.Queue() if on_loop else queue.SimpleQueue()
        put = self._queue.put_nowait
        self._ended = partial(call_on, asyncio.get_running_loop(), put) if on_loop else put
        for handle in handles:
            handle.add_done_callback(self._ended)

    def awaited(self) -> list[Execution]:
        """Return the tasks that the next one is waited for among; none if one is there already."""
        return [each for each in self._handles if not each.done()] if self._queue.empty() else []

    def next(self) -> Handle[T] | None:
        """Return the next handle that has ended; None: the time is up."""
        try:
            return self._queue.get(timeout=self._left_s())  # type: ignore[no-any-return]
        except queue.Empty:
            return None

    async def next_async(self) -> Handle[T] | None:
        """Do the same without blocking the event loop."""
        try:
            return await asyncio.wait_for(self._queue.get(), self._left_s())
        except TimeoutError:
            return None

    def _left_s(self) -> float | None:
        return None if self._until is None else max(0.0, self._until - monotonic())

    def stop(self) -> None:
        """Follow no longer."""
        for handle in self._handles:
            handle.remove_done_callback(self._ended)


def _each(handles: Iterable[Handle[T]]) -> list[Handle[T]]:
    """Return the handles, each once."""
    several = list(dict.fromkeys(handles))
    for each in several:
        if not isinstance(each, Handle):
            raise ConfigError(f"{each!r} is not a handle: give what submit() has returned")
    return several


def _rule(return_when: str) -> Callable[[list[Handle[Any]]], bool]:
    """Return what says whether enough of the handles have ended."""
    if return_when not in _RETURN_WHEN:
        raise ConfigError(f"return_when {return_when!r} is not allowed: use one of {', '.join(_RETURN_WHEN)}")

    def enough(handles: list[Handle[Any]]) -> bool:
        done = [handle for handle in handles if handle.done()]
        if len(done) == len(handles):
            return True
        if return_when == "first":
            return bool(done)
        return return_when == "first_error" and any(handle.outcome is not Outcome.SUCCESS for handle in done)

    return enough


def _split(handles: list[Handle[T]]) -> Waited[T]:
    done = {handle: handle.done() for handle in handles}  # asked once: more may end meanwhile
    return Waited([each for each in handles if done[each]], [each for each in handles if not done[each]])


def _results(waited: Waited[T], handles: tuple[Handle[T], ...], timeout: Seconds | None) -> list[T]:
    for each in waited.done:
        if each.outcome is not Outcome.SUCCESS:
            each.result()
    if waited.pending:
        raise _late(len(waited.pending), len(handles), timeout)
    return [each.result() for each in handles]


def _late(left: int, total: int, timeout: Seconds | None) -> TimeoutError:
    have, they = ("has", "it goes") if left == 1 else ("have", "they go")
    return TimeoutError(f"{left} of {counted(total, 'task')} {have} not ended after {timeout}; {they} on")
