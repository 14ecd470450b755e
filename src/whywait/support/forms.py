"""Options as rows of a table: the form of each value, where the option is allowed, its default and its help.

A :class:`Form` is what a value may be: the parser of what people write, the JSON Schema that says the same to editors,
and, where a program writes otherwise than a person does, a second parser. An :class:`Option` is one row. A
:class:`Table` is made of rows by :func:`make_table`; :func:`read_table` reads an object by it. Nothing here knows of
tasks: the rows are in ``whywait/options.py``.

A parser raises ConfigError with the value and what was expected; :func:`read_table` adds the place.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from whywait.errors import ConfigError
from whywait.support.problems import nearest
from whywait.support.units import bounded, shown

if TYPE_CHECKING:
    from whywait.support.lines import Path

Parser = Callable[[Any], Any]
Schema = dict[str, Any]


class Dialect(Enum):
    """How values are written."""

    PEOPLE = "people"  # durations and sizes have units
    PROGRAM = "program"  # a size may be a number of bytes
    MILLISECONDS = "milliseconds"  # the same, and durations are numbers of milliseconds; the keys end in _ms


class Form(NamedTuple):
    """What a value may be."""

    parse: Parser
    schema: Schema
    plain: Parser | None = None  # what a program may write, if that is something else
    least_ms: int | None = None  # of a duration, which is kept in ns; None: it is none
    hint: str = "Any"  # the type of what a program may write
    gives: str = ""  # the type that it is kept as; empty: the same

    @property
    def is_optional(self) -> bool:
        """Whether a program may write None."""
        return self.hint.endswith("| None")


class Option(NamedTuple):
    """One row: an option, and the places where it is allowed."""

    name: str
    form: Form
    about: str
    places: tuple[str, ...]
    default: Any = None  # None: there is none, or what it is depends on more than the option
    variable: str = ""  # the environment variable that is asked where an authority is given none


class Field(NamedTuple):
    """An option as one table reads it: the name and the parser of its value there."""

    kept: str
    parse: Parser
    option: Option


Table = Mapping[str, Field]


def make_table(options: Iterable[Option], place: str, dialect: Dialect) -> Table:
    """Return the keys that are allowed at a place, in the order of the rows; a duration is kept as NAME_ns."""
    table = {}
    for option in options:
        if place not in option.places:
            continue
        name, form = option.name, option.form
        kept = name if form.least_ms is None else f"{name}_ns"
        parse = form.parse if dialect is Dialect.PEOPLE else form.plain or form.parse
        if form.least_ms is not None and dialect is Dialect.MILLISECONDS:
            name, parse = f"{name}_ms", _milliseconds(form)
        table[name] = Field(kept, parse, option)
    return table


def read_table(
    table: Table,
    data: object,
    path: Path,
    add: Callable[[Path, str], object],
    hint: Callable[[str, Any], str] = lambda _key, _value: "",
) -> dict[str, Any]:
    """Return the values of an object under the names they are kept by; ``add`` is called with what is wrong.

    ``hint`` says what an unknown key, which is like no other, may stand for.
    """
    if not isinstance(data, dict):
        add(path, f"{shown(data)} is not a table with keys such as {', '.join(list(table)[:3])}")
        return {}
    values: dict[str, Any] = {}
    for key, value in data.items():
        field = table.get(key)
        if field is None:
            known = f"; known are {', '.join(each for each in table if each != '$schema')}"
            add((*path, key), f"unknown key{nearest(key, table) or hint(key, value) or known}")
            continue
        try:
            values[field.kept] = field.parse(value)
        except ConfigError as error:
            add((*path, key), str(error))
    return values


def object_schema(table: Table, **more: Any) -> Schema:
    """Return the JSON Schema of an object with the keys of a table."""
    properties = {}
    for key, (_, _, option) in table.items():
        properties[key] = {"description": option.about, **option.form.schema}
        if option.default is not None:
            properties[key]["default"] = option.default
    return {"type": "object", "properties": properties, "additionalProperties": False, **more}


def refused(value: object, expected: str) -> ConfigError:
    """Return the error that names a value and what was expected."""
    return ConfigError(f"{shown(value)} is not allowed: expected {expected}")


def whole(low: int, high: int | None = None) -> Form:
    """Return the form of an int; ``high`` holds for people, a program may count further."""
    schema = {"type": "integer", "minimum": low}
    if high is None:
        return Form(_whole(low, None), schema, hint="int")
    return Form(_whole(low, high), {**schema, "maximum": high}, _whole(low, None), hint="int")


def _whole(low: int, high: int | None) -> Parser:
    expected = f"an int >= {low}" if high is None else f"an int from {low} to {high}"

    def parse(value: object) -> int:
        if isinstance(value, int) and not isinstance(value, bool) and value >= low and (high is None or value <= high):
            return bounded(value)
        raise refused(value, expected)

    return parse


def _milliseconds(form: Form) -> Parser:
    assert form.least_ms is not None, "a duration"
    parse_ms = _whole(form.least_ms, None)
    return lambda value: form.parse(None if value is None else f"{parse_ms(value)}ms")


def optional(form: Form) -> Form:
    """Return the form that allows null too."""

    def or_none(parse: Parser) -> Parser:
        return lambda value: None if value is None else parse(value)

    plain = None if form.plain is None else or_none(form.plain)
    hint, gives = f"{form.hint} | None", f"{form.gives} | None" if form.gives else ""
    return Form(or_none(form.parse), {"anyOf": [form.schema, {"type": "null"}]}, plain, form.least_ms, hint, gives)


def one_of(*words: str) -> Form:
    """Return the form of a closed set of words."""
    expected = f"one of {', '.join(words)}"

    def parse(value: object) -> str:
        if isinstance(value, str) and value in words:
            return value
        raise ConfigError(f"{refused(value, expected)}{nearest(value, words)}")

    return Form(parse, {"enum": list(words)}, hint=f"Literal[{', '.join(map(json.dumps, words))}]")


def number(low: float, high: float) -> Form:
    """Return the form of a number within bounds."""

    def parse(value: object) -> float:
        if isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high:
            return float(value)
        raise refused(value, f"a number from {low:g} to {high:g}")

    return Form(parse, {"type": "number", "minimum": low, "maximum": high}, hint="float")


def _flag(value: object) -> bool:
    if isinstance(value, bool):
        return value
    raise refused(value, "true or false")


def parse_name(value: object) -> str:
    """Return a string that is not empty; raise ConfigError for anything else."""
    if isinstance(value, str) and value:
        return value
    raise refused(value, "a string that is not empty")


def _text(value: object) -> str:
    if "\0" in parse_name(value):
        raise refused(value, "a string that is not empty")
    return str(value)


def table_of(form: Form, expected: str, taken: tuple[str, ...]) -> Form:
    """Return the form of an object of values by name; ``taken`` are names that have a key of their own elsewhere."""

    def parser(parse_value: Parser) -> Parser:
        def parse(value: object) -> dict[str, Any]:
            if not isinstance(value, Mapping):
                raise refused(value, f"an object of {expected}")
            values = {}
            for key, each in value.items():
                if key in taken:
                    raise ConfigError(f'"{key}" has a key of its own: do not put it here')
                try:
                    values[parse_name(key)] = parse_value(each)
                except ConfigError as error:
                    raise ConfigError(f"{key}: {error}") from None
            return values

        return parse

    names = {"not": {"enum": list(taken)}, "minLength": 1}
    schema: Schema = {"type": "object", "propertyNames": names, "additionalProperties": form.schema}
    return Form(parser(form.parse), schema, parser(form.plain or form.parse))


def _object(value: object) -> dict[str, Any]:
    if isinstance(value, dict):
        return value
    raise refused(value, "an object")


def _list(value: object) -> list[Any]:
    if isinstance(value, list | tuple):
        return list(value) if isinstance(value, tuple) else value
    raise refused(value, "a list of objects")


FLAG: Final = Form(_flag, {"type": "boolean"}, hint="bool")
TEXT: Final = Form(_text, {"type": "string", "minLength": 1}, parse_name, hint="str")
OBJECT: Final = Form(_object, {"type": "object"})  # the reader looks at what is inside
LIST: Final = Form(_list, {"type": "array"})
