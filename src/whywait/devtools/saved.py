"""A saved run: the events of a file, shown as if it were there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from whywait.devtools.feed import Feed
from whywait.devtools.runs import MOST, LiveRun, Run
from whywait.devtools.table import TaskTable
from whywait.errors import ConfigError
from whywait.kernel.accounts import waited_of
from whywait.kernel.events import Event, Kind
from whywait.kernel.limits import unit_order
from whywait.kernel.snapshot import Counts, GateView, Snapshot, UnitView
from whywait.kernel.starvation import Signals
from whywait.kernel.state import Outcome, TaskState, Wait
from whywait.kernel.stats import Stats
from whywait.observe.event_file import FileLimits, read_event_file
from whywait.observe.fold import Attempt
from whywait.observe.record import Record, is_record
from whywait.observe.report import Account


class SavedRun(Run):
    """A run that is over, or that was when its events were written."""

    def __init__(self, events: list[Event], name: str, limits: FileLimits | None = None) -> None:
        """Show events that were saved, and the limits that they came about under, if those are known."""
        super().__init__(name, control=False)
        self._events = events
        self._limits = limits
        self._gates = [GateView(Wait.SLOT, None, None, soft=False)] if limits is None else _gates(limits, events)
        self._units = [] if limits is None else _units(limits, events)
        self._rows: list[Attempt] = []
        self._moment: tuple[dict[str, Any], dict[str, Any]] | None = None

    @classmethod
    def from_file(cls, path: str | Path) -> SavedRun:
        """Read a file of events, or of a recorded run."""
        if is_record(path):
            record = Record(path)
            settings = record.settings()
            budget = settings["budget"]
            limits = FileLimits(settings["limits"].slots, budget.hard, budget.soft, budget.devices)
            events = record.replay()
            if not events:
                raise ConfigError(f"{path}: is the record of a run in which nothing happened")
            return cls(events, Path(path).name, limits)
        file = read_event_file(path)
        return cls(file.events, Path(path).name, file.limits)

    def make_feed(self, kept: int) -> Feed:
        """Return all the events at once."""
        feed = Feed(None, max(kept, len(self._events)))
        feed.table = TaskTable(kept_finished=len(self._events))
        feed.take([event.to_raw() for event in self._events])
        feed.finished = True
        self._rows = list(feed.table.attempts.values())
        return feed

    def overview(self) -> dict[str, Any]:
        """Return how things stood at the last event; of lanes only a living run knows."""
        living = [row for row in self._rows if row.alive]
        running = sum(row.active for row in living)
        ready = sum(row.state == TaskState.READY for row in living)
        slots, *budget = self._gates
        picture = Snapshot(
            now_ns=self._events[-1].time_ns,
            counts=Counts(running, ready, len(living) - running - ready, starved=0),
            starvation=self._starvation(),
            running=(),
            pending=(),
            lanes=(),
            lanes_total=0,
            budget=tuple(budget),
            devices=tuple(self._units[: MOST.units]),
            devices_total=len(self._units),
            slots=slots,
            scopes=(),
            periodics=(),
        )
        return {**picture.to_dict(), "seq": self._events[-1].seq}

    def settings(self) -> dict[str, Any]:
        """Return the slots, if the file tells what the limits were."""
        return {} if self._limits is None else {"slots": self._limits.slots}

    def stats(self) -> dict[str, Any]:
        """Return the counters as the events tell them."""
        stats = Stats()
        for row in self._rows:
            stats.numbered += row.of is None
            if row.retried_as is not None:
                stats.retried += 1
                stats.numbered += 1
            elif row.outcome is not None:
                stats.count_end(row.outcome)
            if row.outcome == Outcome.REJECTED:
                stats.count_drop(row.cause or "")
            if row.started_ns is not None:
                stats.count_wait(None, 0, waited_of(row.waits))
        picture = self.overview()
        counts = picture["counts"]
        return {
            "active": counts["running"],
            "queued": counts["ready"],
            "not_ready": counts["not_ready"],
            **stats.to_dict(),
            "starvation": picture["starvation"],
            "starvation_promotions": 0,
        }

    def moment(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the counters and the picture of the last event, counted once."""
        if self._moment is None:
            self._moment = self.stats(), self.overview()
        return self._moment

    def _starvation(self) -> Signals:
        """Return the longest and the total starvation; of tasks that are READY still, what was told of them."""
        before: dict[int, int] = {}  # number of an attempt -> starvation of those before it
        longest = 0
        for row in self._rows:
            in_all = row.starved_ns + before.get(row.number, 0)
            longest = max(longest, in_all)
            if row.retried_as is not None:
                before[row.retried_as] = in_all
        return Signals(0, longest, sum(row.starved_ns for row in self._rows))

    def report(self) -> dict[str, Any]:
        """Return how tasks ended, where the waiting went, and which tasks made others wait."""
        return Account(self._events).to_dict()


AnyRun = LiveRun | SavedRun


def _gates(limits: FileLimits, events: list[Event]) -> list[GateView]:
    """Return the limits of a run, the slots first, as they were at its end."""
    latest: dict[str, int | None] = {Wait.SLOT: limits.slots, **limits.hard, **limits.soft}
    for event in events:
        if event.kind == Kind.LIMIT_CHANGED and event.name is not None:
            details = dict(event.details or ())
            if "limit" in details:
                latest[event.name] = details["limit"]
    return [GateView(name, limit, limit, name in limits.soft) for name, limit in latest.items()]


def _units(limits: FileLimits, events: list[Event]) -> list[UnitView]:
    """Return the units of devices, those included that were gone at the end of the run."""
    kinds = {kind: dict(units) for kind, units in limits.devices.items()}
    present = {kind: set(units) for kind, units in kinds.items()}
    for event in events:
        units = dict(event.details or ()).get("units") if event.kind == Kind.LIMIT_CHANGED else None
        if units is not None and event.name in kinds:
            kinds[event.name].update(units)
            present[event.name] = set(dict(units))
    return [
        UnitView(kind, name, size, size, 0, whole=False, present=name in present[kind], holders=(), holders_total=0)
        for kind, units in kinds.items()
        for name, size in sorted(units.items(), key=lambda unit: unit_order(unit[0]))
    ]
