"""Text files that users hand over: read as UTF-8 and, if they are JSON, parsed, with errors that name the place."""

from __future__ import annotations

import json
from collections import Counter
from typing import IO, Any, Final

from whywait.errors import ConfigError
from whywait.support.lines import Path
from whywait.support.problems import refusal
from whywait.support.units import format_size, shown

MAX_BYTES: Final = 1 << 30
_DEEPEST: Final = 40
_CHUNK: Final = 1 << 20


def is_shallow(value: Any) -> bool:  # noqa: ANN401 - JSON, YAML or TOML
    """Return whether a list or an object is nested no deeper than anything that whywait or a person writes."""
    level: list[Any] = [value]
    for _ in range(_DEEPEST):
        level = [
            inner
            for each in level
            for inner in (each.values() if isinstance(each, dict) else each)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return True
    return False


def too_large(source: str, limit: int) -> ConfigError:
    """Return the error that refuses a text of more than so many bytes."""
    return ConfigError(f"{source}: is larger than {format_size(limit)}, the most that is read")


def read_text(stream: IO[bytes], source: str, language: str, content: str, limit: int | None = None) -> str:
    """Read the whole stream as UTF-8, refusing early what cannot be text; messages name language and content."""
    parts: list[bytes] = []
    total = 0
    while part := stream.read(_CHUNK):
        if b"\0" in part:
            raise ConfigError(f"{source}: is a binary file: expected {language} text")
        parts.append(part)
        total += len(part)
        if total > (limit or MAX_BYTES):
            raise too_large(source, limit or MAX_BYTES)
    try:
        text = b"".join(parts).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        where = f"byte {error.object[error.start]:#04x} at offset {error.start}"
        raise ConfigError(f"{source}: is not UTF-8 text ({where}): expected {language}") from None
    if not text.strip():
        raise ConfigError(f"{source}: is empty: expected {content}")
    return text


class _Repeated(dict[str, Any]):
    """An object in which the same key stands twice."""

    key: str


def parse_json(text: str, source: str, content: str) -> Any:  # noqa: ANN401  the caller checks what the JSON holds
    """Parse JSON; a key that stands twice in one object is an error."""
    repeated: list[_Repeated] = []

    def build(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        built = dict(pairs)
        if len(built) == len(pairs):
            return built
        found = _Repeated(built)
        counted = Counter(key for key, _ in pairs)
        found.key = next(key for key, times in counted.items() if times > 1)
        repeated.append(found)
        return found

    try:
        data = json.loads(text, object_pairs_hook=build)
    except json.JSONDecodeError as error:
        place = f"{source}:{error.lineno}: column {error.colno}"
        raise ConfigError(f"{place}: is not JSON: {error.msg[0].lower()}{error.msg[1:]}") from None
    except RecursionError:
        raise ConfigError(f"{source}: is nested too deeply: expected {content}") from None
    except ValueError as error:  # a number of more digits than Python turns into an int
        raise ConfigError(f"{source}: holds a number that cannot be read: {error}") from None
    if repeated:
        message = f"the key {shown(repeated[0].key)} stands there twice: expected once"
        raise refusal(source, _find(data, repeated[0]), message)
    return data


def _find(data: object, wanted: object) -> Path:
    """Return where in the data the wanted object is."""
    todo: list[tuple[Path, object]] = [((), data)]
    while todo:
        path, value = todo.pop()
        if value is wanted:
            return path
        inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        todo.extend(((*path, key), inner) for key, inner in inside if isinstance(inner, dict | list))
    raise AssertionError("the object came from this data")
