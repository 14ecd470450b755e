"""The log of a job: a header for each attempt, all that the command writes, and a trailer that says how it ended."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from functools import lru_cache

from whywait.support.units import format_ms, format_size


class LogFile:
    """The log of one job while an attempt runs.

    The command writes to the file itself, so that a full disk is an error of its writes, which it may take or ignore;
    lines of the service's own are left out then.
    """

    def __init__(self, path: str, command: Sequence[str], attempt: int) -> None:
        """Open the log and write the header of an attempt."""
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._began = time.monotonic()
        again = f" (attempt {attempt})" if attempt > 1 else ""
        self.say(f"{_time_of_day()}: {shlex.join(command)}{again}")

    def fileno(self) -> int:
        """Return the descriptor that the command writes to."""
        return self._fd

    def say(self, text: str) -> None:
        """Add a line of the service's own."""
        with suppress(OSError):
            _add_line(self._fd, text)

    def close(self, how: str, peak: int | None) -> None:
        """Write the trailer and close the file."""
        took = format_ms((time.monotonic() - self._began) * 1000)
        memory = f", peak memory {format_size(peak)}" if peak is not None else ""
        self.say(f"{_time_of_day()}: {how} after {took}{memory}")
        os.close(self._fd)


def say_lost(path: str) -> None:
    """Write the trailer of an attempt that has ended with its service."""
    with suppress(OSError):  # the disk is full, or there is no log
        fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
        try:
            _add_line(fd, f"{_time_of_day()}: lost, because the service has ended")
        finally:
            os.close(fd)


def _add_line(fd: int, text: str) -> None:
    """Add a line, after the end of one that the command has left open."""
    size = os.fstat(fd).st_size
    start = "\n" if size and os.pread(fd, 1, size - 1) != b"\n" else ""
    os.write(fd, f"{start}whywait: {text}\n".encode(errors="backslashreplace"))


def _time_of_day() -> str:
    return _in_words(int(time.time()))


@lru_cache(4)
def _in_words(seconds: int) -> str:
    return datetime.fromtimestamp(seconds).astimezone().isoformat(sep=" ", timespec="seconds")
