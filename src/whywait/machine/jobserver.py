"""A GNU make jobserver whose tokens are cpu of the machine.

A jobserver is a fifo with bytes in it. A program such as make may run one job by itself; for each further one it takes
a byte out, and puts it back when that job has ended. Here each byte is one cpu that the machine has permitted:

1. The command's own demand (``--cpu 4``) pays for the job that needs no byte and for 3 bytes that are there from the
   start and stay.
2. A fifo does not tell that a program would like to take a byte, and some programs look only when a job has ended. So
   as long as no other task waits for cpu, all that the machine has to spare lies ready; it is asked for one by one.
3. While other tasks wait for cpu, what lies ready goes back to the machine, but for one byte, and that one too when it
   has lain for a while. Then one is asked for again, and has to wait like everything else.
4. A byte that a program took with it when it was killed stays charged until the command ends: no one can know that it
   is lost. Everything is given back with the command's permission, however it ends.

The same fifo serves both ways in which programs find a jobserver: as a path (make 4.4, ninja, cargo), and as two open
file descriptors (older make, too).
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import struct
import subprocess
import tempfile
import termios
from contextlib import suppress
from time import monotonic
from typing import Final, Protocol

TYPE_CHECKING = False  # see the package itself
if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping

TOKEN: Final = b"+"
IDLE_S: Final = 0.5  # how long a byte may lie ready while others wait for its cpu
LOOK_S: Final = 0.02  # how often to look at the fifo where the system does not tell of changes
_FIRST_WITH_FIFO: Final = (4, 4)  # of GNU make
_ACCESS, _MODIFY = 1, 2  # of <sys/inotify.h>
_CLOEXEC_NONBLOCK: Final = os.O_CLOEXEC | os.O_NONBLOCK
_VARIABLES: Final = ("CARGO_MAKEFLAGS", "MFLAGS")  # of a jobserver around this one; MAKEFLAGS is written anew


class Supply(Protocol):
    """Where cpu comes from, one at a time."""

    def ask(self) -> None:
        """Ask for one more; the answer is a call of :meth:`Jobserver.granted`, now or later."""

    def withdraw(self) -> None:
        """Take back what was asked for and not granted yet."""

    def give_back(self, count: int) -> None:
        """Return so many that were granted."""


class Jobserver:
    """One fifo with tokens, and the account of what is in it."""

    def __init__(self, style: str, owned: int, most: int) -> None:
        """Make the fifo with ``owned`` tokens that stay to the end, and never more than ``most``.

        ``style`` is how programs are told of it: ``fifo`` or ``pipe``.
        """
        self._style = style
        self._owned = owned
        self._most = most
        self._folder = tempfile.mkdtemp(prefix="whywait-jobserver-")
        self._path = os.path.join(self._folder, "fifo")
        os.mkfifo(self._path, 0o600)
        self._fd = os.open(self._path, os.O_RDWR | _CLOEXEC_NONBLOCK)
        self._watch = _watch(self._path)
        self._ends = () if style == "fifo" else (os.open(self._path, os.O_RDONLY), os.open(self._path, os.O_WRONLY))
        self._granted = 0
        self._is_asking = False
        self._is_wanted = False
        self._idle_since = monotonic()
        self._put(owned)

    def fileno(self) -> int:
        """Return what becomes readable when the fifo has changed; -1 where the system does not tell."""
        return self._watch

    @property
    def inherited(self) -> tuple[int, ...]:
        """The descriptors that the command has to inherit."""
        return self._ends

    def add_to(self, environment: MutableMapping[str, str]) -> None:
        """Tell the command of the jobserver."""
        auth = f"fifo:{self._path}" if self._style == "fifo" else ",".join(map(str, self._ends))
        for name in _VARIABLES:
            environment.pop(name, None)
        # What make was told of variables stands behind `--`; a flag behind that would be a target.
        before, dashes, variables = f" {environment.get('MAKEFLAGS', '')} ".partition(" -- ")
        flags = f"{before[1:].rstrip(' ')} -j{self._most + 1} --jobserver-auth={auth}"
        environment["MAKEFLAGS"] = f"{flags}{dashes}{variables}".rstrip(" ")

    def look(self, supply: Supply) -> None:
        """See what was taken and put back since the last time, and ask for more or give back."""
        with suppress(BlockingIOError):
            while self._watch >= 0:
                os.read(self._watch, 4096)
                self._idle_since = monotonic()
        ready = self._ready()
        kept = 1 if self._is_wanted else self._most
        wants_more = ready < kept and self._owned + self._granted < self._most
        if wants_more and not self._is_asking:
            self._is_asking = True
            supply.ask()
        elif self._is_asking and not wants_more:
            self._is_asking = False
            supply.withdraw()
        if self._is_wanted and monotonic() >= self._idle_since + IDLE_S:
            kept = 0
        if surplus := self._take(min(ready - kept, self._granted)):
            self._granted -= surplus
            supply.give_back(surplus)

    def granted(self) -> None:
        """Put a token that was asked for into the fifo."""
        self._is_asking = False
        self._granted += 1
        self._put(1)

    def wanted(self, *, is_wanted: bool) -> None:
        """Note whether other tasks wait for cpu."""
        self._is_wanted = is_wanted

    def timeout_s(self) -> float | None:
        """Return after how long to look again if nothing happens."""
        if self._watch < 0:
            return LOOK_S
        if self._is_wanted and self._granted and self._ready():
            return max(0.0, self._idle_since + IDLE_S - monotonic())
        return None

    def close(self) -> None:
        """Remove the fifo; what the command has inherited is the command's."""
        os.close(self._fd)
        if self._watch >= 0:
            os.close(self._watch)
        with suppress(OSError):
            os.unlink(self._path)
            os.rmdir(self._folder)

    def _ready(self) -> int:
        found: int = struct.unpack("i", fcntl.ioctl(self._fd, termios.FIONREAD, bytes(4)))[0]
        return found

    def _put(self, count: int) -> None:
        if count:
            os.write(self._fd, TOKEN * count)

    def _take(self, count: int) -> int:
        """Take so many tokens out, or as many as are left; return how many."""
        if count <= 0:
            return 0
        try:
            return len(os.read(self._fd, count))
        except BlockingIOError:  # programs were quicker
            return 0


def style_for(environment: Mapping[str, str]) -> str:
    """Return the way that the programs of this environment understand: a path, unless its make is too old for that."""
    try:
        told = subprocess.run(["make", "--version"], env=dict(environment), capture_output=True, text=True, check=False)  # noqa: S607
    except OSError:
        return "fifo"
    words = told.stdout.split(maxsplit=3)
    try:
        version = tuple(int(part) for part in words[2].split(".")[:2])
    except (IndexError, ValueError):
        return "fifo"  # another make, which knows no jobserver
    return "fifo" if version >= _FIRST_WITH_FIFO else "pipe"


def _watch(path: str) -> int:
    """Return a descriptor that becomes readable when something is read from a file or written to it, or -1."""
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "inotify_init1"):
        return -1
    fd: int = libc.inotify_init1(_CLOEXEC_NONBLOCK)
    if fd >= 0 and libc.inotify_add_watch(fd, os.fsencode(path), _ACCESS | _MODIFY) < 0:
        os.close(fd)
        return -1
    return fd
