"""Workload files: read, checked, and packed into columns that a simulation can run straight from.

Most tasks of a big workload look alike, so the settings that many share (priority, scope, demand, policy) are checked
once for each combination that occurs, a :class:`TaskKind`. What differs (id, time, duration) goes into columns. Only
what is wrong is looked at slowly, to say where and why.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from itertools import islice
from operator import itemgetter, le
from os import PathLike
from pathlib import Path as FilePath
from typing import IO, Any, Final, NamedTuple

from whywait.errors import ConfigError
from whywait.kernel.ids import GENERATED_ID_PREFIX, LONGEST_ID
from whywait.kernel.limits import Demand, Priority, make_demand
from whywait.options import CONFIG, DEMAND, LOAD_PERIODIC, LOAD_SCOPE, LOAD_TASK, defaults, table
from whywait.support.files import parse_json, read_text
from whywait.support.forms import (
    LIST,
    OBJECT,
    TEXT,
    Form,
    Option,
    one_of,
    optional,
    parse_name,
    read_table,
    refused,
    whole,
)
from whywait.support.lines import Locate, Path, json_lines, lazily, nowhere
from whywait.support.nesting import NestingError, parents_first
from whywait.support.problems import refusal, unknown_name
from whywait.support.units import LARGEST, NS_PER_MS, shown

ALWAYS: Final = sys.maxsize  # attempts that fail when all of them do
_MEMO: Final = 4096
_RESERVED: Final = ("", GENERATED_ID_PREFIX)  # how no id of a user begins
_OWN: Final = ("id", "at_ms", "duration_ms")  # what differs from task to task, beside what it awaits
POLICY: Final = ("timeout_ns", "max_wait_ns", "retry", "backoff_ns")
_WORKLOAD: Final = "workload"
_OP: Final = "op"


def _short_name(value: object) -> str:
    """Return a name that is not too long for messages and views."""
    checked = parse_name(value)
    if len(checked) > LONGEST_ID:
        raise refused(value, f"at most {LONGEST_ID:,} characters")
    return checked


def _task_id(value: object) -> str:
    """Return an id that a user may give to a task."""
    checked = _short_name(value)
    if checked.startswith(GENERATED_ID_PREFIX):
        message = f"ids that begin with {GENERATED_ID_PREFIX} are given by whywait"
        raise ConfigError(f"{shown(value)} is not allowed: {message}")
    return checked


def _names(value: object) -> tuple[str, ...]:
    """Return a list of names, each once, in order."""
    if not isinstance(value, list | tuple):
        raise refused(value, "a list of ids")
    for index, entry in enumerate(value):
        if not isinstance(entry, str) or not entry:
            raise ConfigError(f"[{index}] is {shown(entry)}: expected an id, a string that is not empty")
    return tuple(dict.fromkeys(value))


def _is_well_formed(ident: object, at: object, duration: object) -> bool:
    """Return whether the columns of a task need no closer look; thousands a second are asked about."""
    return (
        type(ident) is str
        and ident[:1] not in _RESERVED
        and len(ident) <= LONGEST_ID
        and type(at) is int
        and 0 <= at <= LARGEST
        and type(duration) is int
        and 1 <= duration <= LARGEST
    )


_BOTH: Final = (LOAD_TASK, LOAD_PERIODIC)
_ROWS: Final = (
    Option("name", TEXT, "what it is called", (_WORKLOAD,)),
    Option("config", OBJECT, "what the tasks share", (_WORKLOAD,)),
    Option("tasks", LIST, "the tasks", (_WORKLOAD,)),
    Option("ops", LIST, "what is done to tasks from outside", (_WORKLOAD,)),
    Option("periodics", LIST, "what runs again and again", (_WORKLOAD,)),
    Option("scopes", OBJECT, "scopes by name", (CONFIG,)),
    Option("id", Form(_task_id, {}), "its name", _BOTH),
    Option("at_ms", whole(0), "when it comes", (LOAD_TASK, _OP)),
    Option("do", one_of("cancel", "pause", "resume"), "what is done", (_OP,)),
    Option("id", TEXT, "the task that it is done to", (_OP,)),
    Option("duration_ms", whole(1), "how long it runs", _BOTH),
    Option("until_ms", whole(0), "when it ticks no more", (LOAD_PERIODIC,)),
    Option("after", Form(_names, {}), "tasks that must have succeeded before", (LOAD_TASK,)),
    Option("after_ended", Form(_names, {}), "tasks that must have ended before, however", (LOAD_TASK,)),
    Option("scope", optional(Form(_short_name, {})), "the scope it belongs to", _BOTH),
    Option("parent", optional(Form(_short_name, {})), "the scope that it is part of", (LOAD_SCOPE,)),
    Option("outcome", one_of("success", "error"), "how its attempts end", _BOTH, "success"),
    Option("fails", optional(whole(0)), "how many first attempts fail", (LOAD_TASK,)),
)
TABLES: Final = {place: table(place, _ROWS) for place in (_WORKLOAD, CONFIG, LOAD_SCOPE, LOAD_TASK, LOAD_PERIODIC, _OP)}
_DEFAULTS: Final = defaults(LOAD_PERIODIC)
# What an entry of each list cannot do without.
_REQUIRED: Final = {
    LOAD_TASK: (_OWN, "every task has id, at_ms and duration_ms"),
    LOAD_PERIODIC: (
        ("id", "every_ms", "duration_ms", "until_ms"),
        "every periodic has id, every_ms, duration_ms and until_ms (so that the run ends)",
    ),
    _OP: (("at_ms", "do", "id"), "every op has at_ms, do and id"),
}


class TaskKind(NamedTuple):
    """What tasks share that differ only in id, time, duration and dependencies."""

    priority: int = Priority.NORMAL
    scope: str | None = None
    demand: Demand = ()
    policy: tuple[tuple[str, int | None], ...] = ()  # what the task sets itself; the rest is inherited
    fails: int = 0  # so many first attempts fail
    slot: bool = True  # whether it takes a slot


class Op(NamedTuple):
    """Something done from outside, to a task or, in a recorded run, to a scope or a limit."""

    at_ms: int
    do: str
    id: str
    value: Any = None  # of a limit
    soft: bool = False  # of a limit that there was not before


class PeriodicSpec(NamedTuple):
    """A periodic task of the file; each of its iterations runs as an ordinary task."""

    id: str
    every_ns: int
    duration_ms: int
    until_ms: int
    kind: TaskKind
    overlap: str
    max_parallel: int
    jitter: float
    enabled: bool
    disable_after: int | None = None


class Workload:
    """A checked workload: parallel columns for the tasks, small records for the rest.

    ``Workload(data)`` checks a dict; :meth:`from_file` reads JSON. Every problem is a ConfigError that names the place.
    """

    def __init__(self, data: Mapping[str, Any], source: str | None = None, locate: Locate = nowhere) -> None:
        """Check ``data`` and keep what a simulation needs; ``source`` is what messages call it."""
        self.source = source
        self._locate = locate
        # Tuples, because the garbage collector lets go of tuples without containers and of lists never.
        self.ids: tuple[str, ...] = ()
        self.at_ms: tuple[int, ...] = ()
        self.duration_ms: tuple[int, ...] = ()
        self.kind_of: tuple[int, ...] = ()  # index into kinds, for each task
        self.kinds: list[TaskKind] = []
        self.after: dict[int, tuple[str, ...]] = {}  # task index -> ids
        self.after_ended: dict[int, tuple[str, ...]] = {}
        self.ops: list[Op] = []
        self.periodics: list[PeriodicSpec] = []
        self.scopes: dict[str, dict[str, Any]] = {}  # parents before children
        self.in_order = True  # whether at_ms never goes back
        self.unique = True  # whether no two tasks have the same id
        self.unit_ns = NS_PER_MS  # what times are counted in: those of a recorded run in ns
        self.attempts: dict[int, tuple[int, ...]] = {}  # task index -> durations, where attempts differ
        top = self._read(_WORKLOAD, data, ())
        if "tasks" not in top:
            raise self.problem((), '"tasks" is missing: expected a list of tasks')
        self.name: str | None = top.get("name")
        self.config = self._read(CONFIG, top.get("config", {}), ("config",))
        self._read_scopes(self.config.pop("scopes", {}))
        self._read_tasks(top["tasks"])
        self._read_periodics(top.get("periodics", []))
        self._read_ops(top.get("ops", []))
        self._locate = nowhere  # the text is needed no more

    def problem(self, path: Path, message: str) -> ConfigError:
        """Return the error that names the file, the line as long as that is known, and the place."""
        return refusal(self.source, path, message, self._locate(path))

    def _refuse(self, path: Path, message: str) -> None:
        raise self.problem(path, message)

    def _read(self, place: str, data: object, path: Path) -> dict[str, Any]:
        """Read an object by its table; the first problem raises."""
        fields = read_table(TABLES[place], data, path, self._refuse)
        required, wanted = _REQUIRED.get(place, ((), ""))
        for key in required:
            if key not in data:  # type: ignore[operator] # it was read, so it is an object
                raise self.problem(path, f'"{key}" is missing: {wanted}')
        return fields

    @classmethod
    def from_file(cls, path: str | PathLike[str]) -> Workload:
        """Read a JSON file."""
        source = str(path)
        try:
            with FilePath(path).open("rb") as stream:
                return cls.from_stream(stream, source)
        except OSError as error:
            raise ConfigError(f"{source}: cannot be read: {error.strerror or error}") from error

    @classmethod
    def from_stream(cls, stream: IO[bytes], source: str) -> Workload:
        """Read JSON from a binary stream; ``source`` is what messages call it."""
        text = read_text(stream, source, "JSON", 'a JSON object with "tasks"')
        data = parse_json(text, source, "an object with a list of tasks")
        return cls(data, source, lazily(json_lines, text))

    def _read_scopes(self, scopes: dict[str, Any]) -> None:
        read: dict[str, dict[str, Any]] = {}
        for key, value in scopes.items():
            try:
                _short_name(key)
            except ConfigError as error:
                raise self.problem(("config", "scopes"), str(error)) from None
            read[key] = self._read(LOAD_SCOPE, value, ("config", "scopes", key))
        for key, fields in read.items():
            parent = fields.get("parent")
            if parent is not None and parent not in read:
                message = unknown_name(parent, "a scope of this config", read)
                raise self.problem(("config", "scopes", key, "parent"), message)
        try:
            order = parents_first({key: fields.get("parent") for key, fields in read.items()})
        except NestingError as error:
            raise self.problem(("config", "scopes", error.key, "parent"), str(error)) from None
        self.scopes = {key: read[key] for key in order}

    def _read_tasks(self, tasks: list[Any]) -> None:
        """Pack tasks into columns: one that is like another but for its own fields is not looked at closely again."""
        own: list[tuple[str, int, int]] = []
        kind_of: list[int] = []
        memo: dict[str, int] = {}
        for index, task in enumerate(tasks):
            try:
                fields = dict(task)
                ident, at, duration = fields.pop("id"), fields.pop("at_ms"), fields.pop("duration_ms")
                after, after_ended = fields.pop("after", []), fields.pop("after_ended", [])
                like = repr(fields)
            except (KeyError, TypeError, ValueError, RecursionError):
                self._read(LOAD_TASK, task, ("tasks", index))  # which says what is wrong
                raise
            kind = memo.get(like)
            if kind is None or not _is_well_formed(ident, at, duration):
                checked = self._read(LOAD_TASK, task, ("tasks", index))
                ident, at, duration = [checked[key] for key in _OWN]
                kind = len(self.kinds)
                self.kinds.append(self._make_kind(checked, ("tasks", index), slot=True))
                if len(memo) < _MEMO:
                    memo[like] = kind
            if after != []:
                self.after[index] = self._awaited(after, ("tasks", index, "after"))
            if after_ended != []:
                self.after_ended[index] = self._awaited(after_ended, ("tasks", index, "after_ended"))
            own.append((ident, at, duration))
            kind_of.append(kind)
        self.ids, self.at_ms, self.duration_ms = zip(*own, strict=True) if own else ((), (), ())
        self.kind_of = tuple(kind_of)
        self.in_order = all(map(le, self.at_ms, islice(self.at_ms, 1, None)))
        known = set(self.ids)
        self.unique = len(known) == len(own)
        self._check_dependencies("after", self.after, known)
        self._check_dependencies("after_ended", self.after_ended, known)

    def _awaited(self, names: object, path: Path) -> tuple[str, ...]:
        try:
            return _names(names)
        except ConfigError as error:
            raise self.problem(path, str(error)) from None

    def _check_dependencies(self, field: str, table: dict[int, tuple[str, ...]], known: set[str]) -> None:
        for index, ids in table.items():
            if not known.issuperset(ids):
                wrong = next(other for other in ids if other not in known)
                raise self.problem(("tasks", index, field), unknown_name(wrong, "a task of this workload", known))

    def _read_periodics(self, periodics: list[Any]) -> None:
        taken = {ident.partition("#")[0] for ident in self.ids} | set(self.ids) if periodics else set()
        for index, entry in enumerate(periodics):
            path = ("periodics", index)
            fields = self._read(LOAD_PERIODIC, entry, path)
            # Iterations are called after their periodic, so both ids must be free: sample and sample#7.
            if fields["id"] in taken:
                raise self.problem((*path, "id"), f"{shown(fields['id'])} is taken by a task or a periodic")
            taken.add(fields["id"])
            own = {key: value for key, value in (_DEFAULTS | fields).items() if key in PeriodicSpec._fields}
            self.periodics.append(PeriodicSpec(kind=self._make_kind(fields, path, slot=False), **own))

    def _read_ops(self, ops: list[Any]) -> None:
        known = set(self.ids) if ops else set()
        for index, entry in enumerate(ops):
            fields = self._read(_OP, entry, ("ops", index))
            if fields["id"] not in known:
                message = unknown_name(fields["id"], "a task of this workload", known)
                raise self.problem(("ops", index, "id"), message)
            self.ops.append(Op(**fields))
        self.ops.sort(key=itemgetter(0))  # stable: file order at one instant

    def _make_kind(self, fields: dict[str, Any], path: Path, *, slot: bool) -> TaskKind:
        try:
            demand = make_demand(**{key: fields[key] for key in DEMAND if key in fields})
        except ConfigError as error:
            raise self.problem(path, str(error)) from None
        fails = fields.get("fails")
        if fails is None:
            fails = ALWAYS if fields.get("outcome") == "error" else 0
        policy = tuple([(key, fields[key]) for key in POLICY if key in fields])
        priority = fields.get("priority", Priority.NORMAL)
        return TaskKind(priority, fields.get("scope"), demand, policy, fails, fields.get("slot", slot))
