"""Files of events: their first line, and the reader that gives events or says which line is none.

What follows a run through its events (report, trace, the table of DevTools, the page) relies on what is checked here:
numbers grow, times do not go back, tasks do not await each other in circles, and each detail is of its kind. Whether
each thing can have happened after the others is not: :class:`~whywait.observe.fold.Fold` passes over what cannot.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Final, NamedTuple

from whywait.errors import ConfigError
from whywait.kernel.events import Event, Kind
from whywait.kernel.ids import LONGEST_ID
from whywait.kernel.limits import HIGHEST, LOWEST, Budget, Limits
from whywait.kernel.state import Outcome, TaskState
from whywait.observe.fold import ENDS
from whywait.support.files import JsonLinesReader, is_shallow
from whywait.support.fits import LARGEST, LONGEST_TEXT, Count, Types, check_of, misfit, with_checks
from whywait.support.units import shown

MAGIC: Final = "whywait events"
VERSION: Final = 1
MOST_EVENTS: Final = 1_000_000  # that are kept of one file
ENDS_AT_ONCE: Final = frozenset(ENDS)  # kinds after which the file is written at once
_SKIPPED: Final = "skipped"
_LONGEST_BEGINNING: Final = 1_000_000  # bytes
_STATES: Final = frozenset(TaskState)
OUTCOMES: Final = frozenset((*Outcome, *(outcome.upper() for outcome in Outcome)))  # see `read_outcome`
_KINDS: Final = frozenset(Kind)


class FileLimits(NamedTuple):
    """What might be in use at once, as the first line of a file tells it."""

    slots: int | None
    hard: Mapping[str, int]
    soft: Mapping[str, int]
    devices: Mapping[str, Mapping[str, int]] = MappingProxyType({})  # units of each kind, with the memory of each


def header_of(limits: Limits, budget: Budget) -> dict[str, Any]:
    """Return the first line of a file of events."""
    header = {MAGIC: VERSION, "slots": limits.slots, "hard": dict(budget.hard), "soft": dict(budget.soft)}
    devices = {kind: dict(units) for kind, units in budget.devices.items()}
    return {**header, "devices": devices} if devices else header


def is_event_file(path: str | PathLike[str]) -> bool:
    """Return whether a file begins like one of events; one that cannot be read does not."""
    try:
        with Path(path).open("rb") as file:
            line = file.readline(_LONGEST_BEGINNING)
    except OSError:
        return False
    return line.startswith(b"{") and any(f'"{name}"'.encode() in line for name in (MAGIC, _SKIPPED, "seq"))


def read_events(path: str | PathLike[str]) -> Iterator[Event]:
    """Yield the events of a file one by one; a line that is none raises ConfigError."""
    return iter(EventFile(path))


def read_event_file(path: str | PathLike[str]) -> EventFile:
    """Return all events of a file; one that holds no event, or more than are kept, raises ConfigError."""
    file = EventFile(path)
    for event in file:
        file.events.append(event)
        if len(file.events) > MOST_EVENTS:
            raise ConfigError(f"{path}: holds more than {MOST_EVENTS:,} events, the most that can be looked at")
    if not file.events:
        raise ConfigError(f"{path}: holds no events; whywait run FILE --events {path} writes them")
    return file


class EventFile:
    """Reads a file of events; what its first line tells of limits is known when the first event is."""

    def __init__(self, path: str | PathLike[str]) -> None:
        """Read nothing yet."""
        self.events: list[Event] = []
        self.limits: FileLimits | None = None  # None: the file does not say
        self._lines = JsonLinesReader(path, "an event")
        self._last_seq = self._last_time = 0
        self._awaited: dict[int, list[int]] = {}

    @property
    def complete(self) -> bool:
        """Whether the last line was not cut off, as far as the file was read."""
        return self._lines.complete

    def __iter__(self) -> Iterator[Event]:
        """Yield the events in order; the first line that is wrong raises ConfigError."""
        number = 0
        for number, data in self._lines:
            try:
                event = self._take(data, is_first=number == 1)
            except ConfigError as wrong:
                raise self._lines.refusal(number, str(wrong)) from None
            if event is not None:
                yield event
        try:
            TopologicalSorter(self._awaited).prepare()
        except CycleError as error:
            circle = " -> ".join(map(str, reversed(error.args[1])))
            message = f"tasks await each other in a circle, {circle}: expected none that does"
            raise self._lines.refusal(number, message) from None

    def _take(self, data: Any, *, is_first: bool) -> Event | None:  # noqa: ANN401 - JSON
        """Return the event of a line; None if it tells of something else."""
        if not isinstance(data, dict):
            raise ConfigError(f"{shown(data)} is not an event: expected an object with seq, time_ns, kind and scope")
        if is_first and MAGIC in data:
            if data[MAGIC] != VERSION:
                raise ConfigError(f"events of version {shown(data[MAGIC])} are not known: expected version {VERSION}")
            _check(_HEADER, data)
            self.limits = FileLimits(data.get("slots"), *(data.get(key) or {} for key in ("hard", "soft", "devices")))
            return None
        if _SKIPPED in data:
            _check(_SKIPPED_LINE, data)
            return None
        for name in data.keys() - _HEAD.keys():
            raise ConfigError(f"{shown(name)} is not a field of an event: expected {', '.join(_HEAD)}")
        _check(_HEAD, data)
        self._check_order(data)
        check_details(data["kind"], data.get("details"))
        self._note_awaited(data.get("number"), data.get("details") or {})
        return Event.from_dict(data)

    def _check_order(self, data: dict[str, Any]) -> None:
        seq, kind, cause = data["seq"], data["kind"], data.get("cause")
        if seq <= self._last_seq:
            raise misfit("seq", seq, f"more than {self._last_seq}, that of the line before")
        if data["time_ns"] < self._last_time:
            raise misfit("time_ns", data["time_ns"], f"no less than {self._last_time}, that of the line before")
        if cause is not None and cause >= seq:
            raise misfit("cause", cause, f"the seq of an earlier event, below {seq}")
        if kind in _OF_A_TASK and data.get("number") is None:
            raise misfit("number", None, "that of a task")
        if kind in _NAMED and data.get("name") is None:
            raise misfit("name", None, "that of a periodic or a limit")
        self._last_seq, self._last_time = seq, data["time_ns"]

    def _note_awaited(self, number: int | None, details: dict[str, Any]) -> None:
        awaited = (*details.get("after", ()), *details.get("after_ended", ()))
        if awaited and number is not None:
            self._awaited.setdefault(number, []).extend(awaited)
        if number is not None and details.get("of", 0) >= number:
            raise ConfigError(f"task {number} is a retry of task {details['of']}: expected an earlier one")


def check_details(kind: str, details: dict[str, Any] | None) -> None:
    """Raise ConfigError if an event of this kind cannot have these details."""
    details = details or {}
    if not is_shallow(details):
        raise ConfigError("details are nested too deeply")
    for name in _NEEDED.get(kind, ()):
        if name not in details:
            raise misfit(f"details.{name}", None, _DETAILS[name][1])
    if kind == Kind.LIMIT_CHANGED and "limit" not in details and "units" not in details:
        raise misfit("details.limit", None, _DETAILS["limit"][1])
    for name, value in details.items():
        holds, hint = _SCOPE if name == "of" and kind == Kind.LANE_WAITS else _DETAILS.get(name, _ANYTHING)
        if not holds(value):
            raise misfit(f"details.{name}", value, hint)


def _check(table: Types, data: dict[str, Any]) -> None:
    """Raise ConfigError if a field of an object is missing or of another kind."""
    for name, (holds, hint) in table.items():
        if not holds(data.get(name)):
            raise misfit(name, data.get(name), hint)


def _is_plain(value: Any) -> bool:  # noqa: ANN401 - JSON
    """Return whether a value of which nothing is known can do no harm: no endless text, no number out of bounds."""
    if isinstance(value, dict):
        return all(map(_is_plain, value)) and all(map(_is_plain, value.values()))
    if isinstance(value, list):
        return all(map(_is_plain, value))
    return not (isinstance(value, str) and len(value) > LONGEST_TEXT) and not (
        isinstance(value, int) and abs(value) > LARGEST
    )


_IDENT: Final = f"a string of at most {LONGEST_ID} characters"
Id = Annotated[str, lambda value: len(value) <= LONGEST_ID, _IDENT]
PriorityNumber = Annotated[int, lambda value: LOWEST <= value <= HIGHEST, f"an int from {LOWEST} to {HIGHEST}"]
OutcomeWord = Annotated[str, OUTCOMES.__contains__, f"one of {', '.join(Outcome)}"]
_STATE: Final = Annotated[str, _STATES.__contains__, f"one of {', '.join(sorted(_STATES))}"]
_Amounts = Annotated[dict[Id, Count], "an object of amounts by name"]
_NUMBERS: Final = Annotated[list[Count], "a list of task numbers"]
_FLAG: Final = Annotated[bool, "true or false"]
_ANYTHING: Final = (_is_plain, "a value of moderate size")
_SCOPE: Final = (check_of(Id), _IDENT)
_SKIPPED_LINE: Final = with_checks({_SKIPPED: Count})
_HEADER: Final = with_checks(
    {
        "slots": Annotated[Annotated[Count, bool] | None, "an int of 1 or more, or null"],
        "hard": Annotated[_Amounts | None, "an object of amounts by name"],
        "soft": Annotated[_Amounts | None, "an object of amounts by name"],
        "devices": Annotated[dict[Id, _Amounts] | None, "an object of kinds, each with its units and their memory"],
    }
)
_HEAD: Final = with_checks(
    {
        "seq": Count,
        "time_ns": Count,
        "kind": Annotated[str, _KINDS.__contains__, "a kind of event, such as TASK_STARTED"],
        "scope": Id,
        "number": Annotated[Annotated[Count, bool] | None, "an int of 1 or more"],
        "name": Annotated[Id | None, _IDENT],
        "cause": Annotated[Count | None, "the seq of an earlier event"],
        "details": Annotated[dict[str, Any] | None, "an object"],
    }
)
# What is of one form wherever it occurs.
_DETAILS: Final = with_checks({
    **dict.fromkeys(("state", "from", "to"), _STATE),
    **dict.fromkeys(("demand", "units", "waits"), _Amounts),
    **dict.fromkeys(("after", "after_ended"), _NUMBERS),
    **dict.fromkeys(("slot", "stopped"), _FLAG),
    **dict.fromkeys(
        (
            "of", "attempt", "starved_ns", "ram", "on", "asked", "pid", "tasks", "interval_ns", "exit_code",
            "peak_ram", "cpu_ms",
        ),
        Count,
    ),
    **dict.fromkeys(
        (
            "cause", "root", "function", "engine", "machine", "node", "parent", "code", "reason", "exit_signal",
            "measured",
        ),
        Id,
    ),
    "priority": PriorityNumber,
    "outcome": OutcomeWord,
    "limit": Annotated[Count | None, "an int of 0 or more, or null"],
    "devices": Annotated[dict[Id, list[Id]], "an object of lists of names by kind"],
})  # fmt: skip
# The details of each kind that something relies on.
_NEEDED: Final[dict[str, tuple[str, ...]]] = {
    Kind.TASK_SUBMITTED: ("state", "priority"),
    Kind.TASK_RETRIED: ("of", "attempt", "state"),
    Kind.TASK_PAUSED: ("from",),
    Kind.TASK_RESUMED: ("to",),
    Kind.TASK_ABORT_ASKED: ("cause",),
    Kind.TASK_FINISHED: ("outcome",),
    Kind.TASK_DROPPED: ("cause",),
    Kind.TASK_REJECTED: ("cause",),
    Kind.TASK_STARVED: ("starved_ns",),
    Kind.TASK_MEASURED: ("ram",),
    Kind.TASK_BLOCKED: ("on",),
    Kind.TASK_OVERDRAWN: ("asked", "ram"),
    Kind.TASK_PLACED: ("engine", "machine", "node", "pid"),
    Kind.LANE_WAITS: ("priority", "cause", "tasks"),
    Kind.PERIODIC_ADDED: ("interval_ns",),
    Kind.PERIODIC_SKIPPED: ("code",),
    Kind.PERIODIC_DISABLED: ("reason",),
}
_OF_A_TASK: Final = frozenset(
    kind for kind in _KINDS if kind.startswith("TASK_") and kind not in (Kind.TASK_REJECTED, Kind.TASK_DROPPED)
)
_NAMED: Final = frozenset(kind for kind in _KINDS if kind.startswith("PERIODIC_")) | {Kind.LIMIT_CHANGED}
