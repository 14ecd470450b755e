"""What is wrong with a file or an object that users hand over: each problem with its line, its place and a hint."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from whywait.errors import ConfigError, shortened
from whywait.support.lazy import difflib
from whywait.support.units import printable, shown

if TYPE_CHECKING:
    from whywait.support.lines import Locate, Path

MOST: Final = 50  # problems that a message lists
_PLACE: Final = 120  # a key in a file may be of any length, a message not
_CANDIDATES: Final = 20_000  # names compared with a misspelt one; more would make a big file wait for its error
_LENGTHS: Final = 3  # a misspelling is rarely longer or shorter by more than this


class Problem(NamedTuple):
    """One thing that is wrong: where, and what would be right."""

    line: int | None
    place: str
    message: str

    def told(self, source: str | None) -> str:
        """Return it as one line: file, line, place, message."""
        where = source if self.line is None else f"{source}:{self.line}"
        return printable(": ".join(part for part in (where, self.place, shortened(self.message)) if part))


class WorkflowError(ConfigError):
    """A workflow file is not right; ``problems`` lists everything that is wrong with it."""

    def __init__(self, source: str, problems: list[Problem]) -> None:
        """Tell all problems, one on each line."""
        self.source = source
        self.problems = tuple(problems)
        super().__init__("\n".join(self.lines()))

    def lines(self) -> list[str]:
        """Return one line for each problem: file, line, place, message."""
        told = [problem.told(self.source) for problem in self.problems[:MOST]]
        if len(self.problems) > MOST:
            told.append(f"{self.source}: there are more; these are the first {MOST}")
        return told


class Problems:
    """Collects problems, up to what one message lists; the same one at the same place counts once."""

    def __init__(self, source: str, locate: Locate) -> None:
        """Start without any."""
        self._source = source
        self._locate = locate
        self.found: dict[Problem, None] = {}

    def add(self, path: Path, message: str) -> None:
        """Note that something is wrong at a place."""
        self.found[Problem(self._locate(path), show_path(path), message)] = None
        if len(self.found) > MOST:
            self.raise_if_any()

    def attempt(self, path: Path, act: Callable[..., Any], *args: Any) -> Any:
        """Return what a function returns; note the ConfigError that it raises, if any, and return None."""
        try:
            return act(*args)
        except ConfigError as error:
            self.add(path, str(error))
            return None

    def raise_if_any(self) -> None:
        """Raise all problems as one error, in the order of the file."""
        if self.found:
            raise WorkflowError(self._source, sorted(self.found, key=lambda problem: problem.line or 0))


def refusal(source: str | None, path: Path, message: str, line: int | None = None) -> ConfigError:
    """Return the error of one problem; it names the file (if any), the line (if known) and the place."""
    return ConfigError(Problem(line, show_path(path), message).told(source))


def show_path(path: Path) -> str:
    """Write a place as people read it: ``task.decode.after[0]``."""
    told = ""
    for part in path:
        told += f"[{part}]" if isinstance(part, int) else f".{part}" if told else str(part)
    return told if len(told) <= _PLACE else f"{told[:_PLACE]}…"


def nearest(wrong: object, known: Iterable[str]) -> str:
    """Return ``; did you mean "..."?`` with the known name that is most like the wrong one, or nothing."""
    if not isinstance(wrong, str):
        return ""
    alike = (other for other in known if isinstance(other, str) and abs(len(other) - len(wrong)) <= _LENGTHS)
    matches = difflib.get_close_matches(wrong, islice(alike, _CANDIDATES), n=1)
    return f"; did you mean {shown(matches[0])}?" if matches else ""


def unknown_name(wrong: object, what: str, known: Iterable[str]) -> str:
    """Return the message for a name that should be one of ``known``."""
    return f"{shown(wrong)} is not {what}{nearest(wrong, known)}"
