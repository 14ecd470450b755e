"""Counters and the wait histogram behind ``stats()``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from whywait.kernel.state import Outcome

if TYPE_CHECKING:
    from whywait.kernel.model import Task

_FINE: Final = 5  # bits below the leading one that a bucket keeps: 3 % wide


class Stats:
    """What has happened so far, in numbers."""

    __slots__ = ("by_outcome", "dropped", "rejected", "retried", "run_ns", "starved", "submitted", "wait_ns", "waits")

    def __init__(self) -> None:
        """Start at zero."""
        self.submitted = 0
        self.retried = 0
        self.starved = 0
        self.run_ns = 0
        self.by_outcome: dict[str, int] = {}
        self.dropped: dict[str, int] = {}  # by cause
        self.rejected: dict[str, int] = {}  # by cause
        self.wait_ns: dict[str, int] = {}  # by wait cause, of tasks that have left the queue
        self.waits: dict[int, int] = {}  # bucket of the whole wait -> how many started tasks

    def started(self, waits: dict[str, int] | None) -> None:
        """Count a task that starts after these waits."""
        total = 0
        if waits:
            wait_ns = self.wait_ns
            for cause, ns in waits.items():
                wait_ns[cause] = wait_ns.get(cause, 0) + ns
                total += ns
        shift = total.bit_length() - _FINE
        bucket = total >> shift << shift if shift > 0 else total
        self.waits[bucket] = self.waits.get(bucket, 0) + 1

    def ran(self, ns: int) -> None:
        """Add running time."""
        self.run_ns += ns

    def ended(self, task: Task, outcome: str) -> None:
        """Count an ending."""
        self.by_outcome[outcome] = self.by_outcome.get(outcome, 0) + 1
        if outcome == Outcome.REJECTED and task.cause is not None:
            self.dropped[task.cause] = self.dropped.get(task.cause, 0) + 1

    @property
    def completed(self) -> int:
        """How many tasks have ended."""
        return sum(self.by_outcome.values())

    def wait_quantiles_ns(self, quantiles: tuple[float, ...] = (0.5, 0.9, 0.99)) -> dict[str, int]:
        """Return quantiles of the whole wait of started tasks, exact to 3 % (lower bucket edge)."""
        total = sum(self.waits.values())
        result = {}
        for quantile in quantiles:
            rank, seen, value = quantile * total, 0, 0
            for bucket in sorted(self.waits):
                seen += self.waits[bucket]
                value = bucket
                if seen >= rank:
                    break
            result[f"p{quantile * 100:g}"] = value
        return result

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
