"""The run in the log: every state change through the standard ``logging``, and each reason once when it changes.

Loggers: ``whywait.task``, ``whywait.lane`` (what READY tasks wait for), ``whywait.scope``, ``whywait.periodic``, and so
on by the first word of the event's kind. The ordinary course is DEBUG, reasons and scopes are INFO, what went wrong is
WARNING.
"""

from __future__ import annotations

import logging
from typing import Any, Final

from whywait.bridges.base import Bridge, EventSource
from whywait.kernel.events import Event, Kind
from whywait.kernel.state import Outcome
from whywait.observe.event_words import event_in_words
from whywait.observe.fold import Attempt, Fold

_SKIPPED: Final = logging.getLogger("whywait.events")
_INFO: Final = frozenset({Kind.LANE_WAITS, Kind.TASK_PAUSED, Kind.TASK_RESUMED, Kind.TASK_RETRIED})
_WARNING: Final = frozenset(
    {Kind.TASK_DROPPED, Kind.TASK_REJECTED, Kind.TASK_STARVED, Kind.TASK_OVERDRAWN, Kind.PERIODIC_SKIPPED}
)


class LogBridge(Bridge):
    """Logs the events of an authority from now on; each record carries its event as ``record.whywait``."""

    def __init__(self, authority: EventSource, *, from_the_beginning: bool = False) -> None:
        """Follow ``authority`` from now on, or from the first event that it remembers."""
        self._fold = Fold(Attempt)  # knows what each task is called
        super().__init__(authority, from_the_beginning=from_the_beginning)

    def take(self, event: Event, skipped: int) -> None:
        """Log one event."""
        if skipped:
            _SKIPPED.warning("%d events were skipped", skipped)
        attempt = self._fold.feed(event)
        log_event(event, None if attempt is None else attempt.label)


def log_event(event: Event, label: str | None = None) -> None:
    """Log one event, of the task that is shown so."""
    prefix = event.kind.partition("_")[0]
    logger = logging.getLogger(f"whywait.{prefix.lower()}")
    level = _level(event, prefix)
    if logger.isEnabledFor(level):
        logger.log(level, "%s", event_in_words(event, label), extra={"whywait": event.to_dict()})


def _level(event: Event, prefix: str) -> int:
    kind = event.kind
    if kind in _WARNING:
        return logging.WARNING
    if kind == Kind.TASK_FINISHED:
        details: dict[str, Any] = dict(event.details or ())
        return logging.DEBUG if details["outcome"] == Outcome.SUCCESS else logging.WARNING
    return logging.INFO if kind in _INFO or prefix in {"SCOPE", "PERIODIC"} else logging.DEBUG
