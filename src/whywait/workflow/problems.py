"""Problems of a workflow file: collected all at once, each with its line and place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from whywait.errors import ConfigError, shortened
from whywait.support.lines import Locate, Path
from whywait.support.units import printable

MOST: Final = 50  # problems that a message lists
_PLACE: Final = 120


class Problem(NamedTuple):
    """One thing that is wrong: where, and what would be right."""

    line: int | None
    place: str
    message: str


class WorkflowError(ConfigError):
    """A workflow file is not right; ``problems`` lists everything that is wrong with it."""

    def __init__(self, source: str, problems: list[Problem]) -> None:
        """Tell all problems, one on each line."""
        self.source = source
        self.problems = tuple(problems)
        super().__init__("\n".join(self.lines()))

    def lines(self) -> list[str]:
        """Return one line for each problem: file, line, place, message."""
        told = []
        for line, place, message in self.problems[:MOST]:
            where = self.source if line is None else f"{self.source}:{line}"
            told.append(printable(": ".join(part for part in (where, place, shortened(message)) if part)))
        if len(self.problems) > MOST:
            told.append(f"{self.source}: there are more; these are the first {MOST}")
        return told


class Problems:
    """Collects problems, up to what one message lists; the same one at the same place counts once."""

    def __init__(self, source: str, locate: Locate) -> None:
        """Start without any."""
        self._source = source
        self._locate = locate
        self._found: dict[Problem, None] = {}
        self.noted = 0  # how often a problem was noted, repeated ones included

    def add(self, path: Path, message: str) -> None:
        """Note that something is wrong at a place."""
        self.noted += 1
        self._found[Problem(self._locate(path), show_path(path), message)] = None
        if len(self._found) > MOST:
            self.raise_if_any()

    def check(self, path: Path, check: Callable[[Any], Any], value: object) -> Any:  # noqa: ANN401  what the check keeps
        """Return what a check makes of a value; note the problem and return None if it refuses."""
        try:
            return check(value)
        except ConfigError as error:
            self.add(path, str(error))
            return None

    def raise_if_any(self) -> None:
        """Raise all problems as one error, in the order of the file."""
        if self._found:
            raise WorkflowError(self._source, sorted(self._found, key=lambda problem: problem.line or 0))


def show_path(path: Path) -> str:
    """Write a place as people read it: ``task.decode.after[0]``."""
    told = ""
    for part in path:
        told += f"[{part}]" if isinstance(part, int) else f".{part}" if told else part
    return told if len(told) <= _PLACE else f"{told[:_PLACE]}…"
