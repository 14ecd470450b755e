"""What the model remembers, how time passes over it, and the plain questions the rules ask of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import count

from .records import (
    SECOND_NS,
    Aging,
    Budget,
    Limits,
    Periodic,
    Policy,
    Scope,
    Strict,
    Task,
    Timer,
)

SLOT = ("slot", "")
HELD_BACK = ("held_back", "")


class Base:
    """Everything is a list, every question is a scan."""

    def __init__(
        self,
        limits: Limits | None = None,
        hard: dict[str, int] | None = None,
        soft: dict[str, int] | None = None,
        order: Strict | Aging | None = None,
        backfill: str = "greedy",
        overdraft: str = "count",
        policy: Policy | None = None,
        pause_timeout_ns: int = 3 * SECOND_NS // 2,
        starvation_timeout_ns: int = 30 * SECOND_NS,
        jitter: Callable[[], float] = lambda: 0.0,
        numbers: Iterator[int] | None = None,
        devices: dict[str, dict[str, int]] | None = None,
    ) -> None:
        self.hard = hard or {}
        self.soft = soft or {}
        self.devices = {kind: dict(units) for kind, units in (devices or {}).items()}
        budget = Budget(self.hard, self.soft, self.devices)
        self.order = order or Aging()
        self.backfill = backfill
        self.overdraft = overdraft
        self.pause_timeout_ns = pause_timeout_ns
        self.starvation_timeout_ns = starvation_timeout_ns
        self.jitter = jitter
        self.numbers = numbers or count(1)
        self.now = 0
        self.root = Scope("", None, limits or Limits(), policy or Policy(), budget, state="RUNNING")
        self.scopes = [self.root]
        self.tasks: list[Task] = []
        self.ready: list[Task] = []
        self.started: list[Task] = []
        self.timers: list[Timer] = []
        self.periodics: list[Periodic] = []
        self.requests: list[tuple[str, Task]] = []
        self.wanting: list[Task] = []  # S7: those that want their slots again, in the order of asking
        self.events: list[tuple] = []
        self.promotions = 0
        self.entries = 0
        self.lane_causes: dict[tuple, tuple[str, str]] = {}
        self.aside: set[tuple] = set()  # M13: lanes that dispatch has passed over though backfill is "none"

    def emit(self, kind: str, scope: Scope, task: Task | None = None, **details: object) -> None:
        """V3: one ordered stream."""
        number = task.number if task else None
        name = details.pop("name", task.name if task else None)
        self.events.append((self.now, kind, scope.key, number, name, details))

    def advance(self, now: int) -> None:
        """V7, V2: the time since the last command belongs to the cause each waiting task had all along."""
        assert now >= self.now, "time went backwards"
        elapsed = now - self.now
        if elapsed:
            for task in self.tasks:
                if task.pending:
                    cause = self.wait_cause(task)
                    task.waits[cause] = task.waits.get(cause, 0) + elapsed
                if task.state == "READY" and self.outranked(task):
                    task.starved_ns += elapsed
        self.now = now

    def wait_cause(self, task: Task) -> str:
        """V7: the cause of the wait at this instant."""
        if task.state == "PAUSED":
            return "paused"
        if task.state == "QUEUED":
            if task.backing_off:
                return "backoff"
            return "dependency" if task.let_through else "overlap"
        cause, _ = self.lane_causes[task.lane]
        return "slot_higher" if cause == "slot" and self.outranked(task) else cause

    def outranked(self, task: Task) -> bool:
        """V2: a task of higher base priority holds a slot. S6: who takes none is not starved."""
        return task.slot and any(holder.priority > task.priority for holder in self.holders())

    def active(self) -> list[Task]:
        """T4: who runs, in start order."""
        return [task for task in self.started if task.active]

    def holders(self, scope: Scope | None = None) -> list[Task]:
        """S5, S6, S7: the slot holders of the authority, or of a scope and all its descendants, in start order."""
        return [task for task in self.active() if task.slot and not task.lends and inside(task, scope or self.root)]

    def pending(self, scope: Scope) -> list[Task]:
        """D1: the pending tasks of a scope and all its descendants, in submission order."""
        return [task for task in self.tasks if task.pending and inside(task, scope)]

    def in_use(self, resource: str, payer: Scope | None = None) -> int:
        """T4: what those who run have reserved of the authority's budget, or of a scope's own.

        U2: of the memory, what they use if that is more.
        """
        payer = payer or self.root
        return sum(self.counted(task, resource) for task in self.active() if task.scope.payer is payer)

    def counted(self, task: Task, resource: str) -> int:
        asked, budget = task.demand.get(resource, 0), task.scope.payer.budget
        counts = resource == "ram" and self.overdraft != "warn" and "ram" in {**budget.hard, **budget.soft}
        return max(asked, task.ram) if counts else asked

    def enter(self, task: Task) -> None:
        """P2: becoming READY, by whatever way, is entering at the back, now."""
        assert task.pending
        task.state = "READY"
        task.ready_since = self.now
        self.entries += 1
        task.entry = self.entries
        self.ready.append(task)
        self.lane_causes.setdefault(task.lane, SLOT)

    def leave_ready(self, task: Task) -> None:
        """V2: whoever leaves READY hands in the aging steps gained."""
        self.ready.remove(task)
        if isinstance(self.order, Aging):
            self.promotions += self.order.promotions(task.priority, self.now - task.ready_since)
        if all(other.lane != task.lane for other in self.ready):
            del self.lane_causes[task.lane]
            self.aside.discard(task.lane)


def inside(task: Task, scope: Scope) -> bool:
    """A child scope's tasks are inside every ancestor (S5)."""
    return scope in task.scope.path()


def met(task: Task) -> bool:
    """G1, G2, G6: `after` wants success, `after_ended` any end."""
    return all(other.latest().outcome == "success" for other in task.after) and all(
        other.latest().state == "DISPOSED" for other in task.after_ended
    )


def has_failed(task: Task) -> bool:
    """G3: ended finally, and not with success."""
    return task.latest().state == "DISPOSED" and task.latest().outcome != "success"


def by_submission(tasks: Iterable[Task]) -> list[Task]:
    return sorted(tasks, key=lambda task: task.number)
