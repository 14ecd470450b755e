"""The short ways, which most tasks take: into a lane, and from one task to the next.

Both decide, record and charge exactly like the long ways in :mod:`whywait.kernel.kernel`, for the case in which there
is nothing to check or nothing to give back; otherwise they do nothing and say so. Each is in one piece because every
task of a busy authority passes here (``bench/kernel.py`` measures them; ``test_kernel_against_model.py`` and
``test_turn_equals_ended_and_dispatch`` compare both ways).
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from whywait.kernel.events import SUCCESS_DETAILS, Kind
from whywait.kernel.graph import BY_ID
from whywait.kernel.lanes import TRIM
from whywait.kernel.model import GENERATED_ID_PREFIX, Demand, Policy, Priority, Task
from whywait.kernel.state import Outcome, ScopeState, TaskState, Wait
from whywait.kernel.timers import RUN_TIMEOUT

if TYPE_CHECKING:
    from whywait.kernel.lanes import Lane
    from whywait.kernel.life import Life
    from whywait.kernel.model import Scope

# A global is found faster than an attribute of a class, before Python 3.12.
QUEUED: Final = TaskState.QUEUED
RUNNING: Final = TaskState.RUNNING
DISPOSED: Final = TaskState.DISPOSED
SCOPE_RUNS: Final = ScopeState.RUNNING
SUCCESS: Final = Outcome.SUCCESS
FINISHED: Final = Kind.TASK_FINISHED
STARTED: Final = Kind.TASK_STARTED
SUBMITTED: Final = Kind.TASK_SUBMITTED
IS_READY: Final = Kind.TASK_READY
DEPENDENCY: Final = Wait.DEPENDENCY
BY_NUMBER: Final = attrgetter("number")  # generated ids sort by it
PLAIN: Final[tuple[int, Demand]] = (Priority.NORMAL, ())


class Shortcuts:
    """Submits a plain task; lets a task follow another without a detour through the gates."""

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

    def enter(
        self,
        now: int,
        scope: Scope,
        job: Any,  # noqa: ANN401 - opaque: belongs to whoever submits
        priority_and_demand: tuple[int, Demand] = PLAIN,
        name: str | None = None,
        policy: Policy | None = None,
    ) -> Task | None:
        """Take in a task that awaits no other; None: nothing is done, take the long way."""
        lane = scope.lanes.get(priority_and_demand)
        life = self._life
        if policy is None:
            policy = scope.policy
        if (  # a lane exists only for a priority and a demand that were accepted before
            lane is None
            or scope.state != SCOPE_RUNS
            or scope.limited
            or life.suspended
            or policy.max_wait_ns is not None
            or (name is not None and (not name or name in scope.ids or name[0] == GENERATED_ID_PREFIX))
        ):
            return None
        dispatcher = self._dispatcher
        dispatcher.count = number = dispatcher.count + 1
        priority, demand = priority_and_demand
        task = Task(number, name, scope, priority, demand, policy, job, now)
        scope.tasks[number] = task
        if name is not None:
            scope.ids[name] = task
        self._stats.submitted += 1
        dispatcher.enter(now, task, lane, number)
        life.seq = life.trigger = seq = life.seq + 1
        emit = life.emit
        if emit is not None:
            emit((seq, now, SUBMITTED, scope.key, number, name, None, lane.details))
        return task

    def queue(  # noqa: C901 - in one piece for speed
        self,
        now: int,
        scope: Scope,
        job: Any,  # noqa: ANN401 - opaque: belongs to whoever submits
        after: Sequence[Task | str],
        priority_and_demand: tuple[int, Demand] = PLAIN,
        name: str | None = None,
        policy: Policy | None = None,
    ) -> Task | None:
        """Take in a task that awaits the success of others; None: nothing is done, take the long way."""
        awaited = []
        for dependency in after:
            if dependency.__class__ is not Task or dependency.retried_as is not None:
                return None
            outcome = dependency.outcome
            if outcome is None:
                awaited.append(dependency)
            elif outcome != SUCCESS:
                return None
        if not awaited:
            return self.enter(now, scope, job, priority_and_demand, name, policy)
        lane = scope.lanes.get(priority_and_demand)
        life, dispatcher, count = self._life, self._dispatcher, len(awaited)
        if (
            lane is None
            or scope.state != SCOPE_RUNS
            or scope.limited
            or life.suspended
            or (count > 1 and len(set(awaited)) != count)
            or (name is not None and (not name or name in scope.ids or name[0] == GENERATED_ID_PREFIX))
        ):
            return None
        dispatcher.count = number = dispatcher.count + 1
        priority, demand = priority_and_demand
        task = Task(number, name, scope, priority, demand, policy or scope.policy, job, now)
        scope.tasks[number] = task
        if name is not None:
            scope.ids[name] = task
        self._stats.submitted += 1
        task.after = awaited
        task.unmet = count
        for dependency in awaited:
            if dependency.successors is None:
                dependency.successors = [task]
            else:
                dependency.successors.append(task)
        life.seq = life.trigger = seq = life.seq + 1
        emit = life.emit
        if emit is not None:
            after_numbers = [dependency.number for dependency in awaited]
            emit((seq, now, SUBMITTED, scope.key, number, name, None, (lane.queued_details, *after_numbers)))
        return task

    def pass_on(self, now: int, task: Task) -> Task | None:  # noqa: C901, PLR0911, PLR0912, PLR0915 - for speed
        """End a task in success and start the next of its lane in its place; None: nothing is done, take the long way.

        Whoever awaited the task is READY then; while slots are free, dispatch may start more of them.
        """
        lane, scope, dispatcher, life = task.lane, task.scope, self._dispatcher, self._life
        successors = task.successors
        if (
            lane is None
            or not (lane.items or successors)
            or lane.gone
            or lane.bench is not None
            or not task.plain
            or task.state != RUNNING
            or scope.state != SCOPE_RUNS
            or not scope.activated
            or scope.counted
            or self._slots.free < 0
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
        woken = None
        if successors is not None:
            woken = _lets_go(successors, lane)
            if woken is None:
                return None
        items, level = lane.items, lane.level
        heap = level.heap
        has_rivals = heap and (len(heap) > 1 or heap[0][1] is not lane)
        if (has_rivals or len(self._levels) > 1 or level.opening) and (
            not items or dispatcher.next_lane(now) is not lane
        ):
            return None
        if items:
            new: Task = items[lane.first_index]
        elif woken:
            new = woken[0]
        else:
            return None
        if not new.plain:
            return None
        if task.policy.timeout_ns is not None:
            life.forget_run_timers(task)
        timeout_ns = new.policy.timeout_ns
        if timeout_ns is not None:
            new.run_timer = life.timers.add(now + timeout_ns, RUN_TIMEOUT, new)
        stats, running, emit, key = self._stats, self._running, life.emit, scope.key
        number, name = task.number, task.name
        del running[number], scope.tasks[number]
        task.lane = None
        task.state = DISPOSED
        task.since = now
        task.outcome = SUCCESS
        if name is not None:
            scope.ids[name] = SUCCESS
        stats.by_outcome[SUCCESS] += 1
        life.seq = seq = life.seq + 1
        if emit is not None:
            emit((seq, now, FINISHED, key, number, name, task.started_seq, SUCCESS_DETAILS))
        if successors is not None:
            task.successors = None
            for each in successors:
                if each.outcome is None:
                    each.unmet -= 1
            if woken:
                seq = self._wake(now, woken, lane, seq)
        # The lane keeps its place in the heap: a key there may be too small, and the lane may be empty.
        index = lane.first_index
        items[index] = None
        lane.first_index = index = index + 1
        if index >= len(items) or (index > TRIM and index * 2 > len(items)):
            lane.trim()
            if not items:
                dispatcher.lane_emptied()
        segment, waited = level.segment, now - new.since
        told: Any = None
        if (
            new.segment is segment
            and new.epoch is lane.epoch
            and not segment.higher
            and lane.epoch.gate is None
            and waited < dispatcher.step_ns
        ):
            waits = new.waited
            mode = segment.mode
            if waits is None:
                if waited:
                    new.waited = waited
                    stats.wait_ns[mode] += waited
                    told = (mode, waited)
                stats.recent_waits_ns.append(waited)
            else:  # it was QUEUED or PAUSED before
                assert waits.__class__ is dict, "only the last stay in READY is told by a number"
                if waited:
                    waits[mode] = waits.get(mode, 0) + waited
                stats.started(waits)
                told = waits or None
        else:
            dispatcher.account(now, new, lane)
            waits = new.waits
            stats.started(waits)
            told = waits or None
        new.state = RUNNING
        new.since = now
        number = new.number
        running[number] = new
        life.trigger = seq
        life.seq = new.started_seq = started_seq = life.seq + 1
        if emit is not None:
            emit((started_seq, now, STARTED, key, number, new.name, seq, told))
        return new

    def _wake(self, now: int, woken: list[Task], lane: Lane, finished_seq: int) -> int:
        """Make tasks READY whose last dependency has succeeded; return the seq of the last event."""
        life, dispatcher = self._life, self._dispatcher
        emit, enter = life.emit, dispatcher.enter
        for task in woken:
            waited = now - task.since
            if waited:
                task.waited = {DEPENDENCY: waited}
            task.after = None
            dispatcher.count = entry = dispatcher.count + 1
            enter(now, task, lane, entry)
            life.seq = seq = life.seq + 1
            if emit is not None:
                emit((seq, now, IS_READY, task.scope.key, task.number, task.name, finished_seq, None))
        return seq


def _lets_go(successors: list[Task], lane: Lane) -> list[Task] | None:
    """Return, in id order, who becomes READY when one more dependency is met; None: one of them has its own ways."""
    woken = []
    for task in successors:
        if task.unmet == 1 and task.state == QUEUED:
            if (
                not task.plain
                or task.scope is not lane.scope
                or task.priority != lane.level.priority
                or task.demand != lane.demand
                or task.waited is not None
                or task.after_ended is not None
                or task.policy.max_wait_ns is not None
            ):
                return None
            woken.append(task)
    if len(woken) > 1:
        woken.sort(key=BY_ID if any(each.name is not None for each in woken) else BY_NUMBER)
    return woken
