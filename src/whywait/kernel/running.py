"""Running, and the pauses around it: pause, park, resume, and what an engine tells of a body before its end."""

from __future__ import annotations

from whywait.errors import InvalidTransition
from whywait.kernel import waiting
from whywait.kernel.base import Base
from whywait.kernel.events import Details, Kind
from whywait.kernel.gates import Gate
from whywait.kernel.model import Task
from whywait.kernel.state import TaskState, Wait, task_step
from whywait.kernel.timers import PAUSE


def pause(k: Base, now: int, task: Task) -> None:
    """Pause a pending task at once, ask a running one to park; nothing else changes anything."""
    state = task.state
    if state == TaskState.RUNNING:
        if task.pause_timer is None:
            task.pause_timer = k.timers.add(now + k.pause_timeout_ns, PAUSE, task)
            task.plain = False
            k.requests.append(("pause", task))
            k.tell(now, Kind.TASK_PAUSE_ASKED, task, None)
        return
    if state == TaskState.READY:
        waiting.leave(k, now, task)
        waiting.cancel_wait_timer(task, k.expiries)
    elif state == TaskState.QUEUED:
        waiting.charge_queued(now, task)
    else:
        return
    task.paused_from = state
    task.state = task_step(state, "pause", TaskState.PAUSED, task.label)
    task.since = now
    k.tell(now, Kind.TASK_PAUSED, task, None, (("from", state),))


def parked(k: Base, now: int, task: Task) -> None:
    """Record that a body has parked at a checkpoint."""
    if task.state != TaskState.RUNNING:
        return  # an abort came first
    if task.pause_timer is None:
        k.requests.append(("resume", task))  # the pause was withdrawn meanwhile
        return
    k.timers.cancel(task.pause_timer)
    task.pause_timer = None
    task.state = task_step(task.state, "park", TaskState.PAUSED, task.label)
    task.paused_from = TaskState.RUNNING
    task.parked_since = now
    k.tell(now, Kind.TASK_PAUSED, task, None, (("from", TaskState.RUNNING),))


def resume(k: Base, now: int, task: Task) -> None:
    """Bring a paused task back to where it was; a pause that was only asked for is withdrawn."""
    if task.state == TaskState.RUNNING and task.pause_timer is not None:
        k.timers.cancel(task.pause_timer)
        task.pause_timer = None
        _go_on(k, now, task)
        return
    if task.state != TaskState.PAUSED:
        raise InvalidTransition(f"task {task.label} is {task.state}, not PAUSED: there is nothing to resume")
    if task.paused_from == TaskState.RUNNING:
        task.state = task_step(task.state, "resume", TaskState.RUNNING, task.label)
        task.paused_from = task.parked_since = None
        _go_on(k, now, task)
        return
    task.add_wait(Wait.PAUSED, now - task.since)
    task.since = now
    to = TaskState.QUEUED if task.unmet else TaskState.READY
    task.state = task_step(task.state, "resume", to, task.label)
    task.paused_from = None
    if not task.unmet:
        waiting.leave_queue(task)
        waiting.become_ready(k, now, task)
    k.trigger = k.tell(now, Kind.TASK_RESUMED, task, None, (("to", to),))


def _go_on(k: Base, now: int, task: Task) -> None:
    k.requests.append(("resume", task))
    k.tell(now, Kind.TASK_RESUMED, task, None, (("to", TaskState.RUNNING),))


def note(k: Base, now: int, task: Task, kind: str, details: Details) -> None:
    """Record what happened to a handler, a worker or a stream of a task; it changes nothing else."""
    k.tell(now, kind, task, task.started_seq or None, details)


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
    k.trigger = k.tell(now, Kind.TASK_MEASURED, task, task.started_seq or None, ((gate.name, asked + amount),))
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
