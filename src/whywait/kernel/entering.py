"""Entering: the checks of a submission, in their fixed order, and what taking a task in changes.

The order is: scope state, id unused, dependencies exist, demand feasible, limits. The limits come last and in the
order busy, spawn limit, queue limit, each from the task's own scope outwards, because making room for the newcomer
is the only check with a consequence: all victims are chosen before any is dropped. A refusal leaves everything as it
was, but for an event and a counter. A maintained flag (``scope.freely_open``, ``scope.limited``, ``lane.feasible``)
may spare a check, never an effect.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter
from typing import Any, Final

from whywait.errors import (
    ConfigError,
    DuplicateTask,
    Infeasible,
    QueueFull,
    Rejected,
    ScopeClosed,
    UnknownDependency,
)
from whywait.kernel import ending, graph
from whywait.kernel.base import Base, tell, tell_of
from whywait.kernel.devices import in_bytes
from whywait.kernel.events import Details, Kind
from whywait.kernel.ids import GENERATED_ID_PREFIX, LONGEST_ID
from whywait.kernel.limits import HIGHEST, LOWEST, Demand, Policy, Priority, check_amount
from whywait.kernel.model import Lane, Scope, Submission, Task, name_splits, rank_of, task_for
from whywait.kernel.pool import Pool
from whywait.kernel.state import BARRED_SCOPE_STATES, OPEN_SCOPE_STATES, STATE_WORDS, Cause, Outcome, TaskState
from whywait.kernel.waiting import become_ready, lane_of, take_in

Batch = dict[tuple[Scope, str], int]  # the place of the first task of each scope and name

_MANY_NAMES: Final = 10_000  # more are not searched for a near one


class Dependencies:
    """The dependencies of a submission, found."""

    __slots__ = ("after", "after_ended", "batch_after", "batch_after_ended", "failed", "is_doomed")

    def __init__(self) -> None:
        """Start with none."""
        self.after: list[Task] = []
        self.after_ended: list[Task] = []
        self.failed: str | None = None  # id of a finished dependency that did not succeed
        self.batch_after: Sequence[tuple[Scope, str]] = ()  # scopes and names within the same batch
        self.batch_after_ended: Sequence[tuple[Scope, str]] = ()
        self.is_doomed = False  # one has failed, so that the task ends as it is taken in; set where limits are checked

    @property
    def has_failed(self) -> bool:
        """Whether one outside of the batch has failed."""
        return self.failed is not None or any(task.outcome not in (None, Outcome.SUCCESS) for task in self.after)

    @property
    def met(self) -> bool:
        """Whether nothing is awaited: the task is READY at once."""
        if self.failed is not None or self.batch_after or self.batch_after_ended:
            return False
        if any(task.outcome is None for task in self.after_ended):
            return False
        return all(task.outcome is Outcome.SUCCESS for task in self.after)


NO_DEPENDENCIES: Final = Dependencies()
_SUBMITTED: Final = Kind.TASK_SUBMITTED
_QUEUED: Final = TaskState.QUEUED


# Commands


def submit(
    k: Base,
    now: int,
    scope: Scope,
    name: str | None = None,
    priority: int = Priority.NORMAL,
    demand: Demand = (),
    after: Sequence[Task | str] = (),
    after_ended: Sequence[Task | str] = (),
    policy: Policy | None = None,
    slot: bool = True,
    job: Any = None,
) -> Task:
    """Take a task in, QUEUED or READY; a refusal raises and leaves everything as it was."""
    found, lane = NO_DEPENDENCIES, scope.lanes.get((priority, demand))
    if (
        lane is None
        or name is not None
        or after
        or after_ended
        or not slot
        or not is_free(lane)
        or type(priority) is not int  # True would find the lanes of 1
    ):  # else such a task has passed all checks before, and nothing has changed
        try:
            found = check(k, scope, name, (priority, demand), after, after_ended)
            if scope.limited:
                request = Submission(scope, name, priority, demand, after, after_ended, policy, slot)
                displace(k, now, make_room((request,), (found,)))
        except (Rejected, ConfigError) as error:
            _refused(k, now, scope, name, error)
            raise
        if lane is None or not slot:
            lane = lane_of(k, now, scope, (rank_of(priority, slot), demand))
    task = job if isinstance(job, Task) else task_for(job)
    if found is NO_DEPENDENCIES and name is None and not scope.limited:
        enter(k, now, task, lane, policy)
    else:
        take_in(k, now, task, lane, policy)
        register(task, name, not found.is_doomed)
        _place(k, now, task, found)
    return task


def is_free(lane: Lane) -> bool:
    """Return whether a task without name and dependencies, like one that this lane has had, passes all checks."""
    scope = lane.scope
    return scope.freely_open and lane.feasible and not (scope.limited or lane.forgotten)


def enter(k: Base, now: int, task: Task, lane: Lane, policy: Policy | None) -> None:
    """Take a task in that has passed all checks and awaits nothing: it is READY."""
    take_in(k, now, task, lane, policy)
    become_ready(k, now, task)
    k.trigger = tell(k, now, _SUBMITTED, task, 0, lane.details, task.called)


def submit_many(k: Base, now: int, requests: Sequence[Submission], *, kept: bool = False) -> list[Task]:
    """Take a batch in, all or nothing; its tasks may name each other in any order.

    ``kept``: a former kernel has accepted them. One that does not fit the budget of this kernel is not refused: it
    waits at the gate of what is missing, for as long as that takes (M13).
    """
    looked_at: list[Submission] = []  # the last one is what a refusal is about
    try:
        found = check_batch(k, requests, looked_at, kept=kept)
        if any(request.scope.limited for request in requests):
            displace(k, now, make_room(requests, found, looked_at))
    except (Rejected, ConfigError) as error:
        if looked_at:
            _refused(k, now, looked_at[-1].scope, looked_at[-1].name, error)
        raise
    tasks = []
    for (scope, name, priority, demand, _, _, policy, slot, job), dependencies in zip(requests, found, strict=True):
        task = job if isinstance(job, Task) else task_for(job)
        if kept:
            scope.pool.add_missing(demand)
        lane = lane_of(k, now, scope, (rank_of(priority, slot), demand))
        take_in(k, now, task, lane, policy if lane.feasible else replace(policy or scope.policy, max_wait_ns=None))
        register(task, name, not dependencies.is_doomed)
        tasks.append(task)
    by_name = {(task.scope, task.name): task for task in tasks if task.name is not None}
    for task, dependencies in zip(tasks, found, strict=True):
        dependencies.after.extend(by_name[mate] for mate in dependencies.batch_after)
        dependencies.after_ended.extend(by_name[mate] for mate in dependencies.batch_after_ended)
        _place(k, now, task, dependencies)
    return tasks


def remember(_: Base, now: int, scope: Scope, name: str, outcome: str | None) -> None:  # noqa: ARG001 - a command
    """Know how a task ended that another kernel has carried out, so that others can await it; None: forget it again.

    A living task of that name stays as it is.
    """
    if isinstance(scope.ids.get(name), Task):
        raise DuplicateTask(
            f"task id {name!r} is used in scope {scope.key!r} by a living task",
            check="id unused",
            cause=Cause.DUPLICATE,
        )
    if outcome is None:
        scope.ids.pop(name, None)
    else:
        scope.ids[name] = Outcome(outcome)


# Effects


def register(task: Task, name: str | None, counts: bool = True) -> None:
    """Let a task that was taken in be known by its name, if the user gave one, and count it where that is limited."""
    scope = task.scope
    if name is not None:
        task.name = name
        scope.ids[name] = task
    if scope.limited and counts:
        for each in scope.chain:
            each.spawned += 1


def _place(k: Base, now: int, task: Task, found: Dependencies) -> None:
    """Make a task READY, or QUEUED behind its dependencies, or end it because one of them has failed."""
    failed = graph.link(task, found.after, found.after_ended)
    failed_id = (failed.root or failed.label) if failed is not None else found.failed
    if not task.unmet and failed_id is None:
        become_ready(k, now, task)
    k.trigger = seq = tell_submitted(k, now, task)
    if failed_id is not None:
        ending.end_pending(k, now, task, Outcome.ABORTED, Cause.DEPENDENCY, failed_id, seq)
        ending.take_down(k, now, [task], failed_id, seq)


def tell_submitted(k: Base, now: int, task: Task, cause: int = 0) -> int:
    """Tell that a task was taken in; return the seq of the event."""
    lane = task.lane
    details: Details = lane.queued_details if task.state is _QUEUED else lane.details
    if task.after:
        details += (("after", graph.numbers(task.after)),)
    if not task.plain and task.after_ended:
        details += (("after_ended", graph.numbers(task.after_ended)),)
    return tell(k, now, _SUBMITTED, task, cause, details, task.called)


def displace(k: Base, now: int, victims: Sequence[Task]) -> None:
    """Drop pending tasks to make room for newcomers."""
    for victim in victims:
        if victim.pending:  # not gone with an earlier one
            ending.end_with_dependents(k, now, victim, Outcome.REJECTED, Cause.DISPLACED)


def _refused(k: Base, now: int, scope: Scope, name: str | None, error: Rejected | ConfigError) -> None:
    """Leave a trace of a refused submission: an event and a counter, nothing else."""
    if isinstance(error, Rejected):
        if isinstance(error, QueueFull):
            kind = Kind.TASK_DROPPED
            k.stats.count_drop(error.cause)
        else:
            kind = Kind.TASK_REJECTED
            k.stats.count_rejection(error.cause)
        tell_of(k, now, kind, scope, name, 0, (("cause", error.cause),))


# Checks


def check(
    k: Base,
    scope: Scope,
    name: str | None,
    key: tuple[int, Demand],
    after: Sequence[Task | str] = (),
    after_ended: Sequence[Task | str] = (),
    batch: Batch | None = None,
    index: int = 0,
    kept: bool = False,
) -> Dependencies:
    """Run all checks but the limits; return the dependencies. ``batch``: what comes in together with this task."""
    if not scope.freely_open:
        _check_state(scope)
    if name is not None:
        if not name or name in scope.ids or name[0] == GENERATED_ID_PREFIX or len(name) > LONGEST_ID:
            raise _bad_name(scope, name)
        if batch is not None and batch[scope, name] != index:
            raise _duplicate(scope, name, "twice in this batch")
    priority, demand = key
    if type(priority) is not int or not LOWEST <= priority <= HIGHEST:  # True would find the lanes of 1
        raise ConfigError(f"priority {priority!r} is not allowed: use an int from 0 to 100")
    found = _find_dependencies(k, scope, name, after, after_ended, batch) if after or after_ended else NO_DEPENDENCIES
    if demand and not kept:
        lane = scope.lanes.get(key)
        if lane is None or not lane.feasible:
            check_demand(scope.pool, demand, _what(name))
    return found


def check_batch(
    k: Base, requests: Sequence[Submission], looked_at: list[Submission], *, kept: bool = False
) -> list[Dependencies]:
    """Check tasks that may name each other in any order; refuse cycles and repeated names, and change nothing."""
    batch: Batch = {}
    for index, request in enumerate(requests):
        if request.name is not None:
            batch.setdefault((request.scope, request.name), index)
    found = []
    for index, request in enumerate(requests):
        looked_at.append(request)
        scope, name, priority, demand, after, after_ended, *_ = request
        found.append(check(k, scope, name, (priority, demand), after, after_ended, batch, index, kept))
    sorter: TopologicalSorter[tuple[Scope, str | None]] = TopologicalSorter()
    for request, dependencies in zip(requests, found, strict=True):
        mates = (*dependencies.batch_after, *dependencies.batch_after_ended)
        sorter.add((request.scope, request.name), *mates)
    try:
        sorter.prepare()
    except CycleError as error:
        cycle = " -> ".join(name or "" for _, name in reversed(error.args[1]))
        looked_at.clear()
        raise ConfigError(f"the tasks wait for each other in a cycle: {cycle}") from None
    return found


def make_room(
    requests: Sequence[Submission], found: Sequence[Dependencies], looked_at: list[Submission] | None = None
) -> list[Task]:
    """Check the limits for tasks that come in together; return the pending tasks to drop for them.

    A task that ends as it is taken in, because a dependency has failed, counts against no limit.
    """
    taken: dict[str, int] = {}  # scope key -> tasks of this batch already let in
    ready: dict[str, int] = {}  # scope key -> those of them that are READY at once and take a slot
    victims: list[Task] = []
    leaving: dict[int, Task] = {}  # the victims and all that end with them
    _mark_doomed(requests, found)
    for request, dependencies in zip(requests, found, strict=True):
        scope = request.scope
        if looked_at is not None:
            looked_at.append(request)
        if dependencies.is_doomed:
            continue
        if request.slot:
            _check_busy(scope, ready, _what(request.name))
        _check_spawned(scope, taken, _what(request.name))
        full = _innermost_full(scope, taken, leaving)
        if full is not None:
            victim = _victim(full, request, found, leaving)
            victims.append(victim)
            leaving[victim.number] = victim
            leaving.update((task.number, task) for task, _ in graph.descendants([victim]))
        for each in scope.chain:
            taken[each.key] = taken.get(each.key, 0) + 1
            if request.slot and dependencies.met:
                ready[each.key] = ready.get(each.key, 0) + 1
    return victims


def _mark_doomed(requests: Sequence[Submission], found: Sequence[Dependencies]) -> None:
    """Mark the tasks of which a dependency has failed, and those of the same batch that depend on them."""
    doomed = [index for index, dependencies in enumerate(found) if dependencies.has_failed]
    if not doomed:
        return
    dependents: dict[tuple[Scope, str | None], list[int]] = {}
    for index, dependencies in enumerate(found):
        for mate in dependencies.batch_after:
            dependents.setdefault(mate, []).append(index)
    while doomed:
        index = doomed.pop()
        if not found[index].is_doomed:
            found[index].is_doomed = True
            doomed += dependents.get((requests[index].scope, requests[index].name), ())


def check_demand(pool: Pool, demand: Demand, what: str) -> None:
    """Refuse what the budget could never meet."""
    for devices in pool.devices.values():
        lack = devices.lack(demand)
        if lack is not None:
            raise Infeasible(
                f"{what} demands {lack}: it could never start", check="demand feasible", cause=Cause.INFEASIBLE
            )
    for name, amount in demand:
        check_amount(f"demand {name}", amount)
        gate = pool.resources.get(name)
        if not pool.knows(name):
            known = ", ".join((*pool.resources, *pool.devices)) or "none"
            raise Infeasible(
                f"{what} demands {amount} of {name!r}; the budget has only: {known}",
                check="demand feasible",
                cause=Cause.INFEASIBLE,
            )
        if gate is not None and gate.limit is not None and gate.can_never_pass(amount):
            limit = in_bytes(gate.limit)
            raise Infeasible(
                f"{what} demands {in_bytes(amount)} {name} and the limit is {limit}: it could never start",
                check="demand feasible",
                cause=Cause.INFEASIBLE,
            )


def _find_dependencies(
    k: Base,
    scope: Scope,
    name: str | None,
    after: Sequence[Task | str],
    after_ended: Sequence[Task | str],
    batch: Batch | None,
) -> Dependencies:
    found = Dependencies()
    if after:
        found.batch_after, found.failed = _find(k, scope, name, after, batch, found.after)
    if after_ended:
        found.batch_after_ended, _ = _find(k, scope, name, after_ended, batch, found.after_ended)
    return found


def _find(
    k: Base, scope: Scope, name: str | None, given: Sequence[Task | str], batch: Batch | None, tasks: list[Task]
) -> tuple[list[tuple[Scope, str]], str | None]:
    """Add dependencies that are tasks to ``tasks``; return those in the batch, and the first that has failed."""
    mates: list[tuple[Scope, str]] = []
    failed = None
    for dependency in given if len(given) == 1 else dict.fromkeys(given):
        if isinstance(dependency, Task):
            tasks.append(dependency)
            continue
        where, other = _split(k, dependency, scope, batch)
        if batch is not None and where is not None and (where, other) in batch:
            mates.append((where, other))
            continue
        known = where.known(other) if where else None
        if known is None:
            raise _unknown(name, dependency, where or scope, batch)
        if isinstance(known, Task):
            tasks.append(known)
        elif known is not Outcome.SUCCESS:
            failed = failed or other
    return mates, failed


def _split(k: Base, name: str, scope: Scope, batch: Batch | None) -> tuple[Scope | None, str]:
    """Return scope and name of an id that may be written ``scope/name``; a name of the own scope comes first."""
    if "/" not in name or name in scope.ids or (batch is not None and (scope, name) in batch):
        return scope, name
    there = [(k.scopes[key], rest) for key, rest in name_splits(name) if key in k.scopes]
    known = (each for each in there if each[0].known(each[1]) or (batch is not None and each in batch))
    return next(known, there[0] if there else (None, name))


def _unknown(name: str | None, dependency: str, scope: Scope, batch: Batch | None) -> UnknownDependency:
    from difflib import get_close_matches

    prefix = f"{scope.key}/" if "/" in dependency else ""
    names = [prefix + each for each in (*scope.ids, *(mate for _, mate in batch or ()))]
    near = get_close_matches(dependency, names, 1) if len(names) <= _MANY_NAMES else []
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return UnknownDependency(
        f"{_what(name)} waits for {dependency!r}, which does not exist{hint}",
        check="dependencies exist",
        cause=Cause.UNKNOWN_DEPENDENCY,
    )


def _check_busy(scope: Scope, ready: dict[str, int], what: str) -> None:
    if scope.limits.when_busy != "reject":
        return
    for each in scope.chain:
        gate = each.slot_gate
        if gate.limit is None:
            continue
        left = gate.free - ready.get(each.key, 0)
        if left <= 0 or _ready_at_least(each, left):
            raise Rejected(
                f"{_slots(gate.limit, _where(each))} taken or spoken for: {what} is refused",
                check="when_busy",
                cause=Cause.BUSY,
            )


def _check_spawned(scope: Scope, taken: dict[str, int], what: str) -> None:
    for each in scope.chain:
        limit = each.limits.max_spawn
        if limit is not None and each.spawned + taken.get(each.key, 0) >= limit:
            raise Rejected(
                f"{_where(each)} has accepted {_tasks(each.spawned)} in its life and max_spawn is {limit}: "
                f"{what} is refused",
                check="max_spawn",
                cause=Cause.SPAWN_LIMIT,
            )


def _innermost_full(scope: Scope, taken: dict[str, int], leaving: dict[int, Task]) -> Scope | None:
    """Return the innermost scope whose queue limit is reached; the limits around it count each task that it counts."""
    for each in scope.counted:
        left = sum(each in task.scope.chain for task in leaving.values())
        if each.pending + taken.get(each.key, 0) - left >= (each.limits.queue_limit or 0):
            return each
    return None


def _victim(full: Scope, request: Submission, found: Sequence[Dependencies], leaving: dict[int, Task]) -> Task:
    """Return the pending task that the newcomer displaces: of the lowest priority below its own, the newest."""
    if request.scope.limits.overflow == "displace":
        waiting = (each for each in found if not each.is_doomed)
        needed = graph.ancestors(task for each in waiting for task in (*each.after, *each.after_ended))
        for priority in sorted(full.by_priority):
            if priority >= request.priority:
                break
            stack = full.by_priority[priority]
            while stack and not stack[-1].pending:
                stack.pop()
            for task in reversed(stack):
                if task.pending and task.number not in needed and task.number not in leaving:
                    return task
    raise QueueFull(
        f"{_where(full)} has {_tasks(full.pending, 'pending ')} and queue_limit is {full.limits.queue_limit}: "
        f"{_what(request.name)} is refused",
        check="queue_limit",
        cause=Cause.QUEUE_FULL,
    )


def _ready_at_least(scope: Scope, count: int) -> bool:
    """Return whether at least ``count`` tasks below a scope wait for a slot; looks at no more lanes than needed."""
    for each in scope.subtree():
        for lane in each.lanes.values():
            count -= len(lane) if lane.takes_slot else 0
            if count <= 0:
                return True
    return False


def _duplicate(scope: Scope, name: str, how: str) -> DuplicateTask:
    return DuplicateTask(
        f"task id {name!r} is used in scope {scope.key!r} ({how}): choose another id",
        check="id unused",
        cause=Cause.DUPLICATE,
    )


def _check_state(scope: Scope) -> None:
    for each in scope.chain:
        if each.state in BARRED_SCOPE_STATES or (each is scope and each.state not in OPEN_SCOPE_STATES):
            raise ScopeClosed(
                f"scope {each.key!r} is {STATE_WORDS[each.state]}: it accepts tasks only while it is open or running",
                check="scope state",
                cause=Cause.SCOPE_STATE,
            )


def _bad_name(scope: Scope, name: str) -> Exception:
    known = scope.ids.get(name)
    if known is not None:
        return _duplicate(scope, name, f"{STATE_WORDS[known.state] if isinstance(known, Task) else known} already")
    if len(name) > LONGEST_ID:
        return ConfigError(f"a task id of {len(name):,} characters is not allowed: use at most {LONGEST_ID:,}")
    return ConfigError(f"task id {name!r} is not allowed: it must not be empty or begin with {GENERATED_ID_PREFIX!r}")


def _where(scope: Scope) -> str:
    return f"scope {scope.key!r}" if scope.parent else "the authority"


def _tasks(count: int, which: str = "") -> str:
    return f"{count} {which}task{'' if count == 1 else 's'}"


def _slots(count: int, where: str) -> str:
    return f"the only slot of {where} is" if count == 1 else f"all {count} slots of {where} are"


def _what(name: str | None) -> str:
    return f"task {name!r}" if name is not None else "the task"
