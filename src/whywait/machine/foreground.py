"""Run a command in the foreground of this terminal, as a shell's child would run: the client's side of it.

The client is what the shell started and waits for; the command is in the same process group (see ``do_guard.py``). So:

1. What the terminal sends (Ctrl-C, Ctrl-Z, window size, hang-up) reaches the command by itself; the client takes note
   of it and does nothing, because what happens now is for the command to decide. Only what comes before there is a
   command is passed on.
2. What another process sends to the client alone (``kill PID``) is passed on to the command.
3. The command stops: the client stops by the same signal, so that the shell sees its job stopped. ``fg`` and ``bg``
   continue the whole group; a client that is continued alone continues its command.
4. The guard is stopped: the client lets it go on, or nothing would notice the end of the command.
5. The command ends: the client leaves with its status; death by a signal is 128 + its number. After a SIGINT the client
   dies of SIGINT itself: a shell script goes on after a child that exits, and Ctrl-C is meant for the script too.
6. Something else ends the command: the client leaves with 128 + the signal that did, or 124 after its timeout, whatever
   the command makes of that signal.
"""

from __future__ import annotations

import os
import signal
import socket
from contextlib import suppress

from whywait.machine.do_guard import LEAVES, MESSAGE, watch_over
from whywait.trees.system import SUBREAPER, descendants, prctl, send_signal

TYPE_CHECKING = False  # see the package itself
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Final, NoReturn

    from whywait.machine.client import LeaseRequest
    from whywait.machine.jobserver import Tokens

TIMED_OUT: Final = "run_timeout"  # the cause of the end: as the kernel calls it
NOT_STARTED: Final = "failed"  # the command could not be started, and the status is the number of the error
UNGUARDED: Final = "unguarded"  # the guard was killed
TIMEOUT_STATUS: Final = 124  # as `timeout` leaves
SENT_BY_TERMINAL: Final = 0x80  # SI_KERNEL: no process sent it
_PASSED_ON: Final = frozenset({
    signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM,
    signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU, signal.SIGCONT,
})  # fmt: skip
_WAITED_FOR: Final = _PASSED_ON | {signal.SIGCHLD}


def run(
    request: LeaseRequest,
    argv: list[str],
    environment: Mapping[str, str],
    say_paused: Callable[[], None],
    tokens: Tokens | None = None,
) -> tuple[int, str, str] | None:
    """Run a command under a granted permission; return its wait status once it has ended, and what has ended it.

    None: the permission was withdrawn before, and nothing has run. What has ended it is a cause, empty if that was the
    command itself, and which client asked for it, empty if that is not known. ``say_paused`` is called when the service
    has paused the command. Descendants that it left behind keep the permission; a process that waits for them stays.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _WAITED_FOR)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # a parent may have left it ignored
    prctl(SUBREAPER, 1)  # of the guard's children, should it be killed
    guard = os.fork()
    if not guard:
        ours.close()
        watch_over(theirs, request, argv, environment, mask, tokens)
    theirs.close()
    try:
        return _follow(ours, guard, say_paused, tokens)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        ours.close()


def exit_code(status: int, cause: str) -> int:
    """Return the exit code that tells how a command ended; ``cause`` is what has ended it, if not the command itself.

    After a SIGINT that was not sent for such a cause this process dies of one too.
    """
    if cause == TIMED_OUT:
        return TIMEOUT_STATUS
    if not os.WIFSIGNALED(status):
        return 128 + signal.SIGTERM if cause else os.WEXITSTATUS(status)
    number = os.WTERMSIG(status)
    if number == signal.SIGINT and not cause:
        die_of(number)
    return 128 + number


def die_of(number: int) -> NoReturn:
    """End this process by a signal."""
    signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
    os.kill(os.getpid(), number)
    os._exit(128 + number)  # not reached


def _follow(
    line: socket.socket, guard: int, say_paused: Callable[[], None], tokens: Tokens | None
) -> tuple[int, str, str] | None:
    """Pass on signals, stop with the command, and return how it ended and for what cause; None: it never began."""
    cause = by = ""
    for word, rest in _heard(line, guard):
        match word:
            case "stopped":
                if signal.SIGCONT not in signal.sigpending():  # else this client was stopped before, and goes on
                    _stop(int(rest))
                _send(line, signal.SIGCONT)
            case "paused":
                say_paused()
            case "because":
                cause, _, by = rest.partition(" ")
            case "ended" | "gone" | "failed" | "withdrawn" | "lost":
                break
    if word == "lost":  # the guard was killed, and the kernel has killed the command
        if tokens is not None:
            tokens.close()
        _end_orphans()
        return signal.SIGKILL, cause or UNGUARDED, by
    _part(word, line, guard)
    if word == "withdrawn":
        return None
    return int(rest), NOT_STARTED if word == "failed" else cause, by


def _part(word: str, line: socket.socket, guard: int) -> None:
    """Leave a guard that stays with what the command left behind, wait for the end of any other."""
    if word == "ended":
        _send(line, LEAVES)
    else:
        os.waitpid(guard, 0)


def _heard(line: socket.socket, guard: int) -> Iterator[tuple[str, str]]:
    """Yield what the guard tells, as a word and the rest, and pass on signals meanwhile."""
    line.settimeout(0)
    is_started = False
    while True:
        got = signal.sigwaitinfo(_WAITED_FOR)
        if got.si_signo != signal.SIGCHLD:
            if got.si_code != SENT_BY_TERMINAL or not is_started:
                _send(line, got.si_signo)
            continue
        _wake(guard)
        for message in _messages(line):
            is_started = True
            yield message


def _wake(guard: int) -> None:
    """Let the guard go on if it was stopped."""
    with suppress(ChildProcessError):  # it has ended
        if os.waitid(os.P_PID, guard, os.WSTOPPED | os.WNOHANG) is not None:
            os.kill(guard, signal.SIGCONT)


def _messages(line: socket.socket) -> Iterator[tuple[str, str]]:
    """Yield what the guard has told since the last time, as a word and the rest; that it was killed is told too."""
    while True:
        try:
            message = line.recv(MESSAGE)
        except BlockingIOError:
            return
        except ConnectionResetError:
            continue  # the guard has left without reading all; what it told before is still to come
        word, _, rest = message.decode().partition(" ")
        yield word or "lost", rest


def _end_orphans() -> None:
    """Kill what the guard has left, which are children of this process now, until nothing is left."""
    while True:
        for pid in descendants(os.getpid()):
            send_signal(pid, signal.SIGKILL)
        try:
            os.wait()
        except ChildProcessError:
            return


def _stop(number: int) -> None:
    """Stop this process by a signal; return when it has been continued."""
    os.kill(
        os.getpid(), number
    )  # first, while it is blocked: the terminal may have sent it too, and one stop is enough
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
    signal.pthread_sigmask(signal.SIG_BLOCK, _WAITED_FOR)


def _send(line: socket.socket, number: int) -> None:
    with suppress(OSError):  # the guard is gone, which the next message tells
        line.send(str(number).encode())
