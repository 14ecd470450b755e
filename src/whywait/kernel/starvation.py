"""Starvation: who has been READY too long while a higher priority held a slot.

Within a lane the task that entered first passes the timeout first, so a level watches one entry for each lane (and
one for each task that brings starvation from an earlier stay in READY), ordered by the level's starved total at
which it is due. Nothing walks the queue; a task is looked at when it is reported.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from whywait.kernel.model import Task
from whywait.kernel.state import TaskState

if TYPE_CHECKING:
    from whywait.kernel.lanes import Lane, Level
    from whywait.kernel.timers import Timers

STARVE = "starve"


class Starvation:
    """Reports each task once whose starvation passes the timeout."""

    def __init__(self, timeout_ns: int, timers: Timers, report: Callable[[int, Task, int], None]) -> None:
        """Call ``report(now, task, starved_ns)`` for a task starved longer than ``timeout_ns``."""
        self._timeout_ns = timeout_ns
        self._timers = timers
        self._report = report

    def lane_entered(self, now: int, lane: Lane, entry: int) -> None:
        """Watch a lane whose tasks so far, if any, have all been told."""
        lane.watched = True
        self._watch(now, lane.level, lane.level.segment.starved_at(now), entry, lane)

    def task_returned(self, now: int, task: Task) -> None:
        """Watch a task by itself that was starved before and is READY again."""
        lane = task.lane
        if task.starved_ns and not task.starved_told and lane is not None:
            starved = lane.level.segment.starved_at(now) - task.starved_ns
            self._watch(now, lane.level, starved, task.entry, task)

    def arm(self, now: int, level: Level) -> None:
        """Set the level's timer if it starves now and somebody is watched.

        One timer stands at most: it may fire early, then it is set anew. It is never late, because nothing brings
        the first due total of a level nearer but a new entry, and that sets it again.
        """
        if level.segment.higher and level.watch:
            at = now + max(0, level.watch[0][0] - level.segment.starved_at(now))
            timer = level.starve_timer
            if timer is None or not timer.live or timer.at > at:
                if timer is not None:
                    self._timers.cancel(timer)
                level.starve_timer = self._timers.add(at, STARVE, level)

    def fire(self, now: int, level: Level) -> None:
        """Report whoever has passed the timeout in this level, and set the timer anew."""
        total = level.segment.starved_at(now)
        while level.watch and level.watch[0][0] <= total:
            _, entry, watched = heappop(level.watch)
            if isinstance(watched, Task):
                if watched.entry == entry and watched.state == TaskState.READY:
                    self._tell(now, watched, total - level_total_at_entry(watched) + watched.starved_ns)
            else:
                self._look(now, watched, total)
        level.starve_timer = None
        self.arm(now, level)

    def _look(self, now: int, lane: Lane, total: int) -> None:
        for task in lane.since_entry(lane.told + 1):
            starved = total - level_total_at_entry(task)
            if starved < self._timeout_ns:
                heappush(lane.level.watch, (total - starved + self._timeout_ns, task.entry, lane))
                return
            lane.told = task.entry
            self._tell(now, task, starved + task.starved_ns)
        lane.watched = False

    def _tell(self, now: int, task: Task, starved_ns: int) -> None:
        if not task.starved_told:
            task.starved_told = True
            self._report(now, task, starved_ns)

    def _watch(self, now: int, level: Level, starved: int, entry: int, watched: Lane | Task) -> None:
        heappush(level.watch, (starved + self._timeout_ns, entry, watched))
        self.arm(now, level)


def level_total_at_entry(task: Task) -> int:
    """Return the level's starved total at the moment the task became READY."""
    segment = task.segment
    assert segment is not None, "a READY task entered in a segment"
    return segment.starved_at(task.since)
