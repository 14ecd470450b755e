"""The keeper process of this program: made when a first tree is started, replaced when it is of no use any more.

``Keepers._lock`` guards which keepers, trees and idle lines there are; nothing is taken under it. A line belongs to the
tree that it was given to. The guard of a tree is read without a lock: a number that is set once.
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
from contextlib import suppress
from pathlib import Path
from threading import RLock
from typing import Any, Final, Protocol

from whywait.support.forks import own
from whywait.trees import cgroups
from whywait.trees.system import send_signal, started_at
from whywait.trees.wire import ADOPT, CALL, HANDSHAKE, LOST, PART_SIZE, RETIRE, has_message, packed

ATTEMPTS: Final = 5
PATIENCE_S: Final = 0.5  # how long to wait for an answer before the keeper is looked at
SEND_S: Final = 10.0
IDLE_AT_MOST: Final = 32  # guards that wait for their next tree
GOODBYE_S: Final = 10.0  # a keeper that is still starting ends when it has started, however busy the machine is
_LOST: Final = packed(LOST)
_LIMITS: Final = sorted({value for name, value in vars(resource).items() if name.startswith("RLIMIT_")})
_FOLDER: Final = str(Path(__file__).resolve().parent.parent)
# The package is imported without its __init__, which would load all of whywait.
_PROGRAM: Final = """\
import sys, types
sys.modules["whywait"] = package = types.ModuleType("whywait")
package.__path__ = sys.argv[1:2]
from whywait.trees.keeper import main
main(*sys.argv[2:])
"""


class Guarded(Protocol):
    """A tree, as far as a new keeper has to know it."""

    @property
    def guard(self) -> int:
        """The pid of its guard; 0 if there is none."""


class Line:
    """The line to a guard."""

    def __init__(self, keeper: KeeperProcess, ours: socket.socket) -> None:
        """Have the line to a new guard of a keeper."""
        self.keeper = keeper
        self.socket = ours
        self.socket.setblocking(False)  # noqa: FBT003 - takes no keyword
        self.guard = 0  # its pid, once it has said so
        self.is_lost = False  # the guard was killed

    def close(self) -> None:
        """Let the guard end, with all that it guards."""
        self.socket.close()

    def send(self, request: dict[str, Any], fds: tuple[int, ...]) -> None:
        """Tell the guard what to start."""
        try:
            sent = socket.send_fds(self.socket, [data := packed(request)], list(fds))
        except BlockingIOError:  # a guard that is new or has nothing to do has room
            raise TimeoutError("the guard does not read") from None
        if sent < len(data):
            self.socket.settimeout(SEND_S)
            self.socket.sendall(data[sent:])
            self.socket.setblocking(False)  # noqa: FBT003 - takes no keyword

    def first_answer(self) -> bytearray | None:
        """Return what the guard has sent, at least a whole message; None if none will come."""
        poll = select.poll()
        poll.register(self.socket, select.POLLIN)
        buffer = bytearray()
        while not has_message(buffer):
            if poll.poll(PATIENCE_S * 1000):
                data = self.socket.recv(PART_SIZE)
                if not data:
                    return None
                buffer += data
            elif not self.keeper.is_well():
                return None
            elif self.guard:
                send_signal(self.guard, signal.SIGCONT)  # should it have been stopped
        return None if buffer.startswith(_LOST) else buffer


class KeeperProcess:
    """One keeper process, as this program sees it."""

    def __init__(self) -> None:
        """Start it."""
        self.surroundings = _surroundings()
        self._line, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and program
                [sys.executable, "-I", "-S", "-c", _PROGRAM, _FOLDER, cgroups.base(), secrets.token_hex(4)],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                process_group=0,
            )

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def is_well(self) -> bool:
        """Return whether the process is there and not stopped."""
        try:
            looked = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WSTOPPED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return False
        return looked is None

    def call(self, kind: bytes, pid: int = 0, started: int = 0, *, line: socket.socket | None = None) -> None:
        """Ask something of the process; a line goes with it to a new guard."""
        data = CALL.pack(kind, pid, started)
        if line is None:
            self._line.sendall(data)
        else:
            socket.send_fds(self._line, [data], [line.fileno()])

    def new_line(self) -> Line:
        """Have a guard made; return the line to it."""
        ours, theirs = socket.socketpair()
        with theirs, suppress(OSError):  # it went in this moment: no answer will come
            self.call(HANDSHAKE, line=theirs)
        return Line(self, ours)

    def retire(self) -> None:
        """Let the process end once it has no guard left."""
        with suppress(OSError):  # it has ended already
            self.call(RETIRE)

    def wait_end(self) -> None:
        """Give a process that was retired the time to end."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(GOODBYE_S)

    def has_ended(self) -> bool:
        """Return whether the process has ended; if so, release what it had here."""
        if self._process.poll() is None:
            return False
        self._line.close()
        return True

    def kill(self) -> None:
        """Kill the process; its guards and their trees go on."""
        self._process.kill()
        self._process.wait()
        self._line.close()

    def let_go(self) -> None:
        """In a fork of this program: it is the original's."""
        self._process.returncode = 0  # nothing to wait for
        self._line.close()


class Keepers:
    """Knows the keeper that starts the next tree, and those that still look after earlier ones."""

    def __init__(self) -> None:
        """Begin without a process."""
        self._lock = RLock()  # guards all that follows, and what is said to keepers but for the lines to guards
        self.keeper: KeeperProcess | None = None
        self._retired: list[KeeperProcess] = []
        self._idle: list[Line] = []  # to guards of the keeper that have nothing to guard; the last was used last
        self._trees: set[Guarded] = set()  # those that are being started, too: their guard is 0 so far
        self._is_dismissed = False  # the keeper is to end with the last tree
        own(self)

    def start(self, request: dict[str, Any], fds: tuple[int, ...]) -> tuple[Line, bytearray]:
        """Have a tree started; return the line to its guard, and what the guard has said first."""
        attempts = ATTEMPTS
        while attempts:
            with self._lock:
                keeper = self._usable()
                is_used = bool(self._idle)  # if it fails, its guard was killed, and that is all
                line = self._idle.pop() if is_used else keeper.new_line()
            try:
                answer = None
                with suppress(OSError):  # it went in this moment: no answer will come
                    line.send(request, fds)
                    answer = line.first_answer()
            except BaseException:
                line.close()  # a guard that has got it ends by that, with all that it has started
                raise
            if answer is not None:
                return line, answer
            line.close()
            if not is_used:
                attempts -= 1
                with self._lock:
                    self._discard(keeper)
        raise ChildProcessError("the process that starts child processes does not answer")

    def add(self, tree: Guarded) -> None:
        """Keep the keeper for a tree that is about to be started, and tell later keepers of it."""
        with self._lock:
            self._trees.add(tree)
            self._is_dismissed = False

    def remove(self, tree: Guarded, line: Line | None = None) -> None:
        """Forget a tree of which nothing is left, or that could not be started; the next may have its guard."""
        with self._lock:
            self._trees.discard(tree)
            if line is not None:
                is_of_use = line.keeper is self.keeper and not (line.is_lost or self._is_dismissed)
                if is_of_use and len(self._idle) < IDLE_AT_MOST:
                    self._idle.append(line)
                else:
                    line.close()
            is_dismissed = self._is_dismissed
        if is_dismissed:
            self.dismiss()

    def dismiss(self) -> None:
        """Let the keeper end, now or with the last tree; the next start makes another."""
        with self._lock:
            self._is_dismissed = True
            self._drop_idle()
            if self.keeper is not None and not self._trees:
                self._retire(self.keeper)
            leaving = [] if self._trees else list(self._retired)  # earlier ones too
        for keeper in leaving:
            keeper.wait_end()
        with self._lock:
            self._bury()

    def let_go(self) -> None:
        """In a fork of this program: have no keeper, so that the original's sees the original end."""
        for keeper in (self.keeper, *self._retired):
            if keeper is not None:
                keeper.let_go()
        self._drop_idle()
        self._lock = RLock()
        self.keeper, self._retired, self._trees, self._is_dismissed = None, [], set(), False
        own(self)

    def _usable(self) -> KeeperProcess:
        """Return a keeper that answers and is in the same surroundings as this program; called under the lock."""
        keeper = self.keeper
        if keeper is not None and not keeper.is_well():
            self._discard(keeper)
        elif keeper is not None and keeper.surroundings != _surroundings():
            self._retire(keeper)
        self._bury()
        if self.keeper is None:
            self.keeper = KeeperProcess()
            for guard in [tree.guard for tree in self._trees if tree.guard]:
                with suppress(OSError):  # it went in this moment
                    self.keeper.call(ADOPT, guard, started_at(guard))
        return self.keeper

    def _discard(self, keeper: KeeperProcess) -> None:
        """Kill a keeper that does not answer, unless another thread has done so."""
        if self.keeper is keeper:
            self.keeper = None
            self._drop_idle()
            keeper.kill()

    def _drop_idle(self) -> None:
        """Let the guards end that have nothing to guard."""
        for line in self._idle:
            line.close()
        self._idle.clear()

    def _retire(self, keeper: KeeperProcess) -> None:
        self.keeper = None
        self._drop_idle()
        keeper.retire()
        self._retired.append(keeper)

    def _bury(self) -> None:
        self._retired[:] = [keeper for keeper in self._retired if not keeper.has_ended()]


def _surroundings() -> tuple[object, ...]:
    """Return what a child process would inherit of this one and a keeper has from its own start."""
    root = os.stat("/")  # noqa: PTH116 - asked for at each start
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
        with open("/proc/self/status", "rb", buffering=0) as file:  # noqa: PTH123 - asked for at each start
            status = file.read(4096)
    except OSError:
        return b"", b""
    return _line_of(status, b"\nUmask:"), _line_of(status, b"\nSigIgn:")


def _line_of(status: bytes, name: bytes) -> bytes:
    return status.partition(name)[2].partition(b"\n")[0]


keepers: Final = Keepers()
