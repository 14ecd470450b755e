"""HTTP connections: uvicorn's protocol over listeners that hold a limited number of them.

Only the protocol of uvicorn is used. Its server would log through the loggers of a host that runs uvicorn itself, and
wake up ten times a second.

What keeps strangers from using up the file descriptors and the memory of the process:

1. A listener holds at most ``most`` connections, and for a moment those that asyncio has accepted and not served yet:
   ``AT_ONCE`` in each of three steps of its loop.
2. When it is full, the connection that has been idle longest is closed for a new one, so a crowd of silent clients does
   not keep out a client that asks for something. One that has announced a body and does not send it is idle too.
3. A connection is closed if the head of a request is not complete in ``HEAD_TIMEOUT_S``, if nothing is asked for
   ``IDLE_TIMEOUT_S``, and if its client reads nothing of an answer for ``SEND_TIMEOUT_S``.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import struct
from operator import attrgetter
from pathlib import Path
from typing import Any, Final

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from whywait.devtools.access import MAX_HEAD_BYTES, Peer
from whywait.errors import ConfigError

HEAD_TIMEOUT_S: Final = 5.0
IDLE_TIMEOUT_S: Final = 15
SEND_TIMEOUT_S: Final = 15.0
CLOSES_WITHIN_S: Final = 1.0
MOST_CONNECTIONS: Final = 200
SHARE: Final = 5  # connections take at most a fifth of the file descriptors that the process may open
BACKLOG: Final = 128  # connections that wait in the system to be accepted
AT_ONCE: Final = 8  # connections that asyncio accepts in one step of its loop


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


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens on an address and a port; 0: a free one."""
    if isinstance(port, bool) or not isinstance(port, int) or not 0 <= port <= 65_535:  # noqa: PLR2004 - of TCP
        raise ConfigError(f"port {port!r} is not allowed: use an int from 0 (a free one) to 65535")
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family)
    except OSError as error:
        raise ConfigError(f"DevTools cannot listen on {host!r}: {error.strerror}") from None
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return _bound(listener, address, f"{host}:{port}", "choose another port")


def listen_unix(path: Path) -> socket.socket:
    """Return a Unix socket that listens and that only its user can reach; one that was left there is replaced."""
    if path.is_socket():
        path.unlink()
    address = os.fspath(path)
    listener = _bound(socket.socket(socket.AF_UNIX), address, address, "choose another path, of at most 100 bytes")
    path.chmod(0o600)
    return listener


def _bound(listener: socket.socket, address: Any, name: str, remedy: str) -> socket.socket:  # noqa: ANN401 - any family's
    try:
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise ConfigError(f"DevTools cannot listen on {name}: {error.strerror or error}; {remedy}") from None
    return listener


class HttpServer:
    """Serves apps over listeners, on the running event loop."""

    def __init__(self) -> None:
        """Begin without a listener."""
        self._listening: list[tuple[asyncio.Server, ServerState]] = []

    async def listen(self, listener: socket.socket, app: ASGIApp, most: int) -> None:
        """Let an app answer the requests that arrive over a listener, on at most so many connections."""
        config = uvicorn.Config(
            app,
            http="h11",
            ws="none",
            lifespan="off",
            loop="none",
            log_config=None,
            proxy_headers=False,
            timeout_keep_alive=IDLE_TIMEOUT_S,
            h11_max_incomplete_event_size=MAX_HEAD_BYTES,
        )
        config.load()
        state = ServerState()
        server = await asyncio.get_running_loop().create_server(
            lambda: Connection(config, state, most), sock=listener, backlog=AT_ONCE
        )
        listener.listen(BACKLOG)  # asyncio accepts AT_ONCE of them in a step, and more may wait in the system
        self._listening.append((server, state))

    async def close(self) -> None:
        """Stop listening, let answers end for a moment, and cut off the rest."""
        for server, state in self._listening:
            server.close()
            for connection in list(state.connections):
                connection.shutdown()
        await self._wait_for_answers()
        for _, state in self._listening:
            for connection in list(state.connections):
                connection.transport.abort()
        await self._wait_for_answers()  # each learns that its client is gone

    async def _wait_for_answers(self) -> None:
        answers = [task for _, state in self._listening for task in state.tasks]
        if answers:
            await asyncio.wait(answers, timeout=CLOSES_WITHIN_S)


class Connection(H11Protocol):
    """One connection: closed when its client takes too long, or when a new client needs its place."""

    def __init__(self, config: uvicorn.Config, state: ServerState, most: int) -> None:
        """Begin with nothing received, as one of at most so many connections."""
        super().__init__(config, state, {})
        self.logger, self.access_logger, self.access_log = log, log, False
        self._most = most
        self._idle_since = 0.0
        self._head_timer: asyncio.TimerHandle | None = None
        self._send_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin a connection; close the one that has been idle longest if there are too many."""
        super().connection_made(transport)
        self.app_state = {"peer": _peer(transport.get_extra_info("socket"))}
        self._idle_since = self.loop.time()
        self._time_head()
        if len(self.connections) > self._most:
            idle = [each for each in self.connections if isinstance(each, Connection) and each.is_idle]
            idlest = min(idle, key=attrgetter("_idle_since"))  # this one, if all others are being answered
            self.connections.discard(idlest)  # at once, since it is lost only in a later step of the loop
            idlest.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """End a connection."""
        for timer in (self._head_timer, self._send_timer):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read on."""
        try:
            super().data_received(data)
        except h11.LocalProtocolError:  # this is no HTTP, and it is too late to answer so
            self.transport.abort()
        self._time_head()

    def on_response_complete(self) -> None:
        """Be idle until the next request."""
        super().on_response_complete()
        self._idle_since = self.loop.time()

    def pause_writing(self) -> None:
        """Wait for the client to read."""
        super().pause_writing()
        self._time_reading()

    def resume_writing(self) -> None:
        """Send on."""
        super().resume_writing()
        if self._send_timer is not None:
            self._send_timer.cancel()

    @property
    def is_idle(self) -> bool:
        """Whether nothing is being answered, or the request is not complete."""
        return not self._is_answering or self.cycle.more_body

    @property
    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _time_head(self) -> None:
        """Close the connection later unless it has the head of a request by then."""
        if not self._is_answering:
            self._head_timer = self._head_timer or self.loop.call_later(HEAD_TIMEOUT_S, self.transport.abort)
        elif self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _time_reading(self, left_before: float = float("inf")) -> None:
        """Close the connection if its client has read nothing since the last look, else look again later."""
        left = self.transport.get_write_buffer_size()
        if left < left_before:
            self._send_timer = self.loop.call_later(SEND_TIMEOUT_S, self._time_reading, left)
        else:
            self.transport.abort()


def _peer(connection: socket.socket) -> Peer | None:
    """Return the process at the other end of a Unix socket; None for TCP and where the system does not tell."""
    if not hasattr(socket, "SO_PEERCRED") or connection.family != socket.AF_UNIX:
        return None
    size = struct.calcsize("3i")
    return Peer(*struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)))
