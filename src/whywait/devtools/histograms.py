"""Histograms of wait and run times, counted from events as they pass."""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

from whywait.kernel.events import Kind
from whywait.observe.fold import Attempt

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
    """Waits by priority and scope; run times by priority, scope and outcome."""

    def __init__(self) -> None:
        """Start empty."""
        self.waits = Histogram()
        self.runs = Histogram()
        self._scopes: set[str] = set()
        self._labels: dict[tuple[int, str, str | None], Labels] = {}

    def scope_label(self, key: str) -> str:
        """Return the scope's key, or a common name for all scopes after the first fifty."""
        if key not in self._scopes:
            if len(self._scopes) >= KNOWN_SCOPES:
                return OTHER
            self._scopes.add(key)
        return key

    def observe(self, kind: str, row: Attempt) -> None:
        """Count what an event of this kind has ended: a wait or a run."""
        if row.started_ns is None:
            return
        if kind == Kind.TASK_STARTED:
            self.waits.add(self._labels_of(row, None), (row.started_ns - row.submitted_ns) / 1e9)
        elif row.ended_ns is not None:
            self.runs.add(self._labels_of(row, row.outcome), (row.ended_ns - row.started_ns) / 1e9)

    def _labels_of(self, row: Attempt, outcome: str | None) -> Labels:
        key = (row.priority, row.scope, outcome)
        labels = self._labels.get(key)
        if labels is None:
            labels = (str(row.priority), self.scope_label(row.scope), *(() if outcome is None else (outcome,)))
            if labels[1] != OTHER:  # of those there may be any number
                self._labels[key] = labels
        return labels


OBSERVED: Final = frozenset({Kind.TASK_STARTED, Kind.TASK_FINISHED, Kind.TASK_CANCELLED})
