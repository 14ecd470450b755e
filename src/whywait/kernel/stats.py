"""Counters and recent waits behind ``stats()``."""

from __future__ import annotations

from collections import deque
from typing import Any, Final

from whywait.kernel.state import Outcome

RECENT: Final = 10_000


class Stats:
    """What has happened so far, in numbers."""

    __slots__ = (
        "by_outcome",
        "dropped",
        "iterations",
        "numbered",
        "promotions",
        "recent_waits_ns",
        "rejected",
        "retried",
        "starved",
        "unstarted_ns",
        "wait_ns",
    )

    def __init__(self) -> None:
        """Start at zero."""
        self.numbered = 0  # how many tasks were given a number, the first and later attempts
        self.iterations = 0  # how many of the submitted are those of periodics
        self.retried = 0
        self.starved = 0  # how many tasks have been starved beyond the timeout
        self.promotions = 0  # the aging steps that tasks had gained when they left READY
        self.by_outcome: dict[str, int] = dict.fromkeys(Outcome, 0)
        self.dropped: dict[str, int] = {}  # by cause
        self.rejected: dict[str, int] = {}  # by cause
        self.wait_ns: dict[str, int] = {}  # by wait cause, of tasks that have started
        self.unstarted_ns: dict[str, int] = {}  # the same of tasks that ended without a start
        self.recent_waits_ns: deque[int] = deque(maxlen=RECENT)  # whole waits of the tasks started last

    def count_wait(self, cause: str | None, ns: int, more: dict[str, int] | None) -> None:
        """Count how the wait of a task that starts divides: into one cause, if there is no more."""
        if more is not None:
            for each, each_ns in more.items():
                self.wait_ns[each] = self.wait_ns.get(each, 0) + each_ns
            ns = sum(more.values())
        elif cause is not None:
            self.wait_ns[cause] = self.wait_ns.get(cause, 0) + ns
        self.recent_waits_ns.append(ns)

    def count_unstarted(self, waits: dict[str, int]) -> None:
        """Count how the wait of a task that ends without a start divides."""
        for cause, ns in waits.items():
            self.unstarted_ns[cause] = self.unstarted_ns.get(cause, 0) + ns

    def waited_for_ns(self) -> dict[str, int]:
        """Return how long tasks that wait no more have waited in all, by cause."""
        causes = dict.fromkeys((*self.wait_ns, *self.unstarted_ns))
        return {cause: self.wait_ns.get(cause, 0) + self.unstarted_ns.get(cause, 0) for cause in causes}

    def count_drop(self, cause: str) -> None:
        """Count a task that was dropped while pending, or because the queue was full."""
        self.dropped[cause] = self.dropped.get(cause, 0) + 1

    def count_rejection(self, cause: str) -> None:
        """Count a submission that was refused."""
        self.rejected[cause] = self.rejected.get(cause, 0) + 1

    @property
    def submitted(self) -> int:
        """How many tasks were taken in, each counted once however often it is retried."""
        return self.numbered - self.retried

    @property
    def completed(self) -> int:
        """How many tasks have ended."""
        return sum(self.by_outcome.values())

    def wait_quantiles_ns(self, quantiles: tuple[float, ...] = (0.5, 0.9, 0.99)) -> dict[str, int]:
        """Return exact quantiles of the whole wait of the tasks started last."""
        waits = sorted(self.recent_waits_ns)
        last = len(waits) - 1
        return {f"p{quantile * 100:g}": waits[round(quantile * last)] if waits else 0 for quantile in quantiles}

    def to_dict(self) -> dict[str, Any]:
        """Return the counters as a JSON-ready dict."""
        return {
            "submitted": self.submitted,
            "completed": self.completed,
            "retried": self.retried,
            "starved": self.starved,
            "by_outcome": dict(self.by_outcome),
            "dropped": dict(self.dropped),
            "rejected": dict(self.rejected),
            "wait_ns_by_cause": dict(self.wait_ns),
            "wait_ns": self.wait_quantiles_ns(),
        }
