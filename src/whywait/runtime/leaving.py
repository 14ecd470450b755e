"""Leaving a block: what is waited for, what the log says of it, and when there is nothing more to wait for.

Leaving a block waits until its tasks have ended (O6). That may take as long as it likes, but not in silence:

1. What will not end by itself is told at once, at WARNING: tasks that are PAUSED, that wait in a SUSPENDED scope, or
   that are overdue. A task is *overdue* if it was asked to end, by its timeout say, and still runs after its grace,
   and after the time that a kill takes where something of it can be killed.
2. Otherwise the log says what is waited for when no task has started or ended for a minute, and again every minute.
   Iterations of periodics should be short: there it says so for the first time after their grace.
3. When only overdue tasks are left, and tasks that wait for what these hold, the wait is over. What follows is
   disposal, which raises DisposeIncomplete with their names (O5).

The kernel tells when a task has ended. That a task has become overdue is seen by looking, every :data:`LOOK_S` seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from time import monotonic_ns
from typing import Final, Self

from whywait.kernel.durations import NS
from whywait.kernel.model import Scope, Task
from whywait.kernel.state import STATE_WORDS, ScopeState, TaskState, Wait
from whywait.runtime.core import Core
from whywait.runtime.execution import Execution
from whywait.support.units import NS_PER_MS, format_ms
from whywait.support.words import counted
from whywait.task.parts import parts_if_any

LOOK_S: Final = 1.0
AGAIN_S: Final = 60.0
KILL_S: Final = 5.0  # how long what was killed may take to be gone
_NAMED: Final = 10


class Leaving:
    """One wait for the tasks of a scope and of those below it; ``what`` begins each line in the log."""

    def __init__(self, core: Core, scope: Scope, what: str) -> None:
        """Wait for the tasks of a scope, and not for iterations of periodics."""
        self._core = core
        self._scope = scope
        self._what = what
        self._quiet_s = AGAIN_S  # for so long after a change the log says nothing
        self._iterations = False  # they are waited for as well
        self._seen = (0, 0)  # at the last look: how many tasks were left, and the latest of their starts
        self._due_ns = 0  # when the next line is due
        self._told: set[int] = set()  # numbers of tasks that will not end by themselves, and are told

    def for_iterations(self, quiet_s: float) -> Self:
        """Wait for iterations of periodics as well from now on."""
        self._quiet_s = quiet_s
        self._iterations = True
        return self

    def until(self, condition: Callable[[], bool], *, gives_up: bool = True) -> Iterator[Callable[[], bool]]:
        """Yield a condition, to be waited for :data:`LOOK_S` at most, until it holds; or until it cannot any more."""
        is_first = not self._iterations
        while True:
            with self._core.lock:
                self._core.check_whole()
                if condition():
                    return
                now = monotonic_ns()
                overdue = self._overdue(now)
                line = self._line(now) if self._is_due(now, overdue, is_first=is_first) else None
                is_over = gives_up and self._is_hopeless(overdue)
            if line is not None:
                self._core.log.warning("%s waits for %s", self._what, line)
            if is_over:
                return
            is_first = False
            yield condition

    # All below is called under the lock

    def _is_due(self, now: int, overdue: set[int], *, is_first: bool) -> bool:
        """Return whether the log has to say something now."""
        active = list(self._active())
        stuck = {task.number for task in active if task.number in overdue or task.state == TaskState.PAUSED}
        seen = self._count(), max((task.started_seq for task in active), default=0)
        if seen != self._seen:
            self._seen = seen
            self._due_ns = now + round(self._quiet_s * NS)
        is_due = now >= self._due_ns or not stuck <= self._told or (is_first and any(map(_is_held, self._tasks())))
        if is_due:
            self._due_ns = now + round(AGAIN_S * NS)
            self._told |= stuck
        return is_due

    def _is_hopeless(self, overdue: set[int]) -> bool:
        """Return whether nothing is left but overdue tasks, and tasks that wait for what these hold."""
        active = list(self._active())
        if not active or not overdue.issuperset(task.number for task in active):
            return False
        if self._count() == len(active):
            return True
        kernel = self._core.kernel
        return overdue.issuperset(kernel.running) and not any(
            _is_held(task) or task.held_by == Wait.BACKOFF for task in kernel.living()
        )

    def _overdue(self, now: int) -> set[int]:
        """Return the numbers of all tasks that are overdue."""
        return {number for number, task in self._core.kernel.running.items() if self._is_overdue(task, now)}

    def _is_overdue(self, task: Task, now: int) -> bool:
        if task.abort_since is None:
            return False
        assert isinstance(task, Execution), "all tasks of this kernel are"
        limit_s = self._core.grace_of(task) + kill_s(self._core, task)
        return now >= task.abort_since + limit_s * NS

    def _line(self, now: int) -> str:
        """Return how many tasks are left, and of the first of them, those that run before others, how they stand."""
        pending = (task for task in self._tasks() if not task.active)
        named = [*islice(self._active(), _NAMED)]
        named += islice(pending, _NAMED - len(named))
        count = self._count()
        more = f", and {count - len(named)} more" if count > len(named) else ""
        told = ", ".join(f"{task.label} ({_standing(task, now)})" for task in named)
        return f"{counted(count, 'task')}: {told}{more}"

    def _active(self) -> Iterator[Task]:
        """Yield the tasks that are waited for and have started, in the order of their starts."""
        return (
            task
            for task in self._core.kernel.running.values()
            if self._scope in task.scope.chain and self._is_meant(task)
        )

    def _tasks(self) -> Iterator[Task]:
        """Yield all tasks that are waited for."""
        return (task for scope in self._scope.subtree() for task in scope.tasks.values() if self._is_meant(task))

    def _is_meant(self, task: Task) -> bool:
        return self._iterations or task.periodic is None

    def _count(self) -> int:
        return sum(len(scope.tasks) - (0 if self._iterations else scope.triggers) for scope in self._scope.subtree())


def kill_s(core: Core, execution: Execution) -> float:
    """Return how long a task has beyond its grace: its body, or a worker that it has hired, may have to be killed."""
    parts = parts_if_any(execution)
    can_kill = core.settings.inject or execution.engine.can_kill or (parts is not None and parts.can_kill)
    return KILL_S if can_kill else 0.0


def _is_held(task: Task) -> bool:
    """Return whether a task goes on only when it, or its scope, is resumed."""
    return task.state == TaskState.PAUSED or (task.pending and _is_suspended(task))


def _is_suspended(task: Task) -> bool:
    return any(scope.state == ScopeState.SUSPENDED for scope in task.scope.chain)


def _standing(task: Task, now: int) -> str:
    """Return the state of a task, and since when."""

    def ago(since: int) -> str:
        return format_ms((now - since) / NS_PER_MS)

    if task.abort_since is not None:
        return f"{STATE_WORDS[task.state]} for {ago(task.abort_since)}, started {ago(task.since)} ago"
    if task.parked_since is not None:
        return f"{STATE_WORDS[task.state]} for {ago(task.parked_since)}, started {ago(task.since)} ago"
    where = " in a suspended scope" if task.pending and _is_suspended(task) else ""
    return f"{STATE_WORDS[task.state]}{where} for {ago(task.since)}"
