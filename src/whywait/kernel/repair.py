"""Repair: bring a kernel back to order after a command was broken off half-way.

Python may raise an exception between any two lines of the main thread (Ctrl-C), and a command that has begun to
change things cannot be taken back line by line. But each task knows where it stands, and everything else can be
made anew from that: who was starting has started, who was ending has ended, who was becoming READY is READY. Slow and
plain; nothing but an interrupted command comes here.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

from whywait.kernel import scopes
from whywait.kernel.state import Cause, Outcome, ScopeState, TaskState

if TYPE_CHECKING:
    from whywait.kernel.life import Life
    from whywait.kernel.model import Task


def repair(life: Life, now: int, started: list[Task]) -> list[Task]:
    """Make everything anew; return the tasks whose start was decided and not yet recorded.

    ``started`` are those that dispatch had decided to start in the command that was broken off.
    """
    for scope in life.root.subtree():
        if scope.state == ScopeState.DISPOSED and scope.parent is not None:
            life.scopes.pop(scope.key, None)
            scope.parent.children.pop(scope.key, None)
    for task in _living(life):
        if task.state == TaskState.DISPOSED:
            _end(life, now, task)
    life.settled[:] = [task for task in life.settled if task.outcome is not None]
    living = _living(life)
    for task in living:
        if task.name is not None and task.periodic is None:
            task.scope.ids[task.name] = task
        if task.state == TaskState.QUEUED and not task.unmet and task.held_by is None:
            task.state = TaskState.READY
    holders = sorted((task for task in living if task.holds_slot), key=attrgetter("started_seq"))
    unrecorded = [task for task in holders if not task.started_seq]
    recorded = [task for task in holders if task.started_seq]
    _rebuild(life, now, living, holders, recorded)
    for task in recorded:
        if task.state == TaskState.DISPOSING and task.abort is None:
            life.requests.append(("abort", task))
            task.abort = (Outcome.ABORTED, Cause.CANCELLED, task.started_seq)
    started[:] = [task for task in started if task.started_seq] + unrecorded
    disposing = [scope for scope in life.scopes.values() if scope.state == ScopeState.DISPOSING]
    scopes.end_inside(life, now, disposing, None)
    return unrecorded


def _rebuild(life: Life, now: int, living: list[Task], holders: list[Task], recorded: list[Task]) -> None:
    ready = [task for task in living if task.state == TaskState.READY]
    life.dispatcher.rebuild(now, list(life.scopes.values()), ready, holders)
    life.running.clear()
    life.running.update((task.number, task) for task in recorded)
    for scope in life.scopes.values():
        scope.running = scope.pending = 0
    for task in recorded:
        task.scope.running += 1
    for task in living:
        if task.pending or not task.started_seq:
            life.count_pending(task, 1)
        if task.state == TaskState.READY and task.policy.max_wait_ns is not None and task.wait_timer is None:
            life.limit_wait(now, task)
        task.plain = task.plain and task.wait_timer is None


def _living(life: Life) -> list[Task]:
    return [task for scope in life.scopes.values() for task in scope.tasks.values()]


def _end(life: Life, now: int, task: Task) -> None:
    """Complete the end of a task."""
    outcome = task.outcome
    if outcome is None:
        outcome = Outcome.ABORTED
        task.cause = task.cause or Cause.CANCELLED
    life.unregister(now, task, outcome)
    if task not in life.settled:
        life.settled.append(task)
