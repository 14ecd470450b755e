"""Counters and recent waits behind ``stats()``."""

from __future__ import annotations

from typing import Any, Final

from whywait.kernel.accounts import Waited
from whywait.kernel.state import Outcome

RECENT: Final = 10_000
_ROOM: Final = RECENT  # the same for compiled code
_SUCCESS: Final = Outcome.SUCCESS
_ABORTED: Final = Outcome.ABORTED
_MUCH: Final = 1 << 62  # half of what a machine's integer holds


class WaitSums:
    """How long tasks have waited in all, by cause."""

    __slots__ = ("_cause", "_divided", "_ns", "_sums")

    def __init__(self) -> None:
        """Start at zero."""
        self._sums: dict[str, int] = {}
        self._divided = Waited(0, 0, 0)  # of waits that divide, and what the sums of the three causes lack
        self._cause: str | None = None  # the last one that was added, and what its sum lacks
        self._ns = 0

    def add(self, cause: str | None, ns: int, more: Waited | None) -> None:
        """Add the wait of a task: of one cause, or none, unless there are ``more``."""
        if more is not None:
            self._divided.add_all(more, 1)
            if self._divided.slot_higher > _MUCH or self._divided.slot > _MUCH or self._divided.held_back > _MUCH:
                self.by_cause()
        elif cause is not None:
            if cause is not self._cause or self._ns > _MUCH:
                self.by_cause()
                self._cause = cause
            self._ns += ns

    def by_cause(self) -> dict[str, int]:
        """Return the sums."""
        if self._cause is not None:
            self._sums[self._cause] = self._sums.get(self._cause, 0) + self._ns
            self._ns = 0
        for cause, ns in self._divided.by_cause().items():
            self._sums[cause] = self._sums.get(cause, 0) + ns
        self._divided = Waited(0, 0, 0)
        return self._sums


class Stats:
    """What has happened so far, in numbers."""

    __slots__ = (
        "_aborted",
        "_ended",
        "_recent",
        "_recent_at",
        "dropped",
        "iterations",
        "numbered",
        "promotions",
        "rejected",
        "retried",
        "starved",
        "succeeded",
        "unstarted",
        "waits",
    )

    def __init__(self) -> None:
        """Start at zero."""
        self.numbered = 0  # how many tasks were given a number, the first and later attempts
        self.iterations = 0  # how many of the submitted are those of periodics
        self.retried = 0
        self.starved = 0  # how many tasks have been starved beyond the timeout
        self.promotions = 0  # the aging steps that tasks had gained when they left READY
        self.succeeded = 0
        self._aborted = 0
        self._ended: dict[str, int] = dict.fromkeys(Outcome, 0)  # otherwise
        self.dropped: dict[str, int] = {}  # by cause
        self.rejected: dict[str, int] = {}  # by cause
        self.waits = WaitSums()  # of tasks that have started
        self.unstarted = WaitSums()  # of tasks that ended without a start
        self._recent: list[int] = []  # whole waits of the tasks started last, written over once there are many
        self._recent_at = 0

    def count_wait(self, cause: str | None, ns: int, more: Waited | None) -> None:
        """Count how the wait of a task that starts divides: into one cause, if there is no more."""
        self.waits.add(cause, ns, more)
        if more is not None:
            ns = more.total()
        recent, at = self._recent, self._recent_at
        if len(recent) < _ROOM:
            recent.append(ns)
        else:
            recent[at] = ns
            self._recent_at = at + 1 if at + 1 < _ROOM else 0

    @property
    def by_outcome(self) -> dict[str, int]:
        """How many tasks have ended, by outcome."""
        return {**self._ended, Outcome.SUCCESS: self.succeeded, Outcome.ABORTED: self._aborted}

    def count_end(self, outcome: str) -> None:
        """Count a task that has its final outcome."""
        if outcome is _SUCCESS:
            self.succeeded += 1
        elif outcome is _ABORTED:
            self._aborted += 1
        else:
            self._ended[outcome] += 1

    def waited_for_ns(self) -> dict[str, int]:
        """Return how long tasks that wait no more have waited in all, by cause."""
        started, unstarted = self.waits.by_cause(), self.unstarted.by_cause()
        causes = dict.fromkeys((*started, *unstarted))
        return {cause: started.get(cause, 0) + unstarted.get(cause, 0) for cause in causes}

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
        waits = sorted(self._recent)
        last = len(waits) - 1
        return {f"p{quantile * 100:g}": waits[round(quantile * last)] if waits else 0 for quantile in quantiles}

    def to_dict(self) -> dict[str, Any]:
        """Return the counters as a JSON-ready dict."""
        return {
            "submitted": self.submitted,
            "completed": self.completed,
            "retried": self.retried,
            "starved": self.starved,
            "by_outcome": self.by_outcome,
            "dropped": dict(self.dropped),
            "rejected": dict(self.rejected),
            "wait_ns_by_cause": dict(self.waits.by_cause()),
            "wait_ns": self.wait_quantiles_ns(),
        }
