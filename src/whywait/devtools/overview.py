"""The overview: a bounded picture of what runs and what waits, made under the lock in well under a millisecond.

``Authority.snapshot()`` names every living task; with a million of them that takes long, and nobody can look at so
many. This one names the first of each lane and the first lanes of all, and counts the rest.
"""

from __future__ import annotations

from heapq import nsmallest
from itertools import islice
from time import monotonic_ns
from typing import TYPE_CHECKING, Any, Final

from whywait.kernel.gates import Gate
from whywait.kernel.lanes import Lane
from whywait.kernel.model import Scope, Task
from whywait.kernel.state import TaskState

if TYPE_CHECKING:
    from whywait.authority import Authority

LANES: Final = 100
IN_LANE: Final = 10
RUNNING: Final = 200
HOLDERS: Final = 10
SCOPES: Final = 500
LOOKED_AT: Final = 2_000  # running tasks that are asked what they hold


def take(authority: Authority) -> dict[str, Any]:
    """Picture an authority now, as a JSON-ready dict."""
    kernel = authority.kernel
    with authority.lock:
        now = monotonic_ns()
        running = list(islice(kernel.running.values(), LOOKED_AT))
        lanes = list(kernel.dispatcher.lanes())
        shown = nsmallest(LANES, lanes, key=lambda lane: (-lane.level.priority, lane.head_entry))
        effective = kernel.dispatcher.order.effective
        ready = sum(map(len, lanes))
        alive = sum(len(scope.tasks) for scope in kernel.scopes.values())
        starved = sum(len(lane) for lane in lanes if lane.level.segment.higher)
        ready_in: dict[str, int] = {}
        for lane in lanes:
            ready_in[lane.scope.key] = ready_in.get(lane.scope.key, 0) + len(lane)
        return {
            "now_ns": now,
            "seq": authority.last_seq,
            "counts": {
                "running": len(kernel.running),
                "ready": ready,
                "not_ready": alive - ready - len(kernel.running),
                "starved": starved,
            },
            "slots": _gate(kernel.root.slot_gate),
            "running": [_running(task) for task in running[:RUNNING]],
            "lanes": [_lane(lane, now, effective) for lane in shown],
            "lanes_total": len(lanes),
            "budget": [{**_gate(gate), **_held(gate, running)} for gate in kernel.resources.values()],
            "scopes": [_scope(scope, ready_in) for scope in islice(kernel.root.subtree(), 1, SCOPES + 1)],
            "periodics": [
                {**periodic.status(), "overlap": periodic.overlap, "priority": periodic.priority}
                for scope in kernel.scopes.values()
                for periodic in scope.periodics.values()
            ],
        }


def _running(task: Task) -> dict[str, Any]:
    return {
        "number": task.number,
        "id": task.id,
        "scope": task.scope.key,
        "priority": task.priority,
        "state": task.state,
        "since_ns": task.since,
        "attempt": task.attempt,
        "demand": dict(task.demand),
        "parked": task.state == TaskState.PAUSED,
    }


def _lane(lane: Lane, now: int, effective: Any) -> dict[str, Any]:  # noqa: ANN401 - an order's method
    gate = lane.epoch.gate
    return {
        "priority": lane.level.priority,
        "scope": lane.scope.key,
        "demand": dict(lane.demand),
        "length": len(lane),
        "waits_for": lane.waits_for,
        "gate_scope": gate.scope.key if gate is not None and gate.scope is not None else None,
        "starved": lane.level.segment.higher,
        "tasks": [
            {
                "number": task.number,
                "id": task.id,
                "since_ns": task.since,
                "effective_priority": effective(task.priority, now - task.since),
                "starved_told": task.starved_told,
            }
            for task in islice(lane, IN_LANE)
        ],
    }


def _gate(gate: Gate) -> dict[str, Any]:
    limit = gate.limit
    return {"name": gate.name, "limit": limit, "free": None if limit is None else gate.free, "soft": gate.soft}


def _held(gate: Gate, running: list[Task]) -> dict[str, Any]:
    holders = [(task, amount) for task in running for name, amount in task.demand if name == gate.name and amount]
    holders.sort(key=lambda held: -held[1])
    return {
        "holders": [
            {"number": task.number, "id": task.id, "scope": task.scope.key, "amount": amount}
            for task, amount in holders[:HOLDERS]
        ],
        "holders_total": len(holders),
    }


def _scope(scope: Scope, ready_in: dict[str, int]) -> dict[str, Any]:
    return {
        "key": scope.key,
        "parent": scope.parent.key if scope.parent is not None and scope.parent.key else None,
        "state": scope.state,
        "tasks": len(scope.tasks),
        "running": scope.running,
        "ready": ready_in.get(scope.key, 0),
        "slots": _gate(scope.slot_gate),
    }
