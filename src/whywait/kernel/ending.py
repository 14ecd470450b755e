"""Ending: every way in which a task, a scope or a periodic ends, and what follows from that for others."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Final

from whywait.errors import InvalidTransition
from whywait.kernel import graph, lending, waiting
from whywait.kernel.base import Base, count_holder, no_slot_held, tell, tell_of
from whywait.kernel.events import SUCCESS_DETAILS, Details, Kind, Streams, cause_details, outcome_details
from whywait.kernel.limits import MEASURED, MOST, Demand, Retry
from whywait.kernel.model import OF_AN_ATTEMPT, Attempt, Lane, Scope, Task
from whywait.kernel.periodic import Periodic
from whywait.kernel.pool import Pool
from whywait.kernel.running import forget_run_timers, pause, stopped
from whywait.kernel.state import Cause, Outcome, ScopeState, TaskState, Wait, scope_step, task_step
from whywait.kernel.timers import BACKOFF

# Globals are found faster than attributes of a class, before Python 3.12.
_READY: Final = TaskState.READY
_RUNNING: Final = TaskState.RUNNING
_DISPOSED: Final = TaskState.DISPOSED
_DISPOSING_SCOPE: Final = ScopeState.DISPOSING
_SUCCESS: Final = Outcome.SUCCESS
_ABORTED: Final = Outcome.ABORTED
_FINISHED: Final = Kind.TASK_FINISHED
_CANCELLED: Final = Kind.TASK_CANCELLED
_REJECTED: Final = Outcome.REJECTED


# A running task


def end_running(  # noqa: C901, PLR0912 - in one piece for speed
    k: Base,
    now: int,
    task: Task,
    outcome: str,
    cause: str | None = None,
    retryable: bool = True,
    facts: Details = (),
    streams: Streams = (),
) -> Task | None:
    """Record that a body has really ended, which gives back slot and budget; return the task if it is retried.

    ``facts`` are told with the end: what the body used, its exit code. ``streams`` are those that the task has opened:
    they are closed when it has its final outcome.
    """
    if not isinstance(outcome, Outcome):  # it comes from a record, or from an engine that writes it as text
        outcome = Outcome(outcome)
    led_by = task.started_seq
    if task.state is not _RUNNING:
        if not task.active:
            raise InvalidTransition(f"task {task.label} is {task.state}: it has no body that could end")
        if task.abort is not None:
            outcome, cause, led_by = task.abort
    lane, scope, running = task.lane, task.scope, k.running
    ran_ns = now - task.since
    del running[task.number]
    if streams:
        k.streams[task.number] = streams
    if not task.plain:
        forget_run_timers(k, task)
        if task.overdraft or task.lends or not lane.plain:
            _give_more_back(k, now, lane, task)
    for gate, need in lane.takes:
        gate.free += need
        gate.use_ns += need * ran_ns  # of any size
        if gate.benches:
            k.levels.opened(now, gate, len(running) == k.slotless)
    if k.soft and len(running) == k.slotless:
        for gate in k.soft:
            if gate.benches:
                k.levels.opened(now, gate, True)
    if k.counts_holders and lane.takes_slot:
        count_holder(k, lane.level.priority, -1)
    task.state = _DISPOSED  # from any state that holds a slot, as the table says
    task.since = now
    if outcome is _SUCCESS:
        k.trigger = seq = tell(k, now, _FINISHED, task, led_by, (*SUCCESS_DETAILS, *facts) if facts else None)
    else:
        task.cause = cause
        kind = Kind.TASK_CANCELLED if outcome is Outcome.ABORTED else _FINISHED
        details = outcome_details(outcome, cause)
        k.trigger = seq = tell(k, now, kind, task, led_by, (*details, *facts) if facts else details)
        retry = task.policy.retry
        if outcome is Outcome.ERROR and retryable and retry is not None and task.attempt <= retry.times:
            _retry(k, now, task, retry, seq)
            return task
    finish(k, now, task, outcome)
    if task.successors is not None or not task.plain:
        _tell_dependents(k, now, task, seq)
    if scope.state is _DISPOSING_SCOPE:
        _finish_disposal(k, now, scope, seq)
    if scope.aborting and outcome is Outcome.ERROR and task.periodic is None:
        for each in scope.aborting:
            dispose(k, now, each)
    return None


def _give_more_back(k: Base, now: int, lane: Lane, task: Task) -> None:
    """Give back the units of devices, and what a gate has counted for a task beside what it has asked for."""
    if not lane.takes_slot:
        k.slotless -= 1
    elif task.lends:
        lending.want_no_more(k, task)
        lending.take_again(k, now, task)  # it is given back with the rest
    for ask in lane.asks:
        for door in ask.devices.give_back(task, now - task.since):
            k.levels.opened(now, door, no_slot_held(k))
    if task.overdraft:
        gate = task.scope.pool.resources[MEASURED]
        gate.free += task.overdraft
        gate.use_ns += task.overdraft * (now - task.overdrawn_since)
        task.overdraft = 0
        if gate.benches:
            k.levels.opened(now, gate, no_slot_held(k))


def ask_abort(k: Base, now: int, task: Task, outcome: Outcome, cause: str, led_by: int = 0) -> int:
    """Ask the engine to end an active task; its outcome is settled from now on. Return the event's seq.

    One that is being ended for the memory it uses, and might be retried, can still be ended for good.
    """
    if task.abort is None:
        task.state = task_step(task.state, "abort", TaskState.DISPOSING, task.label)
        forget_run_timers(k, task)
        k.requests.append(("abort", task))
        lending.want_no_more(k, task)
    seq = tell(k, now, Kind.TASK_ABORT_ASKED, task, led_by, (("cause", cause),))
    task.abort = (outcome, cause, seq)
    task.abort_since = now
    return seq


def abort(k: Base, now: int, task: Task, outcome: Outcome, cause: str, led_by: int = 0) -> None:
    """Ask for an abort and end the tasks that await this one's success: it will not come."""
    seq = ask_abort(k, now, task, outcome, cause, led_by)
    take_down(k, now, [task], task.label, seq)


def _retry(k: Base, now: int, task: Task, retry: Retry, led_by: int) -> None:  # noqa: C901 - one step after the other
    """Begin a task that failed anew, under another number, at the back of the queue, or QUEUED while it backs off."""
    scope, stats, old_number, old_lane = task.scope, k.stats, task.number, task.lane
    is_paused, is_stopped = task.pause_wished, task.is_stopped
    delay_ns = retry.delay_ns(task.attempt, k.jitter() if retry.jitter else 0.0) if retry.backoff else 0
    if task.periodic is not None:
        task.periodic.retried(task)
    task.earlier = (*task.earlier, Attempt(old_number, task.waits))
    task.attempt += 1
    if task.starved_ns or task.starved_before:
        task.starved_before += task.starved_ns
        task.starved_first = task.starved_first or old_number
    for name in OF_AN_ATTEMPT:
        task.__dict__.pop(name, None)
    del scope.tasks[old_number]
    stats.retried += 1
    stats.numbered = number = stats.numbered + 1
    task.number = number
    scope.tasks[number] = task
    if old_number in k.streams:
        k.streams[number] = k.streams.pop(old_number)
    if retry.grow:
        task.lane = _grown_lane(k, now, task, retry)
    task.since = now
    task.plain = False
    waiting.begin(task)
    if scope.counted:
        waiting.count_in(task)
    if delay_ns:
        task.held_by = Wait.BACKOFF
        task.unmet = 1
        task.wait_timer = k.timers.add(now + delay_ns, BACKOFF, task)
    else:
        waiting.become_ready(k, now, task)
    details: Details = (("of", old_number), ("attempt", task.attempt), ("state", task.state))
    if task.lane.demand != old_lane.demand:
        details = (*details, ("demand", task.lane.demand))
    if task.function is not None:
        details = (*details, ("function", task.function))
    k.trigger = tell(k, now, Kind.TASK_RETRIED, task, led_by, details)
    if is_paused:
        pause(k, now, task)
    if is_stopped:
        stopped(k, now, task, is_stopped=True)


def _grown_lane(k: Base, now: int, task: Task, retry: Retry) -> Lane:
    """Return the lane for the next attempt at a task, which asks for more of what its retry makes grow (U3)."""
    grow = dict(retry.grow)
    pool = task.scope.pool
    demand = tuple(
        [
            (name, _grown(amount, grow[name], _limit_of(pool, name, task.demand)) if name in grow else amount)
            for name, amount in task.demand
        ]
    )
    return waiting.lane_of(k, now, task.scope, (task.lane.level.rank, demand))


def _grown(amount: int, factor: float, limit: int | None) -> int:
    """Return a demand that has grown, up to a limit if there is one; never less than it was."""
    more = min(math.ceil(amount * factor), MOST)
    return more if limit is None else max(amount, min(more, limit))


def _limit_of(pool: Pool, name: str, demand: Demand) -> int | None:
    """Return how much a task with this demand could get of a resource, of devices or of their memory."""
    for devices in pool.devices.values():
        limit = devices.limit_of(name, demand)
        if limit is not None:
            return limit
    return pool.resources[name].limit if name in pool.resources else None


# A pending task


def cancel(k: Base, now: int, task: Task, cause: str = Cause.CANCELLED) -> None:
    """End a pending task at once, ask a running one to abort; idempotent."""
    if task.state is _READY or task.pending:
        end_with_dependents(k, now, task, _ABORTED, cause)
    elif task.active and not task.ends_for_good:
        abort(k, now, task, Outcome.ABORTED, cause)


def end_pending(
    k: Base,
    now: int,
    task: Task,
    outcome: Outcome,
    cause: str,
    root: str | None = None,
    led_by: int = 0,
    lane_is_cleared: bool = False,
) -> int:
    """End a pending task at once; return the seq of the event. Its dependents are the caller's business.

    ``lane_is_cleared``: the caller will take all tasks out of the lane in one step.
    """
    if task.plain and task.state is _READY:
        waiting.leave(k, now, task, lane_is_cleared)
    else:
        waiting.stop_waiting(k, now, task)
    task.state = _DISPOSED  # from any pending state, as the table says; the caller has asked for pending
    task.since = now
    if task.scope.counted:
        count_out(task)
    if task.unmet:
        graph.unlink(task)
    task.cause = cause
    details = cause_details(cause)
    word = task.wait_cause
    if root is not None:
        task.root = root
        details = (*details, ("root", root))
    if task.more_waits is not None or task.starved_ns:
        word = None
        details = (*details, ("waits", task.waits))
        if task.starved_ns:
            details = (*details, ("starved_ns", task.starved_ns))
    k.stats.unstarted.add(task.wait_cause, task.wait_ns, task.more_waits)
    kind = Kind.TASK_DROPPED if outcome is _REJECTED else _CANCELLED
    seq = tell(k, now, kind, task, led_by, details, word, task.wait_ns)
    k.settled.append(task)
    finish(k, now, task, outcome)
    return seq


def end_with_dependents(k: Base, now: int, task: Task, outcome: Outcome, cause: str, led_by: int = 0) -> None:
    """End a pending task and the tasks that depend on it."""
    seq = end_pending(k, now, task, outcome, cause, None, led_by)
    if task.successors is not None or not task.plain:
        take_down(k, now, [task], task.label, seq)


def count_out(task: Task) -> None:
    """Count a task no more where a queue limit counts pending tasks."""
    for scope in task.scope.counted:
        scope.pending -= 1


# Any task


def finish(k: Base, now: int, task: Task, outcome: Outcome) -> None:
    """Record the outcome and forget the task; its id and outcome stay if the user named it."""
    task.outcome = outcome
    scope = task.scope
    del scope.tasks[task.number]
    k.stats.count_end(outcome)
    if k.streams:
        for name, chunks in k.streams.pop(task.number, ()):
            tell(k, now, Kind.STREAM_CLOSED, task, task.started_seq, (("stream", name), ("chunks", chunks)))
    if outcome is _REJECTED:
        k.stats.count_drop(task.cause or "")
    if not task.plain and task.periodic is not None:
        _end_iteration(k, now, task, task.periodic)
    elif task.name is not None:
        scope.ids[task.name] = outcome


def take_down(k: Base, now: int, ended: list[Task], root: str, led_by: int) -> None:
    """End all descendants of tasks that will not succeed, then wake the tasks that awaited the end of any."""
    doomed = [task for task, _ in graph.descendants(ended)]
    for task in ended:
        task.successors = None
    for task in doomed:
        end_pending(k, now, task, Outcome.ABORTED, Cause.DEPENDENCY, root, led_by)
    _wake_after_end(k, now, [*ended, *doomed], led_by)


def _wake_after_end(k: Base, now: int, ended: Iterable[Task], led_by: int) -> None:
    """Wake the tasks that awaited the end, whatever the outcome, of tasks that have ended."""
    woken, k.freed = k.freed, []
    for task in ended:
        if task.outcome is not None and task.ended_successors is not None:
            woken.extend(graph.met(task.ended_successors))
            task.ended_successors = None
    waiting.wake(k, now, woken, led_by)


def _tell_dependents(k: Base, now: int, task: Task, led_by: int) -> None:
    """Wake the tasks that a final end lets go on, end those that it takes down."""
    if task.outcome is not _SUCCESS:
        take_down(k, now, [task], task.label, led_by)
        return
    woken = graph.met(task.successors)
    task.successors = None
    if k.freed:
        woken += k.freed
        k.freed = []
    if not task.plain and task.ended_successors is not None:
        woken += graph.met(task.ended_successors)
        task.ended_successors = None
    waiting.wake(k, now, woken, led_by)


# Periodics


def _end_iteration(k: Base, now: int, task: Task, periodic: Periodic) -> None:
    """Count an iteration that has ended; the next one is let through the overlap gate with the task's dependents."""
    reason = periodic.ended(task)
    if reason is not None and periodic.enabled:
        switch_off(k, now, periodic, reason)
    allowed = periodic.next_allowed() if periodic.enabled else None
    if allowed is not None:
        allowed.unmet = 0
        if allowed.state is TaskState.PAUSED:
            allowed.held_by = None  # it turns READY when it is resumed
        else:
            k.freed.append(allowed)


def switch_off(k: Base, now: int, periodic: Periodic, reason: str) -> None:
    """Let a periodic have no more ticks, and drop the triggers that have not started."""
    stop_ticks(k, periodic)
    details = (("reason", reason),)
    seq = tell_of(k, now, Kind.PERIODIC_DISABLED, periodic.scope, periodic.name, 0, details)
    for task in list(periodic.waiting):
        if task.state is not _DISPOSED:
            end_with_dependents(k, now, task, Outcome.REJECTED, Cause.PERIODIC_OFF, seq)


def stop_ticks(k: Base, periodic: Periodic) -> None:
    """Call off the next tick of a periodic."""
    periodic.enabled = False
    if periodic.timer is not None:
        k.timers.cancel(periodic.timer)
        periodic.timer = None


# Scopes


def dispose(k: Base, now: int, scope: Scope) -> None:
    """End everything inside a scope; it is DISPOSED when the last body has ended. Idempotent.

    Children come first, running tasks in start order, pending ones in submission order.
    """
    if scope.state in (ScopeState.DISPOSING, ScopeState.DISPOSED):
        return
    doomed = [each for each in scope.subtree() if each.state is not _DISPOSING_SCOPE]
    seq = 0
    for each in doomed:
        k.suspended -= each.state is ScopeState.SUSPENDED
        each.state = scope_step(each.state, "dispose", ScopeState.DISPOSING, each.key)
        seq = tell_of(k, now, Kind.SCOPE_DISPOSING, each, None, seq)
        for periodic in each.periodics.values():
            stop_ticks(k, periodic)
    scope.note_state()
    end_inside(k, now, doomed, seq)


def end_inside(k: Base, now: int, doomed: list[Scope], seq: int) -> None:
    """End all tasks of scopes that are DISPOSING, and the scopes that have nothing left."""
    children_first = sorted(doomed, key=_depth, reverse=True)
    running: dict[Scope, list[Task]] = {}
    for task in k.running.values():
        running.setdefault(task.scope, []).append(task)
    ended: list[Task] = []
    for each in children_first:
        ended += _end_tasks(k, now, each, running.get(each, ()), seq)
    outside = graph.descendants(ended)
    for task, root in outside:
        end_pending(k, now, task, Outcome.ABORTED, Cause.DEPENDENCY, root.label, seq)
    for task in ended:
        task.successors = None
    _wake_after_end(k, now, [*ended, *[task for task, _ in outside]], seq)
    for each in children_first:
        _finish_disposal(k, now, each, seq)


def _end_tasks(k: Base, now: int, scope: Scope, running: Sequence[Task], led_by: int) -> list[Task]:
    """Abort what runs, end what is pending; return the tasks that others may depend on."""
    for task in running:
        if not task.ends_for_good:
            ask_abort(k, now, task, Outcome.ABORTED, Cause.SCOPE_DISPOSED, led_by)
    others, cause = [], Cause.SCOPE_DISPOSED
    for task in list(scope.tasks.values()):
        if task.successors is not None or not task.plain:
            others.append(task)
        if task.state is _READY or task.pending:
            end_pending(k, now, task, _ABORTED, cause, None, led_by, True)
    for lane in list(scope.lanes.values()):
        waiting.clear(k, now, lane)
    return others


def _finish_disposal(k: Base, now: int, scope: Scope, led_by: int) -> None:
    """Complete the disposal of a scope, and then of its parents, once nothing of it is left."""
    while scope.state is _DISPOSING_SCOPE and not scope.tasks and not scope.children:
        scope.state = scope_step(scope.state, "all ended", ScopeState.DISPOSED, scope.key)
        k.scopes.pop(scope.key, None)
        scope.ids.clear()
        scope.by_priority.clear()
        tell_of(k, now, Kind.SCOPE_DISPOSED, scope, None, led_by)
        if scope.parent is None:
            return
        scope.parent.children.pop(scope.key, None)
        scope = scope.parent


def _depth(scope: Scope) -> int:
    return len(scope.chain)
