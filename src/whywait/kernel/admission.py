"""Admission: the checks of a submission, in their fixed order; a refusal leaves everything as it was.

The order is: scope state, id unused, dependencies exist, demand feasible, limits. The limits come last and in the
order busy, spawn limit, queue limit, each from the task's own scope outwards, because making room for the newcomer
is the only check with a consequence: all victims are chosen before any is dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING, Final

from whywait.errors import (
    ConfigError,
    DuplicateTask,
    Infeasible,
    QueueFull,
    Rejected,
    ScopeClosed,
    UnknownDependency,
)
from whywait.kernel import graph
from whywait.kernel.model import GENERATED_ID_PREFIX, HIGHEST, LOWEST, Scope, Submission, Task, name_splits
from whywait.kernel.state import OPEN_SCOPE_STATES, Cause, Outcome, ScopeState

if TYPE_CHECKING:
    from whywait.kernel.gates import Gate
    from whywait.kernel.model import Demand

Batch = dict[tuple[Scope, str], Submission]  # the first of each scope and name

_MANY_NAMES: Final = 10_000  # more are not searched for a near one


@dataclass(slots=True)
class Dependencies:
    """The dependencies of a submission, found."""

    after: list[Task]
    after_ended: list[Task]
    failed: str | None = None  # id of a finished dependency that did not succeed
    batch_after: Sequence[tuple[Scope, str]] = ()  # scopes and names within the same batch
    batch_after_ended: Sequence[tuple[Scope, str]] = ()

    @property
    def met(self) -> bool:
        """Whether nothing is awaited: the task is READY at once."""
        if self.failed is not None or self.batch_after or self.batch_after_ended:
            return False
        if any(task.latest().outcome is None for task in self.after_ended):
            return False
        return all(task.latest().outcome == Outcome.SUCCESS for task in self.after)


class Admission:
    """Decides whether a submission is let in."""

    def __init__(self, scopes: dict[str, Scope], resources: dict[str, Gate]) -> None:
        """Check against these living scopes and budget gates."""
        self._scopes = scopes
        self._resources = resources
        self.looking_at: Submission | None = None  # whom a refusal of a batch is about

    def check(self, request: Submission, batch: Batch | None = None) -> Dependencies:
        """Run all checks but the limits; return the dependencies. ``batch``: what comes in together with this one."""
        scope, name, priority, demand, after, after_ended, _, _ = request
        _check_state(scope)
        if name is not None:
            if name in scope.ids or not name or name[0] == GENERATED_ID_PREFIX:
                raise _bad_name(scope, name)
            if batch is not None and batch[scope, name] is not request:
                raise _duplicate(scope, name, "twice in this batch")
        if priority.__class__ is not int or not LOWEST <= priority <= HIGHEST:
            raise ConfigError(f"priority {priority!r} is not allowed: use an int from 0 to 100")
        found = self._find_dependencies(request, batch) if after or after_ended else NO_DEPENDENCIES
        if demand:
            self.check_demand(request, demand)
        return found

    def check_batch(self, requests: Sequence[Submission]) -> list[Dependencies]:
        """Run :meth:`check` for tasks that may name each other in any order; refuse cycles and repeated names."""
        batch: Batch = {}
        for request in requests:
            if request.name is not None:
                batch.setdefault((request.scope, request.name), request)
        found = []
        for request in requests:
            self.looking_at = request
            found.append(self.check(request, batch))
        sorter: TopologicalSorter[tuple[Scope, str | None]] = TopologicalSorter()
        for request, dependencies in zip(requests, found, strict=True):
            mates = (*dependencies.batch_after, *dependencies.batch_after_ended)
            sorter.add((request.scope, request.name), *mates)
        try:
            sorter.prepare()
        except CycleError as error:
            cycle = " -> ".join(name or "" for _, name in reversed(error.args[1]))
            self.looking_at = None
            raise ConfigError(f"the tasks wait for each other in a cycle: {cycle}") from None
        return found

    def make_room(self, requests: Sequence[Submission], found: Sequence[Dependencies]) -> list[Task]:
        """Check the limits for tasks that come in together; return the pending tasks to drop for them."""
        taken: dict[str, int] = {}  # scope key -> tasks of this batch already let in
        ready: dict[str, int] = {}  # scope key -> those of them that are READY at once
        victims: list[Task] = []
        doomed: dict[int, Task] = {}  # the victims and all that end with them
        for request, dependencies in zip(requests, found, strict=True):
            scope = request.scope
            self.looking_at = request
            self._check_busy(scope, ready, request)
            for each in scope.chain:
                limit = each.limits.max_spawn
                if limit is not None and each.spawned + taken.get(each.key, 0) >= limit:
                    raise Rejected(
                        f"{_where(each)} has accepted {_tasks(each.spawned)} in its life and max_spawn is {limit}: "
                        f"{_what(request)} is refused",
                        check="max_spawn",
                        cause=Cause.SPAWN_LIMIT,
                    )
            for each in scope.counted:
                limit = each.limits.queue_limit or 0
                leaving = sum(each in task.scope.chain for task in doomed.values())
                if each.pending + taken.get(each.key, 0) - leaving >= limit:
                    victim = self._victim(each, request, found, doomed)
                    victims.append(victim)
                    doomed[victim.number] = victim
                    doomed.update((task.number, task) for task, _ in graph.descendants([victim]))
            for each in scope.chain:
                taken[each.key] = taken.get(each.key, 0) + 1
                if dependencies.met:
                    ready[each.key] = ready.get(each.key, 0) + 1
        return victims

    def check_demand(self, request: Submission | str, demand: Demand) -> None:
        """Refuse what the budget could never meet."""
        for name, amount in demand:
            gate = self._resources.get(name)
            if gate is None:
                if name not in ("cpu", "ram", "vram"):
                    known = ", ".join(self._resources) or "none"
                    raise Infeasible(
                        f"{_what(request)} demands {amount} of {name!r}; the budget has only: {known}",
                        check="demand feasible",
                        cause=Cause.INFEASIBLE,
                    )
            elif not gate.soft and amount > (gate.limit or 0):
                raise Infeasible(
                    f"{_what(request)} demands {amount} {name} and the limit is {gate.limit}: it could never start",
                    check="demand feasible",
                    cause=Cause.INFEASIBLE,
                )

    def _find_dependencies(self, request: Submission, batch: Batch | None) -> Dependencies:
        given_tasks = [item for item in request.after if isinstance(item, Task)]
        if batch is None and not request.after_ended and len(given_tasks) == len(request.after):
            # The common case, told apart for speed.
            return Dependencies(given_tasks if len(given_tasks) == 1 else list(dict.fromkeys(given_tasks)), [])
        found = Dependencies([], [])
        for given, tasks, ended_suffices in (
            (request.after, found.after, False),
            (request.after_ended, found.after_ended, True),
        ):
            mates: list[tuple[Scope, str]] = []
            for dependency in dict.fromkeys(given):
                if isinstance(dependency, Task):
                    tasks.append(dependency)
                    continue
                scope, name = self._split(dependency, request.scope, batch)
                if batch is not None and scope is not None and (scope, name) in batch:
                    mates.append((scope, name))
                    continue
                known = scope.known(name) if scope else None
                if known is None:
                    raise self._unknown(request, dependency, scope or request.scope, batch)
                if isinstance(known, Task):
                    tasks.append(known)
                elif known != Outcome.SUCCESS and not ended_suffices:
                    found.failed = found.failed or name
            if ended_suffices:
                found.batch_after_ended = mates
            else:
                found.batch_after = mates
        return found

    def _split(self, name: str, scope: Scope, batch: Batch | None) -> tuple[Scope | None, str]:
        """Return scope and name of an id that may be written ``scope/name``; a name of the own scope comes first."""
        if "/" not in name or name in scope.ids or (batch is not None and (scope, name) in batch):
            return scope, name
        there = [(self._scopes[key], rest) for key, rest in name_splits(name) if key in self._scopes]
        known = (each for each in there if each[0].known(each[1]) or (batch is not None and each in batch))
        return next(known, there[0] if there else (None, name))

    def _unknown(self, request: Submission, dependency: str, scope: Scope, batch: Batch | None) -> UnknownDependency:
        from difflib import get_close_matches

        prefix = f"{scope.key}/" if "/" in dependency else ""
        names = [prefix + name for name in (*scope.ids, *(name for _, name in batch or ()))]
        near = get_close_matches(dependency, names, 1) if len(names) <= _MANY_NAMES else []
        hint = f"; did you mean {near[0]!r}?" if near else ""
        return UnknownDependency(
            f"{_what(request)} waits for {dependency!r}, which does not exist{hint}",
            check="dependencies exist",
            cause=Cause.UNKNOWN_DEPENDENCY,
        )

    def _check_busy(self, scope: Scope, ready: dict[str, int], request: Submission) -> None:
        if scope.limits.when_busy != "reject":
            return
        for each in scope.chain:
            gate = each.slot_gate
            if gate.limit is None:
                continue
            left = gate.free - ready.get(each.key, 0)
            if left <= 0 or _ready_at_least(each, left):
                raise Rejected(
                    f"{_slots(gate.limit, _where(each))} taken or spoken for: {_what(request)} is refused",
                    check="when_busy",
                    cause=Cause.BUSY,
                )

    def _victim(self, full: Scope, request: Submission, found: Sequence[Dependencies], doomed: dict[int, Task]) -> Task:
        """Return the pending task that the newcomer displaces: of the lowest priority below its own, the newest."""
        if request.scope.limits.overflow == "displace":
            needed = graph.ancestors(task for each in found for task in (*each.after, *each.after_ended))
            for priority in sorted(full.by_priority):
                if priority >= request.priority:
                    break
                stack = full.by_priority[priority]
                while stack and not stack[-1].pending:
                    stack.pop()
                for task in reversed(stack):
                    if task.pending and task.number not in needed and task.number not in doomed:
                        return task
        raise QueueFull(
            f"{_where(full)} has {_tasks(full.pending, 'pending ')} and queue_limit is {full.limits.queue_limit}: "
            f"{_what(request)} is refused",
            check="queue_limit",
            cause=Cause.QUEUE_FULL,
        )


NO_DEPENDENCIES = Dependencies([], [])


def _ready_at_least(scope: Scope, count: int) -> bool:
    """Return whether at least ``count`` tasks below a scope are READY; looks at no more lanes than needed."""
    for each in scope.subtree():
        for lane in each.lanes.values():
            count -= len(lane)
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
        if each.state == ScopeState.SUSPENDED or (each is scope and each.state not in OPEN_SCOPE_STATES):
            raise ScopeClosed(
                f"scope {each.key!r} is {each.state}: it accepts submissions only while ATTACHED or RUNNING",
                check="scope state",
                cause=Cause.SCOPE_STATE,
            )


def _bad_name(scope: Scope, name: str) -> Exception:
    known = scope.ids.get(name)
    if known is not None:
        return _duplicate(scope, name, f"{known.state if isinstance(known, Task) else known} already")
    return ConfigError(f"task id {name!r} is not allowed: it must not be empty or begin with {GENERATED_ID_PREFIX!r}")


def _where(scope: Scope) -> str:
    return f"scope {scope.key!r}" if scope.parent else "the authority"


def _tasks(count: int, which: str = "") -> str:
    return f"{count} {which}task{'' if count == 1 else 's'}"


def _slots(count: int, where: str) -> str:
    return f"the only slot of {where} is" if count == 1 else f"all {count} slots of {where} are"


def _what(request: Submission | str) -> str:
    if isinstance(request, str):
        return request
    return f"task {request.name!r}" if request.name is not None else "the task"
