"""A ``concurrent.futures.Future`` that follows a handle."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any


class _Follower(Future[Any]):
    """A future; to cancel it is to cancel the task of a handle."""

    def __init__(self, handle: Any) -> None:  # noqa: ANN401 - a handle, which stands after this
        super().__init__()
        self._handle = handle

    def cancel(self) -> bool:
        """Ask the task to end; the future follows when it has."""
        self._handle.cancel()
        return False


def follow(handle: Any) -> Future[Any]:  # noqa: ANN401 - as above
    """Return a future that ends like a handle."""
    future = _Follower(handle)
    future.set_running_or_notify_cancel()

    def copy(handle: Any) -> None:  # noqa: ANN401 - as above
        error = handle.exception()
        if error is None:
            future.set_result(handle.result())
        else:
            future.set_exception(error)

    handle.add_done_callback(copy)
    return future
