"""Matrices and variables: one table with ``foreach`` becomes many tasks, ``{name}`` in strings becomes values."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from itertools import product
from typing import Any, Final

from whywait.errors import ConfigError
from whywait.support.units import shown

MOST: Final = 100_000  # tasks that a file may stand for

PLACEHOLDER: Final = re.compile(r"\{\{([^\W\d]\w*)\}\}|(?<!\$)\{([^\W\d]\w*)\}")
_UNSAFE: Final = re.compile(r"[^\w.+-]+")
_LABEL: Final = 40


def substitute(value: Any, names: Mapping[str, Any]) -> Any:  # noqa: ANN401  whatever stands in a file
    """Replace ``{name}`` in all strings of a value; a string that is nothing else becomes the named value itself.

    ``{{name}}`` stands for a literal ``{name}``; braces around anything unknown, and ``${name}``, stay as they are.
    """
    if isinstance(value, str):
        return _substitute_text(value, names) if "{" in value else value
    if isinstance(value, list):
        return [substitute(each, names) for each in value]
    if isinstance(value, dict):
        return {key: substitute(each, names) for key, each in value.items()}
    return value


def text_in(value: Any) -> int:  # noqa: ANN401  whatever stands in a file
    """Return how many characters all strings of a value have."""
    if isinstance(value, str):
        return len(value)
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return sum(map(text_in, inner))


def _substitute_text(text: str, names: Mapping[str, Any]) -> Any:  # noqa: ANN401  a value of any kind
    whole = PLACEHOLDER.fullmatch(text)
    if whole is not None and whole[2] in names:
        return names[whole[2]]
    return PLACEHOLDER.sub(lambda match: replacement(match, names), text)


def replacement(match: re.Match[str], names: Mapping[str, Any], write: Callable[[str], str] = str) -> str:
    """Return what stands for a placeholder in a text: the named value as ``write`` makes it of its text."""
    escaped, wanted = match.groups()
    if escaped is not None:
        return f"{{{escaped}}}" if escaped in names else match[0]
    if wanted in names:
        return write(as_word(names[wanted]))
    alike = get_close_matches(wanted, names, n=1, cutoff=0.75)
    if alike:
        raise ConfigError(
            f"{{{wanted}}} is not a value of this task; did you mean {{{alike[0]}}}? "
            f"(for the text itself write {{{{{wanted}}}}})"
        )
    return match[0]


def combinations(foreach: list[Any] | dict[str, list[Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield label and values of each combination of a ``foreach``."""
    columns = {"item": foreach} if isinstance(foreach, list) else foreach
    count = math.prod(len(column) for column in columns.values())
    if count > MOST:
        raise ConfigError(f"stands for {count:,} tasks: expected at most {MOST:,}")
    taken: set[str] = set()
    for index, values in enumerate(product(*columns.values())):
        label = ",".join(map(_label, values)) or str(index)
        if label in taken:  # values may look the same once they are cut or cleaned
            label = f"{label}.{index}"
        taken.add(label)
        item = values[0] if isinstance(foreach, list) else label
        yield label, {**dict(zip(columns, values, strict=True)), "item": item, "index": index}


def parse_override(text: str) -> tuple[tuple[str, ...], Any]:
    """Take ``key=value`` apart: the path of the key, and the value as a number, boolean, list or else a string."""
    key, sign, value = text.partition("=")
    path = path_of(key)
    if not sign or not path:
        raise ConfigError(f"--set {shown(text)} is not allowed: expected key=value, such as task.encode.priority=high")
    try:
        return path, json.loads(value)
    except (ValueError, RecursionError):
        return path, value


def path_of(key: object) -> tuple[str, ...]:
    """Return the parts of a key such as ``task.encode.priority``; none if it is no such key."""
    path = tuple(part.strip() for part in key.split(".")) if isinstance(key, str) else ()
    return path if all(path) else ()


def override(data: dict[str, Any], path: tuple[str, ...], value: Any) -> None:  # noqa: ANN401  any value
    """Set a variable of ``[vars]`` by its name, or any field by its path."""
    variables = data.get("vars")
    if len(path) == 1 and isinstance(variables, dict) and path[0] in variables:
        variables[path[0]] = value
        return
    table: Any = data
    for part in path[:-1]:
        table = table.setdefault(part, {})
        if not isinstance(table, dict):
            raise ConfigError(f"{'.'.join(path)} cannot be set: {part} is {shown(table)}, which has no fields")
    table[path[-1]] = value


def as_word(value: object) -> str:
    """Write a value as a command line takes it."""
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


def _label(value: object) -> str:
    text = as_word(value)
    return _UNSAFE.sub("_", text if len(text) <= _LABEL else text[:_LABEL])
