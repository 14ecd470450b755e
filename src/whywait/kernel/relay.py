"""The short way between two tasks: slot and budget pass from one that succeeded to the next of its lane.

Where all slots are taken, nobody waits for what the task held, and the next in order is of the same lane, nothing
needs to be given back and taken again: the same decision, the same events and the same accounts as ``ended`` and
``dispatch``, in a third of the time. All in one piece because every task of a busy authority passes here
(``test_turn_equals_ended_and_dispatch`` and ``test_kernel_against_model.py`` compare both ways).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from whywait.kernel.events import SUCCESS_DETAILS, Kind
from whywait.kernel.lanes import TRIM
from whywait.kernel.state import Outcome, ScopeState, TaskState

if TYPE_CHECKING:
    from whywait.kernel.life import Life
    from whywait.kernel.model import Task


class Relay:
    """Lets a task follow another without a detour through the gates."""

    __slots__ = ("_dispatcher", "_expiries", "_levels", "_life", "_running", "_slots", "_soft", "_stats")

    def __init__(self, life: Life) -> None:
        """Work on a kernel's state."""
        self._life = life
        self._dispatcher = dispatcher = life.dispatcher
        self._slots = dispatcher.slots
        self._levels = dispatcher.levels
        self._soft = dispatcher.soft
        self._stats = life.stats
        self._running = life.running
        self._expiries = life.expiries

    def pass_on(self, now: int, task: Task) -> Task | None:  # noqa: C901, PLR0912, PLR0915 - in one piece for speed
        """End a task in success; return the one that starts in its place; None: nothing is done, take the long way."""
        lane, scope, dispatcher = task.lane, task.scope, self._dispatcher
        if (
            lane is None
            or not lane.items
            or lane.gone
            or lane.bench is not None
            or not task.plain
            or task.successors is not None
            or task.state != TaskState.RUNNING
            or scope.state != ScopeState.RUNNING
            or scope.counted
            or self._slots.free
            or self._expiries.heap
            or dispatcher.blocker is not None
        ):
            return None
        for gate, _ in lane.needs:
            if gate.benches or gate.free < 0:  # overdrawn: what comes back is not enough for the next one
                return None
        for gate in self._soft:
            if gate.benches:
                return None
        level = lane.level
        heap = level.heap
        is_alone = len(heap) == 1 and len(self._levels) == 1 and not level.opening and heap[0][1] is lane
        if not is_alone and dispatcher.next_lane(now) is not lane:
            return None
        items, index = lane.items, lane.first_index
        new: Task = items[index]
        if not new.plain or new.policy.timeout_ns is not None:
            return None
        # The lane keeps its place in the heap: a key there may be too small, and the lane may be empty.
        items[index] = None
        lane.first_index = index = index + 1
        if index >= len(items) or (index > TRIM and index * 2 > len(items)):
            lane.trim()
            if not items:
                dispatcher.lane_emptied()
        segment, waited, stats = level.segment, now - new.since, self._stats
        if (
            new.segment is segment
            and new.epoch is lane.epoch
            and new.waits is None
            and not segment.higher
            and lane.epoch.gate is None
            and waited < dispatcher.step_ns
        ):
            if waited:
                mode = segment.mode
                new.waits = {mode: waited}
                stats.wait_ns[mode] += waited
            stats.recent_waits_ns.append(waited)
        else:
            dispatcher.account(now, new, lane)
            stats.started(new.waits)
        ran_ns = now - task.since
        self._slots.used_ns += ran_ns
        for gate, need in lane.needs:
            gate.used_ns += need * ran_ns
        number, name, life = task.number, task.name, self._life
        running = self._running
        del running[number], scope.tasks[number]
        task.lane = None
        task.state = TaskState.DISPOSED
        task.since = now
        task.outcome = Outcome.SUCCESS
        if name is not None:
            scope.ids[name] = Outcome.SUCCESS
        stats.by_outcome[Outcome.SUCCESS] += 1
        new.state = TaskState.RUNNING
        new.since = now
        new_number = new.number
        running[new_number] = new
        life.trigger = seq = life.seq + 1
        life.seq = new.started_seq = started_seq = seq + 1
        emit = life.emit
        if emit is not None:
            key = scope.key
            emit((seq, now, Kind.TASK_FINISHED, key, number, name, task.started_seq, SUCCESS_DETAILS))
            emit((started_seq, now, Kind.TASK_STARTED, key, new_number, new.name, seq, new.waits))
        return new
