"""What came of a body in a worker process: its result, or an error that can be raised here."""

from __future__ import annotations

import logging
import pickle
from typing import TYPE_CHECKING, Any

from whywait.errors import TaskFailed
from whywait.kernel.state import Cause, Outcome

if TYPE_CHECKING:
    from whywait.engines.base import Ended
    from whywait.handle import Handle

log = logging.getLogger("whywait")


class RemoteTraceback(Exception):  # noqa: N818 - it stands where a traceback would
    """The cause of an error from a worker process: its traceback there, as text."""

    def __str__(self) -> str:
        """Show the traceback as it was printed there."""
        return f'\n"""\n{self.args[0]}"""'


def returned(payload: bytes | bytearray) -> Any:  # noqa: ANN401 - any result
    """Return the result of a body; unpickling runs code of the user and may raise anything."""
    return pickle.loads(payload) if payload else None  # noqa: S301 - from our own worker


def raised(task_id: str, payload: bytes | bytearray) -> tuple[BaseException, str]:
    """Return what a body raised, if that can be had here, and the cause code."""
    stage, name, text, data, cause = pickle.loads(payload)  # noqa: S301 - from our own worker
    if stage:
        return _failure(f"task {task_id}: {stage}: {name}", text), cause
    error = None
    if data:
        try:
            error = pickle.loads(data)  # noqa: S301 - from our own worker
        except BaseException:
            log.debug("an error of task %s could not be unpickled", task_id, exc_info=True)
    if not isinstance(error, BaseException):
        return _failure(f"task {task_id}: its body raised {name}, which cannot be pickled", text), cause
    error.__cause__ = RemoteTraceback(text)
    return error, cause


def failed(handle: Handle[Any], what: str, error: BaseException | None = None, cause: str = Cause.EXCEPTION) -> Ended:
    """Let a task fail with an error of our own; return how it has ended."""
    failure = TaskFailed(f"task {handle.id}: {what}")
    failure.__cause__ = error
    return Outcome.ERROR, cause, handle.failed(failure)[2]


def _failure(what: str, text: str) -> TaskFailed:
    failure = TaskFailed(what)
    failure.__cause__ = RemoteTraceback(text)
    return failure
