"""The ring: the latest events of a kernel, as rows that are written over again and again.

A row is no event: nothing is made when something happens but for the first events of a kernel, up to the size of the
ring. A reader gets plain tuples, made when it asks.
"""

from __future__ import annotations

from typing import Any, Final

from whywait.kernel.accounts import Waited
from whywait.kernel.collector import hide
from whywait.kernel.events import Kind, RawEvent, Started

_SUBMITTED: Final = Kind.TASK_SUBMITTED


class Row:
    """One event; the fields are those of :class:`~whywait.kernel.events.Event`, with 0 for None."""

    __slots__ = ("cause", "details", "kind", "name", "ns", "number", "scope", "starved_ns", "time_ns", "word")

    time_ns: int
    kind: str
    scope: str
    number: int
    name: str | None
    cause: int
    details: Any
    word: str | None  # of a submission the name of the task's function, of a start or an end the one cause of the wait
    ns: int  # and how long the wait was
    starved_ns: int  # of a start: for how long a higher priority held a slot meanwhile


class Ring:
    """The latest events, up to ``size`` of them."""

    __slots__ = ("at", "rows", "size")

    def __init__(self, size: int) -> None:
        """Start empty."""
        self.size = size
        self.rows: list[Row] = []
        self.at = 0  # where the next event goes

    def __len__(self) -> int:
        """Return how many events are remembered."""
        return len(self.rows)

    def add(
        self,
        time_ns: int,
        kind: str,
        scope: str,
        number: int,
        name: str | None,
        cause: int,
        details: Any,
        word: str | None,
        ns: int,
        starved_ns: int,
    ) -> None:
        """Remember an event, and forget the oldest one if there is no more room."""
        rows, at = self.rows, self.at
        if at < len(rows):
            row = rows[at]
        elif at == self.size:
            if not at:
                return
            at = 0
            row = rows[0]
        else:
            row = Row()
            hide(row)  # it is in no cycle: what it holds leads to no row
            rows.append(row)
        self.at = at + 1
        row.time_ns = time_ns
        row.kind = kind
        row.scope = scope
        row.number = number
        row.name = name
        row.cause = cause
        row.details = details
        row.word = word
        row.ns = ns
        row.starved_ns = starved_ns

    def events(self, latest: int, count: int, last_seq: int) -> list[RawEvent]:
        """Return the first ``count`` of so many ``latest`` events, oldest first; the last of all has ``last_seq``."""
        rows, first = self.rows, self.at - latest
        events = []
        for index in range(count):
            row, seq = rows[first + index], last_seq - latest + 1 + index
            fields = (row.time_ns, row.kind, row.scope, row.number, row.name, row.cause, row.details)
            events.append(raw_event(seq, *fields, row.word, row.ns, row.starved_ns))
        return events


def raw_event(
    seq: int,
    time_ns: int,
    kind: str,
    scope: str,
    number: int,
    name: str | None,
    cause: int,
    details: Any,
    word: str | None,
    ns: int,
    starved_ns: int,
) -> RawEvent:
    """Return the tuple that readers take; see :class:`Row`."""
    led_by: int | str | None = cause or None
    if type(details) is Waited:
        details = details.by_cause()
    if word is not None:
        if kind is _SUBMITTED:
            led_by = led_by or word
        elif details is None:
            details = (word, ns)
        else:
            details = (*details, ("waits", (word, ns)))
    if starved_ns:
        details = Started(details, (), starved_ns)
    return (seq, time_ns, kind, scope, number or None, name, led_by, details)
