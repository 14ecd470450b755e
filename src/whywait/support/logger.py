"""The log: the logger ``whywait`` of the host's logging, or a logger that an authority was given."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import Any, Final

from whywait.errors import ConfigError, WhywaitError
from whywait.support.units import printable


class Log(logging.LoggerAdapter[logging.Logger]):
    """A logger that keeps every line one line; a handler that raises costs no task its end."""

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        """Write a line; what is not printable in the names and messages that it is made of is escaped."""
        if self.isEnabledFor(level):
            with suppress(Exception):
                super().log(level, msg, *map(_escaped, args), stacklevel=2, **kwargs)

    def child(self, name: str) -> Log:
        """Return the logger for one subject, below this one."""
        return Log(self.logger.getChild(name))


def _escaped(value: object) -> object:
    text = str(value) if isinstance(value, WhywaitError) else value
    return printable(text) if isinstance(text, str) else text


def log_of(given: object) -> Log:
    """Return the log of an authority: what it was given, or the logger ``whywait``."""
    if given is None:
        return log
    if isinstance(given, Log):
        return given
    if not isinstance(given, logging.Logger):
        raise ConfigError(f"log {given!r} is not allowed: use a logging.Logger")
    return Log(given)


log: Final = Log(logging.getLogger("whywait"))
