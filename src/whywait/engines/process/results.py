"""What came of a body in a child process: its result, or an error that can be raised here."""

from __future__ import annotations

import pickle
from typing import Any

from whywait.engines.base import Ended, EngineTask
from whywait.engines.process.frames import RESULT_NOT_PICKLED
from whywait.errors import TaskFailed
from whywait.kernel.state import Cause, Outcome
from whywait.task.surroundings import RunningTask


class RemoteTraceback(Exception):
    """The cause of an error from a child process: its traceback there, as text."""

    def __str__(self) -> str:
        """Show the traceback as it was printed there."""
        return f'\n"""\n{self.args[0]}"""'


class NotPickled(TaskFailed, pickle.PicklingError):
    """A task, or its result, could not be pickled for its way to or from another process."""


class Failure(Exception):
    """A task has failed elsewhere, or on its way: its error, and the cause code."""

    def __init__(self, error: BaseException, cause: str = Cause.EXCEPTION) -> None:
        """Keep both."""
        super().__init__(error)
        self.error = error
        self.cause = cause

    def ended(self, execution: EngineTask) -> Ended:
        """Let the task fail with the error; return how it has ended."""
        return Outcome.ERROR, self.cause, execution.failed(self.error)[2]


def failed(
    task: RunningTask,
    what: str,
    reason: BaseException | None = None,
    cause: str = Cause.EXCEPTION,
    kind: type[TaskFailed] = TaskFailed,
) -> Failure:
    """Return a failure by an error of our own."""
    error = kind(f"task {task.label}: {what}")
    error.__cause__ = reason
    return Failure(error, cause)


def returned(task: RunningTask, payload: bytes | bytearray) -> Any:
    """Return the result of a body; unpickling runs code of the user."""
    try:
        return pickle.loads(payload) if payload else None
    except BaseException as error:
        raise failed(task, f"its result could not be unpickled: {error!r}", error) from None


def raised(task: RunningTask, payload: bytes | bytearray) -> Failure:
    """Return what a body raised, if that can be had here."""
    stage, name, text, data, cause = pickle.loads(payload)
    there = RemoteTraceback(text)
    if stage:
        return failed(task, f"{stage}: {name}", there, cause, NotPickled if stage == RESULT_NOT_PICKLED else TaskFailed)
    error = None
    if data:
        try:
            error = pickle.loads(data)
        except BaseException:
            task.core.log.debug("an error of task %s could not be unpickled", task.label, exc_info=True)
    if not isinstance(error, BaseException):
        return failed(task, f"its body raised {name}, which cannot be pickled", there, cause)
    error.__cause__ = there
    return Failure(error, cause)
