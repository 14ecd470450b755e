"""A run as a Chrome Trace: opens in Perfetto (ui.perfetto.dev) and in chrome://tracing.

One track for each slot shows what ran there; each waiting task has a track of its own with slices named, and so
coloured, by the cause of the wait; counters show the budget in use, the lanes, and how many wait for what.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from heapq import heappop, heappush
from pathlib import Path
from typing import Any, Final

from whywait.kernel.events import Event, Kind, RawEvent
from whywait.kernel.state import Wait
from whywait.observe.story import LaneStory, Story, TaskStory

_SLOTS: Final = 1  # "processes" of the trace are the groups of its tracks
_WAITS: Final = 2
_COUNTERS: Final = 3
_BUDGET: Final = "budget "
_CAUSES: Final = "waiting for"
_LANES: Final = 32  # with a counter each; the others share one
_US: Final = 1000  # ns
# The reserved colour names of the trace viewer; causes that are not here are budget gates.
_COLOURS: Final[dict[str, str]] = {
    Wait.DEPENDENCY: "grey",
    Wait.BACKOFF: "yellow",
    Wait.OVERLAP: "olive",
    Wait.PAUSED: "white",
    Wait.SLOT: "thread_state_runnable",
    Wait.SLOT_HIGHER: "terrible",
    Wait.SCOPE_STATE: "black",
    Wait.SCOPE_SLOTS: "thread_state_iowait",
    Wait.HELD_BACK: "bad",
}
_BUDGET_COLOUR: Final = "thread_state_uninterruptible"
_INSTANTS: Final = frozenset({
    Kind.SCOPE_SUSPENDED, Kind.SCOPE_RESUMED, Kind.SCOPE_DISPOSING, Kind.SCOPE_DISPOSED,
    Kind.PERIODIC_SKIPPED, Kind.PERIODIC_ENABLED, Kind.PERIODIC_DISABLED,
})  # fmt: skip


def write_trace(path: str | Path, events: Iterable[Event]) -> None:
    """Write a Chrome Trace of these events, such as ``authority.events()``, to a file."""
    Path(path).write_text(json.dumps(chrome_trace(events)), encoding="utf-8")


def chrome_trace(events: Iterable[Event]) -> dict[str, Any]:
    """Return a Chrome Trace of these events as a JSON-ready dict."""
    return _Trace(events).finish()


class _Trace(Story):
    """Follows a run and writes down slices and counters."""

    def __init__(self, events: Iterable[Event]) -> None:
        self.out: list[dict[str, Any]] = []
        self._free: list[int] = []  # slots that no task holds, a heap
        self._slot_of: dict[int, int] = {}
        self._shown: dict[str, dict[str, int]] = {}  # counter -> values last written
        self._slots_named: set[int] = set()
        self._lanes: dict[str, int] = {}  # by name, how many wait there
        self._group(_SLOTS, "slots")
        self._group(_WAITS, "waiting")
        self._group(_COUNTERS, "counters")
        super().__init__(events)

    def finish(self) -> dict[str, Any]:
        """Close what is still open and return the trace."""
        if self.now is not None:
            self._count(self.now)
            for task in self.running.values():
                self._ran(task, self.now)
            for task in self.living():
                if task.started_ns is None:
                    self._waited(task, self.now)
        return {
            "traceEvents": self.out,
            "displayTimeUnit": "ms",
            "otherData": {"skipped events": self.skipped + ((self.first_seq or 1) - 1)},
        }

    def time_passes(self, before: int, now: int) -> None:  # noqa: ARG002 - the signature of a story
        self._count(before)

    def task_started(self, task: TaskStory) -> None:
        self._slot_of[task.number] = heappop(self._free) if self._free else len(self._slot_of) + 1
        self._waited(task, self._at(task.started_ns))

    def task_ended(self, task: TaskStory) -> None:
        now = self._at(task.ended_ns)
        if task.started_ns is None:
            self._waited(task, now)
            self._instant(f"{task.label} {task.cause}", now)
        else:
            self._ran(task, now)
            heappush(self._free, self._slot_of.pop(task.number))

    def lane_counts(self, lane: LaneStory, change: int) -> None:
        name = _lane_name(lane)
        if name not in self._lanes and len(self._lanes) >= _LANES:
            name = "other lanes"
        self._lanes[name] = self._lanes.get(name, 0) + change

    def refused(self, task: TaskStory) -> None:
        self._instant(f"{task.label or 'a task'} {task.cause}", self._at(task.ended_ns))

    def something_else(self, event: RawEvent) -> None:
        _, time_ns, kind, scope, _, name, _, _ = event
        if kind in _INSTANTS:
            self._instant(f"{kind} {name or scope}", time_ns, _SLOTS)

    def _instant(self, name: str, now: int, group: int = _WAITS) -> None:
        self._add(ph="i", s="g", name=name, pid=group, tid=0, ts=now / _US)

    def _at(self, time_ns: int | None) -> int:
        assert time_ns is not None, "what is told now has a time"
        return time_ns

    def _add(self, **event: Any) -> None:  # noqa: ANN401 - the fields of the format
        self.out.append(event)

    def _group(self, pid: int, name: str) -> None:
        self._add(ph="M", pid=pid, tid=0, name="process_name", args={"name": name})
        self._add(ph="M", pid=pid, tid=0, name="process_sort_index", args={"sort_index": pid})

    def _ran(self, task: TaskStory, now: int) -> None:
        begin, slot = self._at(task.started_ns), self._slot_of[task.number]
        if slot not in self._slots_named:
            self._slots_named.add(slot)
            self._add(ph="M", pid=_SLOTS, tid=slot, name="thread_name", args={"name": f"slot {slot}"})
        self._add(
            ph="X", cat="run", name=task.label, pid=_SLOTS, tid=slot, ts=begin / _US, dur=(now - begin) / _US,
            args=_told(task),
        )  # fmt: skip

    def _waited(self, task: TaskStory, now: int) -> None:
        stretches = self.stretches_of(task, now)
        if not stretches:
            return
        common = {"cat": "wait", "id": task.number, "pid": _WAITS, "tid": 0}
        begin, end = stretches[0].begin_ns / _US, stretches[-1].end_ns / _US
        self._add(ph="b", name=task.label, ts=begin, args=_told(task), **common)
        for stretch in stretches:
            colour = _COLOURS.get(stretch.cause, _BUDGET_COLOUR)
            self._add(ph="b", name=stretch.cause, ts=stretch.begin_ns / _US, cname=colour, **common)
            self._add(ph="e", name=stretch.cause, ts=stretch.end_ns / _US, **common)
        self._add(ph="e", name=task.label, ts=end, **common)

    def _count(self, now: int) -> None:
        """Write down the counters that have changed by ``now``."""
        used = dict.fromkeys((name for name in self._shown if name.startswith(_BUDGET)), 0)
        for task in self.running.values():
            for name, amount in task.demand:
                used[_BUDGET + name] = used.get(_BUDGET + name, 0) + amount
        for name, amount in used.items():
            self._counter(name, {"in use": amount}, now)
        self._counter("slots", {"held": sum(task.holds_slot for task in self.running.values())}, now)
        self._counter("lanes", self._lanes.copy(), now)
        causes = dict.fromkeys(self._shown.get(_CAUSES, ()), 0)
        for gate, count in self.waiting.items():
            if count or gate.name in causes:
                causes[gate.name] = causes.get(gate.name, 0) + count
        self._counter(_CAUSES, causes, now)

    def _counter(self, name: str, values: dict[str, int], now: int) -> None:
        if values and values != self._shown.get(name):
            self._shown[name] = values
            self._add(ph="C", name=name, pid=_COUNTERS, tid=0, ts=now / _US, args=values)


def _lane_name(lane: LaneStory) -> str:
    priority, scope, demand, slot = lane.key
    parts = [str(priority), scope, *(f"{name}={amount}" for name, amount in demand), "" if slot else "no slot"]
    return " ".join(part for part in parts if part)


def _told(task: TaskStory) -> dict[str, Any]:
    told: dict[str, Any] = {"scope": task.scope, "priority": task.priority, "attempt": task.attempt}
    if task.demand:
        told["demand"] = dict(task.demand)
    if task.devices:
        told["devices"] = {kind: list(names) for kind, names in task.devices}
    if task.waits:
        told["waited (ms)"] = {cause: ns / 1e6 for cause, ns in task.waits.items()}
    if task.outcome is not None:
        told["outcome"] = task.outcome if task.cause is None else f"{task.outcome} ({task.cause})"
    return told
