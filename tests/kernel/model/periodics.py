"""Periodics, and the timers that drive them and everything else that happens by itself."""

from __future__ import annotations

from typing import Any

from .admission import Submission
from .records import (
    Illegal,
    Periodic,
    Refused,
    Scope,
    Task,
    Timer,
)
from .scopes import Scopes


class Periodics(Scopes):
    """R1 to R7, C0 (timers)."""

    def add_periodic(self, now: int, scope: Scope, *, immediately: bool = False, **settings: Any) -> Periodic:
        """R2: the grid begins at creation; the first tick is one interval later."""
        self.advance(now)
        periodic = Periodic(scope, **settings)
        if scope.state not in {"ATTACHED", "RUNNING", "SUSPENDED"}:
            raise Illegal(f"{scope.key} is {scope.state}")
        if any(other.scope is scope and other.name == periodic.name for other in self.periodics):
            raise Illegal(f"{scope.key} has a periodic {periodic.name}")
        trigger = self.draft(Submission(scope, demand=periodic.demand))
        if not self.feasible(trigger):  # B1, R3: a trigger is an ordinary task
            raise Refused("infeasible", trigger)
        self.periodics.append(periodic)
        self.emit("PERIODIC_ADDED", scope, name=periodic.name, interval_ns=periodic.interval_ns)
        periodic.next_at = now + periodic.interval_ns
        if periodic.enabled:
            self.plan(periodic)
            if immediately:
                self.trigger(periodic, 0)
        return periodic

    def set_periodic_enabled(self, now: int, periodic: Periodic, enabled: bool, immediately: bool = False) -> None:
        """R5: on from the next tick, or at once; off drops the pending trigger. The grid stays."""
        self.advance(now)
        if periodic.scope.state in {"DISPOSING", "DISPOSED"}:  # R1
            raise Illegal(f"{periodic.scope.key} is {periodic.scope.state}")
        if enabled and not periodic.enabled:
            periodic.enabled = True
            self.emit("PERIODIC_ENABLED", periodic.scope, name=periodic.name)
            while periodic.next_at <= now:
                periodic.next_at += periodic.interval_ns
            self.plan(periodic)
            if immediately:
                self.trigger(periodic, 0)
        elif periodic.enabled and not enabled:
            self.switch_off(periodic, "asked")

    def switch_off(self, periodic: Periodic, reason: str) -> None:
        """R5, R6: no new iteration starts; a pending trigger is dropped, one in flight finishes."""
        periodic.enabled = False
        periodic.timer = None
        self.emit("PERIODIC_DISABLED", periodic.scope, name=periodic.name, reason=reason)
        for task in [task for task in periodic.iterations if task.pending]:
            self.drop(task, "periodic_off")

    def plan(self, periodic: Periodic) -> None:
        """R2: fixed rate; the jitter shifts this tick and never accumulates."""
        shift = round(periodic.interval_ns * periodic.jitter * self.jitter()) if periodic.jitter else 0
        periodic.timer = self.arm(max(self.now, periodic.next_at + shift), "tick", periodic)

    def tick(self, periodic: Periodic) -> None:
        """R2: whole intervals that passed unnoticed count as one trigger and a number."""
        missed = max(0, self.now - periodic.next_at) // periodic.interval_ns
        periodic.next_at += (missed + 1) * periodic.interval_ns
        self.plan(periodic)
        self.trigger(periodic, missed)

    def trigger(self, periodic: Periodic, missed: int) -> None:
        """R3, R4: an ordinary task, without a slot unless told, if the overlap rule and the limits accept it."""
        code = self.overlap_refusal(periodic)
        if any(scope.state == "SUSPENDED" for scope in periodic.scope.path()):  # R5
            code = "scope_state"
        if code is not None:
            self.emit("PERIODIC_SKIPPED", periodic.scope, name=periodic.name, code=code, missed=missed)
            return
        submission = Submission(
            periodic.scope, None, periodic.priority, periodic.demand, policy=periodic.policy, slot=periodic.slot
        )
        try:
            newcomers, victims = self.examine([submission])
        except Refused as refusal:
            self.emit("PERIODIC_SKIPPED", periodic.scope, name=periodic.name, code=refusal.cause, missed=missed)
            return
        self.emit("PERIODIC_TICK", periodic.scope, name=periodic.name, missed=missed)
        (task,) = newcomers
        task.periodic = periodic
        task.let_through = self.overlap_is_open(periodic)
        periodic.iterations.append(task)
        self.admit(newcomers, victims)

    def overlap_refusal(self, periodic: Periodic) -> str | None:
        """R4: with r iterations started and p waiting."""
        r = sum(task.active for task in periodic.iterations)
        p = sum(task.pending for task in periodic.iterations)
        if periodic.overlap == "skip":
            return None if r + p == 0 else "SRS-E-RUN-002"
        if periodic.overlap == "queue":
            return None if p == 0 else "SRS-E-RUN-003"
        return None if r + p < periodic.max_parallel or p == 0 else "SRS-E-RUN-003"

    def overlap_is_open(self, periodic: Periodic) -> bool:
        """R4: fewer than may run at once are started or let through."""
        at_once = periodic.max_parallel if periodic.overlap == "parallel" else 1
        through = [task for task in periodic.iterations if task.active or (task.pending and task.let_through)]
        return len(through) < at_once

    def count_iteration(self, periodic: Periodic, task: Task) -> None:
        """R6: failures in a row; an event loop that is gone."""
        if task.outcome == "success":
            periodic.consecutive_failures = 0
        elif task.cause == "loop_closed" and periodic.enabled:
            self.switch_off(periodic, "loop_closed")
        elif task.outcome in {"error", "timeout"}:
            periodic.consecutive_failures += 1
            limit = periodic.disable_after
            if periodic.enabled and limit is not None and periodic.consecutive_failures >= limit:
                self.switch_off(periodic, "failures")

    def stop_periodics(self, scope: Scope) -> None:
        """R1: a periodic lives no longer than its scope."""
        for periodic in self.periodics:
            if periodic.scope is scope:
                periodic.enabled = False
                periodic.timer = None

    def fire(self, now: int, breath_ns: int = 0) -> None:
        """C0: what is due, in order of time, then of creation; T6: a run timeout first has its breath."""
        self.advance(now)
        self.report_starvation()
        while due := [timer for timer in self.live_timers() if timer.time <= now]:
            timer = min(due, key=lambda timer: (timer.time, self.timers.index(timer)))
            self.timers.remove(timer)
            if timer.kind == "timeout" and breath_ns:  # T6
                timer.target.run_timer = self.arm(now + breath_ns, "noticed_timeout", timer.target)
            elif timer.kind in {"timeout", "noticed_timeout"}:
                self.abort(timer.target, "timeout", "run_timeout")
            elif timer.kind == "pause_timeout":  # X1
                self.abort(timer.target, "aborted", "pause_timeout")
            elif timer.kind == "backoff":  # T7
                self.end_backoff(timer.target)
            else:  # R2
                self.tick(timer.target)

    def live_timers(self) -> list[Timer]:
        return [timer for timer in self.timers if self.is_live(timer)]

    def is_live(self, timer: Timer) -> bool:
        """A timer that has lost its meaning does nothing and is no instant."""
        target = timer.target
        if timer.kind in {"timeout", "noticed_timeout"}:
            is_running = target.active and target.abort is None
            return is_running and not target.is_stopped and target.run_timer is timer  # M15
        if timer.kind == "pause_timeout":
            return target.state == "RUNNING" and target.pause_timer is timer
        if timer.kind == "backoff":
            return target.pending
        return target.timer is timer

    def next_deadline(self) -> int | None:
        """When `fire` or `dispatch` have something to do by themselves. Reports of starvation are no instant."""
        times = [timer.time for timer in self.live_timers()]
        times += [
            task.ready_since + task.policy.max_wait_ns for task in self.ready if task.policy.max_wait_ns is not None
        ]
        return min(times, default=None)

    def report_starvation(self) -> None:
        """V2: once for each task."""
        for task in self.ready:
            if task.starved_ns >= self.starvation_timeout_ns and not task.starved_reported:
                task.starved_reported = True
                self.emit("TASK_STARVED", task.scope, task, starved_ns=task.starved_ns)
