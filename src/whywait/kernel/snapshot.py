"""An immutable picture of the whole kernel at one moment."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from whywait.kernel.state import TaskState, Wait

if TYPE_CHECKING:
    from whywait.kernel.gates import Gate
    from whywait.kernel.lanes import Lane
    from whywait.kernel.life import Life
    from whywait.kernel.model import Scope, Task


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


class LaneView(NamedTuple):
    """One lane that holds tasks."""

    priority: int
    scope: str
    demand: tuple[tuple[str, int], ...]
    length: int
    waits_for: str
    head: str


class GateView(NamedTuple):
    """One limit and what of it is free."""

    name: str
    limit: int | None
    free: int | None
    soft: bool


class ScopeView(NamedTuple):
    """One living scope."""

    key: str
    parent: str | None
    state: str
    tasks: int
    running: int
    slots: GateView


class PeriodicView(NamedTuple):
    """One periodic task of this run."""

    runtime_id: str
    task_ref: int | None
    enabled: bool
    interval_ms: float
    last_run_at: int | None
    next_run_at: int | None
    run_count: int
    consecutive_failures: int
    last_error: str | None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What there is at one moment; it never changes and nothing in it is alive."""

    now_ns: int
    running: tuple[TaskView, ...]
    pending: tuple[TaskView, ...]
    lanes: tuple[LaneView, ...]
    budget: tuple[GateView, ...]
    slots: GateView
    scopes: tuple[ScopeView, ...]
    periodics: tuple[PeriodicView, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dict."""
        data = asdict(self)
        for name in ("running", "pending", "lanes", "budget", "periodics"):
            data[name] = [row._asdict() for row in getattr(self, name)]
        data["slots"] = self.slots._asdict()
        data["scopes"] = [{**row._asdict(), "slots": row.slots._asdict()} for row in self.scopes]
        return data


def take(life: Life, now: int, scope: Scope) -> Snapshot:
    """Picture a scope and everything below it."""
    scopes = scope.subtree()
    tasks = [task for each in scopes for task in each.tasks.values()]
    tasks.sort(key=lambda task: task.number)
    inside = {each.key for each in scopes}
    return Snapshot(
        now_ns=now,
        running=tuple(_task(task) for task in life.running.values() if task.scope.key in inside),
        pending=tuple(_task(task) for task in tasks if task.pending),
        lanes=tuple(_lane(lane) for lane in life.dispatcher.lanes() if lane.scope.key in inside),
        budget=tuple(_gate(gate) for gate in life.resources.values()),
        slots=_gate(scope.slot_gate),
        scopes=tuple(_scope(each) for each in scopes if each.parent),
        periodics=tuple(PeriodicView(**periodic.status()) for each in scopes for periodic in each.periodics.values()),
    )


def waits_for(task: Task) -> str | None:
    """Return the wait cause that is charged to a task now; None if it does not wait."""
    if task.state == TaskState.READY:
        lane = task.lane
        assert lane is not None, "a READY task is in a lane"
        return lane.waits_for
    if not task.pending:
        return None
    return Wait.PAUSED if task.state == TaskState.PAUSED else task.held_by or Wait.DEPENDENCY


def _task(task: Task) -> TaskView:
    return TaskView(
        task.id, task.number, task.scope.key, task.state, task.priority, task.since, task.attempt, waits_for(task)
    )


def _lane(lane: Lane) -> LaneView:
    head = lane.head
    assert head is not None, "a lane that is listed has tasks"
    return LaneView(lane.level.priority, lane.scope.key, lane.demand, len(lane), lane.waits_for, head.id)


def _gate(gate: Gate) -> GateView:
    return GateView(gate.name, gate.limit, None if gate.limit is None else gate.free, gate.soft)


def _scope(scope: Scope) -> ScopeView:
    parent = scope.parent.key if scope.parent else None
    return ScopeView(scope.key, parent, scope.state, len(scope.tasks), scope.running, _gate(scope.slot_gate))
