"""What a command has led to, from its decision in the kernel until it is carried out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from whywait.engines.base import SUCCEEDED, Ended, Engine
from whywait.kernel.base import Decision, Skip
from whywait.kernel.model import Task
from whywait.runtime.execution import Execution
from whywait.support.logger import Log
from whywait.support.units import NS_PER_MS, format_ms

NAMED_DROPS: Final = 5
_NOTHING: Final[Mapping[Any, Any]] = {}


class Work:
    """A decision of the kernel while it is carried out: what starts, what is asked for, what has ended."""

    __slots__ = ("__dict__", "decision", "dropped", "ended", "submitted")

    by_engine: Mapping[Engine, list[Execution]] = _NOTHING  # of started tasks, until the engine has taken them over
    offered: Mapping[Engine, int] = _NOTHING  # how many there were
    goes_on: Execution | None = None  # it starts in the thread that has reported an end: no engine is handed it

    # Of a report that was broken off
    reported: Execution | None = None
    ending: Task | None = None  # the attempt that has ended
    ended_as: Ended = SUCCEEDED

    def __init__(self, decision: Decision | None = None, submitted: Sequence[Execution] = ()) -> None:
        """Carry out a decision, or have nothing to do yet; ``submitted`` is what the command submits."""
        self.decision = Decision() if decision is None else decision
        self.submitted = submitted
        self.ended: list[Execution] = []  # to be told
        self.dropped: list[Task] = []  # those among them that a warning names

    def begin(self) -> None:
        """Sort what starts by engine, beside what was begun before and broken off."""
        by_engine = {engine: executions[:] for engine, executions in self.by_engine.items()}
        offered = dict(self.offered)
        for job in (task.job for task in self.decision):
            if job is not self.goes_on:
                by_engine.setdefault(job.engine, []).append(job)
                offered[job.engine] = offered.get(job.engine, 0) + 1
        self.by_engine, self.offered = by_engine, offered
        self.decision.clear()


def warn_of_skips(skips: Sequence[Skip], log: Log) -> None:
    """Log which periodics have begun to drop ticks; what follows in the same streak is told by events only."""
    for scope, periodic, code, running_ns in skips:
        since = "" if running_ns is None else f"; an iteration has been running for {format_ms(running_ns / NS_PER_MS)}"
        what = "periodic %s/%s drops ticks: %s" + since
        log.warning(what, scope, periodic, code)


def warn_of_drops(tasks: list[Task], log: Log) -> None:
    """Log which tasks were dropped; one line however many they are."""
    if len(tasks) == 1:
        log.warning("task %s was dropped: %s", tasks[0].label, tasks[0].cause)
    elif tasks:
        first = ", ".join(f"{task.label} ({task.cause})" for task in tasks[:NAMED_DROPS])
        log.warning("%d tasks were dropped, first %s", len(tasks), first)
