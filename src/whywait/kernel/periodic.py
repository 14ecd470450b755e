"""Periodic tasks: ticks on a fixed grid, and what to do when a tick finds the last iteration still there.

A tick that is accepted becomes an ordinary task (a trigger). The numbers behind the decision are ``started`` (how
many iterations are active) and ``waiting`` (triggers that have not started).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal

from whywait.errors import ConfigError
from whywait.kernel.limits import Demand, Policy, Priority, check_ns, one_of
from whywait.kernel.model import Scope, Task
from whywait.kernel.state import Cause, Outcome, Wait
from whywait.kernel.timers import Timer

MS: Final = 1_000_000
MAX_JITTER: Final = 0.3
SKIPPED: Final = "SRS-E-RUN-002"
QUEUE_TAKEN: Final = "SRS-E-RUN-003"
Overlap = Literal["skip", "queue", "parallel"]


class Periodic:
    """A periodic task of one scope, for the life of that scope."""

    def __init__(
        self,
        scope: Scope,
        name: str,
        now: int,
        interval_ns: int,
        *,
        overlap: Overlap = "skip",
        max_parallel: int = 1,
        jitter: float = 0.0,
        enabled: bool = True,
        priority: int = 50,
        demand: Demand = (),
        slot: bool = False,
        policy: Policy | None = None,
        disable_after: int | None = None,
        job: Any = None,
        make_task: Callable[[], Task] | None = None,
    ) -> None:
        """Check the settings; the grid of ticks begins at ``now``.

        Every trigger is a task with ``job``, or what ``make_task`` returns.
        """
        _check(interval_ns >= MS, f"interval of {interval_ns / MS:g} ms", "at least 1 ms")
        check_ns("periodic interval", interval_ns)
        one_of("periodic overlap", overlap, Overlap)
        _check(isinstance(enabled, bool), f"enabled {enabled!r}", "True or False")
        _check(isinstance(slot, bool), f"slot {slot!r}", "True or False")
        _check(_is_count(max_parallel), f"max_parallel {max_parallel!r}", "an int of 1 or more")
        _check(_is_share(jitter), f"jitter {jitter!r}", "a share of the interval from 0 to 0.3")
        no_limit = disable_after is None
        _check(no_limit or _is_count(disable_after), f"disable_after {disable_after!r}", "an int of 1 or more")
        Priority.parse(priority)
        self.scope = scope
        self.name = name
        self.interval_ns = interval_ns
        self.overlap = overlap
        self.width = max_parallel if overlap == "parallel" else 1
        self.jitter = jitter
        self.enabled = enabled
        self.priority = priority
        self.demand = demand
        self.slot = slot  # whether its triggers take one (R3)
        self.policy = policy
        self.disable_after = disable_after
        self.job = job
        self.make_task = make_task
        self.planned_ns = now  # the grid point of the tick that is set, or the last one
        self.timer: Timer | None = None
        self.active: dict[int, int] = {}  # iterations that run: number -> since when
        self.waiting: list[Task] = []  # triggers that have not started, oldest first
        self.last_run_ns: int | None = None
        self.next_run_ns: int | None = None
        self.run_count = 0
        self.skipped = 0  # ticks that were dropped
        self.streak = 0  # how many of them since the last one that was not
        self.missed_ticks = 0  # ticks that a stall swallowed: each stall made one trigger
        self.consecutive_failures = 0
        self.last_error: str | None = None
        self.last_number: int | None = None

    @property
    def started(self) -> int:
        """How many iterations run."""
        return len(self.active)

    @property
    def running_since(self) -> int | None:
        """Since when the oldest iteration runs; None: none does."""
        return min(self.active.values(), default=None)

    def refusal(self) -> str | None:
        """Return the code with which a tick is dropped now, or None if it is accepted."""
        waiting = len(self.waiting)
        if self.overlap == "skip":
            return SKIPPED if self.started + waiting else None
        if waiting == 0 or (self.overlap == "parallel" and self.started + waiting < self.width):
            return None
        return QUEUE_TAKEN

    def accept(self, task: Task) -> bool:
        """Count a new trigger; return whether it has to wait behind the overlap gate."""
        held = self.started + len(self.waiting) >= self.width
        self.waiting.append(task)
        self.scope.triggers += 1
        return held

    def start(self, now: int, task: Task) -> None:
        """Count an iteration that starts."""
        self.waiting.remove(task)
        self.active[task.number] = now
        self.run_count += 1
        self.last_run_ns = now
        self.last_number = task.number

    def retried(self, task: Task) -> None:
        """Let an iteration that has failed wait for its next attempt; it still has its old number."""
        del self.active[task.number]
        self.waiting.append(task)

    def ended(self, task: Task) -> str | None:
        """Count an iteration that has ended; return why the periodic is to be switched off, if it is (R6)."""
        self.scope.triggers -= 1
        if task.started_seq:
            del self.active[task.number]
        else:
            self.waiting.remove(task)
        if task.outcome is Outcome.SUCCESS:
            self.consecutive_failures = 0
        elif task.outcome in (Outcome.ERROR, Outcome.TIMEOUT):
            self.consecutive_failures += 1
            self.last_error = task.cause
            limit = self.disable_after
            return "failures" if limit is not None and self.consecutive_failures >= limit else None
        return task.cause if task.cause == Cause.LOOP_CLOSED else None

    def next_allowed(self) -> Task | None:
        """Return the oldest trigger behind the overlap gate if one more iteration may run now."""
        held = [task for task in self.waiting if task.held_by == Wait.OVERLAP]
        free = self.width - self.started - (len(self.waiting) - len(held))
        return held[0] if held and free > 0 else None

    def next_tick(self, now: int, jitter: float, *, consumed: bool) -> int:
        """Move on to the first grid point after ``now``; return when the tick is due, jitter from -1 to 1 applied.

        ``consumed``: the present grid point has had its tick (perhaps early, by jitter).
        """
        passed = max(int(consumed), (now - self.planned_ns) // self.interval_ns + 1)
        self.planned_ns += passed * self.interval_ns
        self.next_run_ns = max(now, self.planned_ns + round(self.interval_ns * self.jitter * jitter))
        return self.next_run_ns

    def missed(self, now: int) -> int:
        """Return how many whole intervals have passed since the tick that is due was planned."""
        return max(0, (now - self.planned_ns) // self.interval_ns)

    def status(self) -> dict[str, Any]:
        """Return the state of this run as a JSON-ready dict."""
        return {
            "id": f"{self.scope.key}/{self.name}",
            "task_ref": self.last_number,
            "enabled": self.enabled,
            "interval_ms": self.interval_ns / MS,
            "last_run_at": self.last_run_ns,
            "running_since": self.running_since,
            "next_run_at": self.next_run_ns if self.enabled else None,
            "run_count": self.run_count,
            "skipped": self.skipped,
            "missed": self.missed_ticks,
            "consecutive_failures": self.consecutive_failures,
            "last_error": self.last_error,
        }


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _is_share(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= MAX_JITTER


def _check(fine: bool, what: str, expected: str) -> None:
    if not fine:
        raise ConfigError(f"periodic {what} is not allowed: use {expected}")
