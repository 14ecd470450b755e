"""Workload files: read, checked, and packed into columns that a simulation can run straight from.

Most tasks of a big workload look alike. So keys are checked once for each set of keys that occurs, and the settings
that many tasks share (priority, scope, demand, policy) once for each combination that occurs: such a combination is a
:class:`TaskKind`. What differs from task to task (id, time, duration) goes into plain lists without an object for each
task. Only what is wrong is looked at slowly, to say where and why.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from operator import itemgetter
from pathlib import Path
from typing import IO, Any, Final, NamedTuple, get_args

from whywait.errors import ConfigError
from whywait.kernel.ids import GENERATED_ID_PREFIX, LONGEST_ID
from whywait.kernel.limits import Demand, Priority, make_demand
from whywait.kernel.order import Ties
from whywait.simulation.checks import priority, short_name, task_id
from whywait.support.devices import parse_devices, parse_gpus
from whywait.support.fields import (
    FieldError,
    Table,
    amounts,
    counts,
    flag,
    fraction,
    mapping,
    milliseconds,
    name,
    names,
    one_of,
    optional,
    problem,
    read_fields,
    records,
    unknown_name,
    whole,
)
from whywait.support.files import parse_json, read_text
from whywait.support.lines import MOST_TEXT, json_lines, locator, path_of
from whywait.support.nesting import NestingError, parents_first
from whywait.support.units import LARGEST, NS_PER_MS, parse_size, shown

ALWAYS: Final = sys.maxsize  # attempts that fail when all of them do
_MEMO: Final = 4096
_RESERVED: Final = ("", GENERATED_ID_PREFIX)  # how no id of a user begins
_OBJECTS: Final = frozenset(("resources", "devices"))  # keys whose values cannot be looked up
_PER_TASK: Final = ("id", "at_ms", "duration_ms", "after", "after_ended")

_POLICY: Final[Table] = {
    "timeout_ms": ("timeout_ns", optional(milliseconds(1))),
    "max_wait_ms": ("max_wait_ns", optional(milliseconds(0))),
    "retry": ("retry", optional(whole(0))),
    "backoff_ms": ("backoff_ns", milliseconds(0)),
}
POLICY_KEYS: Final = tuple(kept for kept, _ in _POLICY.values())
_DEMAND: Final[Table] = {
    "cpu": ("cpu", whole(0)),
    "ram": ("ram", parse_size),
    "vram": ("vram", parse_size),
    "resources": ("resources", amounts),
    "gpu": ("gpu", whole(0)),
    "devices": ("devices", counts),
}
_LIMITS: Final[Table] = {
    "slots": ("slots", optional(whole(1))),
    "queue_limit": ("queue_limit", optional(whole(0))),
    "overflow": ("overflow", one_of("reject", "displace")),
    "when_busy": ("when_busy", one_of("queue", "reject")),
}
_CONFIG: Final[Table] = {
    **_LIMITS,
    **_POLICY,
    "order": ("order", one_of("strict", "aging")),
    "every_ms": ("every_ms", whole(1)),
    "boost": ("boost", whole(0)),
    "cap": ("cap", optional(whole(0))),
    "ties": ("ties", one_of(*get_args(Ties))),
    "backfill": ("backfill", one_of("greedy", "none")),
    "cpu": ("cpu", optional(whole(0))),
    "ram": ("ram", optional(parse_size)),
    "hard_ram": ("hard_ram", flag),
    "vram": ("vram", optional(parse_size)),
    "resources": ("resources", amounts),
    "soft": ("soft", amounts),
    "gpus": ("gpus", optional(parse_gpus)),
    "devices": ("devices", parse_devices),
    "starvation_timeout_ms": ("starvation_timeout_ns", milliseconds(1)),
    "scopes": ("scopes", mapping),
}
_SCOPE: Final[Table] = {
    **_LIMITS,
    **_POLICY,
    "max_spawn": ("max_spawn", optional(whole(0))),
    "on_error": ("on_error", one_of("continue", "abort")),
    "parent": ("parent", optional(short_name)),
}
_OUTCOME: Final = one_of("success", "error")
_TASK: Final[Table] = {
    "id": ("id", task_id),
    "at_ms": ("at_ms", whole(0)),
    "duration_ms": ("duration_ms", whole(1)),
    "priority": ("priority", priority),
    "after": ("after", names),
    "after_ended": ("after_ended", names),
    "scope": ("scope", optional(short_name)),
    "outcome": ("outcome", _OUTCOME),
    "fails": ("fails", optional(whole(0))),
    "slot": ("slot", flag),
    **_DEMAND,
    **_POLICY,
}
_OP: Final[Table] = {
    "at_ms": ("at_ms", whole(0)),
    "do": ("do", one_of("cancel", "pause", "resume")),
    "id": ("id", name),
}
_PERIODIC: Final[Table] = {
    "id": ("id", task_id),
    "every_ms": ("every_ms", whole(1)),
    "duration_ms": ("duration_ms", whole(1)),
    "until_ms": ("until_ms", whole(0)),
    "overlap": ("overlap", one_of("skip", "queue", "parallel")),
    "max_parallel": ("max_parallel", whole(1)),
    "jitter": ("jitter", fraction(0.3)),
    "enabled": ("enabled", flag),
    "disable_after": ("disable_after", optional(whole(1))),
    "priority": ("priority", priority),
    "scope": ("scope", optional(short_name)),
    "outcome": ("outcome", _OUTCOME),
    "slot": ("slot", flag),
    **_DEMAND,
}
_TOP: Final[Table] = {
    "name": ("name", name),
    "config": ("config", mapping),
    "tasks": ("tasks", records),
    "ops": ("ops", records),
    "periodics": ("periodics", records),
}
# Of tasks with the same keys: those of the shared settings, what picks these, and the dependencies with their table.
_Shape = tuple[list[str], Callable[[Any], Any] | None, tuple[tuple[str, dict[int, tuple[str, ...]]], ...]]


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
    every_ms: int
    duration_ms: int
    until_ms: int
    kind: TaskKind
    overlap: str = "skip"
    max_parallel: int = 1
    jitter: float = 0.0
    enabled: bool = True
    disable_after: int | None = None


class Workload:
    """A checked workload: parallel columns for the tasks, small records for the rest.

    ``Workload(data)`` checks a dict; :meth:`from_file` reads JSON. Every problem is a ConfigError that names the place.
    """

    __slots__ = (
        "after",
        "after_ended",
        "at_ms",
        "attempts",
        "config",
        "duration_ms",
        "ids",
        "in_order",
        "kind_of",
        "kinds",
        "name",
        "ops",
        "periodics",
        "scopes",
        "source",
        "unique",
        "unit_ns",
    )

    def __init__(self, data: Mapping[str, Any], source: str | None = None) -> None:
        """Check ``data`` and keep what a simulation needs; ``source`` is what messages call it."""
        self.source = source
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
        top = read_fields(_TOP, data, "", source)
        if "tasks" not in top:
            raise problem(source, "", '"tasks" is missing: expected a list of tasks')
        self.name: str | None = top.get("name")
        self.config = read_fields(_CONFIG, top.get("config", {}), "config", source)
        self._read_scopes(self.config.pop("scopes", {}))
        self._read_tasks(top["tasks"])
        self._read_periodics(top.get("periodics", []))
        self._read_ops(top.get("ops", []))

    @classmethod
    def from_file(cls, path: str | Path) -> Workload:
        """Read a JSON file."""
        source = str(path)
        try:
            with Path(path).open("rb") as stream:
                return cls.from_stream(stream, source)
        except OSError as error:
            raise ConfigError(f"{source}: cannot be read: {error.strerror or error}") from error

    @classmethod
    def from_stream(cls, stream: IO[bytes], source: str) -> Workload:
        """Read JSON from a binary stream; ``source`` is what messages call it."""
        text = read_text(stream, source, "JSON", 'a JSON object with "tasks"')
        try:
            return cls(parse_json(text, source, "an object with a list of tasks"), source)
        except FieldError as error:
            if len(text) > MOST_TEXT or not error.place:
                raise
            line = locator(json_lines(text))(path_of(error.place))
            raise FieldError(source, error.place, error.message, line) from None

    def _read_scopes(self, scopes: dict[str, Any]) -> None:
        source = self.source
        read: dict[str, dict[str, Any]] = {}
        for key, value in scopes.items():
            try:
                short_name(key)
            except ConfigError as error:
                raise problem(source, "config.scopes", str(error)) from None
            read[key] = read_fields(_SCOPE, value, f"config.scopes.{key}", source)
        for key, fields in read.items():
            parent = fields.get("parent")
            if parent is not None and parent not in read:
                message = unknown_name(parent, "a scope of this config", read)
                raise problem(source, f"config.scopes.{key}.parent", message)
        try:
            order = parents_first({key: fields.get("parent") for key, fields in read.items()})
        except NestingError as error:
            raise problem(source, f"config.scopes.{error.key}.parent", str(error)) from None
        self.scopes = {key: read[key] for key in order}

    def _read_tasks(self, tasks: list[Any]) -> None:
        ids: list[str] = []
        at_ms: list[int] = []
        duration_ms: list[int] = []
        kind_of: list[int] = []
        required = itemgetter("id", "at_ms", "duration_ms")
        shapes: dict[tuple[str, ...] | None, _Shape] = {}
        memo: dict[Any, int] = {}
        kinds = [TaskKind()]
        last, in_order = 0, True
        for task in tasks:
            keys = tuple(task) if isinstance(task, dict) else None
            shape = shapes.get(keys)
            if shape is None:
                shape = shapes[keys] = self._shape(task, len(ids))
            shared, picks, dependencies = shape
            ident, at, duration = required(task)
            if (
                type(ident) is not str
                or ident[:1] in _RESERVED
                or len(ident) > LONGEST_ID
                or type(at) is not int
                or not 0 <= at <= LARGEST
                or type(duration) is not int
                or not 1 <= duration <= LARGEST
            ):
                ident, at, duration = required(read_fields(_TASK, task, f"tasks[{len(ids)}]", self.source))
            if at < last:
                in_order = False
            last = at
            for field, table in dependencies:
                if task[field] != []:
                    table[len(ids)] = self._names(task[field], len(ids), field)
            if picks is None:
                kind = 0
            else:
                values = picks(task)
                try:
                    # The types are part of the key: 1, 1.0 and True are equal, and only the first is an amount.
                    key = picks, values, tuple(map(type, values))
                    kind = memo[key]
                except (KeyError, TypeError):
                    place = f"tasks[{len(ids)}]"
                    fields = read_fields(_TASK, dict(zip(shared, values, strict=False)), place, self.source)
                    kind = len(kinds)
                    kinds.append(_make_kind(fields, place, self.source))
                    if len(memo) < _MEMO and _OBJECTS.isdisjoint(task):
                        memo[key] = kind
            ids.append(ident)
            at_ms.append(at)
            duration_ms.append(duration)
            kind_of.append(kind)
        self.ids = tuple(ids)
        self.at_ms, self.duration_ms, self.kind_of = tuple(at_ms), tuple(duration_ms), tuple(kind_of)
        self.in_order = in_order
        self.kinds = kinds
        known = set(ids)
        self.unique = len(known) == len(ids)
        self._check_dependencies("after", self.after, known)
        self._check_dependencies("after_ended", self.after_ended, known)

    def _shape(self, task: object, index: int) -> _Shape:
        """Check the first task with these keys; return how to read all that have them."""
        place = f"tasks[{index}]"
        fields = read_fields(_TASK, task, place, self.source)
        for key in ("id", "at_ms", "duration_ms"):
            if key not in fields:
                raise problem(self.source, place, f'"{key}" is missing: every task has id, at_ms and duration_ms')
        assert isinstance(task, dict)
        shared = [key for key in task if key not in _PER_TASK]
        # With one key alone itemgetter would give no tuple, so the last is picked twice.
        picks = itemgetter(*shared, shared[-1]) if shared else None
        tables = (("after", self.after), ("after_ended", self.after_ended))
        return shared, picks, tuple([(field, table) for field, table in tables if field in task])

    def _names(self, value: object, index: int, field: str) -> tuple[str, ...]:
        try:
            return names(value)
        except ConfigError as error:
            raise problem(self.source, f"tasks[{index}].{field}", str(error)) from None

    def _check_dependencies(self, field: str, table: dict[int, tuple[str, ...]], known: set[str]) -> None:
        for index, ids in table.items():
            if not known.issuperset(ids):
                wrong = next(other for other in ids if other not in known)
                message = unknown_name(wrong, "a task of this workload", known)
                raise problem(self.source, f"tasks[{index}].{field}", message)

    def _read_periodics(self, periodics: list[Any]) -> None:
        taken = {ident.partition("#")[0] for ident in self.ids} | set(self.ids) if periodics else set()
        for index, entry in enumerate(periodics):
            place = f"periodics[{index}]"
            fields = read_fields(_PERIODIC, entry, place, self.source)
            for key in ("id", "every_ms", "duration_ms", "until_ms"):
                if key not in fields:
                    wanted = "every periodic has id, every_ms, duration_ms and until_ms (so that the run ends)"
                    raise problem(self.source, place, f'"{key}" is missing: {wanted}')
            # Iterations are called after their periodic, so both ids must be free: sample and sample#7.
            if fields["id"] in taken:
                raise problem(self.source, f"{place}.id", f"{shown(fields['id'])} is taken by a task or a periodic")
            taken.add(fields["id"])
            kind = _make_kind({"slot": False, **fields}, place, self.source)
            own = {key: value for key, value in fields.items() if key in PeriodicSpec._fields}
            self.periodics.append(PeriodicSpec(kind=kind, **own))

    def _read_ops(self, ops: list[Any]) -> None:
        known = set(self.ids) if ops else set()
        for index, entry in enumerate(ops):
            place = f"ops[{index}]"
            fields = read_fields(_OP, entry, place, self.source)
            for key in _OP:
                if key not in fields:
                    raise problem(self.source, place, f'"{key}" is missing: every op has at_ms, do and id')
            if fields["id"] not in known:
                raise problem(self.source, f"{place}.id", unknown_name(fields["id"], "a task of this workload", known))
            self.ops.append(Op(**fields))
        self.ops.sort(key=itemgetter(0))  # stable: file order at one instant


def _make_kind(fields: dict[str, Any], place: str, source: str | None) -> TaskKind:
    if not any(fields.get(key) for key in ("resources", "gpu", "devices")):
        demand = tuple([(key, fields[key]) for key in ("cpu", "ram", "vram") if fields.get(key)])
    else:
        try:
            demand = make_demand(**{key: fields[key] for key in _DEMAND if key in fields})
        except ConfigError as error:
            raise problem(source, place, str(error)) from None
    fails = fields.get("fails")
    if fails is None:
        fails = ALWAYS if fields.get("outcome") == "error" else 0
    policy = tuple([(key, fields[key]) for key in POLICY_KEYS if key in fields])
    return TaskKind(
        fields.get("priority", Priority.NORMAL), fields.get("scope"), demand, policy, fails, fields.get("slot", True)
    )
