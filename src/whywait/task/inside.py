"""The parts of a running task, found when needed, and the end of a task that has some."""

from __future__ import annotations

from typing import Final

from whywait.errors import InvalidTransition
from whywait.kernel.state import STATE_WORDS, Outcome, TaskState
from whywait.task.parts import Failure, Parts
from whywait.task.running import Ended, EndingTask, RunningTask, inside_of, signal_of

_ACTIVE: Final = (TaskState.RUNNING, TaskState.PAUSED, TaskState.DISPOSING)


def parts_of(task: RunningTask) -> Parts:
    """Return the parts of the present attempt, made when they are first needed; raise if its body has ended."""
    signal = signal_of(task)
    with task.core.lock:
        inside = inside_of(task)
        if inside.parts is None:
            state = task.state
            if state not in _ACTIVE:
                raise InvalidTransition(
                    f"task {task.label} is {STATE_WORDS[state]}: no body of it runs that could have queues"
                )
            inside.parts = Parts(task, signal)
            task.attention = True  # so that the engine waits for the parts when the body has ended
        parts: Parts = inside.parts
        return parts


def parts_if_any(task: RunningTask) -> Parts | None:
    """Return the parts that have to end before the task does; None: there are none."""
    inside = task.inside
    return None if inside is None else inside.parts


def finish_parts(task: EndingTask, outcome: Ended) -> Ended:
    """Wait, after the end of a body, for the handlers and workers of its task; return how the task ends."""
    parts = parts_if_any(task)
    if parts is None:
        return outcome
    return _after(task, outcome, parts.finish(failed=outcome[0] != Outcome.SUCCESS))


async def finish_parts_async(task: EndingTask, outcome: Ended) -> Ended:
    """Do the same without blocking the event loop."""
    parts = parts_if_any(task)
    if parts is None:
        return outcome
    return _after(task, outcome, await parts.finish_async(failed=outcome[0] != Outcome.SUCCESS))


def end_parts(task: RunningTask) -> None:
    """Let go of the parts of a task that has ended; what came too late for its engine to wait for is asked to end."""
    inside = task.inside
    if inside is not None and inside.parts is not None:
        parts, inside.parts = inside.parts, None
        parts.close()


def _after(task: EndingTask, outcome: Ended, failure: Failure | None) -> Ended:
    if failure is None or outcome[0] == Outcome.ABORTED:
        return outcome
    cause, error = failure
    return Outcome.ERROR, cause, task.failed(error)[2]
