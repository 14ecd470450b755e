"""Lending: a task whose body blocks for the end of another gives its slots back meanwhile, if it is to (S7).

It stays active and keeps its budget. Once it blocks no more it wants its slots again: it gets them before any task
starts, and until then its body has to wait. One that was asked to end needs none.
"""

from __future__ import annotations

from whywait.kernel.base import Base, count_holder, no_slot_held, tell
from whywait.kernel.events import Details, Kind
from whywait.kernel.gates import Gate
from whywait.kernel.model import Task


def blocked(k: Base, now: int, task: Task, on: Task | None) -> None:
    """Record that the body of an active task blocks until another task ends, or with None that it does no more.

    The task keeps all that it holds, unless ``when_blocked`` of its scope says "lend": then it has no slot until the
    owner is asked to let it go on. ``why`` tells of it.
    """
    if on is task.blocked_on or not task.active:
        return
    task.blocked_on = on
    if on is None:
        tell(k, now, Kind.TASK_UNBLOCKED, task)
        if task.lends and task.abort is None:
            k.wanting[task.number] = task
        return
    want_no_more(k, task)
    begins = not task.lends and task.takes_slot and task.scope.limits.when_blocked == "lend"
    told: Details = (("on", on.number),)
    if begins or task.lends:
        told = (*told, ("lends", True))
    seq = tell(k, now, Kind.TASK_BLOCKED, task, 0, told)
    if begins:
        k.trigger = seq
        _lend(k, now, task)


def want_no_more(k: Base, task: Task) -> None:
    """Let the body of a task go on without a slot, if it waits for one."""
    if task.number in k.wanting:
        k.requests.append(("go_on", task))
        del k.wanting[task.number]


def return_slots(k: Base, now: int) -> None:
    """Give their slots to those that want them again and find all of them free, in the order of asking."""
    for task in list(k.wanting.values()):
        if k.slots.free <= 0:
            return
        if _are_free(task):
            take_again(k, now, task)
            tell(k, now, Kind.TASK_REGAINED, task, k.trigger)
            want_no_more(k, task)


def _are_free(task: Task) -> bool:
    """Return whether there is a slot for a task at every gate of its slots."""
    return all([not gate.closed(need, False) for gate, need in task.lane.slots])  # noqa: C419 - no closure here


def take_again(k: Base, now: int, task: Task) -> None:
    """Let a task hold its slots again; what they were in use meanwhile is not its own."""
    task.lends = False
    for gate, need in task.lane.slots:
        gate.free -= need
        gate.use_ns -= need * (now - task.since)
    count_lender(k, task, -1)


def count_lender(k: Base, task: Task, more: int) -> None:
    """Count one more active task that holds no slot, or one less."""
    k.slotless += more
    if k.counts_holders:
        count_holder(k, task.priority, -more)


def _lend(k: Base, now: int, task: Task) -> None:
    task.plain = False
    task.lends = True
    count_lender(k, task, 1)
    for gate, need in task.lane.slots:
        gate.free += need
        gate.use_ns += need * (now - task.since)
        _open(k, now, gate)
    if no_slot_held(k):
        for gate in k.soft:
            _open(k, now, gate)


def _open(k: Base, now: int, gate: Gate) -> None:
    if gate.benches:
        k.levels.opened(now, gate, no_slot_held(k))
