"""A GNU make jobserver whose tokens are cpu of the machine.

A jobserver is a pipe with bytes in it. A program such as make may run one job by itself; for each further one it takes
a byte out, and puts it back when that job has ended. Here each byte is one cpu that the machine has permitted:

1. The command's own demand (``--cpu 4``) pays for the job that needs no byte and for 3 bytes that are there from the
   start and stay.
2. A pipe does not tell that a program would like to take a byte, and some programs look only when a job has ended. So
   as long as no other task waits for cpu, all that the machine has to spare lies ready; it is asked for one by one.
3. While other tasks wait for cpu, nothing is asked for, and what lies ready or comes back goes to the machine, down to
   the one job that needs no byte and the bytes of (1).
4. A byte that a program took with it when it was killed stays charged until the command ends: no one can know that it
   is lost. Everything is given back with the command's permission, however it ends.

There are two ways in which programs find a jobserver, and they differ in (3):

- ``pipe``: two open file descriptors, of two pipes. Programs take bytes out of the one and put them into the other, so
  each byte that comes back passes through here and goes where it is wanted. All versions of make understand it, and so
  does cargo, which puts a byte back only when it has no job left for it; ninja does not, nor does a program to which
  the descriptors do not come down.
- ``fifo``: a path (make 4.4, ninja 1.13, cargo). Bytes are put back where they are taken from. What comes back while
  other tasks wait is taken out as soon as it is seen; a program that takes it again at once may be quicker.

The tokens are permissions of one cpu without a slot, parts of that of the command: when that has ended, they have too,
however the client ended.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from contextlib import suppress
from typing import Final

from whywait.errors import MachineError
from whywait.machine.client import LeaseRequest

TYPE_CHECKING = False  # see the package itself
if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping
    from typing import Any

    from whywait.machine.client import Machine
    from whywait.trees.tree_guard import Sources

TOKEN: Final = b"+"
_FIRST_WITH_FIFO: Final = (4, 4)  # of GNU make
_BY_PIPE: Final = frozenset(("make", "gmake", "cargo"))  # programs of which all versions understand it
_BY_FIFO: Final = frozenset(("ninja", "samu"))
_VARIABLES: Final = ("CARGO_MAKEFLAGS", "MFLAGS")  # of a jobserver around this one; MAKEFLAGS is written anew


class Jobserver:
    """The pipes with tokens, and the account of what is in them; ``Tokens`` has where cpu comes from, one at a time."""

    def __init__(self, style: str, owned: int, most: int) -> None:
        """Make the pipes with ``owned`` tokens that stay to the end, and never more than ``most``.

        ``style`` is how programs are told of it: ``fifo`` or ``pipe``.
        """
        self._style = style
        self._owned = owned
        self._most = most
        self._folder = tempfile.mkdtemp(prefix="whywait-jobserver-")
        self._taken_from = self._make("fifo")
        self._put_into = self._taken_from if style == "fifo" else self._make("back")
        # The descriptors that the command has to inherit.
        self.inherited = () if style == "fifo" else (self._open("fifo", os.O_RDONLY), self._open("back", os.O_WRONLY))
        self._granted = 0
        self._is_asking = False
        self._is_wanted = False
        self._put(owned)

    def ask(self) -> None:
        """Ask for one more cpu; the answer is a call of :meth:`granted`, now or later."""
        raise NotImplementedError

    def withdraw(self) -> None:
        """Take back what was asked for and not granted yet."""
        raise NotImplementedError

    def give_back(self, count: int) -> None:
        """Return so many that were granted."""
        raise NotImplementedError

    def _make(self, name: str) -> int:
        """Make a pipe; return a descriptor that reads and writes, so that neither end is ever closed."""
        os.mkfifo(os.path.join(self._folder, name), 0o600)
        return self._open(name, os.O_RDWR | os.O_NONBLOCK)

    def _open(self, name: str, flags: int) -> int:
        return os.open(os.path.join(self._folder, name), flags | os.O_CLOEXEC)

    def fileno(self) -> int:
        """Return what becomes readable when a token has come back."""
        return self._put_into

    @property
    def has_to_look(self) -> bool:
        """Whether a token that has come back has to be taken: by a pipe always, by a fifo if others want it."""
        return self._style == "pipe" or (self._is_wanted and self._granted > 0)

    def add_to(self, environment: MutableMapping[str, str]) -> None:
        """Tell the command of the jobserver."""
        path = os.path.join(self._folder, "fifo")
        auth = f"fifo:{path}" if self._style == "fifo" else ",".join(map(str, self.inherited))
        for name in _VARIABLES:
            environment.pop(name, None)
        # What make was told of variables stands behind `--`; a flag behind that would be a target.
        before, dashes, variables = f" {environment.get('MAKEFLAGS', '')} ".partition(" -- ")
        flags = f"{before[1:].rstrip(' ')} -j{self._most + 1} --jobserver-auth={auth}"
        environment["MAKEFLAGS"] = f"{flags}{dashes}{variables}".rstrip(" ")

    def look(self) -> None:
        """Take what has come back where it is wanted: to the machine, or to the command; ask for more or no more."""
        if self._is_wanted:
            surplus = self._take(self._put_into, self._granted)
            surplus += self._take(self._taken_from, self._granted - surplus)
            if surplus:
                self._granted -= surplus
                self.give_back(surplus)
        if self._put_into != self._taken_from:
            self._put(self._take(self._put_into, self._most))
        wants_more = not self._is_wanted and self._owned + self._granted < self._most
        if wants_more and not self._is_asking:
            self._is_asking = True
            self.ask()
        elif self._is_asking and not wants_more:
            self._is_asking = False
            self.withdraw()

    def granted(self) -> None:
        """Put a token that was asked for where the command takes it."""
        self._is_asking = False
        self._granted += 1
        self._put(1)

    def wanted(self, *, is_wanted: bool) -> None:
        """Note whether other tasks wait for cpu."""
        self._is_wanted = is_wanted
        self.look()

    def close(self) -> None:
        """Remove the pipes; what the command has inherited is the command's."""
        for fd in {self._taken_from, self._put_into}:
            os.close(fd)
        with suppress(OSError):
            for name in os.listdir(self._folder):
                os.unlink(os.path.join(self._folder, name))
            os.rmdir(self._folder)

    def _put(self, count: int) -> None:
        if count:
            os.write(self._taken_from, TOKEN * count)

    @staticmethod
    def _take(fd: int, count: int) -> int:
        """Take so many tokens out of a pipe, or as many as are there; return how many."""
        if count <= 0:
            return 0
        try:
            return len(os.read(fd, count))
        except BlockingIOError:  # there are none, or programs were quicker
            return 0


class Tokens(Jobserver):
    """Keeps the jobserver of one command supplied.

    A service that does not answer is gone: the guard hears of that by itself.
    """

    def __init__(self, request: LeaseRequest, style: str, asked: dict[str, Any]) -> None:
        """Make the jobserver of a command that has a lease of as much as it ``asked`` for."""
        super().__init__(style, asked["cpu"] - 1, max(asked["cpu"], _cpu_of(request.machine)) - 1)
        self._request = request
        self._asked = {"cpu": 1, "slot": False, "part_of": request.id, "priority": asked.get("priority")}
        self._waiting: LeaseRequest | None = None
        self._held: list[LeaseRequest] = []
        self._is_watched = False  # its descriptor is among the sources
        self._sources: Sources

    def begin(self, sources: Sources) -> None:
        """Wait for changes among these sources from now on."""
        self._sources = sources
        self.look()

    def look(self) -> None:
        """Ask for more or give back; wait for tokens that come back while that matters."""
        super().look()
        if self.has_to_look != self._is_watched:
            self._is_watched = self.has_to_look
            if self._is_watched:
                self._sources.add(self.fileno(), self.look)
            else:
                self._sources.remove(self.fileno())

    def ask(self) -> None:
        """Ask the machine for one more cpu."""
        with suppress(MachineError):
            self._waiting = LeaseRequest(self._request.machine, f"{self._request.id}.job", command=False, **self._asked)
            self._sources.add(self._waiting.fileno(), self._hear)
            if self._waiting.has_message:
                self._hear()

    def withdraw(self) -> None:
        """Ask for it no longer."""
        if self._waiting is not None:
            self._sources.remove(self._waiting.fileno())
            self._waiting.close()
            self._waiting = None

    def give_back(self, count: int) -> None:
        """Return so many cpu to the machine."""
        for _ in range(count):
            request = self._held.pop()
            with suppress(MachineError):
                request.ended()
            request.close()

    def _hear(self) -> None:
        """Take what the machine says to the request that waits."""
        request = self._waiting
        assert request is not None, "only a request that waits is heard"
        try:
            messages = [request.receive()]
            while request.has_message:
                messages.append(request.receive())
        except MachineError:
            messages = [{"ended": {}}]
        for message in messages:
            if "granted" in message or "ended" in message:
                self._sources.remove(request.fileno())
                self._waiting = None
                if "granted" in message:
                    self._held.append(request)
                    self.granted()
                    self.look()
                return


def style_for(program: str, environment: Mapping[str, str]) -> str:
    """Return the way to tell a command of its jobserver: a pipe where its program is known to understand that.

    Other programs may start anything: they get the path that everything current understands, unless the make of this
    environment is too old for that.
    """
    name = os.path.basename(program)
    if name in _BY_PIPE or name in _BY_FIFO:
        return "pipe" if name in _BY_PIPE else "fifo"
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


def _cpu_of(machine: Machine) -> int:
    """Return how much cpu a machine has."""
    budget = machine.ask("GET", "/machine/status?most=1")["budget"]
    found: int = next((each["limit"] for each in budget if each["name"] == "cpu"), 1)
    return found
