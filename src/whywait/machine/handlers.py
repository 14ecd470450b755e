"""The routes of the service beside those of DevTools, each with its handler.

All handlers run on the event loop of the server and leave to threads what may block.
"""

from __future__ import annotations

import asyncio
import functools
import json
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Final, NamedTuple, TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from whywait.devtools.answers import Json, Problem, read_query
from whywait.devtools.api import NOTHING, Param, RouteSpec, get_route, post_route
from whywait.devtools.asgi import ExtraRoute, Handler
from whywait.devtools.schemas import Form, Schema, object_of, schema_of
from whywait.errors import ConfigError, MachineError, UnknownTask, WhywaitError
from whywait.kernel.state import Cause, TaskState
from whywait.machine.asked import check_programs
from whywait.machine.client import NO_JOB
from whywait.machine.client_lease import ClientLease
from whywait.machine.leases import name_of
from whywait.machine.listing import (
    Reasons,
    Row,
    end_on_its_way,
    job_row,
    lease_row,
    may_be_retried,
    picture,
    rows,
    why_of,
)
from whywait.machine.rows import Ended, KeptJob, columns_of
from whywait.machine.service import Service
from whywait.runtime.handle import Handle

WHY_S: Final = 0.2  # how often clients that wait are told why, at most
CLIENTS_S: Final = 0.5  # how often to see which clients are stopped
SHOWN: Final = 100  # of what runs, waits and has ended, in a picture
ROUTES: Final[list[RouteSpec]] = []

_ID: Final = Param(
    "id", {"type": "string", "minLength": 1}, "number, name or scope/name of a job, id of a permission", "path"
)
_MOST: Final = Param("most", {"type": "integer", "minimum": 1, "maximum": 100_000}, "how many of each; 100 if unset")
_JOB: Final = object_of({"command": list[str], "directory": str, "environment": dict[str, str]})
_LEASE: Final = object_of({"name": str})
Answers = list[dict[str, Any]]
_Handling = TypeVar("_Handling", bound=Callable[..., Any])


def _route(
    make: Callable[..., RouteSpec],
    path: str,
    answer: Form,
    *params: Param,
    **more: Any,
) -> Callable[[_Handling], _Handling]:
    """Have a handler answer a route; the first line of its text is the summary of the route."""

    def take(handler: _Handling) -> _Handling:
        summary = str(handler.__doc__).partition("\n")[0]
        ROUTES.append(make(f"/machine/{path}", handler.__name__, summary, answer, params, **more))
        return handler

    return take


_get: Final = functools.partial(_route, get_route)


def _post(path: str, *params: Param, body: Schema | None = None) -> Callable[[_Handling], _Handling]:
    """The same for a route that takes an object, which may be empty, and that may be refused as impossible now."""
    return _route(post_route, path, dict, *params, body=body or schema_of(dict), errors=(409,))


class Page(NamedTuple):
    """Where the page is: its address, and the private file that leads a browser there, if there is one."""

    url: str
    door: str | None


class Handlers:
    """Answers the clients of one service; made on the event loop of the server."""

    def __init__(self, service: Service, page: Callable[[], Awaitable[Page]], end: Callable[[], object]) -> None:
        """Answer for a service; ``page`` opens the page, ``end`` ends the server."""
        self._service = service
        self._open_page = page
        self._end = end
        self._loop = asyncio.get_running_loop()
        self._ended_jobs = asyncio.Lock()  # of one client that retries or forgets, until that is on the disk
        self._why_is_due = False
        self._looks_at_clients = False
        self._awaiting: dict[asyncio.Future[None], Callable[[], str | None]] = {}  # what clients wait for
        service.store.on_trouble = lambda: self._soon(self._tell_trouble)

    def routes(self) -> list[ExtraRoute]:
        """Return the routes with their handlers."""
        return [(spec, _told(getattr(self, spec.name))) for spec in ROUTES]

    # Jobs

    @_get("status", dict, _MOST)
    async def status(self, request: Request) -> Response:
        """Tell what the machine has, what runs, what waits and why."""
        most = read_query(request, (_MOST,))["most"] or SHOWN
        return Json(picture(self._service, most))

    @_post("jobs", body=_JOB)
    async def add(self, request: Request) -> Response:
        """Accept a job; answered when it is on the disk."""
        body = await _body(request)
        for name in ("command", "directory", "environment"):
            if name not in body:
                raise Problem(400, f"the request has no {name}")
        await asyncio.to_thread(check_programs, [body])
        self._service.refuse_if_draining()
        self._service.tidy()
        (answer,) = await self._accepted([self._service.jobs.add(**body)])
        return Json(answer)

    @_post("workflows")
    async def add_workflow(self, request: Request) -> Response:
        """Accept the jobs of a workflow as one scope, all or none; answered when they are on the disk."""
        body = await _body(request)
        jobs = body.get("jobs")
        if not isinstance(jobs, list) or not jobs or not all(isinstance(each, dict) for each in jobs):
            raise Problem(400, "the request has no jobs: send a list of objects")
        await asyncio.to_thread(check_programs, jobs)
        self._service.refuse_if_draining()
        scope = self._service.jobs.new_scope(body.get("name", "workflow"))
        limits = {name: body[name] for name in ("slots", "on_error") if body.get(name) is not None}
        accepted = self._service.jobs.add_batch(scope, jobs, **limits)
        return Json({"scope": scope, "jobs": await self._accepted(accepted)})

    @_get("jobs", [Row])
    async def jobs(self, _: Request) -> Response:
        """Give all jobs and leases."""
        return Response(json.dumps(rows(self._service)).encode(), media_type="application/json")  # in one step: quicker

    @_get("jobs/{id}/wait", Row, _ID)
    async def wait(self, request: Request) -> Response:
        """Answer when a job has ended."""
        job = self._find_job(request)

        def happened() -> str | None:
            return f"job {job.id} has ended, which" if isinstance(job.decided, Ended) else None

        await self._done(self._service.jobs.end_of(job), happened)
        return Json(job_row(self._service, job, Reasons()))

    @_post("jobs/{id}/cancel", _ID)
    async def cancel(self, request: Request) -> Response:
        """End a job that waits, ask one that runs to end; no later attempt of it starts."""
        found = self._find(request)
        if isinstance(found, ClientLease):
            found.ended_by = name_of(request.state.peer.pid)
        if (handle := found.handle) is None:
            return _ended(found)
        await asyncio.to_thread(handle.cancel)
        was_news = not handle.done() or handle.cause == Cause.CANCELLED
        return await self._acted(found, handle, "cancelled" if was_news else NOTHING)

    @_post("jobs/{id}/pause", _ID)
    async def pause(self, request: Request) -> Response:
        """Keep a job from starting, or stop it; no thread waits, of which there are few, and others have news."""
        found = self._find(request)
        if (handle := found.handle) is None:
            return _ended(found)
        await handle.pause_async()
        return await self._acted(found, handle, "paused" if handle.state == TaskState.PAUSED else NOTHING)

    @_post("jobs/{id}/resume", _ID)
    async def resume(self, request: Request) -> Response:
        """Bring a paused job back."""
        found = self._find(request)
        handle = found.handle if isinstance(found, ClientLease) else self._service.jobs.handle(found)
        await asyncio.to_thread(handle.resume)
        return await self._acted(found, handle, "resumed")

    @_post("jobs/{id}/retry", _ID)
    async def retry(self, request: Request) -> Response:
        """Accept an ended job once more, under a new id."""
        return await self._again(lambda: [self._find_job(request)])

    @_get("jobs/{id}", Row, _ID)
    async def job(self, request: Request) -> Response:
        """Give one job or lease, with its why."""
        found, known = self._find(request), Reasons()
        if isinstance(found, ClientLease):
            why = found.handle.why()
            return Json({**lease_row(found, known), "text": str(why), "reasons": why.to_dict()})
        why = why_of(self._service, found)
        text = end_on_its_way(self._service, found) or str(why)
        return Json({**job_row(self._service, found, known), "text": text, "reasons": why.to_dict()})

    @_post("retry")
    async def retry_failed(self, _: Request) -> Response:
        """Accept all jobs once more that have failed, and were not retried since, all or none."""
        return await self._again(lambda: [job for job in self._service.jobs.all() if may_be_retried(job)])

    @_post("jobs/{id}/forget", _ID)
    async def forget(self, request: Request) -> Response:
        """Keep an ended job no longer."""
        return await self._forget(lambda: [self._find_job(request)])

    @_post("forget")
    async def forget_ended(self, _: Request) -> Response:
        """Keep no job that has ended."""
        return await self._forget(lambda: [job for job in self._service.jobs.all() if isinstance(job.state, Ended)])

    # The service

    @_post("page")
    async def page(self, _: Request) -> Response:
        """Serve the page on a port of this machine."""
        return Json((await self._open_page())._asdict())

    @_post("down")
    async def down(self, request: Request) -> Response:
        """End the service: with what runs, or now."""
        body = await _body(request)
        by = f"whywait down{' --now' if body.get('now') else ''} ({name_of(request.state.peer.pid)})"
        if body.get("now"):
            self._service.leases.ends_by = by
            self._end()
        else:
            for lease in self._service.leases.waiting():
                lease.say_down(by)
            self._service.drain(lambda: self._soon(self._end))
        return Json({"running": len(self._service.core.kernel.running)})

    def _soon(self, fn: Callable[[], object]) -> None:
        """Have something done on the thread of the server, unless that has ended."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(fn)

    # Leases

    @_post("leases", body=_LEASE)
    async def lease(self, request: Request) -> Response:
        """Ask for a permission; the answer stays open as long as it lives."""
        body = await _body(request)
        if "name" not in body:
            raise Problem(400, "the request has no name")
        self._service.refuse_if_draining()
        outbox: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

        def tell(message: dict[str, Any]) -> None:
            self._soon(functools.partial(outbox.put_nowait, message))

        peer = request.state.peer
        lease = self._service.leases.request(**body, tell=tell, pid=peer.pid)
        lease.say_why()
        self._look_soon()
        return _LeaseAnswer(lease, outbox)

    def _look_soon(self) -> None:
        """Have the clients looked at from time to time, as long as there are any."""
        if not self._looks_at_clients:
            self._looks_at_clients = True
            self._loop.call_later(CLIENTS_S, self._look_at_clients)

    def _look_at_clients(self) -> None:
        self._looks_at_clients = False
        self._service.leases.look()
        if self._service.leases.all():
            self._look_soon()

    @_post("leases/{id}/taken", _ID)
    async def taken(self, request: Request) -> Response:
        """Take the news that a client takes its permission; answer whether it still has it."""
        lease, body = self._lease(request), await _body(request)
        return Json({"taken": lease.take(body.get("lease"))})

    @_post("leases/{id}/stopped", _ID)
    async def stopped(self, request: Request) -> Response:
        """Take the news that the terminal of a client has stopped its command, or lets it go on."""
        lease, body = self._lease(request), await _body(request)
        lease.stopped(is_stopped=bool(body.get("stopped")))
        return Json({})

    @_post("leases/{id}/parked", _ID)
    async def parked(self, request: Request) -> Response:
        """Take the news that the command of a client has stopped; at once, as a pause has little time."""
        self._lease(request).parked()
        return Json({})

    @_post("leases/{id}/ended", _ID)
    async def ended(self, request: Request) -> Response:
        """Take the news that the command of a client has ended."""
        lease, body = self._lease(request), await _body(request)
        told: list[Any] = []
        for name, kind in (("exit_code", int), ("peak_ram", int), ("cpu_s", float)):
            value = body.get(name) or 0
            if isinstance(value, bool) or not isinstance(value, (int, kind)):
                raise Problem(400, f"{name} {value!r} is no {kind.__name__}")
            told.append(value)
        looked: asyncio.Future[None] = self._loop.create_future()
        out_of_memory = bool(body.get("out_of_memory"))
        lease.ended(*told, out_of_memory=out_of_memory, looked=lambda: self._soon(functools.partial(_set, looked)))
        await looked
        return Json({})

    def _lease(self, request: Request) -> ClientLease:
        return self._service.leases.get(request.path_params["id"])

    def something_happened(self) -> None:
        """Have clients that wait told why, soon; under the authority's lock, on any thread."""
        if not self._why_is_due and (self._service.leases.waiting() or self._service.leases.divided()):
            self._why_is_due = True
            self._soon(functools.partial(self._loop.call_later, WHY_S, self._tell_why))

    def _tell_why(self) -> None:
        self._why_is_due = False
        for lease in self._service.leases.waiting():
            lease.say_why()
        for lease, parts in self._service.leases.divided().items():
            lease.say_wanted(is_wanted=self._service.waiting_for_cpu(lease.inside) > parts)

    # Helpers

    async def _accepted(self, jobs: Sequence[KeptJob]) -> Answers:
        """Return the answers for new jobs of one ticket when they are on the disk."""
        for job in jobs[:1]:
            assert job.accepted is not None, "the store has it"
            await self._done(job.accepted)
        return [{"id": job.id, "number": job.number, "scope": job.scope} for job in jobs]

    async def _again(self, choose: Callable[[], Sequence[KeptJob]]) -> Response:
        async with self._ended_jobs:
            self._service.refuse_if_draining()
            jobs = choose()
            accepted = await self._accepted(self._service.jobs.add_again(jobs)) if jobs else []
        return Json({"jobs": [{**each, "of": job.id} for each, job in zip(accepted, jobs, strict=True)]})

    async def _acted(self, found: KeptJob | ClientLease, handle: Handle[Any], done: str) -> Response:
        state = handle.outcome or handle.state
        await self.kept()
        return Json({"done": done, "id": found.id, "state": state})

    async def kept(self) -> None:
        """Wait until all that has happened so far is on the disk; raise if the disk does not take it."""
        await self._done(self._service.jobs.kept(), lambda: "this has been done, and")

    def _find(self, request: Request) -> KeptJob | ClientLease:
        ref = request.path_params["id"]
        leases = self._service.leases
        return leases.find(ref) or self._service.jobs.find(ref, [lease.id for lease in leases.all()])

    def _find_job(self, request: Request) -> KeptJob:
        """Return a job, for what can be done with jobs only."""
        found = self._find(request)
        if isinstance(found, ClientLease):
            raise MachineError(NO_JOB.format(found.id))
        return found

    async def _forget(self, choose: Callable[[], Sequence[KeptJob]]) -> Response:
        async with self._ended_jobs:
            jobs = choose()
            await self._done(self._service.jobs.forget(jobs), lambda: "this has been asked for, and")
        await asyncio.to_thread(self._service.store.fold)
        return Json({"jobs": [job.id for job in jobs]})

    async def _done(self, done: Future[None], happened: Callable[[], str | None] = lambda: None) -> None:
        """Wait until something is on the disk; raise if the disk does not take what has ``happened``."""
        if not done.done():
            woken: asyncio.Future[None] = self._loop.create_future()
            self._awaiting[woken] = happened
            done.add_done_callback(lambda _: self._soon(functools.partial(_set, woken)))
            try:
                await woken
            finally:
                del self._awaiting[woken]
        done.result()

    def _tell_trouble(self) -> None:
        """Tell clients whose change has happened that the disk does not take it; it is tried again all the same."""
        for woken, happened in list(self._awaiting.items()):
            if not woken.done() and (what := happened()):
                trouble = self._service.store.trouble
                woken.set_exception(MachineError(f"{what} is written as soon as the disk takes it: {trouble}"))


class _LeaseAnswer(Response):
    """The lines that the client of a lease hears; its connection is its life."""

    def __init__(self, lease: ClientLease, outbox: asyncio.Queue[dict[str, Any]]) -> None:
        super().__init__()
        self._lease = lease
        self._outbox = outbox

    async def __call__(self, _: Scope, receive: Receive, send: Send) -> None:
        """Pass on what there is to tell, until the lease has ended or the client is gone."""
        telling = asyncio.create_task(self._tell(send))
        gone = asyncio.create_task(_until_gone(receive))
        try:
            await asyncio.wait([telling, gone], return_when=asyncio.FIRST_COMPLETED)
        finally:
            telling.cancel()
            gone.cancel()
            self._lease.client_gone()

    async def _tell(self, send: Send) -> None:
        headers = [(b"content-type", b"application/x-ndjson")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        is_last = False
        while not is_last:
            message = await self._outbox.get()
            is_last = "ended" in message
            line = json.dumps(message).encode() + b"\n"
            await send({"type": "http.response.body", "body": line, "more_body": not is_last})


def _ended(found: KeptJob | ClientLease) -> Response:
    """Return the answer for what has ended before anything was done to it."""
    assert isinstance(found, KeptJob), "a lease is forgotten when it has ended"
    return Json({"done": NOTHING, "id": found.id, "state": columns_of(found.state)["outcome"]})


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _told(handler: Handler) -> Handler:
    """Return a handler that tells what is refused."""

    @functools.wraps(handler)
    async def handle(request: Request) -> Response:
        try:
            return await handler(request)
        except UnknownTask as error:
            raise Problem(404, str(error)) from None
        except (ConfigError, TypeError) as error:  # a name or a value that there is not
            raise Problem(400, str(error)) from None
        except WhywaitError as error:
            raise Problem(409, str(error)) from None

    return handle


async def _body(request: Request) -> dict[str, Any]:
    try:
        data = json.loads(await request.body() or b"{}")
    except (ValueError, RecursionError) as error:
        raise Problem(400, f"the request is not JSON: {error}") from None
    if not isinstance(data, dict):
        raise Problem(400, "the request is no JSON object")
    return data


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
