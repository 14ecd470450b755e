"""Dependencies: edges between tasks, wake-up, and what a failure takes down.

An edge is kept at both ends: ``task.after`` / ``task.after_ended`` (what it awaits, for explanation) and
``dependency.successors`` / ``dependency.ended_successors`` (what it wakes). A task that is retried stays the same
one, so dependents follow it to its final outcome.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Final

from whywait.kernel.model import Task
from whywait.kernel.state import Outcome, TaskState

_SLACK: Final = 64


def link(task: Task, after: Iterable[Task], after_ended: Iterable[Task]) -> Task | None:
    """Add the edges of a new task; return the first dependency that has already failed, if any."""
    failed = None
    awaited: list[Task] = []
    task.after = awaited
    for dependency in after:
        if dependency.outcome is None:
            successors = dependency.successors
            if successors is None:
                dependency.successors = [task]
            elif successors[-1] is task:
                continue  # it was named twice
            else:
                successors.append(task)
            awaited.append(dependency)
        elif dependency.outcome is not Outcome.SUCCESS and failed is None:
            failed = dependency
    task.unmet = len(awaited)
    if not awaited:
        task.after = None
    for dependency in after_ended:
        if dependency.outcome is None:
            dependency.plain = task.plain = False
            dependency.ended_successors = _with(dependency.ended_successors, task)
            task.after_ended = _with(task.after_ended, dependency)
            task.unmet += 1
    return failed


def met(successors: list[Task] | None) -> list[Task]:
    """Count one dependency of each successor as met; return those that await nothing more."""
    woken: list[Task] = []
    if successors is not None:
        for task in successors:
            if task.outcome is None:
                task.unmet -= 1
                if not task.unmet:
                    woken.append(task)
    return woken


def unmet_dependencies(task: Task) -> list[Task]:
    """Return the dependencies that a task still awaits."""
    return list(unmet(task))


def unmet(task: Task) -> Iterator[Task]:
    """Yield the dependencies that a task still awaits."""
    return (each for each in chain(task.after or (), task.after_ended or ()) if each.outcome is None)


def down_from(task: Task) -> Iterator[Task]:
    """Yield the first task that a task awaits, the first that that one awaits, and so on, while they are QUEUED."""
    while task.state is TaskState.QUEUED and task.held_by is None:
        following = next(unmet(task), None)
        if following is None:
            return
        task = following
        yield task


def numbers(dependencies: Iterable[Task]) -> tuple[int, ...]:
    """Return the numbers of tasks, each once."""
    found = [each.number for each in dependencies]
    return (found[0],) if len(found) == 1 else tuple(dict.fromkeys(found))


def ancestors(tasks: Iterable[Task]) -> dict[int, Task]:
    """Return the given tasks and everything they await, directly or not, by number."""
    found: dict[int, Task] = {}
    stack = list(tasks)
    while stack:
        task = stack.pop()
        if task.number not in found and task.outcome is None:
            found[task.number] = task
            stack.extend(unmet_dependencies(task))
    return found


def descendants(roots: Iterable[Task]) -> list[tuple[Task, Task]]:
    """Return all living tasks that await the success of a root, directly or not, in submission order.

    Each comes with the (first) root that it descends from.
    """
    found: dict[int, tuple[Task, Task]] = {}
    for root in roots:
        stack = [root]
        while stack:
            parent = stack.pop()
            successors = parent.successors
            if successors is not None:
                for task in successors:
                    if task.outcome is None and task.number not in found:
                        found[task.number] = (task, root)
                        stack.append(task)
    return [found[number] for number in sorted(found)]


def unlink(task: Task) -> None:
    """Let living dependencies forget a task that ended before them, lazily: they clean up when half is dead."""
    for dependency in unmet_dependencies(task):
        dependency.dead_edges += 1
        successors = dependency.successors
        size = len(successors or ()) + len(dependency.ended_successors or ())
        if dependency.dead_edges > _SLACK and dependency.dead_edges * 2 > size:
            dependency.dead_edges = 0
            dependency.successors = _living(successors)
            if dependency.ended_successors is not None:
                dependency.ended_successors = _living(dependency.ended_successors)
    task.after = None
    if task.after_ended is not None:
        task.after_ended = None


def _living(tasks: list[Task] | None) -> list[Task] | None:
    return [task for task in tasks or () if task.state is not TaskState.DISPOSED] or None


def _with(tasks: list[Task] | None, task: Task) -> list[Task]:
    """Append to a list that is made when the first item comes."""
    if tasks is None:
        return [task]
    tasks.append(task)
    return tasks
