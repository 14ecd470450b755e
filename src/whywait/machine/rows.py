"""The rows of a store as they are read: what a service has written, or ConfigError that says what is wrong.

The file may have been damaged, or changed by another program.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any, Final

from whywait.errors import ConfigError, shown
from whywait.kernel.limits import Priority

COLUMNS: Final = (
    "number", "scope", "name", "command", "directory", "environment", "options", "added", "state", "attempt",
    "started", "ended", "outcome", "cause", "exit_code", "facts",
)  # fmt: skip
IN_JSON: Final = ("command", "directory", "options", "facts")
STATES: Final = ("pending", "paused", "running", "ended")

Check = Callable[[Any], bool]


def job_fields(row: tuple[Any, ...]) -> dict[str, Any]:
    """Return the fields of a job, from the columns of its row."""
    fields = dict(zip(COLUMNS, row, strict=True))
    for name in COLUMNS:
        place = f"{name} of job {fields['number']}"
        if name in IN_JSON:
            fields[name] = parsed(place, fields[name])
        if not _CHECKS[name](fields[name]):
            raise _refused(place, fields[name])
    for name, value in fields["options"].items():
        if name in _OPTIONS and not _OPTIONS[name](value):
            raise _refused(f"{name} of job {fields['number']}", value)
    return fields


def environment_of(key: object, text: object) -> tuple[str, dict[str, str]]:
    """Return an environment with its key."""
    variables = parsed("an environment", text)
    if not _is_text(key) or not _is_object(variables) or not all(map(_is_text, variables.values())):
        raise _refused("an environment", "…")  # what is in one is shown nowhere
    return str(key), variables


def scope_of(key: object, text: object) -> tuple[str, dict[str, Any]]:
    """Return what a scope was opened with, with its key."""
    options = parsed("a scope", text)
    if not _is_text(key) or not _is_object(options):
        raise _refused("a scope", key)
    return str(key), options


def parsed(place: str, text: object) -> Any:  # noqa: ANN401 - JSON
    """Return the value that a text of the store stands for."""
    try:
        return json.loads(text)  # type: ignore[arg-type]
    except (TypeError, ValueError, RecursionError):
        raise ConfigError(f"{place} is not JSON") from None


def _refused(place: str, value: object) -> ConfigError:
    return ConfigError(f"{place} is {shown(value)}, which no service writes")


def _is_text(value: Any) -> bool:  # noqa: ANN401 - of any kind, as all of these
    return isinstance(value, str)


def _is_whole(value: Any) -> bool:  # noqa: ANN401
    return isinstance(value, int) and not isinstance(value, bool)


def _is_count(value: Any) -> bool:  # noqa: ANN401
    return _is_whole(value) and value >= 0


def _is_time(value: Any) -> bool:  # noqa: ANN401
    return isinstance(value, float) and math.isfinite(value)


def _is_object(value: Any) -> bool:  # noqa: ANN401
    return isinstance(value, dict)


def _are_texts(value: Any) -> bool:  # noqa: ANN401
    return isinstance(value, list) and all(map(_is_text, value))


def _is_priority(value: Any) -> bool:  # noqa: ANN401
    try:
        Priority.parse(value)
    except ConfigError:
        return False
    return True


def _are_options(value: Any) -> bool:  # noqa: ANN401
    return _is_object(value) and "after" in value and "after_ended" in value


def _are_facts(value: Any) -> bool:  # noqa: ANN401
    if not _is_object(value) or not _is_object(value.get("devices", {})):
        return False
    waits = value.get("waits", {})
    return _is_object(waits) and all(map(_is_count, waits.values()))


def _or_none(check: Check) -> Check:
    return lambda value: value is None or check(value)


_CHECKS: Final[Mapping[str, Check]] = {
    "number": _is_count,
    "scope": _is_text,
    "name": _is_text,
    "command": lambda value: bool(value) and _are_texts(value),
    "directory": _is_text,
    "environment": _is_text,
    "options": _are_options,
    "added": _is_time,
    "state": STATES.__contains__,
    "attempt": _is_count,
    "started": _or_none(_is_time),
    "ended": _or_none(_is_time),
    "outcome": _or_none(_is_text),
    "cause": _or_none(_is_text),
    "exit_code": _or_none(_is_whole),
    "facts": _are_facts,
}
_OPTIONS: Final[Mapping[str, Check]] = {  # those that are used of ended jobs too
    "after": _are_texts,
    "after_ended": _are_texts,
    "priority": _is_priority,
    "retry": lambda value: _is_count(value) or (_is_object(value) and _is_count(value.get("times"))),
}
