"""Measuring: what bodies really use of the memory, and what a budget makes of it."""

from __future__ import annotations

from whywait.kernel import ending
from whywait.kernel.base import Base, tell
from whywait.kernel.events import Kind
from whywait.kernel.limits import MEASURED, MOST
from whywait.kernel.model import Task
from whywait.kernel.running import overdraw
from whywait.kernel.state import Cause, Outcome


def measured(k: Base, now: int, task: Task, ram: int) -> None:
    """Record how much memory the body of a running task uses now.

    The budget counts what that is more than the task has asked for, unless ``overdraft`` is "warn". A task that uses
    more than it has asked for is told of once; with "kill" it is ended. One that has asked for none has promised none.
    """
    if not task.active:
        return  # its body has ended meanwhile
    asked: int = dict(task.demand).get(MEASURED, 0)
    gate = task.scope.pool.resources.get(MEASURED)
    if gate is not None and k.overdraft != "warn":
        overdraw(k, now, task, gate, max(0, min(ram, MOST) - asked))
    if ram <= asked or not asked or task.is_overdrawn:
        return
    task.is_overdrawn = True
    details = (("asked", asked), ("ram", ram))
    seq = tell(k, now, Kind.TASK_OVERDRAWN, task, task.started_seq, details)
    if k.overdraft == "kill" and task.abort is None:
        ending.ask_abort(k, now, task, Outcome.ERROR, Cause.OUT_OF_MEMORY, seq)
