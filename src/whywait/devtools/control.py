"""The control API: the few things that change a run; each refusal says why."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from functools import partial
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from whywait.devtools.answers import Json, Problem, read_name
from whywait.devtools.api import NOTHING
from whywait.devtools.reads import Reads
from whywait.devtools.runs import LiveRun
from whywait.errors import StaleRef, UnknownScope, WhywaitError
from whywait.kernel.model import Ref
from whywait.kernel.state import TaskState
from whywait.support.units import shown

_BODY_KEYS: Final = {"enabled", "immediately"}
_DONE: Final = {
    "cancel": "cancelled", "pause": "paused", "resume": "resumed", "suspend": "suspended", "dispose": "disposed",
}  # fmt: skip


class Control:
    """Changes one run on behalf of requests that the guard has let through."""

    def __init__(self, run: LiveRun, reads: Reads) -> None:
        """Act on the authority of a run."""
        self._run = run
        self._reads = reads
        self.cancel_task, self.pause_task, self.resume_task = (
            partial(self._on_task, verb) for verb in ("cancel", "pause", "resume")
        )
        self.suspend_scope, self.resume_scope, self.dispose_scope = (
            partial(self._on_scope, verb) for verb in ("suspend", "resume", "dispose")
        )

    async def set_periodic_enabled(self, request: Request) -> Response:
        """Switch a periodic on or off."""
        ident = read_name(request, "id")
        body = _read_body(await request.body())
        enabled, immediately = body["enabled"], body.get("immediately", False)

        act = self._run.authority.set_periodic_enabled
        await self._carry_out(partial(act, ident, enabled, immediately=immediately))
        return Json({"done": "enabled" if enabled else "disabled", "state": "on" if enabled else "off"})

    async def _on_task(self, verb: str, request: Request) -> Response:
        """Cancel, pause or resume a task; one that has ended stays as it is, and cannot be resumed."""
        row = self._reads.find(read_name(request, "ref"))
        try:
            handle = self._run.authority.get(Ref(row.number, row.scope, self._run.core.token))
        except StaleRef:
            how = row.outcome or TaskState.DISPOSED
            if verb != "resume":
                return Json({"done": NOTHING, "state": how})
            raise Problem(409, f"task {shown(row.label)} is not paused: it has ended ({how})") from None
        await self._carry_out(getattr(handle, verb))
        return Json({"done": _DONE[verb], "state": handle.outcome or handle.state})

    async def _on_scope(self, verb: str, request: Request) -> Response:
        """Suspend, resume or dispose of a scope."""
        if verb == "suspend" and not self._run.can_suspend:
            raise Problem(409, "a scope of the machine is not suspended, since that would not be kept: pause its jobs")
        try:
            scope = self._run.authority.get_scope(read_name(request, "key"))
        except UnknownScope as error:
            raise Problem(404, str(error)) from None
        await self._carry_out(getattr(scope, verb))
        return Json({"done": _DONE[verb], "state": scope.state})

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
