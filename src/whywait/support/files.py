"""Text files that users hand over: read as UTF-8 and, if they are JSON, parsed, with errors that name the place."""

from __future__ import annotations

import json
from typing import IO, Any, Final

from whywait.errors import ConfigError
from whywait.support.fields import problem
from whywait.support.units import format_size, shown

MAX_BYTES: Final = 1 << 30
_CHUNK: Final = 1 << 20


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
            raise ConfigError(f"{source}: is larger than {format_size(limit or MAX_BYTES)}, the most that is read")
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
        keys = [key for key, _ in pairs]
        found = _Repeated(built)
        found.key = next(key for key in keys if keys.count(key) > 1)
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
        raise problem(
            source, _find(data, repeated[0]), f"the key {shown(repeated[0].key)} stands there twice: expected once"
        )
    return data


def _find(data: object, wanted: object) -> str:
    """Return where in the data the wanted object is."""
    todo: list[tuple[str, object]] = [("", data)]
    while todo:
        place, value = todo.pop()
        if value is wanted:
            return place
        if isinstance(value, dict):
            todo.extend((f"{place}.{key}" if place else key, inner) for key, inner in value.items())
        elif isinstance(value, list):
            todo.extend((f"{place}[{index}]", inner) for index, inner in enumerate(value))
    raise AssertionError("the object came from this data")
