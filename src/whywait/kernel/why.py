"""Why a task waits (or waited): structured reasons, read from the gates that decide. No prose here.

``Kernel.why`` works for any task in any state. A reason is a value of the closed set :class:`ReasonKind`; the
primary one is what dispatch last found, which is also what the accounts charge (V7).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from heapq import nsmallest
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from whywait.kernel import graph
from whywait.kernel.snapshot import waits_for
from whywait.kernel.state import TaskState, Wait

if TYPE_CHECKING:
    from whywait.kernel.gates import Gate
    from whywait.kernel.lanes import Lane, Level
    from whywait.kernel.life import Life
    from whywait.kernel.model import Demand, Task

NAMED_AHEAD: Final = 10


class ReasonKind:
    """The closed set of reasons for which a task is not running."""

    SLOT: Final = "slot"
    SCOPE_STATE: Final = "scope_state"
    SCOPE_SLOTS: Final = "scope_slots"
    RESOURCE: Final = "resource"
    HELD_BACK: Final = "held_back"
    DISPATCH: Final = "dispatch"  # every gate is open: dispatch has not run since
    DEPENDENCY: Final = "dependency"
    BACKOFF: Final = "backoff"
    OVERLAP: Final = "overlap"
    PAUSED: Final = "paused"


class Holder(NamedTuple):
    """A task that holds some of what is missing."""

    id: str
    scope: str
    number: int
    amount: int
    state: str
    running_ns: int


class Blocking(NamedTuple):
    """Another task that has to do something first: a dependency, or whom backfill="none" waits for."""

    id: str
    scope: str
    number: int
    state: str


@dataclass(frozen=True, slots=True)
class Reason:
    """One thing that keeps the task from starting, with numbers and names."""

    kind: str
    name: str  # the wait cause: slot, ram, licence, dependency...
    scope: str | None = None
    need: int | None = None
    free: int | None = None
    limit: int | None = None
    soft: bool = False
    never: bool = False  # it cannot open by itself any more
    until_ns: int | None = None
    holders: tuple[Holder, ...] = ()
    tasks: tuple[Blocking, ...] = ()


class Ahead(NamedTuple):
    """Tasks of one level that come first in order: how many, and the first of them."""

    priority: int
    tasks: int
    first: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Why:
    """The answer for one task at one moment."""

    id: str
    scope: str
    number: int
    state: str
    priority: int
    demand: Demand
    waited_ns: int  # all waiting so far, this attempt
    breakdown: dict[str, int]  # wait cause -> ns; adds up to waited_ns
    starved_ns: int
    starved: bool = False
    outcome: str | None = None
    cause: str | None = None
    root: str | None = None
    attempt: int = 1
    primary: str | None = None  # the wait cause that is charged now
    lane: tuple[int, str, Demand] | None = None
    position: int | None = None  # rank in the lane, 0 is next
    effective_priority: int | None = None
    lifted_in_ns: int | None = None  # until aging lifts it next
    reasons: tuple[Reason, ...] = ()
    ahead: tuple[Ahead, ...] = ()
    running_ns: int | None = None
    holds: Demand = field(default=())
    awaited_by: int = 0  # how many tasks depend on it directly

    @property
    def never(self) -> bool:
        """Whether the task cannot start any more unless somebody changes a limit."""
        return any(reason.never for reason in self.reasons)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dict."""
        data = asdict(self)
        data["demand"] = dict(self.demand)
        data["holds"] = dict(self.holds)
        data["lane"] = None if self.lane is None else [self.lane[0], self.lane[1], dict(self.lane[2])]
        data["ahead"] = [level._asdict() for level in self.ahead]
        for reason, entry in zip(self.reasons, data["reasons"], strict=True):
            entry["holders"] = [holder._asdict() for holder in reason.holders]
            entry["tasks"] = [task._asdict() for task in reason.tasks]
        return data


def explain(life: Life, now: int, task: Task) -> Why:
    """Return why a task is not running, or what it does, or how its wait divided."""
    facts: dict[str, Any] = {"breakdown": task.waits, "starved_ns": life.dispatcher.starved(now, task)}
    if task.state == TaskState.READY:
        facts.update(_ready(life, now, task))
    elif task.pending:
        facts.update(_not_ready(now, task))
    elif task.holds_slot:
        facts.update(running_ns=now - task.since, holds=task.demand)
    return Why(
        id=task.id,
        scope=task.scope.key,
        number=task.number,
        state=task.state,
        priority=task.priority,
        demand=task.demand,
        outcome=task.outcome,
        cause=task.cause,
        root=task.root,
        attempt=task.attempt,
        awaited_by=len(task.successors or ()) + len(task.ended_successors or ()),
        waited_ns=sum(facts["breakdown"].values()),
        **facts,
    )


def _ready(life: Life, now: int, task: Task) -> dict[str, Any]:
    dispatcher, lane = life.dispatcher, task.lane
    assert lane is not None, "a READY task is in a lane"
    breakdown = task.waits
    for cause, ns in dispatcher.ready_wait(now, task).items():
        breakdown[cause] = breakdown.get(cause, 0) + ns
    waited = now - task.since
    step = dispatcher.order.next_step(task.priority, waited)
    return {
        "breakdown": breakdown,
        "starved": lane.level.segment.higher,
        "primary": waits_for(task),
        "lane": (task.priority, task.scope.key, task.demand),
        "position": lane.before(task.entry),
        "effective_priority": dispatcher.order.effective(task.priority, waited),
        "lifted_in_ns": None if step is None else step - waited,
        "reasons": _closed_gates(life, now, lane),
        "ahead": _ahead(life, now, task),
    }


def _closed_gates(life: Life, now: int, lane: Lane) -> tuple[Reason, ...]:
    """Return every closed gate: the budget's and the scopes' in the order in which they are asked, then slots."""
    dispatcher = life.dispatcher
    nobody_runs = dispatcher.busy == 0
    reasons = [_gate_reason(life, now, gate, need) for gate, need in lane.needs if gate.closed(need, nobody_runs)]
    if dispatcher.slots.closed(1, nobody_runs):
        reasons.append(_gate_reason(life, now, dispatcher.slots, 1))
    blocker = dispatcher.blocker
    if dispatcher.held and blocker is not None and blocker is not lane and blocker.head is not None:
        reasons.append(Reason(ReasonKind.HELD_BACK, Wait.HELD_BACK, tasks=(_blocking(blocker.head),)))
    return tuple(reasons) or (Reason(ReasonKind.DISPATCH, Wait.SLOT),)


def _gate_reason(life: Life, now: int, gate: Gate, need: int) -> Reason:
    amounts = ((task, _held(life, task, gate)) for task in life.running.values())
    holders = tuple(
        Holder(task.id, task.scope.key, task.number, amount, task.state, now - task.since)
        for task, amount in amounts
        if amount
    )
    return Reason(
        gate.kind,
        gate.name,
        scope=gate.scope.key if gate.scope else None,
        need=need,
        free=gate.free,
        limit=gate.limit,
        soft=gate.soft,
        never=gate.is_budget and not gate.soft and gate.limit is not None and need > gate.limit,
        holders=holders,
    )


def _held(life: Life, task: Task, gate: Gate) -> int:
    if gate is life.dispatcher.slots:
        return 1
    assert task.lane is not None, "a slot holder remembers its lane"
    return task.lane.need(gate)


def _ahead(life: Life, now: int, task: Task) -> tuple[Ahead, ...]:
    """Return, level by level, how many READY tasks come before this one in order, with the first ten named."""
    effective = life.dispatcher.order.effective
    mine = effective(task.priority, now - task.since)

    def comes_first(other: Any) -> bool:  # noqa: ANN401 - a task, or the place of one that is gone
        theirs = effective(level.priority, now - other.since)
        return theirs > mine or (theirs == mine and other.entry < task.entry)

    def order_key(other: Any) -> tuple[int, int]:  # noqa: ANN401 - a task
        return -effective(other.priority, now - other.since), other.entry

    by_level: dict[int, list[tuple[Lane, int]]] = {}
    for lane in life.dispatcher.lanes():
        level: Level = lane.level
        count = lane.count_while(comes_first)
        if count:
            by_level.setdefault(level.priority, []).append((lane, count))
    rows = [(lane, count) for lanes in by_level.values() for lane, count in lanes]
    # The ten that come first are among the first ten of the ten lanes whose heads come first.
    best_lanes = nsmallest(NAMED_AHEAD, rows, key=lambda row: order_key(row[0].head))
    candidates = [other for lane, count in best_lanes for other in islice(lane, min(count, NAMED_AHEAD))]
    named = nsmallest(NAMED_AHEAD, candidates, key=order_key)
    return tuple(
        Ahead(p, sum(count for _, count in by_level[p]), tuple(other.id for other in named if other.priority == p))
        for p in sorted(by_level, reverse=True)
    )


def _not_ready(now: int, task: Task) -> dict[str, Any]:
    paused = task.state == TaskState.PAUSED
    primary = waits_for(task) or Wait.DEPENDENCY
    breakdown = task.waits
    if now != task.since:
        breakdown[primary] = breakdown.get(primary, 0) + now - task.since
    reasons = []
    if paused:
        reasons.append(Reason(ReasonKind.PAUSED, Wait.PAUSED))
    if task.held_by == Wait.BACKOFF and task.wait_timer is not None:
        reasons.append(Reason(ReasonKind.BACKOFF, Wait.BACKOFF, until_ns=task.wait_timer.at))
    elif task.held_by == Wait.OVERLAP and task.periodic is not None:
        running = tuple(_blocking(other) for other in task.scope.tasks.values() if _other_iteration(other, task))
        reasons.append(Reason(ReasonKind.OVERLAP, Wait.OVERLAP, tasks=running))
    else:
        unmet = graph.unmet_dependencies(task)
        if unmet:
            never = any(other.abort is not None and other in (task.after or ()) for other in unmet)
            tasks = tuple(_blocking(other) for other in unmet)
            reasons.append(Reason(ReasonKind.DEPENDENCY, Wait.DEPENDENCY, need=len(unmet), tasks=tasks, never=never))
    return {"primary": primary, "breakdown": breakdown, "reasons": tuple(reasons)}


def _other_iteration(other: Task, task: Task) -> bool:
    return other.periodic is task.periodic and other.holds_slot


def _blocking(task: Task) -> Blocking:
    return Blocking(task.id, task.scope.key, task.number, task.state)
