"""The one fold of the event stream: what happened to each attempt of each task.

A :class:`Fold` is fed events in order and keeps one :class:`Attempt` for each attempt that lives, and for those that
ended last. The run report and the trace (through :class:`~whywait.observe.story.Story`), the table of DevTools, the
progress of a workflow, the spans and the what-if of a record all follow a run through it; each keeps beside it only
what it alone needs. ``devtools/page/store.js`` is the same fold in the browser; ``tests/devtools/test_page_store.py``
compares the two.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Generic, TypeVar

from whywait.kernel.devices import Assigned
from whywait.kernel.events import Event, Kind, RawEvent, Started, details_of, spelled_out
from whywait.kernel.ids import generated_id, label_of
from whywait.kernel.limits import Demand, Priority
from whywait.kernel.state import Outcome, TaskState, Wait

# The kinds of events that end an attempt or refuse a task, and the outcome if the event names none.
ENDS: Final[dict[str, str]] = {
    Kind.TASK_FINISHED: Outcome.SUCCESS,
    Kind.TASK_CANCELLED: Outcome.ABORTED,
    Kind.TASK_DROPPED: Outcome.REJECTED,
    Kind.TASK_REJECTED: Outcome.REJECTED,
}
KEPT_ENDED: Final = 1024
UNSEEN: Final = "unseen"  # the outcome of a task that ended while events were missed
_BEGINNINGS: Final = (Kind.TASK_SUBMITTED, Kind.TASK_RETRIED)


@dataclass(slots=True, eq=False)
class Attempt:
    """What the events tell of one attempt of one task; times are in ns.

    The fields that say what they mean are a task's row, which DevTools, its page and the command line show.
    """

    number: Annotated[int, "the number of the attempt"]
    id: Annotated[str, "the id of the task: given by the user, or `@` and its number"]
    scope: Annotated[str, "the key of its scope"]
    submitted_ns: Annotated[int, "when it was submitted"]
    function: Annotated[str | None, "its function, by which a task without an id of its own is shown"] = None
    state: Annotated[str, "where it stands", TaskState] = TaskState.READY
    priority: Annotated[int, "its base priority, 0 to 100"] = Priority.NORMAL
    demand: Annotated[Demand, "the amounts of resources that it needs"] = ()
    devices: Annotated[Assigned, "the units of devices that it got"] = ()
    slot: Annotated[bool, "whether it takes a slot while it runs"] = True
    lends: Annotated[bool, "whether it has given its slot back, since its body blocks or has blocked"] = False
    attempt: Annotated[int, "which attempt of the task it is, from 1"] = 1
    of: Annotated[int | None, "the number of the attempt before"] = None
    retried_as: Annotated[int | None, "the number of the attempt after"] = None
    after: Annotated[tuple[int, ...], "the tasks whose success it awaits"] = ()
    after_ended: Annotated[tuple[int, ...], "the tasks whose end it awaits"] = ()
    periodic: Annotated[str | None, "the periodic that has submitted it"] = None
    ready_ns: Annotated[int | None, "when it became READY, the last time"] = None
    started_ns: Annotated[int | None, "when it started"] = None
    ended_ns: Annotated[int | None, "when it ended"] = None
    paused_from: Annotated[str | None, "the state that a paused task goes back to"] = None
    outcome: Annotated[str | None, "how it ended", (*Outcome, UNSEEN)] = None
    cause: Annotated[str | None, "why it ended so, or why it was asked to end"] = None
    root: Annotated[str | None, "the task or scope that made it end"] = None
    waits: Annotated[dict[str, int], "how long it waited for what, once its wait is over"] = field(default_factory=dict)
    exit_code: Annotated[int | None, "the exit status of its command"] = None
    exit_signal: Annotated[str | None, "the signal that has ended its command"] = None
    peak_ram: Annotated[int | None, "the most memory that it has used, in bytes"] = None
    cpu_ms: Annotated[int | None, "the processor time that it has used"] = None
    measured: Annotated[str | None, "how these two were measured"] = None
    overdrawn: Annotated[bool, "whether it has used more memory than it had asked for"] = False
    ram: Annotated[int | None, "the memory that the budget counts for it, if that is not what it asked for"] = None
    starved_ns: Annotated[int, "how long it was READY while a higher priority held a slot"] = 0
    place: Annotated[dict[str, Any] | None, "where it runs, if its engine leaves that to a cluster"] = None
    seq: Annotated[int, "the seq of its latest event"] = 0
    complete: bool = False  # whether it was seen from its submission on
    queued_for: str = Wait.DEPENDENCY  # what keeps it QUEUED: dependency, backoff or overlap

    @property
    def label(self) -> str:
        """How it is shown: by its id, or by its function and number."""
        return label_of(self.id, self.number, self.function)

    @property
    def holds_slot(self) -> bool:
        """Whether it has a slot while it runs."""
        return self.slot and not self.lends

    @property
    def alive(self) -> bool:
        """Whether it has not ended."""
        return self.outcome is None

    @property
    def active(self) -> bool:
        """Whether it has started and its body has not ended."""
        return self.state in _ACTIVE or (self.state == TaskState.PAUSED and self.paused_from == TaskState.RUNNING)

    @property
    def held_by(self) -> str | None:
        """What keeps it from READY: dependency, backoff, overlap, paused; None if nothing does."""
        if self.state == TaskState.QUEUED:
            return self.queued_for
        return Wait.PAUSED if self.state == TaskState.PAUSED and self.paused_from != TaskState.RUNNING else None

    @property
    def waited_ns(self) -> int:
        """How long it waited, by the kernel's account."""
        return sum(self.waits.values())

    @property
    def ran_ns(self) -> int | None:
        """How long its body ran; None if it has not ended or never started."""
        if self.started_ns is None or self.ended_ns is None:
            return None
        return self.ended_ns - self.started_ns


_ACTIVE: Final = frozenset({TaskState.RUNNING, TaskState.DISPOSING})
A = TypeVar("A", bound=Attempt)


class Fold(Generic[A]):
    """Attempts by number; feed it events in order."""

    from_the_middle = True  # whether a task whose beginning was missed is known from its next event on

    def __init__(
        self, make: Callable[[int, str, str, int], A], events: Iterable[Event] = (), *, kept_ended: int = KEPT_ENDED
    ) -> None:
        """Begin with nothing and follow ``events``; ``make`` makes an attempt, so many ended ones are kept."""
        self.now: int | None = None  # the time of the latest event
        self.attempts: dict[int, A] = {}  # in the order of their first events
        self._make = make
        self._kept_ended = kept_ended
        self._ended: deque[int] = deque()
        self._tick: tuple[int, str] | None = None  # seq and name of the latest tick: its task comes next
        for event in events:
            self.feed(event)

    # What a subclass may keep

    def begun(self, attempt: A) -> None:
        """Take note of a new attempt, of which the first event has told."""

    def forgotten(self, attempt: A) -> None:
        """Take note that an ended attempt is kept no more."""

    # Following

    def feed(self, event: Event) -> A | None:
        """Take in the next event; return the attempt that it is about."""
        return self.apply(event.to_raw() if event.kind == Kind.TASK_STARTED else event)  # only that one differs

    def apply(self, event: RawEvent) -> A | None:
        """Take in the next event as the kernel told it; return the attempt that it is about.

        A submission that was refused is an attempt too: one that has ended, has the number 0 and is not kept.
        """
        seq, time_ns, kind, scope, number, name, _, _ = event
        self.now = time_ns
        if number is None:
            if kind == Kind.PERIODIC_TICK and name is not None:
                self._tick = (seq, name)
            return self._refused(event, scope, name) if kind in ENDS else None
        attempt = self.attempts.get(number)
        new = attempt is None
        if attempt is None:
            if not self.from_the_middle and kind not in _BEGINNINGS:
                return None
            attempt = self.attempts[number] = self._begin(event, number)
        elif kind in _BEGINNINGS or (attempt.outcome is not None and kind in _STEPS):
            return None  # it begins and ends once, whatever a file says; its streams are closed after its end
        attempt.seq = seq
        step = _STEPS.get(kind)
        if step is not None:
            step(attempt, event)
            if attempt.outcome is not None and attempt.ended_ns == time_ns:
                self.end(attempt)
        if new:
            self.begun(attempt)
        return attempt

    def living(self) -> Iterator[A]:
        """Yield the attempts that have not ended."""
        return (attempt for attempt in self.attempts.values() if attempt.outcome is None)

    def end(self, attempt: A) -> None:
        """Keep an attempt among those that ended last, and forget the one that ended too long ago."""
        self._ended.append(attempt.number)
        while len(self._ended) > self._kept_ended:
            gone = self.attempts.pop(self._ended.popleft(), None)
            if gone is not None:
                self.forgotten(gone)

    def _begin(self, event: RawEvent, number: int) -> A:
        _, time_ns, kind, scope, _, name, cause, _ = event
        attempt = self._make(number, name if name is not None else generated_id(number), scope, time_ns)
        if kind == Kind.TASK_RETRIED:
            old = self.attempts.get(_details(event).get("of", 0))
            if old is not None:
                attempt.priority, attempt.demand, attempt.periodic = old.priority, old.demand, old.periodic
                attempt.slot, attempt.function = old.slot, old.function
                attempt.after, attempt.after_ended, attempt.complete = old.after, old.after_ended, old.complete
                attempt.of, old.retried_as = old.number, number
        elif kind == Kind.TASK_SUBMITTED:
            attempt.complete = True
        if self._tick is not None and cause == self._tick[0]:
            attempt.periodic = self._tick[1]
        return attempt

    def _refused(self, event: RawEvent, scope: str, name: str | None) -> A:
        attempt = self._make(0, name or "", scope, event[1])
        _over(attempt, event)
        return attempt


def _details(event: RawEvent) -> dict[str, Any]:
    return dict(details_of(event) or ())


def _submitted(attempt: Attempt, event: RawEvent) -> None:
    for name, value in details_of(event) or ():
        if name in _TOLD_AT_FIRST:
            setattr(attempt, name, value)
    if attempt.state == TaskState.READY:
        attempt.ready_ns = event[1]
    elif event[2] == Kind.TASK_RETRIED:
        attempt.queued_for = Wait.BACKOFF
    elif not (attempt.after or attempt.after_ended):
        attempt.queued_for = Wait.OVERLAP


_TOLD_AT_FIRST: Final = frozenset(
    {"state", "priority", "demand", "slot", "after", "after_ended", "attempt", "function"}
)


def _ready(attempt: Attempt, event: RawEvent) -> None:
    attempt.state, attempt.ready_ns = TaskState.READY, event[1]


def _started(attempt: Attempt, event: RawEvent) -> None:
    attempt.state, attempt.started_ns = TaskState.RUNNING, event[1]
    waits = event[7]
    if isinstance(waits, Started):
        waits, attempt.devices, attempt.starved_ns = waits
    attempt.waits = spelled_out(waits) if waits else {}


def _paused(attempt: Attempt, event: RawEvent) -> None:
    attempt.state, attempt.paused_from = TaskState.PAUSED, _details(event).get("from")


def _resumed(attempt: Attempt, event: RawEvent) -> None:
    attempt.state, attempt.paused_from = _details(event).get("to", TaskState.READY), None
    if attempt.state == TaskState.READY:
        attempt.ready_ns = event[1]


def _abort_asked(attempt: Attempt, event: RawEvent) -> None:
    attempt.state, attempt.cause = TaskState.DISPOSING, _details(event).get("cause")


def _starved(attempt: Attempt, event: RawEvent) -> None:
    attempt.starved_ns = _details(event).get("starved_ns", 0)


def _placed(attempt: Attempt, event: RawEvent) -> None:
    attempt.place = _details(event)


def _over(attempt: Attempt, event: RawEvent) -> None:
    attempt.state, attempt.ended_ns = TaskState.DISPOSED, event[1]
    attempt.outcome, attempt.cause = ENDS[event[2]], None
    if event[7] is not None:  # else it is a success
        details = _details(event)
        attempt.outcome = details.get("outcome", attempt.outcome)
        attempt.cause, attempt.root = details.get("cause"), details.get("root")
        attempt.waits = details.get("waits") or attempt.waits
        for name in _FACTS & details.keys():
            setattr(attempt, name, details[name])


_FACTS: Final = frozenset({"exit_code", "exit_signal", "measured", "peak_ram", "cpu_ms", "starved_ns"})


def _measured(attempt: Attempt, event: RawEvent) -> None:
    attempt.ram = _details(event).get("ram")


def _blocked(attempt: Attempt, event: RawEvent) -> None:
    attempt.lends = _details(event).get("lends", False)


def _regained(attempt: Attempt, event: RawEvent) -> None:
    del event
    attempt.lends = False


def _overdrawn(attempt: Attempt, event: RawEvent) -> None:
    del event
    attempt.overdrawn = True


_STEPS: Final[dict[str, Callable[[Attempt, RawEvent], None]]] = {
    Kind.TASK_SUBMITTED: _submitted,
    Kind.TASK_RETRIED: _submitted,
    Kind.TASK_READY: _ready,
    Kind.TASK_STARTED: _started,
    Kind.TASK_PAUSED: _paused,
    Kind.TASK_RESUMED: _resumed,
    Kind.TASK_ABORT_ASKED: _abort_asked,
    Kind.TASK_STARVED: _starved,
    Kind.TASK_PLACED: _placed,
    Kind.TASK_MEASURED: _measured,
    Kind.TASK_OVERDRAWN: _overdrawn,
    Kind.TASK_BLOCKED: _blocked,
    Kind.TASK_REGAINED: _regained,
    **dict.fromkeys(ENDS, _over),
}
