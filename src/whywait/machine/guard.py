"""The guard: the process between a client and its command, which ends when nothing of the command is left.

What it does, and what would go wrong without it:

0. The guard takes the permission, in a process group of its own: a client that is stopped before there is a guard has
   not taken it, and the service gives it to others; one that is stopped later has a command.
1. The shell waits for the client, so the client leaves as soon as the command has ended. Processes that the command
   left behind may live on; until they end, the permission is theirs. The guard stays and waits for them.
2. The guard is a subreaper: a descendant whose parent has ended becomes its child, also one that made itself a daemon.
   So "the guard has no child" and "nothing of the command is left" are the same.
3. The client is killed: its line to the guard ends, and the guard kills the whole tree.
4. The guard is killed: the kernel kills the command (its death signal), the client what the guard had besides. If both
   are killed, the service kills all that has the mark of the lease, which the command and its descendants inherit
   whatever session, environment or parent they give themselves.
5. The service is gone: its connection ends, and the guard ends the tree, first politely.
6. The service wishes a pause: the guard stops the command, then all else of the tree, and says so; without that the
   service would take it for one that does not heed a pause, and cancel it. The command comes first: if it is just
   starting a process (vfork), the system stops it when that has begun, which it never does if it is stopped before.
7. The terminal stops the command (Ctrl-Z): the guard tells the service, and again when it goes on. A pause and a stop
   are apart: a command that ``fg`` lets go on while it is paused is stopped again, and one that is resumed while the
   terminal has stopped it stays so. A client that was stopped alone (``kill -STOP``) cannot stop its command; the
   service sees it, and the guard does it.
8. What ends the command other than itself, the guard tells the client, which tells its user.

The command is in the process group of the client, so the terminal treats both as one job: Ctrl-C and Ctrl-Z reach the
command from the terminal, and a pipeline keeps its terminal. The guard is in a group of its own, so that what a shell
sends to the job (``kill -9 %1``) does not reach it. It holds neither terminal nor streams.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from time import monotonic

from whywait.machine.home import LEASE_VARIABLE
from whywait.machine.sources import Sources
from whywait.trees.system import (
    DEATH_SIGNAL,
    SUBREAPER,
    is_stopped,
    kills_for_memory,
    prctl,
    set_mark,
    signal_descendants,
)

TYPE_CHECKING = False  # see the package itself
if TYPE_CHECKING:
    import socket
    from collections.abc import Mapping
    from typing import Final, NoReturn

    from whywait.machine.permission import Permission
    from whywait.machine.tokens import Tokens

GRACE_S: Final = 1.0  # between SIGTERM and SIGKILL when the service is gone
AGAIN_S: Final = 0.05  # how soon to look again for what has to be killed
MESSAGE: Final = 4096  # bytes; all messages on the line are short
NOT_STARTED: Final = 127 << 8  # the status of a command that could not be started
LOST: Final = "lost"  # the cause of the end: the service was killed
KILLED: Final = "killed"  # the system has killed it for memory
LEAVES: Final = 0  # instead of a signal: the client leaves because the command has ended


class Guard:
    """Starts a command, tells the client what becomes of it, and waits for the last descendant."""

    def __init__(self, line: socket.socket, permission: Permission, tokens: Tokens | None) -> None:
        """Talk to the client over ``line``, and keep the ``tokens`` of the command's jobserver, if it has one."""
        self._line: socket.socket | None = line
        self._client = os.getppid()
        self._group = os.getpgrp()  # that of the client, and of the command
        self._permission: Permission | None = permission
        self._tokens = tokens
        self._sources = Sources()
        self._command = 0
        self._is_alive = False  # the command itself
        self._status = 0
        self._peak = 0  # of one process, in bytes
        self._cpu_s = 0.0
        self._has_told = False  # the client, that the command has ended and left processes behind
        self._kills_at: float | None = None
        self._is_stopped = False  # the command
        self._is_paused = False  # by the service
        self._is_held = False  # stopped by the terminal
        self._has_cause = False  # something else has begun to end the command
        self._kills = kills_for_memory()
        self._client_has_left = False
        self._client_sleeps = False  # it was told to stop with the command and has not said that it goes on

    def takes(self, environment: Mapping[str, str]) -> bool:
        """Step aside from the terminal and take the permission; return whether the service has not withdrawn it."""
        os.setpgid(0, 0)  # before there is a command: what stops that must not stop the guard
        assert self._permission is not None, "it is there at the start"
        if self._permission.takes(environment[LEASE_VARIABLE]):
            return True
        self._tell("withdrawn")
        return False

    def start(self, argv: list[str], environment: Mapping[str, str], mask: set[int]) -> None:
        """Start the command with this signal mask, in the process group of the client."""
        prctl(SUBREAPER, 1)
        prctl(DEATH_SIGNAL, signal.SIGCONT)  # of the client: a guard that is stopped has to see it
        try:
            failure = self._fork(argv, environment, mask)
        except OSError as error:  # the system has no process for it
            failure, self._status = error.errno, NOT_STARTED
        self._tell(f"failed {failure}" if failure else f"started {self._command}")
        os.chdir("/")
        null = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(null, stream)
        os.close(null)

    def _fork(self, argv: list[str], environment: Mapping[str, str], mask: set[int]) -> int | None:
        """Fork the command; return the number of the error if it could not become its program."""
        told, tell = os.pipe()
        guard = os.getpid()
        inherited = () if self._tokens is None else self._tokens.inherited
        try:
            pid = os.fork()
        except OSError:
            os.close(told)
            os.close(tell)
            raise
        if not pid:
            for fd in inherited:
                os.set_inheritable(fd, True)  # noqa: FBT003 - takes no keyword
            _become(argv, environment, mask, guard, self._group, tell)
        self._command, self._is_alive = pid, True
        os.close(tell)
        for fd in inherited:
            os.close(fd)
        failure = os.read(told, MESSAGE)
        os.close(told)
        return int(failure) if failure else None

    def watch(self) -> None:
        """Stay until nothing of the command is left; then give the permission back."""
        woken, wake = os.pipe()
        for end in (woken, wake):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, _nothing)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
        assert self._line is not None, "the client is there at the start"
        assert self._permission is not None, "so is the service"
        self._sources.add(woken, lambda: _drain(woken))
        self._sources.add(self._line.fileno(), self._read_client)
        self._sources.add(self._permission.fileno(), self._read_service)
        if self._tokens is not None:
            self._tokens.begin(self._sources)
        if self._permission.has_orders:  # they came together with the permission
            self._read_service()
        while self._reap():
            self._sources.wait(self._timeout_s())
            self._signal_again()
        if self._tokens is not None:
            self._tokens.close()
        if self._permission is not None:
            self._permission.ended(self._status, self._peak, self._cpu_s, out_of_memory=self._is_killed_for_memory())
        self._tell(f"gone {self._status}")
        while self._client_sleeps and self._line is not None:  # it was stopped with the command and would stay so
            os.kill(self._client, signal.SIGCONT)
            self._sources.wait(AGAIN_S)

    def _reap(self) -> bool:
        """Collect what has changed among the children; return whether there are any."""
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG | os.WUNTRACED | os.WCONTINUED)
            except ChildProcessError:
                return False
            if not pid:
                if not self._is_alive and not self._has_told:
                    self._has_told = True
                    self._tell(f"ended {self._status}")
                return True
            if not os.WIFSTOPPED(status) and not os.WIFCONTINUED(status):
                self._peak = max(self._peak, usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024))
                self._cpu_s += usage.ru_utime + usage.ru_stime
            if pid == self._command:
                self._heed(status)

    def _heed(self, status: int) -> None:
        """Tell the client what became of the command."""
        if os.WIFSTOPPED(status):
            self._is_stopped = self._client_sleeps = True
            if self._is_paused:
                self._tell("paused")
            else:
                self._hold(is_held=True)
            self._tell(f"stopped {os.WSTOPSIG(status)}")
            self._heed_pause()
        elif os.WIFCONTINUED(status):
            self._is_stopped = False
            self._hold(is_held=False)
        else:
            self._is_alive = self._is_stopped = False
            self._status = status
            if self._is_killed_for_memory():
                self._say_cause(KILLED)
            self._heed_pause()  # what it leaves behind

    def _hold(self, *, is_held: bool) -> None:
        """Tell the service that the terminal has stopped the command, or lets it go on, if that is news."""
        if is_held != self._is_held and self._permission is not None:
            self._is_held = is_held
            self._permission.stopped(is_stopped=is_held)

    def _is_killed_for_memory(self) -> bool:
        """Return whether the command was killed, by nothing of whywait, while the system killed for memory."""
        is_killed = os.WIFSIGNALED(self._status) and os.WTERMSIG(self._status) == signal.SIGKILL
        return is_killed and not self._has_cause and kills_for_memory(now=True) > self._kills

    def _say_cause(self, cause: str, by: str = "") -> None:
        """Tell the client what ends the command, unless that is told or the command has ended before."""
        if not self._has_cause:
            self._tell(f"because {cause} {by}")

    def _read_client(self) -> None:
        assert self._line is not None, "only a line that is there is polled"
        try:
            message = self._line.recv(MESSAGE)
        except ConnectionError:
            message = b""
        if message:
            self._pass_on(int(message))
            return
        self._line = None
        if not self._client_has_left:  # it was killed
            self._kill()
        raise EOFError

    def _pass_on(self, number: int) -> None:
        """Send a signal that the client got to the command."""
        if number == LEAVES:
            self._client_has_left = True
            return
        if number == signal.SIGCONT:
            self._client_sleeps = False
        if self._is_alive:
            os.kill(self._command, number)

    def _read_service(self) -> None:
        assert self._permission is not None, "only a permission that is there is polled"
        try:
            orders = self._permission.orders()
        except EOFError:
            self._permission = None
            self._tokens = None
            self._end_for(LOST)
            self._abort()
            self._kills_at = monotonic() + GRACE_S
            raise
        for order in orders:
            self._act(order)

    def _end_for(self, cause: str, by: str = "") -> None:
        """Note that something else than the command itself ends it, if it has not ended."""
        if self._is_alive:
            self._say_cause(cause, by)
            self._has_cause = True

    def _act(self, message: dict[str, str]) -> None:
        order = message["wish"]
        match order:
            case "abort":
                self._end_for(message["cause"], message.get("by", ""))
                self._abort()
            case "kill":
                self._end_for(message["cause"], message.get("by", ""))
                self._kill()
            case "stop":
                if not self._is_stopped and not self._client_sleeps and self._is_alive and is_stopped(self._client):
                    os.kill(self._command, signal.SIGSTOP)
            case "pause":
                self._is_paused = True
                self._heed_pause()
            case "resume":
                self._is_paused = False
                if not self._is_held:
                    self._is_stopped = False  # a pause that follows at once is not parked yet
                    signal_descendants(signal.SIGCONT)
            case "wanted" | "not wanted" if self._tokens is not None:
                self._tokens.wanted(is_wanted=order == "wanted")

    def _heed_pause(self) -> None:
        """Stop what a pause has to stop: the command, then what it has started, and tell the service."""
        if self._has_to_stop():
            os.kill(self._command, signal.SIGSTOP)
        elif self._is_paused:
            signal_descendants(signal.SIGSTOP)
            if self._permission is not None:
                self._permission.parked()

    def _abort(self) -> None:
        self._is_paused = False
        signal_descendants(signal.SIGTERM)
        signal_descendants(signal.SIGCONT)  # one that is stopped would never see it

    def _kill(self) -> None:
        self._kills_at = monotonic()

    def _signal_again(self) -> None:
        """Send signals that have had no effect yet."""
        if self._kills_at is not None and monotonic() >= self._kills_at:
            signal_descendants(signal.SIGKILL)
            self._kills_at = monotonic() + AGAIN_S
        if self._has_to_stop():
            self._heed_pause()
        if self._has_to_wake_client():
            os.kill(self._client, signal.SIGCONT)

    def _has_to_stop(self) -> bool:
        """Return whether the command is paused and has not stopped: a shell may have let it go on at that moment."""
        return self._is_paused and self._is_alive and not self._is_stopped

    def _has_to_wake_client(self) -> bool:
        """Return whether the client sleeps, or is about to, though its command goes on or has ended.

        It is woken until it says that it is awake: a signal that comes before it has stopped is lost.
        """
        return self._client_sleeps and not self._is_stopped and self._line is not None

    def _timeout_s(self) -> float | None:
        """Return after how long something is to be done if nothing happens before."""
        due = []
        if self._has_to_wake_client() or self._has_to_stop():
            due.append(AGAIN_S)
        if self._kills_at is not None:
            due.append(max(0.0, self._kills_at - monotonic()))
        return min(due, default=None)

    def _tell(self, message: str) -> None:
        """Send the client a message and a signal that makes it look."""
        if self._line is not None:
            with suppress(OSError):
                self._line.send(message.encode())
                os.kill(self._client, signal.SIGCHLD)


def _become(
    argv: list[str], environment: Mapping[str, str], mask: set[int], guard: int, group: int, tell: int
) -> NoReturn:
    """In the child: turn into the command; tell the number of the error if that fails."""
    try:
        prctl(DEATH_SIGNAL, signal.SIGKILL)
        if os.getppid() != guard:  # it was killed before the kernel knew
            os._exit(127)
        os.setpgid(0, group)  # that of the client
        set_mark(int(environment[LEASE_VARIABLE], 16))
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them; the command does not
            signal.signal(number, signal.SIG_DFL)
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # from here on it is the command that Ctrl-C ends
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        os.execvpe(argv[0], argv, environment)  # noqa: S606 - to run it is what the user wants
    except OSError as error:
        os.write(tell, str(error.errno).encode())
    finally:
        os._exit(127)


def _nothing(_number: int, _frame: object) -> None:
    """Be there, so that the wake-up pipe is written to."""


def _drain(fd: int) -> None:
    with suppress(BlockingIOError):
        while os.read(fd, 4096):
            pass


def watch_over(
    line: socket.socket,
    permission: Permission,
    argv: list[str],
    environment: Mapping[str, str],
    mask: set[int],
    tokens: Tokens | None,
) -> NoReturn:
    """Be the guard of a command until nothing of it is left, and leave."""
    try:
        guard = Guard(line, permission, tokens)
        if guard.takes(environment):
            guard.start(argv, environment, mask)
            guard.watch()
    except BaseException as error:  # noqa: BLE001 - two processes would unwind the same stack
        sys.excepthook(type(error), error, error.__traceback__)
        os._exit(70)
    os._exit(0)
