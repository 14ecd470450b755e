"""Running, and the pauses around it: pause, park, resume, and what an engine tells of a body before its end."""

from __future__ import annotations

from whywait.errors import InvalidTransition
from whywait.kernel import waiting
from whywait.kernel.base import Base, tell
from whywait.kernel.events import Details, Kind
from whywait.kernel.gates import Gate
from whywait.kernel.model import Task, add_wait
from whywait.kernel.state import STATE_WORDS, ScopeState, TaskState, Wait, task_step
from whywait.kernel.timers import PAUSE, RUN_TIMEOUT


def pause(k: Base, now: int, task: Task) -> None:
    """Pause a pending task at once, ask a running one to park; one that is stopped stays paused when it goes on."""
    state = task.state
    if task.pause_wished or not (task.pending or task.active) or task.abort is not None:
        return
    task.pause_wished = True
    if state is TaskState.RUNNING:
        task.pause_timer = k.timers.add(now + k.pause_timeout_ns, PAUSE, task)
        task.plain = False
        k.requests.append(("pause", task))
        tell(k, now, Kind.TASK_PAUSE_ASKED, task)
    elif task.active:  # it is stopped, and its engine has to know that it is not to go on
        k.requests.append(("pause", task))
    elif state is not TaskState.PAUSED:
        _rest(k, now, task)


def parked(k: Base, now: int, task: Task) -> None:
    """Record that a body has parked at a checkpoint."""
    if task.state is not TaskState.RUNNING:
        return  # an abort or a stop came first
    if task.pause_timer is None:
        k.requests.append(("resume", task))  # the pause was withdrawn meanwhile
        return
    _park(k, now, task)


def resume(k: Base, now: int, task: Task) -> None:
    """Take a pause back: the task goes on where it was, unless it is stopped as well."""
    if not task.pause_wished or task.abort is not None or not (task.pending or task.active):
        if task.is_stopped and task.abort is None:
            raise InvalidTransition(
                f"task {task.label} is paused because its terminal stopped it: it goes on with fg there"
            )
        raise InvalidTransition(
            f"task {task.label} is {STATE_WORDS[task.state]}, not paused: there is nothing to resume"
        )
    task.pause_wished = False
    if task.active:
        k.requests.append(("resume", task))
    if not task.is_stopped:
        _go_on(k, now, task)


def stopped(k: Base, now: int, task: Task, is_stopped: bool) -> None:
    """Record that the system has stopped the process of a task's body or client (Ctrl-Z), or that it goes on (M15).

    It pauses the task as ``pause`` does, apart from that: the task goes on when neither holds. Its timeout does not
    count the time in which it is stopped.
    """
    if is_stopped == task.is_stopped or task.abort is not None or not (task.pending or task.active):
        return
    task.is_stopped = is_stopped
    task.plain = False
    if task.active:
        _hold_timeout(k, now, task)
    if not is_stopped:
        if not task.pause_wished:
            _go_on(k, now, task)
    elif task.state is TaskState.RUNNING:
        _park(k, now, task)
    elif task.state is not TaskState.PAUSED:
        _rest(k, now, task)


def _hold_timeout(k: Base, now: int, task: Task) -> None:
    """Call off the timeout of a task that is stopped; set it again, with the rest of its time, when that goes on."""
    if task.is_stopped and task.run_timer is not None:
        task.timeout_left_ns = task.run_timer.at - now
        k.timers.cancel(task.run_timer)
        task.run_timer = None
    elif not task.is_stopped and task.timeout_left_ns is not None:
        task.run_timer = k.timers.add(now + task.timeout_left_ns, RUN_TIMEOUT, task)
        task.timeout_left_ns = None


def _rest(k: Base, now: int, task: Task) -> None:
    """Let a pending task be PAUSED."""
    state = task.state
    if state is TaskState.READY:
        waiting.leave(k, now, task)
        waiting.cancel_wait_timer(task, k.expiries)
    else:
        waiting.charge_queued(now, task)
    task.paused_from = state
    task.state = task_step(state, "pause", TaskState.PAUSED, task.label)
    task.since = now
    tell(k, now, Kind.TASK_PAUSED, task, 0, _paused_details(task))


def _park(k: Base, now: int, task: Task) -> None:
    """Let a running task, whose body does not go on, be PAUSED."""
    if task.pause_timer is not None:
        k.timers.cancel(task.pause_timer)
        task.pause_timer = None
    task.state = task_step(task.state, "park", TaskState.PAUSED, task.label)
    task.paused_from = TaskState.RUNNING
    task.parked_since = now
    tell(k, now, Kind.TASK_PAUSED, task, 0, _paused_details(task))


def _paused_details(task: Task) -> Details:
    details: Details = (("from", task.paused_from),)
    return (*details, ("stopped", True)) if task.is_stopped else details


def _go_on(k: Base, now: int, task: Task) -> None:
    """Bring a task back to where it was when it was paused; a pause that was only asked for is withdrawn."""
    if task.active:
        to = TaskState.RUNNING
        if task.pause_timer is not None:
            k.timers.cancel(task.pause_timer)
            task.pause_timer = None
        else:
            task.state = task_step(task.state, "resume", to, task.label)
            task.paused_from = task.parked_since = None
        tell(k, now, Kind.TASK_RESUMED, task, 0, (("to", to),))
        return
    add_wait(task, Wait.PAUSED, now - task.since)
    task.since = now
    to = TaskState.QUEUED if task.unmet else TaskState.READY
    task.state = task_step(task.state, "resume", to, task.label)
    task.paused_from = None
    if not task.unmet:
        waiting.leave_queue(task)
        waiting.become_ready(k, now, task)
    k.trigger = tell(k, now, Kind.TASK_RESUMED, task, 0, (("to", to),))


def note(k: Base, now: int, task: Task, kind: str, details: Details) -> None:
    """Record what happened to a handler, a worker or a stream of a task; it changes nothing else.

    Of a scope that is DISPOSED nothing is told any more: a thread that a body has left behind may come too late.
    """
    if task.scope.state is not ScopeState.DISPOSED:
        tell(k, now, kind, task, task.started_seq, details)


def overdraw(k: Base, now: int, task: Task, gate: Gate, amount: int) -> None:
    """Have a gate count so much for a slot holder beside what the task has asked for."""
    before = task.overdraft
    if amount == before:
        return
    gate.use_ns += before * (now - task.overdrawn_since)
    gate.free += before - amount
    task.overdraft = amount
    task.overdrawn_since = now
    task.plain = False
    asked = task.lane.need(gate)
    k.trigger = tell(k, now, Kind.TASK_MEASURED, task, task.started_seq, ((gate.name, asked + amount),))
    if amount < before and gate.benches:
        k.levels.opened(now, gate, len(k.running) == k.slotless)


def forget_run_timers(k: Base, task: Task) -> None:
    """Call off the timeout and the pause timeout of an active task."""
    if task.run_timer is not None:
        k.timers.cancel(task.run_timer)
        task.run_timer = None
    if task.pause_timer is not None:
        k.timers.cancel(task.pause_timer)
        task.pause_timer = None
