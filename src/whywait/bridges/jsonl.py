"""Events as JSON Lines: one line each, appended to a file while the run goes on."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from whywait.errors import ConfigError
from whywait.kernel.events import Event
from whywait.units import shown

if TYPE_CHECKING:
    from whywait.authority import Authority

log = logging.getLogger("whywait.events")


class JsonLines:
    """Writes every event of an authority to a file, one JSON object a line, until it is closed.

    It begins with the events that are remembered already. Where events are missing, a line ``{"skipped": n}`` says so.
    If the file cannot be written (a full disk), that is logged once, kept in ``error``, and the run goes on without.
    """

    def __init__(self, authority: Authority, path: str | Path) -> None:
        """Open ``path`` anew and follow ``authority``; a path that cannot be opened raises OSError at once."""
        self.path = Path(path)
        self.error: OSError | None = None
        self._file = self.path.open("w", encoding="utf-8", newline="\n")
        self._lock = threading.Lock()
        self._last_seq = 0
        with self._lock:
            self._stop = authority.subscribe(self._write)
            for event in authority.events():
                self._line(event)

    def close(self) -> None:
        """Write no more and close the file."""
        self._stop()
        with self._lock:
            try:
                self._file.close()
            except OSError as error:
                self._give_up(error)

    def __enter__(self) -> Self:
        """Use as a block that closes the file."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close the file."""
        self.close()

    def _write(self, event: Event) -> None:
        with self._lock:
            self._line(event)

    def _line(self, event: Event) -> None:
        if event.seq <= self._last_seq or self.error is not None or self._file.closed:
            return
        skipped = event.seq - self._last_seq - 1
        self._last_seq = event.seq
        try:
            if skipped:
                self._file.write(json.dumps({"skipped": skipped}) + "\n")
            self._file.write(json.dumps(event.to_dict(), ensure_ascii=False, separators=(",", ":")) + "\n")
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        if self.error is None:
            self.error = error
            log.error("events are no longer written to %s: %s; the run goes on", self.path, error)


def read_events(path: str | Path) -> Iterator[Event]:
    """Yield the events of a file that :class:`JsonLines` wrote; a line that is none raises ConfigError."""
    with Path(path).open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            try:
                data: Any = json.loads(line)
                if "skipped" not in data:
                    yield Event.from_dict(data)
            except (ValueError, TypeError, KeyError, AttributeError):
                raise ConfigError(f"{path}, line {number}: {shown(line.strip())} is not an event") from None
