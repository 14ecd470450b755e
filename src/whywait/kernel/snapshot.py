"""An immutable picture of the whole kernel at one moment.

With a million living tasks, naming each of them takes long: a picture can be bounded (:class:`Most`); then it names
the first of each list, and counts all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from heapq import nsmallest
from itertools import islice
from typing import Any, Final, NamedTuple, TypeVar

from whywait.kernel.base import Base
from whywait.kernel.devices import Assigned, Devices, Holding, Unit
from whywait.kernel.gates import Gate
from whywait.kernel.ids import label_of
from whywait.kernel.limits import Demand
from whywait.kernel.model import Lane, Scope, Task
from whywait.kernel.periodic import Periodic
from whywait.kernel.starvation import Signals
from whywait.kernel.waiting import is_starved, lane_waits_for, waits_for

T = TypeVar("T")


class Most(NamedTuple):
    """How many of each kind a picture names at most; None: all."""

    running: int | None = None
    pending: int | None = None
    lanes: int | None = None
    in_lane: int | None = 0  # the tasks of a lane are among the pending ones, so they are named only if asked for
    holders: int | None = None
    asked: int | None = None  # running tasks that are asked what they hold
    units: int | None = None
    scopes: int | None = None


ALL: Final = Most()


class TaskView(NamedTuple):
    """One living task."""

    id: str
    number: int
    scope: str
    state: str
    priority: int
    since_ns: int
    attempt: int
    waits_for: str | None  # the wait cause that is charged now; None: it runs
    demand: Demand = ()
    slot: bool = True  # whether it takes a slot while it runs
    devices: Assigned = ()  # the units that it has
    paused_from: str | None = None  # PAUSED: the state that it goes back to
    function: str | None = None  # by which it is shown, if it was given no id

    @property
    def label(self) -> str:
        """How it is shown."""
        return label_of(self.id, self.number, self.function)


class ReadyView(NamedTuple):
    """One of the first tasks of a lane."""

    number: int
    id: str
    since_ns: int
    effective_priority: int
    starved_told: bool
    function: str | None = None  # by which it is shown, if it was given no id


class LaneView(NamedTuple):
    """One lane that holds tasks."""

    priority: int
    scope: str
    demand: Demand
    length: int
    waits_for: str
    head: str
    gate_scope: str | None = None  # the scope of the gate that it waits for, if that belongs to one
    starved: bool = False  # whether a higher priority holds a slot
    tasks: tuple[ReadyView, ...] = ()
    slot: bool = True  # whether its tasks take a slot


class HolderView(NamedTuple):
    """One task that holds some of a resource."""

    number: int
    id: str
    scope: str
    amount: int
    function: str | None = None  # by which it is shown, if it was given no id


class GateView(NamedTuple):
    """One limit, what of it is free and, of a resource, the tasks that hold most of it."""

    name: str
    limit: int | None
    free: int | None
    soft: bool
    holders: tuple[HolderView, ...] = ()
    holders_total: int = 0


class UnitView(NamedTuple):
    """One unit of a device, what of its memory is free, and the tasks on it."""

    kind: str
    name: str
    size: int  # its memory; 0: none that can be shared
    free: int
    used: int  # of its memory; of one without memory 1 if it is taken
    whole: bool  # its one holder has all of it
    present: bool  # False: it is gone
    holders: tuple[HolderView, ...]
    holders_total: int


class ScopeView(NamedTuple):
    """One living scope."""

    key: str
    parent: str | None
    state: str
    tasks: int
    running: int
    slots: GateView
    ready: int = 0


class PeriodicView(NamedTuple):
    """One periodic task of this run."""

    id: str  # scope/id
    task_ref: int | None
    enabled: bool
    interval_ms: float
    last_run_at: int | None
    running_since: int | None  # when the oldest iteration that runs has started
    next_run_at: int | None
    run_count: int
    skipped: int
    missed: int
    consecutive_failures: int
    last_error: str | None
    overlap: str
    priority: int
    slot: bool


class Counts(NamedTuple):
    """How many tasks there are, named or not."""

    running: int  # with a slot or without
    ready: int
    not_ready: int
    starved: int  # READY ones while a higher priority holds a slot


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What there is at one moment; it never changes and nothing in it is alive."""

    now_ns: int
    counts: Counts
    starvation: Signals  # of the whole authority, in a picture of one scope too
    running: tuple[TaskView, ...]
    pending: tuple[TaskView, ...]
    lanes: tuple[LaneView, ...]
    lanes_total: int
    budget: tuple[GateView, ...]
    devices: tuple[UnitView, ...]
    devices_total: int
    slots: GateView
    scopes: tuple[ScopeView, ...]
    periodics: tuple[PeriodicView, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dict."""
        return {field.name: _plain(getattr(self, field.name)) for field in fields(self)}


def take(k: Base, now: int, scope: Scope, most: Most = ALL) -> Snapshot:
    """Picture a scope and everything below it."""
    scopes = scope.subtree()
    inside = {each.key for each in scopes}
    running = [task for task in k.running.values() if task.scope.key in inside]
    lanes = [lane for lane in k.lanes_in_use() if lane.scope.key in inside]
    inner = (each for each in scopes if each.parent)
    held = Counter(task.scope.key for task in running)
    ready: Counter[str] = Counter()
    for lane in lanes:
        ready[lane.scope.key] += len(lane)
    pending = (task for each in scopes for task in each.tasks.values() if task.pending)
    units = ((each, unit) for each in k.devices.values() for unit in each.units)
    return Snapshot(
        now_ns=now,
        counts=Counts(
            len(running),
            ready.total(),
            sum(len(each.tasks) for each in scopes) - ready.total() - len(running),
            sum(len(lane) for lane in lanes if is_starved(k, lane)),
        ),
        starvation=k.starvation.signals(now, k.lanes_in_use()),
        running=tuple(_task(k, task) for task in islice(running, most.running)),
        pending=tuple(_task(k, task) for task in _first(most.pending, pending, lambda task: task.number)),
        lanes=tuple(_lane(k, lane, now, most.in_lane) for lane in _first(most.lanes, lanes, _turn)),
        lanes_total=len(lanes),
        budget=tuple(_resource(gate, running[: most.asked], most.holders) for gate in k.resources.values()),
        devices=tuple(_unit(each, unit, most.holders) for each, unit in islice(units, most.units)),
        devices_total=sum(len(each.units) for each in k.devices.values()),
        slots=_gate(scope.slot_gate),
        scopes=tuple(_scope(each, held[each.key], ready[each.key]) for each in islice(inner, most.scopes)),
        periodics=tuple(periodic_view(periodic) for each in scopes for periodic in each.periodics.values()),
    )


def periodic_view(periodic: Periodic) -> PeriodicView:
    """Return where a periodic task stands now."""
    return PeriodicView(**periodic.status(), overlap=periodic.overlap, priority=periodic.priority, slot=periodic.slot)


def _first(most: int | None, items: Iterable[T], key: Callable[[T], Any]) -> list[T]:
    return sorted(items, key=key) if most is None else nsmallest(most, items, key=key)


def _turn(lane: Lane) -> tuple[int, int]:
    return -lane.level.priority, lane.head_entry()


def _task(k: Base, task: Task) -> TaskView:
    return TaskView(
        task.id,
        task.number,
        task.scope.key,
        task.state,
        task.priority,
        task.since,
        task.attempt,
        waits_for(k, task),
        task.demand,
        task.takes_slot,
        task.units,
        task.paused_from,
        task.function,
    )


def _lane(k: Base, lane: Lane, now: int, most: int | None) -> LaneView:
    head, gate = lane.head, lane.epoch.gate
    assert head is not None, "a lane that is listed has tasks"
    return LaneView(
        lane.level.priority,
        lane.scope.key,
        lane.demand,
        len(lane),
        lane_waits_for(k, lane),
        head.label,
        None if gate is None else gate.scope_key,
        is_starved(k, lane),
        tuple(
            ReadyView(
                task.number,
                task.id,
                task.since,
                k.order.effective(task.priority, now - task.since),
                task.starved_told,
                task.function,
            )
            for task in islice(lane, most)
        ),
        lane.takes_slot,
    )


def _gate(gate: Gate) -> GateView:
    return GateView(gate.name, gate.limit, None if gate.limit is None else gate.free, gate.soft)


def _resource(gate: Gate, running: list[Task], most: int | None) -> GateView:
    holders = [_holder(task, amount) for task in running if (amount := task.held(gate))]
    largest = _first(most, holders, lambda holder: -holder.amount)
    return _gate(gate)._replace(holders=tuple(largest), holders_total=len(holders))


def _holder(task: Holding, amount: int) -> HolderView:
    return HolderView(task.number, task.id, task.scope.key, amount, task.function)


def _unit(devices: Devices, unit: Unit, most: int | None) -> UnitView:
    holders = tuple(_holder(task, amount) for task, amount in islice(unit.holders.values(), most))
    total = len(unit.holders)
    state = (unit.size, unit.free, unit.in_use, unit.is_whole, unit.is_present)
    return UnitView(devices.name, unit.name, *state, holders, total)


def _scope(scope: Scope, running: int, ready: int) -> ScopeView:
    parent = scope.parent.key if scope.parent else None
    return ScopeView(scope.key, parent, scope.state, len(scope.tasks), running, _gate(scope.slot_gate), ready)


def _plain(part: Any) -> Any:
    """Return a part of a snapshot as JSON has it: a view is an object, a list of them a list."""
    if not isinstance(part, tuple):
        return part
    return _row(part) if hasattr(part, "_asdict") else [_row(view) for view in part]


def _row(view: Any) -> dict[str, Any]:
    row: dict[str, Any] = view._asdict()
    for name in _NESTED.intersection(row):
        row[name] = dict(row[name]) if name in _PAIRS else _plain(row[name])
    return row


_PAIRS: Final = frozenset({"demand", "devices"})
_NESTED: Final = _PAIRS | {"tasks", "holders", "slots"}  # the fields of views that are not plain
