"""The server of the service: its routes and those of DevTools on the Unix socket of the home, the page on a port."""

from __future__ import annotations

import asyncio
import os
import resource
import secrets
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from whywait.devtools.access import LOCAL_NAMES, ByToken, ByUser
from whywait.devtools.app import OPEN_PATHS, make_app
from whywait.devtools.beacon import redirect_to
from whywait.devtools.feed import Feed
from whywait.devtools.guard import Guard
from whywait.devtools.protocol import Server as HttpServer
from whywait.devtools.protocol import listen, listen_unix, most_connections
from whywait.devtools.run import LiveRun
from whywait.machine.client import VERSION_HEADER
from whywait.machine.handlers import Handlers, Page
from whywait.machine.service import Service
from whywait.support.version import __version__

MAX_BODY_BYTES: Final = 8_000_000  # environments can be large
MOST_CLIENTS: Final = 4_000
FILES_BESIDE: Final = 200  # descriptors for all that are no connections
KEPT_EVENTS: Final = 50_000


class Server:
    """Serves one service until it is told to end."""

    def __init__(self, service: Service, ready: Callable[[], object]) -> None:
        """Serve a service; ``ready`` is called when the socket listens."""
        self._service = service
        self._ready = ready
        self._run = LiveRun(service.authority, service.core, "machine", control=True)
        self._http: HttpServer
        self._feed: Feed
        self._page: Page | None = None

    def run(self) -> None:
        """Serve until a signal, or a client, ends it."""
        with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:  # others do not ask a Listener
            runner.run(self._main())

    async def _main(self) -> None:
        ending = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, ending.set)
        self._http = HttpServer()
        self._feed = feed = self._run.make_feed(KEPT_EVENTS)
        handlers = Handlers(self._service, self._open_page, ending.set)
        feed.rests = True

        def happened(_: object) -> None:
            handlers.something_happened()
            feed.wake_from(loop)

        end_tap = self._service.core.tap(happened)
        following = asyncio.create_task(feed.run())
        app = make_app(self._run, feed, handlers.routes())
        home = self._service.home
        address, folder = home.socket_address()
        try:
            listener = listen_unix(Path(address), _most_clients())
            await self._http.listen(listener, Guard(_with_version(app), ByUser(os.getuid()), MAX_BODY_BYTES))
            self._ready()
            await ending.wait()
        finally:
            end_tap()
            following.cancel()
            await self._http.close()
            for path in (home.socket, home.door):
                with suppress(OSError):
                    os.unlink(path)
            if folder >= 0:
                os.close(folder)

    async def _open_page(self) -> Page:
        """Listen on a port of this machine, for the page and nothing that adds jobs."""
        if self._page is None:
            token = secrets.token_urlsafe(24)
            listener = listen("127.0.0.1", 0, most_connections())
            access = ByToken(token, LOCAL_NAMES, open_paths=OPEN_PATHS)
            await self._http.listen(listener, Guard(make_app(self._run, self._feed), access))
            url = f"http://127.0.0.1:{listener.getsockname()[1]}/#token={token}"
            door = redirect_to(url, Path(self._service.home.door))
            self._page = Page(url, None if door is None else os.fspath(door))
        return self._page


def _with_version(app: ASGIApp) -> ASGIApp:
    """Return an app whose answers say which whywait this is."""

    async def call(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_version(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), (VERSION_HEADER, __version__.encode())]
            await send(message)

        await app(scope, receive, send_with_version)

    return call


def _most_clients() -> int:
    """Return how many connections there may be; raise the limit of descriptors for them as far as that is allowed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_CLIENTS + FILES_BESIDE
    if soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return max(1, min(MOST_CLIENTS, soft - FILES_BESIDE))
