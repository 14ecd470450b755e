"""The routes of the service beside those of DevTools, as data: its handlers and its description read this."""

from __future__ import annotations

from typing import Final

from whywait.devtools.api import Param, RouteSpec
from whywait.devtools.schemas import Schema, object_of, schema_of
from whywait.machine.listing import Row

_ANY: Final = schema_of(dict)
_ROW: Final = schema_of(Row)
_ID: Final = Param(
    "id", {"type": "string", "minLength": 1}, "number, name or scope/name of a job, id of a lease", "path"
)
_OFFSET: Final = Param("offset", {"type": "integer", "minimum": 0}, "how many bytes of the log are known")
_MOST: Final = Param("most", {"type": "integer", "minimum": 1, "maximum": 100_000}, "how many of each; 100 if unset")
_REQUEST: Final = object_of({"command": list[str], "directory": str, "environment": dict[str, str]})
_LEASE: Final = object_of({"name": str})


def _get(path: str, name: str, summary: str, answer: Schema = _ANY, *params: Param) -> RouteSpec:
    return RouteSpec("GET", path, name, summary, answer, params=params, errors=(401, 404))


def _post(path: str, name: str, summary: str, body: Schema = _ANY, *params: Param, answer: Schema = _ANY) -> RouteSpec:
    return RouteSpec(
        "POST", path, name, summary, answer, params=params, errors=(400, 401, 404, 409), body=body, control=True
    )


ROUTES: Final = (
    _get("/machine/status", "status", "What the machine has, what runs, what waits and why.", _ANY, _MOST),
    _post("/machine/jobs", "add", "Accept a job; answered when it is on the disk.", _REQUEST),
    _post("/machine/workflows", "add_workflow", "Accept the jobs of a workflow as one scope, all or none."),
    _get("/machine/jobs", "list", "All jobs and leases.", schema_of([Row])),
    _get("/machine/jobs/{id}/wait", "wait", "One job, when it has ended.", _ROW, _ID),
    _get(
        "/machine/jobs/{id}/log",
        "log",
        "The log of a job from an offset on, as it is now.",
        schema_of(str),
        _ID,
        _OFFSET,
    ),
    *(
        _post(f"/machine/jobs/{{id}}/{verb}", verb, text, _ANY, _ID)
        for verb, text in (
            ("cancel", "End a job that waits, ask one that runs to end."),
            ("pause", "Keep a job from starting, or stop it."),
            ("resume", "Bring a paused job back."),
            ("retry", "Accept an ended job once more, under a new id."),
            ("forget", "Keep an ended job no longer."),
        )
    ),
    _get("/machine/jobs/{id}", "job", "One job or lease, with its why.", _ROW, _ID),
    _post("/machine/retry", "retry_failed", "Accept all jobs once more that have failed."),
    _post("/machine/forget", "forget_ended", "Keep no job that has ended."),
    _post("/machine/leases", "lease", "Ask for a permission; the answer stays open as long as it lives.", _LEASE),
    _post("/machine/leases/{id}/taken", "taken", "The client of a lease takes its permission.", _ANY, _ID),
    _post("/machine/leases/{id}/stopped", "stopped", "The terminal of a client has stopped its command.", _ANY, _ID),
    _post("/machine/leases/{id}/parked", "parked", "The client of a lease has stopped its command.", _ANY, _ID),
    _post("/machine/leases/{id}/ended", "ended", "The command of a lease has ended.", _ANY, _ID),
    _post("/machine/page", "page", "Serve the page on a port of this machine; answers with its address."),
    _post("/machine/down", "down", "End the service: with what runs, or now."),
)
