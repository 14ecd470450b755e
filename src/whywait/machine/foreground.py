"""Run a command in the foreground of this terminal, as a shell's child would run: the client's side of it.

The client is what the shell started and waits for; the command is in the same process group (see ``guard.py``). So:

1. What the terminal sends (Ctrl-C, Ctrl-Z, window size, hang-up) reaches the command by itself; the client takes note
   of it and does nothing, because what happens now is for the command to decide. Only what comes before there is a
   command is passed on.
2. What another process sends to the client alone (``kill PID``) is passed on to the command.
3. The command stops: the client stops by the same signal, so that the shell sees its job stopped. ``fg`` and ``bg``
   continue the whole group; a client that is continued alone continues its command.
4. The guard is stopped: the client lets it go on, or nothing would notice the end of the command.
5. The command ends: the client leaves with its status; death by a signal is 128 + its number. After a SIGINT the client
   dies of SIGINT itself: a shell script goes on after a child that exits, and Ctrl-C is meant for the script too.
"""

from __future__ import annotations

import os
import signal
import socket
from contextlib import suppress

from whywait.machine.guard import LEAVES, MESSAGE, watch_over
from whywait.trees.system import SUBREAPER, descendants, prctl, send_signal

TYPE_CHECKING = False  # see the package itself
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Final, NoReturn

    from whywait.machine.permission import Permission
    from whywait.machine.tokens import Tokens

SENT_BY_TERMINAL: Final = 0x80  # SI_KERNEL: no process sent it
_PASSED_ON: Final = frozenset({
    signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM,
    signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU, signal.SIGCONT,
})  # fmt: skip
_WAITED_FOR: Final = _PASSED_ON | {signal.SIGCHLD}


def run(permission: Permission, argv: list[str], environment: Mapping[str, str], tokens: Tokens | None = None) -> int:
    """Run a command under a permission; return its wait status once it has ended. OSError: it could not be started.

    Descendants that it left behind keep the permission, and a process that waits for them stays.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _WAITED_FOR)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # a parent may have left it ignored
    prctl(SUBREAPER, 1)  # of the guard's children, should it be killed
    guard = os.fork()
    if not guard:
        ours.close()
        watch_over(theirs, permission, argv, environment, mask, tokens)
    theirs.close()
    try:
        return _follow(ours, guard, tokens)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def exit_code(status: int) -> int:
    """Return the exit code that tells how a command ended; after a SIGINT this process dies of one too."""
    if not os.WIFSIGNALED(status):
        return os.WEXITSTATUS(status)
    number = os.WTERMSIG(status)
    if number == signal.SIGINT:
        die_of(number)
    return 128 + number


def die_of(number: int) -> NoReturn:
    """End this process by a signal."""
    signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
    os.kill(os.getpid(), number)
    os._exit(128 + number)  # not reached


def _follow(line: socket.socket, guard: int, tokens: Tokens | None) -> int:
    """Pass on signals, stop with the command, and return how it ended."""
    line.settimeout(0)
    is_started = False
    while True:
        got = signal.sigwaitinfo(_WAITED_FOR)
        if got.si_signo != signal.SIGCHLD:
            if got.si_code != SENT_BY_TERMINAL or not is_started:
                _send(line, got.si_signo)
            continue
        _wake(guard)
        for word, number in _messages(line):
            is_started = True
            if word == "stopped":
                _stop(number)
                _send(line, signal.SIGCONT)
            elif word != "started":
                if tokens is not None and word == "lost":
                    tokens.close()
                return _end(word, number, line, guard)


def _wake(guard: int) -> None:
    """Let the guard go on if it was stopped."""
    with suppress(ChildProcessError):  # it has ended
        if os.waitid(os.P_PID, guard, os.WSTOPPED | os.WNOHANG) is not None:
            os.kill(guard, signal.SIGCONT)


def _end(word: str, number: int, line: socket.socket, guard: int) -> int:
    """Return how the command ended, when nothing is left to do about it here."""
    match word:
        case "ended":  # the guard stays with what the command left behind
            _send(line, LEAVES)
        case "gone":
            os.waitpid(guard, 0)
        case "failed":
            raise OSError(number, os.strerror(number))
        case "lost":  # the guard was killed, and the kernel has killed the command
            _end_orphans()
            return signal.SIGKILL
    return number


def _messages(line: socket.socket) -> Iterator[tuple[str, int]]:
    """Yield what the guard has told since the last time; that it was killed is told too."""
    while True:
        try:
            message = line.recv(MESSAGE)
        except BlockingIOError:
            return
        except ConnectionResetError:
            continue  # the guard has left without reading all; what it told before is still to come
        word, _, number = message.decode().partition(" ")
        yield (word, int(number)) if word else ("lost", 0)


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
