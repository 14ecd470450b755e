"""What the kernel does with periodics: ticks, triggers, the overlap gate, switching on and off."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from whywait.errors import ConfigError, DuplicateTask, InvalidTransition, Rejected, ScopeClosed
from whywait.kernel.events import Kind
from whywait.kernel.model import Submission, Task
from whywait.kernel.periodic import Periodic
from whywait.kernel.state import OPEN_SCOPE_STATES, Cause, Outcome, ScopeState, TaskState, Wait

if TYPE_CHECKING:
    from whywait.kernel.life import Life
    from whywait.kernel.model import Scope

TICK: Final = "tick"


class Periodics:
    """The periodics of all scopes of one kernel."""

    def __init__(self, life: Life) -> None:
        """Act on this state; every time and every end is handed in."""
        self._life = life
        self._added = 0

    def add(
        self,
        now: int,
        scope: Scope,
        interval_ns: int,
        name: str | None,
        *,
        immediately: bool,
        **settings: Any,  # noqa: ANN401 - those of Periodic
    ) -> Periodic:
        """Add a periodic to a scope and set its first tick."""
        if scope.state not in (*OPEN_SCOPE_STATES, ScopeState.SUSPENDED):
            raise ScopeClosed(
                f"scope {scope.key!r} is {scope.state}: it takes no periodics",
                check="scope state",
                cause=Cause.SCOPE_STATE,
            )
        if name is not None and (not isinstance(name, str) or not name):
            raise ConfigError(f"periodic id {name!r} is not allowed: use a string that is not empty")
        self._added += 1
        name = name if name is not None else f"periodic-{self._added}"
        if name in scope.periodics:
            raise DuplicateTask(
                f"periodic id {name!r} is used in scope {scope.key!r}: choose another id",
                check="id unused",
                cause=Cause.DUPLICATE,
            )
        periodic = Periodic(scope, name, now, interval_ns, **settings)
        self._life.admission.check_demand(f"periodic {name!r}", periodic.demand)
        scope.periodics[name] = periodic
        self._life.other_event(now, Kind.PERIODIC_ADDED, scope, name, None, (("interval_ns", interval_ns),))
        if periodic.enabled:
            self._set_tick(now, periodic, consumed=True)
            if immediately:
                self._trigger(now, periodic, missed=0)
        return periodic

    def set_enabled(self, now: int, periodic: Periodic, *, enabled: bool, immediately: bool) -> None:
        """Switch a periodic on or off; the grid of its ticks stays."""
        scope = periodic.scope
        if scope.state in (ScopeState.DISPOSING, ScopeState.DISPOSED):
            raise InvalidTransition(f"periodic {periodic.name!r} has ended with its scope, which is {scope.state}")
        if periodic.enabled == enabled:
            return
        if not enabled:
            self._switch_off(now, periodic, "asked")
            return
        periodic.enabled = True
        self._life.other_event(now, Kind.PERIODIC_ENABLED, periodic.scope, periodic.name)
        self._set_tick(now, periodic, consumed=False)
        if immediately:
            self._trigger(now, periodic, missed=0)

    def remove_all(self, scope: Scope) -> None:
        """Stop the periodics of a scope that ends."""
        for periodic in scope.periodics.values():
            periodic.enabled = False
            self._cancel_tick(periodic)

    def tick(self, now: int, periodic: Periodic) -> None:
        """Act on a tick that is due, once, however many intervals have passed."""
        missed = periodic.missed(now)
        self._set_tick(now, periodic, consumed=True)
        self._trigger(now, periodic, missed=missed)

    def started(self, now: int, task: Task, periodic: Periodic) -> None:
        """Count an iteration that starts."""
        periodic.waiting.remove(task)
        periodic.started += 1
        periodic.run_count += 1
        periodic.last_run_ns = now
        periodic.last_number = task.number

    def retried(self, old: Task, new: Task, periodic: Periodic) -> None:
        """Let a retry stand for the iteration that failed."""
        periodic.started -= 1
        periodic.waiting.append(new)
        new.periodic = old.periodic
        new.plain = False

    def ended(self, now: int, task: Task, periodic: Periodic) -> None:
        """Count an iteration that has ended; the next one is let through the overlap gate with its dependents."""
        periodic.scope.triggers -= 1
        if task.started_seq:
            periodic.started -= 1
        else:
            periodic.waiting.remove(task)
        if task.outcome == Outcome.SUCCESS:
            periodic.consecutive_failures = 0
        elif task.outcome in (Outcome.ERROR, Outcome.TIMEOUT):
            periodic.consecutive_failures += 1
            periodic.last_error = task.cause
            limit = periodic.disable_after
            if limit is not None and periodic.enabled and periodic.consecutive_failures >= limit:
                self._switch_off(now, periodic, "failures")
        allowed = periodic.next_allowed() if periodic.enabled else None
        if allowed is not None:
            allowed.unmet = 0
            if allowed.state == TaskState.PAUSED:
                allowed.held_by = None  # it turns READY when it is resumed
            else:
                self._life.freed.append(allowed)

    def _set_tick(self, now: int, periodic: Periodic, *, consumed: bool) -> None:
        life = self._life
        jitter = life.jitter() if periodic.jitter else 0.0
        at = periodic.next_tick(now, jitter, consumed=consumed)
        periodic.timer = life.timers.add(at, TICK, periodic)

    def _cancel_tick(self, periodic: Periodic) -> None:
        if periodic.timer is not None:
            self._life.timers.cancel(periodic.timer)
            periodic.timer = None

    def _trigger(self, now: int, periodic: Periodic, *, missed: int) -> None:
        """Make a task of a tick, or drop the tick with an event that says why."""
        life, scope = self._life, periodic.scope
        code = Cause.SCOPE_STATE if self._suspended(scope) else periodic.refusal()
        request = Submission(scope, None, periodic.priority, periodic.demand, policy=periodic.policy, job=periodic.job)
        if code is None:
            try:
                found = life.admission.check(request)
                victims = life.admission.make_room((request,), (found,)) if scope.limited else ()
            except Rejected as refusal:
                code = refusal.cause
        if code is not None:
            details = (("code", code), ("missed", missed))
            life.other_event(now, Kind.PERIODIC_SKIPPED, scope, periodic.name, None, details)
            return
        seq = life.other_event(now, Kind.PERIODIC_TICK, scope, periodic.name, None, (("missed", missed),))
        life.displace(now, victims)
        task = life.register(now, request)
        task.name = f"{periodic.name}#{task.number}"
        task.periodic = periodic
        task.plain = False
        if periodic.make_job is not None:
            task.job = periodic.make_job(task)
        scope.triggers += 1
        life.stats.iterations += 1
        held = periodic.started + len(periodic.waiting) >= periodic.width
        periodic.waiting.append(task)
        if held:
            task.held_by = Wait.OVERLAP
            task.unmet = 1
        else:
            life.make_ready(now, task)
        life.trigger = life.submitted(now, task, seq)

    def _suspended(self, scope: Scope) -> bool:
        return any(each.state == ScopeState.SUSPENDED for each in scope.chain)

    def _switch_off(self, now: int, periodic: Periodic, reason: str) -> None:
        life = self._life
        periodic.enabled = False
        self._cancel_tick(periodic)
        details = (("reason", reason),)
        seq = life.other_event(now, Kind.PERIODIC_DISABLED, periodic.scope, periodic.name, None, details)
        for task in list(periodic.waiting):
            if task.state != TaskState.DISPOSED:
                life.end_with_dependents(now, task, Outcome.REJECTED, Cause.PERIODIC_OFF, seq)
