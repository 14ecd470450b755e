"""The server: a thread of its own that follows a run and answers for it: on a port, a Unix socket, or in a host's app.

Everything that touches the feed happens on the event loop of that thread, so the threads of tasks and the event loop of
a host are left alone. No lock is needed: what other threads ask for (the loop, the feed) is set before the server is
ready, once; ``_run_is_over`` is set before the loop is told to close. Of the feed they touch ``wake_from`` alone, which
reads a single flag: the feed resets that before it looks for news, and news is there before the flag is looked at.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import re
import secrets
import socket
import sys
import threading
from collections.abc import Iterable
from concurrent.futures import CancelledError
from html import escape
from pathlib import Path
from typing import Final, Self

from prometheus_client.core import Metric as Family
from starlette.types import ASGIApp

from whywait.devtools.access import LOCAL_NAMES, MAX_BODY_BYTES, Access, ByToken, ByUser, Guard
from whywait.devtools.asgi import METRICS_PATH, OPEN_PATHS, ExtraRoute, make_app
from whywait.devtools.beacon import UNIX, light, put_out
from whywait.devtools.connections import HttpServer, listen, listen_unix, most_connections
from whywait.devtools.feed import Feed
from whywait.devtools.metrics import RunCollector, families_of
from whywait.devtools.mount import Mounted
from whywait.devtools.saved import AnyRun
from whywait.errors import ConfigError, WhywaitError
from whywait.support.logger import Log, log
from whywait.support.notebooks import link

STARTS_WITHIN_S: Final = 10.0
STOPS_WITHIN_S: Final = 5.0
KEPT_EVENTS: Final = 50_000
EXPOSED: Final = (
    "DevTools listens on {host}, not only on this machine: nothing is encrypted, so whoever sees the traffic of port "
    "{port} has the token, and with it can read the run and cancel its tasks"
)


class DevTools:
    """Serves the page and the API of one run; ``url`` opens the page and hands it the token that requests need."""

    def __init__(
        self,
        run: AnyRun,
        *,
        host: str = "127.0.0.1",
        port: int | None = 0,
        unix: Path | None = None,
        expose: bool = False,
        hosts: Iterable[str] = (),
        token: str | None = None,
        open_metrics: bool = False,
        routes: Iterable[ExtraRoute] = (),
        max_body_bytes: int = MAX_BODY_BYTES,
        events: int = KEPT_EVENTS,
        log: Log = log,
    ) -> None:
        """Start serving.

        ``port``: 0 takes a free one, None listens on none. ``expose`` is needed for a ``host`` that other machines can
        reach, ``hosts`` are further names under which it is called then. ``unix``: listen on a Unix socket at this
        path too; processes of this user need no token there. ``token``: one of your own, where it has to stay the same
        from run to run; a new one is made if left out. ``open_metrics``: ``/metrics`` needs no token either.
        ``routes``: further routes, with their handlers, which run on the thread of the server.
        """
        local = _is_local(host)
        if port is not None and not local and not expose:
            raise ConfigError(
                f"host {host!r} can be reached from other machines, and nothing is encrypted: "
                "say expose=True if that is meant, or use host='127.0.0.1'"
            )
        self.token = secrets.token_urlsafe(24) if token is None else _checked(token)
        self.host = host
        self.port: int | None = None
        self.base_url = ""
        self._run = run
        self._log = log
        self._kept = events
        self._routes = tuple(routes)
        self._max_body_bytes = max_body_bytes
        self._unix = unix
        self._beacon: Path | None = None
        open_paths = {*OPEN_PATHS, *([METRICS_PATH] if open_metrics else [])}
        self._ways: list[tuple[socket.socket, Access]] = []
        if port is not None:
            name = f"[{host}]" if ":" in host else host
            listener = listen(host, port)
            names = {*LOCAL_NAMES, name, *hosts}
            self._ways.append((listener, ByToken(self.token, names, any_address=not local, open_paths=open_paths)))
            self.port = listener.getsockname()[1]
            shown = "127.0.0.1" if host in {"0.0.0.0", "::"} else name  # noqa: S104 - compared, not bound to
            self.base_url = f"http://{shown}:{self.port}/"
            if not local:
                log.warning(EXPOSED.format(host=host, port=self.port))
        if unix is not None:
            self._ways.append((listen_unix(unix), ByUser(os.getuid())))
        self.url = f"{self.base_url or (f'{UNIX}{unix}' if unix is not None else '')}#token={self.token}"
        self.app = Mounted(ByToken(self.token, hosts or None, open_paths=open_paths))
        """The same as an ASGI app, to be mounted in that of a host."""
        self.collector = RunCollector(self._families)
        """The metrics, to be registered in a registry of ``prometheus_client``."""
        self._run_is_over = False
        self._failure: BaseException | None = None
        self._ready = threading.Event()
        self._closing: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._feed: Feed | None = None
        self._thread = threading.Thread(target=self._serve, name="whywait-devtools", daemon=True)
        self._thread.start()
        if not self._ready.wait(STARTS_WITHIN_S) or self._failure is not None:
            raise WhywaitError(f"DevTools could not start: {self._failure or 'it took too long'}")

    def announce(self, file: str | None = None) -> None:
        """Print the address, with the token, on stderr, and leave it for ``whywait top`` and its kin to find.

        Without a port the address is what the app was mounted at, and only its end is known here.
        """
        self._beacon = light(self.url, self._run.name, file)
        where = "" if self.base_url else f"where it is mounted in process {os.getpid()}, with "
        sys.stderr.write(f"DevTools: {where}{self.base_url}#token={self.token}\n")
        sys.stderr.flush()

    def close(self, *, run_is_over: bool = False) -> None:
        """Stop serving, and tell the viewers if it is because the run is over. Idempotent."""
        self._run_is_over = self._run_is_over or run_is_over
        loop, closing = self._loop, self._closing
        if loop is None or closing is None or not self._thread.is_alive():
            return
        try:
            loop.call_soon_threadsafe(closing.set)
        except RuntimeError:  # it stopped this very moment
            return
        self._thread.join(STOPS_WITHIN_S)
        if self._beacon is not None:
            put_out(self._beacon)
            self._beacon = None

    def finish(self) -> None:
        """Tell the viewers that the run is over, and serve on what there was to see."""
        loop, feed = self._loop, self._feed
        if loop is not None and feed is not None and self._thread.is_alive():
            loop.call_soon_threadsafe(feed.finish)

    def wait(self) -> None:
        """Serve until closed from another thread, or interrupted."""
        while self._thread.is_alive():
            self._thread.join(0.5)

    def __enter__(self) -> Self:
        """Use as a block that ends with the server."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop serving."""
        self.close()

    def __repr__(self) -> str:
        """Show where it listens; the token is left out."""
        return f"<DevTools {self.base_url or self._unix or 'without a port'}>"

    def _repr_html_(self) -> str:
        """Return a link for a notebook, which opens the page and hands it the token."""
        return escape(repr(self)) if self.port is None else link(self.url, f"DevTools {self.base_url}")

    def _families(self) -> list[Family]:
        loop, feed = self._loop, self._feed
        if loop is None or feed is None or not self._thread.is_alive():
            return []

        async def gather() -> list[Family]:
            feed.catch_up()
            return list(families_of(*self._run.moment(), feed.histograms, feed.skipped))

        try:
            return asyncio.run_coroutine_threadsafe(gather(), loop).result(STOPS_WITHIN_S)
        except (RuntimeError, TimeoutError, CancelledError):  # it stopped this very moment
            return []

    # On the server's thread

    def _serve(self) -> None:
        try:
            with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:  # whatever loops the program has
                runner.run(self._main())
        except BaseException as error:  # noqa: BLE001 - as it is told
            self._failure = error
            if self._ready.is_set():
                self._log.exception("DevTools has stopped")
        finally:
            for listener, _ in self._ways:
                listener.close()
            if self._unix is not None:
                self._unix.unlink(missing_ok=True)
            self._ready.set()

    async def _main(self) -> None:
        self._feed = feed = self._run.make_feed(self._kept)
        self._closing = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        app = make_app(self._run, feed, self._routes)
        server = HttpServer()
        for listener, access in self._ways:
            await server.listen(listener, self._guarded(app, access), most_connections())
        self.app.begin(self._loop, self._guarded(app, self.app.access))
        looking = asyncio.create_task(feed.run())
        self._ready.set()
        await self._closing.wait()
        self.app.end()
        looking.cancel()
        if self._run_is_over:
            feed.finish()
        await server.close()

    def _guarded(self, app: ASGIApp, access: Access) -> Guard:
        return Guard(app, access, self._max_body_bytes)


def _checked(token: str) -> str:
    if not isinstance(token, str) or not re.fullmatch(r"[\w-]{16,}", token, re.ASCII):
        raise ConfigError(
            "token is not allowed: use at least 16 letters, digits, - and _; secrets.token_urlsafe() makes one"
        )
    return token


def _is_local(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
