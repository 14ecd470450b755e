"""How tasks end, and what their end does to others."""

from __future__ import annotations

from .base import Base, by_submission, has_failed, met
from .records import (
    ABORTED,
    DISPOSED,
    DISPOSING,
    ERROR,
    PAUSED,
    QUEUED,
    READY,
    REJECTED,
    RUNNING,
    SUCCESS,
    TIMEOUT,
    Illegal,
    Periodic,
    Task,
    Timer,
)


class Endings(Base):
    """T2, T5, T7, G2, G3, X1 to X4, D4."""

    def ended(self, now: int, task: Task, outcome: str, cause: str | None = None, retryable: bool = True) -> None:
        """T4, T5: the body has really ended; slot and budget come back."""
        self.advance(now)
        if not task.holds_slot:
            raise Illegal(f"{task.id} has no body that could end")
        if task.abort is not None:
            outcome, cause = task.abort  # X3: whatever it returns
        retry = task.policy.retry
        if outcome == ERROR and retryable and retry is not None and task.attempt <= retry.times:
            is_wanted_paused = task.state == PAUSED or task.pause_timer is not None
            self.finish(task, outcome, cause)
            self.retry(task)
            if is_wanted_paused:  # X1: the pause is the handle's, not the attempt's
                self.park(task.retried_as)
        else:
            self.finish(task, outcome, cause)
            self.aftermath([task])

    def cancel(self, now: int, task: Task) -> None:
        """X3, X4, D4: idempotent."""
        self.advance(now)
        if task.pending:
            self.finish(task, ABORTED, "cancelled")
            self.aftermath([task])
        elif task.holds_slot and task.abort is None:
            self.abort(task, ABORTED, "cancelled")

    def pause(self, now: int, task: Task) -> None:
        """X1, X4."""
        self.advance(now)
        if task.state in {QUEUED, READY}:
            self.park(task)
        elif task.state == RUNNING and task.pause_timer is None:
            task.pause_timer = self.arm(now + self.pause_timeout_ns, "pause_timeout", task)
            self.emit("TASK_PAUSE_ASKED", task.scope, task)
            self.requests.append(("pause", task))

    def parked(self, now: int, task: Task) -> None:
        """X1: the body has reached its checkpoint; an abort may have come first, or the pause was withdrawn."""
        self.advance(now)
        if task.state == RUNNING and task.pause_timer is not None:
            self.park(task)
        elif task.state == RUNNING:
            self.requests.append(("resume", task))

    def park(self, task: Task) -> None:
        """T1: PAUSED remembers where it came from."""
        came_from = task.state
        if came_from == READY:
            self.leave_ready(task)
        task.paused_from = came_from
        task.state = PAUSED
        task.pause_timer = None
        self.emit("TASK_PAUSED", task.scope, task, **{"from": came_from})

    def resume(self, now: int, task: Task) -> None:
        """X2, X4: an error unless paused; a pause that was only asked for is withdrawn."""
        self.advance(now)
        if task.state == RUNNING and task.pause_timer is not None:
            task.pause_timer = None
            self.emit("TASK_RESUMED", task.scope, task, to=RUNNING)
            self.requests.append(("resume", task))
            return
        if task.state != PAUSED:
            raise Illegal(f"{task.id} is not paused")
        came_from, task.paused_from = task.paused_from, None
        if came_from == RUNNING:
            task.state = RUNNING
            self.emit("TASK_RESUMED", task.scope, task, to=RUNNING)
            self.requests.append(("resume", task))
            return
        task.state = QUEUED
        if came_from == READY or self.may_enter(task):
            self.emit("TASK_RESUMED", task.scope, task, to=READY)
            self.enter(task)
        else:
            self.emit("TASK_RESUMED", task.scope, task, to=QUEUED)

    def finish(self, task: Task, outcome: str, cause: str | None, roots: frozenset[str] = frozenset()) -> None:
        """T2: exactly one outcome; DISPOSED is final."""
        assert task.state != DISPOSED
        waits = dict(task.waits) if task.pending else {}
        if task.state == READY:
            self.leave_ready(task)
        task.state = DISPOSED
        task.paused_from = None
        task.outcome = outcome
        task.cause = cause
        task.roots = roots
        if outcome in {SUCCESS, ERROR, TIMEOUT}:
            self.emit("TASK_FINISHED", task.scope, task, outcome=outcome, cause=cause)
        elif outcome == ABORTED:
            self.emit("TASK_CANCELLED", task.scope, task, cause=cause, roots=roots, waits=waits or None)
        else:
            self.emit("TASK_DROPPED", task.scope, task, cause=cause, waits=waits or None)

    def drop(self, task: Task, cause: str) -> None:
        """D5: a drop goes straight to DISPOSED, and is never silent."""
        self.finish(task, REJECTED, cause)
        self.aftermath([task])

    def abort(self, task: Task, outcome: str, cause: str) -> None:
        """X3: ask the body to end; its descendants need not wait for that."""
        self.ask_abort(task, outcome, cause)
        self.aftermath([task])

    def ask_abort(self, task: Task, outcome: str, cause: str) -> None:
        """T1: DISPOSING, once; the first to ask decides the outcome."""
        if task.abort is None:
            task.abort = (outcome, cause)
            task.state = DISPOSING
            task.paused_from = None
            self.emit("TASK_ABORT_ASKED", task.scope, task, cause=cause)
            self.requests.append(("abort", task))

    def aftermath(self, sources: list[Task]) -> None:
        """G3, then G2 and G6: first the descendants of what failed end, then whoever is free now is woken."""
        for task in sources:
            if task.periodic is not None and task.outcome is not None:
                self.count_iteration(task.periodic, task.outcome)
        self.wake([*sources, *self.cascade(sources)])
        self.close_scopes()

    def cascade(self, sources: list[Task]) -> list[Task]:
        """G3: every pending descendant of a failed (or failing) source ends, in submission order, naming its root.

        Where several roots are to blame, any of them may be named.
        """
        blame = {
            task: task.roots or frozenset({task.id}) for task in sources if task.abort is not None or has_failed(task)
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
            self.finish(task, ABORTED, "dependency", blame[task])
        return doomed

    def wake(self, ended: list[Task]) -> None:
        """G2, P2: those who waited for one of these and have nothing left to wait for turn READY, in id order."""
        waited = [task for task in self.tasks if task.state == QUEUED and any(waits_for(task, each) for each in ended)]
        for task in sorted(waited, key=lambda task: task.id):
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
        again = Task(task.name, task.scope, task.priority, task.demand, [], [], task.policy, attempt=task.attempt + 1)
        again.periodic = task.periodic
        self.register(again)
        if task.periodic is not None:
            task.periodic.iterations.append(again)
        task.retried_as = again
        assert task.policy.retry is not None
        delay_ns = task.policy.retry.delay_ns(task.attempt)
        again.backing_off = delay_ns > 0
        state = QUEUED if again.backing_off else READY
        self.emit("TASK_RETRIED", again.scope, again, of=task.number, attempt=again.attempt, state=state)
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
        if task.state == QUEUED:
            self.enter(task)
            self.emit("TASK_READY", task.scope, task)

    def close_scopes(self) -> None:
        raise NotImplementedError

    def count_iteration(self, periodic: Periodic, outcome: str) -> None:
        raise NotImplementedError

    def overlap_is_open(self, periodic: Periodic) -> bool:
        raise NotImplementedError


def waits_for(task: Task, other: Task) -> bool:
    """G2, G6: for its success or its end; R4: for its place."""
    dependencies = [each.latest() for each in task.after + task.after_ended]
    return other in dependencies or (task.periodic is not None and task.periodic is other.periodic)


def generated_id(number: int) -> str:
    return f"@{number:010d}"
