"""What a command has led to, from its decision in the kernel until it is carried out."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from whywait.raised import tell_log

if TYPE_CHECKING:
    from whywait.engines.base import Engine
    from whywait.handle import Handle
    from whywait.kernel.model import Task

NAMED_DROPS: Final = 5


class Work:
    """What a command has led to and is still to be carried out: what starts, what is asked for, who is told."""

    __slots__ = ("by_engine", "handles", "offered", "requests", "started")

    def __init__(self) -> None:
        """Have nothing to do."""
        self.started: list[Task] = []
        self.by_engine: dict[Engine, list[Handle[Any]]] = {}  # of started tasks, until the engine has taken them over
        self.offered: dict[Engine, int] = {}  # how many there were
        self.requests: list[tuple[str, Task]] = []
        self.handles: list[Handle[Any]] = []  # of tasks that have ended

    def begin(self) -> None:
        """Sort what starts by engine."""
        by_engine: dict[Engine, list[Handle[Any]]] = {}
        for task in self.started:
            by_engine.setdefault(task.job._engine, []).append(task.job)
        self.offered = {engine: len(handles) for engine, handles in by_engine.items()}
        self.by_engine, self.started = by_engine, []


def warn_of_drops(tasks: list[Task]) -> None:
    """Log who was dropped; one line however many they are."""
    if len(tasks) == 1:
        tell_log(logging.WARNING, "task %s was dropped: %s", tasks[0].id, tasks[0].cause)
    elif tasks:
        first = ", ".join(f"{task.id} ({task.cause})" for task in tasks[:NAMED_DROPS])
        tell_log(logging.WARNING, "%d tasks were dropped, first %s", len(tasks), first)
