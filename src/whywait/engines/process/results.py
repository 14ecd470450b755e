"""What came of a body in a child process: its result, or an error that can be raised here."""

from __future__ import annotations

import pickle
from typing import Any

from whywait.engines.base import Ended, EngineTask
from whywait.engines.process.frames import RESULT_NOT_PICKLED
from whywait.errors import TaskFailed
from whywait.kernel.state import Cause, Outcome
from whywait.task.running import RunningTask


class RemoteTraceback(Exception):  # noqa: N818 - it stands where a traceback would
    """The cause of an error from a child process: its traceback there, as text."""

    def __str__(self) -> str:
        """Show the traceback as it was printed there."""
        return f'\n"""\n{self.args[0]}"""'


def returned(payload: bytes | bytearray) -> Any:  # noqa: ANN401 - any result
    """Return the result of a body; unpickling runs code of the user and may raise anything."""
    return pickle.loads(payload) if payload else None  # noqa: S301 - from our own child


def raised(task: RunningTask, payload: bytes | bytearray) -> tuple[BaseException, str]:
    """Return what a body raised, if that can be had here, and the cause code."""
    stage, name, text, data, cause = pickle.loads(payload)  # noqa: S301 - from our own child
    if stage:
        kind = NotPickled if stage == RESULT_NOT_PICKLED else TaskFailed
        return _failure(f"task {task.label}: {stage}: {name}", text, kind), cause
    error = None
    if data:
        try:
            error = pickle.loads(data)  # noqa: S301 - from our own child
        except BaseException:
            task.core.log.debug("an error of task %s could not be unpickled", task.label, exc_info=True)
    if not isinstance(error, BaseException):
        return _failure(f"task {task.label}: its body raised {name}, which cannot be pickled", text), cause
    error.__cause__ = RemoteTraceback(text)
    return error, cause


class NotPickled(TaskFailed, pickle.PicklingError):
    """A task, or its result, could not be pickled for its way to or from another process."""


def failed(
    execution: EngineTask,
    what: str,
    error: BaseException | None = None,
    cause: str = Cause.EXCEPTION,
    kind: type[TaskFailed] = TaskFailed,
) -> Ended:
    """Let a task fail with an error of our own; return how it has ended."""
    failure = kind(f"task {execution.label}: {what}")
    failure.__cause__ = error
    return Outcome.ERROR, cause, execution.failed(failure)[2]


def _failure(what: str, text: str, kind: type[TaskFailed] = TaskFailed) -> TaskFailed:
    failure = kind(what)
    failure.__cause__ = RemoteTraceback(text)
    return failure
