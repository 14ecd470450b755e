"""The virtual engine: bodies that take no time but the time of the file.

Bodies that run are kept in buckets by the moment they end. The clock jumps from instant to instant; at each one
things happen in the fixed order of rule C0: completions in start order, timers, submissions and then ops in file
order, dispatch. A simulated body obeys at once: it parks when it is asked to pause, and ends when it is asked to abort.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from heapq import heappop, heappush
from operator import attrgetter, itemgetter
from typing import Any, Final

from whywait.errors import Infeasible, Rejected
from whywait.kernel.base import Decision
from whywait.kernel.kernel import Kernel
from whywait.kernel.limits import MOST_NS, Limits, Policy, Retry
from whywait.kernel.model import Scope, Task
from whywait.kernel.periodic import Periodic
from whywait.kernel.state import Cause, Outcome, ScopeState, TaskState
from whywait.options import LOAD_SCOPE, make_limits, table
from whywait.simulation.tally import Tally
from whywait.simulation.workload import Op, TaskKind, Workload
from whywait.support.units import NS_PER_S, in_ms

Progress = Callable[[int, int], None]

# Starvation is read from the accounts afterwards. Timers that report it would keep the clock going for ever while a
# parked body starves the rest, so they are set beyond any time that a run may come to.
BEYOND_NS: Final = 2 * MOST_NS
SCOPE_OPS: Final = ("suspend", "resume_scope")  # of recorded runs: a file knows only those on tasks
LIMIT_OPS: Final = ("resize", "set_units")  # the same
LIMITS: Final = tuple(each.name for each in fields(Limits) if each.name in table(LOAD_SCOPE))

TOO_LATE_NS: Final = MOST_NS + 1  # for all that is later: it is refused when the clock comes to it
_NEVER_NS: Final = BEYOND_NS  # this and the next: the same for compiled code
_LAST_NS: Final = MOST_NS
_CHUNK: Final = 4096  # submissions, and ends, between two reports of progress
_LONGEST_BACKOFF_S: Final = 60.0
_SUCCESS: Final = Outcome.SUCCESS
_RUNNING: Final = TaskState.RUNNING
_by_start = attrgetter("started_seq")


class VirtualEngine:
    """The virtual engine: the clock, the bodies that run, and the agenda of the file."""

    __slots__ = (
        "_accepted",
        "_bound",
        "_buckets",
        "_done",
        "_durations",
        "_ends",
        "_failing",
        "_fixed",
        "_kernel",
        "_known",
        "_left",
        "_named",
        "_next_op",
        "_next_task",
        "_order",
        "_progress",
        "_scopes",
        "_stops",
        "_tally",
        "_times",
        "_unit_ns",
        "_workload",
    )

    def __init__(
        self,
        kernel: Kernel,
        tally: Tally,
        workload: Workload,
        progress: Progress | None,
        fixed: frozenset[str] = frozenset(),
    ) -> None:
        """Prepare a run; ``fixed`` are limits that do not change, whatever a record says."""
        self._kernel = kernel
        self._fixed = fixed
        self._tally = tally
        self._workload = workload
        self._progress = progress
        self._done = 0  # submissions and ends, for progress
        self._times: list[int] = []  # a heap of the moments at which bodies end
        self._buckets: dict[int, list[Task]] = {}  # those that end at each, in start order
        self._ends: dict[int, int] | None = {} if any(op.do == "pause" for op in workload.ops) else None
        self._left: dict[int, int] = {}  # task number -> ns that a parked body still has to run
        self._known: dict[str, Task] = {}  # accepted tasks that another entry names
        self._accepted: set[str] | None = None if workload.unique else set()
        self._named = {op.id for op in workload.ops}
        self._named.update(*workload.after.values(), *workload.after_ended.values())
        self._scopes = _open_scopes(kernel, workload)
        self._bound = [
            (self._scopes[kind.scope or ""], kind.priority, kind.demand, self._policy(kind), kind.slot)
            for kind in workload.kinds
        ]
        self._unit_ns = workload.unit_ns
        self._durations = (*workload.duration_ms, *(periodic.duration_ms for periodic in workload.periodics))
        self._failing = self._find_failing()
        self._stops = self._add_periodics()
        count = len(workload.ids)
        self._order = range(count) if workload.in_order else sorted(range(count), key=workload.at_ms.__getitem__)
        self._next_task = self._next_op = 0
        while self._next_op < len(workload.ops) and workload.ops[self._next_op].at_ms < 0:  # before the first task came
            self._apply(0, workload.ops[self._next_op])
            self._next_op += 1

    def run(self) -> None:
        """Go from instant to instant until nothing more happens."""
        kernel, tally, times, buckets = self._kernel, self._tally, self._times, self._buckets
        next_deadline, dispatch = kernel.next_deadline, kernel.dispatch
        agenda_at = self._next_on_agenda()
        while True:
            deadline = next_deadline()
            now = times[0] if times else _NEVER_NS
            if deadline is not None and deadline < now:
                now = deadline
            if now > _LAST_NS:
                self._check_end(now)
                break
            tally.ms = in_ms(now)
            while times and times[0] == now:
                heappop(times)
            due = now == agenda_at
            if now in buckets and self._complete(now, buckets.pop(now)):
                due = True
            if due and self._stops:
                self._stop_periodics(now)
            if deadline == now:
                due = True
                kernel.fire(now)
                self._obey(now)
            if now == agenda_at:
                self._arrive(now)
                agenda_at = self._next_on_agenda()
            if due:
                self._carry_out(now, dispatch(now))

    def _check_end(self, now: int) -> None:
        """Refuse a run that is not over by the last moment that can be counted."""
        if self._times or now < _NEVER_NS:
            raise self._workload.problem(("tasks",), "the run takes more than 73 years: use shorter times")

    def _next_on_agenda(self) -> int:
        """Return when the file has something to do next, and see to it that the clock stops there."""
        order, ops, stops, unit_ns = self._order, self._workload.ops, self._stops, self._unit_ns
        at = _NEVER_NS
        if self._next_task < len(order):
            at = min(self._workload.at_ms[order[self._next_task]] * unit_ns, TOO_LATE_NS)
        if self._next_op < len(ops):
            at = min(at, ops[self._next_op].at_ms * unit_ns)
        if stops:
            at = min(at, stops[len(stops) - 1][0])
        if at != _NEVER_NS:
            heappush(self._times, at)
        return at

    def _complete(self, now: int, bucket: list[Task]) -> bool:
        """End the bodies that are due; return whether there was any."""
        ended, failing = self._kernel.ended, self._failing
        tasks = [task for task in bucket if task.state is _RUNNING]  # no more, if aborted before
        for task in tasks:
            if failing and task.attempt <= failing.get(task.job, 0):
                ended(now, task, Outcome.ERROR, Cause.EXCEPTION)
            else:
                ended(now, task, _SUCCESS)
        if self._kernel.requests:
            self._obey(now)
        if self._progress is not None:
            self._count(len(tasks))
        return bool(tasks)

    def _carry_out(self, now: int, decision: Decision) -> None:
        """Let bodies run that dispatch has permitted; this ends the instant."""
        if decision.settled:
            self._tally.settle(decision.settled)
        tasks = decision.started
        if not tasks:
            return
        durations, buckets = self._durations, self._buckets
        attempts, unit_ns, ends = self._workload.attempts, self._unit_ns, self._ends
        for task in tasks:
            duration = durations[task.job]
            if attempts and task.job in attempts:
                of_each = attempts[task.job]
                duration = of_each[min(task.attempt, len(of_each)) - 1]
            end = min(now + duration * unit_ns, TOO_LATE_NS)
            if ends is not None:
                ends[task.number] = end
            if end in buckets:
                buckets[end].append(task)
            else:
                buckets[end] = [task]
                heappush(self._times, end)
        self._tally.start(tasks, self._kernel)

    def _count(self, more: int) -> None:
        """Report progress now and then."""
        before = self._done
        self._done = done = before + more
        if self._progress is not None and done // _CHUNK > before // _CHUNK:
            self._progress(done, 2 * len(self._order))

    def _stop_periodics(self, now: int) -> None:
        """Switch off the periodics that the file lets run until now; the tick that is due now comes too late."""
        while self._stops and self._stops[len(self._stops) - 1][0] == now:
            self._kernel.set_periodic_enabled(now, self._stops.pop()[1], enabled=False)

    def _arrive(self, now: int) -> None:
        """Submit the tasks of this instant, then carry out its ops, each in file order."""
        ms, ops, at_ms, order = now // self._unit_ns, self._workload.ops, self._workload.at_ms, self._order
        while self._next_task < len(order) and at_ms[order[self._next_task]] == ms:
            self._submit(now, order[self._next_task])
            self._next_task += 1
            if self._progress is not None:
                self._count(1)
        while self._next_op < len(ops) and ops[self._next_op].at_ms == ms:
            self._apply(now, ops[self._next_op])
            self._next_op += 1

    def _submit(self, now: int, index: int) -> None:
        """Submit a task of the file; ids are global, over all scopes."""
        workload, known, accepted = self._workload, self._known, self._accepted
        name = workload.ids[index]
        if accepted is not None and name in accepted:
            self._reject(name, Cause.DUPLICATE)
            return
        try:
            after = [known[other] for other in workload.after.get(index, ())]
            after_ended = [known[other] for other in workload.after_ended.get(index, ())]
        except KeyError:  # not submitted yet, or refused
            self._reject(name, Cause.UNKNOWN_DEPENDENCY)
            return
        scope, priority, demand, policy, slot = self._bound[workload.kind_of[index]]
        try:
            task = self._kernel.submit(now, scope, name, priority, demand, after, after_ended, policy, slot, index)
        except Rejected:  # its event has come
            return
        if name in self._named:
            known[name] = task
        if accepted is not None:
            accepted.add(name)
            if task.outcome is None:
                self._tally.final[name] = "pending"  # an earlier task of this id was refused

    def _reject(self, name: str, cause: str) -> None:
        self._kernel.stats.count_rejection(cause)
        self._tally.reject(name, cause)

    def _apply(self, now: int, op: Op) -> None:
        """Carry out an op; one that does not apply changes nothing."""
        if op.do in SCOPE_OPS:
            self._apply_to_scope(now, op)
            return
        if op.do in LIMIT_OPS:
            self._apply_to_limit(now, op)
            return
        task = self._known.get(op.id)
        if task is None:
            return
        kernel = self._kernel
        if op.do == "cancel":
            kernel.cancel(now, task)
        elif op.do == "pause":
            kernel.pause(now, task)
        elif task.state == TaskState.PAUSED:
            kernel.resume(now, task)
        self._obey(now)

    def _apply_to_limit(self, now: int, op: Op) -> None:
        if op.id in self._fixed:
            return
        if op.do == "set_units":
            self._kernel.set_units(now, op.id, op.value)
        else:
            self._kernel.resize(now, op.id, op.value, soft=op.soft)

    def _apply_to_scope(self, now: int, op: Op) -> None:
        scope = self._scopes[op.id]
        if op.do == "suspend" and scope.state == ScopeState.RUNNING:
            self._kernel.suspend(now, scope)
        elif op.do == "resume_scope" and scope.state == ScopeState.SUSPENDED:
            self._kernel.resume_scope(now, scope)

    def _obey(self, now: int) -> None:
        """Do what the kernel has asked of bodies, at once."""
        kernel = self._kernel
        if not kernel.requests:
            return
        decision = Decision()
        kernel.hand_over(decision)
        for verb, task in decision.requests:
            if task.outcome is not None:
                continue  # it has ended at this very instant
            if verb == "abort":
                self._left.pop(task.number, None)
                kernel.ended(now, task, Outcome.SUCCESS)  # the kernel knows better: it has asked
            elif verb == "pause":
                self._park(now, task)
            else:
                self._go_on(now, task)
        self._tally.settle(decision.settled)

    def _park(self, now: int, task: Task) -> None:
        ends = self._ends
        assert ends is not None, "only an op asks a body to pause"
        end = ends[task.number]
        self._buckets[end].remove(task)
        self._left[task.number] = end - now
        self._kernel.parked(now, task)

    def _go_on(self, now: int, task: Task) -> None:
        """Let a parked body run the time it has left."""
        ends = self._ends
        assert ends is not None, "only an op asks a body to go on"
        end = ends[task.number] = now + self._left.pop(task.number)
        bucket = self._buckets.get(end)
        if bucket is None:
            self._buckets[end] = [task]
            heappush(self._times, end)
        else:
            bucket.append(task)
            bucket.sort(key=_by_start)  # it may have started before those that end with it

    def _policy(self, kind: TaskKind) -> Policy | None:
        """Return what tasks of this kind run under; None if it is just what their scope gives them."""
        return make_policy(self._scopes[kind.scope or ""].policy, dict(kind.policy)) if kind.policy else None

    def _find_failing(self) -> dict[int, int]:
        """Return how many attempts of each task fail, of those that fail at all."""
        workload = self._workload
        fails = [kind.fails for kind in workload.kinds]
        failing = (
            {index: fails[kind] for index, kind in enumerate(workload.kind_of) if fails[kind]} if any(fails) else {}
        )
        first = len(workload.ids)
        return failing | {
            first + index: each.kind.fails for index, each in enumerate(workload.periodics) if each.kind.fails
        }

    def _add_periodics(self) -> list[tuple[int, Periodic]]:
        """Add the file's periodics; return when each is switched off, the last one first."""
        first = len(self._workload.ids)
        stops = []
        for index, spec in enumerate(self._workload.periodics):
            try:
                periodic = self._kernel.add_periodic(
                    0,
                    self._scopes[spec.kind.scope or ""],
                    spec.every_ns,
                    spec.id,
                    overlap=spec.overlap,
                    max_parallel=spec.max_parallel,
                    jitter=spec.jitter,
                    enabled=spec.enabled,
                    priority=spec.kind.priority,
                    demand=spec.kind.demand,
                    slot=spec.kind.slot,
                    disable_after=spec.disable_after,
                    job=first + index,
                )
            except Infeasible as error:
                raise self._workload.problem(("periodics", index), str(error)) from None
            stops.append((spec.until_ms * self._unit_ns, periodic))
        stops.sort(key=itemgetter(0), reverse=True)
        return stops


def _open_scopes(kernel: Kernel, workload: Workload) -> dict[str, Scope]:
    """Open the scopes of the config, and those that tasks name besides without limits, by key."""
    scopes = {"": kernel.root}
    for key, options in workload.scopes.items():
        parent = scopes[options.get("parent") or ""]
        limits = make_limits(options, parent.limits)
        scopes[key] = kernel.open_scope(0, key, parent, limits, make_policy(parent.policy, options))
    for kind in (*workload.kinds, *(periodic.kind for periodic in workload.periodics)):
        if kind.scope is not None and kind.scope not in scopes:
            scopes[kind.scope] = kernel.open_scope(0, kind.scope, None, make_limits({}, kernel.root.limits))
    return scopes


def make_policy(base: Policy, given: Mapping[str, Any]) -> Policy:
    """Return the policy with what is given in place of what is inherited."""
    retry = base.retry or Retry(0)
    times = given.get("retry", retry.times)
    retry = times if isinstance(times, Retry) else replace(retry, times=times or 0)
    if "backoff_ns" in given:
        backoff = given["backoff_ns"] / NS_PER_S
        retry = replace(retry, backoff=backoff, max_backoff=max(backoff, _LONGEST_BACKOFF_S))
    return Policy(
        given.get("timeout_ns", base.timeout_ns),
        retry,
        given.get("max_wait_ns", base.max_wait_ns),
    )
