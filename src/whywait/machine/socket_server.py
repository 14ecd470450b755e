"""The server of the service: its routes and those of DevTools on the Unix socket of the home, the page on a port."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from whywait.devtools.access import LOCAL_NAMES, ByToken, ByUser, Guard
from whywait.devtools.asgi import OPEN_PATHS, make_app
from whywait.devtools.beacon import redirect_to
from whywait.devtools.connections import HttpServer, listen, listen_unix, most_connections
from whywait.devtools.feed import Feed
from whywait.devtools.runs import LiveRun
from whywait.errors import ConfigError, MachineError
from whywait.machine.client import VERSION_HEADER
from whywait.machine.handlers import Handlers, Page
from whywait.machine.kept import token_of
from whywait.machine.service import Service
from whywait.support.logger import log
from whywait.support.version import __version__

MAX_BODY_BYTES: Final = 8_000_000  # environments can be large
MOST_CLIENTS: Final = 4_000
FILES_BESIDE: Final = 200  # descriptors for all that are no connections
KEPT_EVENTS: Final = 50_000
LOOK_S: Final = 1.0  # how often the service looks whether its home and its socket are still there


class SocketServer:
    """Serves one service until it is told to end."""

    def __init__(self, service: Service, ready: Callable[[], object]) -> None:
        """Serve a service; ``ready`` is called when the socket listens."""
        self._service = service
        self._ready = ready
        self._run = LiveRun(service.authority, "machine", control=True)
        self._http: HttpServer
        self._feed: Feed
        self._page: Page | None = None
        self._socket: os.stat_result

    def run(self) -> None:
        """Serve until a signal, or a client, ends it."""
        with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:  # whatever loops the program has
            runner.run(self._main())
        broken_by = self._service.store.broken_by
        if broken_by is not None:
            raise MachineError(
                f"what has happened cannot be kept ({broken_by}); the next service goes on with what is on the disk"
            )

    async def _main(self) -> None:
        ending = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, ending.set)
        self._http = HttpServer()
        self._feed = feed = self._run.make_feed(KEPT_EVENTS)
        feed.rests = True
        handlers = Handlers(self._service, self._open_page, ending.set)
        self._run.kept = handlers.kept
        self._run.can_suspend = False

        def break_off(failure: str) -> None:
            """End because what has happened cannot be kept; on any thread."""
            self._service.leases.ends_by = f"a failure of its store ({failure})"
            loop.call_soon_threadsafe(ending.set)

        def happened(_: object) -> None:
            handlers.something_happened()
            feed.wake_from(loop)

        self._service.store.on_broken = break_off
        end_tap = self._service.core.tap(happened)
        app = make_app(self._run, feed, handlers.routes())
        guard = Guard(_with_version(app), ByUser(os.getuid()), MAX_BODY_BYTES)
        home = self._service.home
        address, folder = home.socket_address()
        tasks = [asyncio.create_task(feed.run())]
        try:
            with suppress(OSError):
                os.unlink(home.door)  # one that was killed has left it, with the token in it
            await self._listen(address, guard)
            self._ready()
            tasks.append(asyncio.create_task(self._stay(address, guard, ending)))
            await ending.wait()
            self._service.leases.say_down()
        finally:
            end_tap()
            for task in tasks:
                task.cancel()
            await self._http.close()
            for path in (home.socket, home.door) if self._service.has_its_home else ():
                with suppress(OSError):
                    os.unlink(path)
            if folder >= 0:
                os.close(folder)

    async def _listen(self, address: str, app: ASGIApp) -> None:
        """Listen on the socket of the home."""
        await self._http.listen(listen_unix(Path(address)), app, _most_clients())
        self._socket = os.stat(self._service.home.socket)

    async def _stay(self, address: str, app: ASGIApp, ending: asyncio.Event) -> None:
        """Listen again when the socket was removed; end when the home was, as by ``down --now``."""
        home, told = self._service.home, ""
        while True:
            await asyncio.sleep(LOOK_S)
            if not self._service.has_its_home:
                break
            with suppress(OSError):
                if os.path.samestat(os.stat(home.socket), self._socket):
                    continue
            try:
                await self._listen(address, app)
                now = f"{home.socket} was removed: the service listens there again"
            except (ConfigError, OSError) as error:
                now = str(error)  # it is tried again at the next look
            if now != told:
                log.warning("%s", now)
                told = now
        log.error("%s was removed: the service ends, and what it runs", home.path)
        self._service.leases.ends_by = f"the removal of its folder {home.path}"
        ending.set()

    async def _open_page(self) -> Page:
        """Listen on a port of this machine, for the page and nothing that adds jobs."""
        if self._page is None:
            token = token_of(self._service.home)
            listener = listen("127.0.0.1", 0)
            access = ByToken(token, LOCAL_NAMES, open_paths=OPEN_PATHS)
            await self._http.listen(listener, Guard(make_app(self._run, self._feed), access), most_connections())
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
