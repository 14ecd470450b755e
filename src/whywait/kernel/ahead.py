"""Ahead: which READY tasks would start before a waiting one and so keep it waiting.

Coming first in the order is not enough: a task that is stopped by something else is passed over. What counts is the
moment at which the waiting task could start: the tasks that hold what it waits for have ended, the scopes that stop it
are resumed, limits that are too low for it are raised. A task is ahead of it if it comes first in the order and

* may start at that moment, and takes of what is scarce for the waiting task: of a gate that stops it now, or of one of
  which all these tasks together leave too little; or
* with ``backfill="none"``, needs some of the budget, could have it, and is not stopped by its scope: if it does not fit
  when its turn comes, be it because of tasks before it, it holds the waiting task back.

All tasks of a lane pass or fail the same gates, so lanes are asked, not tasks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import Final

from whywait.kernel.base import Base, no_slot_held
from whywait.kernel.devices import Ask, Devices, Door
from whywait.kernel.gates import Gate
from whywait.kernel.limits import MEASURED
from whywait.kernel.model import Lane, Task

Scarce = Gate | Devices  # what tasks compete for: all doors to one kind of devices lead to the same units
Row = tuple[Lane, int]  # a lane, and how many of its tasks come first in the order

_MOST_HOLDERS: Final = 1000  # active tasks that are looked at


def ahead_of(k: Base, lane: Lane, rows: list[Row]) -> list[Row]:
    """Return those of the rows whose tasks are ahead of the tasks of a lane."""
    then = _Moment(k, lane)
    first = [row for row in rows if then.lets_start(row[0])]
    scarce = _takes(lane) & (then.stops | then.short_of(lane, first))
    alone = then.open_only_alone(lane)
    kept = [row for row in first if not scarce.isdisjoint(_takes(row[0])) or _disturbs(row[0], alone)]
    if k.greedy or not lane.takes_slot:
        return kept
    return [row for row in rows if row in kept or then.may_hold_back(row[0])]


class _Moment:
    """The moment at which what stops a lane now stops it no more."""

    def __init__(self, k: Base, lane: Lane) -> None:
        """Suppose that all tasks have ended that hold what the lane waits for."""
        self._k = k
        self.stops: set[Scarce] = {_wanted(gate) for gate in _closed(k, lane)}  # what stops the lane now
        self._raised = {_wanted(gate) for gate, need in lane.needs if gate.can_never_pass(need)}
        ended = [task for task in islice(k.running.values(), _MOST_HOLDERS) if self._holds_up(task, lane)]
        self._ended = {task.number for task in ended}
        self._freed: Counter[Gate] = Counter()
        for task in ended:
            self._freed.update({gate: task.takes(gate) for gate, _ in task.lane.takes})
            if task.overdraft:
                self._freed[task.scope.pool.resources[MEASURED]] += task.overdraft
        self._no_slot_held = sum(task.holds_slot for task in ended) == len(k.running) - k.slotless

    def _holds_up(self, task: Task, lane: Lane) -> bool:
        """Return whether a task holds what the lane waits for; one that has to run alone waits for every slot."""
        taken = _takes(task.lane)
        if task.lends:
            taken -= {gate for gate, _ in task.lane.slots}
        if task.overdraft:
            taken.add(task.scope.pool.resources[MEASURED])
        if not taken.isdisjoint(self.stops):
            return True
        alone = (gate for gate, need in lane.needs if gate.soft and gate in self.stops and need > (gate.limit or 0))
        return task.holds_slot and next(alone, None) is not None

    def _free(self, gate: Gate) -> int:
        return gate.free + self._freed[gate]

    def _is_open(self, gate: Gate, need: int) -> bool:
        free = self._free(gate)
        if not need:
            return free >= 0 or gate in self.stops  # a scope, which is resumed if it stops the waiting task too
        return free >= need or gate in self._raised or (gate.soft and self._no_slot_held and free == gate.limit)

    def _fits(self, ask: Ask) -> bool:
        return ask.devices in self._raised or ask.devices.fitting(ask, self._ended) >= ask.units

    def lets_start(self, lane: Lane) -> bool:
        """Return whether the tasks of a lane may start then."""
        return next(self._closed_then(lane), None) is None

    def may_hold_back(self, lane: Lane) -> bool:
        """Return whether the budget may stop a lane then and its scope does not (B5)."""
        passes = all(gate.is_budget or gate is self._k.slots for gate in self._closed_then(lane))
        return lane.takes_slot and lane.feasible and passes and any(gate.is_budget for gate, _ in lane.needs)

    def _closed_then(self, lane: Lane) -> Iterator[Gate]:
        yield from (g for g, need in lane.needs if not isinstance(g, Door) and not self._is_open(g, need))
        yield from (ask.door for ask in lane.asks if not self._fits(ask))
        if lane.takes_slot and self._free(self._k.slots) <= 0:
            yield self._k.slots

    def short_of(self, lane: Lane, rows: list[Row]) -> set[Scarce]:
        """Return what the lane would have too little of if all these tasks had started first."""
        short: set[Scarce] = set()
        for gate, need in lane.takes:
            if gate.limit is not None and self._free(gate) - need < sum(each.need(gate) * n for each, n in rows):
                short.add(gate)
        for ask in lane.asks:
            # In the worst case each unit that another task has a part of is lost.
            lost = sum(other.units * n for each, n in rows for other in each.asks if other.devices is ask.devices)
            if ask.devices.fitting(ask, self._ended) - lost < ask.units:
                short.add(ask.devices)
        return short

    def open_only_alone(self, lane: Lane) -> list[Gate]:
        """Return the soft gates that let a task of the lane pass only while it is alone (B2)."""
        return [gate for gate, need in lane.needs if gate.soft and self._free(gate) < need]


def _closed(k: Base, lane: Lane) -> Iterator[Gate]:
    """Yield what stops the tasks of a lane now, in the order in which gates are asked."""
    yield from (gate for gate, need in lane.needs if gate.closed(need, no_slot_held(k)))
    if lane.takes_slot and k.slots.free <= 0:
        yield k.slots


def _takes(lane: Lane) -> set[Scarce]:
    """Return what a task of a lane holds of while it runs."""
    return {*(gate for gate, _ in lane.takes), *(ask.devices for ask in lane.asks)}


def _disturbs(lane: Lane, alone: list[Gate]) -> bool:
    """Return whether a task of a lane, once started, closes a gate that lets another one pass only alone."""
    return any(lane.takes_slot or lane.need(gate) for gate in alone)


def _wanted(gate: Gate) -> Scarce:
    return gate.devices if isinstance(gate, Door) else gate
