"""The one door: commands and a time in, decisions and events out.

The owner calls commands with the present time in integer nanoseconds, never earlier than in the call before. No
command starts anything by itself: after the commands of one instant the owner calls :meth:`Kernel.dispatch` once,
starts what it returns, carries out ``requests`` and looks at ``settled``. The order within one instant is:
completions, :meth:`Kernel.fire`, submissions, other commands, :meth:`Kernel.dispatch`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from whywait.errors import ConfigError, InvalidTransition, QueueFull, Rejected, UnknownTask
from whywait.kernel import limits as limits_of
from whywait.kernel import scopes
from whywait.kernel.events import Details, Kind, RawEvent, outcome_details
from whywait.kernel.lanes import Aging, Order
from whywait.kernel.life import BACKOFF, PAUSE, Life
from whywait.kernel.model import (
    GENERATED_ID_PREFIX,
    Budget,
    Demand,
    Limits,
    Policy,
    Priority,
    Scope,
    Submission,
    Task,
    name_splits,
)
from whywait.kernel.periodic import Periodic
from whywait.kernel.periodics import TICK
from whywait.kernel.repair import repair
from whywait.kernel.shortcuts import Shortcuts
from whywait.kernel.starvation import STARVE
from whywait.kernel.state import Cause, Outcome, ScopeState, TaskState, Wait, task_step
from whywait.kernel.timers import RUN_TIMEOUT

if TYPE_CHECKING:
    from whywait.kernel.snapshot import Snapshot
    from whywait.kernel.why import Why

CANCELLED_DETAILS: Final = (("cause", Cause.CANCELLED),)
_DEFAULT_LIMITS = Limits()
_DEFAULT_BUDGET = Budget()
_DEFAULT_POLICY = Policy()


class Kernel:
    """The deterministic scheduling core."""

    def __init__(
        self,
        limits: Limits = _DEFAULT_LIMITS,
        budget: Budget = _DEFAULT_BUDGET,
        order: Order | None = None,
        policy: Policy = _DEFAULT_POLICY,
        *,
        backfill: str = "greedy",
        pause_timeout_ns: int = 1_500_000_000,
        starvation_timeout_ns: int = 30_000_000_000,
        jitter: Callable[[], float] = float,
        emit: Callable[[RawEvent], None] | None = None,
    ) -> None:
        """Make an empty kernel; ``jitter`` gives numbers from -1 to 1, ``emit`` takes each event."""
        if backfill not in ("greedy", "none"):
            raise ConfigError(f"backfill {backfill!r} is not allowed: use one of greedy, none")
        self._life = life = Life(
            limits,
            budget,
            order if order is not None else Aging(),
            policy,
            greedy=backfill == "greedy",
            pause_timeout_ns=pause_timeout_ns,
            starvation_timeout_ns=starvation_timeout_ns,
            jitter=jitter,
            emit=emit,
        )
        self.root = life.root
        self.scopes = life.scopes  # living ones by key
        self.running = life.running  # slot holders in start order, by number
        self.resources = life.resources  # the budget's gates by name
        self.requests = life.requests  # (verb, task) for the engines: abort, pause, resume
        self.settled = life.settled  # tasks that ended otherwise than by their own `ended`
        self.stats = life.stats
        self.starvation_timeout_ns = starvation_timeout_ns
        self.dispatcher = life.dispatcher
        self.timers = life.timers
        self.expiries = life.expiries
        shortcuts = Shortcuts(life)
        self.enter = shortcuts.enter
        self.pass_on = shortcuts.pass_on
        self.queue = shortcuts.queue

    # Scopes

    def open_scope(
        self,
        now: int,
        key: str,
        parent: Scope | None = None,
        limits: Limits = _DEFAULT_LIMITS,
        policy: Policy | None = None,
        *,
        mount: bool = True,
    ) -> Scope:
        """Make a scope below ``parent`` (default: the authority itself); with ``mount`` it accepts tasks at once."""
        return scopes.open_scope(self._life, now, key, parent or self.root, limits, policy, mount=mount)

    def mount(self, now: int, scope: Scope) -> None:
        """Let a new scope accept tasks."""
        scopes.mount_scope(self._life, now, scope)

    def suspend(self, now: int, scope: Scope) -> None:
        """Keep everything pending of a scope, and of the scopes below it, from starting."""
        scopes.suspend(self._life, now, scope)

    def resume_scope(self, now: int, scope: Scope) -> None:
        """Lift a suspension."""
        scopes.resume(self._life, now, scope)

    def dispose(self, now: int, scope: Scope) -> None:
        """End everything inside a scope; it is DISPOSED when the last body has ended. Idempotent."""
        scopes.dispose(self._life, now, scope)

    def resize(self, now: int, name: str, limit: int, *, soft: bool = False) -> None:
        """Change how many slots (``slot``) or how much of a resource there is; what runs goes on.

        A resource that the budget did not have is added, hard unless ``soft``.
        """
        limits_of.resize(self._life, now, name, limit, soft=soft)

    # Tasks

    def submit(
        self,
        now: int,
        scope: Scope,
        name: str | None = None,
        priority: int = Priority.NORMAL,
        demand: Demand = (),
        after: Sequence[Task | str] = (),
        after_ended: Sequence[Task | str] = (),
        policy: Policy | None = None,
        job: Any = None,  # noqa: ANN401 - opaque: belongs to whoever submits
    ) -> Task:
        """Take a task in, QUEUED or READY; a refusal raises and leaves everything as it was."""
        if priority.__class__ is int and not after_ended:  # 50.0 and True would find the lanes of 50 and 1
            key = (priority, demand)
            if after:
                task = self.queue(now, scope, job, after, key, name, policy)
            else:
                task = self.enter(now, scope, job, key, name, policy)
            if task is not None:
                return task
        request = Submission(scope, name, priority, demand, tuple(after), tuple(after_ended), policy, job)
        life = self._life
        try:
            found = life.admission.check(request)
            victims = life.admission.make_room((request,), (found,)) if request.scope.limited else None
        except (Rejected, ConfigError) as error:
            self._refused(now, request, error)
            raise
        if victims:
            life.displace(now, victims)
        task = life.register(now, request)
        life.place(now, task, found)
        return task

    def submit_many(self, now: int, requests: Sequence[Submission]) -> list[Task]:
        """Take a batch in, all or nothing; its tasks may name each other in any order."""
        life = self._life
        admission = life.admission
        try:
            found = admission.check_batch(requests)
            limited = any(request.scope.limited for request in requests)
            victims = admission.make_room(requests, found) if limited else []
        except (Rejected, ConfigError) as error:
            self._refused(now, admission.looking_at, error)
            raise
        life.displace(now, victims)
        tasks = [life.register(now, request) for request in requests]
        by_name = {(task.scope, task.name): task for task in tasks if task.name is not None}
        for task, dependencies in zip(tasks, found, strict=True):
            dependencies.after.extend(by_name[mate] for mate in dependencies.batch_after)
            dependencies.after_ended.extend(by_name[mate] for mate in dependencies.batch_after_ended)
            life.place(now, task, dependencies)
        return tasks

    def ended(  # noqa: C901 - one piece for speed: it runs once for every task
        self,
        now: int,
        task: Task,
        outcome: str,
        cause: str | None = None,
        retryable: bool = True,  # noqa: FBT001, FBT002 - the hot path
    ) -> Task | None:
        """Record that a body has really ended; return the new task if it is retried."""
        life = self._life
        led_by = task.started_seq
        wanted_paused = False
        if task.state != TaskState.RUNNING:
            wanted_paused = task.state == TaskState.PAUSED
            if not task.holds_slot:
                raise InvalidTransition(f"task {task.id} is {task.state} and holds no slot: its body cannot end")
            if task.abort is not None:
                outcome, cause, led_by = task.abort
        scope, number = task.scope, task.number
        life.dispatcher.release(now, task)
        del life.running[number]
        scope.running -= 1
        if not task.plain or task.policy.timeout_ns is not None:
            wanted_paused = wanted_paused or task.pause_timer is not None
            life.forget_run_timers(task)
        task.state = TaskState.DISPOSED
        task.since = now
        if cause is not None:
            task.cause = cause
        life.seq = life.trigger = seq = life.seq + 1
        if life.emit is not None:
            kind = Kind.TASK_CANCELLED if outcome == Outcome.ABORTED else Kind.TASK_FINISHED
            details = outcome_details(outcome, cause)
            life.emit((seq, now, kind, scope.key, number, task.name, led_by, details))
        if outcome == Outcome.ERROR and retryable:
            retry = task.policy.retry
            if retry is not None and task.attempt <= retry.times:
                new = life.retry(now, task, seq)
                if wanted_paused:
                    self.pause(now, new)
                return new
        life.unregister(now, task, outcome)
        if task.successors is not None or not task.plain:
            life.tell_dependents(now, task, seq)
        if scope.state == ScopeState.DISPOSING:
            life.finish_disposal(now, scope, seq)
        return None

    def turn(
        self,
        now: int,
        task: Task,
        outcome: str,
        cause: str | None = None,
        retryable: bool = True,  # noqa: FBT001, FBT002 - the hot path
    ) -> tuple[Task | None, list[Task]]:
        """Do :meth:`ended` and then :meth:`dispatch`: what a worker does between two tasks."""
        if outcome == Outcome.SUCCESS:
            new = self.pass_on(now, task)
            if new is not None:
                started = [new]
                return None, self.dispatch(now, started) if self.dispatcher.slots.free > 0 else started
        return self.ended(now, task, outcome, cause, retryable), self.dispatch(now)

    def following(self, now: int, task: Task, most: int) -> list[Task]:
        """Return who starts next in the lane of a running task if nothing changes, at most so many, in order."""
        return self.dispatcher.following(now, task, most)

    def hand_on(
        self,
        now: int,
        task: Task,
        outcome: str,
        cause: str | None,
        retryable: bool,  # noqa: FBT001 - as in ended
        heir: Task,
        *,
        heir_runs: bool,
    ) -> tuple[Task | None, bool]:
        """Do :meth:`ended`, and let a certain READY task have the slot, which it was promised when it was next in line.

        An heir whose body still runs there has it whoever has come since; else it has it if its lane is still next.
        Return the new task if it is retried, and whether the heir has started: it may be gone, paused or held up.
        """
        retried = self.ended(now, task, outcome, cause, retryable)
        dispatcher = self.dispatcher
        if heir.state != TaskState.READY or not (heir_runs or dispatcher.next_lane(now) is heir.lane):
            return retried, False
        if not dispatcher.start_given(now, heir):
            return retried, False
        self._started(now, [heir])
        return retried, True

    def parked(self, now: int, task: Task) -> None:
        """Record that a body has parked at a checkpoint."""
        life = self._life
        if task.state != TaskState.RUNNING:
            return  # an abort came first
        if task.pause_timer is None:
            self.requests.append(("resume", task))  # the pause was withdrawn meanwhile
            return
        life.timers.cancel(task.pause_timer)
        task.pause_timer = None
        task.state = task_step(task.state, "park", TaskState.PAUSED, task.id)
        task.paused_from = TaskState.RUNNING
        task.parked_since = now
        life.event(now, Kind.TASK_PAUSED, task, None, (("from", TaskState.RUNNING),))

    def note(self, now: int, task: Task, kind: str, details: Details) -> None:
        """Record what happened to a handler, a worker or a stream of a task; it changes nothing else."""
        self._life.event(now, kind, task, task.started_seq or None, details)

    def pause(self, now: int, task: Task) -> None:
        """Pause a pending task at once, ask a running one to park; nothing else changes anything."""
        life = self._life
        state = task.state
        if state == TaskState.RUNNING:
            if task.pause_timer is None:
                task.pause_timer = life.timers.add(now + life.pause_timeout_ns, PAUSE, task)
                task.plain = False
                self.requests.append(("pause", task))
                life.event(now, Kind.TASK_PAUSE_ASKED, task, None)
        elif state == TaskState.READY:
            self.dispatcher.leave(now, task)
            task.waited = task.waits  # in full: it will be READY again in another epoch and segment
            life.cancel_wait_timer(task, life.expiries)
            self._pause_pending(now, task)
        elif state == TaskState.QUEUED:
            task.add_wait(task.held_by or Wait.DEPENDENCY, now - task.since)
            self._pause_pending(now, task)

    def resume(self, now: int, task: Task) -> None:
        """Bring a paused task back to where it was; a pause that was only asked for is withdrawn."""
        life = self._life
        if task.state == TaskState.RUNNING and task.pause_timer is not None:
            life.timers.cancel(task.pause_timer)
            task.pause_timer = None
            self.requests.append(("resume", task))
            life.event(now, Kind.TASK_RESUMED, task, None, (("to", TaskState.RUNNING),))
            return
        if task.state != TaskState.PAUSED:
            raise InvalidTransition(f"task {task.id} is {task.state}, not PAUSED: there is nothing to resume")
        if task.paused_from == TaskState.RUNNING:
            task.state = task_step(task.state, "resume", TaskState.RUNNING, task.id)
            task.paused_from = task.parked_since = None
            self.requests.append(("resume", task))
            life.event(now, Kind.TASK_RESUMED, task, None, (("to", TaskState.RUNNING),))
            return
        task.add_wait(Wait.PAUSED, now - task.since)
        task.since = now
        to = TaskState.QUEUED if task.unmet else TaskState.READY
        task.state = task_step(task.state, "resume", to, task.id)
        task.paused_from = None
        if not task.unmet:
            life.make_ready(now, task)
        life.trigger = life.event(now, Kind.TASK_RESUMED, task, None, (("to", to),))

    def cancel(self, now: int, task: Task) -> None:
        """End a pending task at once, ask a running one to abort; idempotent."""
        life = self._life
        if task.state == TaskState.READY and task.plain and task.successors is None:
            self.dispatcher.leave(now, task)
            life.end_alone(now, task, Outcome.ABORTED, Cause.CANCELLED, CANCELLED_DETAILS, None)
        elif task.pending:
            life.end_with_dependents(now, task, Outcome.ABORTED, Cause.CANCELLED)
        elif task.holds_slot and task.abort is None:
            life.abort(now, task, Outcome.ABORTED, Cause.CANCELLED)

    # Periodics

    def add_periodic(
        self,
        now: int,
        scope: Scope,
        interval_ns: int,
        name: str | None = None,
        *,
        immediately: bool = False,
        **settings: Any,  # noqa: ANN401 - those of Periodic
    ) -> Periodic:
        """Add a periodic task to a scope; its first tick is one interval from now, or now if ``immediately``."""
        life = self._life
        return life.periodics.add(now, scope, interval_ns, name, immediately=immediately, **settings)

    def set_periodic_enabled(self, now: int, periodic: Periodic, enabled: bool, *, immediately: bool = False) -> None:  # noqa: FBT001 - the setting itself
        """Switch a periodic on (from the next tick, or now if ``immediately``) or off."""
        life = self._life
        life.periodics.set_enabled(now, periodic, enabled=enabled, immediately=immediately)

    def find_periodic(self, name: str) -> Periodic:
        """Return the periodic of a name; ``scope/name`` where several scopes have one."""
        for key, rest in name_splits(name):
            if key in self.scopes and rest in self.scopes[key].periodics:
                return self.scopes[key].periodics[rest]
        hits = [scope for scope in self.scopes.values() if name in scope.periodics]
        if len(hits) > 1:
            keys = ", ".join(f"{scope.key}/{name}" for scope in hits)
            raise UnknownTask(f"periodic id {name!r} is ambiguous: write one of {keys}")
        if not hits:
            known = ", ".join(f"{scope.key}/{each}" for scope in self.scopes.values() for each in scope.periodics)
            raise UnknownTask(f"no periodic has the id {name!r}; there are {known or 'none'}")
        return hits[0].periodics[name]

    # Time

    def fire(self, now: int) -> bool:
        """Act on the timers that are due; return whether that can change what may start."""
        life = self._life
        changed = False
        while (timer := life.timers.pop_due(now)) is not None:
            target, kind = timer.target, timer.kind
            if kind == STARVE:
                life.starvation.fire(now, target)
                continue
            changed = True
            if kind == RUN_TIMEOUT:
                target.run_timer = None
                life.abort(now, target, Outcome.TIMEOUT, Cause.RUN_TIMEOUT)
            elif kind == PAUSE:
                target.pause_timer = None
                life.abort(now, target, Outcome.ABORTED, Cause.PAUSE_TIMEOUT)
            elif kind == BACKOFF:
                target.wait_timer = None
                target.unmet -= 1
                life.wake(now, [target], None)
            elif kind == TICK:
                life.periodics.tick(now, target)
        return changed

    def dispatch(self, now: int, started: list[Task] | None = None) -> list[Task]:
        """Decide what starts now: by order and gates, then drop who has waited too long, then once more.

        Return what starts: appended to ``started``, if that is given, as soon as it is decided.
        """
        life, dispatcher = self._life, self.dispatcher
        if started is None:
            started = []
        before = len(started)
        dispatcher.fill(now, started)
        if len(started) > before:
            self._started(now, started[before:])
        if life.expiries.heap:
            expiry = life.expiries.next_at()
            if expiry is not None and expiry <= now:
                self._expire(now)
                before = len(started)
                dispatcher.fill(now, started)
                self._started(now, started[before:])
        if dispatcher.top_moved:
            for level in dispatcher.settle(now):
                life.starvation.arm(now, level)
        if dispatcher.changed:
            life.tell_lanes(now)
        return started

    def repair(self, now: int, started: list[Task]) -> None:
        """Bring everything back to order after a command was broken off by an exception that was not its own.

        ``started`` is the list that dispatch was given, if it was; it gets to hold all whose start was decided.
        """
        unrecorded = repair(self._life, now, started)
        self._started(now, unrecorded)
        self.dispatch(now, started)

    def next_deadline(self) -> int | None:
        """Return when :meth:`fire` and :meth:`dispatch` have to be called at the latest."""
        life = self._life
        timer, expiry = life.timers.next_at(), life.expiries.next_at()
        if timer is None or expiry is None:
            return expiry if timer is None else timer
        return min(timer, expiry)

    def close(self) -> None:
        """Release what a kernel holds besides memory: nothing, unless it records."""

    # Looking

    @property
    def seq(self) -> int:
        """The seq of the latest event."""
        return self._life.seq

    def emit_to(self, emit: Callable[[RawEvent], None] | None) -> None:
        """Send the events from now on to ``emit``."""
        self._life.emit = emit

    def why(self, now: int, task: Task, earlier: Sequence[Task] = ()) -> Why:
        """Return why a task waits, or what it does, or how its wait divided; ``earlier``: the attempts before it."""
        from whywait.kernel.why import explain

        return explain(self._life, now, task, earlier)

    def snapshot(self, now: int, scope: Scope | None = None) -> Snapshot:
        """Return an immutable picture of everything, or of one scope and what is below it."""
        from whywait.kernel.snapshot import take

        return take(self._life, now, scope or self.root)

    def find(self, name: str, scope: Scope | None = None) -> Task | str:
        """Return the living task of a name, or the outcome of a finished one; ``scope/name`` finds it anywhere."""
        if scope is not None:
            known = scope.known(name)
        else:
            hits = [each for each in self.scopes.values() if each.known(name) is not None]
            if len(hits) > 1:
                keys = ", ".join(f"{each.key}/{name}" for each in hits)
                raise UnknownTask(f"task id {name!r} is ambiguous: write one of {keys}")
            known = hits[0].known(name) if hits else None
            for key, rest in name_splits(name):
                if known is None and key in self.scopes:
                    known = self.scopes[key].known(rest)
        if known is None:
            living = "living " if GENERATED_ID_PREFIX in name else ""  # nothing stays of one that was given no id
            raise UnknownTask(f"no {living}task has the id {name!r}")
        return known

    # Steps

    def _refused(self, now: int, request: Submission | None, error: Rejected | ConfigError) -> None:
        """Leave a trace of a refused submission: an event and a counter, nothing else."""
        life = self._life
        if isinstance(error, Rejected) and request is not None:
            if isinstance(error, QueueFull):
                kind = Kind.TASK_DROPPED
                life.stats.count_drop(error.cause)
            else:
                kind = Kind.TASK_REJECTED
                life.stats.count_rejection(error.cause)
            life.other_event(now, kind, request.scope, request.name, None, (("cause", error.cause),))

    def _pause_pending(self, now: int, task: Task) -> None:
        life = self._life
        task.paused_from = task.state
        task.state = task_step(task.state, "pause", TaskState.PAUSED, task.id)
        task.since = now
        life.event(now, Kind.TASK_PAUSED, task, None, (("from", task.paused_from),))

    def _started(self, now: int, started: list[Task]) -> None:
        """Do the bookkeeping of tasks that dispatch has marked RUNNING."""
        life, running, trigger = self._life, self.running, self._life.trigger
        emit = life.emit
        for task in started:
            scope, number = task.scope, task.number
            scope.running += 1
            running[number] = task
            if not scope.activated:
                life.activated(now, scope)
            if scope.counted:
                life.count_pending(task, -1)
            if not task.plain:
                life.cancel_wait_timer(task, life.expiries)
                if task.periodic is not None:
                    life.periodics.started(now, task, task.periodic)
            timeout_ns = task.policy.timeout_ns
            if timeout_ns is not None:
                task.run_timer = life.timers.add(now + timeout_ns, RUN_TIMEOUT, task)
            waited = task.waited
            waits = waited if isinstance(waited, dict) else task.waits  # it waits no more: nothing is added to it
            life.stats.started(waits)
            life.seq = task.started_seq = seq = life.seq + 1
            if emit is not None:
                emit((seq, now, Kind.TASK_STARTED, scope.key, number, task.name, trigger, waits or None))

    def _expire(self, now: int) -> None:
        """Drop who is still READY at the end of its max_wait, in entry order."""
        life = self._life
        due = []
        while (timer := life.expiries.pop_due(now)) is not None:
            timer.target.wait_timer = None
            due.append(timer.target)
        due.sort(key=_by_entry)
        for task in due:
            if task.state == TaskState.READY:
                life.end_with_dependents(now, task, Outcome.REJECTED, Cause.MAX_WAIT)


def _by_entry(task: Task) -> int:
    return task.entry
