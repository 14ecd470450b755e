"""The engine of jobs, and their logs.

A start is on the disk before the command runs. The log of a job has a header for each attempt, all that the command
writes, and a trailer that says how it ended.
"""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import lru_cache
from typing import Any, ClassVar, Final

from whywait.engines.base import Ended, EngineTask
from whywait.engines.command.engine import Command, CommandEngine
from whywait.errors import CommandFailed, MachineError
from whywait.machine.home import Home
from whywait.machine.permissions import Permissions
from whywait.machine.rows import KeptJob
from whywait.runtime.scope import Scope
from whywait.support.units import format_ms, format_size
from whywait.support.usage import exit_facts

# What a job has in its environment unless its user has set it, to whatever. Python keeps back what it prints to a file
# until it has a few kilobytes, or for ever if it is killed: nothing would be seen in a log while the job runs.
DEFAULTS: Final = {"PYTHONUNBUFFERED": "1"}


class JobEngine(CommandEngine):
    """Runs the commands of jobs; the body of a task is its :class:`KeptJob`."""

    has_quick_callbacks: ClassVar[bool] = True  # they are the service's own

    def __init__(self, scope_of: Callable[[str], Scope], permissions: Permissions, home: Home, alive: int) -> None:
        """Carry out jobs; ``alive``: a file descriptor that stays open as long as anything of a job lives."""
        super().__init__()
        self._scope_of = scope_of
        self._permissions = permissions
        self._home = home
        self._alive = alive

    def failed(self, execution: EngineTask, error: BaseException) -> Ended:
        """Tell how an attempt has failed, and note whether another one may follow: the kernel decides by that."""
        job: KeptJob = execution.fn
        ended = super().failed(execution, error)
        job.is_retryable = ended[2]
        return ended

    def call(self, execution: EngineTask) -> None:
        """Run the command of a job to its end."""
        job: KeptJob = execution.fn
        job.is_retryable = True
        started, job.started = job.started, None
        if started is None:
            raise MachineError("the service is ending: it notes no further start")
        started()
        if execution.aborted:
            return  # the kernel knows why
        try:
            log = LogFile(self._home.log_of(job.number), job.command, job.decided.attempt)
        except OSError as error:
            raise MachineError(f"the log of job {job.id} cannot be written: {error}") from None
        permission = self._permissions.grant(self._scope_of(job.scope), job.id, execution)
        try:
            execution.fn = Command(
                job.command,
                cwd=job.directory,
                env={**DEFAULTS, **job.variables, **permission.environment},
                inherit=False,
                output=log.fileno(),
                held=(self._alive,),
                mark=permission.mark,
            )
            super().call(execution)
        except CommandFailed as error:
            if error.__cause__ is not None:  # it could not be started
                execution.facts = exit_facts(error.returncode)
                log.say(str(error))
            raise
        finally:
            execution.fn = job
            facts = dict(execution.facts)
            log.close(_how(facts), facts.get("peak_ram"))
            permission.end()
            self._permissions.remove(permission)


def _how(facts: Mapping[str, Any]) -> str:
    """Return how a command ended, for its log."""
    if "exit_signal" in facts:
        return f"killed by {facts['exit_signal']}"
    return f"exit {facts['exit_code']}" if "exit_code" in facts else "ended"


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
