"""What the kernel keeps: tasks, scopes, the lanes in which tasks wait, and the levels of equal priority."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heapreplace
from typing import Any, Final, NamedTuple

from whywait.errors import printable
from whywait.kernel.accounts import Epoch, Segment, Waited
from whywait.kernel.benches import Bench
from whywait.kernel.devices import Ask, Assigned
from whywait.kernel.events import Details, submitted_details
from whywait.kernel.fifo import Fifo, Item
from whywait.kernel.gates import SHUT, Gate
from whywait.kernel.ids import (
    GENERATED_ID_PREFIX,
    function_shown,
    generated_id,
    is_generated,
    label_of,
    number_of,
)
from whywait.kernel.limits import HIGHEST, MEASURED, Budget, Demand, Limits, Policy, Priority
from whywait.kernel.pool import Pool
from whywait.kernel.state import BARRED_SCOPE_STATES, OPEN_SCOPE_STATES, Outcome, ScopeState, TaskState
from whywait.kernel.timers import Timer

NEVER: Final = (1 << 63) - 1  # later than any time that a command may have
BESIDE: Final = HIGHEST + 1  # see rank_of
# Globals are found faster than attributes of a class, before Python 3.12.
_QUEUED: Final = TaskState.QUEUED
_READY: Final = TaskState.READY
_RUNNING: Final = TaskState.RUNNING
_PAUSED: Final = TaskState.PAUSED
_SUSPENDED: Final = ScopeState.SUSPENDED

Needs = tuple[tuple[Gate, int], ...]
LaneKey = tuple[int, Demand]  # under which a scope finds a lane: the rank of its level, and the demand


@dataclass(frozen=True, order=True, slots=True)
class Ref:
    """A task's identity: immutable, without payload, sortable in submission order."""

    number: int
    scope: str
    authority: int = 0


class Task(Item):
    """One task: one number, one priority, one outcome; a retry begins it anew under another number.

    The owner of a kernel may bring tasks of a class of its own, with what it has to know of a task beside ``job``.
    The attributes in ``__slots__`` are set when the task is taken in, but for ``called``, which its owner sets. The
    rest have class-level defaults and cost memory only where they are set (guarded by ``test_pending_task_memory``);
    compiled, only the classes below have a ``__dict__`` for them. The hot path asks ``plain`` before it looks at one.
    """

    __slots__ = (
        "__dict__",
        "after",
        "called",
        "cause",
        "epoch",
        "job",
        "lane",
        "more_waits",
        "name",
        "number",
        "outcome",
        "plain",
        "policy",
        "scope",
        "segment",
        "started_seq",
        "starved_ns",
        "state",
        "successors",
        "unmet",
        "wait_cause",
        "wait_ns",
    )

    number: int  # in submission order, without gaps
    name: str | None
    scope: Scope
    lane: Lane  # where it waits while READY; it never changes, so priority and demand are the lane's
    policy: Policy
    called: str | None  # the name of its function, as its owner told it
    state: str
    since: int  # when the present state was entered; READY: ready_since
    entry: int  # rank of entry into READY; 0 before
    segment: Segment | None  # the level's account when the task became READY
    epoch: Epoch | None  # the lane's account when the task became READY
    outcome: Outcome | None
    cause: str | None  # the code beside the outcome
    wait_cause: str | None  # what it has waited for, if that was one cause alone
    wait_ns: int  # how long it has waited for that
    more_waits: Waited | None  # how its wait divides, if there was more than one cause
    after: list[Task] | None  # success is awaited
    successors: list[Task] | None  # tasks that await this one's success
    unmet: int  # how many things keep a QUEUED task from READY
    started_seq: int  # seq of the TASK_STARTED event; 0 before
    starved_ns: int  # from earlier stays in READY
    job: Any  # opaque: belongs to whatever submitted the task
    plain: bool  # no timer, timeout, periodic, task that awaits any end, in a plain lane: the hot path asks only this

    units: Assigned = ()  # the units of devices that it got when it started
    root: str | None = None  # label of the task whose end ended this one
    attempt: int = 1
    earlier: tuple[Attempt, ...] = ()  # the attempts before this one
    after_ended: list[Task] | None = None  # any end is awaited
    ended_successors: list[Task] | None = None  # tasks that await this one's end
    dead_edges: int = 0  # how many of the successors have ended without this one
    held_by: str | None = None  # Wait.BACKOFF or Wait.OVERLAP while that keeps it QUEUED
    paused_from: str | None = None
    abort: tuple[Outcome, str, int] | None = None  # outcome, cause and event seq once an abort has been asked for
    abort_since: int | None = None
    parked_since: int | None = None
    pause_wished: bool = False  # a pause was asked for and not taken back: it holds for the next attempt too
    is_stopped: bool = False  # the system has stopped the process of its body or client: the same (M15)
    timeout_left_ns: int | None = None  # of its timeout, while it is stopped
    pause_timer: Timer | None = None
    run_timer: Timer | None = None
    wait_timer: Timer | None = None  # the end of a limited wait while READY, backoff while QUEUED
    periodic: Any = None  # the Periodic whose iteration this is
    starved_before: int = 0  # ns, of the attempts before this one
    starved_first: int | None = None  # number of the first attempt that was starved, if it is not this one
    starved_told: bool = False
    blocked_on: Task | None = None  # the task whose end the body blocks for
    lends: bool = False  # it has given its slots back, since its body blocks or has blocked
    overdraft: int = 0  # what the budget counts for it beside what it has asked for
    overdrawn_since: int = 0
    is_overdrawn: bool = False  # it has used more than it had asked for, and that was told

    @property
    def id(self) -> str:
        """The name the user gave, or a generated id that sorts in submission order."""
        return self.name if self.name is not None else generated_id(self.number)

    @property
    def function(self) -> str | None:
        """The name of its function, if the user gave the task no name: it is shown by it."""
        return function_shown(self.called) if self.name is None else None

    @property
    def label(self) -> str:
        """How the task is shown: the name the user gave, or "download@12"."""
        return label_of(self.id, self.number, self.function)

    @property
    def priority(self) -> int:
        """The base priority."""
        return self.lane.level.priority

    @property
    def demand(self) -> Demand:
        """What the task uses of the budget while it runs."""
        return self.lane.demand

    @property
    def ends_for_good(self) -> bool:
        """Whether its end was asked for, and it will not be retried."""
        return self.abort is not None and self.abort[0] is not Outcome.ERROR

    def held(self, gate: Gate) -> int:
        """Return how much a slot holder has of a gate: what it asked for, and what it uses beyond that."""
        asked = self.takes(gate)
        return asked + self.overdraft if self.overdraft and gate is self.scope.pool.resources[MEASURED] else asked

    def takes(self, gate: Gate) -> int:
        """Return how much of what it asked for an active task has of a gate: no slot while it lends (S7)."""
        return 0 if self.lends and gate.is_slots else self.lane.need(gate)

    @property
    def takes_slot(self) -> bool:
        """Whether the task takes a slot, of the authority and of its scopes, while it runs (S6)."""
        return self.lane.takes_slot

    @property
    def holds_slot(self) -> bool:
        """Whether an active task has a slot: it takes one and does not lend it (S6, S7)."""
        return self.lane.takes_slot and not self.lends

    @property
    def pending(self) -> bool:
        """Whether the task is alive and has not started."""
        state = self.state
        if state is _PAUSED:
            return self.paused_from is not _RUNNING
        return state is _READY or state is _QUEUED

    @property
    def active(self) -> bool:
        """Whether the task has started and its body has not ended: it has its slot and its share of the budget."""
        state = self.state
        if state is _PAUSED:
            return self.paused_from is _RUNNING
        return state is _RUNNING or state is TaskState.DISPOSING

    @property
    def waits(self) -> dict[str, int]:
        """How the task has waited so far, up to ``since``: wait cause -> ns."""
        if self.more_waits is not None:
            return self.more_waits.by_cause()
        return {self.wait_cause: self.wait_ns} if self.wait_cause is not None else {}

    def __repr__(self) -> str:
        """Show id, scope and state."""
        return f"<Task {printable(self.scope.key)}/{self.label} {self.outcome or self.state}>"


class PlainTask(Task):
    """A task of which the kernel's owner has no class of its own."""


class Attempt(NamedTuple):
    """An attempt at a task that has failed and was followed by another."""

    number: int
    waits: dict[str, int]


# What a task has for one attempt only, beside what every task has.
OF_AN_ATTEMPT: Final = (
    "abort", "abort_since", "blocked_on", "is_overdrawn", "is_stopped", "lends", "overdrawn_since", "parked_since",
    "pause_timer", "pause_wished", "paused_from", "root", "run_timer", "starved_told", "timeout_left_ns", "units",
)  # fmt: skip


def add_wait(task: Task, cause: str, ns: int) -> None:
    """Add waiting time of a task under a cause."""
    if not ns:
        return
    first, waits = task.wait_cause, task.more_waits
    if waits is None:
        if first is None or first == cause:
            task.wait_cause = cause
            task.wait_ns += ns
            return
        task.more_waits = waits = Waited(0, 0, 0)
        waits.add(first, task.wait_ns)
        task.wait_cause = None
    waits.add(cause, ns)


def add_waits(task: Task, waits: Waited) -> None:
    """Add waiting time of a task under one cause or several; ``waits`` is the task's from then on."""
    cause = waits.only_cause()
    if cause is not None:
        add_wait(task, cause, waits.total())
        return
    if task.wait_cause is not None:
        waits.add(task.wait_cause, task.wait_ns)
        task.wait_cause = None
    elif task.more_waits is not None:
        waits.add_all(task.more_waits, 1)
    task.more_waits = waits


def task_for(job: Any) -> Task:
    """Return a task that no kernel has taken in yet."""
    task = PlainTask()
    task.job = job
    task.called = None
    return task


class Lane(Fifo):
    """READY tasks of one priority, scope and demand, all with or all without a slot, first in, first out.

    All of them pass or fail the same gates, so only the head matters.
    """

    __slots__ = (
        "asks",
        "bench_key",
        "demand",
        "details",
        "epoch",
        "feasible",
        "forgotten",
        "gated",
        "key",
        "level",
        "needs",
        "parked_at",
        "plain",
        "queued",
        "queued_details",
        "scope",
        "slots",
        "takes",
        "takes_slot",
        "told",
        "told_cause",
        "watched",
    )

    def __init__(
        self, scope: Scope, level: Level, demand: Demand, needs: Needs, asks: tuple[Ask, ...], slots: Gate, now: int
    ) -> None:
        """Make an empty, open lane; ``needs`` are its gates but for devices, of which it ``asks``, in their order."""
        super().__init__()
        self.scope = scope
        self.level = level
        self.demand = demand
        self.key: LaneKey = (level.rank, demand)
        self.takes_slot = takes_slot = level.takes_slot
        self.asks = asks
        self.needs: Needs = needs + tuple((ask.door, ask.need) for ask in asks)
        own = ((slots, 1),) if takes_slot else ()
        self.takes: Needs = (*own, *((gate, need) for gate, need in needs if need))  # held while running
        self.slots: Needs = tuple((gate, need) for gate, need in self.takes if gate.is_slots)
        # Its tasks need nothing done, at a start and an end, but what ``takes`` says.
        self.plain = takes_slot and not asks and not scope.counted
        self.gated = any(need for _, need in self.needs)  # else it passes only scopes, which are open unless suspended
        self.feasible: bool  # the budget could meet the demand
        self.note_feasible()
        self.forgotten = False  # the scope has no use for it any more: tasks enter another one like it
        self.queued: int | None = None  # the key under which the lane stands in its level's heap, None: not there
        self.parked_at: Gate | None = None  # the gate on whose bench it waits
        self.bench_key = 0
        self.epoch = Epoch(now, None, level.segment, Waited(0, 0, 0))
        told = (level.priority, demand, takes_slot)
        self.details = submitted_details(TaskState.READY, *told)  # of tasks that are READY at once
        self.queued_details = submitted_details(TaskState.QUEUED, *told)
        self.told_cause: tuple[Gate | None, bool] = (None, False)  # what the latest LANE_WAITS has said
        self.told = 0  # starvation has been looked at up to this entry
        self.watched = not takes_slot  # it stands in the level's starvation watch, or is never starved

    def note_feasible(self) -> None:
        """Note whether the budget, as it is now, could meet the demand."""
        self.feasible = not any(gate.can_never_pass(need) for gate, need in self.needs)

    @property
    def head(self) -> Task | None:
        """The task at the front."""
        return self.front[-1] if self.front else None

    def need(self, gate: Gate) -> int:
        """Return how much a task of this lane needs of a gate; 0 if it does not pass it."""
        for other, need in self.takes:
            if other is gate:
                return need
        for other, need in self.needs:
            if other is gate:
                return need
        return 0

    def __iter__(self) -> Iterator[Task]:
        """Yield all tasks in order."""
        return self.since_entry(0)


class Level:
    """All lanes of one rank: the open ones in a heap by the entry of their head, the parked ones on benches."""

    __slots__ = (
        "among",
        "effective",
        "entered_ns",
        "entry",
        "first_step_ns",
        "heap",
        "opening",
        "place",
        "priority",
        "rank",
        "segment",
        "starve_timer",
        "step_at",
        "takes_slot",
        "version",
        "watch",
    )

    def __init__(
        self,
        rank: int,
        among: Any,
        first_step_ns: int | None,
        segment: Segment,
        version: int,
    ) -> None:
        """Make an empty level whose account is at ``segment``, of that ``version`` of the ceiling."""
        self.rank = rank  # see rank_of
        self.takes_slot = rank < BESIDE
        self.priority = rank if rank < BESIDE else rank - BESIDE
        self.among = among  # the heap of the levels that it is compared with
        self.first_step_ns = first_step_ns  # the wait after which aging lifts a task first; None: it never does
        self.segment = segment
        self.version = version
        # Open lanes by the entry of their head. A key may be too small, never too large: its lane's head has left.
        self.heap: list[tuple[int, Lane]] = []
        self.opening: list[Gate] = []  # gates at which a parked lane may fit since the last dispatch
        self.place = -1  # where it stands in the heap of the levels, -1: it does not
        self.effective = 0  # the effective priority, and
        self.entry = 0  # the entry, by which it stands there; they may be too good, never too bad
        self.step_at = NEVER  # when the head may be lifted next, no later than it is
        self.watch: list[tuple[int, int, Lane | Task]] = []  # by the starved total at which to report
        self.starve_timer: Timer | None = None
        self.entered_ns = 0  # the sum of what its starved total was when each of its READY tasks entered

    def first(self, no_slot_held: bool) -> Lane | None:
        """Return the lane whose head has waited longest among the open and the opening ones."""
        heap = self.heap
        lane = None
        while heap:
            key, lane = heap[0]
            if lane.front:
                head: Task = lane.front[-1]
                entry = head.entry
                if entry == key or len(heap) == 1:  # what is compared with nothing may keep its key
                    break
                lane.queued = entry
                heapreplace(heap, (entry, lane))
            else:
                heappop(heap)
                lane.queued = None
            lane = None
        if self.opening:
            for gate in self.opening[:]:
                bench: Bench = gate.benches[self.rank]
                other: Lane | None = bench.first(gate.room(no_slot_held))
                if other is None:
                    bench.opening = False
                    self.opening.remove(gate)
                elif lane is None or other.head_entry() < lane.head_entry():
                    lane = other
        return lane


class Scope:
    """An execution namespace with a lifecycle; the gate that every task of it passes."""

    __slots__ = (
        "aborting",
        "activated",
        "by_priority",
        "chain",
        "children",
        "counted",
        "freely_open",
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
        "pool",
        "slot_gate",
        "spawned",
        "state",
        "state_gate",
        "state_gates",
        "tasks",
        "triggers",
    )

    def __init__(
        self, key: str, parent: Scope | None, limits: Limits, policy: Policy, budget: Budget | None = None
    ) -> None:
        """Make a scope in INIT below ``parent`` (None for the authority's own), with a budget of its own if given."""
        self.key = key
        # What the demands of its tasks are met from: its own budget, else that of the nearest scope around it.
        self.pool: Pool = Pool(budget or Budget(), key) if budget is not None or parent is None else parent.pool
        self.parent = parent
        self.limits = limits
        self.policy = policy
        self.state: str = ScopeState.INIT
        self.freely_open = False  # see note_state
        self.children: dict[str, Scope] = {}
        self.tasks: dict[int, Task] = {}  # alive, in submission order
        self.ids: dict[str, Task | str] = {}  # named tasks: alive, or the outcome of a finished one
        self.lanes: dict[LaneKey, Lane] = {}
        self.periodics: dict[str, Any] = {}
        self.triggers = 0  # how many of the own tasks are iterations of periodics
        self.activated = False  # a task of it has started, and neither it nor a parent can be ATTACHED any more
        self.spawned = 0  # accepted in its life, descendants' included
        self.pending = 0  # counted only where their number is limited, descendants' included
        self.by_priority: dict[int, list[Task]] = {}  # pending tasks a newcomer may displace, oldest first
        self.chain: tuple[Scope, ...] = (self, *(parent.chain if parent else ()))
        self.state_gate = Gate("scope_state", "scope_state", scope_key=key)
        kind = "scope_slots" if parent else "slot"
        self.slot_gate = Gate(kind, kind, scope_key=key, limit=limits.slots)
        self.counted = tuple(scope for scope in self.chain if scope.limits.queue_limit is not None)
        self.limited = (  # whether a submission has limits to check
            limits.when_busy == "reject" or any(s.counted or s.limits.max_spawn is not None for s in self.chain)
        )
        # What an error of a task ends, this scope first (O10).
        self.aborting = tuple(scope for scope in self.chain if scope.limits.on_error == "abort")
        # What every lane of this scope passes, in the order of V7; the authority's own slots are dispatch's loop.
        self.state_gates: Needs = tuple((scope.state_gate, 0) for scope in self.chain if scope.parent)
        slot_gates = tuple((s.slot_gate, 1) for s in self.chain if s.parent and s.limits.slots is not None)
        self.gates: Needs = self.state_gates + slot_gates

    def note_state(self) -> None:
        """Bring up to date what follows from the states of this scope and those around it, here and below.

        ``freely_open``: the scope accepts tasks (O2, O8): it is ATTACHED or RUNNING, and none around it is INIT or
        SUSPENDED.
        """
        for scope in self.subtree():
            barred = any(each.state in BARRED_SCOPE_STATES for each in scope.chain)
            scope.freely_open = scope.state in OPEN_SCOPE_STATES and not barred
            scope.state_gate.free = SHUT if scope.state is _SUSPENDED else 0

    def subtree(self) -> list[Scope]:
        """Return this scope and all below it, each followed by what is inside it, in the order of creation."""
        scopes, ahead = [], [self]
        while ahead:
            scope = ahead.pop()
            scopes.append(scope)
            ahead.extend(reversed(scope.children.values()))
        return scopes

    def known(self, name: str) -> Task | str | None:
        """Return the living task of an id or label, or the outcome of a finished one that was given its."""
        found = self.ids.get(name)
        if found is None:
            number = number_of(name)
            task = self.tasks.get(number) if number is not None else None
            if task is None or number is None:
                return None
            is_meant = name in (task.id, task.label) or (task.name is None and is_generated(name, number))
            return task if is_meant else None
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
    after: Sequence[Task | str] = ()
    after_ended: Sequence[Task | str] = ()
    policy: Policy | None = None
    slot: bool = True  # whether it takes a slot while it runs (S6)
    job: Any = None  # opaque, or a Task of the owner's own class


def rank_of(priority: int, slot: bool) -> int:
    """Return the rank of the level in which such tasks wait: their priority, or that and BESIDE without a slot.

    Levels of tasks that take no slot are levels of their own: they are asked while all slots are taken, and no task in
    them is starved, because no holder of a slot has a priority above their rank.
    """
    return priority if slot else priority + BESIDE


def name_splits(name: str) -> Iterator[tuple[str, str]]:
    """Yield what ``scope/name`` may mean as (scope key, name): a slash may be part of either."""
    at = name.find("/")
    while at >= 0:
        yield name[:at], name[at + 1 :]
        at = name.find("/", at + 1)


__all__ = [
    "GENERATED_ID_PREFIX", "Details", "Lane", "LaneKey", "Level", "Needs", "Ref", "Scope", "Submission", "Task",
    "generated_id", "name_splits", "rank_of",
]  # fmt: skip
