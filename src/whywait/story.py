"""The run as its events tell it: what every task did and waited for, moment by moment.

A :class:`Story` is fed events in order and keeps what is alive: tasks, lanes, slot holders. What lanes wait for is not
worked out here: the kernel tells it (``LANE_WAITS``), and the account of a finished wait comes with the event too. The
run report and the trace exporter are stories that keep a little more.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable
from typing import Any, ClassVar, Final, NamedTuple

from whywait.kernel.events import Event, Kind
from whywait.kernel.lanes import wait_mode
from whywait.kernel.model import HIGHEST, Demand
from whywait.kernel.state import TaskState, Wait

LaneKey = tuple[int, str, Demand]

_ENDS: Final = frozenset({Kind.TASK_FINISHED, Kind.TASK_CANCELLED, Kind.TASK_DROPPED})
_ENDS_TOLD: Final = 1024  # so many ends are remembered, to find which one let a task go on


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


class TaskStory:
    """What is known about one task (one attempt) so far; the story is complete if it was seen from its submission."""

    __slots__ = (
        "after",
        "attempt",
        "before",
        "cause",
        "complete",
        "demand",
        "ended_ns",
        "held_by",
        "id",
        "lane",
        "number",
        "outcome",
        "priority",
        "scope",
        "since_ns",
        "started_ns",
        "state",
        "stretches",
        "submitted_ns",
        "waits",
    )

    def __init__(self, number: int, id: str, scope: str, now: int) -> None:
        """Begin the story of a task that is QUEUED since ``now``."""
        self.number = number
        self.id = id
        self.scope = scope
        self.priority = 0
        self.demand: Demand = ()
        self.attempt = 1
        self.complete = False
        self.after: tuple[int, ...] = ()
        self.before: TaskStory | None = None  # whose end let this one go on: a dependency, or the attempt before
        self.submitted_ns = self.since_ns = now
        self.started_ns: int | None = None
        self.ended_ns: int | None = None
        self.state: str = TaskState.QUEUED
        self.held_by: str = Wait.DEPENDENCY  # why it is QUEUED
        self.lane: LaneStory | None = None
        self.stretches: list[Stretch] = []  # of its wait so far
        self.waits: dict[str, int] = {}  # the kernel's account of the wait, once it is over
        self.outcome: str | None = None
        self.cause: str | None = None

    @property
    def waited_ns(self) -> int:
        """How long it waited, by the kernel's account."""
        return sum(self.waits.values())

    @property
    def ran_ns(self) -> int:
        """How long it held its slot; 0 if it never started."""
        if self.started_ns is None or self.ended_ns is None:
            return 0
        return self.ended_ns - self.started_ns


class LaneStory:
    """READY tasks of one priority, scope and demand, and what they have waited for."""

    __slots__ = ("causes", "gate", "key", "since", "waiting")

    def __init__(self, key: LaneKey, now: int) -> None:
        """Begin with an open, empty lane."""
        self.key = key
        self.gate: GateKey | None = None  # None: it is open and waits for dispatch to get to it
        self.waiting = 0
        self.since = [now]  # moments at which the gate changed...
        self.causes: list[str | None] = [None]  # ...and the gate's name from then on


class Story:
    """Follows a run through its events."""

    keeps_stretches: ClassVar[bool] = True  # whether anybody asks for the causes of a wait one after the other

    def __init__(self, events: Iterable[Event] = ()) -> None:
        """Begin with nothing and follow ``events``."""
        self.now: int | None = None  # the time of the latest event
        self.began_ns: int | None = None
        self.first_seq: int | None = None
        self.last_seq = 0
        self.skipped = 0  # events that are missing in between
        self.tasks: dict[int, TaskStory] = {}  # alive
        self.running: dict[int, TaskStory] = {}  # slot holders in start order
        self.lanes: dict[LaneKey, LaneStory] = {}
        self.waiting: defaultdict[GateKey, int] = defaultdict(int)  # READY tasks by what their lane waits for
        self.parents: dict[str, str] = {}  # of scopes
        self.held_by: LaneStory | None = None  # backfill="none": whom the open lanes wait for
        self._holding = [0] * (HIGHEST + 1)  # slot holders by priority
        self._top = -1  # the highest priority that holds a slot
        self._modes_since: list[int] = [0]  # moments at which the two below changed
        self._modes: list[tuple[int, bool]] = [(-1, False)]  # the highest priority that holds a slot; held back?
        self._ends: dict[int, TaskStory] = {}  # seq of an end -> whose
        for event in events:
            self.feed(event)

    # What a subclass may keep

    def time_passes(self, before: int, now: int) -> None:
        """Take note that nothing changed between two moments."""

    def task_started(self, task: TaskStory) -> None:
        """Take note that a task got its slot."""

    def task_ended(self, task: TaskStory) -> None:
        """Take note that a task ended, with or without a start."""

    def lane_counts(self, lane: LaneStory, change: int) -> None:
        """Take note that a task more, or less, waits in a lane."""

    def refused(self, event: Event) -> None:
        """Take note of a submission that was refused."""

    def something_else(self, event: Event) -> None:
        """Take note of an event that is neither about tasks nor about lanes."""

    # Following

    def feed(self, event: Event) -> None:
        """Take in the next event."""
        now = event.time_ns
        if self.now is None:
            self.began_ns, self.first_seq = now, event.seq
        else:
            self.skipped += event.seq - self.last_seq - 1
            if now > self.now:
                self.time_passes(self.now, now)
        self.now = now
        self.last_seq = event.seq
        kind, details = event.kind, dict(event.details or ())
        if kind == Kind.LANE_WAITS:
            self._lane_waits(now, event.scope, details)
        elif event.number is None:
            if kind in (Kind.TASK_DROPPED, Kind.TASK_REJECTED):
                self.refused(event)
            else:
                if kind == Kind.SCOPE_CREATED:
                    self.parents[event.scope] = details.get("parent", "")
                self.something_else(event)
        elif kind in _ENDS:
            self._ended(event, now, details)
        else:
            handler = _HANDLERS.get(kind)
            if handler is not None:
                handler(self, event, now, details)

    def scope_chain(self, scope: str) -> list[str]:
        """Return a scope and those around it, the innermost first; the authority's own is left out."""
        chain = []
        while scope and scope not in chain:
            chain.append(scope)
            scope = self.parents.get(scope, "")
        return chain

    def gates_of(self, task: TaskStory) -> list[tuple[GateKey, int]]:
        """Return the gates of which a task holds something while it runs, and how much."""
        gates = [(SLOT, 1), *((GateKey(name), amount) for name, amount in task.demand)]
        return gates + [(GateKey(Wait.SCOPE_SLOTS, scope), 1) for scope in self.scope_chain(task.scope)]

    def stretches_of(self, task: TaskStory, now: int) -> list[Stretch]:
        """Return the whole wait of a task up to ``now``, in stretches with one cause each."""
        if task.started_ns is not None or now <= task.since_ns:
            return list(task.stretches)
        return task.stretches + self._stretches_since(task, now)

    # Steps

    def _known(self, event: Event, now: int) -> TaskStory:
        """Return the task of an event; one whose beginning was missed is known from now on."""
        number, name = event.number, event.id
        assert number is not None, "only events of tasks come here"
        task = self.tasks.get(number)
        if task is None:
            task = self.tasks[number] = TaskStory(number, name or str(number), event.scope, now)
        return task

    def _submitted(self, event: Event, now: int, details: dict[str, Any]) -> None:
        task = self._known(event, now)
        task.complete = True
        task.priority = details["priority"]
        task.demand = details.get("demand", ())
        task.after = (*details.get("after", ()), *details.get("after_ended", ()))
        if details["state"] == TaskState.READY:
            self._enter(task, now)
        elif not task.after:
            task.held_by = Wait.OVERLAP

    def _retried(self, event: Event, now: int, details: dict[str, Any]) -> None:
        task = self._known(event, now)
        before = self._ends.get(event.cause or 0)
        task.attempt = details["attempt"]
        if before is not None:
            task.priority, task.demand, task.before = before.priority, before.demand, before
            task.complete = before.complete
        if details["state"] == TaskState.READY:
            self._enter(task, now)
        else:
            task.held_by = Wait.BACKOFF

    def _ready(self, event: Event, now: int, details: dict[str, Any]) -> None:  # noqa: ARG002 - one form for all
        task = self._known(event, now)
        self._leave(task, now)
        if event.cause is not None:
            task.before = self._ends.get(event.cause, task.before)
        self._enter(task, now)

    def _started(self, event: Event, now: int, details: dict[str, Any]) -> None:
        task = self._known(event, now)
        self._leave(task, now)
        task.state = TaskState.RUNNING
        task.started_ns = now
        task.waits = details.get("waits", {})
        self.running[task.number] = task
        self._holding[task.priority] += 1
        self._top = max(self._top, task.priority)
        self._note_mode(now)
        self.task_started(task)

    def _paused(self, event: Event, now: int, details: dict[str, Any]) -> None:
        task = self._known(event, now)
        if details["from"] != TaskState.RUNNING:
            self._leave(task, now)
        task.state = TaskState.PAUSED

    def _resumed(self, event: Event, now: int, details: dict[str, Any]) -> None:
        task = self._known(event, now)
        if details["to"] == TaskState.RUNNING:
            task.state = TaskState.RUNNING
            return
        self._leave(task, now)
        if details["to"] == TaskState.READY:
            self._enter(task, now)
        else:
            task.state = TaskState.QUEUED

    def _abort_asked(self, event: Event, now: int, details: dict[str, Any]) -> None:  # noqa: ARG002 - one form for all
        self._known(event, now).state = TaskState.DISPOSING

    def _ended(self, event: Event, now: int, details: dict[str, Any]) -> None:
        task = self._known(event, now)
        if self.running.pop(task.number, None) is not None:
            self._holding[task.priority] -= 1
            while self._top >= 0 and not self._holding[self._top]:
                self._top -= 1
            self._note_mode(now)
        else:
            self._leave(task, now)
            task.waits = details.get("waits", {})
        default = "REJECTED" if event.kind == Kind.TASK_DROPPED else "ABORTED"
        task.outcome = details.get("outcome", default)
        task.cause = details.get("cause")
        task.state = TaskState.DISPOSED
        task.ended_ns = now
        del self.tasks[task.number]
        ends = self._ends
        ends[event.seq] = task
        if len(ends) > _ENDS_TOLD:
            del ends[next(iter(ends))]
        self.task_ended(task)

    def _enter(self, task: TaskStory, now: int) -> None:
        key = (task.priority, task.scope, task.demand)
        lane = self.lanes.get(key)
        if lane is None:
            lane = self.lanes[key] = LaneStory(key, now)
        lane.waiting += 1
        self.waiting[lane.gate or SLOT] += 1
        self.lane_counts(lane, 1)
        task.lane = lane
        task.state = TaskState.READY
        task.since_ns = now

    def _leave(self, task: TaskStory, now: int) -> None:
        """End a stay in QUEUED, READY or PAUSED: what it waited for in it is known now."""
        if now > task.since_ns and self.keeps_stretches:
            task.stretches += self._stretches_since(task, now)
        task.since_ns = now
        lane = task.lane
        if lane is not None:
            task.lane = None
            lane.waiting -= 1
            self.waiting[lane.gate or SLOT] -= 1
            self.lane_counts(lane, -1)
            self._tidy(lane)

    def _tidy(self, lane: LaneStory) -> None:
        """Forget the past of a lane in which nobody waits, and the lane itself if it is open."""
        if not lane.waiting:
            del lane.since[:-1], lane.causes[:-1]
            if lane.gate is None and lane is not self.held_by:
                self.lanes.pop(lane.key, None)

    def _stretches_since(self, task: TaskStory, now: int) -> list[Stretch]:
        begin, lane = task.since_ns, task.lane
        if lane is None:
            cause = Wait.PAUSED if task.state == TaskState.PAUSED else task.held_by
            return [Stretch(cause, begin, now)]
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
        key = (details["priority"], scope, details.get("demand", ()))
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
        return wait_mode(higher=priority < mode[0], held=mode[1])


_HANDLERS: Final = {
    Kind.TASK_SUBMITTED: Story._submitted,  # noqa: SLF001 - this table is a part of the class
    Kind.TASK_RETRIED: Story._retried,  # noqa: SLF001
    Kind.TASK_READY: Story._ready,  # noqa: SLF001
    Kind.TASK_STARTED: Story._started,  # noqa: SLF001
    Kind.TASK_PAUSED: Story._paused,  # noqa: SLF001
    Kind.TASK_RESUMED: Story._resumed,  # noqa: SLF001
    Kind.TASK_ABORT_ASKED: Story._abort_asked,  # noqa: SLF001
}


def _join(stretches: list[Stretch], cause: str, begin: int, end: int) -> None:
    if end <= begin:
        return
    if stretches and stretches[-1].cause == cause and stretches[-1].end_ns == begin:
        stretches[-1] = Stretch(cause, stretches[-1].begin_ns, end)
    else:
        stretches.append(Stretch(cause, begin, end))
