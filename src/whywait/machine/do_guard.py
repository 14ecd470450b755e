"""The guard of ``whywait do``: what the guard of a tree does, for a command in a terminal under a permission.

What it does beside what every guard does (``trees/tree_guard.py``), and what would go wrong without it:

0. The guard takes the permission, in a process group of its own: a client that is stopped before there is a guard has
   not taken it, and the service gives it to others; one that is stopped later has a command (M15).
1. The shell waits for the client, so the client leaves as soon as the command has ended. Processes that the command
   left behind may live on; until they end, the permission is theirs. The guard stays and waits for them (M3).
2. The client is killed: its line to the guard ends, and the guard kills the whole tree (M3).
3. The guard is killed: the system kills the command (its death signal), the client what the guard had besides. If both
   are killed, the service kills all that has the mark of the lease (M3).
4. The service is gone: its connection ends, and the guard ends the tree, first politely (M5).
5. The service wishes a pause: the guard stops the command, then all else of the tree, and says so; without that the
   service would take it for one that does not heed a pause, and cancel it. The command comes first: if it is just
   starting a process (vfork), the system stops it when that has begun, which it never does if it is stopped before.
6. The terminal stops the command (Ctrl-Z): the guard tells the service, and again when it goes on. A pause and a stop
   are apart: a command that ``fg`` lets go on while it is paused is stopped again, and one that is resumed while the
   terminal has stopped it stays so. A client that was stopped alone (``kill -STOP``) cannot stop its command; the
   service sees it, and the guard does it (M15).
7. What ends the command other than itself, the guard tells the client, which tells its user (M14).

The command is in the process group of the client, so the terminal treats both as one job: Ctrl-C and Ctrl-Z reach the
command from the terminal, and a pipeline keeps its terminal. The guard is in a group of its own, so that what a shell
sends to the job (``kill -9 %1``) does not reach it. It holds neither terminal nor streams.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress

from whywait.errors import MachineError
from whywait.machine.client import Gone
from whywait.machine.home import LEASE_VARIABLE
from whywait.trees.system import is_stopped, kills_for_memory, signal_descendants
from whywait.trees.tree_guard import AGAIN_S, Guard, Sources, become_guard

TYPE_CHECKING = False  # see the package itself
if TYPE_CHECKING:
    import socket
    from collections.abc import Mapping
    from typing import Final, NoReturn

    from whywait.machine.client import LeaseRequest
    from whywait.machine.jobserver import Tokens

GRACE_S: Final = 1.0  # between SIGTERM and SIGKILL when the service is gone
MESSAGE: Final = 4096  # bytes; all messages on the line are short
NOT_STARTED: Final = 127 << 8  # the status of a command that could not be started
LOST: Final = "lost"  # the cause of the end: the service was killed
KILLED: Final = "killed"  # the system has killed it for memory
LEAVES: Final = 0  # instead of a signal: the client leaves because the command has ended


class DoGuard(Guard):
    """Starts a command, tells the client what becomes of it, and waits for the last descendant."""

    def __init__(self, line: socket.socket, request: LeaseRequest, tokens: Tokens | None) -> None:
        """Talk to the client over ``line``, and keep the ``tokens`` of the command's jobserver, if it has one."""
        super().__init__(Sources())
        self._line: socket.socket | None = line
        self._client = os.getppid()
        self._group = os.getpgrp()  # that of the client, and of the command
        self._request: LeaseRequest | None = request  # None: the service is gone
        self._tokens = tokens
        self._is_alive = False  # the command itself
        self._status = 0
        self._has_told = False  # the client, that the command has ended and left processes behind
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
        assert self._request is not None, "it is there at the start"
        with suppress(MachineError):  # the service is gone, which the request tells
            if self._request.takes(environment):
                return True
        self._tell("withdrawn")
        return False

    def start(self, argv: list[str], environment: Mapping[str, str], mask: set[int]) -> None:
        """Start the command with this signal mask, in the process group of the client."""
        become_guard(self.sources)
        inherited = () if self._tokens is None else self._tokens.inherited
        reset = [signal.SIGPIPE, signal.SIGXFSZ]  # Python ignores them; the command does not
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            reset.append(signal.SIGINT)  # from here on it is the command that Ctrl-C ends
        refused = self.fork(
            argv,
            environment,
            group=self._group,
            mark=int(environment[LEASE_VARIABLE], 16),
            files=[(fd, fd) for fd in inherited],
            reset=reset,
            mask=mask,
        )
        for fd in inherited:
            os.close(fd)
        if refused is None:
            self._is_alive = True
            self._tell(f"started {self.child}")
        else:
            self._status = NOT_STARTED
            self._tell(f"failed {refused[0]}")
        os.chdir("/")
        null = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(null, stream)
        os.close(null)

    def watch(self) -> None:
        """Stay until nothing of the command is left; then give the permission back."""
        assert self._line is not None, "the client is there at the start"
        assert self._request is not None, "so is the service"
        self.sources.add(self._line.fileno(), self._read_client)
        self.sources.add(self._request.fileno(), self._read_service)
        if self._tokens is not None:
            self._tokens.begin(self.sources)
        if self._request.has_message:  # it came together with the permission
            self._read_service()
        super().watch()
        if self._tokens is not None:
            self._tokens.close()
        if self._request is not None:
            code = os.waitstatus_to_exitcode(self._status)
            with suppress(MachineError):  # the service is gone, or has taken it back
                self._request.ended(
                    code, peak_ram=self.peak, cpu_s=self.cpu_s, out_of_memory=self._is_killed_for_memory()
                )
        self._tell(f"gone {self._status}")
        while self._client_sleeps and self._line is not None:  # it was stopped with the command and would stay so
            os.kill(self._client, signal.SIGCONT)
            self.sources.wait(AGAIN_S)

    def changed(self, status: int) -> None:
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
                self._tell(f"because {KILLED} ")
            self._heed_pause()  # what it leaves behind

    def _hold(self, *, is_held: bool) -> None:
        """Tell the service that the terminal has stopped the command, or lets it go on, if that is news."""
        if is_held != self._is_held and self._request is not None:
            self._is_held = is_held
            with suppress(MachineError):
                self._request.tell("stopped", stopped=is_held)

    def _is_killed_for_memory(self) -> bool:
        """Return whether the command was killed, by nothing of whywait, while the system killed for memory."""
        is_killed = os.WIFSIGNALED(self._status) and os.WTERMSIG(self._status) == signal.SIGKILL
        return is_killed and not self._has_cause and kills_for_memory(now=True) > self._kills

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
            self.kill()
        raise EOFError

    def _pass_on(self, number: int) -> None:
        """Send a signal that the client got to the command."""
        if number == LEAVES:
            self._client_has_left = True
            return
        if number == signal.SIGCONT:
            self._client_sleeps = False
        if self._is_alive:
            os.kill(self.child, number)

    def _read_service(self) -> None:
        """Do what the service wishes of the command; end the command if the service is gone."""
        assert self._request is not None, "only a service that is there is polled"
        try:
            messages = [self._request.receive()]
            while self._request.has_message:
                messages.append(self._request.receive())
        except Gone:
            self._request = self._tokens = None
            self._end_for(LOST)
            self._abort()
            self.kill(GRACE_S)
            raise EOFError from None
        for message in messages:
            if "wish" in message:
                self._act(message)

    def _end_for(self, cause: str, by: str = "") -> None:
        """Tell the client what ends the command, unless that is told or the command has ended before."""
        if self._is_alive and not self._has_cause:
            self._has_cause = True
            self._tell(f"because {cause} {by}")

    def _act(self, message: dict[str, str]) -> None:
        order = message["wish"]
        if "cause" in message:
            self._end_for(message["cause"], message.get("by", ""))
        match order:
            case "abort":
                self._abort()
            case "kill":
                self.kill()
            case "stop":
                if not self._is_stopped and not self._client_sleeps and self._is_alive and is_stopped(self._client):
                    os.kill(self.child, signal.SIGSTOP)
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
            os.kill(self.child, signal.SIGSTOP)
        elif self._is_paused:
            signal_descendants(signal.SIGSTOP)
            if self._request is not None:
                with suppress(MachineError):  # the service is gone, or the wish is no longer there
                    self._request.tell("parked")

    def _abort(self) -> None:
        self._is_paused = False
        signal_descendants(signal.SIGTERM)
        signal_descendants(signal.SIGCONT)  # one that is stopped would never see it

    def act(self) -> None:
        """Send signals that have had no effect yet."""
        super().act()
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

    def rest_s(self) -> float | None:
        """Return after how long a signal is to be sent again; tell the client before that its command has ended."""
        if not self._is_alive and not self._has_told:
            self._has_told = True
            self._tell(f"ended {self._status}")
        rest_s = super().rest_s()
        if self._has_to_wake_client() or self._has_to_stop():
            return AGAIN_S if rest_s is None else min(AGAIN_S, rest_s)
        return rest_s

    def _tell(self, message: str) -> None:
        """Send the client a message and a signal that makes it look."""
        if self._line is not None:
            with suppress(OSError):
                self._line.send(message.encode())
                os.kill(self._client, signal.SIGCHLD)


def watch_over(
    line: socket.socket,
    request: LeaseRequest,
    argv: list[str],
    environment: Mapping[str, str],
    mask: set[int],
    tokens: Tokens | None,
) -> NoReturn:
    """Be the guard of a command until nothing of it is left, and leave."""
    try:
        guard = DoGuard(line, request, tokens)
        if guard.takes(environment):
            guard.start(argv, environment, mask)
            guard.watch()
    except BaseException as error:  # noqa: BLE001 - two processes would unwind the same stack
        sys.excepthook(type(error), error, error.__traceback__)
        os._exit(70)
    os._exit(0)
