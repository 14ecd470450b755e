"""The way to the service: HTTP over the Unix socket of its home, by hand, with little of the standard library.

Every ``whywait add`` and ``whywait do`` starts with this module, so what it loads is what they cost.
"""

from __future__ import annotations

import json
import os
import socket
import sys

from whywait.errors import MachineError
from whywait.machine.home import LEASE_VARIABLE, Home
from whywait.support.version import __version__

TYPE_CHECKING = False  # see the package itself
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, Final, Self

_CHUNK: Final = 65536
_OK: Final = 200
_HTTP: Final = b"HTTP/"
_NOT_FOUND: Final = 404
_UNRESERVED: Final = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
VERSION_HEADER: Final = b"x-whywait-version"
NO_JOB: Final = (
    "{} is no job: what runs under `whywait do` or in a block of Python has no log here, "
    "and cannot be waited for, retried or forgotten"
)


class NoService(MachineError):
    """No service runs in the home."""


class Gone(MachineError):
    """The service has ended while it was spoken to."""


class Unknown(MachineError):
    """The service has no job or lease of this id."""


class Machine:
    """The service of a home, from outside."""

    def __init__(
        self, home: Home | None = None, *, start: bool = False, say: Callable[[str], object] | None = None
    ) -> None:
        """Reach the service of a home; ``start`` one if none runs. ``say`` is told of that, and of another version."""
        self.home = home or Home()
        self._start = start
        self._say = say or _say
        self._has_compared = False

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Send a request; return the answer, or raise what the service refuses with."""
        with self.open(method, path, body) as answer:
            return answer.rest()

    def open(self, method: str, path: str, body: Any = None, *, timeout: float | None = None) -> Answer:
        """Send a request; return the answer as soon as it begins, or raise TimeoutError after so many seconds."""
        data = b"" if body is None else json.dumps(body).encode()
        # By the rules of 1.0 an answer ends where the connection does.
        head = f"{method} {path} HTTP/1.0\r\nHost: localhost\r\nContent-Length: {len(data)}\r\n\r\n"
        connection = self._connect()
        connection.settimeout(timeout)
        try:
            connection.sendall(head.encode() + data)
            answer = Answer(connection)
        except BaseException as error:
            connection.close()
            if isinstance(error, TimeoutError):
                raise TimeoutError(f"the service has not answered in {timeout} s: {path}") from None
            if isinstance(error, OSError):
                raise Gone(f"the service in {self.home.path} has ended") from None
            raise
        if answer.version != __version__ and not self._has_compared:
            self._has_compared = True
            self._say(
                f"the service is whywait {answer.version or 'of another kind'}, this is {__version__}; "
                "to bring it up to date: whywait down && whywait up --detach"
            )
        return answer

    def _connect(self) -> socket.socket:
        try:
            return self._try()
        except NoService:
            if not self._start and not self.home.is_taken():
                raise
        from whywait.machine.beginning import ensure_service, outwait

        if self._start:
            ensure_service(self.home, self.runs, self._say)
        else:
            outwait(self.home, self.runs)
        return self._try()

    def runs(self) -> bool:
        """Return whether a service listens."""
        try:
            self._try().close()
        except NoService:
            return False
        return True

    def _try(self) -> socket.socket:
        home = self.home
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            if not home.exists():
                raise FileNotFoundError  # noqa: TRY301 - like a socket that is not there
            address, folder = home.socket_address()
            try:
                connection.connect(address)
            finally:
                if folder >= 0:
                    os.close(folder)
        except (FileNotFoundError, ConnectionRefusedError):  # never there, or its service is gone
            connection.close()
            raise NoService(f"no service runs in {home.path}; start it with: whywait up --detach") from None
        except BaseException:
            connection.close()
            raise
        return connection


class Answer:
    """The answer of the service: as a whole, or line by line as it comes."""

    def __init__(self, connection: socket.socket) -> None:
        """Read the head; raise what the service refuses with."""
        self._connection = connection
        self._data = b""
        while b"\r\n\r\n" not in self._data:
            self._read()
            if not self._data.startswith(_HTTP[: len(self._data)]):
                raise _another_program()
        head, _, self._data = self._data.partition(b"\r\n\r\n")
        self.version = head.partition(VERSION_HEADER + b": ")[2].partition(b"\r")[0].decode()
        words = head.split(None, 2)
        status = int(words[1]) if len(words) > 1 and words[1].isdigit() else 0
        if not status or (status == _OK and not self.version):
            raise _another_program()
        if status != _OK:
            told = self.rest()
            message = told.get("error") if isinstance(told, dict) else None
            kind = Unknown if status == _NOT_FOUND else MachineError
            raise kind(message or f"the service answered {status}")

    def rest(self) -> Any:
        """Return the whole answer."""
        try:
            return json.loads(self.text())
        except ValueError:
            raise Gone("the service has ended in the midst of its answer") from None

    def text(self) -> str:
        """Return the whole answer as it is."""
        parts = [self._data]
        while data := self._connection.recv(_CHUNK):
            parts.append(data)
        return b"".join(parts).decode()

    def line(self) -> Any:
        """Return the next line, as soon as it is there; raise Gone if none comes."""
        while b"\n" not in self._data:
            self._read()
        line, _, self._data = self._data.partition(b"\n")
        return json.loads(line)

    @property
    def has_line(self) -> bool:
        """Whether a line is there that has been read already: a look at the descriptor would miss it."""
        return b"\n" in self._data

    def fileno(self) -> int:
        """Return the descriptor, to be waited on together with others."""
        return self._connection.fileno()

    def set_timeout(self, seconds: float | None) -> None:
        """Let :meth:`line` raise TimeoutError after so many seconds."""
        self._connection.settimeout(seconds)

    def close(self) -> None:
        """Close the connection: the service takes it for the end of this client."""
        self._connection.close()

    def __enter__(self) -> Self:
        """Use as a block that ends with the connection."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the connection."""
        self.close()

    def _read(self) -> None:
        try:
            data = self._connection.recv(_CHUNK)
        except TimeoutError:
            raise
        except OSError:
            data = b""
        if not data:
            raise Gone("the service has ended")
        self._data += data


class LeaseRequest:
    """A request for a permission, and the permission; ``leases.py`` has the protocol.

    A client runs what it asked for when a ``granted`` message has come and :meth:`takes` says that it holds.

    Each message is a dict with one of the keys ``waiting`` (a line that says why), ``granted``, ``wish`` or ``ended``.
    """

    def __init__(self, machine: Machine, name: str, *, command: bool | list[str], **asked: Any) -> None:
        """Ask; a refusal raises MachineError. ``command``: the command to run, or whether it is one."""
        self.machine = Machine(machine.home)  # one that starts no service: it would know nothing of this lease
        body = {"name": name, "command": command, "inside": os.environ.get(LEASE_VARIABLE), **asked}
        self._answer = machine.open("POST", "/machine/leases", body)
        self.id: str = self._answer.line()["id"]

    def receive(self, timeout: float | None = None) -> dict[str, Any]:
        """Return the next message; raise Gone if the service has ended, TimeoutError if none came in time."""
        self._answer.set_timeout(timeout)
        message: dict[str, Any] = self._answer.line()
        return message

    @property
    def has_message(self) -> bool:
        """Whether a message is there that the descriptor does not show any more."""
        return self._answer.has_line

    def fileno(self) -> int:
        """Return the descriptor, which is readable when a message comes or the service ends."""
        return self._answer.fileno()

    def tell(self, news: str, **more: Any) -> Any:
        """Tell the service news of the permission; return the answer."""
        return self.machine.ask("POST", f"/machine/leases/{quoted(self.id)}/{news}", more)

    def takes(self, environment: Mapping[str, str]) -> bool:
        """Take a permission that was granted with this environment; return whether it has not been withdrawn since."""
        taken: bool = self.tell("taken", lease=environment[LEASE_VARIABLE])["taken"]
        return taken

    def ended(self, exit_code: int = 0, **used: Any) -> None:
        """Tell that the command has ended, and what it has ``used``; ``out_of_memory``: the system has killed it."""
        self.tell("ended", exit_code=exit_code, **used)

    def close(self) -> None:
        """Hang up; a request that waits is withdrawn, what runs under the permission is killed."""
        self._answer.close()


def _another_program() -> MachineError:
    return MachineError("what listens on the socket of the service is another program: end it, and try again")


def quoted(text: str) -> str:
    """Return a text as it stands in a path."""
    return "".join(
        chr(byte) if byte in _UNRESERVED else f"%{byte:02X}" for byte in text.encode(errors="surrogateescape")
    )


def _say(text: str) -> None:
    sys.stderr.write(f"whywait: {text}\n")
