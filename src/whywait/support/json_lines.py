"""Files of JSON Lines that users hand over: read line by line within limits, with errors that name file and line."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from typing import Any, Final, NoReturn

from whywait.errors import ConfigError, shortened
from whywait.support.units import format_size, printable, shown

log = logging.getLogger("whywait.files")

LONGEST_LINE: Final = 64_000_000  # bytes; a batch of tasks is one line of a record


class JsonLinesReader:
    """Yields number and value of each line of a file.

    A last line without an end that is not JSON was cut off, by a kill or a full disk: that is logged, told by
    ``complete``, and the line is passed over, unless there is no other. Everything else that is no JSON raises
    ConfigError.
    """

    def __init__(self, path: str | PathLike[str], what: str) -> None:
        """Prepare to read; ``what`` is what a line is called, such as "an event"."""
        self.path = Path(path)
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
