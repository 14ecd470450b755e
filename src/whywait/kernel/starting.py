"""Starting: which task may start next, and what those that may not are waiting for.

Dispatch goes through the lanes in order. A lane whose gates are open starts its head; a lane that finds a gate closed
is parked there and passed over, or, if only a budget gate stops it and ``backfill`` is "none", holds the rest back;
one that the budget could never meet is passed over in either mode (M13).
Lanes of tasks that take no slot (S6) go beside: no lack of slots ends their turn, they hold nothing back and are not
held back.
"""

from __future__ import annotations

from heapq import heappop, heappush
from operator import attrgetter
from typing import Final

from whywait.kernel import ending, lending
from whywait.kernel.base import Base, Decision, count_holder, no_slot_held, tell, tell_of
from whywait.kernel.events import Details, Kind, Started
from whywait.kernel.gates import Gate
from whywait.kernel.model import Lane, Level, Scope, Task
from whywait.kernel.state import Cause, Outcome, ScopeState, TaskState, Wait, scope_step
from whywait.kernel.timers import RUN_TIMEOUT
from whywait.kernel.waiting import (
    cancel_wait_timer,
    charge,
    forget_blocker,
    forget_entry,
    lane_emptied,
    next_epoch,
    off_bench,
    on_bench,
)

_RUNNING: Final = TaskState.RUNNING  # a global is found faster than an attribute of a class, before Python 3.12
_STARTED: Final = Kind.TASK_STARTED
_BY_ENTRY: Final = attrgetter("entry")


def dispatch(k: Base, now: int, decision: Decision | None = None) -> Decision:
    """Decide what starts now; return all that the owner has to carry out since the last time.

    First tasks start by order and gates, then those that have waited too long are dropped, then once more. It is added
    to ``decision``, if that is given.
    """
    if decision is None:
        decision = Decision()
    if k.wanting:
        lending.return_slots(k, now)
    _fill(k, now, decision)
    if k.expiries.heap:
        expiry = k.expiries.next_at()
        if expiry is not None and expiry <= now:
            _expire(k, now)
            _fill(k, now, decision)
    if k.counts_holders:
        ceiling = k.levels.ceiling
        top = k.highest
        if top != ceiling.top:
            rises = top > ceiling.top
            ceiling.change(now, top, ceiling.held)
            if rises:
                k.starvation.ceiling_rose(now)
    if k.changed:
        _tell_lanes(k, now)
    if k.requests or k.settled or k.skipped:
        hand_over(k, decision)
    return decision


def hand_over(k: Base, decision: Decision) -> None:
    """Put into a decision what is to be carried out besides starts."""
    if k.requests:
        decision.requests = [*decision.requests, *k.requests]
        k.requests = []
    if k.settled:
        decision.settled = [*decision.settled, *k.settled]
        k.settled = []
    if k.skipped:
        decision.skipped = [*decision.skipped, *k.skipped]
        k.skipped = []


def closed_gate(k: Base, lane: Lane) -> Gate | None:
    """Return the first closed gate of a lane, in the order in which gates are asked; its slots are not asked."""
    for gate, need in lane.needs:
        # The first half spares a call for a gate that has enough.
        if gate.free < need and gate.closed(need, no_slot_held(k)):
            return gate
    return None


def would_hold_back(k: Base, lane: Lane, gate: Gate) -> bool:
    """Return whether a lane that is stopped by a gate holds the rest back (B5); if not, it is passed over."""
    return not k.greedy and gate.is_budget and lane.takes_slot and lane.feasible


def _fill(k: Base, now: int, started: Decision) -> None:  # noqa: C901, PLR0912 - in one piece for speed
    """Start tasks in order until the slots are taken, or the rest is held back, and none goes beside any more."""
    slots, levels = k.slots, k.levels
    beside, counts_holders = levels.beside, k.counts_holders
    holds_back: Lane | None = None
    while True:
        if slots.free > 0 and holds_back is None:
            lane = levels.alone
            if lane is None:
                lane = levels.first(now, no_slot_held(k), levels.heap)
            elif not lane.front:
                lane = None
            if beside.levels:
                lane = levels.earlier(now, lane, levels.first(now, no_slot_held(k), beside))
        elif beside.levels:
            lane = levels.first(now, no_slot_held(k), beside)
        else:
            break
        if lane is None:
            break
        gate = closed_gate(k, lane) if lane.gated or k.suspended else None
        if gate is None:
            if lane.parked_at is not None or lane is k.blocker:
                leave_bench(k, now, lane)
            task: Task = lane.shift()
            charge(k, now, task, lane)
            if counts_holders:
                forget_entry(task, lane.level)
            task.state = _RUNNING  # from READY: it was in a lane
            task.since = now
            started.start(task)
            activate(k, now, task)
            if not lane.front:
                lane_emptied(k, now, lane)
        elif not would_hold_back(k, lane, gate):
            _park(k, now, lane, gate)
        else:
            if lane.parked_at is not None:
                leave_bench(k, now, lane)
            holds_back = lane
    if levels.opening and (slots.free <= 0 or holds_back is not None):
        _open_benches(k, now)
    if holds_back is not None:
        _hold_back(k, now, holds_back)
    elif not k.greedy and (k.blocker is not None or levels.ceiling.held):
        _let_pass(k, now)


def leave_bench(k: Base, now: int, lane: Lane) -> None:
    """Let a lane, whose gate has opened, stand among the open ones of its level, and hold nothing back."""
    if lane is k.blocker:
        forget_blocker(k, now)
    if lane.parked_at is not None:
        off_bench(lane, lane.parked_at)
        _open(k, now, lane)


def activate(k: Base, now: int, task: Task) -> None:
    """Take the slot and the budget of a task; record its start."""
    lane = task.lane
    for gate, need in lane.takes:
        gate.free -= need
    if k.counts_holders and lane.takes_slot:
        count_holder(k, lane.level.priority, 1)
    k.running[task.number] = task
    if not lane.plain:
        _take_more(k, lane, task)
    if not task.scope.activated:
        _first_activation(k, now, task.scope)
    if not task.plain:
        _begin_run(k, now, task)
    k.stats.count_wait(task.wait_cause, task.wait_ns, task.more_waits)
    cause, ns, more, starved_ns = task.wait_cause, task.wait_ns, task.more_waits, task.starved_ns
    if not lane.asks:  # it waits no more: nothing is added to its waits
        task.started_seq = tell(k, now, _STARTED, task, k.trigger, more, cause, ns, starved_ns)
    else:
        task.started_seq = tell(k, now, _STARTED, task, k.trigger, Started(task.waits or None, task.units, starved_ns))


def _take_more(k: Base, lane: Lane, task: Task) -> None:
    """Take the units of a task that asks for devices, and count one that takes no slot."""
    if lane.asks:
        task.units = tuple([(ask.devices.name, ask.devices.take(task, ask)) for ask in lane.asks])
    if not lane.takes_slot:
        k.slotless += 1


def _begin_run(k: Base, now: int, task: Task) -> None:
    """Let a task that starts wait no more where waits are counted or limited, and have its timeout run."""
    if task.scope.counted:
        ending.count_out(task)
    cancel_wait_timer(task, k.expiries)
    if task.periodic is not None:
        task.periodic.start(now, task)
    timeout_ns = task.policy.timeout_ns
    if timeout_ns is not None:
        task.run_timer = k.timers.add(now + timeout_ns, RUN_TIMEOUT, task)


def _first_activation(k: Base, now: int, scope: Scope) -> None:
    """First activation: ATTACHED to RUNNING, for the scope and its parents."""
    for each in scope.chain:
        if each.state is ScopeState.ATTACHED:
            each.state = scope_step(each.state, "first activation", ScopeState.RUNNING, each.key)
            tell_of(k, now, Kind.SCOPE_RUNNING, each, cause=k.trigger)
    scope.activated = True


# Lanes that may not start


def _park(k: Base, now: int, lane: Lane, gate: Gate) -> None:
    """Let a lane, which is the first of its level, wait at a closed gate."""
    level = lane.level
    if lane.parked_at is not None:
        off_bench(lane, lane.parked_at)
    else:
        heappop(level.heap)
        lane.queued = None
        k.levels.alone = None
    next_epoch(k, now, lane, gate)
    on_bench(lane, gate)


def _open(k: Base, now: int, lane: Lane) -> None:
    """Let a lane that waits at no gate any more stand among the open ones of its level."""
    next_epoch(k, now, lane, None)
    lane.queued = entry = lane.head_entry()
    heappush(lane.level.heap, (entry, lane))
    k.levels.offer(now, lane.level, lane)


def _open_benches(k: Base, now: int) -> None:
    """Dispatch stops before it got to lanes whose gate has opened: they wait like any it did not get to."""
    opening = k.levels.opening
    for level in sorted(opening, key=_descending):
        for gate in level.opening:
            bench = gate.benches[level.rank]
            bench.opening = False
            for lane in bench.take(gate.free):
                lane.parked_at = None
                _open(k, now, lane)
            if not bench:
                del gate.benches[level.rank]
        level.opening.clear()
    opening.clear()


def _hold_back(k: Base, now: int, lane: Lane) -> None:
    """backfill="none": let all lanes behind ``lane`` that take slots wait for it."""
    gate = closed_gate(k, lane)
    assert gate is not None, "what went beside meanwhile has given nothing back"
    if k.blocker is not lane:
        forget_blocker(k, now)
    if lane.epoch.gate is not gate:
        next_epoch(k, now, lane, gate)
    k.blocker = lane
    k.changed[lane] = None
    ceiling = k.levels.ceiling
    if not ceiling.held:
        ceiling.change(now, ceiling.top, True)


def _let_pass(k: Base, now: int) -> None:
    """Dispatch has come to rest and nothing is held back; the last blocker keeps its cause while its gate is closed."""
    lane = k.blocker
    if lane is not None:
        gate = lane.epoch.gate
        is_open = gate is None or not gate.closed(lane.need(gate), no_slot_held(k))
        if not lane.front or lane.parked_at is not None or is_open:
            forget_blocker(k, now)
    ceiling = k.levels.ceiling
    if ceiling.held:
        ceiling.change(now, ceiling.top, False)
        if lane is not None:
            k.changed[lane] = None


def _tell_lanes(k: Base, now: int) -> None:
    """Tell what lanes wait for that dispatch has found behind another gate than before, or behind none."""
    for lane in k.changed:
        gate = lane.epoch.gate
        holds_back = k.blocker is lane and k.levels.ceiling.held
        if (gate, holds_back) == lane.told_cause:
            continue
        lane.told_cause = (gate, holds_back)
        cause = Wait.SLOT if gate is None else gate.name
        details: Details = (*lane.details[1:], ("cause", cause), ("tasks", len(lane)))
        if gate is not None and gate.scope_key is not None:
            details = (*details, ("of", gate.scope_key))
        if holds_back:
            details = (*details, ("holds_back", True))
        tell_of(k, now, Kind.LANE_WAITS, lane.scope, None, k.trigger, details)
    k.changed.clear()


def _expire(k: Base, now: int) -> None:
    """Drop the tasks that are still READY at the end of a limited wait, in entry order."""
    due = []
    while (timer := k.expiries.pop_due(now)) is not None:
        timer.target.wait_timer = None
        due.append(timer.target)
    due.sort(key=_BY_ENTRY)
    for task in due:
        if task.state is TaskState.READY:
            ending.end_with_dependents(k, now, task, Outcome.REJECTED, Cause.MAX_WAIT)


def _descending(level: Level) -> int:
    return -level.rank
