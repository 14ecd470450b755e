"""What must hold of a kernel's inside after every command."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from whywait.kernel.kernel import Kernel


def check_invariants(kernel: Kernel, now: int, *, rested: bool) -> None:
    """Check everything; `rested`: dispatch has just come to rest, so that nothing startable may be left."""
    check_places(kernel)
    check_slots(kernel)
    check_budget(kernel)
    check_queues(kernel)
    check_lanes(kernel)
    if rested:
        check_rest(kernel, now)


def living_tasks(kernel: Kernel) -> list[Any]:
    return [task for scope in kernel.scopes.values() for task in scope.tasks.values()]


def holders_in(kernel: Kernel, scope: Any) -> list[Any]:
    return [task for task in kernel.running.values() if scope in task.scope.chain]


def check_places(kernel: Kernel) -> None:
    """P6, T4: a living task is in its scope, and besides in its lane, among the holders, or in neither of the two."""
    living = living_tasks(kernel)
    assert [task.number for task in living if task.state == "DISPOSED"] == []
    assert sorted(task.number for task in living if task.holds_slot) == sorted(kernel.running)
    in_lanes = [task.number for lane in kernel.dispatcher.lanes() for task in lane]
    assert sorted(in_lanes) == sorted(task.number for task in living if task.state == "READY")
    for scope in kernel.scopes.values():
        assert list(scope.tasks) == sorted(scope.tasks)
        assert all(task.scope is scope for task in scope.tasks.values())
        assert scope.running == sum(task.holds_slot for task in scope.tasks.values())


def check_slots(kernel: Kernel) -> None:
    """S1, S2, S5: no limit is exceeded at any level, and each gate knows exactly what is free."""
    assert kernel.dispatcher.busy == len(kernel.running)
    for scope in kernel.scopes.values():
        if scope.limits.slots is not None:
            assert scope.slot_gate.free == scope.limits.slots - len(holders_in(kernel, scope))
            assert scope.slot_gate.free >= 0


def check_budget(kernel: Kernel) -> None:
    """B1, B2: free is the limit less what is held; a soft limit is exceeded by one task alone."""
    for name, gate in kernel.resources.items():
        held = [dict(task.demand).get(name, 0) for task in kernel.running.values()]
        assert gate.free == gate.limit - sum(held)
        assert gate.free >= 0 or (gate.soft and sum(amount > 0 for amount in held) == 1)


def check_queues(kernel: Kernel) -> None:
    """D1: a queue limit counts exactly the pending tasks inside."""
    pending = [task for task in living_tasks(kernel) if task.pending]
    for scope in kernel.scopes.values():
        if scope.limits.queue_limit is not None:
            assert scope.pending == sum(scope in task.scope.chain for task in pending)


def check_lanes(kernel: Kernel) -> None:
    """P6: lanes hold one priority, scope and demand each, in entry order; each is in a heap or on one bench."""
    for lane in kernel.dispatcher.lanes():
        tasks = list(lane)
        assert [task.entry for task in tasks] == sorted({task.entry for task in tasks})
        assert all(task.since <= later.since for task, later in pairwise(tasks))
        assert {(task.priority, task.scope, task.demand) for task in tasks} == {
            (lane.level.priority, lane.scope, lane.demand)
        }
        assert all(task.lane is lane for task in tasks)
        assert lane.scope.lanes[lane.level.priority, lane.demand] is lane
        heaped = [key for key, other in lane.level.heap if other is lane]
        benches = [
            bench
            for gate in {gate for gate, _ in lane.needs}
            for bench in gate.benches.values()
            if lane in bench.lanes()
        ]
        if lane.bench is None:
            assert benches == []
            assert heaped == [lane.queued]
            assert lane.queued <= lane.head_entry
        else:
            assert benches == [lane.bench]
            assert heaped == []


def check_rest(kernel: Kernel, now: int) -> None:
    """P2, B5: with a slot free nobody is left who may start, unless held back; parked lanes face a closed gate."""
    dispatcher = kernel.dispatcher
    nobody_runs = not kernel.running
    lanes = sorted(
        dispatcher.lanes(),
        key=lambda lane: (-dispatcher.order.effective(lane.level.priority, now - lane.head.since), lane.head.entry),
    )
    for lane in lanes:
        if lane.bench is not None:
            (need,) = [need for gate, need in lane.needs if gate is lane.bench.gate]
            assert lane.bench.gate.closed(need, nobody_runs), f"{lane.head} is parked on the open {lane.bench.gate}"
    if dispatcher.slots.free > 0:
        for lane in lanes:
            gate = dispatcher.closed_gate(lane)
            assert gate is not None, f"{lane.head} may start"
            if gate.is_budget and dispatcher.blocker is not None:
                assert dispatcher.blocker is lane
                return
