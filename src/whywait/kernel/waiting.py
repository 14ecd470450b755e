"""Waiting: into READY and out of it without a start, and what each wait is charged to."""

from __future__ import annotations

from heapq import heappush
from operator import attrgetter
from typing import Final

from whywait.kernel.accounts import Epoch, Waited, ready_wait
from whywait.kernel.base import Base, count_holder, no_slot_held, tell
from whywait.kernel.benches import Bench
from whywait.kernel.devices import asks_of
from whywait.kernel.events import Kind
from whywait.kernel.gates import Gate
from whywait.kernel.limits import HIGHEST, Policy
from whywait.kernel.model import Lane, LaneKey, Level, Scope, Task, add_wait, add_waits
from whywait.kernel.state import TaskState, Wait
from whywait.kernel.timers import MAX_WAIT, Timers

_SWEEP_EMPTY_LANES: Final = 256  # more than there are priorities: those of one scope are not made again and again
# Globals are found faster than attributes of a class, before Python 3.12.
_QUEUED: Final = TaskState.QUEUED
_READY: Final = TaskState.READY
_PAUSED: Final = TaskState.PAUSED
_DEPENDENCY: Final = Wait.DEPENDENCY
_TURNED_READY: Final = Kind.TASK_READY
_BY_ID: Final = attrgetter("id", "number")
_BY_NUMBER: Final = attrgetter("number")


# Into the kernel, and into READY


def take_in(k: Base, now: int, task: Task, lane: Lane, policy: Policy | None) -> None:
    """Give a task its number and put it into its scope, QUEUED; the policy is that of the scope if none is given."""
    scope, stats = lane.scope, k.stats
    if policy is None:
        policy = scope.policy
    stats.numbered = number = stats.numbered + 1
    task.number = number
    task.scope = scope
    task.lane = lane
    task.policy = policy
    task.since = now
    task.plain = policy.untimed and lane.plain
    task.name = task.after = task.successors = task.outcome = None
    begin(task)
    scope.tasks[number] = task
    if scope.counted:
        count_in(task)


def begin(task: Task) -> None:
    """Have a task, which was never READY in this attempt, begin with no wait and no end."""
    task.state = _QUEUED
    task.entry = task.unmet = task.started_seq = task.starved_ns = task.wait_ns = 0
    task.segment = task.epoch = task.wait_cause = task.more_waits = task.cause = None


def count_in(task: Task) -> None:
    """Count a new task where a queue limit counts, and list it where it may be displaced."""
    for scope in task.scope.counted:
        scope.pending += 1
        stack = scope.by_priority.setdefault(task.priority, [])
        stack.append(task)
        if len(stack) > 2 * scope.pending + 64:
            scope.by_priority[task.priority] = [other for other in stack if other.pending]


def become_ready(k: Base, now: int, task: Task) -> None:  # noqa: C901 - in one piece for speed
    """Put a task at the back of its lane: nothing keeps it from READY any more."""
    lane = task.lane
    if lane.forgotten:
        lane = task.lane = lane_of(k, now, lane.scope, lane.key)
    level, levels = lane.level, k.levels
    if level.version != levels.ceiling.version:
        levels.update(level)
    # Of a task that is READY at once it is the number: one object less for each pending task.
    number = task.number
    entry = number if number > k.entries else k.entries + 1
    k.entries = entry
    task.state = _READY
    task.since = now
    task.entry = entry
    task.segment = segment = level.segment
    if k.counts_holders and (segment.higher or segment.starved):
        level.entered_ns += segment.starved_at(now)
    task.epoch = lane.epoch
    if lane.append(task):
        k.empty_lanes -= 1
        if lane.queued is None:
            lane.queued = entry
            heappush(level.heap, (entry, lane))
            levels.alone = None
        if level.place < 0:
            levels.offer(now, level, lane)
    if not task.plain:
        if task.policy.max_wait_ns is not None:
            limit_wait(k, now, task)
        if task.starved_before:
            k.starvation.task_returned(now, task)
    if not lane.watched:
        k.starvation.lane_entered(now, lane, entry)
    if task.starved_ns:
        k.starvation.task_returned(now, task)


def wake(k: Base, now: int, tasks: list[Task], cause: int) -> None:
    """Turn QUEUED tasks READY that nothing keeps any more, in the order of their submission or, if asked for, ids."""
    if len(tasks) > 1:
        tasks.sort(key=_BY_ID if k.order.ties == "id" else _BY_NUMBER)
    for task in tasks:
        if task.state is _QUEUED:  # a paused one follows when it is resumed
            charge_queued(now, task)
            leave_queue(task)
            become_ready(k, now, task)
            k.trigger = tell(k, now, _TURNED_READY, task, cause)


def leave_queue(task: Task) -> None:
    """Forget what has kept a task QUEUED."""
    task.after = None
    if not task.plain:
        if task.after_ended is not None:
            task.after_ended = None
        if task.held_by is not None:
            task.held_by = None


def limit_wait(k: Base, now: int, task: Task) -> None:
    """Set the end of the limited wait of a task that becomes READY."""
    max_wait_ns = task.policy.max_wait_ns
    assert max_wait_ns is not None, "the caller has looked"
    task.wait_timer = k.expiries.add(now + max_wait_ns, MAX_WAIT, task)
    task.plain = False


# Out of waiting, without a start


def stop_waiting(k: Base, now: int, task: Task) -> None:
    """Take a pending task out of wherever it waits and charge the wait."""
    if task.state is _READY:
        leave(k, now, task)
        cancel_wait_timer(task, k.expiries)
    elif task.state is _PAUSED:
        add_wait(task, Wait.PAUSED, now - task.since)
        cancel_wait_timer(task, k.timers)
    else:
        charge_queued(now, task)
        cancel_wait_timer(task, k.timers)


def leave(k: Base, now: int, task: Task, lane_is_cleared: bool = False) -> None:
    """Take a READY task out of its lane without starting it; ``lane_is_cleared``: the caller will empty the lane."""
    lane = task.lane
    charge(k, now, task, lane)
    if k.counts_holders:
        forget_entry(task, lane.level)
    if lane_is_cleared:
        return
    gate = lane.parked_at
    if lane.remove(task) and gate is not None:
        off_bench(lane, gate)
        if lane.front:
            on_bench(lane, gate)
            k.levels.opened(now, gate, no_slot_held(k))  # a new bench has missed that the gate opened
        else:
            reset_epoch(k, now, lane)
    if not lane.front:
        lane_emptied(k, now, lane)


def clear(k: Base, now: int, lane: Lane) -> None:
    """Take all tasks out of a lane at once; their waits are charged already."""
    if lane.front:
        if lane.parked_at is not None:
            off_bench(lane, lane.parked_at)
            reset_epoch(k, now, lane)
        lane.clear()
        lane_emptied(k, now, lane)


def cancel_wait_timer(task: Task, timers: Timers) -> None:
    """Call off the end of a limited wait, or of the backoff, of a task."""
    if task.wait_timer is not None:
        timers.cancel(task.wait_timer)
        task.wait_timer = None


# What a wait is charged to


def charge(k: Base, now: int, task: Task, lane: Lane) -> None:
    """Charge the stay in READY that ends now."""
    waited = now - task.since
    if not waited:
        return
    level, levels = lane.level, k.levels
    if level.version != levels.ceiling.version:
        levels.update(level)
    segment = level.segment
    epoch = lane.epoch
    if task.segment is segment and task.epoch is epoch:  # nothing has changed since it entered: one cause all the time
        add_wait(task, segment.mode if epoch.gate is None else epoch.gate.name, waited)
        if segment.higher:
            k.starvation.note(task, task.starved_ns + waited)
    else:
        entered = task.segment
        assert entered is not None, "a READY task entered in a segment"
        waits = ready_wait(task.since, task.epoch, entered, now, epoch, segment)
        starved = segment.starved_at(now) - entered.starved_at(task.since)
        add_waits(task, waits)
        if starved:
            k.starvation.note(task, task.starved_ns + starved)
    if waited >= levels.step_ns:
        k.stats.promotions += k.order.promotions(level.priority, waited)


def forget_entry(task: Task, level: Level) -> None:
    """Let a level count no more when a task entered that leaves READY."""
    segment = task.segment
    if segment is not None and (segment.starved or segment.higher):
        level.entered_ns -= segment.starved_at(task.since)


def charge_queued(now: int, task: Task) -> None:
    """Charge the stay in QUEUED that ends now."""
    if now != task.since:
        add_wait(task, _DEPENDENCY if task.plain else task.held_by or _DEPENDENCY, now - task.since)


def ready_wait_of(k: Base, now: int, task: Task) -> dict[str, int]:
    """Return how the present stay of a task in READY divides by cause."""
    lane, epoch, segment = task.lane, task.epoch, task.segment
    assert epoch is not None, "a READY task entered in an epoch"
    assert segment is not None, "a READY task entered in a segment"
    if now == task.since:
        return {}
    k.levels.update(lane.level)
    return ready_wait(task.since, epoch, segment, now, lane.epoch, lane.level.segment).by_cause()


def starved_ns(k: Base, now: int, task: Task) -> int:
    """Return for how long this attempt has been READY while a higher priority held a slot."""
    segment = task.segment
    if task.state is not _READY or segment is None:
        return task.starved_ns
    level = task.lane.level
    k.levels.update(level)
    return task.starved_ns + level.segment.starved_at(now) - segment.starved_at(task.since)


def waits_for(k: Base, task: Task) -> str | None:
    """Return the wait cause that is charged to a task now; None if it does not wait."""
    if task.state is _READY:
        return lane_waits_for(k, task.lane)
    if not task.pending:
        return None
    return Wait.PAUSED if task.state is _PAUSED else task.held_by or Wait.DEPENDENCY


def lane_waits_for(k: Base, lane: Lane) -> str:
    """Return the wait cause that is charged to the tasks of a lane now: what dispatch last found."""
    gate = lane.epoch.gate
    if gate is not None:
        return gate.name
    k.levels.update(lane.level)
    return lane.level.segment.mode


def is_starved(k: Base, lane: Lane) -> bool:
    """Return whether the tasks of a lane are starved now: a task of higher base priority holds a slot."""
    k.levels.update(lane.level)
    return lane.level.segment.higher


# Lanes and benches


def lane_of(k: Base, now: int, scope: Scope, key: LaneKey) -> Lane:
    """Return the lane of a scope for a rank and a demand; it is made if there is none."""
    lane = scope.lanes.get(key)
    if lane is None:
        rank, demand = key
        level = k.levels.level_of(rank)
        if k.levels.in_use > 1 and not k.counts_holders:
            count_holders(k, now)
        k.levels.update(level)
        resources, devices = scope.pool.resources, scope.pool.devices
        of_scope = scope.gates if level.takes_slot else scope.state_gates
        needs = of_scope + tuple([(resources[name], amount) for name, amount in demand if name in resources])
        asks = asks_of(devices.values(), demand) if devices else ()
        lane = scope.lanes[key] = Lane(scope, level, demand, needs, asks, k.slots, now)
        k.lanes.append(lane)
        k.empty_lanes += 1
    return lane


def count_holders(k: Base, now: int) -> None:
    """Count slot holders by priority from now on; as long as there is one level, no task can be starved."""
    k.counts_holders = True
    k.holders = [0] * (HIGHEST + 1)
    for task in k.running.values():
        if task.holds_slot:
            count_holder(k, task.priority, 1)
    ceiling = k.levels.ceiling
    ceiling.change(now, k.highest, ceiling.held)


def lane_emptied(k: Base, now: int, lane: Lane) -> None:
    """Note that a lane has no task left; forget empty lanes once they are the majority."""
    if lane is k.blocker:
        forget_blocker(k, now)
    k.empty_lanes += 1
    if k.empty_lanes > _SWEEP_EMPTY_LANES and k.empty_lanes * 2 > len(k.lanes):
        kept: list[Lane] = []
        levels: dict[Level, None] = {}
        for each in k.lanes:
            if each.front:
                kept.append(each)
            else:
                each.forgotten = True
                each.scope.lanes.pop(each.key, None)
                levels[each.level] = None
        k.lanes = kept
        k.empty_lanes = 0
        k.starvation.lanes_forgotten(levels)


def on_bench(lane: Lane, gate: Gate) -> None:
    """Let a lane wait at a gate."""
    rank = lane.level.rank
    bench: Bench | None = gate.benches.get(rank)
    if bench is None:
        bench = gate.benches[rank] = Bench()
    lane.bench_key = bench.add(lane, lane.need(gate), lane.head_entry())
    lane.parked_at = gate


def off_bench(lane: Lane, gate: Gate) -> None:
    """Let a lane wait at no gate any more; what it is charged to is the caller's business."""
    level = lane.level
    bench: Bench = gate.benches[level.rank]
    bench.remove(lane.bench_key)
    lane.parked_at = None
    if not bench:
        del gate.benches[level.rank]
        if bench.opening:
            level.opening.remove(gate)


def next_epoch(k: Base, now: int, lane: Lane, gate: Gate | None) -> None:
    """Charge the tasks of a lane to another gate, or to what its level waits for, from now on."""
    k.changed[lane] = None
    k.levels.update(lane.level)
    segment = lane.level.segment
    lane.epoch = Epoch(now, gate, segment, lane.epoch.totals(now, segment))


def reset_epoch(k: Base, now: int, lane: Lane) -> None:
    """Start the account of an empty lane anew."""
    k.changed[lane] = None
    k.levels.update(lane.level)
    lane.epoch = Epoch(now, None, lane.level.segment, Waited(0, 0, 0))


def forget_blocker(k: Base, now: int) -> None:
    """Let no lane be the one that holds the others back."""
    lane, k.blocker = k.blocker, None
    if lane is not None and lane.parked_at is None:
        next_epoch(k, now, lane, None)
