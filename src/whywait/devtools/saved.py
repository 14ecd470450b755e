"""A saved run: the events of a file, shown as if it were there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from whywait.bridges.jsonl import read_events
from whywait.devtools.feed import Feed
from whywait.devtools.run import Run
from whywait.devtools.table import Row, TaskTable
from whywait.errors import ConfigError
from whywait.kernel.events import Event, Kind
from whywait.kernel.state import Wait
from whywait.kernel.stats import Stats
from whywait.record import Record, is_record
from whywait.run_report import Account
from whywait.units import in_ms


class SavedRun(Run):
    """A run that is over, or that was when its events were written."""

    def __init__(self, events: list[Event], name: str, settings: Mapping[str, Any] | None = None) -> None:
        """Show events that were saved; only a record knows the ``settings`` that they came about under."""
        super().__init__(name, control=False)
        self._events = events
        self._gates = _gates(settings, events) if settings is not None else [_gate(Wait.SLOT, None, soft=False)]
        self._rows: list[Row] = []

    @classmethod
    def from_file(cls, path: str | Path) -> SavedRun:
        """Read a file of events, or of a recorded run."""
        settings = None
        try:
            if is_record(path):
                record = Record(path)
                events, settings = record.replay(), record.settings()
            else:
                events = list(read_events(path))
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path}: cannot be read: {error}") from None
        if not events:
            raise ConfigError(f"{path}: holds no events; whywait run FILE --events {path} writes them")
        return cls(events, Path(path).name, settings)

    def make_feed(self, kept: int) -> Feed:
        """Return all the events at once."""
        feed = Feed(None, max(kept, len(self._events)))
        feed.table = TaskTable(kept_finished=len(self._events))
        feed.take([event.to_raw() for event in self._events])
        feed.finished = True
        self._rows = list(feed.table.rows.values())
        return feed

    def overview(self) -> dict[str, Any]:
        """Return how things stood at the last event; of lanes only a living run knows."""
        states = Counter(row.state for row in self._rows if row.alive)
        running = states["RUNNING"] + states["DISPOSING"]
        return {
            "now_ns": self._events[-1].time_ns,
            "seq": self._events[-1].seq,
            "counts": {
                "running": running,
                "ready": states["READY"],
                "not_ready": states.total() - running - states["READY"],
                "starved": 0,
            },
            "slots": self._gates[0],
            "running": [],
            "lanes": [],
            "lanes_total": 0,
            "budget": [{**gate, "holders": [], "holders_total": 0} for gate in self._gates[1:]],
            "scopes": [],
            "periodics": [],
        }

    def stats(self) -> dict[str, Any]:
        """Return the counters as the events tell them."""
        stats = Stats()
        for row in self._rows:
            if row.of is None:
                stats.submitted += 1
            if row.retried_as is not None:
                stats.retried += 1
            elif row.outcome is not None:
                stats.by_outcome[row.outcome] = stats.by_outcome.get(row.outcome, 0) + 1
            if row.outcome == "REJECTED":
                stats.count_drop(row.cause or "")
            if row.started_ns is not None:
                stats.started(row.waits)
        counts = self.overview()["counts"]
        queued = counts["ready"] + counts["not_ready"]
        return {"active": counts["running"], "queued": queued, **stats.to_dict(), "starvation_promotions": 0}

    def report(self) -> dict[str, Any]:
        """Return how tasks ended, where the waiting went, and who made others wait."""
        waits: Counter[str] = Counter()
        for row in self._rows:
            waits.update(row.waits)
        ended = Counter(row.outcome.lower() for row in self._rows if row.outcome and row.retried_as is None)
        account = Account(self._events)
        return {
            "makespan_ms": in_ms(self._events[-1].time_ns - self._events[0].time_ns),
            "outcomes": dict(ended),
            "waited_for_ms": {cause: in_ms(ns) for cause, ns in waits.most_common()},
            "by_holder": account.by_holder(),
            "critical_path": account.critical_path(),
        }


def _gates(settings: Mapping[str, Any], events: list[Event]) -> list[dict[str, Any]]:
    """Return the limits of a recorded run, the slots first, as they were at its end."""
    budget = settings["budget"]
    limits: dict[str, int | None] = {Wait.SLOT: settings["limits"].slots, **budget.hard, **budget.soft}
    for event in events:
        if event.kind == Kind.LIMIT_CHANGED and event.name is not None:
            limits[event.name] = dict(event.details or ())["limit"]
    return [_gate(name, limit, soft=name in budget.soft) for name, limit in limits.items()]


def _gate(name: str, limit: int | None, *, soft: bool) -> dict[str, Any]:
    return {"name": name, "limit": limit, "free": limit, "soft": soft}
