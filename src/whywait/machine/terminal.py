"""``whywait do``, from the request to the end of the command: ask, wait and say why, run it here, leave as it left."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from errno import ENOENT
from functools import partial
from select import POLLIN, poll
from time import monotonic

from whywait.errors import MachineError
from whywait.machine.client import Gone, LeaseRequest, quoted

TYPE_CHECKING = False  # see the package itself
if TYPE_CHECKING:
    from typing import Any, Final

    from whywait.machine.client import Machine
    from whywait.machine.jobserver import Tokens

NOT_PERMITTED: Final = 125  # as `env` and `timeout` say that they have failed and not the command
NOT_EXECUTABLE: Final = 126  # as shells say it
NOT_FOUND: Final = 127
_STDERR: Final = 2
_CLEAR: Final = "\r\x1b[K"
REFRESH_S: Final = 1.0  # how often the times in the line on a terminal are brought up to date
# What has ended a request that waited, and a command that ran, by the cause that the service or the guard tells.
_NEVER_RAN: Final = {
    "cancelled": "the request was cancelled by {by}",
    "down": "the service was ended by {by}, and with it the request",
    "lost": "the service was killed, and with it the request",
    "max_wait": "the request has waited for as long as --max-wait allows",
    "displaced": "the request was dropped for one of higher priority, because the queue was full",
    "dependency": "a job that it was to run after did not succeed",
    "scope_disposed": "its scope was ended, and with it the request",
}
_ENDED: Final = {
    "run_timeout": "it has run for as long as --timeout allows",
    "cancelled": "it was cancelled by {by}",
    "down": "the service was ended by {by}",
    "lost": "the service was killed",
    "out_of_memory": "it used more memory than it had asked for",
    "killed": "the system killed it for lack of memory",
    "pause_timeout": "it did not stop when it was paused",
    "scope_disposed": "its scope was ended",
    "unguarded": "the process that guards it was killed",
}
_UNKNOWN: Final = "the page"  # what cancels through an address of the service is no process that it could name


def do(
    machine: Machine,
    command: list[str],
    name: str,
    asked: dict[str, Any],
    *,
    jobserver: str | None = None,
    is_quiet: bool = False,
) -> int:
    """Run a command in this terminal under a permission; return the exit code to leave with.

    ``jobserver`` lets programs inside use all cpu that is free, and says how they are told: fifo, pipe or auto.
    """
    if not _is_there(command[0]):
        return _fail(f"{command[0]}: command not found", NOT_FOUND)
    if jobserver is not None:
        asked = {"cpu": 1, **asked}
    line = WaitingLine(is_quiet=is_quiet)
    tokens: Tokens | None = None
    ended: tuple[int, str, str] | None = None
    try:
        request = LeaseRequest(machine, name, command=command, **asked)
        from whywait.machine.foreground import NOT_STARTED, exit_code, run  # while the service decides

        while ended is None:  # a permission that was not taken in time, because this process was stopped, is none
            granted = _wait(request, line)
            if isinstance(granted, str):
                line.hide()
                return _fail(granted, NOT_PERMITTED)
            environment = {**os.environ, **granted["environment"]}
            if jobserver is not None:
                from whywait.machine.jobserver import Tokens, style_for

                style = style_for(command[0], os.environ) if jobserver == "auto" else jobserver
                tokens = tokens or Tokens(request, style, asked)
                tokens.add_to(environment)
            line.runs()
            paused = f"{request.id} is paused by whywait pause; it goes on with: whywait resume {request.id}"
            ended = run(request, command, environment, partial(_say, paused), tokens)
    except KeyboardInterrupt:  # that the request is withdrawn, the service sees by the end of this process
        from whywait.machine.foreground import die_of

        line.hide()
        die_of(signal.SIGINT)
    status, cause, by = ended
    if cause == NOT_STARTED:
        return _fail(f"{command[0]}: {os.strerror(status)}", NOT_FOUND if status == ENOENT else NOT_EXECUTABLE)
    if cause:
        told = _ENDED.get(cause, cause).format(by=by or _UNKNOWN)
        _say(f"{request.id} was ended: {told}")
    return exit_code(status, cause)


def _wait(request: LeaseRequest, line: WaitingLine) -> dict[str, Any] | str:
    """Wait for the permission; return what was granted, or why it never will be."""

    def stop(number: int, _frame: object) -> None:
        """Leave the terminal to others while this process is stopped."""
        line.hide()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
        signal.signal(number, stop)
        line.again()

    watched = poll()
    woken, wake = os.pipe()  # written to by a signal that comes between the last look and the wait
    os.set_blocking(wake, False)
    watched.register(woken, POLLIN)
    watched.register(request, POLLIN)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    before = signal.getsignal(signal.SIGTSTP)
    if before is not signal.SIG_IGN:  # which the command inherits
        signal.signal(signal.SIGTSTP, stop)
    try:
        while True:
            message = _next_message(request, line, watched, woken)
            if "granted" in message:
                granted: dict[str, Any] = message["granted"]
                return granted
            if "ended" in message:
                ended = message["ended"]
                told = _NEVER_RAN.get(ended["cause"], f"the request has ended: {ended['cause']}")
                return told.format(by=ended.get("by", _UNKNOWN))
    except Gone:
        return _NEVER_RAN["lost"]
    finally:
        signal.signal(signal.SIGTSTP, before)
        signal.set_wakeup_fd(-1)
        os.close(woken)
        os.close(wake)


def _next_message(request: LeaseRequest, line: WaitingLine, watched: poll, woken: int) -> dict[str, Any]:
    """Return the next message of the service that does not only say why the request waits; that is shown."""
    while True:
        if not request.has_message:
            found = dict(watched.poll(REFRESH_S * 1000 if line.may_be_rewritten else None))
            if woken in found:
                os.read(woken, 4096)
            elif not found and _is_in_foreground():
                line.show(_reason(request))
            if request.fileno() not in found:
                continue
        message = request.receive()
        if "waiting" not in message:
            return message
        line.show(message["waiting"])


def _reason(request: LeaseRequest) -> str:
    """Return what the request waits for, with the times of now; empty if it has just ended or been granted."""
    try:
        row = request.machine.ask("GET", f"/machine/jobs/{quoted(request.id)}")
    except MachineError:  # it has ended, or the service has: the next message tells, or that there is none
        return ""
    return row["why"] or "" if row["started"] is None else ""


def _is_there(program: str) -> bool:
    """Return whether a program can be found: users who wait an hour want to know before."""
    if os.sep in program:
        return os.path.exists(program)
    return any(os.path.exists(os.path.join(folder, program)) for folder in os.get_exec_path())


def _say(text: str) -> None:
    sys.stderr.write(f"whywait: {text}\n")


def _fail(text: str, code: int) -> int:
    _say(text)
    return code


class WaitingLine:
    """The one line on stderr that says what a request waits for.

    In the foreground of a terminal the line is rewritten when the reason changes and cleared in the end. Elsewhere (a
    pipe, a file, a job in the background) one line is written when the waiting begins and one when it is over.
    """

    def __init__(self, *, is_quiet: bool) -> None:
        """Show nothing yet; never anything if ``is_quiet``."""
        self._is_quiet = is_quiet
        self._since: float | None = None
        self._shown = ""  # what stands on the terminal now and is to be cleared

    @property
    def may_be_rewritten(self) -> bool:
        """Whether there is a terminal where the line is, or will be after ``fg``, brought up to date."""
        return self._since is not None and not self._is_quiet and os.isatty(_STDERR)

    def show(self, reason: str) -> None:
        """Say what the request waits for; leave the line as it is if there is nothing to say."""
        if not reason:
            return
        is_first = self._since is None
        if self._since is None:
            self._since = monotonic()
        if self._is_quiet:
            return
        text = f"waits: {reason}"
        if _is_in_foreground():
            self._shown = text
            _write(_CLEAR + _cut(text))
        elif is_first:
            _write(f"whywait: {text}\n")

    def hide(self) -> bool:
        """Clear the line if it stands on the terminal, and return that; in the background the line is the user's."""
        is_there = bool(self._shown) and _is_in_foreground()
        if is_there:
            _write(_CLEAR)
        return is_there

    def again(self) -> None:
        """Draw the line anew after the terminal was used by others."""
        if self.hide():
            _write(_cut(self._shown))

    def runs(self) -> None:
        """Say that the waiting is over."""
        if self._since is None or self._is_quiet:
            return
        if not self.hide():
            from whywait.support.units import format_ms

            _write(f"whywait: runs after {format_ms((monotonic() - self._since) * 1000)} of waiting\n")


def _is_in_foreground() -> bool:
    """Return whether stderr is a terminal, and this program the one that its user looks at."""
    try:
        return os.environ.get("TERM") != "dumb" and os.tcgetpgrp(_STDERR) == os.getpgrp()
    except OSError:
        return False


def _cut(text: str) -> str:
    """Make a text fit on one line of the terminal, with ``^C`` behind it: a longer one could not be cleared."""
    try:
        width = os.get_terminal_size(_STDERR).columns - len("^C") - 1
    except OSError:
        return text
    return text if width <= 0 or len(text) <= width else f"{text[: width - 1]}…"


def _write(text: str) -> None:
    with suppress(OSError):  # the terminal or the reader has gone; the command may not need them
        os.write(_STDERR, text.encode(errors="replace"))
