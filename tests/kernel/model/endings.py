"""How tasks end, and what their end does to others."""

from __future__ import annotations

import math

from .base import by_submission, has_failed, met
from .devices import Devices
from .records import (
    Illegal,
    Periodic,
    Retry,
    Scope,
    Task,
    Timer,
)


class Endings(Devices):
    """T2, T5, T7, G2, G3, X1 to X4, D4."""

    def ended(self, now: int, task: Task, outcome: str, cause: str | None = None, retryable: bool = True) -> None:
        """T4, T5: the body has really ended; slot and budget come back."""
        self.advance(now)
        if not task.active:
            raise Illegal(f"{task.id} has no body that could end")
        if task.abort is not None:
            outcome, cause = task.abort  # X3: whatever it returns
        retry = task.policy.retry
        if outcome == "error" and retryable and retry is not None and task.attempt <= retry.times:
            self.finish(task, outcome, cause)
            self.retry(task)
            if task.pause_wished:  # X1: the pause is the handle's, not the attempt's
                self.pause(now, task.retried_as)
            if task.is_stopped:
                self.stopped(now, task.retried_as, True)
        else:
            self.finish(task, outcome, cause)
            self.aftermath([task])
            if outcome == "error" and task.periodic is None:  # O10
                for scope in task.scope.path():
                    if scope.limits.on_error == "abort":
                        self.dispose(now, scope)

    def cancel(self, now: int, task: Task, cause: str = "cancelled") -> None:
        """X3, X4, D4: idempotent."""
        self.advance(now)
        if task.pending:
            self.finish(task, "aborted", cause)
            self.aftermath([task])
        elif task.active and not ends_for_good(task):
            self.abort(task, "aborted", cause)

    def measured(self, now: int, task: Task, ram: int) -> None:
        """U2: the budget counts what is used, if that is more than what was asked for."""
        self.advance(now)
        if not task.active:
            return
        before, asked = self.counted(task, "ram"), task.demand.get("ram", 0)
        task.ram = ram
        if self.counted(task, "ram") != before:
            self.emit("TASK_MEASURED", task.scope, task, ram=self.counted(task, "ram"))
        if ram > asked > 0 and not task.overdrawn:
            task.overdrawn = True
            self.emit("TASK_OVERDRAWN", task.scope, task, asked=asked, ram=ram)
            if self.overdraft == "kill":
                self.ask_abort(task, "error", "out_of_memory")

    def blocked(self, now: int, task: Task, on: int | None) -> None:
        """V1: told; a task that says the same again is not told of. S7: it may lend its slot, and wants it again."""
        self.advance(now)
        if task.active and on != task.blocked_on:
            task.blocked_on = on
            if on is None:
                self.emit("TASK_UNBLOCKED", task.scope, task)
                if task.lends and task.abort is None:
                    self.wanting.append(task)
            else:
                self.want_no_more(task)
                task.lends = task.lends or (task.slot and task.scope.limits.when_blocked == "lend")
                self.emit("TASK_BLOCKED", task.scope, task, on=on, lends=task.lends or None)

    def want_no_more(self, task: Task) -> None:
        """S7: its body goes on."""
        if task in self.wanting:
            self.wanting.remove(task)
            self.requests.append(("go_on", task))

    def pause(self, now: int, task: Task) -> None:
        """X1, X4."""
        self.advance(now)
        if task.pause_wished or task.state in {"DISPOSING", "DISPOSED"}:
            return
        task.pause_wished = True
        if task.state in {"QUEUED", "READY"}:
            self.park(task)
        elif task.active:
            self.requests.append(("pause", task))
        if task.state == "RUNNING":
            task.pause_timer = self.arm(now + self.pause_timeout_ns, "pause_timeout", task)
            self.emit("TASK_PAUSE_ASKED", task.scope, task)

    def parked(self, now: int, task: Task) -> None:
        """X1: the body has reached its checkpoint; an abort may have come first, or the pause was withdrawn."""
        self.advance(now)
        if task.state == "RUNNING" and task.pause_timer is not None:
            self.park(task)
        elif task.state == "RUNNING":
            self.requests.append(("resume", task))

    def park(self, task: Task) -> None:
        """T1: PAUSED remembers where it came from."""
        came_from = task.state
        if came_from == "READY":
            self.leave_ready(task)
        task.paused_from = came_from
        task.state = "PAUSED"
        task.pause_timer = None
        self.emit("TASK_PAUSED", task.scope, task, **{"from": came_from}, stopped=task.is_stopped or None)

    def resume(self, now: int, task: Task) -> None:
        """X2, X4: an error unless a pause was asked for; M15: it goes on unless it is stopped."""
        self.advance(now)
        if not task.pause_wished or task.state in {"DISPOSING", "DISPOSED"}:
            raise Illegal(f"{task.id} is not paused")
        task.pause_wished = False
        if task.active:
            self.requests.append(("resume", task))
        if not task.is_stopped:
            self.go_on(task)

    def stopped(self, now: int, task: Task, is_stopped: bool) -> None:
        """M15: as a pause, apart from it; the timeout stands still meanwhile."""
        self.advance(now)
        if task.is_stopped == is_stopped or task.state in {"DISPOSING", "DISPOSED"}:
            return
        task.is_stopped = is_stopped
        if is_stopped:
            task.stopped_since = now
            if task.state != "PAUSED":
                self.park(task)
        else:
            if task.active and task.run_timer is not None:
                task.run_timer = self.arm(task.run_timer.time + now - task.stopped_since, "timeout", task)
            if not task.pause_wished:
                self.go_on(task)

    def go_on(self, task: Task) -> None:
        """X2: back to where it was, or a pause that was only asked for is withdrawn."""
        task.pause_timer = None
        if task.active:
            task.state, task.paused_from = "RUNNING", None
            self.emit("TASK_RESUMED", task.scope, task, to="RUNNING")
            return
        came_from, task.paused_from = task.paused_from, None
        task.state = "QUEUED"
        if came_from == "READY" or self.may_enter(task):
            self.emit("TASK_RESUMED", task.scope, task, to="READY")
            self.enter(task)
        else:
            self.emit("TASK_RESUMED", task.scope, task, to="QUEUED")

    def finish(self, task: Task, outcome: str, cause: str | None, roots: frozenset[str] = frozenset()) -> None:
        """T2: exactly one outcome; DISPOSED is final."""
        assert task.state != "DISPOSED"
        waits = dict(task.waits) if task.pending else {}
        starved_ns = task.starved_ns if task.pending else 0
        if task.state == "READY":
            self.leave_ready(task)
        self.want_no_more(task)
        task.state = "DISPOSED"
        task.paused_from = None
        task.outcome = outcome
        task.cause = cause
        task.roots = roots
        if outcome in {"success", "error", "timeout"}:
            self.emit("TASK_FINISHED", task.scope, task, outcome=outcome, cause=cause)
        elif outcome == "aborted":
            told = {"roots": roots, "waits": waits or None, "starved_ns": starved_ns or None}
            self.emit("TASK_CANCELLED", task.scope, task, cause=cause, **told)
        else:
            told = {"waits": waits or None, "starved_ns": starved_ns or None}
            self.emit("TASK_DROPPED", task.scope, task, cause=cause, **told)

    def drop(self, task: Task, cause: str) -> None:
        """D5: a drop goes straight to DISPOSED, and is never silent."""
        self.finish(task, "rejected", cause)
        self.aftermath([task])

    def abort(self, task: Task, outcome: str, cause: str) -> None:
        """X3: ask the body to end; its descendants need not wait for that."""
        self.ask_abort(task, outcome, cause)
        self.aftermath([task])

    def ask_abort(self, task: Task, outcome: str, cause: str) -> None:
        """T1: DISPOSING, once; the first to ask decides the outcome. U2: unless that one may be retried."""
        if task.abort is not None and (task.abort[0] != "error" or outcome == "error"):
            return
        if task.abort is None:
            self.requests.append(("abort", task))
            self.want_no_more(task)  # S7: it needs no slot to end
        task.abort = (outcome, cause)
        task.state = "DISPOSING"
        task.paused_from = None
        self.emit("TASK_ABORT_ASKED", task.scope, task, cause=cause)

    def aftermath(self, sources: list[Task]) -> None:
        """G3, then G2 and G6: first the descendants of what failed end, then whoever is free now is woken."""
        for task in sources:
            if task.periodic is not None and task.outcome is not None:
                self.count_iteration(task.periodic, task)
        self.wake([*sources, *self.cascade(sources)])
        self.close_scopes()

    def cascade(self, sources: list[Task]) -> list[Task]:
        """G3: every pending descendant of a failed (or failing) source ends, in submission order, naming its root.

        Where several roots are to blame, any of them may be named.
        """
        blame = {
            task: task.roots or frozenset({task.id}) for task in sources if ends_for_good(task) or has_failed(task)
        }
        doomed: list[Task] = []
        grown = True
        while grown:
            grown = False
            for task in self.pending(self.root):
                culprits = [other.latest() for other in task.after if other.latest() in blame]
                roots = frozenset().union(*(blame[culprit] for culprit in culprits))
                if roots != blame.get(task, frozenset()):
                    blame[task] = roots
                    doomed.append(task)
                    grown = True
        for task in by_submission(set(doomed)):
            self.finish(task, "aborted", "dependency", blame[task])
        return doomed

    def wake(self, ended: list[Task]) -> None:
        """G2, P2: those that waited for one of these and for nothing else turn READY, by submission or id."""
        waited = [
            task for task in self.tasks if task.state == "QUEUED" and any(waits_for(task, each) for each in ended)
        ]
        by_id = self.order.ties == "id"
        for task in sorted(waited, key=lambda task: (task.id if by_id else "", task.number)):
            if self.may_enter(task):
                self.enter(task)
                self.emit("TASK_READY", task.scope, task)

    def may_enter(self, task: Task) -> bool:
        """T1: nothing holds it in QUEUED: no dependency, no backoff, no overlap (R4)."""
        if task.backing_off or not met(task):
            return False
        if not task.let_through:
            assert task.periodic is not None
            task.let_through = self.overlap_is_open(task.periodic)
        return task.let_through

    def retry(self, task: Task) -> None:
        """T7: a new task, a new Ref, at the back; S5: exempt from the limits."""
        assert task.policy.retry is not None
        demand = {
            name: grown(task.scope.payer, name, amount, task.policy.retry) for name, amount in task.demand.items()
        }
        again = Task(
            task.name, task.scope, task.priority, demand, [], [], task.policy, task.slot, attempt=task.attempt + 1
        )
        again.periodic = task.periodic
        self.register(again)
        if task.periodic is not None:
            task.periodic.iterations.append(again)
        task.retried_as = again
        delay_ns = task.policy.retry.delay_ns(task.attempt)
        again.backing_off = delay_ns > 0
        state = "QUEUED" if again.backing_off else "READY"
        told = None if demand == task.demand else {name: amount for name, amount in demand.items() if amount}
        self.emit("TASK_RETRIED", again.scope, again, of=task.number, attempt=again.attempt, state=state, demand=told)
        if again.backing_off:
            self.arm(self.now + delay_ns, "backoff", again)
        else:
            self.enter(again)

    def register(self, task: Task) -> None:
        """T3: the Ref is allocated; a task without a name gets an id that sorts in submission order."""
        task.number = next(self.numbers)
        if task.periodic is not None and task.attempt == 1:
            task.name = f"{task.periodic.name}#{task.number}"
        task.id = task.name if task.name is not None else generated_id(task.number)
        task.pending_since = self.now
        self.tasks.append(task)

    def arm(self, time: int, kind: str, target: Task | Periodic) -> Timer:
        timer = Timer(time, kind, target)
        self.timers.append(timer)
        return timer

    def end_backoff(self, task: Task) -> None:
        """T7: the backoff is over."""
        task.backing_off = False
        if task.state == "QUEUED":
            self.enter(task)
            self.emit("TASK_READY", task.scope, task)

    def close_scopes(self) -> None:
        raise NotImplementedError

    def count_iteration(self, periodic: Periodic, task: Task) -> None:
        raise NotImplementedError

    def overlap_is_open(self, periodic: Periodic) -> bool:
        raise NotImplementedError


def grown(payer: Scope, name: str, amount: int, retry: Retry) -> int:
    """U3: so many times more, up to the limit."""
    more = math.ceil(amount * dict(retry.grow).get(name, 1))
    limit = {**payer.budget.hard, **payer.budget.soft}.get(name)
    return more if limit is None else max(amount, min(more, limit))


def ends_for_good(task: Task) -> bool:
    """X3: its end was asked for, and no retry will follow."""
    return task.abort is not None and task.abort[0] != "error"


def waits_for(task: Task, other: Task) -> bool:
    """G2, G6: for its success or its end; R4: for its place."""
    dependencies = [each.latest() for each in task.after + task.after_ended]
    return other in dependencies or (task.periodic is not None and task.periodic is other.periodic)


def generated_id(number: int) -> str:
    return f"@{number:010d}"
