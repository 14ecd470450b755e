"""The format of workflow files: the rows that only they have, their tables, and the JSON Schema for editors."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, get_args

from whywait import options
from whywait.engines.registry import EngineName
from whywait.errors import ConfigError
from whywait.options import BUDGET, DEFAULTS, PERIODIC, POSITIVE, RETRY, SCHEDULER, SCOPE, TASK, TOP
from whywait.support.forms import (
    LIST,
    OBJECT,
    TEXT,
    Form,
    Option,
    Schema,
    Table,
    object_schema,
    one_of,
    optional,
    refused,
)
from whywait.support.units import shown
from whywait.workflow.expand import as_word

Plain = str | int | float | bool
AWAY: Final = ("process", "ray")  # engines that run bodies in other processes
ENGINES: Final[tuple[EngineName, ...]] = get_args(EngineName)
_NAME: Final = re.compile(r"\w[\w .+-]{0,99}")
_CALL: Final = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")


def task_name(value: object) -> str:
    """Return the name of a task, periodic or scope; raise ConfigError for what is none."""
    if isinstance(value, str) and _NAME.fullmatch(value):
        return value
    raise ConfigError(f"{shown(value)} is no name: expected letters, digits and the signs . _ + - within, up to 100")


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
        raise refused(value, 'a table such as { LEVEL = "debug" }')
    for key, each in value.items():
        if not key or "=" in key or "\0" in key:
            raise ConfigError(f"{shown(key)} is not the name of an environment variable")
        if not isinstance(each, Plain) or "\0" in str(each):
            raise ConfigError(f"{key}: {refused(each, 'a string or a number')}")
    return {key: as_word(each) for key, each in value.items()}


def _references(value: object) -> tuple[str, ...]:
    listed = [value] if isinstance(value, str) else value
    if not isinstance(listed, list):
        raise refused(value, "a list of task names")
    for index, each in enumerate(listed):
        if not isinstance(each, str) or not each:
            raise ConfigError(f"[{index}] is {shown(each)}: expected the name of a task")
    return tuple(dict.fromkeys(listed))


def _foreach(value: object) -> list[Any] | dict[str, list[Any]]:
    if not isinstance(value, list | dict) or value == {}:
        raise refused(value, "a list of values, or a table of lists")
    columns: Mapping[str, Any] = {"item": value} if isinstance(value, list) else value
    for key, column in columns.items():
        _placeholder_name(key)
        if not isinstance(column, list) or not column:
            raise ConfigError(f"{key}: {refused(column, 'a list that is not empty')}")
        for each in column:
            if not isinstance(each, Plain):
                raise ConfigError(f"{key}: {refused(each, 'strings, numbers or booleans')}")
    return value


def _variables(value: object) -> dict[str, Plain]:
    checked: dict[str, Plain] = OBJECT.parse(value)
    for key, each in checked.items():
        _placeholder_name(key, taken=("item", "index"))
        if not isinstance(each, Plain):
            raise ConfigError(f"{key}: {refused(each, 'a string, a number or a boolean')}")
    return checked


def _placeholder_name(key: str, taken: tuple[str, ...] = ()) -> None:
    if not key.isidentifier() or key in taken:
        raise refused(key, "a name such as size, for {size} in strings")


_PLAIN: Final[Schema] = {"type": ["string", "number", "boolean"]}
_PLAINS: Final[Schema] = {"type": "array", "minItems": 1, "items": _PLAIN}
_NAMES: Final[Schema] = {"type": "array", "items": TEXT.schema}
_REFERENCES: Final = Form(_references, {"anyOf": [TEXT.schema, _NAMES]})
_NAME_FORM: Final = Form(task_name, TEXT.schema)
_BODY: Final = (TASK, PERIODIC)
_SURROUNDINGS: Final = (TASK, PERIODIC, DEFAULTS)


def _inside(reference: str) -> Form:
    return OBJECT._replace(schema={"$ref": f"#/$defs/{reference}"})


def _by_name(reference: str) -> Form:
    return OBJECT._replace(schema={"type": "object", "additionalProperties": {"$ref": f"#/$defs/{reference}"}})


ROWS: Final = (
    Option("$schema", TEXT, "where editors find this schema", (TOP,)),
    Option("name", _NAME_FORM, "what the run is called", (TOP,)),
    Option("budget", _inside(BUDGET), "what may be in use at once", (TOP,)),
    Option("scheduler", _inside(SCHEDULER), "order, backfill, limits", (TOP,)),
    Option(
        "history", optional(TEXT), "a file that keeps durations and peaks of memory by task, over many runs", (TOP,)
    ),
    Option("defaults", _inside(DEFAULTS), "what every task has that does not say otherwise", (TOP,)),
    Option(
        "vars", Form(_variables, {"type": "object", "additionalProperties": _PLAIN}),
        "values for {name} in strings; see --set", (TOP,),
    ),
    Option("scope", _by_name(SCOPE), "scopes by name", (TOP,)),
    Option("task", _by_name(TASK), "tasks by name", (TOP,)),
    Option("periodic", _by_name(PERIODIC), "periodics by name: they run beside the tasks", (TOP,)),
    Option("sequence", Form(_references, _NAMES), "tasks that run one after the other", (TOP,)),
    Option(
        "failure_policy", one_of("stop_on_fail", "continue_on_fail"),
        "whether the sequence goes on after a failure", (TOP,), "stop_on_fail",
    ),
    Option(
        "run", Form(_command, {"anyOf": [TEXT.schema, _PLAINS]}),
        "the command: a shell string, or a list of program and arguments", _BODY,
    ),
    Option(
        "call", Form(_callable_name, {"type": "string", "pattern": r"^[^:]+:[^:]+$"}),
        'a Python function: "module:function"', _BODY,
    ),
    Option("args", LIST, "positional arguments of the command or function", _BODY),
    Option("kwargs", OBJECT, "keyword arguments of the function", _BODY),
    Option("after", _REFERENCES, "tasks that must have succeeded before", (TASK,)),
    Option("after_ended", _REFERENCES, "tasks that must have ended before, however", (TASK,)),
    Option(
        "shell", one_of("quoted", "raw"),
        "how {name} is put into a shell string: quoted, so that it stays one value, or raw, so that it can be syntax",
        _SURROUNDINGS, "quoted",
    ),
    Option(
        "env", Form(_environment, {"type": "object", "additionalProperties": _PLAIN}),
        "environment variables, added to those there are", _SURROUNDINGS,
    ),
    Option("cwd", TEXT, "the folder it runs in, from the file's own folder", _SURROUNDINGS),
    Option(
        "engine", one_of(*ENGINES),
        "what carries it out: thread (functions), asyncio (coroutines), process, ray (a cluster), command (commands)",
        _SURROUNDINGS,
    ),
    Option("scope", _NAME_FORM, "the scope it belongs to, one of [scope.NAME]", _SURROUNDINGS),
    Option(
        "duration", optional(POSITIVE), "how long it is expected to run, for simulate and --dry-run", _SURROUNDINGS
    ),
    Option(
        "foreach",
        Form(_foreach, {"anyOf": [_PLAINS, {"type": "object", "minProperties": 1, "additionalProperties": _PLAINS}]}),
        "one task for each value ({item} in its strings), or for each combination of a table of lists ({key})", (TASK,),
    ),
    Option("description", TEXT, "a note for people", (TOP, TASK, PERIODIC)),
    Option("parent", _NAME_FORM, "the scope that it is part of", (SCOPE,)),
)  # fmt: skip


TABLES: Final[Mapping[str, Table]] = {
    place: options.table_with(ROWS, place) for place in (TOP, TASK, PERIODIC, SCOPE, BUDGET, SCHEDULER, DEFAULTS, RETRY)
}


def make_schema() -> Schema:
    """Return the JSON Schema of workflow files, for editors."""
    body = {"oneOf": [{"required": ["run"]}, {"required": ["call"]}]}
    required: dict[str, Schema] = {
        TASK: body,
        PERIODIC: {"required": ["every"], **body},
        RETRY: {"required": ["times"]},
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "whywait workflow",
        "$defs": {place: object_schema(TABLES[place], **required.get(place, {})) for place in TABLES if place != TOP},
        **object_schema(TABLES[TOP], required=["task"]),
    }
