"""The table of tasks: what the event stream says about each of them, row by row.

One row for each attempt, built from events alone, so that a saved run and a running one look the same. All living
tasks are kept, and of the finished ones the latest. ``page/store.js`` folds the same events in the browser;
``tests/browser/test_page.py`` holds the two together.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, fields
from typing import Any, Final

from whywait.kernel.events import Event, Kind
from whywait.kernel.model import GENERATED_ID_PREFIX, Task, generated_id, name_splits
from whywait.kernel.state import Outcome, TaskState, Wait

KEPT_FINISHED: Final = 20_000
UNSEEN: Final = "UNSEEN"  # the outcome of a task that ended while events were missed
_PICTURED: Final = ("state", "demand", "attempt", "after", "after_ended", "ready_ns", "started_ns", "waits", "seq")


@dataclass(slots=True)
class Row:
    """One attempt of one task."""

    number: int
    id: str
    scope: str
    state: str
    priority: int = 50
    demand: dict[str, int] = field(default_factory=dict)
    attempt: int = 1
    of: int | None = None  # the attempt before
    retried_as: int | None = None
    after: list[int] = field(default_factory=list)  # whose success it awaited
    after_ended: list[int] = field(default_factory=list)  # whose end it awaited
    periodic: str | None = None
    held_by: str | None = None  # what keeps it from READY: dependency, backoff, overlap, paused
    submitted_ns: int | None = None
    ready_ns: int | None = None
    started_ns: int | None = None
    ended_ns: int | None = None
    paused_from: str | None = None
    outcome: str | None = None
    cause: str | None = None
    root: str | None = None
    waits: dict[str, int] = field(default_factory=dict)
    starved_ns: int = 0
    seq: int = 0  # of the latest event in it

    @property
    def alive(self) -> bool:
        """Whether the task has not ended."""
        return self.outcome is None

    def to_dict(self) -> dict[str, Any]:
        """Return the row as a JSON-ready dict."""
        return {name: getattr(self, name) for name in ROW_FIELDS}


ROW_FIELDS: Final = tuple(each.name for each in fields(Row))


class TaskTable:
    """Rows by number; feed it events in order."""

    def __init__(self, kept_finished: int = KEPT_FINISHED) -> None:
        """Start empty; keep so many finished tasks."""
        self.rows: dict[int, Row] = {}  # in submission order
        self._kept_finished = kept_finished
        self._finished: deque[int] = deque()
        self._named: dict[tuple[str, str], int] = {}
        self._tick: tuple[int, str] | None = None  # seq and name of the latest tick: its task comes next

    def apply(self, event: Event) -> None:
        """Take one event in."""
        if event.kind == Kind.PERIODIC_TICK and event.name is not None:
            self._tick = (event.seq, event.name)
            return
        if event.number is None:
            return
        step = _STEPS.get(event.kind)
        row = self.rows.get(event.number)
        if row is None:
            if event.kind not in (Kind.TASK_SUBMITTED, Kind.TASK_RETRIED):
                return  # it came before the first event we have seen, and is gone
            row = self._add(event)
        row.seq = event.seq
        if step is not None:
            step(row, event, dict(event.details or ()))
        if row.outcome is not None and row.ended_ns == event.time_ns:
            self._ended(row)

    def living(self) -> Iterator[Row]:
        """Yield the rows of tasks that have not ended."""
        return (row for row in self.rows.values() if row.alive)

    def find(self, ref: str) -> list[Row]:
        """Return the rows that an id, ``scope/id``, ``@number`` or number can mean; several if it is ambiguous.

        ``@`` and a number is never ambiguous: no task is given an id that begins so.
        """
        digits = ref.removeprefix(GENERATED_ID_PREFIX)
        number = int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 20 else None  # noqa: PLR2004
        if number in self.rows and digits != ref:
            return [self.rows[number]]
        found = {number for (_, known), number in self._named.items() if known == ref}
        found.update(self._named[split] for split in name_splits(ref) if split in self._named)
        if not found and number is not None:
            found.add(number)
        return [self.rows[number] for number in sorted(found) if number in self.rows]

    def attempts(self, row: Row) -> list[Row]:
        """Return all known attempts of a task, the first one first."""
        while row.of is not None and row.of in self.rows:
            row = self.rows[row.of]
        chain = [row]
        while row.retried_as is not None and row.retried_as in self.rows:
            row = self.rows[row.retried_as]
            chain.append(row)
        return chain

    def latest(self, number: int) -> Row | None:
        """Return the newest attempt of the task that once had this number."""
        row = self.rows.get(number)
        return None if row is None else self.attempts(row)[-1]

    def resume_from(self, living: Iterable[Row], numbers: set[int]) -> None:
        """Go on from pictures of living tasks, after events were missed; ``numbers`` are those of all that live."""
        for picture in living:
            known = self.rows.get(picture.number)
            if known is None:
                self.rows[picture.number] = picture
                self._named[picture.scope, picture.id] = picture.number
                continue
            for name in _PICTURED:
                setattr(known, name, getattr(picture, name) or getattr(known, name))
            known.held_by, known.paused_from = picture.held_by, picture.paused_from
        for row in [row for row in self.living() if row.number not in numbers]:
            row.state, row.outcome, row.cause = TaskState.DISPOSED, UNSEEN, "its end was not seen"
            self._ended(row)

    def _add(self, event: Event) -> Row:
        assert event.number is not None, "an event of a task has its number"
        details = dict(event.details or ())
        name = event.name if event.name is not None else generated_id(event.number)
        row = Row(event.number, name, event.scope, details.get("state", TaskState.READY), submitted_ns=event.time_ns)
        old = self.rows.get(details.get("of", -1))
        if old is not None:
            row.priority, row.demand, row.after, row.after_ended = old.priority, old.demand, old.after, old.after_ended
            row.periodic = old.periodic
            row.of, old.retried_as = old.number, row.number
        if self._tick is not None and event.cause == self._tick[0]:
            row.periodic = self._tick[1]
        self.rows[row.number] = row
        self._named[row.scope, row.id] = row.number
        return row

    def _ended(self, row: Row) -> None:
        self._finished.append(row.number)
        while len(self._finished) > self._kept_finished:
            gone = self.rows.pop(self._finished.popleft(), None)
            if gone is not None and self._named.get((gone.scope, gone.id)) == gone.number:
                del self._named[gone.scope, gone.id]


def _submitted(row: Row, event: Event, details: dict[str, Any]) -> None:
    row.priority = details.get("priority", row.priority)
    row.demand = dict(details.get("demand", row.demand))
    row.after = list(details.get("after", row.after))
    row.after_ended = list(details.get("after_ended", row.after_ended))
    row.attempt = details.get("attempt", row.attempt)
    if row.state == TaskState.READY:
        row.ready_ns = event.time_ns
    elif event.kind == Kind.TASK_RETRIED:
        row.held_by = Wait.BACKOFF
    else:
        row.held_by = Wait.OVERLAP if row.periodic is not None else Wait.DEPENDENCY


def _ready(row: Row, event: Event, _: dict[str, Any]) -> None:
    row.state, row.ready_ns, row.held_by = TaskState.READY, event.time_ns, None


def _started(row: Row, event: Event, details: dict[str, Any]) -> None:
    row.state, row.started_ns, row.held_by = TaskState.RUNNING, event.time_ns, None
    row.waits = dict(details.get("waits") or {})


def _paused(row: Row, _: Event, details: dict[str, Any]) -> None:
    row.state, row.paused_from = TaskState.PAUSED, details.get("from")
    if row.paused_from != TaskState.RUNNING:
        row.held_by = Wait.PAUSED


def _resumed(row: Row, event: Event, details: dict[str, Any]) -> None:
    row.state, row.paused_from = details.get("to", TaskState.READY), None
    row.held_by = Wait.DEPENDENCY if row.state == TaskState.QUEUED else None
    if row.state == TaskState.READY:
        row.ready_ns = event.time_ns


def _abort_asked(row: Row, _: Event, details: dict[str, Any]) -> None:
    row.state, row.cause = TaskState.DISPOSING, details.get("cause")


def _starved(row: Row, _: Event, details: dict[str, Any]) -> None:
    row.starved_ns = details.get("starved_ns", 0)


def _over(default: str) -> Callable[[Row, Event, dict[str, Any]], None]:
    def over(row: Row, event: Event, details: dict[str, Any]) -> None:
        row.state, row.ended_ns, row.held_by = TaskState.DISPOSED, event.time_ns, None
        row.outcome = details.get("outcome", default)
        row.cause = details.get("cause")
        row.root = details.get("root")
        row.waits = dict(details.get("waits") or row.waits)

    return over


_STEPS: Final[dict[str, Callable[[Row, Event, dict[str, Any]], None]]] = {
    Kind.TASK_SUBMITTED: _submitted,
    Kind.TASK_RETRIED: _submitted,
    Kind.TASK_READY: _ready,
    Kind.TASK_STARTED: _started,
    Kind.TASK_PAUSED: _paused,
    Kind.TASK_RESUMED: _resumed,
    Kind.TASK_ABORT_ASKED: _abort_asked,
    Kind.TASK_STARVED: _starved,
    Kind.TASK_FINISHED: _over(Outcome.SUCCESS),
    Kind.TASK_CANCELLED: _over(Outcome.ABORTED),
    Kind.TASK_DROPPED: _over(Outcome.REJECTED),
}


def picture(task: Task, seq: int) -> Row:
    """Return the row of a living task as the kernel knows it; to be called under the kernel's lock."""
    row = Row(task.number, task.id, task.scope.key, task.state, task.priority, dict(task.demand), task.attempt, seq=seq)
    row.after = [other.number for other in task.after or ()]
    row.after_ended = [other.number for other in task.after_ended or ()]
    row.periodic = task.periodic.name if task.periodic is not None else None
    row.paused_from, row.waits = task.paused_from, dict(task.waits or {})
    row.submitted_ns = task.since - sum(row.waits.values())
    if task.state == TaskState.READY:
        row.ready_ns = task.since
    elif task.pending:
        row.held_by = Wait.PAUSED if task.state == TaskState.PAUSED else task.held_by or Wait.DEPENDENCY
    else:
        row.started_ns = task.since
    return row
