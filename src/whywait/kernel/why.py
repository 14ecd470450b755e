"""Why a task waits (or waited): structured reasons, read from the gates that decide. No prose here.

``Kernel.why`` works for any task in any state. A reason is a value of the closed set ``ReasonKind``; the primary one is
what dispatch last found, which is also what the accounts charge (V7). Whatever could be long is bounded, so that an
answer never takes long, however many tasks there are; where something is left out, the answer says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import nsmallest
from itertools import chain, islice
from typing import Any, Final

from whywait.kernel import graph
from whywait.kernel.ahead import ahead_of
from whywait.kernel.base import Base, no_slot_held
from whywait.kernel.devices import WHOLE, Ask, Door, Holding, Unit
from whywait.kernel.gates import Gate
from whywait.kernel.limits import MEASURED, Demand
from whywait.kernel.model import Lane, Task
from whywait.kernel.reasons import (
    Ahead,
    Blocked,
    Blocking,
    Condition,
    ConditionKind,
    Holder,
    Reason,
    ReasonKind,
    UnitStanding,
    Why,
)
from whywait.kernel.state import TaskState, Wait
from whywait.kernel.waiting import ready_wait_of, starved_ns, waits_for

NAMED_AHEAD: Final = 10
_NAMED: Final = 10  # dependents, tasks that wait for what a task holds, holders of higher priority
_CHAIN: Final = 10  # steps of a chain of dependencies that are given besides the last
_LONGEST_CHAIN: Final = 1000  # steps that are followed at all
_MOST_TASKS: Final = 100  # unmet dependencies that are given
_MOST_HOLDERS: Final = 1000  # slot holders that are looked at
_MOST_LANES: Final = 1000  # lanes that are looked at
_MOST_UNITS: Final = 100  # units of a device that are given


def explain(k: Base, now: int, task: Task) -> Why:
    """Return why a task is not running, or what it does, or how its wait divided, over all its attempts."""
    breakdown: dict[str, int] = {}
    for attempt in task.earlier:
        _add(breakdown, attempt.waits)
    _add(breakdown, task.waits)
    facts: dict[str, Any] = {}
    if task.state == TaskState.READY:
        facts = _ready(k, now, task)
        _add(breakdown, ready_wait_of(k, now, task))
    elif task.pending:
        facts = _not_ready(k, now, task)
        if now != task.since:
            _add(breakdown, {facts["primary"]: now - task.since})
    elif task.active:
        facts = _running(k, now, task)
    awaiting = [other for other in _successors(task) if other.outcome is None]
    return Why(
        id=task.id,
        function=task.function,
        scope=task.scope.key,
        number=task.number,
        state=task.state,
        paused_from=task.paused_from,
        stopped=task.is_stopped,
        pause_wished=task.pause_wished,
        priority=task.priority,
        demand=task.demand,
        slot=task.takes_slot,
        now_ns=now,
        outcome=task.outcome,
        cause=task.cause,
        root=task.root,
        attempt=task.attempt,
        starved_ns=task.starved_before + starved_ns(k, now, task),
        awaited_by=len(awaiting),
        awaiting=tuple(other.label for other in awaiting[:_NAMED]),
        breakdown=breakdown,
        devices=task.units,
        waited_ns=sum(breakdown.values()),
        **facts,
    )


def _add(breakdown: dict[str, int], more: dict[str, int]) -> None:
    for cause, ns in more.items():
        breakdown[cause] = breakdown.get(cause, 0) + ns


def _ready(k: Base, now: int, task: Task) -> dict[str, Any]:
    lane = task.lane
    k.levels.update(lane.level)
    waited = now - task.since
    step = k.order.next_step(task.priority, waited)
    starved = lane.level.segment.higher
    reasons = _closed_gates(k, now, lane)
    ahead, at_least = _ahead(k, now, task)
    return {
        "starved": starved,
        "starved_by": _starved_by(k, now, task) if starved else (),
        "primary": waits_for(k, task),
        "lane": (task.priority, task.scope.key, task.demand),
        "position": lane.before(task.entry),
        "effective_priority": k.order.effective(task.priority, waited),
        "lifted_in_ns": None if step is None else step - waited,
        "reasons": reasons,
        "conditions": _conditions(reasons, ahead),
        "ahead": ahead,
        "ahead_at_least": at_least,
    }


def _not_ready(k: Base, now: int, task: Task) -> dict[str, Any]:
    reasons = []
    if task.state == TaskState.PAUSED:
        reasons.append(Reason(ReasonKind.PAUSED, Wait.PAUSED, since_ns=task.since))
    if task.held_by == Wait.BACKOFF and task.wait_timer is not None:
        reasons.append(Reason(ReasonKind.BACKOFF, Wait.BACKOFF, until_ns=task.wait_timer.at))
    elif task.held_by == Wait.OVERLAP and task.periodic is not None:
        others = [other for other in task.scope.tasks.values() if _other_iteration(other, task)]
        tasks = tuple(_blocking(k, now, other, end_suffices=True) for other in others[:_MOST_TASKS])
        reasons.append(Reason(ReasonKind.OVERLAP, Wait.OVERLAP, need=len(others), tasks=tasks))
    elif unmet := graph.unmet_dependencies(task):
        ended = {other.number for other in task.after_ended or ()}
        needed = {other.number for other in task.after or ()}
        tasks = tuple(
            _followed(k, now, other, end_suffices=other.number in ended and other.number not in needed)
            for other in unmet[:_MOST_TASKS]
        )
        never = any(_is_never(each) for each in tasks)
        reasons.append(Reason(ReasonKind.DEPENDENCY, Wait.DEPENDENCY, need=len(unmet), tasks=tasks, never=never))
    return {
        "primary": waits_for(k, task) or Wait.DEPENDENCY,
        "reasons": tuple(reasons),
        "conditions": _conditions(tuple(reasons), (), task),
    }


def _running(k: Base, now: int, task: Task) -> dict[str, Any]:
    on = _blocked_on(task)
    wants = task.number in k.wanting
    closed = [gate for gate, need in task.lane.slots if wants and gate.closed(need, no_slot_held=False)]
    return {
        "lends": task.lends,
        "wants_slot": wants,
        "reasons": tuple(_gate_reason(k, now, gate, 1) for gate in closed),
        "blocked_on": None if on is None else _followed(k, now, on, end_suffices=True),
        "running_ns": now - task.since,
        "parked_ns": None if task.parked_since is None else now - task.parked_since,
        "ending_ns": None if task.abort_since is None else now - task.abort_since,
        "ending_cause": None if task.abort is None else task.abort[1],
        "holds": _held(task),
        "blocks": tuple(_blocks(k, task)),
    }


def _held(task: Task) -> Demand:
    """Return what the budget counts for a task: what it asked for, or of memory what it uses if that is more."""
    if not task.overdraft:
        return task.demand
    asked = dict(task.demand)
    return tuple({**asked, MEASURED: asked.get(MEASURED, 0) + task.overdraft}.items())


# Gates and their holders


def _closed_gates(k: Base, now: int, lane: Lane) -> tuple[Reason, ...]:
    """Return every closed gate: the budget's and the scopes' in the order in which they are asked, then slots."""
    none_held = no_slot_held(k)
    reasons = [
        _gate_reason(k, now, gate, need)
        for gate, need in lane.needs
        if gate.kind != ReasonKind.DEVICE and gate.closed(need, none_held)
    ]
    reasons += [_device_reason(now, ask) for ask in lane.asks if ask.door.closed(ask.need, none_held)]
    if lane.takes_slot and k.slots.closed(1, none_held):
        reasons.append(_gate_reason(k, now, k.slots, 1))
    blocker = k.blocker if lane.takes_slot and k.levels.ceiling.held else None
    if blocker is not None and blocker is not lane and blocker.head is not None:
        tasks = (_blocking(k, now, blocker.head),)
        reasons.append(Reason(ReasonKind.HELD_BACK, Wait.HELD_BACK, tasks=tasks, never=tasks[0].never))
    return tuple(reasons) or (Reason(ReasonKind.DISPATCH, Wait.SLOT),)


def _gate_reason(k: Base, now: int, gate: Gate, need: int) -> Reason:
    holders = tuple(_holders(k, now, gate))
    others = 0
    if gate.limit is not None and gate.kind != ReasonKind.SCOPE_STATE:
        others = gate.limit - gate.free - sum(holder.amount for holder in holders)
    return Reason(
        gate.kind,
        gate.name,
        scope=gate.scope_key,
        need=need,
        free=gate.free,
        limit=gate.limit,
        soft=gate.soft,
        never=gate.can_never_pass(need),
        holders=holders,
        held_by_others=others,
    )


def _device_reason(now: int, ask: Ask) -> Reason:
    devices, door = ask.devices, ask.door
    units = tuple(_standing(now, unit) for unit in islice(devices.units, _MOST_UNITS))
    return Reason(
        door.kind,
        door.name,
        scope=door.scope_key,
        need=ask.units,
        free=devices.fitting(ask),
        limit=devices.most(WHOLE),
        never=door.can_never_pass(ask.need),
        share=ask.share,
        units=units,
        units_left_out=len(devices.units) - len(units),
    )


def _standing(now: int, unit: Unit) -> UnitStanding:
    holders = tuple(_on_unit(now, unit, _NAMED))
    return UnitStanding(unit.name, unit.size, unit.free, unit.is_whole, unit.is_present, holders, len(unit.holders))


def _on_unit(now: int, unit: Unit, most: int | None = None) -> Iterator[Holder]:
    for task, amount in islice(unit.holders.values(), most):
        yield _holder(now, task, amount)


def _holder(now: int, task: Holding, amount: int, asked: int | None = None) -> Holder:
    on = _blocked_on(task)
    return Holder(
        task.id,
        task.scope.key,
        task.number,
        amount,
        task.state,
        now - task.since,
        None if on is None else on.label,
        None if on is None else on.number,
        task.function,
        asked,
        task.is_stopped,
    )


def _blocked_on(task: Holding) -> Task | None:
    """Return the task for whose end the body of another blocks; None: it does not, or that end has come."""
    on: Task | None = task.blocked_on
    return None if on is None or on.outcome is not None else on


def _holders(k: Base, now: int, gate: Gate) -> Iterator[Holder]:
    if isinstance(gate, Door):
        on_units = (holder for unit in gate.devices.units for holder in _on_unit(now, unit))
        yield from {holder.number: holder for holder in on_units}.values()
        return
    for task in islice(k.running.values(), _MOST_HOLDERS):
        amount = task.held(gate)
        if amount:
            asked = task.takes(gate)
            yield _holder(now, task, amount, asked if asked < amount else None)


def _starved_by(k: Base, now: int, task: Task) -> tuple[Holder, ...]:
    running = islice(k.running.values(), _MOST_HOLDERS)
    higher = (other for other in running if other.holds_slot and other.priority > task.priority)
    return tuple(_holder(now, other, 1) for other in islice(higher, _NAMED))


def _blocks(k: Base, task: Task) -> Iterator[Blocked]:
    """Yield the tasks that wait for what a slot holder holds."""
    lane = task.lane
    for gate, need in lane.needs:
        gates = gate.devices.doors.values() if isinstance(gate, Door) else (gate,)
        benches = [bench for each in gates for bench in each.benches.values()]
        if need and benches and not (task.lends and gate.is_slots):
            yield _blocked(gate, chain.from_iterable(bench.lanes_in_order() for bench in benches))
    if task.holds_slot and k.slots.free <= 0:
        waiting = (each for level in k.levels if level.takes_slot for _, each in level.heap if each.front)
        blocked = _blocked(k.slots, waiting)
        if blocked.tasks:
            yield blocked


def _blocked(gate: Gate, lanes: Iterable[Lane]) -> Blocked:
    looked_at = list(islice(lanes, _MOST_LANES))
    names = (task.label for lane in looked_at for task in islice(lane, _NAMED))
    count = sum(map(len, looked_at))
    return Blocked(gate.name, gate.scope_key, count, tuple(islice(names, _NAMED)), len(looked_at) == _MOST_LANES)


# What comes first


def _ahead(k: Base, now: int, task: Task) -> tuple[tuple[Ahead, ...], bool]:
    """Return, level by level, how many READY tasks are ahead of this one (see ``ahead.py``), with the first ten named.

    Whether a task comes first in the order depends on its entry and on when it entered, and both grow along a lane. So
    two moments for each level decide: what has waited since the first comes first, and what has waited since the
    second does if it entered before.
    """
    order = k.order
    mine = order.effective(task.priority, now - task.since)
    since: dict[int, tuple[int, int]] = {}

    def order_key(other: Any) -> tuple[int, int]:
        return k.levels.sort_key(now, other)

    rows: list[tuple[Lane, int]] = []
    looked_at = 0
    for lane in k.lanes_in_use():
        if looked_at == _MOST_LANES:
            break
        looked_at += 1
        priority = lane.level.priority
        moments = since.get(priority)
        if moments is None:
            above, level_with = order.waited_for(priority, mine + 1), order.waited_for(priority, mine)
            moments = since[priority] = (
                -1 if above is None else now - above,
                -1 if level_with is None else now - level_with,
            )
        ahead, level = moments
        head = lane.head
        if head is not None and (head.since <= ahead or (head.since <= level and head.entry < task.entry)):
            rows.append((lane, lane.count_ahead(ahead, level, task.entry)))
    rows = ahead_of(k, task.lane, rows)
    counts: dict[int, int] = {}
    for lane, count in rows:
        counts[lane.level.priority] = counts.get(lane.level.priority, 0) + count
    # The ten that come first are among the first ten of the ten lanes whose heads come first.
    best_lanes = nsmallest(NAMED_AHEAD, rows, key=lambda row: order_key(row[0].head))
    candidates = [other for lane, count in best_lanes for other in islice(lane, min(count, NAMED_AHEAD))]
    named = nsmallest(NAMED_AHEAD, candidates, key=order_key)
    levels = tuple(
        Ahead(priority, counts[priority], tuple(other.label for other in named if other.priority == priority))
        for priority in sorted(counts, reverse=True)
    )
    return levels, looked_at == _MOST_LANES


# Other tasks


def _followed(k: Base, now: int, task: Task, *, end_suffices: bool) -> Blocking:
    """Return where a dependency stands, followed down to the one that everything waits for in the end."""
    steps = list(islice(graph.down_from(task), _LONGEST_CHAIN))
    told = steps if len(steps) <= _CHAIN + 1 else [*steps[:_CHAIN], steps[-1]]
    first = _blocking(k, now, task, end_suffices=end_suffices)
    links = tuple(_blocking(k, now, step) for step in told)
    return first._replace(chain=links, left_out=len(steps) - len(told))


def _blocking(k: Base, now: int, task: Task, *, end_suffices: bool = False) -> Blocking:
    held_by: tuple[str, ...] = ()
    never = task.abort is not None and not end_suffices
    lane = task.lane
    if task.state == TaskState.READY:
        gate = lane.epoch.gate or k.slots
        held_by = tuple(holder.label for holder in islice(_holders(k, now, gate), _NAMED))
        never = any(each.can_never_pass(need) for each, need in lane.needs)
    return Blocking(
        task.id,
        task.scope.key,
        task.number,
        task.state,
        now - task.since if task.active else None,
        waits_for(k, task),
        held_by,
        end_suffices,
        never,
        function=task.function,
    )


def _is_never(dependency: Blocking) -> bool:
    return any(link.never for link in (dependency, *dependency.chain))


def _other_iteration(other: Task, task: Task) -> bool:
    return other.periodic is task.periodic and other.active


def _successors(task: Task) -> Iterator[Task]:
    return chain(task.successors or (), task.ended_successors or ())


# What has to happen


def _conditions(
    reasons: tuple[Reason, ...], ahead: tuple[Ahead, ...], task: Task | None = None
) -> tuple[Condition, ...]:
    conditions = [condition for reason in reasons for condition in _conditions_of(reason, task)]
    if ahead:
        conditions.append(Condition(ConditionKind.TURN, amount=sum(level.tasks for level in ahead)))
    return tuple(conditions)


def _conditions_of(reason: Reason, task: Task | None) -> Iterator[Condition]:
    kind = reason.kind
    if kind in (ReasonKind.SLOT, ReasonKind.SCOPE_SLOTS, ReasonKind.RESOURCE):
        yield _gate_condition(reason)
    elif kind == ReasonKind.DEVICE:
        what = ConditionKind.RAISE if reason.never else ConditionKind.UNITS
        yield Condition(what, reason.name, amount=reason.need, share=reason.share)
    elif kind == ReasonKind.SCOPE_STATE:
        yield Condition(ConditionKind.RESUME_SCOPE, scope=reason.scope)
    elif kind == ReasonKind.PAUSED:
        assert task is not None, "only a pending task is paused"
        yield Condition(ConditionKind.RESUME_TASK, task=task.label, number=task.number)
    elif kind == ReasonKind.BACKOFF:
        yield Condition(ConditionKind.TIME, until_ns=reason.until_ns)
    elif kind == ReasonKind.DISPATCH:
        yield Condition(ConditionKind.DISPATCH)
    else:
        for other in reason.tasks:
            what = ConditionKind.END if other.end_suffices else ConditionKind.SUCCEED
            what = ConditionKind.START if kind == ReasonKind.HELD_BACK else what
            yield Condition(what, scope=other.scope, task=other.label, number=other.number)


def _gate_condition(reason: Reason) -> Condition:
    need, free, limit = reason.need or 0, reason.free or 0, reason.limit or 0
    kind = ConditionKind.FREE
    if need > limit:
        kind = ConditionKind.RAISE if reason.never else ConditionKind.ALONE
        return Condition(kind, reason.name, reason.scope, need - limit)
    return Condition(kind, reason.name, reason.scope, need - free)
