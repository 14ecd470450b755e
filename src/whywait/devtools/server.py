"""The server: uvicorn on a thread of its own, started and stopped with the run."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import secrets
import socket
import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, Self

import uvicorn
from starlette.applications import Starlette
from starlette.convertors import Convertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from whywait.devtools.answers import Problem, not_found_answer, problem_answer
from whywait.devtools.beacon import light, put_out
from whywait.devtools.control import Control
from whywait.devtools.feed import Feed
from whywait.devtools.guard import Guard
from whywait.devtools.protocol import MAX_HEAD_BYTES, ImpatientProtocol
from whywait.devtools.reads import Reads
from whywait.devtools.routes import ROUTES
from whywait.devtools.run import Run
from whywait.errors import ConfigError, WhywaitError

log = logging.getLogger("whywait")

PAGE: Final = Path(__file__).parent / "page"
KINDS: Final = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
STARTS_WITHIN_S: Final = 10.0
STOPS_WITHIN_S: Final = 5.0
KEPT_EVENTS: Final = 50_000
EXPOSED: Final = (
    "DevTools listens on {host}, not only on this machine: whoever reaches port {port} can read the names and states "
    "of all tasks, and whoever has the token can cancel them; nothing is encrypted"
)


class _Name(Convertor[str]):
    """A name in a path: any text, slashes and line ends too, which starlette's own kinds leave out."""

    regex = r"[\s\S]+"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("name", _Name())


class DevTools:
    """Serves the page and the API of one run; ``url`` opens the page with the token of its control API."""

    def __init__(
        self,
        run: Run,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        expose: bool = False,
        hosts: Iterable[str] = (),
        events: int = KEPT_EVENTS,
    ) -> None:
        """Start serving; ``port`` 0 takes a free one, ``expose`` is needed for an address that others can reach.

        ``hosts``: further names under which an exposed server may be called.
        """
        local = _is_local(host)
        if not local and not expose:
            raise ConfigError(
                f"host {host!r} can be reached from other machines: everybody there could read this run. "
                "Say expose=True if that is meant, or use host='127.0.0.1'"
            )
        self.token = secrets.token_urlsafe(24)
        self._run = run
        self._kept = events
        self._socket = _listen(host, port)
        self.port: int = self._socket.getsockname()[1]
        self.host = host
        name = f"[{host}]" if ":" in host else host
        shown = "127.0.0.1" if host in {"0.0.0.0", "::"} else name  # noqa: S104 - compared, not bound to
        self.base_url = f"http://{shown}:{self.port}/"
        self.url = f"{self.base_url}#token={self.token}" if run.control else self.base_url
        self._names = {"127.0.0.1", "localhost", "[::1]", name, *hosts}
        self._any_address = not local
        if not local:
            log.warning(EXPOSED.format(host=host, port=self.port))
        self._beacon: Path | None = None
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
        """Print the address, with the token, on stderr, and leave it for ``whywait top`` and its kin to find."""
        sys.stderr.write(f"DevTools: {self.url}\n")
        sys.stderr.flush()
        self._beacon = light(self.url, self._run.name, file)

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
        """Show where it listens; the token is nobody's business."""
        return f"<DevTools {self.base_url}>"

    # On the server's thread

    def _serve(self) -> None:
        try:
            asyncio.run(self._main())
        except BaseException as error:
            self._failure = error
            if self._ready.is_set():
                log.exception("DevTools has stopped")
        finally:
            self._socket.close()
            self._ready.set()

    async def _main(self) -> None:
        self._feed = feed = self._run.make_feed(self._kept)
        reads = Reads(self._run, feed)
        self._closing = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        server = uvicorn.Server(
            uvicorn.Config(
                Guard(self._make_app(reads), self.port, self._names, any_address=self._any_address),
                http=ImpatientProtocol,
                ws="none",
                lifespan="off",
                loop="none",
                log_config=None,
                log_level="critical",
                access_log=False,
                server_header=False,
                proxy_headers=False,
                h11_max_incomplete_event_size=MAX_HEAD_BYTES,
                limit_concurrency=400,
                timeout_keep_alive=15,
                timeout_graceful_shutdown=1,
            )
        )
        looking = asyncio.create_task(feed.run())
        serving = asyncio.create_task(server.serve([self._socket]))
        closing = asyncio.create_task(self._closing.wait())
        while not server.started and not serving.done():  # noqa: ASYNC110 - uvicorn gives no other sign
            await asyncio.sleep(0.005)
        self._ready.set()
        await asyncio.wait([serving, closing], return_when=asyncio.FIRST_COMPLETED)
        looking.cancel()
        if self._run_is_over:
            feed.finish()
        server.should_exit = True
        await serving

    def _make_app(self, reads: Reads) -> Starlette:
        run = self._run
        control = Control(run.authority, reads, self.token) if run.control and run.authority is not None else None
        routes = [Route("/", _index), Route("/openapi.json", reads.openapi), Route("/page/{file}", _page)]
        for spec in ROUTES:
            owner: Any = control if spec.control else reads
            if owner is not None:
                path = spec.path
                for param in spec.params:
                    path = path.replace(f"{{{param.name}}}", f"{{{param.name}:name}}")
                routes.append(Route(path, getattr(owner, spec.name), methods=[spec.method]))
        handlers: dict[Any, Any] = {404: _not_found, HTTPException: problem_answer}
        return Starlette(routes=routes, exception_handlers=handlers)


async def _not_found(request: Request, error: Exception) -> Response:
    return await (problem_answer if isinstance(error, Problem) else not_found_answer)(request, error)


async def _index(_: Request) -> Response:
    return FileResponse(PAGE / "index.html", media_type=KINDS[".html"])


async def _page(request: Request) -> Response:
    name = request.path_params["file"]
    if name not in FILES:
        raise HTTPException(404)
    return FileResponse(PAGE / name, media_type=KINDS[Path(name).suffix])


FILES: Final = frozenset(path.name for path in PAGE.iterdir() if path.suffix in KINDS)


def _is_local(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _listen(host: str, port: int) -> socket.socket:
    if isinstance(port, bool) or not isinstance(port, int) or not 0 <= port <= 65_535:  # noqa: PLR2004 - of TCP
        raise ConfigError(f"port {port!r} is not allowed: use an int from 0 (a free one) to 65535")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ConfigError(f"DevTools cannot listen on {host!r}: {error.strerror}") from None
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise ConfigError(f"DevTools cannot listen on {host}:{port}: {error.strerror}; choose another port") from None
    listener.setblocking(False)  # noqa: FBT003 - the standard library's
    return listener
