"""What must hold of a kernel after every command, as code: each invariant is a function with its sentence.

The tests call :func:`check` after each step. A violation is an AssertionError that says which
sentence does not hold and for what.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Final

from whywait.kernel.base import Base, no_slot_held
from whywait.kernel.devices import WHOLE
from whywait.kernel.gates import SHUT
from whywait.kernel.model import Lane, Scope, Task
from whywait.kernel.pool import Pool
from whywait.kernel.starting import closed_gate
from whywait.kernel.state import ScopeState, TaskState
from whywait.kernel.timers import HELD_AS


def check(k: Base, now: int, *, rested: bool) -> None:
    """Check every invariant; ``rested``: dispatch has just come to rest, so that nothing startable may be left."""
    for invariant in ALWAYS:
        invariant(k)
    if rested:
        nothing_startable_is_left(k, now)


def every_task_is_in_its_place(k: Base) -> None:
    """P6, T4: a living task is in its scope, and besides in its lane, among the holders, or in neither of the two."""
    living = k.living()
    _equal([], [task for task in living if task.state == TaskState.DISPOSED], "a living task is not DISPOSED")
    _equal(_numbers(task for task in living if task.active), sorted(k.running), "the active tasks are running")
    _equal(sum(not task.holds_slot for task in k.running.values()), k.slotless, "active tasks without slot are counted")
    in_lanes = _numbers(task for lane in k.lanes_in_use() for task in lane)
    ready = _numbers(task for task in living if task.state == TaskState.READY)
    _equal(ready, in_lanes, "the READY tasks are in lanes")
    for scope in k.scopes.values():
        _equal(sorted(scope.tasks), list(scope.tasks), f"tasks of {scope} are in submission order")
        _equal([], [task for task in scope.tasks.values() if task.scope is not scope], f"tasks of {scope} know it")


def what_lent_its_slot_blocks_or_wants_it_again(k: Base) -> None:
    """S7: a task without the slot that it takes blocks, wants the slot again, or was asked to end."""
    lenders = [task for task in k.running.values() if task.lends]
    _equal([], [task for task in lenders if not task.takes_slot], "only what takes a slot can lend it")
    wanting = [task for task in lenders if task.blocked_on is None and task.abort is None]
    _equal(_numbers(wanting), sorted(k.wanting), "what has lent its slot and goes on wants it again")


def no_limit_of_slots_is_exceeded(k: Base) -> None:
    """S1, S2, S5: no limit of slots is exceeded at any level, and each gate knows exactly what is free."""
    for scope in k.scopes.values():
        gate = scope.slot_gate
        if gate.limit is not None:
            _equal(gate.limit - len(_holders_in(k, scope)), gate.free, f"{gate} knows what is free")
            if scope.limits.slots == gate.limit:  # a limit that was lowered meanwhile may be exceeded for a while
                assert gate.free >= 0, f"{gate} has more holders than its limit"


def no_budget_is_exceeded(k: Base) -> None:
    """B1, B2: free is the limit less what is held; a soft limit is exceeded by one task alone."""
    for pool in _pools(k):
        for gate in pool.resources.values():
            held = [task.held(gate) for task in _served_by(k, pool)]
            assert gate.limit is not None, f"{gate} has a limit"
            _equal(gate.limit - sum(held), gate.free, f"{gate} knows what is free")


def no_unit_is_given_twice(k: Base) -> None:
    """N2, N3: no unit has more on it than its memory, none is shared that a task has whole, and each door is exact."""
    for pool, devices in [(each, devices) for each in _pools(k) for devices in each.devices.values()]:
        for unit in devices.units:
            held = {
                task.number: dict(task.demand).get(devices.memory or "", 0)
                for task in _served_by(k, pool)
                if unit.name in dict(task.units).get(devices.name, ())
            }
            _equal(sorted(held), sorted(unit.holders), f"{unit} knows which tasks are on it")
            shares = [share for share in held.values() if share]
            assert len(held) == 1 or len(shares) == len(held), f"{unit} is shared though a task has all of it"
            _equal(bool(held) and not shares, unit.is_whole, f"{unit} knows whether a task has all of it")
            _equal(sum(shares), unit.used, f"{unit} knows what is in use")
            assert unit.used <= unit.size or unit.is_lowered, f"{unit} has more on it than its memory"
        for form, door in devices.doors.items():
            there = [unit for unit in devices.units if unit.is_present and not unit.is_whole]
            empty = sum(not unit.holders for unit in there)
            most_free = sorted((unit.free for unit in there), reverse=True)
            room = empty if form == WHOLE else most_free[form - 1] if form <= len(most_free) else SHUT
            _equal(room, door.free, f"{door} knows what is free")


def queue_limits_count_what_is_pending(k: Base) -> None:
    """D1: a queue limit counts exactly the pending tasks inside."""
    pending = [task for task in k.living() if task.pending]
    for scope in k.scopes.values():
        if scope in scope.counted:
            inside = sum(scope in task.scope.chain for task in pending)
            _equal(inside, scope.pending, f"{scope} counts what is pending inside")


def every_lane_is_in_one_place(k: Base) -> None:
    """P6: lanes hold one priority, scope and demand each, in entry order; each is in a heap or on one bench."""
    for lane in k.lanes_in_use():
        tasks = list(lane)
        entries = [task.entry for task in tasks]
        _equal(sorted(set(entries)), entries, "a lane is in entry order")
        assert all(task.since <= later.since for task, later in pairwise(tasks)), "ready_since grows along a lane"
        assert all(task.lane is lane and task.scope is lane.scope for task in tasks), "tasks know their lane"
        assert lane.scope.lanes[lane.key] is lane, "a lane is found under its priority and demand"
        heaped = [key for key, other in lane.level.heap if other is lane]
        gates = {gate for gate, _ in lane.needs}
        parked_at = [gate for gate in gates for bench in gate.benches.values() if lane in bench.lanes()]
        if lane.parked_at is None:
            _equal([], parked_at, "an open lane is on no bench")
            _equal([lane.queued], heaped, "an open lane stands once in its level's heap")
            assert heaped[0] <= lane.head_entry(), "a key in the heap is never too large"
            assert lane.level.place >= 0, "a level with an open lane has a place among the levels"
        else:
            _equal([lane.parked_at], parked_at, "a parked lane is on one bench")
            _equal([], heaped, "a parked lane is not in the heap")


def lanes_know_whether_they_could_ever_fit(k: Base) -> None:
    """M13: each lane knows whether the budget, as it is now, could meet its demand."""
    for lane in k.lanes_in_use():
        _equal(any(gate.can_never_pass(need) for gate, need in lane.needs), not lane.feasible, f"{lane.head} could fit")


def a_lane_that_stands_alone_is_first(k: Base) -> None:
    """P2: a lane that is taken for the only open one is that, and no gate opens for another."""
    alone = k.levels.alone
    if alone is not None:
        open_lanes = [lane for lane in k.lanes_in_use() if lane.takes_slot and lane.parked_at is None]
        _equal([alone] if alone.front else [], open_lanes, "a lane that stands alone is the open one")
        assert not alone.level.opening, "no gate opens for a lane beside the one that stands alone"


def suspensions_are_counted(k: Base) -> None:
    """O2: it is known how many scopes are SUSPENDED, and their gates are shut."""
    suspended = [scope for scope in k.scopes.values() if scope.state == ScopeState.SUSPENDED]
    _equal(len(suspended), k.suspended, "suspended scopes are counted")
    shut = [scope for scope in k.scopes.values() if scope.state_gate.free < 0]
    _equal(suspended, shut, "the gates of suspended scopes are shut")


def the_ceiling_follows_the_holders(k: Base) -> None:
    """V2: it is known which priorities hold a slot, once there is more than one level."""
    if not k.counts_holders:
        assert k.levels.in_use <= 1, "holders are counted as soon as there are two levels"
        return
    holders = [0] * len(k.holders)
    for task in k.running.values():
        holders[task.priority] += task.holds_slot
    _equal(holders, k.holders, "slot holders are counted by priority")
    _equal(sum(1 << priority for priority, count in enumerate(holders) if count), k.holding, "holding priorities")
    _equal(k.holding.bit_length() - 1, k.highest, "the highest of them")


def levels_know_when_their_tasks_entered(k: Base) -> None:
    """V2: each level has the sum of what its starved total was when its READY tasks entered."""
    sums: dict[int, int] = {}
    for task in (task for lane in k.lanes_in_use() for task in lane):
        assert task.segment is not None, f"{task} entered in a segment"
        rank = task.lane.level.rank
        sums[rank] = sums.get(rank, 0) + task.segment.starved_at(task.since)
    for level in k.levels:
        _equal(sums.get(level.rank, 0), level.entered_ns, f"rank {level.rank} knows when its tasks entered")


def every_timer_has_its_target(k: Base) -> None:
    """T6, R2: a timer that is to come is the one that its target has, and what a target has is to come."""
    timers = {item[2] for heap in (k.timers.heap, k.expiries.heap) for item in heap if item[2].live}
    for timer in timers:
        assert timer.is_held, f"{timer.target} has the timer for its {timer.kind}"
    targets = (*k.living(), *(each for scope in k.scopes.values() for each in scope.periodics.values()))
    for target in targets:
        for name in HELD_AS.values():
            held = getattr(target, name, None)
            assert held is None or held in timers, f"the {name} of {target} is set"
    for scope in k.scopes.values():
        off = [each for each in scope.periodics.values() if each.enabled == (each.timer is None)]
        _equal([], off, f"the periodics of {scope} that are on tick, and no others")


def nothing_startable_is_left(k: Base, now: int) -> None:
    """P2, B5, S6, S7: no task is left that may start or go on.

    With all slots taken, or the rest held back, none that takes no slot.
    """

    def in_order(lane: Lane) -> tuple[int, int]:
        return k.levels.sort_key(now, lane.front[-1])

    lanes = sorted(k.lanes_in_use(), key=in_order)
    for lane in lanes:
        gate = lane.parked_at
        is_open = gate is not None and not gate.closed(lane.need(gate), no_slot_held(k))
        assert not is_open, f"{lane.head} is parked at the open {gate}"
        assert lane.takes_slot or gate is not None, f"{lane.head} takes no slot and is parked nowhere"
    for task in k.wanting.values():
        assert any(gate.closed(need, no_slot_held=False) for gate, need in task.lane.slots), f"{task} may go on"
    if k.blocker is not None and k.levels.ceiling.held:
        assert k.blocker.feasible, f"{k.blocker.head} holds back though it could never fit"
    if k.slots.free > 0:
        for lane in (lane for lane in lanes if lane.takes_slot):
            gate = closed_gate(k, lane)
            assert gate is not None, f"{lane.head} may start"
            if gate.is_budget and lane.feasible and k.blocker is not None:
                assert k.blocker is lane, f"{k.blocker.head} holds back though {lane.head} comes first"
                return


ALWAYS: Final = (
    every_task_is_in_its_place,
    what_lent_its_slot_blocks_or_wants_it_again,
    no_limit_of_slots_is_exceeded,
    no_budget_is_exceeded,
    no_unit_is_given_twice,
    queue_limits_count_what_is_pending,
    every_lane_is_in_one_place,
    lanes_know_whether_they_could_ever_fit,
    a_lane_that_stands_alone_is_first,
    suspensions_are_counted,
    the_ceiling_follows_the_holders,
    levels_know_when_their_tasks_entered,
    every_timer_has_its_target,
)


def _equal(expected: object, found: object, sentence: str) -> None:
    assert expected == found, f"{sentence}: expected {expected}, found {found}"


def _numbers(tasks: Iterable[Task]) -> list[int]:
    return sorted(task.number for task in tasks)


def _holders_in(k: Base, scope: Scope) -> list[Task]:
    return [task for task in k.running.values() if task.holds_slot and scope in task.scope.chain]


def _pools(k: Base) -> list[Pool]:
    return list({id(scope.pool): scope.pool for scope in k.scopes.values()}.values())


def _served_by(k: Base, pool: Pool) -> list[Task]:
    return [task for task in k.running.values() if task.scope.pool is pool]
