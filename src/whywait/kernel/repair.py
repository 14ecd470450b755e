"""Repair: bring a kernel back to order after a command was broken off half-way.

Python may raise an exception between any two lines of the main thread (Ctrl-C), and a command that has begun to
change things cannot be taken back line by line. But each task knows where it stands, and everything else can be
made anew from that: a task that was starting has started, one that was ending has ended, one that was becoming READY
is READY. Slow and plain; nothing but an interrupted command comes here. It may itself be broken off and begun again.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Final

from whywait.kernel import ending, graph, lending, running, starting, waiting
from whywait.kernel.base import Base
from whywait.kernel.events import Kind
from whywait.kernel.limits import MEASURED
from whywait.kernel.model import Scope, Task
from whywait.kernel.state import Cause, Outcome, ScopeState, TaskState, Wait
from whywait.kernel.timers import BACKOFF, PAUSE, RUN_TIMEOUT, TICK, Timer

_ENDING: Final = (ScopeState.DISPOSING, ScopeState.DISPOSED)
_BY_START: Final = attrgetter("started_seq")
_BY_ENTRY: Final = attrgetter("entry")


def repair(k: Base, now: int, started: list[Task], reported: Task | None = None) -> None:
    """Make everything anew from the tasks there are.

    ``started`` are those that dispatch had decided to start in the command that was broken off; afterwards it holds
    all whose start has been recorded. ``reported`` is a task whose body has ended: it has its outcome afterwards, or
    stands as before its end.
    """
    _dispose_inside(k, now)
    _complete_ends(k, now, reported)
    _count_iterations(k)
    _follow_dependencies(k, now)
    living = k.living()
    for task in living:
        if task.name is not None and task.periodic is None:
            task.scope.ids[task.name] = task
        if task.state == TaskState.QUEUED and not task.unmet and task.held_by is None:
            task.state = TaskState.READY
    recorded = sorted((task for task in living if task.active and task.started_seq), key=_BY_START)
    unrecorded = [task for task in living if task.active and not task.started_seq]
    started[:] = [task for task in started if task.started_seq] + unrecorded
    _rebuild(k, now, living, [*recorded, *unrecorded])
    _set_timers(k, now, living)
    for task in recorded:
        if task.state == TaskState.DISPOSING and task.abort is None:
            k.requests.append(("abort", task))
            task.abort = (Outcome.ABORTED, Cause.CANCELLED, task.started_seq)
    disposing = [scope for scope in k.scopes.values() if scope.state == ScopeState.DISPOSING]
    ending.end_inside(k, now, disposing, None)


def take_back(k: Base, now: int, submitted: Sequence[Task]) -> None:
    """Cancel what was submitted by a command that was broken off: all of it, or nothing if a task of it has started."""
    if not any(task.active for task in submitted):
        for task in submitted:
            ending.cancel(k, now, task)


def _rebuild(k: Base, now: int, living: list[Task], holders: list[Task]) -> None:
    """Fill gates, lanes, levels and counters anew."""
    scopes = list(k.scopes.values())
    _empty_gates(scopes)
    for scope in scopes:
        scope.pending = 0
        scope.note_state()
    k.levels.clear()
    for lane in k.lanes:
        lane.queued = lane.parked_at = None
        lane.clear()
        waiting.next_epoch(k, now, lane, None)
    k.blocker = None
    k.suspended = sum(scope.state == ScopeState.SUSPENDED for scope in scopes)
    k.lanes = list(dict.fromkeys(lane for scope in scopes for lane in scope.lanes.values()))
    k.empty_lanes = len(k.lanes)
    for lane in k.lanes:
        lane.forgotten = False  # its scope has it: it was not yet
    k.running.clear()
    k.slotless = 0
    _want_again(k, holders)
    waiting.count_holders(k, now)
    for task in living:
        if task.pending or not task.started_seq:
            for scope in task.scope.counted:
                scope.pending += 1
    _take_again(k, now, holders)
    ready = sorted((task for task in living if task.state == TaskState.READY), key=_BY_ENTRY)
    for task in (*(task for task in ready if task.entry), *(task for task in ready if not task.entry)):
        _enter_again(k, now, task)
    for task in living:
        timers = (task.run_timer, task.pause_timer, task.wait_timer)
        special = (*timers, task.held_by, task.after_ended, task.ended_successors)
        task.plain = task.plain and all(each is None for each in special)
    ceiling = k.levels.ceiling
    ceiling.change(now, k.holding.bit_length() - 1, held=False)


def _take_again(k: Base, now: int, holders: list[Task]) -> None:
    """Let running tasks hold again what they held, and use again what they used."""
    for task in holders:
        starting.activate(k, now, task)
        if task.lends:
            lending.count_lender(k, task, 1)
            for gate, need in task.lane.slots:
                gate.free += need
        if task.overdraft:
            task.scope.pool.resources[MEASURED].free -= task.overdraft


def _want_again(k: Base, holders: list[Task]) -> None:
    """Have all among those that want their slots again which have lent them and go on, and no other."""
    for task in list(k.wanting.values()):
        if not _wants_slot(task):  # it has its slots again, or was asked to end, and its body has yet to hear of it
            lending.want_no_more(k, task)
    wanting = [*k.wanting.values(), *holders]
    k.wanting = {task.number: task for task in wanting if _wants_slot(task)}


def _wants_slot(task: Task) -> bool:
    return task.active and task.lends and task.blocked_on is None and task.abort is None


def _empty_gates(scopes: list[Scope]) -> None:
    """Have nothing held, and no lane waiting at a gate."""
    for scope in scopes:
        scope.pool.reset()
        scope.slot_gate.reset()
        scope.state_gate.benches.clear()


def _enter_again(k: Base, now: int, task: Task) -> None:
    """Put a READY task back into its lane; one that was READY before keeps its place and its account."""
    since, entry, epoch, segment = task.since, task.entry, task.epoch, task.segment
    entries = k.entries
    waiting.cancel_wait_timer(task, k.expiries)
    if entry:
        k.entries = entry - 1
    # It never has another since, not even until it gets its own back: this repair may be broken off and begun again.
    waiting.become_ready(k, since if entry else now, task)
    k.entries = max(entries, k.entries)
    if entry and epoch is not None and segment is not None:
        level = task.lane.level
        waiting.forget_entry(task, level)
        task.since, task.epoch, task.segment = since, epoch, segment
        level.entered_ns += segment.starved_at(since)


def _dispose_inside(k: Base, now: int) -> None:
    """Let all have begun to end that is inside a scope which has."""
    for scope in k.root.subtree():
        if any(each.state in _ENDING for each in scope.chain):
            if scope.state not in _ENDING:
                scope.state = ScopeState.DISPOSING
                k.tell_of(now, Kind.SCOPE_DISPOSING, scope)
            for periodic in scope.periodics.values():
                ending.stop_ticks(k, periodic)


def _complete_ends(k: Base, now: int, reported: Task | None) -> None:
    """Let everything have ended that was about to."""
    for scope in k.root.subtree():
        if scope.state == ScopeState.DISPOSED and scope.parent is not None:
            k.scopes.pop(scope.key, None)
            scope.parent.children.pop(scope.key, None)
    for task in k.living():
        if task.state == TaskState.DISPOSED:
            if task.retried_as is not None:
                _complete_retry(task, task.retried_as)
            elif task is reported and task.outcome is None:
                _take_end_back(k, task)
            else:
                _complete_end(k, now, task)
    k.settled[:] = [task for task in k.settled if task.outcome is not None]


def _complete_end(k: Base, now: int, task: Task) -> None:
    outcome = task.outcome
    if outcome is None:
        outcome = Outcome.ABORTED
        task.cause = task.cause or Cause.CANCELLED
    ending.finish(k, now, task, outcome)
    if task not in k.settled:
        k.settled.append(task)


def _take_end_back(k: Base, task: Task) -> None:
    """Let a task stand as before its end; a retry of it that was being made is forgotten."""
    task.state = TaskState.RUNNING if task.abort is None else TaskState.DISPOSING
    newest = task.scope.tasks.get(k.stats.numbered)
    if newest is not None and newest is not task and newest.job is task.job is not None:
        del task.scope.tasks[k.stats.numbered]
        k.stats.numbered -= 1


def _complete_retry(task: Task, new: Task) -> None:
    """Let the new attempt stand for the one that failed; it is not held back."""
    new.name = task.name
    new.attempt = task.attempt + 1
    new.periodic = task.periodic
    new.plain = False
    graph.hand_over(task, new)
    task.outcome = Outcome.ERROR
    task.scope.tasks.pop(task.number, None)


def _count_iterations(k: Base) -> None:
    """Count the iterations of periodics anew."""
    for scope in k.scopes.values():
        tasks = [task for task in scope.tasks.values() if task.periodic is not None]
        scope.triggers = len(tasks)
        for periodic in scope.periodics.values():
            own = [task for task in tasks if task.periodic is periodic]
            started = [task for task in own if task.active and task.started_seq]
            periodic.active = {task.number: periodic.active.get(task.number, task.since) for task in started}
            periodic.waiting = [task for task in own if task not in started]  # what is unrecorded starts once more
            while (allowed := periodic.next_allowed()) is not None:
                allowed.unmet, allowed.held_by = 0, None


def _follow_dependencies(k: Base, now: int) -> None:
    """Count anew what QUEUED tasks await; end those that await a success that will not come."""
    for task in k.living():
        if task.held_by is not None or task.outcome is not None or not (task.after or task.after_ended):
            continue
        ended = (dependency.latest() for dependency in task.after or ())
        failed = next((each for each in ended if each.outcome not in (None, Outcome.SUCCESS)), None)
        if failed is not None:
            root = failed.root or failed.label
            ending.end_pending(k, now, task, Outcome.ABORTED, Cause.DEPENDENCY, root)
            ending.take_down(k, now, [task], root, None)
        else:
            task.unmet = len(graph.unmet_dependencies(task))


def _set_timers(k: Base, now: int, living: list[Task]) -> None:
    """Set those timers again that are missing, and call off those that are not to come."""
    for timers in (k.timers, k.expiries):
        timers.repair()
    for task in living:
        if task.state == TaskState.RUNNING:
            _set_run_timers(k, task)
        elif task.state == TaskState.DISPOSING:
            running.forget_run_timers(k, task)
        elif task.held_by == Wait.BACKOFF and _is_missing(task.wait_timer):
            task.unmet = 1
            task.wait_timer = k.timers.add(now, BACKOFF, task)
        _settle_pause(task)
    for scope in k.scopes.values():
        for periodic in scope.periodics.values():
            if not periodic.enabled:
                ending.stop_ticks(k, periodic)
            elif _is_missing(periodic.timer):
                periodic.timer = k.timers.add(max(now, periodic.planned_ns), TICK, periodic)


def _settle_pause(task: Task) -> None:
    """Let a pause, or its end, that was broken off be asked for once more."""
    is_wished = task.state == TaskState.PAUSED or task.pause_timer is not None
    if task.pause_wished != is_wished and not task.is_stopped and task.abort is None:
        task.pause_wished = is_wished


def _set_run_timers(k: Base, task: Task) -> None:
    timeout_ns, pause_timer = task.policy.timeout_ns, task.pause_timer
    if timeout_ns is not None and _is_missing(task.run_timer):
        task.run_timer = k.timers.add(task.since + timeout_ns, RUN_TIMEOUT, task)
        task.plain = False
    if pause_timer is not None and not pause_timer.live:
        task.pause_timer = k.timers.add(pause_timer.at, PAUSE, task)


def _is_missing(timer: Timer | None) -> bool:
    return timer is None or not timer.live
