"""Starvation: tasks that have been READY too long while a higher priority held a slot.

Within a lane the task that entered first passes the timeout first, so a level watches one entry for each lane (and
one for each task that brings starvation from an earlier stay in READY), ordered by the level's starved total at
which it is due. Nothing walks the queue; a task is looked at when it is reported. A level that starves has one timer
at most; levels that watch something and have none are listed, so that a new ceiling costs no look at all the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heappush, heapreplace
from typing import Any, Final, NamedTuple

from whywait.kernel.events import Kind
from whywait.kernel.ids import function_shown, generated_id, label_of
from whywait.kernel.levels import Levels
from whywait.kernel.model import Lane, Level, Task
from whywait.kernel.state import TaskState
from whywait.kernel.stats import Stats
from whywait.kernel.timers import STARVE, Timers

WORST: Final = 10
_SLACK: Final = 64
_READY: Final = TaskState.READY


class Starved(NamedTuple):
    """How long a task was starved when it last left READY; of equals, the earlier one counts as more."""

    starved_ns: int
    minus_number: int
    id: str
    attempt: int
    priority: int


class Signals(NamedTuple):
    """Starvation as signals (V2); that of a task is the sum over its attempts, as ``why()`` tells it."""

    now: int  # how many tasks are starved at this moment
    longest_ns: int  # the longest starvation of any task so far
    total_ns: int  # the starvation of all tasks so far


class Starvation:
    """Reports each task once whose starvation passes the timeout, and remembers the worst and the total."""

    __slots__ = (
        "_kept",
        "_levels",
        "_returned",
        "_stats",
        "_tell",
        "_timeout_ns",
        "_timers",
        "_unarmed",
        "_worst",
        "_worst_floor",
        "longest_ns",
        "tasks",
        "total_ns",
    )

    def __init__(self, timeout_ns: int, timers: Timers, levels: Levels, stats: Stats, tell: Callable[..., int]) -> None:
        """Emit an event with ``tell`` for a task that is starved longer than ``timeout_ns``."""
        self._timeout_ns = timeout_ns
        self._timers = timers
        self._levels = levels
        self._stats = stats
        self._tell = tell
        self._unarmed: dict[Level, None] = {}  # levels that watch something and have no timer
        self._worst_floor = 0  # a task that was starved less is not among the worst
        self._kept = 0  # how many were left of them when they were last looked through
        self._returned: dict[int, Task] = {}  # READY tasks that were starved before, by number, and some others
        self.tasks = 0  # how many have been READY while a higher priority held a slot
        self.longest_ns = 0  # of those that left READY, attempts added up
        self.total_ns = 0  # the same of all of them
        self._worst: list[tuple[Any, ...]] = []  # a heap of those that left READY most starved

    def note(self, task: Task, starved_ns: int) -> None:
        """Remember how long an attempt was starved, in all its stays, that leaves READY."""
        worst, first, before_ns = self._worst, task.number, 0
        if not task.plain:  # else it is the first attempt
            first, before_ns = task.starved_first or first, task.starved_before
        self.total_ns += starved_ns - task.starved_ns
        in_all_ns = before_ns + starved_ns
        self.longest_ns = max(self.longest_ns, in_all_ns)
        if not task.starved_ns and not before_ns:
            self.tasks += 1
        elif in_all_ns > self._worst_floor:  # it was READY before, and may be among them already
            worst[:] = [told for told in worst if told[1] != -first]
            heapify(worst)
        task.starved_ns = starved_ns
        if in_all_ns > self._worst_floor:
            told = (in_all_ns, -first, task.number, task.name, task.called, (task.attempt, task.lane.level.priority))
            if len(worst) < WORST:
                heappush(worst, told)
            else:
                heapreplace(worst, told)
                self._worst_floor = worst[0][0]

    @property
    def worst(self) -> list[Starved]:
        """The tasks that left READY most starved, in no order."""
        return [Starved(ns, first, _label(*known), *rest) for ns, first, *known, rest in self._worst]

    def lane_entered(self, now: int, lane: Lane, entry: int) -> None:
        """Watch a lane whose tasks so far, if any, have all been told."""
        lane.watched = True
        self._watch(now, lane.level, lane.level.segment.starved_at(now), entry, lane)

    def lanes_forgotten(self, levels: Iterable[Level]) -> None:
        """Watch no lane of these levels any more that is forgotten; its timer may fire early, then it is set anew."""
        for level in levels:
            watch = [each for each in level.watch if isinstance(each[2], Task) or not each[2].forgotten]
            heapify(watch)
            level.watch = watch

    def task_returned(self, now: int, task: Task) -> None:
        """Watch a task by itself that was starved before and is READY again."""
        returned = self._returned
        returned[task.number] = task
        if len(returned) > _SLACK and len(returned) > 2 * self._kept:
            self._returned = {number: each for number, each in returned.items() if each.state is _READY}
            self._kept = len(self._returned)
        if task.starved_ns and not task.starved_told:
            level = task.lane.level
            self._watch(now, level, level.segment.starved_at(now) - task.starved_ns, task.entry, task)

    def signals(self, now: int, lanes: Iterable[Lane]) -> Signals:
        """Return how many tasks of these lanes, which are all in use, are starved, the longest time and the total."""
        starved, longest_ns, total_ns = 0, self.longest_ns, self.total_ns
        levels: dict[Level, int] = {}  # with how many tasks are in each
        for lane in lanes:
            level = lane.level
            self._levels.update(level)
            levels[level] = levels.get(level, 0) + len(lane)
            longest_ns = max(longest_ns, self._since_entry(now, lane.front[-1]))
        for task in self._returned.values():
            if task.state is _READY:
                so_far_ns = task.starved_before + task.starved_ns + self._since_entry(now, task)
                longest_ns = max(longest_ns, so_far_ns)
        for level, tasks in levels.items():
            starved += tasks if level.segment.higher else 0
            total_ns += tasks * level.segment.starved_at(now) - level.entered_ns
        return Signals(starved, longest_ns, total_ns)

    def _since_entry(self, now: int, task: Task) -> int:
        """Return for how long a READY task has been starved since it entered; its level is up to date."""
        return task.lane.level.segment.starved_at(now) - _total_at_entry(task)

    def ceiling_rose(self, now: int) -> None:
        """Set the timers of levels that starve from now on."""
        if self._unarmed:
            top = self._levels.ceiling.top
            for level in [level for level in self._unarmed if level.priority < top]:
                self._arm(now, level)

    def fire(self, now: int, level: Level) -> None:
        """Report the tasks that have passed the timeout in this level, and set the timer anew."""
        self._levels.update(level)
        total = level.segment.starved_at(now)
        while level.watch and level.watch[0][0] <= total:
            _, entry, watched = heappop(level.watch)
            if isinstance(watched, Task):
                if watched.entry == entry and watched.state is _READY:
                    self._report(now, watched, total - _total_at_entry(watched) + watched.starved_ns)
            else:
                self._look(now, watched, total)
        level.starve_timer = None
        self._arm(now, level)

    def _arm(self, now: int, level: Level) -> None:
        """Set the level's timer if it starves now and something is watched.

        It may fire early, then it is set anew. It is never late: nothing brings the first due total of a level nearer
        but a new entry, and that sets it again, at once or, if the level does not starve now, when the ceiling rises.
        """
        self._levels.update(level)
        if not level.watch:
            self._unarmed.pop(level, None)
        elif not level.segment.higher:
            self._unarmed[level] = None
        else:
            timer = level.starve_timer
            at = now + max(0, level.watch[0][0] - level.segment.starved_at(now))
            if timer is None or not timer.live or timer.at > at:
                if timer is not None:
                    self._timers.cancel(timer)
                level.starve_timer = self._timers.add(at, STARVE, level)
            self._unarmed.pop(level, None)

    def _look(self, now: int, lane: Lane, total: int) -> None:
        for task in lane.since_entry(lane.told + 1):
            starved = total - _total_at_entry(task)
            if starved < self._timeout_ns:
                heappush(lane.level.watch, (total - starved + self._timeout_ns, task.entry, lane))
                return
            lane.told = task.entry
            self._report(now, task, starved + task.starved_ns)
        lane.watched = False

    def _report(self, now: int, task: Task, starved_ns: int) -> None:
        if not task.starved_told:
            task.starved_told = True
            self._stats.starved += 1
            self._tell(now, Kind.TASK_STARVED, task, 0, (("starved_ns", starved_ns),))

    def _watch(self, now: int, level: Level, starved: int, entry: int, watched: Lane | Task) -> None:
        heappush(level.watch, (starved + self._timeout_ns, entry, watched))
        self._arm(now, level)


def _label(number: int, name: str | None, called: str | None) -> str:
    """Return how a task is shown, as its ``label`` says it."""
    return (
        label_of(generated_id(number), number, function_shown(called)) if name is None else label_of(name, number, None)
    )


def _total_at_entry(task: Task) -> int:
    """Return the level's starved total at the moment the task became READY."""
    segment = task.segment
    assert segment is not None, "a READY task entered in a segment"
    return segment.starved_at(task.since)
