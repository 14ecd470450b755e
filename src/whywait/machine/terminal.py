"""``whywait do``, from the request to the end of the command: ask, wait and say why, run it here, leave as it left."""

from __future__ import annotations

import os
import signal
import sys
from errno import ENOENT
from select import POLLIN, poll

from whywait.errors import MachineError
from whywait.machine.client import Gone, LeaseRequest, quoted
from whywait.machine.waiting_line import WaitingLine

TYPE_CHECKING = False  # see the package itself
if TYPE_CHECKING:
    from typing import Any, Final

    from whywait.machine.client import Machine
    from whywait.machine.jobserver import Tokens

NOT_PERMITTED: Final = 125  # as `env` and `timeout` say that they have failed and not the command
NOT_EXECUTABLE: Final = 126  # as shells say it
NOT_FOUND: Final = 127
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
                tokens = tokens or _tokens(request, jobserver, command[0], asked)
                tokens.add_to(environment)
            line.runs()
            ended = run(request, command, environment, lambda: _say_paused(request.id), tokens)
    except KeyboardInterrupt:  # that the request is withdrawn, the service sees by the end of this process
        from whywait.machine.foreground import die_of

        line.hide()
        die_of(signal.SIGINT)
    status, cause, by = ended
    if cause == NOT_STARTED:
        return _fail(f"{command[0]}: {os.strerror(status)}", NOT_FOUND if status == ENOENT else NOT_EXECUTABLE)
    if cause:
        told = _ENDED.get(cause, cause).format(by=by or _UNKNOWN)
        sys.stderr.write(f"whywait: {request.id} was ended: {told}\n")
    return exit_code(status, cause)


def _say_paused(name: str) -> None:
    sys.stderr.write(f"whywait: {name} is paused by whywait pause; it goes on with: whywait resume {name}\n")


def _tokens(
    request: LeaseRequest,
    style: str,
    program: str,
    asked: dict[str, Any],
) -> Tokens:
    """Make the jobserver of the command."""
    from whywait.machine.jobserver import Tokens, style_for

    return Tokens(request, style_for(program, os.environ) if style == "auto" else style, asked)


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
            elif not found and line.is_seen:
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


def _fail(text: str, code: int) -> int:
    sys.stderr.write(f"whywait: {text}\n")
    return code
