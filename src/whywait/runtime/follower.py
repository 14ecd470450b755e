"""A ``concurrent.futures.Future`` that follows a handle."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from whywait.support.logger import Log
from whywait.support.raised import loggable


class _Follower(Future[Any]):
    """A future; to cancel it is to cancel the task of a handle."""

    def __init__(self, handle: Any) -> None:
        super().__init__()
        self._handle = handle

    def cancel(self) -> bool:
        """Ask the task to end; the future follows when it has."""
        self._handle.cancel()
        return False


def follow(
    handle: Any,
    ends_with: Callable[[Callable[[], object]], None],
    log: Log,
) -> Future[Any]:
    """Return a future that ends like a handle; ``ends_with`` is told what to call at the end."""
    future = _Follower(handle)
    future.set_running_or_notify_cancel()

    def copy() -> None:
        if future.done():
            return
        try:
            error = handle.exception()
            if error is None:
                future.set_result(handle.result())
            else:
                future.set_exception(error)
        except BaseException as raised:
            if not future.done():
                raise
            log.exception("a callback of a future failed", exc_info=loggable(raised))  # as futures do

    ends_with(copy)
    return future
