"""The kernel in virtual time: a workload runs to its end without a thread, a clock or a wait.

The virtual engine keeps the bodies that run in buckets by the moment they end. The clock jumps from instant to
instant; at each one things happen in the fixed order of rule C0: completions in start order, timers, submissions and
then ops in file order, dispatch. A simulated body obeys at once: it parks when it is asked to pause, and ends when it
is asked to abort.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from heapq import heappop, heappush
from operator import attrgetter, itemgetter
from random import Random
from typing import Any, Final

from whywait.errors import ConfigError, Rejected
from whywait.fields import Table, amounts, one_of, optional, problem, read_fields, whole
from whywait.kernel.kernel import Kernel
from whywait.kernel.lanes import Aging, Order, Strict
from whywait.kernel.model import Budget, Limits, Policy, Retry, Scope, Task, gate_order
from whywait.kernel.periodic import Periodic
from whywait.kernel.state import Cause, Outcome, TaskState
from whywait.tally import PlainTally, SimulationResult, Tally
from whywait.units import NS_PER_MS, NS_PER_S, parse_duration_ns, parse_size, shown
from whywait.workload import Op, TaskKind, Workload

__all__ = ["Simulation", "SimulationResult"]

Progress = Callable[[int, int], None]

_CHUNK: Final = 4096  # submissions, and ends, between two reports of progress
_LONGEST_BACKOFF_S: Final = 60.0
# Starvation is read from the accounts afterwards. Timers that report it would keep the clock going for ever while a
# parked body starves the rest, so they are set beyond any time that a file can name.
_BEYOND_NS: Final = 1 << 400
_STARVATION_TIMEOUT_NS: Final = 30 * NS_PER_S
_LIMITS: Final = ("slots", "queue_limit", "overflow", "when_busy", "max_spawn")
_SUCCESS: Final = Outcome.SUCCESS
_by_start = attrgetter("started_seq")


class Simulation:
    """A workload and the settings to run it under, ready to :meth:`run` in virtual time.

    ``workload`` is the dict of a workload file (or a checked :class:`~whywait.workload.Workload`). Options are those of
    the Authority and win over the file's ``config``; no environment is read. ``seed`` is where jitter starts from:
    the same workload, options and seed give the same result. ``progress(done, total)`` is called now and then.
    """

    def __init__(
        self,
        workload: Mapping[str, Any] | Workload,
        *,
        seed: int = 0,
        progress: Progress | None = None,
        **authority_options: Any,  # noqa: ANN401  each is checked against its own entry of _OPTIONS
    ) -> None:
        """Check workload and options; every problem is a ConfigError that names the place."""
        self._workload = workload if isinstance(workload, Workload) else Workload(workload)
        self._seed = seed
        self._progress = progress
        self._config = {**self._workload.config, **read_fields(_OPTIONS, authority_options, "")}
        try:
            self._order = _make_order(self._config)
            self._budget = _make_budget(self._config)
        except ConfigError as error:
            raise problem(self._workload.source, "config", str(error)) from None

    def run(self) -> SimulationResult:
        """Run the workload to its end; can be called again and gives the same."""
        workload, config, order = self._workload, self._config, self._order
        chance = Random(self._seed)
        plain = _is_plain(workload, config)
        tally = (PlainTally if plain else Tally)(workload, config.get("starvation_timeout_ns", _STARVATION_TIMEOUT_NS))
        kernel = Kernel(
            Limits(**{key: config[key] for key in _LIMITS if key in config}),
            self._budget,
            order,
            _make_policy(Policy(), config),
            backfill=config.get("backfill", "greedy"),
            starvation_timeout_ns=_BEYOND_NS,
            jitter=lambda: chance.uniform(-1.0, 1.0),
            emit=None if plain else tally.emit,
        )
        _Engine(kernel, tally, workload, self._progress).run()
        limits = {"slots": config.get("slots"), **_resource_limits(self._budget, workload)}
        waits = Counter(kernel.stats.wait_ns)
        waits.update(tally.unstarted_ns)
        return SimulationResult(tally, self._describe(), limits, waits, kernel.dispatcher.promotions)

    def _describe(self) -> dict[str, Any]:
        """Return the settings that tell this run from others."""
        order, config = self._order, self._config
        run: dict[str, Any] = {"order": "strict"}
        if isinstance(order, Aging):
            run = {"order": "aging", "every_ms": order.every * 1000, "boost": order.boost, "cap": order.cap}
        run |= {"slots": config.get("slots"), "backfill": config.get("backfill", "greedy"), "seed": self._seed}
        return run | {"from_ms": min(self._workload.at_ms, default=0)}


class _Engine:
    """The virtual engine: the clock, the bodies that run, and the agenda of the file."""

    def __init__(self, kernel: Kernel, tally: Tally, workload: Workload, progress: Progress | None) -> None:
        self._kernel = kernel
        self._tally = tally
        self._workload = workload
        self._progress = progress
        self._plain = isinstance(tally, PlainTally)
        self._done = 0  # submissions and ends, for progress
        self._times: list[int] = []  # a heap of the moments at which bodies end
        self._buckets: dict[int, list[Task]] = {}  # those that end at each, in start order
        self._ends: dict[int, int] | None = {} if any(op.do == "pause" for op in workload.ops) else None
        self._left: dict[int, int] = {}  # task number -> ns that a parked body still has to run
        self._known: dict[str, Task] = {}  # accepted tasks that somebody names
        self._accepted: set[str] | None = None if workload.unique else set()
        self._named = {op.id for op in workload.ops}
        self._named.update(*workload.after.values(), *workload.after_ended.values())
        self._scopes = _open_scopes(kernel, workload)
        self._bound = [
            (self._scopes[kind.scope or ""], kind.priority, kind.demand, self._policy(kind)) for kind in workload.kinds
        ]
        self._durations = (*workload.duration_ms, *(periodic.duration_ms for periodic in workload.periodics))
        self._failing = self._find_failing()
        self._stops = self._add_periodics()
        count = len(workload.ids)
        self._order = range(count) if workload.in_order else sorted(range(count), key=workload.at_ms.__getitem__)
        self._next_task = self._next_op = 0

    def run(self) -> None:
        """Go from instant to instant until nothing more happens."""
        kernel, tally, times, buckets = self._kernel, self._tally, self._times, self._buckets
        next_deadline, dispatch = kernel.next_deadline, kernel.dispatch
        agenda_at = self._next_on_agenda()
        while True:
            deadline = next_deadline()
            now = times[0] if times else _BEYOND_NS
            if deadline is not None and deadline < now:
                now = deadline
            if now >= _BEYOND_NS:
                break
            ms, rest = divmod(now, NS_PER_MS)
            tally.ms = now / NS_PER_MS if rest else ms
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
                self._start(now, dispatch(now))
        tally.close()

    def _next_on_agenda(self) -> int:
        """Return when the file has something to do next, and see to it that the clock stops there."""
        order, ops, stops = self._order, self._workload.ops, self._stops
        at = _BEYOND_NS
        if self._next_task < len(order):
            at = self._workload.at_ms[order[self._next_task]] * NS_PER_MS
        if self._next_op < len(ops):
            at = min(at, ops[self._next_op].at_ms * NS_PER_MS)
        if stops:
            at = min(at, stops[-1][0])
        if at < _BEYOND_NS:
            heappush(self._times, at)
        return at

    def _complete(self, now: int, bucket: list[Task]) -> bool:
        """End the bodies whose time has come; return whether there was any."""
        ended, failing = self._kernel.ended, self._failing
        # Who was cancelled or timed out before is RUNNING no more.
        tasks = bucket if self._plain else [task for task in bucket if task.state == TaskState.RUNNING]
        self._tally.end(now, tasks)
        for task in tasks:
            if failing and task.attempt <= failing.get(task.job, 0):
                ended(now, task, Outcome.ERROR, Cause.EXCEPTION)
            else:
                ended(now, task, _SUCCESS)
        if self._progress is not None:
            self._count(len(tasks))
        return bool(tasks)

    def _start(self, now: int, tasks: list[Task]) -> None:
        """Let bodies run that dispatch has permitted; this ends the instant."""
        durations, buckets, settled = self._durations, self._buckets, self._kernel.settled
        for task in tasks:
            end = now + durations[task.job] * NS_PER_MS
            if end in buckets:
                buckets[end].append(task)
            else:
                buckets[end] = [task]
                heappush(self._times, end)
        if tasks:
            self._tally.start(now, tasks)
        if self._ends is not None:
            self._ends.update((task.number, now + durations[task.job] * NS_PER_MS) for task in tasks)
        if settled:
            self._tally.settle(settled)
            settled.clear()

    def _count(self, more: int) -> None:
        """Report progress now and then."""
        before = self._done
        self._done = done = before + more
        if self._progress is not None and done // _CHUNK > before // _CHUNK:
            self._progress(done, 2 * len(self._order))

    def _stop_periodics(self, now: int) -> None:
        """Switch off the periodics that the file lets run until now; the tick that is due now comes too late."""
        while self._stops and self._stops[-1][0] == now:
            self._kernel.set_periodic_enabled(now, self._stops.pop()[1], enabled=False)

    def _arrive(self, now: int) -> None:
        """Submit the tasks of this instant, then carry out its ops, each in file order."""
        ms, ops, at_ms, order = now // NS_PER_MS, self._workload.ops, self._workload.at_ms, self._order
        first = last = self._next_task
        while last < len(order) and at_ms[order[last]] == ms:
            last += 1
        self._next_task = last
        submit = self._submit_plain if self._plain else self._submit_named
        for begin in range(first, last, _CHUNK):
            chunk = order[begin : min(begin + _CHUNK, last)]
            submit(now, chunk)
            self._count(len(chunk))
        while self._next_op < len(ops) and ops[self._next_op].at_ms == ms:
            self._apply(now, ops[self._next_op])
            self._next_op += 1

    def _submit_plain(self, now: int, indices: Sequence[int]) -> None:
        """Submit tasks without telling the kernel their ids: they are unique and nobody names them."""
        ids, kind_of, bound, submit = self._workload.ids, self._workload.kind_of, self._bound, self._kernel.submit
        for index in indices:
            scope, priority, demand, policy = bound[kind_of[index]]
            try:
                submit(now, scope, None, priority, demand, (), (), policy, index)
            except Rejected as refusal:
                self._tally.refuse(ids[index], refusal)

    def _submit_named(self, now: int, indices: Sequence[int]) -> None:
        """Submit tasks that depend on others, or that others may name: ids are global, over all scopes."""
        for index in indices:
            self._submit_one(now, index)

    def _submit_one(self, now: int, index: int) -> None:
        workload, known, accepted = self._workload, self._known, self._accepted
        name = workload.ids[index]
        if accepted is not None and name in accepted:
            self._tally.reject(name, Cause.DUPLICATE)
            return
        try:
            after = [known[other] for other in workload.after.get(index, ())]
            after_ended = [known[other] for other in workload.after_ended.get(index, ())]
        except KeyError:  # not submitted yet, or refused
            self._tally.reject(name, Cause.UNKNOWN_DEPENDENCY)
            return
        scope, priority, demand, policy = self._bound[workload.kind_of[index]]
        try:
            task = self._kernel.submit(now, scope, name, priority, demand, after, after_ended, policy, index)
        except Rejected as refusal:
            self._tally.refuse(name, refusal)
            return
        if name in self._named:
            known[name] = task
        if accepted is not None:
            accepted.add(name)
            if task.outcome is None:
                self._tally.final[name] = "pending"  # an earlier task of this id was refused

    def _apply(self, now: int, op: Op) -> None:
        """Carry out an op; one that does not apply changes nothing."""
        task = self._known.get(op.id)
        if task is None:
            return
        kernel, task = self._kernel, task.latest()
        if op.do == "cancel":
            kernel.cancel(now, task)
        elif op.do == "pause":
            kernel.pause(now, task)
        elif task.state == TaskState.PAUSED:
            kernel.resume(now, task)
        self._obey(now)

    def _obey(self, now: int) -> None:
        """Do what the kernel has asked of bodies, at once."""
        kernel, requests = self._kernel, self._kernel.requests
        for verb, task in requests:
            if verb == "abort":
                self._left.pop(task.number, None)
                self._tally.end(now, [task])
                self._count(1)
                kernel.ended(now, task, _SUCCESS)  # the kernel knows better: it has asked
            elif verb == "pause":
                self._park(now, task)
            else:
                self._go_on(now, task)
        requests.clear()

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
        return _make_policy(self._scopes[kind.scope or ""].policy, dict(kind.policy)) if kind.policy else None

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
            periodic = self._kernel.add_periodic(
                0,
                self._scopes[spec.kind.scope or ""],
                spec.every_ms * NS_PER_MS,
                spec.id,
                overlap=spec.overlap,
                max_parallel=spec.max_parallel,
                jitter=spec.jitter,
                enabled=spec.enabled,
                priority=spec.kind.priority,
                demand=spec.kind.demand,
                disable_after=spec.disable_after,
                job=first + index,
            )
            stops.append((spec.until_ms * NS_PER_MS, periodic))
        stops.sort(key=itemgetter(0), reverse=True)
        return stops


def _is_plain(workload: Workload, config: Mapping[str, Any]) -> bool:
    """Return whether tasks can only be refused, start and succeed."""
    settings = (config, *workload.scopes.values())
    return (
        workload.unique
        and not (workload.after or workload.after_ended or workload.ops or workload.periodics)
        and not any(kind.policy or kind.fails for kind in workload.kinds)
        and not any(each.get("timeout_ns") or each.get("max_wait_ns") is not None for each in settings)
        and not any(each.get("overflow") == "displace" for each in settings)
    )


def _open_scopes(kernel: Kernel, workload: Workload) -> dict[str, Scope]:
    """Open the scopes of the config, and those that tasks name besides without limits, by key."""
    scopes = {"": kernel.root}
    for key, fields in workload.scopes.items():
        parent = scopes[fields.get("parent") or ""]
        inherited = {"overflow": parent.limits.overflow, "when_busy": parent.limits.when_busy}
        limits = Limits(**inherited | {name: fields[name] for name in _LIMITS if name in fields})
        scopes[key] = kernel.open_scope(0, key, parent, limits, _make_policy(parent.policy, fields))
    root = kernel.root.limits
    for kind in (*workload.kinds, *(periodic.kind for periodic in workload.periodics)):
        if kind.scope is not None and kind.scope not in scopes:
            limits = Limits(overflow=root.overflow, when_busy=root.when_busy)
            scopes[kind.scope] = kernel.open_scope(0, kind.scope, None, limits)
    return scopes


def _make_order(config: Mapping[str, Any]) -> Order:
    chosen = config.get("order", "aging")
    if isinstance(chosen, Strict | Aging):
        return chosen
    if chosen == "strict":
        return Strict()
    return Aging(config.get("every_ms", 5000) / 1000, config.get("boost", 10), config.get("cap", 100))


def _make_budget(config: Mapping[str, Any]) -> Budget:
    hard = {"cpu": config.get("cpu"), **config.get("resources", {})}
    soft = {"ram": config.get("ram"), "vram": config.get("vram"), **config.get("soft", {})}
    return Budget(
        {name: amount for name, amount in hard.items() if amount is not None},
        {name: amount for name, amount in soft.items() if amount is not None},
    )


def _make_policy(base: Policy, given: Mapping[str, Any]) -> Policy:
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


def _resource_limits(budget: Budget, workload: Workload) -> dict[str, int | None]:
    """Return the limit of every resource that is limited or used, None for those without."""
    limits: dict[str, int | None] = {**budget.hard, **budget.soft}
    demands = {kind.demand for kind in (*workload.kinds, *(periodic.kind for periodic in workload.periodics))}
    names = sorted({name for demand in demands for name, _ in demand} | set(limits), key=gate_order)
    return {name: limits.get(name) for name in names}


def _check_order(value: object) -> Order | str:
    if isinstance(value, Strict | Aging):
        return value
    if isinstance(value, str) and value in {"strict", "aging"}:
        return value
    raise ConfigError(f'{shown(value)} is not an order: expected Strict(...), Aging(...), "strict" or "aging"')


def _check_retry(value: object) -> Retry | int:
    if isinstance(value, Retry) or (isinstance(value, int) and not isinstance(value, bool) and value >= 0):
        return value
    raise ConfigError(f"{shown(value)} is not allowed: expected an int >= 0 or Retry(...)")


def _ignored(value: object) -> None:
    """Accept anything: bodies obey at once, so how long one would wait for them is no setting here."""


_OPTIONS: Final[Table] = {
    "slots": ("slots", optional(whole(1))),
    "cpu": ("cpu", optional(whole(0))),
    "ram": ("ram", optional(parse_size)),
    "vram": ("vram", optional(parse_size)),
    "resources": ("resources", amounts),
    "soft": ("soft", amounts),
    "order": ("order", _check_order),
    "backfill": ("backfill", one_of("greedy", "none")),
    "queue_limit": ("queue_limit", optional(whole(0))),
    "overflow": ("overflow", one_of("reject", "displace")),
    "when_busy": ("when_busy", one_of("queue", "reject")),
    "max_wait": ("max_wait_ns", optional(parse_duration_ns)),
    "retry": ("retry", _check_retry),
    "timeout": ("timeout_ns", optional(parse_duration_ns)),
    "starvation_timeout": ("starvation_timeout_ns", parse_duration_ns),
    "pause_timeout": ("pause_timeout", _ignored),
    "grace": ("grace", _ignored),
    "engine": ("engine", _ignored),
}
