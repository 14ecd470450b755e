"""The guard processes of this program: one for each tree that runs, and some that wait for the next.

``Guards._lock`` guards which guards wait, which are ending, and whether they are dismissed; nothing is taken under it.
A guard belongs to the tree that it was given to.
"""

from __future__ import annotations

import os
import resource
import secrets
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path
from threading import RLock
from typing import Any, Final

from whywait.support.forks import own
from whywait.trees import cgroups
from whywait.trees.system import remove_cgroup, send_signal
from whywait.trees.tree_guard import PART_SIZE, has_message, packed

ATTEMPTS: Final = 5
PATIENCE_S: Final = 0.5  # how long to wait for an answer before a guard is continued, should it have been stopped
SEND_S: Final = 10.0
IDLE_AT_MOST: Final = 32  # guards that wait for their next tree
GOODBYE_S: Final = 10.0  # a guard that is still starting ends when it has started, however busy the machine is
_LIMITS: Final = sorted({value for name, value in vars(resource).items() if name.startswith("RLIMIT_")})
_FOLDER: Final = str(Path(__file__).resolve().parent.parent)
# The package is imported without its __init__, which would load all of whywait.
_PROGRAM: Final = """\
import sys, types
sys.modules["whywait"] = package = types.ModuleType("whywait")
package.__path__ = sys.argv[1:2]
from whywait.trees.tree_guard import main
main(*sys.argv[2:])
"""


class GuardProcess:
    """A guard, as this program sees it: its process and the line to it."""

    def __init__(self) -> None:
        """Start it."""
        self.surroundings = _surroundings()
        base = cgroups.base()
        self._group = f"{base}/{cgroups.PREFIX}{secrets.token_hex(6)}" if base else ""
        self.line, theirs = socket.socketpair()
        self.line.setblocking(False)
        try:
            with theirs:
                self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and program
                    [sys.executable, "-I", "-S", "-c", _PROGRAM, _FOLDER, self._group],
                    stdin=theirs.fileno(),
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    process_group=0,
                )
        except BaseException:
            self.line.close()
            raise

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def send(self, request: dict[str, Any], fds: tuple[int, ...]) -> None:
        """Tell the guard what to start."""
        try:
            sent = socket.send_fds(self.line, [data := packed(request)], list(fds))
        except BlockingIOError:  # a guard that is new or has nothing to do has room
            raise TimeoutError("the guard does not read") from None
        if sent < len(data):
            self.line.settimeout(SEND_S)
            self.line.sendall(data[sent:])
            self.line.setblocking(False)

    def first_answer(self) -> bytes | bytearray:
        """Return what the guard has sent, at least a whole message; nothing if it was killed after it had the request.

        OSError: the guard has ended and never read the request, which the system tells by ECONNRESET.
        """
        poll = select.poll()
        poll.register(self.line, select.POLLIN)
        buffer = bytearray()
        while not has_message(buffer):
            if poll.poll(PATIENCE_S * 1000):
                data = self.line.recv(PART_SIZE)
                if not data:
                    return data
                buffer += data
            else:
                send_signal(self.pid, signal.SIGCONT)  # should it have been stopped
        return buffer

    def has_ended(self, within_s: float = 0.0) -> bool:
        """Return whether the process has ended, and wait so long for that; if so, let nothing of it stay."""
        if self._process.poll() is None:
            try:
                self._process.wait(within_s)
            except subprocess.TimeoutExpired:
                return False
        self.line.close()
        if self._group:
            remove_cgroup(self._group)  # of one that was killed
        return True

    def close(self) -> None:
        """Let the process end, with all that it guards."""
        self.line.close()

    def let_go(self) -> None:
        """In a fork of this program: it is the original's."""
        self._process.returncode = 0  # nothing to wait for
        self.line.close()


class Guards:
    """Knows the guards that wait for a tree, and those that are ending."""

    def __init__(self) -> None:
        """Begin without a process."""
        self._lock = RLock()
        self._idle: list[GuardProcess] = []  # the last was used last
        self._ending: list[GuardProcess] = []  # their lines are closed
        self._is_dismissed = False  # those that guard a tree end with it
        own(self)

    def start(self, request: dict[str, Any], fds: tuple[int, ...]) -> tuple[GuardProcess, bytearray]:
        """Have a tree started; return its guard, and what the guard has said first: nothing if it was killed.

        A guard that was killed with the request may have started the tree, so no other one is asked to.
        """
        attempts = ATTEMPTS
        while attempts:
            guard = self._waiting_one()
            if guard is None:
                attempts -= 1
                guard = GuardProcess()
            try:
                guard.send(request, fds)
                return guard, bytearray(guard.first_answer())
            except BaseException as error:
                self.lose(guard)  # one that has got the request ends all that it has started
                if not isinstance(error, OSError):  # else it was killed, or has just ended as it had nothing to do
                    raise
        raise ChildProcessError("the process that starts child processes does not answer")

    def take_back(self, guard: GuardProcess) -> None:
        """Have a guard wait for the next tree: nothing of its own lives."""
        with self._lock:
            if not self._is_dismissed and len(self._idle) < IDLE_AT_MOST:
                self._idle.append(guard)
                return
        self.lose(guard)

    def lose(self, guard: GuardProcess) -> None:
        """Let a guard end, or forget one that was killed."""
        guard.close()
        with self._lock:
            self._ending.append(guard)
            is_dismissed = self._is_dismissed
        self._bury(GOODBYE_S if is_dismissed else 0.0)

    def dismiss(self) -> None:
        """Let all guards end that have no tree, and the others with theirs; the next start makes others."""
        with self._lock:
            self._is_dismissed = True
            idle, self._idle = self._idle, []
            self._ending += idle
            for guard in idle:
                guard.close()
        self._bury(GOODBYE_S)

    def let_go(self) -> None:
        """In a fork of this program: have no guard, so that the original's see the original end."""
        for guard in (*self._idle, *self._ending):
            guard.let_go()
        self.__init__()  # type: ignore[misc] # as it was made

    def _waiting_one(self) -> GuardProcess | None:
        """Return a guard that waits in the same surroundings as this program has now; end those in others."""
        self._bury()
        with self._lock:
            self._is_dismissed = False
            now = _surroundings() if self._idle else None
            while self._idle:
                guard = self._idle.pop()
                if guard.surroundings == now:
                    return guard
                self.lose(guard)
        return None

    def _bury(self, within_s: float = 0.0) -> None:
        """Forget the guards that have ended, after a wait for each that is ending."""
        with self._lock:
            ending, self._ending = self._ending, []
        left = [guard for guard in ending if not guard.has_ended(within_s)]
        with self._lock:
            self._ending += left


def _surroundings() -> tuple[object, ...]:
    """Return what a child process would inherit of this program and a guard has from its own start."""
    root = os.stat("/")
    return (
        os.getresuid() if hasattr(os, "getresuid") else (os.getuid(), os.geteuid()),
        os.getresgid() if hasattr(os, "getresgid") else (os.getgid(), os.getegid()),
        os.getgroups(),
        (root.st_dev, root.st_ino),
        os.getsid(0),
        [resource.getrlimit(each) for each in _LIMITS],
        os.getpriority(os.PRIO_PROCESS, 0),
        os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None,
        _umask_and_ignored(),
        cgroups.base(),
    )


def _umask_and_ignored() -> tuple[bytes, bytes]:
    """Return the mask of new files and the signals that this program ignores, where the system tells them."""
    try:
        with open("/proc/self/status", "rb", buffering=0) as file:
            status = file.read(4096)
    except OSError:
        return b"", b""
    return _line_of(status, b"\nUmask:"), _line_of(status, b"\nSigIgn:")


def _line_of(status: bytes, name: bytes) -> bytes:
    return status.partition(name)[2].partition(b"\n")[0]


guards: Final = Guards()
