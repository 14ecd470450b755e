"""``whywait do``, from the request to the end of the command: ask, wait and say why, run it here, leave as it left."""

from __future__ import annotations

import os
import signal
import sys
from select import POLLIN, poll

from whywait.machine.client import Gone, LeaseRequest
from whywait.machine.waiting_line import WaitingLine

TYPE_CHECKING = False  # see the package itself
if TYPE_CHECKING:
    from typing import Any, Final

    from whywait.machine.client import Machine
    from whywait.machine.tokens import Tokens

NOT_PERMITTED: Final = 125  # as `env` and `timeout` say that they have failed and not the command
NOT_EXECUTABLE: Final = 126  # as shells say it
NOT_FOUND: Final = 127
_NEVER_RAN: Final = {
    "cancelled": "the request was cancelled",
    "max_wait": "the request has waited for as long as --max-wait allows",
    "displaced": "the request was dropped for one of higher priority, because the queue was full",
}


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
    try:
        request = LeaseRequest(machine, name, command=command, **asked)
        from whywait.machine.foreground import exit_code, run  # while the service decides
        from whywait.machine.permission import Permission

        granted = _wait(request, line)
    except KeyboardInterrupt:  # that the request is withdrawn, the service sees by the end of this process
        from whywait.machine.foreground import die_of

        line.hide()
        die_of(signal.SIGINT)
    if isinstance(granted, str):
        line.hide()
        return _fail(granted, NOT_PERMITTED)
    environment = {**os.environ, **granted["environment"]}
    tokens: Tokens | None = None
    if jobserver is not None:
        tokens = _tokens(request, jobserver, asked, environment)
    line.runs()
    try:
        status = run(Permission(request), command, environment, tokens)
    except FileNotFoundError as error:
        return _fail(f"{command[0]}: {error.strerror}", NOT_FOUND)
    except OSError as error:
        return _fail(f"{command[0]}: {error.strerror}", NOT_EXECUTABLE)
    return exit_code(status)


def _tokens(
    request: LeaseRequest,
    style: str,
    asked: dict[str, Any],
    environment: dict[str, str],
) -> Tokens:
    """Make the jobserver of the command, and tell the command of it by its environment."""
    from whywait.machine.jobserver import style_for
    from whywait.machine.tokens import Tokens

    tokens = Tokens(request, style_for(environment) if style == "auto" else style, asked)
    tokens.add_to(environment)
    return tokens


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
            if not request.has_message and woken in dict(watched.poll()):
                os.read(woken, 4096)
                continue
            message = request.receive()
            if "waiting" in message:
                line.show(message["waiting"])
            elif "granted" in message:
                granted: dict[str, Any] = message["granted"]
                return granted
            elif "ended" in message:
                cause = message["ended"]["cause"]
                return _NEVER_RAN.get(cause, f"the request has ended: {cause}")
    except Gone:
        return "the service has ended, and with it the request"
    finally:
        signal.signal(signal.SIGTSTP, before)
        signal.set_wakeup_fd(-1)
        os.close(woken)
        os.close(wake)


def _is_there(program: str) -> bool:
    """Return whether a program can be found: users who wait an hour want to know before."""
    if os.sep in program:
        return os.path.exists(program)
    return any(os.path.exists(os.path.join(folder, program)) for folder in os.get_exec_path())


def _fail(text: str, code: int) -> int:
    sys.stderr.write(f"whywait: {text}\n")
    return code
