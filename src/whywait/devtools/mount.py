"""DevTools inside the app of a host: requests come in on the host's event loop and are answered on the server's thread.

So the event loop of the host does nothing for DevTools but pass messages on, and one page can be mounted in any number
of apps and served by any ASGI server.

A host's server with several worker processes hands each request to any of them, and each has a run of its own. The
token says which run is meant: a request with the token of a sibling's run is carried over to that sibling, through its
Unix socket. So a page that was opened with one token shows one run, whichever process is asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar
from urllib.parse import quote

import h11
from starlette.types import ASGIApp, Receive, Scope, Send

from whywait.devtools.access import Access, token_in
from whywait.devtools.answers import Json
from whywait.devtools.beacon import UNIX, find_sibling

T = TypeVar("T")
OVER: Final = "the run is over: nothing is served here any more"
CHUNK: Final = 65_536
OWN_HEADERS: Final = frozenset({b"host", b"connection", b"transfer-encoding", b"content-length", b"keep-alive"})


class Mounted:
    """An ASGI app that hands its requests to an app on another event loop, and answers 503 while there is none."""

    def __init__(self, access: Access) -> None:
        """Begin without an app; ``access`` is what the app is to be guarded with."""
        self.access = access
        self._inner: tuple[asyncio.AbstractEventLoop, ASGIApp] | None = None

    def begin(self, loop: asyncio.AbstractEventLoop, app: ASGIApp) -> None:
        """Hand requests to an app, on its loop."""
        self._inner = (loop, app)

    def end(self) -> None:
        """Hand over no more requests."""
        self._inner = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request on the event loop of the host."""
        if scope["type"] == "websocket":
            await send({"type": "websocket.close"})
            return
        inner = self._inner
        if inner is None:
            await Json({"error": OVER}, 503)(scope, receive, send)
            return
        loop, app = inner
        here = asyncio.get_running_loop()
        answer = app(_without_mount(scope), _carried_to(here, receive), _carried_to(here, send))
        await _carried_to(loop, lambda: answer)()


def _without_mount(scope: Scope) -> Scope:
    """Return a scope of our own, with the path as if the app were not mounted anywhere."""
    root, path = scope.get("root_path", ""), scope["path"]
    within = path[len(root) :] if root and path.startswith(root) else path
    return {**scope, "root_path": "", "path": within or "/", "state": {}}


def _carried_to(loop: asyncio.AbstractEventLoop, call: Callable[..., Awaitable[T]]) -> Callable[..., Awaitable[T]]:
    """Return a function that calls and awaits ``call`` on another event loop."""

    async def there(*args: object) -> T:
        return await call(*args)

    async def carried(*args: object) -> T:
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(there(*args), loop))

    return carried


class Siblings:
    """Answers for the own run by an app, and for those of siblings by asking them; what comes in is guarded already."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        """``token`` is that of the own run."""
        self._app = app
        self._token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        token = token_in(scope)
        sibling = find_sibling(token) if token and token != self._token else None
        if sibling is None:
            await self._app(scope, receive, send)
            return
        body = (await receive()).get("body", b"")
        try:
            reader, writer = await asyncio.open_unix_connection(sibling.address.removeprefix(UNIX))
        except OSError:
            await Json({"error": "the process of this run does not answer: it is over"}, 503)(scope, receive, send)
            return
        leaving = asyncio.create_task(_close_when_gone(receive, writer))
        try:
            await _carry_over(scope, body, send, reader, writer)
        finally:
            leaving.cancel()
            writer.close()


async def _close_when_gone(receive: Receive, writer: asyncio.StreamWriter) -> None:
    """Close the connection to the sibling when the client has left: a stream would never end otherwise."""
    while (await receive())["type"] != "http.disconnect":
        pass
    writer.close()


async def _carry_over(
    scope: Scope, body: bytes, send: Send, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Send a request to a sibling and its answer back, piece by piece."""
    client = h11.Connection(h11.CLIENT)
    query = scope["query_string"]
    target = quote(scope["path"]).encode() + (b"?" + query if query else b"")
    headers = [
        *((name, value) for name, value in scope["headers"] if name.lower() not in OWN_HEADERS),
        (b"host", b"localhost"),
        (b"connection", b"close"),
        (b"content-length", str(len(body)).encode()),
    ]
    request = h11.Request(method=scope["method"], target=target, headers=headers)
    for part in (request, h11.Data(data=body), h11.EndOfMessage()):
        writer.write(client.send(part) or b"")
    begun = False
    try:
        await writer.drain()
        while True:
            event = client.next_event()
            if event is h11.NEED_DATA:
                client.receive_data(await reader.read(CHUNK))
            elif isinstance(event, h11.Response):
                told = [pair for pair in event.headers.raw_items() if pair[0].lower() not in OWN_HEADERS]
                await send({"type": "http.response.start", "status": event.status_code, "headers": told})
                begun = True
            elif isinstance(event, h11.Data):
                await send({"type": "http.response.body", "body": bytes(event.data), "more_body": True})
            else:
                break
    except (OSError, h11.RemoteProtocolError):  # the sibling has ended, or the client has left
        if not begun:
            raise
    await send({"type": "http.response.body", "body": b""})
