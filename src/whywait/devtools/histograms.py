"""Histograms of wait and run times, counted from events as they pass."""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

from whywait.devtools.table import Row, TaskTable
from whywait.kernel.events import Event, Kind

BOUNDS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
KNOWN_SCOPES: Final = 50  # then further scopes are counted together: labels are for ever
OTHER: Final = "(other)"

Labels = tuple[str, ...]


class Histogram:
    """Counts of durations below each bound, and their sum, for each combination of labels."""

    def __init__(self) -> None:
        """Start empty."""
        self.counts: dict[Labels, list[int]] = {}
        self.sums_s: dict[Labels, float] = {}

    def add(self, labels: Labels, seconds: float) -> None:
        """Count one duration."""
        counts = self.counts.get(labels)
        if counts is None:
            counts = self.counts[labels] = [0] * (len(BOUNDS_S) + 1)
            self.sums_s[labels] = 0.0
        counts[bisect_left(BOUNDS_S, seconds)] += 1
        self.sums_s[labels] += seconds


class Histograms:
    """Waits by priority and scope; run times by scope and outcome; parts of waits by reason."""

    def __init__(self) -> None:
        """Start empty."""
        self.waits = Histogram()
        self.runs = Histogram()
        self._scopes: set[str] = set()

    def scope_label(self, key: str) -> str:
        """Return the scope's key, or a common name for all scopes after the first fifty."""
        if key not in self._scopes:
            if len(self._scopes) >= KNOWN_SCOPES:
                return OTHER
            self._scopes.add(key)
        return key

    def observe(self, event: Event, table: TaskTable) -> None:
        """Count what an event ends: a wait or a run."""
        if event.kind == Kind.TASK_STARTED:
            row = _row(event, table)
            if row is not None and row.submitted_ns is not None:
                labels = (str(row.priority), self.scope_label(row.scope))
                self.waits.add(labels, (event.time_ns - row.submitted_ns) / 1e9)
        elif event.kind in (Kind.TASK_FINISHED, Kind.TASK_CANCELLED):
            row = _row(event, table)
            if row is not None and row.started_ns is not None:
                how = (str(row.priority), self.scope_label(row.scope), row.outcome or "")
                self.runs.add(how, (event.time_ns - row.started_ns) / 1e9)


def _row(event: Event, table: TaskTable) -> Row | None:
    return None if event.number is None else table.rows.get(event.number)
