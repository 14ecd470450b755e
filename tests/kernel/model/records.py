"""The nouns of the model: plain records that know only how to read themselves."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

SECOND_NS = 1_000_000_000


class Refused(Exception):  # noqa: N818 (it is an answer, not a fault)
    """A submission was refused (T2, T3); nothing of it stays behind."""

    def __init__(self, cause: str, task: Task) -> None:
        super().__init__(f"{task.name}: {cause}")
        self.cause = cause
        self.name = task.name
        self.scope = task.scope


class Illegal(Exception):  # noqa: N818
    """The command is an error in the present state (T1, X4, O1, O3)."""


@dataclass(frozen=True)
class Limits:
    """What a scope, or the authority, allows."""

    slots: int | None = None
    queue_limit: int | None = None
    overflow: str = "reject"
    when_busy: str = "queue"
    when_blocked: str = "hold"
    max_spawn: int | None = None
    on_error: str = "continue"


@dataclass(frozen=True)
class Retry:
    """T7: how often, and how long to wait before each new attempt."""

    times: int
    backoff_ns: int = 0
    grow: tuple[tuple[str, float], ...] = ()

    def delay_ns(self, failed_attempts: int) -> int:
        """The wait doubles with each failed attempt, up to a minute."""
        return min(self.backoff_ns * 2 ** (failed_attempts - 1), 60 * SECOND_NS)


@dataclass(frozen=True)
class Policy:
    """What a task runs under (T6)."""

    timeout_ns: int | None = None
    retry: Retry | None = None
    max_wait_ns: int | None = None


@dataclass(frozen=True)
class Strict:
    """P3: the base priority, whatever the wait."""

    ties: str = "submission"

    def effective(self, base: int, waited_ns: int) -> int:
        return base


@dataclass(frozen=True)
class Aging:
    """P4: the base priority and a gain for each whole step waited."""

    every_ns: int = 5 * SECOND_NS
    boost: int = 10
    cap: int | None = 99
    ties: str = "submission"

    def effective(self, base: int, waited_ns: int) -> int:
        lifted = base + waited_ns // self.every_ns * self.boost
        if self.cap is not None and lifted > self.cap:
            lifted = self.cap
        return max(base, lifted)

    def promotions(self, base: int, waited_ns: int) -> int:
        """V2: how many of the steps waited lifted the effective priority."""
        steps = range(1, waited_ns // self.every_ns + 1)
        return sum(
            self.effective(base, step * self.every_ns) > self.effective(base, (step - 1) * self.every_ns)
            for step in steps
        )


@dataclass(eq=False)
class Budget:
    """B1 to B3, N1: what may be in use at once."""

    hard: dict[str, int] = field(default_factory=dict)
    soft: dict[str, int] = field(default_factory=dict)
    devices: dict[str, dict[str, int]] = field(default_factory=dict)


@dataclass(eq=False, repr=False)
class Scope:
    """An execution namespace; the root is the authority's own."""

    key: str
    parent: Scope | None
    limits: Limits
    policy: Policy
    budget: Budget | None = None  # the root has one; another scope may
    state: str = "INIT"
    names: dict[str, Task] = field(default_factory=dict)
    accepted: int = 0

    def __repr__(self) -> str:
        return f"<scope {self.key!r} {self.state}>"

    def path(self) -> list[Scope]:
        """This scope and its ancestors, outwards to the root."""
        return [self] if self.parent is None else [self, *self.parent.path()]

    @cached_property
    def payer(self) -> Scope:
        """M4: the nearest scope with a budget of its own; its tasks are served out of that and nothing else."""
        return self.parent.payer if self.budget is None else self


@dataclass(eq=False, repr=False)
class Task:
    """One execution. A retry is another task (T7)."""

    name: str | None
    scope: Scope
    priority: int
    demand: dict[str, int]
    after: list[Task]
    after_ended: list[Task]
    policy: Policy
    slot: bool = True
    attempt: int = 1
    number: int = 0
    id: str = ""
    state: str = "QUEUED"
    paused_from: str | None = None
    outcome: str | None = None
    cause: str | None = None
    roots: frozenset[str] = frozenset()
    retried_as: Task | None = None
    entry: int = 0
    ready_since: int = 0
    start_order: int = 0
    pending_since: int = 0
    backing_off: bool = False
    abort: tuple[str, str] | None = None
    pause_timer: Timer | None = None
    pause_wished: bool = False
    is_stopped: bool = False
    stopped_since: int = 0
    run_timer: Timer | None = None
    periodic: Periodic | None = None
    let_through: bool = True
    devices: dict[str, tuple[str, ...]] = field(default_factory=dict)
    waits: dict[str, int] = field(default_factory=dict)
    starved_ns: int = 0
    starved_reported: bool = False
    ram: int = 0
    overdrawn: bool = False
    blocked_on: int | None = None
    lends: bool = False

    @property
    def pending(self) -> bool:
        """D1: QUEUED, READY, and PAUSED from those."""
        return self.state in {"QUEUED", "READY"} or (self.state == "PAUSED" and self.paused_from in {"QUEUED", "READY"})

    @property
    def active(self) -> bool:
        """T4, X2: from activation until the body has really ended; parked and DISPOSING included."""
        return self.state in {"RUNNING", "DISPOSING"} or (self.state == "PAUSED" and self.paused_from == "RUNNING")

    @property
    def lane(self) -> tuple[int, str, tuple[tuple[str, int], ...], bool]:
        """P6: the same priority, scope and demand; S6: with a slot or without."""
        return (self.priority, self.scope.key, tuple(sorted(self.demand.items())), self.slot)

    def __repr__(self) -> str:
        return f"<{self.scope.key}/{self.id} {self.outcome or self.state}>"

    def latest(self) -> Task:
        """T7: the newest attempt; dependents follow to it."""
        return self if self.retried_as is None else self.retried_as.latest()


@dataclass(eq=False, repr=False)
class Periodic:
    """R1: one periodic and its state of this run."""

    scope: Scope
    interval_ns: int
    name: str | None
    overlap: str
    max_parallel: int
    jitter: float
    enabled: bool
    priority: int
    demand: dict[str, int]
    policy: Policy | None
    slot: bool
    disable_after: int | None
    next_at: int = 0
    run_count: int = 0
    consecutive_failures: int = 0
    timer: Timer | None = None
    iterations: list[Task] = field(default_factory=list)

    def __repr__(self) -> str:
        return f"<periodic {self.scope.key}/{self.name}>"


@dataclass(eq=False)
class Timer:
    """Something that happens at a time, unless it has lost its meaning by then."""

    time: int
    kind: str
    target: Any
