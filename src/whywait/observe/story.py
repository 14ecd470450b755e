"""The run moment by moment: which lane each task waited in, what for, and which tasks held slots.

A :class:`Story` is the fold of the events (``fold.py``) with lanes and slot holders beside it. What lanes wait for is
not worked out here: the kernel tells it (``LANE_WAITS``), and the account of a finished wait comes with the event too.
The run report and the trace exporter are stories that keep a little more.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable
from typing import Any, ClassVar, Final, NamedTuple

from whywait.kernel.accounts import wait_mode
from whywait.kernel.events import Event, Kind, RawEvent, cause_of, details_of
from whywait.kernel.limits import HIGHEST, MEASURED, MEMORY, Demand
from whywait.kernel.state import TaskState, Wait
from whywait.observe.fold import ENDS, Attempt, Fold

LaneKey = tuple[int, str, Demand, bool]  # priority, scope, demand, whether its tasks take a slot

# What begins or ends a stay in QUEUED, READY or PAUSED, or a run.
_MOVES: Final = frozenset({
    Kind.TASK_SUBMITTED, Kind.TASK_RETRIED, Kind.TASK_READY, Kind.TASK_STARTED, Kind.TASK_PAUSED, Kind.TASK_RESUMED,
    *ENDS,
})  # fmt: skip
_DEEPEST: Final = 100  # of scopes inside one another, whatever a file says
_HOLDS: Final = frozenset({Kind.TASK_MEASURED, Kind.TASK_BLOCKED, Kind.TASK_REGAINED})  # a running task may hold less


class GateKey(NamedTuple):
    """One gate: its wait cause, and the scope it belongs to (empty for the authority's own)."""

    name: str
    scope: str = ""


SLOT: Final = GateKey(Wait.SLOT)


class Stretch(NamedTuple):
    """A stretch of one task's wait with one cause."""

    cause: str
    begin_ns: int
    end_ns: int


class TaskStory(Attempt):
    """An attempt, and how its wait went."""

    __slots__ = ("before", "lane", "since_ns", "stretches")

    def __init__(self, number: int, ident: str, scope: str, now: int) -> None:
        """Begin the story of an attempt at ``now``."""
        super().__init__(number, ident, scope, now)
        self.since_ns = now  # when its present stay in QUEUED, READY or PAUSED began
        self.before: TaskStory | None = None  # the attempt whose end let this one go on: a dependency, or a retried one
        self.lane: LaneStory | None = None
        self.stretches: list[Stretch] = []  # of its wait so far


class LaneStory:
    """READY tasks of one lane, and what they have waited for."""

    __slots__ = ("causes", "gate", "key", "since", "waiting")

    def __init__(self, key: LaneKey, now: int) -> None:
        """Begin with an open, empty lane."""
        self.key = key
        self.gate: GateKey | None = None  # None: it is open and waits for dispatch to get to it
        self.waiting = 0
        self.since = [now]  # moments at which the gate changed...
        self.causes: list[str | None] = [None]  # ...and the gate's name from then on


class Story(Fold[TaskStory]):
    """Follows a run through its events."""

    keeps_stretches: ClassVar[bool] = True  # whether the causes of a wait are kept one after the other

    def __init__(self, events: Iterable[Event] = ()) -> None:
        """Begin with nothing and follow ``events``."""
        self.began_ns: int | None = None
        self.first_seq: int | None = None
        self.last_seq = 0
        self.skipped = 0  # events that are missing in between
        self.running: dict[int, TaskStory] = {}  # active tasks in start order
        self.lanes: dict[LaneKey, LaneStory] = {}
        self.waiting: defaultdict[GateKey, int] = defaultdict(int)  # READY tasks by what their lane waits for
        self.parents: dict[str, str] = {}  # of scopes
        self.payers: set[str] = set()  # scopes with a budget of their own
        self.held_by: LaneStory | None = None  # backfill="none": the lane that the open lanes wait for
        self._holding = [0] * (HIGHEST + 1)  # slot holders by priority
        self._top = -1  # the highest priority that holds a slot
        self._modes_since: list[int] = [0]  # moments at which the two below changed
        self._modes: list[tuple[int, bool]] = [(-1, False)]  # the highest priority that holds a slot; held back?
        self._ends: dict[int, TaskStory] = {}  # seq of an end -> the attempt that ended
        super().__init__(TaskStory, events)

    # What a subclass may keep

    def time_passes(self, before: int, now: int) -> None:
        """Take note that nothing changed between two moments."""

    def task_started(self, task: TaskStory) -> None:
        """Take note that a task got what it needs and runs."""

    def task_ended(self, task: TaskStory) -> None:
        """Take note that a task ended, with or without a start."""

    def takes(self, task: TaskStory) -> None:
        """Take note that a task holds from now on what :meth:`gates_of` says."""

    def gives_back(self, task: TaskStory) -> None:
        """Take note that a task holds no more what :meth:`gates_of` says."""

    def lane_counts(self, lane: LaneStory, change: int) -> None:
        """Take note that a task more, or less, waits in a lane."""

    def refused(self, task: TaskStory) -> None:
        """Take note of a submission that was refused."""

    def something_else(self, event: RawEvent) -> None:
        """Take note of an event that is neither about tasks nor about lanes."""

    # Following

    def apply(self, event: RawEvent) -> TaskStory | None:
        """Take in the next event as the kernel told it; return the attempt that it is about."""
        seq, now, kind, scope, number, _, _, _ = event
        if self.now is None:
            self.began_ns, self.first_seq = now, seq
        else:
            self.skipped += seq - self.last_seq - 1
            if now > self.now:
                self.time_passes(self.now, now)
        self.last_seq = seq
        known = self.attempts.get(number or 0)
        waited_for = None if known is None else known.held_by
        if kind in _HOLDS and known is not None and number in self.running:
            held = known.holds_slot
            self.gives_back(known)
            super().apply(event)
            self.takes(known)
            self._count_holder(known, now, known.holds_slot - held)
            return known
        task = super().apply(event)
        if kind == Kind.LANE_WAITS:
            self._lane_waits(now, scope, dict(details_of(event) or ()))
        elif number is None:
            if task is not None:
                self.refused(task)
                return task
            if kind == Kind.SCOPE_CREATED:
                details = dict(details_of(event) or ())
                self.parents[scope] = details.get("parent", "")
                (self.payers.add if details.get("own_budget") else self.payers.discard)(scope)
            self.something_else(event)
        elif kind in _MOVES and task is not None:
            if kind in (Kind.TASK_READY, Kind.TASK_RETRIED) and (cause := cause_of(event)) is not None:
                task.before = self._ends.get(cause, task.before)
            self._move(task, now, waited_for)
        return task

    def forgotten(self, attempt: TaskStory) -> None:
        """Forget when it ended."""
        self._ends.pop(attempt.seq, None)

    def scope_chain(self, scope: str) -> list[str]:
        """Return a scope and those around it, the innermost first, without the authority's own."""
        chain: list[str] = []
        while scope and scope not in chain and len(chain) < _DEEPEST:
            chain.append(scope)
            scope = self.parents.get(scope, "")
        return chain

    def payer_of(self, scope: str) -> str:
        """Return the scope out of whose budget the tasks of a scope are served; empty for the authority's."""
        if not self.payers:
            return ""
        return next((each for each in self.scope_chain(scope) if each in self.payers), "")

    def gates_of(self, task: TaskStory) -> list[tuple[GateKey, int]]:
        """Return the gates of which a task holds something while it runs, and how much."""
        held = dict(task.demand)
        if task.ram is not None:
            held[MEASURED] = task.ram
        payer = self.payer_of(task.scope)
        gates = [(GateKey(name, payer), amount) for name, amount in held.items()]
        if task.devices:
            kinds = dict(task.devices)
            counted = (*kinds, *(MEMORY.get(kind) for kind in kinds))
            gates = [gate for gate in gates if gate[0].name not in counted]
            gates += [(GateKey(kind, payer), len(names)) for kind, names in task.devices]
        if not task.holds_slot:
            return gates
        of_scopes = ((GateKey(Wait.SCOPE_SLOTS, scope), 1) for scope in self.scope_chain(task.scope))
        return [(SLOT, 1), *gates, *of_scopes]

    def stretches_of(self, task: TaskStory, now: int) -> list[Stretch]:
        """Return the whole wait of a task up to ``now``, in stretches with one cause each."""
        if task.started_ns is not None or task.outcome is not None or now <= task.since_ns:
            return list(task.stretches)
        return task.stretches + self._stretches_since(task, now, task.held_by)

    # Steps

    def _move(self, task: TaskStory, now: int, waited_for: str | None) -> None:
        """Follow a task from where it was to the state that the fold has given it."""
        held = task.number in self.running
        if not held:
            self._leave(task, now, waited_for)
        if task.outcome is not None:
            if held:
                self._hold(task, now, -1)
            self._ends[task.seq] = task
            self.task_ended(task)
        elif task.state == TaskState.READY:
            self._enter(task, now)
        elif task.state == TaskState.RUNNING and not held and task.started_ns == now:
            self._hold(task, now, 1)
            self.task_started(task)

    def _hold(self, task: TaskStory, now: int, change: int) -> None:
        """Note that a task starts (1) or ends (-1), and with it what its slot means to others."""
        if change > 0:
            self.running[task.number] = task
        else:
            del self.running[task.number]
        if task.holds_slot:
            self._count_holder(task, now, change)

    def _count_holder(self, task: TaskStory, now: int, change: int) -> None:
        if not change:
            return
        self._holding[task.priority] += change
        self._top = max(self._top, task.priority)
        while self._top >= 0 and not self._holding[self._top]:
            self._top -= 1
        self._note_mode(now)

    def _enter(self, task: TaskStory, now: int) -> None:
        key = (task.priority, task.scope, task.demand, task.slot)
        lane = self.lanes.get(key)
        if lane is None:
            lane = self.lanes[key] = LaneStory(key, now)
        lane.waiting += 1
        self.waiting[lane.gate or SLOT] += 1
        self.lane_counts(lane, 1)
        task.lane = lane

    def _leave(self, task: TaskStory, now: int, waited_for: str | None) -> None:
        """End a stay in QUEUED, READY or PAUSED: what it waited for in it is known now."""
        if now > task.since_ns and self.keeps_stretches:
            task.stretches += self._stretches_since(task, now, waited_for)
        task.since_ns = now
        lane = task.lane
        if lane is not None:
            task.lane = None
            lane.waiting -= 1
            self.waiting[lane.gate or SLOT] -= 1
            self.lane_counts(lane, -1)
            self._tidy(lane)

    def _tidy(self, lane: LaneStory) -> None:
        """Forget the past of a lane in which no task waits, and the lane itself if it is open."""
        if not lane.waiting:
            del lane.since[:-1], lane.causes[:-1]
            if lane.gate is None and lane is not self.held_by:
                self.lanes.pop(lane.key, None)

    def _stretches_since(self, task: TaskStory, now: int, waited_for: str | None) -> list[Stretch]:
        begin, lane = task.since_ns, task.lane
        if lane is None:
            return [Stretch(waited_for or Wait.DEPENDENCY, begin, now)]
        stretches: list[Stretch] = []
        for index in range(max(0, bisect_right(lane.since, begin) - 1), len(lane.since)):
            end = lane.since[index + 1] if index + 1 < len(lane.since) else now
            cause_told = lane.causes[index]
            if cause_told is not None:
                _join(stretches, cause_told, max(begin, lane.since[index]), end)
            else:
                self._open_stretches(stretches, lane.key[0], max(begin, lane.since[index]), end)
        return stretches

    def _open_stretches(self, stretches: list[Stretch], priority: int, begin: int, end: int) -> None:
        since = self._modes_since
        for index in range(max(0, bisect_right(since, begin) - 1), len(since)):
            if since[index] >= end:
                break
            until = min(end, since[index + 1]) if index + 1 < len(since) else end
            _join(stretches, self._mode(priority, self._modes[index]), max(begin, since[index]), until)

    def _lane_waits(self, now: int, scope: str, details: dict[str, Any]) -> None:
        key = (details["priority"], scope, details.get("demand", ()), details.get("slot", True))
        lane = self.lanes.get(key)
        if lane is None:
            lane = self.lanes[key] = LaneStory(key, now)
        cause = details["cause"]
        gate = None if cause == Wait.SLOT else GateKey(cause, details.get("of", ""))
        if gate != lane.gate:
            self.waiting[lane.gate or SLOT] -= lane.waiting
            self.waiting[gate or SLOT] += lane.waiting
            lane.gate = gate
            lane.since.append(now)
            lane.causes.append(None if gate is None else gate.name)
        if details.get("holds_back"):
            self.held_by = lane
        elif self.held_by is lane:
            self.held_by = None
        self._note_mode(now)
        self._tidy(lane)

    def _note_mode(self, now: int) -> None:
        mode = (self._top, self.held_by is not None)
        if mode != self._modes[-1]:
            if self._modes_since[-1] == now:
                self._modes[-1] = mode
            else:
                self._modes_since.append(now)
                self._modes.append(mode)

    @staticmethod
    def _mode(priority: int, mode: tuple[int, bool]) -> str:
        return wait_mode(priority < mode[0], mode[1])


def _join(stretches: list[Stretch], cause: str, begin: int, end: int) -> None:
    if end <= begin:
        return
    if stretches and stretches[-1].cause == cause and stretches[-1].end_ns == begin:
        stretches[-1] = Stretch(cause, stretches[-1].begin_ns, end)
    else:
        stretches.append(Stretch(cause, begin, end))
