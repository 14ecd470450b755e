"""Files of events: their first line, and the reader that gives events that can have happened, or says which cannot.

What follows a run through its events (report, trace, the table of DevTools, the page) relies on what is checked here:
numbers grow, times do not go back, a task refers to earlier tasks only, scopes are not their own parents, and each
detail is of its kind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from whywait.errors import ConfigError
from whywait.kernel.events import Event, Kind
from whywait.kernel.ids import LONGEST_ID
from whywait.kernel.limits import HIGHEST, LOWEST, Budget, Limits
from whywait.kernel.state import Outcome, TaskState
from whywait.observe.fold import ENDS
from whywait.support.fits import LARGEST, LONGEST_TEXT, is_count
from whywait.support.json_lines import JsonLinesReader, is_shallow
from whywait.support.units import shown

MAGIC: Final = "whywait events"
VERSION: Final = 1
MOST_EVENTS: Final = 1_000_000  # that are kept of one file
ENDS_AT_ONCE: Final = frozenset(ENDS)  # kinds after which the file is written at once
_SKIPPED: Final = "skipped"
_LONGEST_BEGINNING: Final = 1_000_000  # bytes
_DEEPEST_SCOPE: Final = 1_000
_WAITS: Final = "waits"  # what a task does, as far as the file tells
_RUNS: Final = "runs"
_ENDED: Final = "has ended"
_UNSURE: Final = "is not known"
_INSIDE: Final = (Kind.TASK_PAUSE_ASKED, Kind.TASK_ABORT_ASKED)  # what only a task that holds a slot goes through
_STATES: Final = frozenset(TaskState)
OUTCOMES: Final = frozenset((*Outcome, *(outcome.upper() for outcome in Outcome)))  # see `read_outcome`
_KINDS: Final = frozenset(Kind)

_NOTHING: Final[tuple[dict[str, Any], dict[str, Any]]] = ({}, {})
_Expected = tuple[Callable[[Any], bool], str]  # a check, and what it expects in words


class FileLimits(NamedTuple):
    """What might be in use at once, as the first line of a file tells it."""

    slots: int | None
    hard: Mapping[str, int]
    soft: Mapping[str, int]
    devices: Mapping[str, Mapping[str, int]] = MappingProxyType({})  # units of each kind, with the memory of each


class EventFile(NamedTuple):
    """The events of a whole file, and what else it tells."""

    events: list[Event]
    limits: FileLimits | None  # None: the file does not say
    complete: bool  # its last line was not cut off


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
    """Yield the events of a file one by one; a line that is none, or cannot have happened, raises ConfigError."""
    return iter(_Reader(path))


def read_event_file(path: str | PathLike[str]) -> EventFile:
    """Return all events of a file; one that holds no event, or more than are kept, raises ConfigError."""
    reader = _Reader(path)
    events: list[Event] = []
    for event in reader:
        events.append(event)
        if len(events) > MOST_EVENTS:
            raise ConfigError(f"{path}: holds more than {MOST_EVENTS:,} events, the most that can be looked at")
    if not events:
        raise ConfigError(f"{path}: holds no events; whywait run FILE --events {path} writes them")
    return EventFile(events, reader.limits, reader.complete)


class _Reader:
    """Reads one file from its beginning to its end."""

    def __init__(self, path: str | PathLike[str]) -> None:
        self._lines = JsonLinesReader(path, "an event")
        self.limits: FileLimits | None = None
        self._last_seq = self._last_time = self._last_begun = 0
        self._is_whole = True  # no event is missing up to now
        self._phases: dict[int, str] = {}  # of each task by its number
        self._begun: list[int] = []  # the tasks that have begun since events were missing
        self._parents: dict[str, str] = {}
        # Tasks of a batch may await later ones: those that have not begun, and what each task awaits that has begun
        # while there were any. All that await each other in a circle are among them.
        self._ahead: set[int] = set()
        self._awaited: dict[int, list[int]] = {}

    @property
    def complete(self) -> bool:
        return self._lines.complete

    def __iter__(self) -> Iterator[Event]:
        number = 0
        for number, data in self._lines:
            try:
                event = self._take(data, is_first=number == 1)
            except ConfigError as wrong:
                raise self._lines.refusal(number, str(wrong)) from None
            if event is not None:
                yield event
        try:
            self._check_circles()
        except ConfigError as wrong:
            raise self._lines.refusal(number, str(wrong)) from None

    def _take(self, data: Any, *, is_first: bool) -> Event | None:  # noqa: ANN401 - JSON
        """Return the event of a line; None if it tells of something else."""
        if not isinstance(data, dict):
            raise ConfigError(f"{shown(data)} is not an event: expected an object with seq, time_ns, kind and scope")
        if is_first and MAGIC in data:
            self.limits = _read_header(data)
            return None
        if _SKIPPED in data:
            _check_skipped(data)
            return None
        self._check_head(data)
        check_details(data["kind"], data.get("details"))
        self._follow(data)
        return Event.from_dict(data)

    def _check_head(self, data: dict[str, Any]) -> None:
        for name in data.keys() - _HEAD.keys():
            raise ConfigError(f"{shown(name)} is not a field of an event: expected {', '.join(_HEAD)}")
        for name, (check, expected) in _HEAD.items():
            if not check(data.get(name)):
                raise _wrong(name, data, expected)
        seq, kind, cause = data["seq"], data["kind"], data.get("cause")
        if seq <= self._last_seq:
            raise _wrong("seq", data, f"more than {self._last_seq}, that of the line before")
        if seq > self._last_seq + 1:
            self._skip()
        if data["time_ns"] < self._last_time:
            raise _wrong("time_ns", data, f"no less than {self._last_time}, that of the line before")
        if cause is not None and cause >= seq:
            raise _wrong("cause", data, f"the seq of an earlier event, below {seq}")
        if kind in _OF_A_TASK and data.get("number") is None:
            raise _wrong("number", data, "that of a task")
        if kind in _NAMED and data.get("name") is None:
            raise _wrong("name", data, "that of a periodic or a limit")

    def _skip(self) -> None:
        """Take into account that events are missing: tasks that waited before may have started or ended since."""
        self._is_whole = False
        for number in self._begun:
            if self._phases[number] == _WAITS:
                self._phases[number] = _UNSURE
        self._begun.clear()

    def _follow(self, data: dict[str, Any]) -> None:
        """Check an event against those before it."""
        kind, number, details = data["kind"], data.get("number"), data.get("details") or {}
        self._last_seq, self._last_time = data["seq"], data["time_ns"]
        if kind == Kind.SCOPE_CREATED:
            self._follow_scope(data["scope"], details.get("parent", ""))
        elif kind in (Kind.TASK_SUBMITTED, Kind.TASK_RETRIED):
            self._begin(data["number"], details)
        elif number is not None:
            self._follow_task(kind, number, details)

    def _begin(self, number: int, details: dict[str, Any]) -> None:
        if number <= self._last_begun or number in self._phases:
            raise ConfigError(f"task {number} begins after task {self._last_begun}: expected a higher number")
        self._last_begun = number
        self._phases[number] = _WAITS
        self._begun.append(number)
        if details.get("of", 0) >= number:
            raise ConfigError(f"task {number} is a retry of task {details['of']}: expected an earlier one")
        awaited = (*details.get("after", ()), *details.get("after_ended", ()))
        self._ahead.update(each for each in awaited if each >= number)
        if self._ahead:
            self._awaited[number] = [each for each in awaited if each >= number or each in self._awaited]
            self._ahead.discard(number)
            if not self._ahead:
                self._check_circles()

    def _check_circles(self) -> None:
        """Check that the tasks of a batch do not await each other in a circle."""
        try:
            TopologicalSorter(self._awaited).prepare()
        except CycleError as error:
            circle = " -> ".join(map(str, reversed(error.args[1])))
            raise ConfigError(f"tasks await each other in a circle, {circle}: expected none that does") from None
        self._awaited.clear()

    def _follow_task(self, kind: str, number: int, details: dict[str, Any]) -> None:
        """Check that a task can do this after what it has done before."""
        phase = self._phases.get(number)
        if phase is None:
            if self._is_whole:
                raise ConfigError(f"task {number} has not begun: expected a TASK_SUBMITTED before {kind}")
            phase = self._phases[number] = _UNSURE
        possible: tuple[str, ...]
        if kind in ENDS:
            possible, new = (_WAITS, _RUNS), _ENDED
        elif kind == Kind.TASK_STARTED:
            possible, new = (_WAITS,), _RUNS
        elif kind in _INSIDE or TaskState.RUNNING in (details.get("from"), details.get("to")):
            possible, new = (_RUNS,), _RUNS
        elif kind in (Kind.TASK_READY, Kind.TASK_PAUSED, Kind.TASK_RESUMED):
            possible, new = (_WAITS,), phase
        else:
            return
        if phase != _UNSURE and phase not in possible:
            raise ConfigError(f"task {number} {phase}: expected no {kind} after that")
        self._phases[number] = new

    def _follow_scope(self, scope: str, parent: str) -> None:
        self._parents[scope] = parent
        above, depth = parent, 0
        while above and above in self._parents:
            depth += 1
            if above == scope:
                raise ConfigError(f"the scope {shown(scope)} is inside itself: expected a parent that is not")
            if depth > _DEEPEST_SCOPE:
                raise ConfigError(f"the scope {shown(scope)} is nested too deeply: expected at most {_DEEPEST_SCOPE}")
            above = self._parents[above]


def _read_header(data: dict[str, Any]) -> FileLimits:
    if data[MAGIC] != VERSION:
        raise ConfigError(f"events of version {shown(data[MAGIC])} are not known: expected version {VERSION}")
    slots, hard, soft = data.get("slots"), data.get("hard", {}), data.get("soft", {})
    if slots is not None and not (is_count(slots) and slots):
        raise _wrong("slots", data, "an int of 1 or more, or null")
    for name, amounts in (("hard", hard), ("soft", soft)):
        if not _are_amounts(amounts):
            raise _wrong(name, data, "an object of amounts by name")
    devices = data.get("devices", {})
    if not isinstance(devices, dict) or not all(_is_id(kind) and _are_amounts(devices[kind]) for kind in devices):
        raise _wrong("devices", data, "an object of kinds, each with its units and their memory")
    return FileLimits(slots, hard, soft, devices)


def _check_skipped(data: dict[str, Any]) -> None:
    if len(data) > 1 or not is_count(data[_SKIPPED]):
        raise _wrong(_SKIPPED, data, "a number of events that are missing, alone on its line")


def check_details(kind: str, details: dict[str, Any] | None) -> None:
    """Raise ConfigError if an event of this kind cannot have these details."""
    if details is None:
        details = {}
    if not is_shallow(details):
        raise ConfigError("details are nested too deeply")
    needed, possible = _DETAILS.get(kind, _NOTHING)
    for name, (check, expected) in needed.items():
        if name not in details or not check(details[name]):
            raise _wrong(name, details, expected, "details.")
    if kind == Kind.LIMIT_CHANGED and "limit" not in details and "units" not in details:
        raise _wrong("limit", details, "an int of 0 or more, or the units of a device", "details.")
    for name, value in details.items():
        check, expected = possible.get(name) or _EVERYWHERE.get(name, _ANYTHING)
        if not check(value):
            raise _wrong(name, details, expected, "details.")


def _wrong(name: str, data: dict[str, Any], expected: str, where: str = "") -> ConfigError:
    if data.get(name) is None:
        return ConfigError(f"{where}{name} is missing: expected {expected}")
    return ConfigError(f"{where}{name} is {shown(data[name])}: expected {expected}")


def _is_id(value: Any) -> bool:  # noqa: ANN401 - JSON
    return isinstance(value, str) and len(value) <= LONGEST_ID


def _are_amounts(value: Any) -> bool:  # noqa: ANN401 - JSON
    return isinstance(value, dict) and all(_is_id(key) and is_count(amount) for key, amount in value.items())


def _are_lists(value: Any) -> bool:  # noqa: ANN401 - JSON
    return isinstance(value, dict) and all(
        _is_id(key) and isinstance(each, list) and all(map(_is_id, each)) for key, each in value.items()
    )


def _are_numbers(value: Any) -> bool:  # noqa: ANN401 - JSON
    return isinstance(value, list) and all(map(is_count, value))


def _is_plain(value: Any) -> bool:  # noqa: ANN401 - JSON
    """Return whether a value of which nothing is known can do no harm: no endless text, no number out of bounds."""
    todo = [value]
    while todo:
        each = todo.pop()
        if isinstance(each, dict):
            todo += [*each, *each.values()]
        elif isinstance(each, list):
            todo += each
        elif isinstance(each, str):
            if len(each) > LONGEST_TEXT:
                return False
        elif isinstance(each, int) and abs(each) > LARGEST:
            return False
    return True


_COUNT: Final = (is_count, "an int of 0 or more")
_ID: Final = (_is_id, f"a string of at most {LONGEST_ID} characters")
_STATE: Final = (lambda value: isinstance(value, str) and value in _STATES, f"one of {', '.join(sorted(_STATES))}")
_OUTCOME: Final = (
    lambda value: isinstance(value, str) and value in OUTCOMES,
    f"one of {', '.join(Outcome)}",
)
_PRIORITY: Final = (lambda value: is_count(value) and value <= HIGHEST, f"an int from {LOWEST} to {HIGHEST}")
_NUMBERS: Final = (_are_numbers, "a list of task numbers")
_AMOUNTS: Final = (_are_amounts, "an object of amounts by name")
_SIZE: Final = (lambda value: value is None or is_count(value), "an int of 0 or more, or null")
_FLAG: Final = (lambda value: isinstance(value, bool), "true or false")
_ANYTHING: Final = (_is_plain, "a value of moderate size")
_HEAD: Final[dict[str, _Expected]] = {
    "seq": _COUNT,
    "time_ns": _COUNT,
    "kind": (lambda value: isinstance(value, str) and value in _KINDS, "a kind of event, such as TASK_STARTED"),
    "scope": _ID,
    "number": (lambda value: value is None or (is_count(value) and value > 0), "an int of 1 or more"),
    "name": (lambda value: value is None or _is_id(value), f"a string of at most {LONGEST_ID} characters"),
    "cause": (lambda value: value is None or is_count(value), "the seq of an earlier event"),
    "details": (lambda value: value is None or isinstance(value, dict), "an object"),
}
_FACTS: Final = {"exit_code": _COUNT, "exit_signal": _ID, "peak_ram": _COUNT, "cpu_ms": _COUNT, "measured": _ID}
_END: Final = {
    "outcome": _OUTCOME, "cause": _ID, "root": _ID, "waits": _AMOUNTS, "starved_ns": _COUNT, **_FACTS,
}  # fmt: skip

# What is of one form wherever it occurs.
_EVERYWHERE: Final[dict[str, _Expected]] = {
    "demand": _AMOUNTS,
    "units": _AMOUNTS,
    "devices": (_are_lists, "an object of lists of names by kind"),
    "function": _ID,
    "after": _NUMBERS,
    "after_ended": _NUMBERS,
    "slot": _FLAG,
}
# The details of each kind that something relies on: those that have to be there, and those that may.
_DETAILS: Final[dict[str, tuple[dict[str, _Expected], dict[str, _Expected]]]] = {
    Kind.TASK_SUBMITTED: (
        {"state": _STATE, "priority": _PRIORITY},
        {"of": _COUNT, "attempt": _COUNT},
    ),
    Kind.TASK_RETRIED: ({"of": _COUNT, "attempt": _COUNT, "state": _STATE}, {}),
    Kind.TASK_STARTED: ({}, {"waits": _AMOUNTS, "starved_ns": _COUNT}),
    Kind.TASK_PAUSED: ({"from": _STATE}, {"stopped": _FLAG}),
    Kind.TASK_RESUMED: ({"to": _STATE}, {}),
    Kind.TASK_ABORT_ASKED: ({"cause": _ID}, {}),
    Kind.TASK_FINISHED: ({"outcome": _OUTCOME}, _END),
    Kind.TASK_CANCELLED: ({}, _END),
    Kind.TASK_DROPPED: ({"cause": _ID}, _END),
    Kind.TASK_REJECTED: ({"cause": _ID}, _END),
    Kind.TASK_STARVED: ({"starved_ns": _COUNT}, {}),
    Kind.TASK_MEASURED: ({"ram": _COUNT}, {}),
    Kind.TASK_BLOCKED: ({"on": _COUNT}, {"lends": _ANYTHING}),
    Kind.TASK_OVERDRAWN: ({"asked": _COUNT, "ram": _COUNT}, {}),
    Kind.TASK_PLACED: ({"engine": _ID, "machine": _ID, "node": _ID, "pid": _COUNT}, {}),
    Kind.LANE_WAITS: ({"priority": _PRIORITY, "cause": _ID, "tasks": _COUNT}, {"of": _ID}),
    Kind.LIMIT_CHANGED: ({}, {"limit": _SIZE}),
    Kind.SCOPE_CREATED: ({}, {"parent": _ID, "own_budget": _ANYTHING}),
    Kind.PERIODIC_ADDED: ({"interval_ns": _COUNT}, {}),
    Kind.PERIODIC_SKIPPED: ({"code": _ID}, {}),
    Kind.PERIODIC_DISABLED: ({"reason": _ID}, {}),
}
_OF_A_TASK: Final = frozenset(
    kind for kind in _KINDS if kind.startswith("TASK_") and kind not in (Kind.TASK_REJECTED, Kind.TASK_DROPPED)
)
_NAMED: Final = frozenset(kind for kind in _KINDS if kind.startswith("PERIODIC_")) | {Kind.LIMIT_CHANGED}
