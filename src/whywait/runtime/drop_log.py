"""What the log says of ticks and tasks that were dropped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from whywait.kernel.base import Skip
from whywait.kernel.model import Task
from whywait.support.logger import Log
from whywait.support.units import NS_PER_MS, format_ms

NAMED_DROPS: Final = 5


def warn_of_skips(skips: Sequence[Skip], log: Log) -> None:
    """Log which periodics have begun to drop ticks; what follows in the same streak is told by events only."""
    for scope, periodic, code, running_ns in skips:
        since = "" if running_ns is None else f"; an iteration has been running for {format_ms(running_ns / NS_PER_MS)}"
        what = "periodic %s/%s drops ticks: %s" + since
        log.warning(what, scope, periodic, code)


def warn_of_drops(tasks: Sequence[Task], log: Log) -> None:
    """Log which tasks were dropped; one line however many they are."""
    if len(tasks) == 1:
        log.warning("task %s was dropped: %s", tasks[0].label, tasks[0].cause)
    elif tasks:
        first = ", ".join(f"{task.label} ({task.cause})" for task in tasks[:NAMED_DROPS])
        log.warning("%d tasks were dropped, first %s", len(tasks), first)
