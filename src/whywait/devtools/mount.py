"""DevTools inside the app of a host: requests come in on the host's event loop and are answered on the server's thread.

So the event loop of the host does nothing for DevTools but pass messages on, and one page can be mounted in any number
of apps and served by any ASGI server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from starlette.types import ASGIApp, Receive, Scope, Send

from whywait.devtools.access import Access
from whywait.devtools.answers import Json

T = TypeVar("T")
OVER: Final = "the run is over: nothing is served here any more"


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
