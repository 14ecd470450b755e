"""Coroutines as tasks of an event loop that always tell how they end, also when they are cancelled or closed early."""

from __future__ import annotations

import contextlib
from collections.abc import Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")


class _Begun:
    """Suspends a coroutine once."""

    __await__: Any = staticmethod(partial(iter, (None,)))  # in a third of the time that a method takes


begun: Final = _Begun()


def primed(coroutine: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
    """Let a coroutine run up to its ``await begun``, so that it is there when its task is cancelled before any step."""
    coroutine.send(None)
    return coroutine


def is_cancelled(task: asyncio.Task[Any]) -> bool:
    """Return whether a task of asyncio has been cancelled, whether it has ended by that or not."""
    cancelling = getattr(task, "cancelling", None)  # a task of another make may not say
    return cancelling is not None and cancelling() > 0


def close(task: asyncio.Task[Any]) -> None:
    """Close the coroutine of a task whose loop runs no more: its ``finally`` blocks run here and now."""
    task._log_destroy_pending = False  # type: ignore[attr-defined] # noqa: SLF001 - what closes it tells of it
    with contextlib.suppress(BaseException):  # whatever it raises there, it goes on no more
        task.get_coro().close()
