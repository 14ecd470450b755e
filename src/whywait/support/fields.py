"""Checks of what users write, as tables: which keys are known, and what each may hold.

A :data:`Table` maps a key to the name its value is kept under and the check that turns the value into what is kept.
A check raises ConfigError with the value and what was expected; :func:`read_fields` adds the file and the place.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from itertools import islice
from typing import Any, Final

from whywait.errors import ConfigError, shortened
from whywait.support.units import NS_PER_MS, bounded, parse_size, printable, shown

Check = Callable[[Any], Any]
Table = Mapping[str, tuple[str, Check]]

_CANDIDATES: Final = 20_000  # names compared with a misspelt one; more would make a big file wait for its error
_PLACE: Final = 200  # a key in a file may be of any length, a message not
_LENGTHS: Final = 3  # a misspelling is rarely longer or shorter by more than this


class FieldError(ConfigError):
    """Something is wrong at a place of a file, or of an object that a program made."""

    def __init__(self, source: str | None, place: str, message: str, line: int | None = None) -> None:
        """Name the file and the line, if they are known, the place, and what is wrong there."""
        self.source, self.place, self.message = source, place, message
        where = source if line is None else f"{source}:{line}"
        short = place if len(place) <= _PLACE else f"{place[:_PLACE]}…"
        super().__init__(printable(": ".join(part for part in (where, short, shortened(message)) if part)))


def problem(source: str | None, place: str, message: str) -> FieldError:
    """Return the error that names the file (if any), the place in it, and what is wrong there."""
    return FieldError(source, place, message)


def nearest(wrong: object, known: Iterable[str]) -> str:
    """Return ``; did you mean "..."?`` with the known name that is most like the wrong one, or nothing."""
    if not isinstance(wrong, str):
        return ""
    alike = (other for other in known if isinstance(other, str) and abs(len(other) - len(wrong)) <= _LENGTHS)
    matches = get_close_matches(wrong, islice(alike, _CANDIDATES), n=1)
    return f"; did you mean {shown(matches[0])}?" if matches else ""


def unknown_name(wrong: object, what: str, known: Iterable[str]) -> str:
    """Return the message for a name that should be one of ``known``."""
    return f"{shown(wrong)} is not {what}{nearest(wrong, known)}"


def read_fields(table: Table, data: object, place: str, source: str | None = None) -> dict[str, Any]:
    """Check an object against its table; return the checked values under the names they are kept by."""
    if not isinstance(data, dict):
        raise problem(source, place, f"{shown(data)} is not an object with fields such as {_some(table)}")
    fields: dict[str, Any] = {}
    for key, value in data.items():
        entry = table.get(key)
        if entry is None:
            where = f"{place}.{key}" if place else str(key)
            hint = nearest(key, table) or f"; known are {', '.join(table)}"
            raise problem(source, where, f"unknown key{hint}")
        target, check = entry
        try:
            fields[target] = check(value)
        except ConfigError as error:
            raise problem(source, f"{place}.{key}" if place else key, str(error)) from None
    return fields


def whole(low: int, high: int | None = None) -> Check:
    """Check for an int within bounds."""
    expected = f"an int >= {low}" if high is None else f"an int from {low} to {high}"

    def check(value: object) -> int:
        if isinstance(value, int) and not isinstance(value, bool) and value >= low and (high is None or value <= high):
            return bounded(value)
        raise _refused(value, expected)

    return check


def milliseconds(low: int) -> Check:
    """Check for an int of milliseconds; keep nanoseconds."""
    whole_ms = whole(low)

    def check(value: object) -> int:
        return int(whole_ms(value)) * NS_PER_MS

    return check


def optional(inner: Check) -> Check:
    """Check for null or what the inner check allows."""

    def check(value: object) -> object:
        return None if value is None else inner(value)

    return check


def one_of(*words: str) -> Check:
    """Check for one of a few words."""
    expected = f"one of {', '.join(words)}"

    def check(value: object) -> str:
        if isinstance(value, str) and value in words:
            return value
        raise ConfigError(f"{shown(value)} is not allowed: expected {expected}{nearest(value, words)}")

    return check


def fraction(high: float) -> Check:
    """Check for a number from 0 to ``high``."""

    def check(value: object) -> float:
        if isinstance(value, int | float) and not isinstance(value, bool):
            number = float(value) if -1 <= value <= 1 else math.inf
            if 0 <= number <= high:
                return number
        raise _refused(value, f"a number from 0 to {high}")

    return check


def flag(value: object) -> bool:
    """Check for true or false."""
    if isinstance(value, bool):
        return value
    raise _refused(value, "true or false")


def name(value: object) -> str:
    """Check for a string that is not empty."""
    if isinstance(value, str) and value:
        return value
    raise _refused(value, "a string that is not empty")


def names(value: object) -> tuple[str, ...]:
    """Check for a list of names; keep each once, in order."""
    if not isinstance(value, list | tuple):
        raise _refused(value, "a list of ids")
    for index, entry in enumerate(value):
        if not isinstance(entry, str) or not entry:
            raise ConfigError(f"[{index}] is {shown(entry)}: expected an id, a string that is not empty")
    return tuple(dict.fromkeys(value))


def amounts(value: object) -> dict[str, int]:
    """Check for an object of amounts by name of the resource."""
    if not isinstance(value, dict):
        raise _refused(value, 'an object of amounts by name, such as {"licence": 2}')
    checked = {}
    for key, amount in value.items():
        if not isinstance(key, str) or not key:
            raise _refused(key, "the name of a resource")
        try:
            checked[key] = parse_size(amount)
        except ConfigError as error:
            raise ConfigError(f"{key}: {error}") from None
    return checked


def counts(value: object) -> dict[str, int]:
    """Check for an object of whole numbers by name of the kind of device."""
    if not isinstance(value, dict):
        raise _refused(value, 'an object of numbers by kind, such as {"rig": 1}')
    check = whole(0)
    counted = {}
    for key, number in value.items():
        try:
            counted[name(key)] = check(number)
        except ConfigError as error:
            raise ConfigError(f"{key}: {error}") from None
    return counted


def records(value: object) -> list[Any]:
    """Check for a list; the caller checks its entries."""
    if isinstance(value, list | tuple):
        return list(value) if isinstance(value, tuple) else value
    raise _refused(value, "a list of objects")


def mapping(value: object) -> dict[str, Any]:
    """Check for an object; the caller checks its fields."""
    if isinstance(value, dict):
        return value
    raise _refused(value, "an object")


def _refused(value: object, expected: str) -> ConfigError:
    return ConfigError(f"{shown(value)} is not allowed: expected {expected}")


def _some(table: Table) -> str:
    return ", ".join(list(table)[:3])
