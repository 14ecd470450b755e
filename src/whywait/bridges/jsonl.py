"""Events as JSON Lines: one line each, appended to a file while the run goes on."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whywait.bridges.base import Bridge
from whywait.errors import ConfigError
from whywait.kernel.events import Event
from whywait.units import shown

if TYPE_CHECKING:
    from whywait.authority import Authority

log = logging.getLogger("whywait.events")


class JsonLines(Bridge):
    """Writes every event of an authority to a file, one JSON object a line, until it is closed.

    It begins with the events that are remembered already. Where events are missing, a line ``{"skipped": n}`` says so.
    If the file cannot be written (a full disk), that is logged once, kept in ``error``, and the run goes on without.
    """

    def __init__(self, authority: Authority, path: str | Path) -> None:
        """Open ``path`` anew and follow ``authority``; a path that cannot be opened raises OSError at once."""
        self.path = Path(path)
        self.error: OSError | None = None
        self._file = self.path.open("w", encoding="utf-8", newline="\n")
        super().__init__(authority, from_the_beginning=True)

    def take(self, event: Event, skipped: int) -> None:
        """Write one event."""
        if self.error is not None or self._file.closed:
            return
        try:
            if skipped:
                self._file.write(json.dumps({"skipped": skipped}) + "\n")
            self._file.write(json.dumps(event.to_dict(), ensure_ascii=False, separators=(",", ":")) + "\n")
        except OSError as error:
            self._give_up(error)

    def close(self) -> None:
        """Write what has happened up to now and close the file."""
        super().close()
        try:
            self._file.close()
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
