"""What the kernel keeps: tasks, scopes, refs, and the settings they run under."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from whywait.errors import ConfigError
from whywait.kernel.gates import Gate
from whywait.kernel.state import RESERVED_NAMES, ScopeState, TaskState

if TYPE_CHECKING:
    from whywait.kernel.accounts import Epoch, Segment
    from whywait.kernel.lanes import Lane
    from whywait.kernel.periodic import Periodic
    from whywait.kernel.timers import Timer

Demand = tuple[tuple[str, int], ...]

LOWEST: Final = 0
HIGHEST: Final = 100
LONGEST_S: Final = 10 * 365 * 86_400  # ten years: a duration that is longer is a slip of the keyboard
GENERATED_ID_PREFIX: Final = "@"
_NUMBER_OF_GENERATED_ID: Final = re.compile(r"[@#]([0-9]{1,20})\Z")  # of a task without a name, of an iteration
_WELL_KNOWN: Final = ("cpu", "ram", "vram")


class Priority:
    """The five named priorities; any int from 0 to 100 is a priority too."""

    CRITICAL: Final = 100
    HIGH: Final = 80
    NORMAL: Final = 50
    LOW: Final = 20
    BACKGROUND: Final = 0

    @staticmethod
    def parse(value: int | str) -> int:
        """Return the priority that an int from 0 to 100 or a name in any case stands for."""
        if isinstance(value, str):
            number = _PRIORITY_NAMES.get(value.lower())
            if number is None:
                names = ", ".join(_PRIORITY_NAMES)
                raise ConfigError(f"priority {value!r} is unknown: use an int from 0 to 100 or one of {names}")
            return number
        if isinstance(value, bool) or not isinstance(value, int) or not LOWEST <= value <= HIGHEST:
            raise ConfigError(f"priority {value!r} is not allowed: use an int from 0 to 100 or a name")
        return value


_PRIORITY_NAMES: Final = {
    "critical": Priority.CRITICAL,
    "high": Priority.HIGH,
    "normal": Priority.NORMAL,
    "low": Priority.LOW,
    "background": Priority.BACKGROUND,
}


@dataclass(frozen=True, order=True, slots=True)
class Ref:
    """A task's identity: immutable, without payload, sortable in submission order."""

    number: int
    scope: str
    authority: int = 0


@dataclass(frozen=True, slots=True)
class Retry:
    """How often, and after which delay, a task that ended in an error is tried again."""

    times: int
    backoff: float = 0.0
    factor: float = 2.0
    max_backoff: float = 60.0
    jitter: float = 0.0
    on: tuple[type[BaseException], ...] = (Exception,)

    def __post_init__(self) -> None:
        """Refuse values that make no sense."""
        if isinstance(self.times, bool) or not isinstance(self.times, int) or self.times < 0:
            raise ConfigError(f"retry times {self.times!r} is not allowed: use an int of 0 or more")
        for name in ("backoff", "factor", "max_backoff"):
            value = getattr(self, name)
            if not (isinstance(value, int | float) and 0 <= value < float("inf")):
                raise ConfigError(f"retry {name} {value!r} is not allowed: use a finite number of 0 or more")
        if not (isinstance(self.jitter, int | float) and 0 <= self.jitter <= 1):
            raise ConfigError(f"retry jitter {self.jitter!r} is not allowed: use a number from 0 to 1")
        kinds = self.on if isinstance(self.on, tuple) else (self.on,)
        if not all(isinstance(kind, type) and issubclass(kind, BaseException) for kind in kinds):
            raise ConfigError(f"retry on {self.on!r} is not allowed: use an exception class or a tuple of such")
        object.__setattr__(self, "on", kinds)

    def delay_ns(self, retry_number: int, jitter: float) -> int:
        """Return the wait before the given retry (1 is the first), with ``jitter`` from -1 to 1 applied."""
        try:
            seconds = min(self.backoff * self.factor ** (retry_number - 1), self.max_backoff)
        except OverflowError:
            seconds = self.max_backoff
        return round(seconds * (1 + self.jitter * jitter) * 1_000_000_000)


@dataclass(frozen=True, slots=True)
class Policy:
    """What one task runs under: its timeout, its retries, how long it may wait."""

    timeout_ns: int | None = None
    retry: Retry | None = None
    max_wait_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Limits:
    """What a scope, or the whole authority, allows at once."""

    slots: int | None = None
    queue_limit: int | None = None
    overflow: str = "reject"
    when_busy: str = "queue"
    max_spawn: int | None = None

    def __post_init__(self) -> None:
        """Refuse values that make no sense."""
        for name, least in (("slots", 1), ("queue_limit", 0), ("max_spawn", 0)):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < least):
                raise ConfigError(f"{name} {value!r} is not allowed: use an int of {least} or more, or None")
        _one_of("overflow", self.overflow, ("reject", "displace"))
        _one_of("when_busy", self.when_busy, ("queue", "reject"))


@dataclass(frozen=True, slots=True)
class Budget:
    """How much of each resource may be in use at once: ``hard`` always, ``soft`` unless nothing else runs."""

    hard: Mapping[str, int] = field(default_factory=dict)
    soft: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse names and amounts that make no sense."""
        for name in (*self.hard, *self.soft):
            if not isinstance(name, str) or not name:
                raise ConfigError(f"a resource cannot be named {name!r}: use a string that is not empty")
            if name in RESERVED_NAMES:
                raise ConfigError(f"a resource cannot be named {name!r}: the name is taken by a wait cause")
            if name in self.hard and name in self.soft:
                raise ConfigError(f"resource {name!r} is both hard and soft: choose one")
        for name, amount in (*self.hard.items(), *self.soft.items()):
            if isinstance(amount, bool) or not isinstance(amount, int) or amount < 0:
                raise ConfigError(f"budget {name} {amount!r} is not allowed: use an int of 0 or more")


def make_demand(cpu: int = 0, ram: int = 0, vram: int = 0, resources: Mapping[str, int] | None = None) -> Demand:
    """Return the canonical demand: amounts above 0 only, in the order in which gates are asked."""
    amounts = {"cpu": cpu, "ram": ram, "vram": vram}
    for name in sorted(resources or ()):
        if name in amounts:
            raise ConfigError(f"demand {name!r} has an argument of its own: do not put it into resources")
        amounts[name] = (resources or {})[name]
    for name, amount in amounts.items():
        if isinstance(amount, bool) or not isinstance(amount, int) or amount < 0:
            raise ConfigError(f"demand {name} {amount!r} is not allowed: use an int of 0 or more")
    return tuple((name, amount) for name, amount in amounts.items() if amount)


def name_splits(name: str) -> Iterator[tuple[str, str]]:
    """Yield what ``scope/name`` may mean as (scope key, name): a slash may be part of either."""
    at = name.find("/")
    while at >= 0:
        yield name[:at], name[at + 1 :]
        at = name.find("/", at + 1)


def gate_order(name: str) -> tuple[int, str]:
    """Return the sort key of a budget gate: cpu, ram, vram, then by name."""
    return (_WELL_KNOWN.index(name), "") if name in _WELL_KNOWN else (len(_WELL_KNOWN), name)


_QUEUED: Final = TaskState.QUEUED  # a global is found faster than an attribute of a class, before Python 3.12


class Task:
    """One execution: one number, one priority, one outcome. A retry is another Task.

    The attributes in ``__slots__`` are set for every task; the rest have class-level defaults and cost memory only
    where they are set (guarded by ``test_pending_task_memory``).
    """

    __slots__ = (
        "__dict__",
        "after",
        "cause",
        "demand",
        "entry",
        "epoch",
        "job",
        "lane",
        "name",
        "number",
        "outcome",
        "plain",
        "policy",
        "priority",
        "scope",
        "segment",
        "since",
        "started_seq",
        "state",
        "successors",
        "unmet",
        "waited",
    )

    number: int
    name: str | None
    scope: Scope
    priority: int
    demand: Demand
    policy: Policy
    job: Any  # opaque: belongs to whoever submitted
    state: str
    since: int  # when the present state was entered; READY: ready_since
    entry: int  # rank of entry into READY; 0 before
    lane: Lane | None
    segment: Segment | None  # the level's account when the task became READY
    epoch: Epoch | None  # the lane's account when the task became READY
    outcome: str | None
    cause: str | None  # the code beside the outcome
    waited: dict[str, int] | int | None  # see `waits`; a number: ns, all of it for what `epoch` and `segment` say
    after: list[Task] | None  # success is awaited
    successors: list[Task] | None  # tasks that await this one's success
    unmet: int  # how many things keep a QUEUED task from READY
    started_seq: int  # seq of the TASK_STARTED event
    plain: bool  # none of wait_timer, pause_timer, periodic and ended_successors is set: the hot path asks only this

    root: str | None = None  # id of the task whose end ended this one
    attempt: int = 1
    retried_as: Task | None = None
    after_ended: list[Task] | None = None  # any end is awaited
    ended_successors: list[Task] | None = None  # tasks that await this one's end
    dead_edges: int = 0  # how many of the successors have ended without us
    held_by: str | None = None  # Wait.BACKOFF or Wait.OVERLAP while that keeps it QUEUED
    paused_from: str | None = None
    abort: tuple[str, str, int] | None = None  # outcome, cause and event seq once an abort has been asked for
    abort_since: int | None = None
    parked_since: int | None = None
    pause_timer: Timer | None = None
    run_timer: Timer | None = None
    wait_timer: Timer | None = None  # max_wait while READY, backoff while QUEUED
    periodic: Periodic | None = None
    starved_ns: int = 0  # from earlier stays in READY
    starved_told: bool = False

    def __init__(
        self,
        number: int,
        name: str | None,
        scope: Scope,
        priority: int,
        demand: Demand,
        policy: Policy,
        job: Any,  # noqa: ANN401 - opaque
        now: int,
    ) -> None:
        """Make a task that is QUEUED since ``now``."""
        self.number = number
        self.name = name
        self.scope = scope
        self.priority = priority
        self.demand = demand
        self.policy = policy
        self.job = job
        self.since = now
        self.state = _QUEUED
        self.plain = True
        self.entry = self.unmet = self.started_seq = 0
        self.lane = self.segment = self.epoch = self.waited = self.after = self.successors = None
        self.outcome = self.cause = None

    @property
    def id(self) -> str:
        """The name the user gave, or a generated id that sorts in submission order."""
        return self.name if self.name is not None else generated_id(self.number)

    @property
    def pending(self) -> bool:
        """Whether the task is alive and holds no slot."""
        state = self.state
        if state == TaskState.PAUSED:
            return self.paused_from != TaskState.RUNNING
        return state in (TaskState.READY, TaskState.QUEUED)

    @property
    def holds_slot(self) -> bool:
        """Whether the task has a slot and its share of the budget."""
        state = self.state
        if state == TaskState.PAUSED:
            return self.paused_from == TaskState.RUNNING
        return state in (TaskState.RUNNING, TaskState.DISPOSING)

    def latest(self) -> Task:
        """Return the newest attempt of this task."""
        task = self
        while (newer := task.retried_as) is not None:
            task = newer
        return task

    @property
    def waits(self) -> dict[str, int]:
        """How the task has waited so far, up to ``since``: wait cause -> ns."""
        waited = self.waited
        if not isinstance(waited, int):
            return dict(waited or ())
        assert self.epoch is not None, "it has been READY"
        assert self.segment is not None, "it has been READY"
        gate = self.epoch.gate
        return {self.segment.mode if gate is None else gate.name: waited}

    def add_wait(self, cause: str, ns: int) -> None:
        """Add waiting time under a cause."""
        if not ns:
            return
        if self.waited is None:
            self.waited = {cause: ns}
            return
        waits = self.waited = self.waits
        waits[cause] = waits.get(cause, 0) + ns

    def __repr__(self) -> str:
        """Show id, scope and state."""
        return f"<Task {self.scope.key}/{self.id} {self.outcome or self.state}>"


def generated_id(number: int) -> str:
    """Return the id of a task that was given none."""
    return f"{GENERATED_ID_PREFIX}{number:010d}"


class Scope:
    """An execution namespace with a lifecycle; the gate that every task of it passes."""

    __slots__ = (
        "activated",
        "by_priority",
        "chain",
        "children",
        "counted",
        "gates",
        "ids",
        "key",
        "lanes",
        "limited",
        "limits",
        "parent",
        "pending",
        "periodics",
        "policy",
        "running",
        "slot_gate",
        "spawned",
        "state",
        "state_gate",
        "tasks",
        "triggers",
    )

    def __init__(self, key: str, parent: Scope | None, limits: Limits, policy: Policy) -> None:
        """Make a scope in INIT below ``parent`` (None for the authority's own)."""
        self.key = key
        self.parent = parent
        self.limits = limits
        self.policy = policy
        self.state: str = ScopeState.INIT
        self.children: dict[str, Scope] = {}
        self.tasks: dict[int, Task] = {}  # alive, in submission order
        self.ids: dict[str, Task | str] = {}  # named tasks: alive, or the outcome of a finished one
        self.lanes: dict[tuple[int, Demand], Lane] = {}
        self.periodics: dict[str, Periodic] = {}
        self.triggers = 0  # how many of the own tasks are iterations of periodics
        self.activated = False  # a task of it has started, and neither it nor a parent can be ATTACHED any more
        self.running = 0  # own tasks that hold a slot
        self.spawned = 0  # accepted in its life, descendants' included
        self.pending = 0  # counted only where queue_limit is set, descendants' included
        self.by_priority: dict[int, list[Task]] = {}  # pending tasks a newcomer may displace, oldest first
        self.chain: tuple[Scope, ...] = (self, *(parent.chain if parent else ()))
        self.state_gate = Gate("scope_state", "scope_state", scope=self)
        kind = "scope_slots" if parent else "slot"
        self.slot_gate = Gate(kind, kind, scope=self, limit=limits.slots)
        self.counted = tuple(scope for scope in self.chain if scope.limits.queue_limit is not None)
        self.limited = (  # whether a submission has limits to check
            limits.when_busy == "reject" or any(s.counted or s.limits.max_spawn is not None for s in self.chain)
        )
        # What every lane of this scope passes, in the order of V7; the authority's own slots are dispatch's loop.
        state_gates = tuple((scope.state_gate, 0) for scope in self.chain if scope.parent)
        slot_gates = tuple((s.slot_gate, 1) for s in self.chain if s.parent and s.limits.slots is not None)
        self.gates: tuple[tuple[Gate, int], ...] = state_gates + slot_gates

    def subtree(self) -> list[Scope]:
        """Return this scope and all below it, each followed by what is inside it, in the order of creation."""
        scopes, ahead = [], [self]
        while ahead:
            scope = ahead.pop()
            scopes.append(scope)
            ahead.extend(reversed(scope.children.values()))
        return scopes

    def known(self, name: str) -> Task | str | None:
        """Return the living task of an id, given or generated, or the outcome of a finished one that was given its."""
        found = self.ids.get(name)
        if found is None:
            number = _NUMBER_OF_GENERATED_ID.search(name)
            task = self.tasks.get(int(number[1])) if number else None
            return task if task is not None and task.id == name else None
        return found

    def __repr__(self) -> str:
        """Show key and state."""
        return f"<Scope {self.key!r} {self.state}>"


class Submission(NamedTuple):
    """One task of a batch."""

    scope: Scope
    name: str | None = None
    priority: int = Priority.NORMAL
    demand: Demand = ()
    after: tuple[Task | str, ...] = ()
    after_ended: tuple[Task | str, ...] = ()
    policy: Policy | None = None
    job: Any = None


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ConfigError(f"{name} {value!r} is not allowed: use one of {', '.join(allowed)}")
