"""The control API: the few things that change a run; each refusal says why."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from whywait.devtools.answers import Json, Problem, read_name
from whywait.devtools.reads import Reads
from whywait.devtools.routes import NOTHING
from whywait.devtools.runs import LiveRun
from whywait.errors import StaleRef, UnknownScope, WhywaitError
from whywait.kernel.model import Ref
from whywait.kernel.state import TaskState
from whywait.runtime.handle import Handle
from whywait.support.units import shown

_BODY_KEYS: Final = {"enabled", "immediately"}


class Control:
    """Changes one run on behalf of requests that the guard has let through."""

    def __init__(self, run: LiveRun, reads: Reads) -> None:
        """Act on the authority of a run."""
        self._run = run
        self._authority = run.authority
        self._core = run.core
        self._reads = reads

    async def cancel_task(self, request: Request) -> Response:
        """Cancel a task; one that has ended stays as it is."""
        return await self._on_task(request, "cancelled", lambda handle: handle.cancel(), ended_is_fine=True)

    async def pause_task(self, request: Request) -> Response:
        """Pause a task; one that has ended stays as it is."""
        return await self._on_task(request, "paused", lambda handle: handle.pause(), ended_is_fine=True)

    async def resume_task(self, request: Request) -> Response:
        """Resume a task."""
        return await self._on_task(request, "resumed", lambda handle: handle.resume(), ended_is_fine=False)

    async def suspend_scope(self, request: Request) -> Response:
        """Suspend a scope."""
        if not self._run.can_suspend:
            raise Problem(409, "a scope of the machine is not suspended, since that would not be kept: pause its jobs")
        return await self._on_scope(request, "suspended", "suspend")

    async def resume_scope(self, request: Request) -> Response:
        """Resume a scope."""
        return await self._on_scope(request, "resumed", "resume")

    async def dispose_scope(self, request: Request) -> Response:
        """Dispose of a scope."""
        return await self._on_scope(request, "disposed", "dispose")

    async def set_periodic_enabled(self, request: Request) -> Response:
        """Switch a periodic on or off."""
        ident = read_name(request, "id")
        body = _read_body(await request.body())
        enabled, immediately = body["enabled"], body.get("immediately", False)

        def act() -> None:
            self._authority.set_periodic_enabled(ident, enabled, immediately=immediately)

        await self._carry_out(act)
        return Json({"done": "enabled" if enabled else "disabled", "state": "on" if enabled else "off"})

    async def _on_task(
        self, request: Request, done: str, act: Callable[[Handle[Any]], object], *, ended_is_fine: bool
    ) -> Response:
        self._reads.catch_up()
        row = self._reads.find(read_name(request, "ref"))
        try:
            handle = self._authority.get(Ref(row.number, row.scope, self._core.token))
        except StaleRef:
            how = row.outcome or TaskState.DISPOSED
            if ended_is_fine:
                return Json({"done": NOTHING, "state": how})
            raise Problem(409, f"task {shown(row.label)} is not paused: it has ended ({how})") from None
        await self._carry_out(lambda: act(handle))
        return Json({"done": done, "state": handle.outcome or handle.state})

    async def _on_scope(self, request: Request, done: str, verb: str) -> Response:
        try:
            scope = self._authority.get_scope(read_name(request, "key"))
        except UnknownScope as error:
            raise Problem(404, str(error)) from None
        await self._carry_out(getattr(scope, verb))
        return Json({"done": done, "state": scope.state})

    async def _carry_out(self, act: Callable[[], object]) -> None:
        """Do something that may block, away from the server's thread; what the run refuses becomes an answer."""
        try:
            await asyncio.to_thread(act)
            await self._run.kept()
        except LookupError as error:
            raise Problem(404, str(error)) from None
        except WhywaitError as error:
            raise Problem(409, str(error)) from None


def _read_body(body: bytes) -> dict[str, bool]:
    try:
        data = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Problem(400, f"the body is not JSON: {error}") from None
    if not isinstance(data, dict) or "enabled" not in data or data.keys() - _BODY_KEYS:
        raise Problem(400, f'the body is {shown(data)}: send {{"enabled": true}} or {{"enabled": false}}')
    if not all(isinstance(value, bool) for value in data.values()):
        raise Problem(400, f"the body is {shown(data)}: enabled and immediately are true or false")
    return data
