"""The app: the page and the routes of one run as an ASGI app, to be guarded and served.

``Guard(make_app(run, feed), access)`` is the whole of it, for whatever serves ASGI apps. The feed is made by
``run.make_feed(kept)`` on the event loop that the app will run on, where ``feed.run()`` keeps it up to date.

Each further route is a ``RouteSpec`` (``api.py``) and an ``async def handler(request)``. It is in ``/openapi.json``
with the others and passes the same guard. A handler answers with ``Json`` or raises ``Problem`` (``answers.py``), and
leaves what may block to ``asyncio.to_thread``. It finds the process at the other end of a Unix socket in
``request.state.peer`` (pid, uid, gid), and ``await request.is_disconnected()`` says whether it is gone.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Final

from starlette.applications import Starlette
from starlette.convertors import PathConvertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from whywait.devtools.access import FILES_PATH, PAGE_PATH
from whywait.devtools.answers import Json, problem_answer
from whywait.devtools.api import ROUTES, RouteSpec, describe
from whywait.devtools.control import Control
from whywait.devtools.feed import Feed
from whywait.devtools.reads import Reads
from whywait.devtools.runs import LiveRun
from whywait.devtools.saved import AnyRun

Handler = Callable[[Request], Awaitable[Response]]
ExtraRoute = tuple[RouteSpec, Handler]

PAGE: Final = Path(__file__).parent / "page"
KINDS: Final = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
FILES: Final = frozenset(path.name for path in PAGE.iterdir() if path.suffix in KINDS)
METRICS_PATH: Final = "/metrics"
OPEN_PATHS: Final = frozenset(route.path for route in ROUTES if route.open)


class _Name(PathConvertor):
    """A name in a path: any text, slashes and line ends too."""

    regex = r"[\s\S]+"


register_url_convertor("name", _Name())


def make_app(run: AnyRun, feed: Feed, routes: Iterable[ExtraRoute] = ()) -> Starlette:
    """Return the app of a run, not guarded yet; what changes the run is left out unless ``run.control``."""
    reads = Reads(run, feed)
    control = Control(run, reads) if run.control and isinstance(run, LiveRun) else None
    handled = [
        (spec, getattr(owner, spec.name))
        for spec in ROUTES
        if (owner := control if spec.control else reads) is not None
    ]
    handled += routes
    description = describe(run.version, [spec for spec, _ in handled])

    async def openapi(_: Request) -> Response:
        return Json(description)

    app = Starlette(
        routes=[
            Route(PAGE_PATH, _index),
            Route(f"{FILES_PATH}{{file}}", _page),
            Route("/openapi.json", openapi),
            *(Route(_pattern(spec), handler, methods=[spec.method]) for spec, handler in handled),
        ],
        exception_handlers={HTTPException: problem_answer},
    )
    app.router.redirect_slashes = False
    return app


def _pattern(spec: RouteSpec) -> str:
    path = spec.path
    for param in spec.params:
        path = path.replace(f"{{{param.name}}}", f"{{{param.name}:name}}")
    return path


async def _index(_: Request) -> Response:
    return _file("index.html")


async def _page(request: Request) -> Response:
    name = request.path_params["file"]
    if name not in FILES:
        raise HTTPException(404)
    return _file(name)


def _file(name: str) -> Response:
    path = PAGE / name
    return Response(path.read_bytes(), media_type=KINDS[path.suffix])
