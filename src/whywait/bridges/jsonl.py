"""Events as JSON Lines: one line each, added to a file while the run goes on."""

from __future__ import annotations

import json
from os import PathLike
from pathlib import Path

from whywait.bridges.base import Bridge, EventSource
from whywait.kernel.events import Event
from whywait.observe.event_file import ENDS_AT_ONCE, header_of
from whywait.support.line_file import LineFile


class JsonLines(Bridge):
    """Writes every event of an authority to a file, one JSON object a line, until it is closed.

    The first line has the limits of slots and budget. It begins with the events that are remembered already; where
    events are missing, a line ``{"skipped": n}`` says so. Each event is in the file half a second later, and the end of
    a task at once, so that a program that is killed leaves a file to look at. If the file cannot be written (a full
    disk), that is logged once, kept in ``error``, and the run goes on without.
    """

    def __init__(self, authority: EventSource, path: str | PathLike[str]) -> None:
        """Open ``path`` anew and follow ``authority``; a path that cannot be opened raises OSError at once."""
        self._file = LineFile(path, "events are", authority._core.log)  # noqa: SLF001 - a bridge belongs to it
        settings = authority.settings
        self._file.add(json.dumps(header_of(settings.limits, settings.budget), ensure_ascii=False))
        super().__init__(authority, from_the_beginning=True)

    @property
    def path(self) -> Path:
        """Where the events are written."""
        return self._file.path

    @property
    def error(self) -> OSError | None:
        """Why the file was given up."""
        return self._file.error

    def take(self, event: Event, skipped: int) -> None:
        """Write one event."""
        if skipped:
            self._file.add(json.dumps({"skipped": skipped}))
        line = json.dumps(event.to_dict(), ensure_ascii=False, separators=(",", ":"))
        self._file.add(line, at_once=event.kind in ENDS_AT_ONCE)

    def close(self) -> None:
        """Write what has happened up to now and close the file."""
        super().close()
        self._file.close()
