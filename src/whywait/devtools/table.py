"""The table of tasks: one row for each attempt, as the event stream tells it.

It is the fold of the events (``observe/fold.py``) with an index beside it, so that a saved run and a running one look
the same. All living tasks are kept, and of the finished ones the latest.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Final, get_origin, get_type_hints

from whywait.kernel.ids import GENERATED_ID_PREFIX, number_of
from whywait.kernel.model import Task, name_splits
from whywait.kernel.state import TaskState
from whywait.observe.fold import UNSEEN, Attempt, Fold

KEPT_FINISHED: Final = 20_000
MAX_DIGITS: Final = 19  # of a number: it is converted only if it can be one of ours
ROW: Final[dict[str, Any]] = {  # the fields of a task's row, each with its type and its meaning
    **{
        name: kind
        for name, kind in get_type_hints(Attempt, include_extras=True).items()
        if get_origin(kind) is Annotated
    },
    "held_by": Annotated[str | None, "what keeps it from READY: dependency, backoff, overlap, paused"],
    "waits_for": Annotated[str | None, "what it waits for now, READY or not"],
}
_PICTURED: Final = (
    "state", "demand", "devices", "attempt", "after", "after_ended", "ready_ns", "started_ns", "waits", "seq",
)  # fmt: skip


def row_of(attempt: Attempt, waits_for: str | None) -> dict[str, Any]:
    """Return the row of a task, JSON-ready, with what it waits for now."""
    row = {name: waits_for if name == "waits_for" else getattr(attempt, name) for name in ROW}
    row["demand"], row["devices"] = dict(attempt.demand), dict(attempt.devices)
    return row


class TaskTable(Fold[Attempt]):
    """Attempts by number, found by id too; of a task whose beginning was missed it knows nothing."""

    from_the_middle = False

    def __init__(self, kept_finished: int = KEPT_FINISHED) -> None:
        """Start empty; keep so many finished tasks."""
        super().__init__(Attempt, kept_ended=kept_finished)
        self._named: dict[tuple[str, str], int] = {}
        self._successors: dict[int, list[int]] = {}

    def begun(self, attempt: Attempt) -> None:
        """Make it known by its id, and to the tasks that it awaits."""
        self._named[attempt.scope, attempt.id] = attempt.number
        if attempt.of is None:
            for number in (*attempt.after, *attempt.after_ended):
                self._successors.setdefault(number, []).append(attempt.number)

    def forgotten(self, attempt: Attempt) -> None:
        """Take it out of the index."""
        self._successors.pop(attempt.number, None)
        if self._named.get((attempt.scope, attempt.id)) == attempt.number:
            del self._named[attempt.scope, attempt.id]

    def find(self, ref: str) -> list[Attempt]:
        """Return the rows that an id or label, ``scope/id``, ``@number`` or number can mean; several: it is ambiguous.

        ``@`` and a number is never ambiguous: no task is given an id that begins so.
        """
        digits = ref.removeprefix(GENERATED_ID_PREFIX)
        number = int(digits) if digits.isascii() and digits.isdigit() and len(digits) <= MAX_DIGITS else None
        if number in self.attempts and digits != ref:
            return [self.attempts[number]]
        found = {number for (_, known), number in self._named.items() if known == ref}
        found.update(self._named[split] for split in name_splits(ref) if split in self._named)
        labelled = self.attempts.get(number_of(ref) or 0)
        if labelled is not None and ref in (labelled.label, f"{labelled.scope}/{labelled.label}"):
            found.add(labelled.number)
        if not found and number is not None:
            found.add(number)
        return [self.attempts[number] for number in sorted(found) if number in self.attempts]

    def attempts_of(self, row: Attempt) -> list[Attempt]:
        """Return all known attempts of a task, the first one first."""
        while row.of is not None and row.of in self.attempts:
            row = self.attempts[row.of]
        chain = [row]
        while row.retried_as is not None and row.retried_as in self.attempts:
            row = self.attempts[row.retried_as]
            chain.append(row)
        return chain

    def awaited_by(self, attempts: list[Attempt]) -> list[Attempt]:
        """Return the rows of the tasks that await one of these."""
        numbers = {number for row in attempts for number in self._successors.get(row.number, ())}
        return [self.attempts[number] for number in sorted(numbers) if number in self.attempts]

    def latest(self, number: int) -> Attempt | None:
        """Return the newest attempt of the task that once had this number."""
        row = self.attempts.get(number)
        return None if row is None else self.attempts_of(row)[-1]

    def resume_from(self, living: Iterable[Attempt], numbers: set[int]) -> None:
        """Go on from pictures of living tasks, after events were missed; ``numbers`` are those of all that live."""
        for picture in living:
            known = self.attempts.get(picture.number)
            if known is None:
                self.attempts[picture.number] = picture
                self.begun(picture)
                continue
            for name in _PICTURED:
                setattr(known, name, getattr(picture, name) or getattr(known, name))
            known.queued_for, known.paused_from, known.lends = picture.queued_for, picture.paused_from, picture.lends
        for row in [row for row in self.living() if row.number not in numbers]:
            row.state, row.outcome, row.cause = TaskState.DISPOSED, UNSEEN, "its end was not seen"
            self.end(row)


def picture(task: Task, seq: int) -> Attempt:
    """Return a living task as the kernel knows it; to be called under the kernel's lock."""
    waits = dict(task.waits or {})
    row = Attempt(task.number, task.id, task.scope.key, task.since - sum(waits.values()))
    row.state, row.priority, row.demand = task.state, task.priority, task.demand
    row.slot, row.lends, row.attempt, row.seq = task.takes_slot, task.lends, task.attempt, seq
    row.function = task.function
    row.devices = task.units
    row.after = tuple(other.number for other in task.after or ())
    row.after_ended = tuple(other.number for other in task.after_ended or ())
    row.periodic = task.periodic.name if task.periodic is not None else None
    row.paused_from, row.waits = task.paused_from, waits
    row.queued_for = task.held_by or row.queued_for
    if task.state == TaskState.READY:
        row.ready_ns = task.since
    elif not task.pending:
        row.started_ns = task.since
    return row
