"""Why a task waits (or waited): structured reasons, read from the gates that decide. No prose here.

``Kernel.why`` works for any task in any state. A reason is a value of the closed set ``ReasonKind``; the primary one is
what dispatch last found, which is also what the accounts charge (V7). Whatever could be long is bounded, so that an
answer never takes long, however many tasks there are; where something is left out, the answer says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import nsmallest
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final

from whywait.kernel import graph
from whywait.kernel.reasons import Ahead, Blocked, Blocking, Condition, ConditionKind, Holder, Reason, ReasonKind, Why
from whywait.kernel.snapshot import waits_for
from whywait.kernel.state import TaskState, Wait

if TYPE_CHECKING:
    from whywait.kernel.gates import Gate
    from whywait.kernel.lanes import Lane
    from whywait.kernel.life import Life
    from whywait.kernel.model import Task

__all__ = ["Ahead", "Blocked", "Blocking", "Condition", "ConditionKind", "Holder", "Reason", "ReasonKind", "Why"]

NAMED_AHEAD: Final = 10
_NAMED: Final = 10  # dependents, those who wait for what a task holds, holders of higher priority
_CHAIN: Final = 10  # steps of a chain of dependencies that are given besides the last
_LONGEST_CHAIN: Final = 1000  # steps that are followed at all
_MOST_TASKS: Final = 100  # unmet dependencies that are given
_MOST_HOLDERS: Final = 1000  # slot holders that are looked at
_MOST_LANES: Final = 1000  # lanes that are looked at


def explain(life: Life, now: int, task: Task, earlier: Iterable[Task] = ()) -> Why:
    """Return why a task is not running, or what it does, or how its wait divided; ``earlier``: attempts before it."""
    breakdown: dict[str, int] = {}
    for each in (*earlier, task):
        _add(breakdown, each.waits)
    facts: dict[str, Any] = {}
    if task.state == TaskState.READY:
        facts = _ready(life, now, task)
        _add(breakdown, life.dispatcher.ready_wait(now, task))
    elif task.pending:
        facts = _not_ready(life, now, task)
        if now != task.since:
            _add(breakdown, {facts["primary"]: now - task.since})
    elif task.holds_slot:
        facts = _running(life, now, task)
    awaiting = [other for other in _successors(task) if other.outcome is None]
    return Why(
        id=task.id,
        scope=task.scope.key,
        number=task.number,
        state=task.state,
        priority=task.priority,
        demand=task.demand,
        now_ns=now,
        outcome=task.outcome,
        cause=task.cause,
        root=task.root,
        attempt=task.attempt,
        starved_ns=sum(each.starved_ns for each in earlier) + life.dispatcher.starved(now, task),
        awaited_by=len(awaiting),
        awaiting=tuple(other.id for other in awaiting[:_NAMED]),
        breakdown=breakdown,
        waited_ns=sum(breakdown.values()),
        **facts,
    )


def _add(breakdown: dict[str, int], more: dict[str, int]) -> None:
    for cause, ns in more.items():
        breakdown[cause] = breakdown.get(cause, 0) + ns


def _ready(life: Life, now: int, task: Task) -> dict[str, Any]:
    dispatcher, lane = life.dispatcher, task.lane
    assert lane is not None, "a READY task is in a lane"
    waited = now - task.since
    step = dispatcher.order.next_step(task.priority, waited)
    starved = lane.level.segment.higher
    reasons = _closed_gates(life, now, lane)
    ahead, at_least = _ahead(life, now, task)
    return {
        "starved": starved,
        "starved_by": _starved_by(life, now, task) if starved else (),
        "primary": waits_for(task),
        "lane": (task.priority, task.scope.key, task.demand),
        "position": lane.before(task.entry),
        "effective_priority": dispatcher.order.effective(task.priority, waited),
        "lifted_in_ns": None if step is None else step - waited,
        "reasons": reasons,
        "conditions": _conditions(reasons, ahead),
        "ahead": ahead,
        "ahead_at_least": at_least,
    }


def _not_ready(life: Life, now: int, task: Task) -> dict[str, Any]:
    reasons = []
    if task.state == TaskState.PAUSED:
        reasons.append(Reason(ReasonKind.PAUSED, Wait.PAUSED, since_ns=task.since))
    if task.held_by == Wait.BACKOFF and task.wait_timer is not None:
        reasons.append(Reason(ReasonKind.BACKOFF, Wait.BACKOFF, until_ns=task.wait_timer.at))
    elif task.held_by == Wait.OVERLAP and task.periodic is not None:
        others = [other for other in task.scope.tasks.values() if _other_iteration(other, task)]
        tasks = tuple(_blocking(life, now, other, end_suffices=True) for other in others[:_MOST_TASKS])
        reasons.append(Reason(ReasonKind.OVERLAP, Wait.OVERLAP, need=len(others), tasks=tasks))
    elif unmet := graph.unmet_dependencies(task):
        ended = {other.latest().number for other in task.after_ended or ()}
        needed = {other.latest().number for other in task.after or ()}
        tasks = tuple(
            _followed(life, now, other, end_suffices=other.number in ended and other.number not in needed)
            for other in unmet[:_MOST_TASKS]
        )
        never = any(_is_never(each) for each in tasks)
        reasons.append(Reason(ReasonKind.DEPENDENCY, Wait.DEPENDENCY, need=len(unmet), tasks=tasks, never=never))
    return {
        "primary": waits_for(task) or Wait.DEPENDENCY,
        "reasons": tuple(reasons),
        "conditions": _conditions(tuple(reasons), (), task),
    }


def _running(life: Life, now: int, task: Task) -> dict[str, Any]:
    return {
        "running_ns": now - task.since,
        "parked_ns": None if task.parked_since is None else now - task.parked_since,
        "ending_ns": None if task.abort_since is None else now - task.abort_since,
        "ending_cause": None if task.abort is None else task.abort[1],
        "holds": task.demand,
        "blocks": tuple(_blocks(life, task)),
    }


# Gates and who holds them


def _closed_gates(life: Life, now: int, lane: Lane) -> tuple[Reason, ...]:
    """Return every closed gate: the budget's and the scopes' in the order in which they are asked, then slots."""
    dispatcher = life.dispatcher
    nobody_runs = dispatcher.busy == 0
    reasons = [_gate_reason(life, now, gate, need) for gate, need in lane.needs if gate.closed(need, nobody_runs)]
    if dispatcher.slots.closed(1, nobody_runs):
        reasons.append(_gate_reason(life, now, dispatcher.slots, 1))
    blocker = dispatcher.blocker
    if dispatcher.held and blocker is not None and blocker is not lane and blocker.head is not None:
        tasks = (_blocking(life, now, blocker.head),)
        reasons.append(Reason(ReasonKind.HELD_BACK, Wait.HELD_BACK, tasks=tasks, never=tasks[0].never))
    return tuple(reasons) or (Reason(ReasonKind.DISPATCH, Wait.SLOT),)


def _gate_reason(life: Life, now: int, gate: Gate, need: int) -> Reason:
    holders = tuple(_holders(life, now, gate))
    others = 0
    if gate.limit is not None and gate.kind != ReasonKind.SCOPE_STATE:
        others = gate.limit - gate.free - sum(holder.amount for holder in holders)
    return Reason(
        gate.kind,
        gate.name,
        scope=gate.scope.key if gate.scope else None,
        need=need,
        free=gate.free,
        limit=gate.limit,
        soft=gate.soft,
        never=_can_never_open(gate, need),
        holders=holders,
        held_by_others=others,
    )


def _can_never_open(gate: Gate, need: int) -> bool:
    return gate.is_budget and not gate.soft and gate.limit is not None and need > gate.limit


def _holders(life: Life, now: int, gate: Gate) -> Iterator[Holder]:
    for task in islice(life.running.values(), _MOST_HOLDERS):
        amount = _held(life, task, gate)
        if amount:
            yield Holder(task.id, task.scope.key, task.number, amount, task.state, now - task.since)


def _held(life: Life, task: Task, gate: Gate) -> int:
    if gate is life.dispatcher.slots:
        return 1
    assert task.lane is not None, "a slot holder remembers its lane"
    return task.lane.need(gate)


def _starved_by(life: Life, now: int, task: Task) -> tuple[Holder, ...]:
    running = islice(life.running.values(), _MOST_HOLDERS)
    higher = (other for other in running if other.priority > task.priority)
    return tuple(
        Holder(other.id, other.scope.key, other.number, 1, other.state, now - other.since)
        for other in islice(higher, _NAMED)
    )


def _blocks(life: Life, task: Task) -> Iterator[Blocked]:
    """Yield who waits for what a slot holder holds."""
    dispatcher, lane = life.dispatcher, task.lane
    assert lane is not None, "a slot holder remembers its lane"
    for gate, need in lane.needs:
        if need and gate.benches:
            parked = chain.from_iterable(bench.lanes_in_order() for bench in gate.benches.values())
            yield _blocked(gate, parked)
    if dispatcher.slots.free <= 0:
        waiting = (each for level in dispatcher.levels for _, each in level.heap if each.items)
        blocked = _blocked(dispatcher.slots, waiting)
        if blocked.tasks:
            yield blocked


def _blocked(gate: Gate, lanes: Iterable[Lane]) -> Blocked:
    looked_at = list(islice(lanes, _MOST_LANES))
    names = (task.id for lane in looked_at for task in islice(lane, _NAMED))
    scope = gate.scope.key if gate.scope is not None else None
    count = sum(map(len, looked_at))
    return Blocked(gate.name, scope, count, tuple(islice(names, _NAMED)), len(looked_at) == _MOST_LANES)


# Who comes first


def _ahead(life: Life, now: int, task: Task) -> tuple[tuple[Ahead, ...], bool]:
    """Return, level by level, how many READY tasks come before this one in order, with the first ten named.

    Whether a task comes first depends on its entry and on when it entered, and both grow along a lane. So two moments
    for each level decide: who has waited since the first is ahead, who has waited since the second is level.
    """
    order = life.dispatcher.order
    mine = order.effective(task.priority, now - task.since)
    since: dict[int, tuple[int, int]] = {}

    def order_key(other: Any) -> tuple[int, int]:  # noqa: ANN401 - a task
        return -order.effective(other.priority, now - other.since), other.entry

    rows: list[tuple[Lane, int]] = []
    looked_at = 0
    for lane in life.dispatcher.lanes():
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
    counts: dict[int, int] = {}
    for lane, count in rows:
        counts[lane.level.priority] = counts.get(lane.level.priority, 0) + count
    # The ten that come first are among the first ten of the ten lanes whose heads come first.
    best_lanes = nsmallest(NAMED_AHEAD, rows, key=lambda row: order_key(row[0].head))
    candidates = [other for lane, count in best_lanes for other in islice(lane, min(count, NAMED_AHEAD))]
    named = nsmallest(NAMED_AHEAD, candidates, key=order_key)
    levels = tuple(
        Ahead(priority, counts[priority], tuple(other.id for other in named if other.priority == priority))
        for priority in sorted(counts, reverse=True)
    )
    return levels, looked_at == _MOST_LANES


# Other tasks


def _followed(life: Life, now: int, task: Task, *, end_suffices: bool) -> Blocking:
    """Return where a dependency stands, followed down to the one that everything waits for in the end."""
    steps = list(islice(graph.down_from(task), _LONGEST_CHAIN))
    told = steps if len(steps) <= _CHAIN + 1 else [*steps[:_CHAIN], steps[-1]]
    first = _blocking(life, now, task, end_suffices=end_suffices)
    links = tuple(_blocking(life, now, step) for step in told)
    return first._replace(chain=links, left_out=len(steps) - len(told))


def _blocking(life: Life, now: int, task: Task, *, end_suffices: bool = False) -> Blocking:
    held_by: tuple[str, ...] = ()
    never = task.abort is not None and not end_suffices
    lane = task.lane
    if task.state == TaskState.READY and lane is not None:
        gate = lane.epoch.gate or life.dispatcher.slots
        held_by = tuple(holder.id for holder in islice(_holders(life, now, gate), _NAMED))
        never = any(_can_never_open(each, need) for each, need in lane.needs)
    return Blocking(
        task.id,
        task.scope.key,
        task.number,
        task.state,
        now - task.since if task.holds_slot else None,
        waits_for(task),
        held_by,
        end_suffices,
        never,
    )


def _is_never(dependency: Blocking) -> bool:
    return any(link.never for link in (dependency, *dependency.chain))


def _other_iteration(other: Task, task: Task) -> bool:
    return other.periodic is task.periodic and other.holds_slot


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
    elif kind == ReasonKind.SCOPE_STATE:
        yield Condition(ConditionKind.RESUME_SCOPE, scope=reason.scope)
    elif kind == ReasonKind.PAUSED:
        assert task is not None, "only a pending task is paused"
        yield Condition(ConditionKind.RESUME_TASK, task=task.id, number=task.number)
    elif kind == ReasonKind.BACKOFF:
        yield Condition(ConditionKind.TIME, until_ns=reason.until_ns)
    elif kind == ReasonKind.DISPATCH:
        yield Condition(ConditionKind.DISPATCH)
    else:
        for other in reason.tasks:
            what = ConditionKind.END if other.end_suffices else ConditionKind.SUCCEED
            what = ConditionKind.START if kind == ReasonKind.HELD_BACK else what
            yield Condition(what, scope=other.scope, task=other.id, number=other.number)


def _gate_condition(reason: Reason) -> Condition:
    need, free, limit = reason.need or 0, reason.free or 0, reason.limit or 0
    kind = ConditionKind.FREE
    if need > limit:
        kind = ConditionKind.RAISE if reason.never else ConditionKind.ALONE
        return Condition(kind, reason.name, reason.scope, need - limit)
    return Condition(kind, reason.name, reason.scope, need - free)
