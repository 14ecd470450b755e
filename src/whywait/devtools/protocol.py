"""HTTP as uvicorn speaks it, over listeners that never hold more than so many connections.

Nothing of uvicorn's server is used but its protocol, and none of its loggers: a host that runs uvicorn itself keeps its
logs as they are.

What keeps strangers from using up the process's file descriptors:

1. A listener holds at most ``most`` connections. It accepts one at a time and closes a surplus one at once, so that not
   even for a moment there are more.
2. When it is full, the connection that has been idle longest, and has sent nothing that was not read yet, is closed
   first: a crowd of silent clients does not keep out one that asks for something.
3. A connection whose first request head is not complete in ``HEAD_TIMEOUT_S`` is closed; one that asks for nothing more
   is closed after ``IDLE_TIMEOUT_S``. One that has announced a body and does not send it is as idle as a silent one.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from whywait.devtools.access import Peer
from whywait.devtools.guard import MAX_HEAD_BYTES
from whywait.errors import ConfigError
from whywait.support.polling import has_input

HEAD_TIMEOUT_S: Final = 5.0
IDLE_TIMEOUT_S: Final = 15
CLOSES_WITHIN_S: Final = 1.0
MOST_CONNECTIONS: Final = 200
SHARE: Final = 5  # connections take at most a fifth of the file descriptors that the process may open
BACKLOG: Final = 128


def _is_news(record: logging.LogRecord) -> bool:
    """Return whether a line of the protocol is worth the log: what a client does wrong, or an end, is not."""
    error = record.exc_info[1] if record.exc_info else None
    return record.levelno >= logging.ERROR and not isinstance(error, asyncio.CancelledError)


log: Final = logging.getLogger("whywait.devtools")
log.addFilter(_is_news)


def most_connections() -> int:
    """Return how many connections may be open at once in this process, as it is limited now."""
    try:
        import resource  # noqa: PLC0415 - of Unix
    except ImportError:
        return MOST_CONNECTIONS
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST_CONNECTIONS if soft == resource.RLIM_INFINITY else max(1, min(MOST_CONNECTIONS, soft // SHARE))


class Listener(socket.socket):
    """A listening socket that holds at most so many connections."""

    def __init__(self, family: int, most: int) -> None:
        """Make a socket that is not bound yet."""
        super().__init__(family, socket.SOCK_STREAM)
        self.most = most
        self.make_room: Callable[[int], bool] = lambda _: False  # of so many: whether one is closed or may be idle soon
        self._held: list[socket.socket] = []

    def accept(self) -> tuple[socket.socket, Any]:
        """Accept a connection; raises an error that asyncio takes for "no more of them now" if there is no room."""
        if len(self._held) >= self.most:
            self._held = [each for each in self._held if each.fileno() != -1]
        full = len(self._held) >= self.most
        if full and self.make_room(len(self._held)):
            raise BlockingIOError  # asyncio asks again
        connection, address = super().accept()
        if full:
            connection.close()
            raise ConnectionAbortedError
        self._held.append(connection)
        return connection, address


def listen(host: str, port: int, most: int) -> Listener:
    """Return a listener on an address and a port; 0: a free one."""
    if isinstance(port, bool) or not isinstance(port, int) or not 0 <= port <= 65_535:  # noqa: PLR2004 - of TCP
        raise ConfigError(f"port {port!r} is not allowed: use an int from 0 (a free one) to 65535")
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = Listener(family, most)
    except OSError as error:
        raise ConfigError(f"DevTools cannot listen on {host!r}: {error.strerror}") from None
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return _bound(listener, address, f"{host}:{port}", "choose another port")


def listen_unix(path: Path, most: int) -> Listener:
    """Return a listener on a Unix socket that only its user can reach; one that is left there is replaced."""
    if path.is_socket():
        path.unlink()
    listener = Listener(socket.AF_UNIX, most)
    _bound(listener, os.fspath(path), str(path), "choose another path, of at most 100 bytes")
    path.chmod(0o600)
    return listener


def _bound(listener: Listener, address: Any, name: str, remedy: str) -> Listener:  # noqa: ANN401 - as the family has it
    try:
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise ConfigError(f"DevTools cannot listen on {name}: {error.strerror or error}; {remedy}") from None
    listener.setblocking(False)  # noqa: FBT003 - the standard library's
    return listener


class Server:
    """Serves apps over listeners, on the running event loop."""

    def __init__(self) -> None:
        """Begin without a listener."""
        self._state = ServerState()
        self._servers: list[asyncio.Server] = []

    async def listen(self, listener: Listener, app: ASGIApp) -> None:
        """Let an app answer what comes over a listener."""
        config = _Config(
            app,
            http=Connection,
            ws="none",
            lifespan="off",
            loop="none",
            log_config=None,
            proxy_headers=False,
            timeout_keep_alive=IDLE_TIMEOUT_S,
        )
        config.load()
        idle: dict[Connection, None] = {}  # the one that became idle first stands first
        served: set[Connection] = set()

        def make_room(accepted: int) -> bool:
            silent = next((connection for connection in idle if not connection.has_news), None)
            if silent is not None:
                silent.give_up()
                return True
            # Those with news will be idle no more; and asyncio accepts many at once, and has them served after that.
            return bool(idle) or len(served) < accepted

        listener.make_room = make_room
        loop = asyncio.get_running_loop()
        server = await loop.create_server(
            lambda: Connection(config, self._state, {}, idle, served), sock=listener, backlog=BACKLOG
        )
        self._servers.append(server)

    async def close(self) -> None:
        """Stop listening, let answers end for a moment, and cut off the rest."""
        for server in self._servers:
            server.close()
        for connection in list(self._state.connections):
            connection.shutdown()
        if self._state.tasks:
            await asyncio.wait(self._state.tasks, timeout=CLOSES_WITHIN_S)
        for connection in list(self._state.connections):
            connection.transport.abort()
        if self._state.tasks:  # each is told that its client is gone
            await asyncio.wait(self._state.tasks, timeout=CLOSES_WITHIN_S)


class _Config(uvicorn.Config):
    def configure_logging(self) -> None:
        """Leave all loggers alone."""


class _Parser(h11.Connection):
    """Reads requests, and knows how long a head was on its way: h11 itself drops white space, of any length."""

    head_bytes = 0

    def next_event(self) -> type[h11.NEED_DATA | h11.PAUSED] | h11.Event:
        """Return what comes next."""
        if self.their_state is not h11.IDLE:
            return super().next_event()
        before = len(self.trailing_data[0])
        event = super().next_event()
        self.head_bytes = before - len(self.trailing_data[0])
        return event


class Connection(H11Protocol):
    """One connection: it gives up on a client that does not finish asking, and lets the app hang up."""

    _patience: asyncio.TimerHandle | None = None

    def __init__(
        self,
        config: uvicorn.Config,
        state: ServerState,
        app_state: dict[str, Any],
        idle: dict[Connection, None],
        served: set[Connection],
    ) -> None:
        """Begin with nothing received; be in ``served`` until it is lost, in ``idle`` while there is no request."""
        super().__init__(config, state, app_state)
        self.logger, self.access_logger, self.access_log = log, log, False
        self.conn = self._parser = _Parser(h11.SERVER, MAX_HEAD_BYTES)
        self._idle = idle
        self._served = served

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin a connection."""
        super().connection_made(transport)
        self._served.add(self)
        self.app_state = {
            "hang_up": transport.abort,
            "head_bytes": lambda: self._parser.head_bytes,
            "peer": _peer(transport.get_extra_info("socket")),
        }
        self._wait_for_a_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """End a connection."""
        self._idle.pop(self, None)
        self._served.discard(self)
        if self._patience is not None:
            self._patience.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read on; a head that dribbles in after an earlier request has its time limit too."""
        super().data_received(data)
        if not self._is_idle:
            self._idle.pop(self, None)
        if not self._has_no_request:
            if self._patience is not None:
                self._patience.cancel()
                self._patience = None
        elif self._patience is None:
            self._wait_for_a_head()

    def on_response_complete(self) -> None:
        """Be idle until the next request."""
        super().on_response_complete()
        if self._is_idle:
            self._idle[self] = None

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP; hang up if that comes after an answer has begun."""
        if self.conn.our_state in {h11.IDLE, h11.SEND_RESPONSE}:
            super().send_400_response(msg)
        else:
            self.transport.abort()

    @property
    def _has_no_request(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    @property
    def _is_idle(self) -> bool:
        """Whether nothing is to be answered, or what is asked has not all come."""
        return self._has_no_request or self.cycle.more_body

    @property
    def has_news(self) -> bool:
        """Whether the client has sent something that was not read yet, or has hung up."""
        return has_input(self.transport.get_extra_info("socket"))

    def _wait_for_a_head(self) -> None:
        self._idle.setdefault(self)
        self._patience = self.loop.call_later(HEAD_TIMEOUT_S, self.give_up)

    def give_up(self) -> None:
        """Close the connection if no whole request is being answered."""
        self._idle.pop(self, None)
        self._patience = None
        if self._is_idle:
            self.transport.abort()


def _peer(connection: socket.socket) -> Peer | None:
    """Return the process at the other end of a Unix socket; None for TCP and where the system does not tell."""
    if not hasattr(socket, "SO_PEERCRED") or connection.family != socket.AF_UNIX:
        return None
    size = struct.calcsize("3i")
    return Peer(*struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)))
