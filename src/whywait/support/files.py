"""Text files that users hand over: UTF-8, JSON, or JSON Lines, with errors that name the file and the place."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Iterator
from os import PathLike
from pathlib import Path as FilePath
from typing import IO, Any, Final, NoReturn

from whywait.errors import ConfigError, shortened
from whywait.support.lines import Path
from whywait.support.problems import refusal
from whywait.support.units import format_size, printable, shown

MAX_BYTES: Final = 1 << 30
_DEEPEST: Final = 40
_CHUNK: Final = 1 << 20
LONGEST_LINE: Final = 64_000_000  # bytes; a batch of tasks is one line of a record

log = logging.getLogger("whywait.files")


def is_shallow(value: Any) -> bool:
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


def parse_json(text: str, source: str, content: str) -> Any:
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


class JsonLinesReader:
    """Yields number and value of each line of a file.

    A last line without an end that is not JSON was cut off, by a kill or a full disk: that is logged, told by
    ``complete``, and the line is passed over, unless there is no other. Everything else that is no JSON raises
    ConfigError.
    """

    def __init__(self, path: str | PathLike[str], what: str) -> None:
        """Prepare to read; ``what`` is what a line is called, such as "an event"."""
        self.path = FilePath(path)
        self.complete = True  # until a line turns out to be cut off
        self._what = what

    def __iter__(self) -> Iterator[tuple[int, Any]]:
        """Read the file from its beginning."""
        try:
            with self.path.open("rb") as file:
                number = 0
                while line := file.readline(LONGEST_LINE + 1):
                    number += 1
                    if len(line) > LONGEST_LINE:
                        raise self.refusal(number, f"is longer than {format_size(LONGEST_LINE)}, the most that is read")
                    if not line.isspace():
                        found, value = self._parse(number, line)
                        if found:
                            yield number, value
        except OSError as error:
            raise ConfigError(f"{self._name}: cannot be read: {error.strerror or error}") from error

    def refusal(self, number: int, message: str) -> ConfigError:
        """Return the error that names the file and the line."""
        return ConfigError(f"{self._name}:{number}: {printable(shortened(message))}")

    def _parse(self, number: int, line: bytes) -> tuple[bool, Any]:
        try:
            return True, _DECODER.decode(line.decode("utf-8-sig" if number == 1 else "utf-8"))
        except RecursionError:
            raise self.refusal(number, f"is nested too deeply: expected {self._what}") from None
        except ValueError as error:  # no UTF-8, no JSON, NaN, or a number of too many digits
            if line.endswith(b"\n") or number == 1:
                told = f" ({error})" if isinstance(error, _NotFiniteError) else ""
                quoted = shown(line.decode(errors="backslashreplace").strip())
                raise self.refusal(number, f"{quoted} is not {self._what}{told}") from None
        self.complete = False
        log.warning("%s:%d: the last line is cut off, as by a kill or a full disk; it is left out", self._name, number)
        return False, None

    @property
    def _name(self) -> str:
        return printable(str(self.path))


class _NotFiniteError(ValueError):
    """JSON has no such number."""


def _refuse_constant(name: str) -> NoReturn:
    raise _NotFiniteError(f"{name} is not JSON")


_DECODER: Final = json.JSONDecoder(parse_constant=_refuse_constant)
