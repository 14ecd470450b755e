"""The table of tasks: what the event stream says about each of them, row by row.

One row for each attempt, built from events alone, so that a saved run and a running one look the same. All living
tasks are kept, and of the finished ones the latest. ``page/store.js`` folds the same events in the browser;
``tests/browser/test_page.py`` holds the two together.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields
from typing import Any, Final

from whywait.kernel.events import SUCCESS_DETAILS, Kind, RawEvent, details_of
from whywait.kernel.model import GENERATED_ID_PREFIX, Task, generated_id, name_splits
from whywait.kernel.state import Outcome, TaskState, Wait

KEPT_FINISHED: Final = 20_000
_SUBMITTED: Final = frozenset({"state", "priority", "after", "after_ended", "attempt"})  # details that are fields
UNSEEN: Final = "UNSEEN"  # the outcome of a task that ended while events were missed
_NOTHING: Final[dict[str, int]] = {}  # shared by all rows: what is in a row is replaced, never changed
_PICTURED: Final = ("state", "demand", "attempt", "after", "after_ended", "ready_ns", "started_ns", "waits", "seq")


@dataclass(slots=True, init=False)
class Row:
    """One attempt of one task."""

    number: int
    id: str
    scope: str
    state: str
    priority: int
    demand: dict[str, int]
    attempt: int
    of: int | None  # the attempt before
    retried_as: int | None
    after: tuple[int, ...]  # whose success it awaited
    after_ended: tuple[int, ...]  # whose end it awaited
    periodic: str | None
    held_by: str | None  # what keeps it from READY: dependency, backoff, overlap, paused
    submitted_ns: int | None
    ready_ns: int | None
    started_ns: int | None
    ended_ns: int | None
    paused_from: str | None
    outcome: str | None
    cause: str | None
    root: str | None
    waits: dict[str, int]
    starved_ns: int
    place: dict[str, Any] | None  # where it runs, if its engine leaves that to a cluster
    seq: int  # of the latest event in it

    def __init__(self, number: int, ident: str, scope: str, state: str, submitted_ns: int | None) -> None:
        """Start with what the first event tells; by hand, because a thousand a second are made."""
        self.number, self.id, self.scope, self.state, self.submitted_ns = number, ident, scope, state, submitted_ns
        self.priority, self.attempt, self.starved_ns, self.seq = 50, 1, 0, 0
        self.demand = self.waits = _NOTHING
        self.after = self.after_ended = ()
        self.of = self.retried_as = self.ready_ns = self.started_ns = self.ended_ns = None
        self.periodic = self.held_by = self.paused_from = self.outcome = self.cause = self.root = None
        self.place = None

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
        self._successors: dict[int, list[int]] = {}
        self._tick: tuple[int, str] | None = None  # seq and name of the latest tick: its task comes next

    def apply(self, event: RawEvent) -> Row | None:
        """Take one event in; return the row that it changed."""
        seq, time_ns, kind, _, number, name, _, _ = event
        if number is None:
            if kind == Kind.PERIODIC_TICK and name is not None:
                self._tick = (seq, name)
            return None
        row = self.rows.get(number)
        if row is None:
            if kind not in (Kind.TASK_SUBMITTED, Kind.TASK_RETRIED):
                return None  # it came before the first event we have seen, and is gone
            row = self._add(event)
        row.seq = seq
        step = _STEPS.get(kind)
        if step is not None:
            step(row, event)
            if step is _submitted:
                self._link(row)
            if row.outcome is not None and row.ended_ns == time_ns:
                self._ended(row)
        return row

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

    def awaited_by(self, attempts: list[Row]) -> list[Row]:
        """Return the rows of the tasks that await one of these."""
        numbers = {number for row in attempts for number in self._successors.get(row.number, ())}
        return [self.rows[number] for number in sorted(numbers) if number in self.rows]

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
                self._link(picture)
                continue
            for name in _PICTURED:
                setattr(known, name, getattr(picture, name) or getattr(known, name))
            known.held_by, known.paused_from = picture.held_by, picture.paused_from
        for row in [row for row in self.living() if row.number not in numbers]:
            row.state, row.outcome, row.cause = TaskState.DISPOSED, UNSEEN, "its end was not seen"
            self._ended(row)

    def _add(self, event: RawEvent) -> Row:
        _, time_ns, kind, scope, number, name, cause, _ = event
        assert number is not None, "an event of a task has its number"
        row = Row(number, name if name is not None else generated_id(number), scope, TaskState.READY, time_ns)
        if kind == Kind.TASK_RETRIED:
            old = self.rows.get(_details(event).get("of", -1))
            if old is not None:
                row.priority, row.demand, row.periodic = old.priority, old.demand, old.periodic
                row.after, row.after_ended = old.after, old.after_ended
                row.of, old.retried_as = old.number, row.number
        if self._tick is not None and cause == self._tick[0]:
            row.periodic = self._tick[1]
        self.rows[row.number] = row
        self._named[row.scope, row.id] = row.number
        return row

    def _link(self, row: Row) -> None:
        for number in (*row.after, *row.after_ended):
            self._successors.setdefault(number, []).append(row.number)

    def _ended(self, row: Row) -> None:
        self._finished.append(row.number)
        while len(self._finished) > self._kept_finished:
            number = self._finished.popleft()
            self._successors.pop(number, None)
            gone = self.rows.pop(number, None)
            if gone is not None and self._named.get((gone.scope, gone.id)) == gone.number:
                del self._named[gone.scope, gone.id]


def _details(event: RawEvent) -> dict[str, Any]:
    return dict(details_of(event) or ())


def _submitted(row: Row, event: RawEvent) -> None:
    for name, value in details_of(event) or ():
        if name == "demand":
            row.demand = dict(value)
        elif name in _SUBMITTED:
            setattr(row, name, value)
    if row.state == TaskState.READY:
        row.ready_ns = event[1]
    elif event[2] == Kind.TASK_RETRIED:
        row.held_by = Wait.BACKOFF
    else:
        row.held_by = Wait.OVERLAP if row.periodic is not None else Wait.DEPENDENCY


def _ready(row: Row, event: RawEvent) -> None:
    row.state, row.ready_ns, row.held_by = TaskState.READY, event[1], None


def _started(row: Row, event: RawEvent) -> None:
    row.state, row.started_ns, row.held_by = TaskState.RUNNING, event[1], None
    waits = event[7]
    row.waits = _NOTHING if not waits else waits if isinstance(waits, dict) else {waits[0]: waits[1]}


def _paused(row: Row, event: RawEvent) -> None:
    row.state, row.paused_from = TaskState.PAUSED, _details(event).get("from")
    if row.paused_from != TaskState.RUNNING:
        row.held_by = Wait.PAUSED


def _resumed(row: Row, event: RawEvent) -> None:
    row.state, row.paused_from = _details(event).get("to", TaskState.READY), None
    row.held_by = Wait.DEPENDENCY if row.state == TaskState.QUEUED else None
    if row.state == TaskState.READY:
        row.ready_ns = event[1]


def _abort_asked(row: Row, event: RawEvent) -> None:
    row.state, row.cause = TaskState.DISPOSING, _details(event).get("cause")


def _starved(row: Row, event: RawEvent) -> None:
    row.starved_ns = _details(event).get("starved_ns", 0)


def _placed(row: Row, event: RawEvent) -> None:
    row.place = _details(event)


def _over(default: str) -> Callable[[Row, RawEvent], None]:
    def over(row: Row, event: RawEvent) -> None:
        row.state, row.ended_ns, row.held_by = TaskState.DISPOSED, event[1], None
        row.outcome, row.cause, row.root = default, None, None
        if event[7] is not SUCCESS_DETAILS:
            details = _details(event)
            row.outcome = details.get("outcome", default)
            row.cause, row.root = details.get("cause"), details.get("root")
            row.waits = details.get("waits") or row.waits

    return over


_STEPS: Final[dict[str, Callable[[Row, RawEvent], None]]] = {
    Kind.TASK_SUBMITTED: _submitted,
    Kind.TASK_RETRIED: _submitted,
    Kind.TASK_READY: _ready,
    Kind.TASK_STARTED: _started,
    Kind.TASK_PAUSED: _paused,
    Kind.TASK_RESUMED: _resumed,
    Kind.TASK_ABORT_ASKED: _abort_asked,
    Kind.TASK_STARVED: _starved,
    Kind.TASK_PLACED: _placed,
    Kind.TASK_FINISHED: _over(Outcome.SUCCESS),
    Kind.TASK_CANCELLED: _over(Outcome.ABORTED),
    Kind.TASK_DROPPED: _over(Outcome.REJECTED),
}


def picture(task: Task, seq: int) -> Row:
    """Return the row of a living task as the kernel knows it; to be called under the kernel's lock."""
    waits = dict(task.waits or {})
    row = Row(task.number, task.id, task.scope.key, task.state, task.since - sum(waits.values()))
    row.priority, row.demand, row.attempt, row.seq = task.priority, dict(task.demand), task.attempt, seq
    row.after = tuple(other.number for other in task.after or ())
    row.after_ended = tuple(other.number for other in task.after_ended or ())
    row.periodic = task.periodic.name if task.periodic is not None else None
    row.paused_from, row.waits = task.paused_from, waits
    if task.state == TaskState.READY:
        row.ready_ns = task.since
    elif task.pending:
        row.held_by = Wait.PAUSED if task.state == TaskState.PAUSED else task.held_by or Wait.DEPENDENCY
    else:
        row.started_ns = task.since
    return row
