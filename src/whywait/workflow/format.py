"""The format of workflow files as tables: each key with its check, its JSON Schema and what it is for.

The checks and the schema that editors use stand side by side, so one cannot be changed without seeing the other;
``tests/workflow/test_workflow_schema.py`` holds them against each other.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, get_args

from whywait.engines.registry import EngineName
from whywait.errors import ConfigError
from whywait.kernel.durations import NS, parse_duration_ns
from whywait.kernel.limits import Retry, check_units
from whywait.simulation.checks import PRIORITIES, priority
from whywait.support.devices import AUTO, GPU, MOST_UNITS, parse_devices, parse_gpus
from whywait.support.fields import amounts, counts, flag, fraction, mapping, name, one_of, optional, records, whole
from whywait.support.learned import Learned, as_learned
from whywait.support.memory import automatic_ram
from whywait.support.units import parse_written_size, shown
from whywait.workflow.expand import as_word

Schema = dict[str, Any]
Plain = str | int | float | bool

_LARGEST: Final = 1 << 62
_MOST_SLOTS: Final = 1_000_000
_NAME: Final = re.compile(r"\w[\w .+-]{0,99}")
_CALL: Final = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")


class Field(NamedTuple):
    """One key of a table."""

    check: Callable[[Any], Any]
    schema: Schema
    about: str


Fields = Mapping[str, Field]


def task_name(value: object) -> str:
    """Check for the name of a task, periodic or scope."""
    if isinstance(value, str) and _NAME.fullmatch(value):
        return value
    raise ConfigError(f"{shown(value)} is no name: expected letters, digits and the signs . _ + - within, up to 100")


def _above_zero_ns(value: object) -> int:
    ns = parse_duration_ns(value)
    if ns <= 0:
        raise ConfigError(f"{shown(value)} is not allowed: expected a duration above 0")
    return ns


def _tick_ns(value: object) -> int:
    ns = parse_duration_ns(value)
    if ns < NS // 1000:
        raise ConfigError(f"{shown(value)} is not allowed: expected 1 ms or more")
    return ns


def _duration_ms(value: object) -> int:
    return max(1, round(_above_zero_ns(value) / 1_000_000))


def _size(value: object) -> int:
    size = parse_written_size(value)
    if size > _LARGEST:
        raise ConfigError(f"{shown(value)} is not allowed: expected at most {_LARGEST} bytes")
    return size


def _amounts(value: object) -> dict[str, int]:
    checked = amounts(value)
    for key, amount in checked.items():
        if amount > _LARGEST:
            raise ConfigError(f"{key}: {shown(amount)} is not allowed: expected at most {_LARGEST}")
        if key in {"cpu", "ram", "vram"}:
            raise ConfigError(f'"{key}" has a key of its own: do not put it here')
    return checked


def _counts(value: object) -> dict[str, int]:
    checked = counts(value)
    for key, number in checked.items():
        if key in {"cpu", "ram", "vram", "gpu"}:
            raise ConfigError(f'"{key}" has a key of its own: do not put it here')
        if number > MOST_UNITS:
            raise ConfigError(f"{key}: {shown(number)} is not allowed: expected at most {MOST_UNITS}")
    return checked


def _gpus(value: object) -> str | dict[str, int]:
    """Check for "auto", a number, a list of sizes, or names and sizes."""
    if value == AUTO:
        return AUTO
    units = parse_gpus(value)
    check_units(GPU, units)
    sizes = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    for size in sizes:
        if size is not None:
            _size(size)
    return units


def _devices(value: object) -> dict[str, list[str]]:
    kinds = parse_devices(value)
    for kind, units in kinds.items():
        check_units(kind, units)
    return {kind: list(units) for kind, units in kinds.items()}


def _text(value: object) -> str:
    if isinstance(value, str) and value and "\0" not in value:
        return value
    raise ConfigError(f"{shown(value)} is not allowed: expected a string that is not empty")


def _command(value: object) -> str | tuple[str, ...]:
    if isinstance(value, str) and value.strip() and "\0" not in value:
        return value
    if isinstance(value, list) and value and all(isinstance(each, Plain) and "\0" not in str(each) for each in value):
        return tuple(as_word(each) for each in value)
    raise ConfigError(f"{shown(value)} is not a command: expected a shell string or a list of program and arguments")


def _callable_name(value: object) -> str:
    if isinstance(value, str) and _CALL.fullmatch(value):
        return value
    raise ConfigError(f'{shown(value)} is not a function: expected "module:function"')


def _environment(value: object) -> dict[str, str]:
    if not isinstance(value, dict):
        raise ConfigError(f'{shown(value)} is not allowed: expected a table such as {{ LEVEL = "debug" }}')
    checked = {}
    for key, each in value.items():
        if not key or "=" in key or "\0" in key:
            raise ConfigError(f"{shown(key)} is not the name of an environment variable")
        if not isinstance(each, Plain) or "\0" in str(each):
            raise ConfigError(f"{key}: {shown(each)} is not allowed: expected a string or a number")
        checked[key] = as_word(each)
    return checked


def _references(value: object) -> tuple[str, ...]:
    listed = [value] if isinstance(value, str) else value
    if not isinstance(listed, list):
        raise ConfigError(f"{shown(value)} is not allowed: expected a list of task names")
    for index, each in enumerate(listed):
        if not isinstance(each, str) or not each:
            raise ConfigError(f"[{index}] is {shown(each)}: expected the name of a task")
    return tuple(dict.fromkeys(listed))


def _foreach(value: object) -> list[Any] | dict[str, list[Any]]:
    expected = "a list of values, or a table of lists"
    if isinstance(value, list):
        columns: Mapping[str, Any] = {"item": value}
    elif isinstance(value, dict) and value:
        columns = value
    else:
        raise ConfigError(f"{shown(value)} is not allowed: expected {expected}")
    for key, column in columns.items():
        if not isinstance(key, str) or not key.isidentifier():
            raise ConfigError(f"{shown(key)} is not allowed: expected a name such as size, for {{size}} in strings")
        if not isinstance(column, list) or not column:
            raise ConfigError(f"{key}: {shown(column)} is not allowed: expected a list that is not empty")
        for each in column:
            if not isinstance(each, Plain):
                raise ConfigError(f"{key}: {shown(each)} is not allowed: expected strings, numbers or booleans")
    return value


def _variables(value: object) -> dict[str, Plain]:
    checked = mapping(value)
    for key, each in checked.items():
        if not key.isidentifier() or key in {"item", "index"}:
            raise ConfigError(f"{shown(key)} is not allowed: expected a name such as size, for {{size}} in strings")
        if not isinstance(each, Plain):
            raise ConfigError(f"{key}: {shown(each)} is not allowed: expected a string, a number or a boolean")
    return checked


def _number(low: float, high: float) -> Callable[[Any], float]:
    def check(value: object) -> float:
        if isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high:
            return float(value)
        raise ConfigError(f"{shown(value)} is not allowed: expected a number from {low:g} to {high:g}")

    return check


def _retry(value: object) -> Retry:
    if not isinstance(value, dict):
        return Retry(whole(0, 1_000_000)(value))
    for key in value:
        if key not in RETRY:
            raise ConfigError(f"unknown key {shown(key)}; known are {', '.join(RETRY)}")
    if "times" not in value:
        raise ConfigError('"times" is missing: expected for example { times = 3, backoff = "1s" }')
    fields: dict[str, Any] = {}
    for key, each in value.items():
        try:
            fields[key] = RETRY[key].check(each)
        except ConfigError as error:
            raise ConfigError(f"{key}: {error}") from None
    return Retry(**fields)


def _exit_codes(value: object) -> tuple[int, ...]:
    return tuple(whole(1, 255)(code) for code in (value if isinstance(value, list) else [value]))


def _seconds(value: object) -> float:
    return parse_duration_ns(value) / NS


def _ram(value: object) -> int:
    return automatic_ram() if value == AUTO else int(_size(value))


def _asked_ram(value: object) -> int | Learned:
    learned = as_learned(value)
    return int(_size(value)) if learned is None else learned


def _cpu(value: object) -> int:
    return int(whole(0, _MOST_SLOTS)(value))


def _none_or(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def _number_schema(high: float) -> Schema:
    return {"type": "number", "minimum": 0, "maximum": high}


def _whole_schema(low: int, high: int | None = None) -> Schema:
    return {"type": "integer", "minimum": low, **({} if high is None else {"maximum": high})}


_ANY_OF_PLAIN: Final[Schema] = {"type": ["string", "number", "boolean"]}
_PLACEHOLDER: Final[Schema] = {"type": "string", "pattern": r"\{"}  # "{item}" may stand for a number too
_TEXT: Final[Schema] = {"type": "string", "minLength": 1}
_DURATION: Final[Schema] = {
    "anyOf": [{"type": "number", "minimum": 0}, {"type": "string", "pattern": r"\d\s*(ns|us|µs|μs|ms|s|m|h|d)|\{"}],
}
_SIZE: Final[Schema] = {"anyOf": [{"const": 0}, {"type": "string", "pattern": r"^\s*(0\s*$|\d.*[bB]\s*$)|\{"}]}
_AMOUNT: Final[Schema] = {"anyOf": [_whole_schema(0), {"type": "string", "pattern": r"^\s*\d|\{"}]}
_AMOUNTS: Final[Schema] = {
    "type": "object",
    "propertyNames": {"not": {"enum": ["cpu", "ram", "vram"]}, "minLength": 1},
    "additionalProperties": _AMOUNT,
}
_COUNTS: Final[Schema] = {
    "type": "object",
    "propertyNames": {"not": {"enum": ["cpu", "ram", "vram", "gpu"]}, "minLength": 1},
    "additionalProperties": _whole_schema(0, MOST_UNITS),
}
_UNITS: Final[Schema] = {
    "type": "object",
    "propertyNames": {"not": {"enum": ["cpu", "ram", "vram", "gpu"]}, "pattern": "^[A-Za-z][A-Za-z0-9_-]*$"},
    "additionalProperties": {
        "anyOf": [_whole_schema(0, MOST_UNITS), {"type": "array", "items": {"type": "string", "pattern": "^[^,]+$"}}]
    },
}
_ENV: Final[Schema] = {"type": "object", "additionalProperties": _ANY_OF_PLAIN}
_REFERENCES: Final[Schema] = {"anyOf": [_TEXT, {"type": "array", "items": _TEXT}]}
_PRIORITY: Final[Schema] = {
    "anyOf": [
        _whole_schema(0, 100),
        {"enum": [form for word in sorted(PRIORITIES) for form in (word, word.upper())]},
        _PLACEHOLDER,
    ],
}
_ONE_SLOT: Final = _none_or(_whole_schema(1, _MOST_SLOTS))
_EXIT_CODES: Final[Schema] = {"anyOf": [_whole_schema(1, 255), {"type": "array", "items": _whole_schema(1, 255)}]}
_FACTORS: Final[Schema] = {"type": "object", "additionalProperties": {"type": "number", "minimum": 1, "maximum": 1000}}
_LIMIT: Final = _none_or(_whole_schema(0))


def _choice(*words: str) -> Field:
    return Field(one_of(*words), {"enum": list(words)}, f"one of {', '.join(words)}")


RETRY: Final[Fields] = {
    "times": Field(whole(0, 1_000_000), _whole_schema(0, 1_000_000), "how often a failed task is tried again"),
    "backoff": Field(_seconds, _DURATION, "the wait before the first retry"),
    "factor": Field(_number(0, 1000), _number_schema(1000), "each wait is so many times the last"),
    "max_backoff": Field(_seconds, _DURATION, "no wait is longer"),
    "jitter": Field(fraction(1), _number_schema(1), "each wait varies by this share"),
    "on_exit": Field(_exit_codes, _EXIT_CODES, "only commands that ended with one of these exit codes"),
    "grow": Field(mapping, _FACTORS, "each new attempt asks for so many times more: { ram = 2.0 }"),
}  # fmt: skip
_RETRY_FIELD: Final = Field(
    _retry,
    {"anyOf": [_whole_schema(0, 1_000_000), {"$ref": "#/$defs/retry"}]},
    "how often a failed task is tried again: a number, or a table with times and more",
)
_POLICY: Final[Fields] = {
    "timeout": Field(optional(_above_zero_ns), _none_or(_DURATION), "how long a task may run"),
    "retry": _RETRY_FIELD,
    "max_wait": Field(optional(parse_duration_ns), _none_or(_DURATION), "how long it may be ready without starting"),
}
DEMAND: Final[Fields] = {
    "cpu": Field(_cpu, {"anyOf": [_whole_schema(0, _MOST_SLOTS), _PLACEHOLDER]}, "processors it uses"),
    "ram": Field(
        _asked_ram,
        {"anyOf": [_SIZE, {"type": "string", "pattern": "^learned"}]},
        'memory it uses: "2GB" or "512MiB"; "learned": what the history says, "learned:2GB": 2GB until it does',
    ),
    "vram": Field(_size, _SIZE, "memory of the graphics card it uses"),
    "resources": Field(_amounts, _AMOUNTS, "what it uses of the resources that [budget] names"),
    "gpu": Field(
        whole(0, MOST_UNITS),
        {"anyOf": [_whole_schema(0, MOST_UNITS), _PLACEHOLDER]},
        "whole graphics cards that no other task is on; with vram: on how many cards it uses so much memory",
    ),
    "devices": Field(_counts, _COUNTS, "units of other devices that [budget] names"),
}
_BODY: Final[Fields] = {
    "run": Field(
        _command,
        {"anyOf": [_TEXT, {"type": "array", "minItems": 1, "items": _ANY_OF_PLAIN}]},
        "the command: a shell string, or a list of program and arguments",
    ),
    "call": Field(
        _callable_name, {"type": "string", "pattern": r"^[^:]+:[^:]+$"}, 'a Python function: "module:function"'
    ),
    "args": Field(records, {"type": "array"}, "positional arguments of the command or function"),
    "kwargs": Field(mapping, {"type": "object"}, "keyword arguments of the function"),
}  # fmt: skip
AWAY: Final = ("process", "ray")  # engines that run bodies in other processes
ENGINES: Final[tuple[EngineName, ...]] = get_args(EngineName)
_SURROUNDINGS: Final[Fields] = {
    "shell": Field(
        one_of("quoted", "raw"),
        {"enum": ["quoted", "raw"]},
        "how {name} is put into a shell string: quoted, so that it stays one value, or raw, so that it can be syntax",
    ),
    "env": Field(_environment, _ENV, "environment variables, added to those there are"),
    "cwd": Field(_text, _TEXT, "the folder it runs in, from the file's own folder"),
    "priority": Field(priority, _PRIORITY, "0 to 100, or critical, high, normal, low, background"),
    **DEMAND,
    **_POLICY,
    "engine": Field(
        one_of(*ENGINES),
        {"enum": list(ENGINES)},
        "what carries it out: thread (functions), asyncio (coroutines), process, ray (a cluster), command (commands)",
    ),
    "scope": Field(task_name, _TEXT, "the scope it belongs to, one of [scope.NAME]"),
    "duration": Field(
        optional(_duration_ms), _none_or(_DURATION), "how long it is expected to run, for simulate and --dry-run"
    ),
}
DEFAULTS: Final[Fields] = _SURROUNDINGS
_SLOT: Final = Field(flag, {"type": "boolean"}, "whether it takes a slot while it runs; tasks: true, periodics: false")
TASK: Final[Fields] = {
    **_BODY,
    "after": Field(_references, _REFERENCES, "tasks that must have succeeded before"),
    "after_ended": Field(_references, _REFERENCES, "tasks that must have ended before, however"),
    **_SURROUNDINGS,
    "slot": _SLOT,
    "foreach": Field(
        _foreach,
        {
            "anyOf": [
                {"type": "array", "minItems": 1, "items": _ANY_OF_PLAIN},
                {
                    "type": "object",
                    "minProperties": 1,
                    "additionalProperties": {"type": "array", "minItems": 1, "items": _ANY_OF_PLAIN},
                },
            ]
        },
        "one task for each value ({item} in its strings), or for each combination of a table of lists ({key})",
    ),
    "description": Field(name, _TEXT, "a note for people"),
}
PERIODIC: Final[Fields] = {
    **_BODY,
    **{key: entry for key, entry in _SURROUNDINGS.items() if key not in {"retry", "max_wait"}},
    "slot": _SLOT,
    "every": Field(_tick_ns, _DURATION, "the time from tick to tick"),
    "overlap": _choice("skip", "queue", "parallel"),
    "max_parallel": Field(whole(1, _MOST_SLOTS), _whole_schema(1, _MOST_SLOTS), "how many may run at once"),
    "jitter": Field(fraction(0.3), _number_schema(0.3), "each tick varies by this share"),
    "enabled": Field(flag, {"type": "boolean"}, "whether it ticks from the start"),
    "immediately": Field(flag, {"type": "boolean"}, "whether the first tick is at once"),
    "disable_after": Field(optional(whole(1)), _none_or(_whole_schema(1)), "failures in a row that switch it off"),
    "description": Field(name, _TEXT, "a note for people"),
}
_LIMITS: Final[Fields] = {
    "queue_limit": Field(optional(whole(0)), _LIMIT, "how many tasks may be pending"),
    "overflow": _choice("reject", "displace"),
    "when_busy": _choice("queue", "reject"),
    "when_blocked": _choice("hold", "lend"),
}
_ON_ERROR: Final = Field(
    one_of("continue", "abort"), {"enum": ["continue", "abort"]}, "abort: the first failure ends the rest"
)
SCOPE: Final[Fields] = {
    "slots": Field(optional(whole(1, _MOST_SLOTS)), _ONE_SLOT, "how many of its tasks run at once"),
    "on_error": _ON_ERROR,
    "parent": Field(task_name, _TEXT, "the scope that it is part of"),
    "max_spawn": Field(optional(whole(0)), _LIMIT, "how many tasks it accepts in its life"),
    **_LIMITS,
    **_POLICY,
    "grace": Field(parse_duration_ns, _DURATION, "how long a task that is asked to end may take"),
}
SCHEDULER: Final[Fields] = {
    "order": _choice("aging", "strict"),
    "every": Field(_above_zero_ns, _DURATION, "aging: one step for each such wait"),
    "boost": Field(whole(0, 1000), _whole_schema(0, 1000), "aging: how much a step lifts the priority"),
    "cap": Field(optional(whole(0)), _LIMIT, "aging: no lift above this"),
    "backfill": _choice("greedy", "none"),
    "overdraft": _choice("count", "warn", "kill"),
    **_LIMITS,
    **_POLICY,
    "starvation_timeout": Field(_above_zero_ns, _DURATION, "when starvation is reported"),
    "pause_timeout": Field(parse_duration_ns, _DURATION, "how long a running task may take to park"),
    "grace": Field(parse_duration_ns, _DURATION, "how long a task that is asked to end may take"),
}
BUDGET: Final[Fields] = {
    "cpu": Field(optional(_cpu), _none_or(_whole_schema(0, _MOST_SLOTS)), "processors"),
    "ram": Field(
        optional(_ram),
        _none_or({"anyOf": [_SIZE, {"const": AUTO}]}),
        'memory, soft: one task alone may use more; "auto": nine tenths of the machine',
    ),
    "vram": Field(optional(_size), _none_or(_SIZE), "memory of the graphics card, soft"),
    "resources": Field(_amounts, _AMOUNTS, "resources of your own with a hard limit: licences, ports, tokens"),
    "soft": Field(_amounts, _AMOUNTS, "resources of your own with a soft limit"),
    "gpus": Field(
        optional(_gpus),
        _none_or(
            {
                "anyOf": [
                    {"const": AUTO},
                    _whole_schema(0, MOST_UNITS),
                    {"type": "array", "items": _SIZE},
                    {"type": "object", "additionalProperties": _none_or(_SIZE)},
                ]
            }
        ),
        'graphics cards: "auto", how many, the memory of each, or names and memory; tasks are told which they get',
    ),
    "devices": Field(_devices, _UNITS, "other devices of which tasks are told the unit: how many of a kind, or names"),
}


def _table(reference: str, about: str) -> Field:
    return Field(mapping, {"type": "object", "additionalProperties": {"$ref": reference}}, about)


TOP: Final[Fields] = {
    "$schema": Field(name, {"type": "string"}, "where editors find this schema"),
    "name": Field(task_name, _TEXT, "what the run is called"),
    "description": Field(name, _TEXT, "a note for people"),
    "slots": Field(optional(whole(1, _MOST_SLOTS)), _ONE_SLOT, "how many tasks run at once; default: the processors"),
    "on_error": _ON_ERROR,
    "budget": Field(mapping, {"$ref": "#/$defs/budget"}, "what may be in use at once"),
    "scheduler": Field(mapping, {"$ref": "#/$defs/scheduler"}, "order, backfill, limits"),
    "history": Field(
        optional(_text), _none_or(_TEXT), "a file that keeps durations and peaks of memory by task, over many runs"
    ),
    "defaults": Field(mapping, {"$ref": "#/$defs/defaults"}, "what every task has that does not say otherwise"),
    "vars": Field(
        _variables, {"type": "object", "additionalProperties": _ANY_OF_PLAIN}, "values for {name} in strings; see --set"
    ),
    "scope": _table("#/$defs/scope", "scopes by name"),
    "task": _table("#/$defs/task", "tasks by name"),
    "periodic": _table("#/$defs/periodic", "periodics by name: they run beside the tasks"),
    "sequence": Field(_references, {"type": "array", "items": _TEXT}, "tasks that run one after the other"),
    "failure_policy": Field(
        one_of("stop_on_fail", "continue_on_fail"),
        {"enum": ["stop_on_fail", "continue_on_fail"]},
        "whether the sequence goes on after a failure",
    ),
}


def make_schema() -> Schema:
    """Return the JSON Schema of workflow files, for editors."""
    body = {"oneOf": [{"required": ["run"]}, {"required": ["call"]}]}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "whywait workflow",
        "$defs": {
            "task": _object(TASK, body),
            "periodic": _object(PERIODIC, {"required": ["every"], **body}),
            "scope": _object(SCOPE, {}),
            "scheduler": _object(SCHEDULER, {}),
            "budget": _object(BUDGET, {}),
            "defaults": _object(DEFAULTS, {}),
            "retry": _object(RETRY, {"required": ["times"]}),
        },
        **_object(TOP, {"required": ["task"]}),
    }


def _object(fields: Fields, more: Schema) -> Schema:
    properties = {key: {"description": entry.about, **entry.schema} for key, entry in fields.items()}
    return {"type": "object", "properties": properties, "additionalProperties": False, **more}
