"""The routes of the service beside those of DevTools, as data: its handlers and its description read this."""

from __future__ import annotations

from typing import Final

from whywait.devtools.api import Param, RouteSpec, get_route, post_route
from whywait.devtools.schemas import Schema, object_of, schema_of
from whywait.machine.listing import Row

_ID: Final = Param(
    "id", {"type": "string", "minLength": 1}, "number, name or scope/name of a job, id of a lease", "path"
)
_OFFSET: Final = Param("offset", {"type": "integer", "minimum": 0}, "how many bytes of the log are known")
_MOST: Final = Param("most", {"type": "integer", "minimum": 1, "maximum": 100_000}, "how many of each; 100 if unset")
_REQUEST: Final = object_of({"command": list[str], "directory": str, "environment": dict[str, str]})
_LEASE: Final = object_of({"name": str})


def _post(path: str, name: str, summary: str, *params: Param, body: Schema | None = None) -> RouteSpec:
    """Return a route that takes an object, which may be empty, and that the service may refuse as impossible now."""
    return post_route(path, name, summary, dict, params, body=body or schema_of(dict), errors=(409,))


ROUTES: Final = (
    get_route("/machine/status", "status", "What the machine has, what runs, what waits and why.", dict, (_MOST,)),
    _post("/machine/jobs", "add", "Accept a job; answered when it is on the disk.", body=_REQUEST),
    _post("/machine/workflows", "add_workflow", "Accept the jobs of a workflow as one scope, all or none."),
    get_route("/machine/jobs", "list", "All jobs and leases.", [Row]),
    get_route("/machine/jobs/{id}/wait", "wait", "One job, when it has ended.", Row, (_ID,)),
    get_route(
        "/machine/jobs/{id}/log",
        "log",
        "The log of a job from an offset on, as it is now.",
        str,
        (_ID, _OFFSET),
    ),
    *(
        _post(f"/machine/jobs/{{id}}/{verb}", verb, text, _ID)
        for verb, text in (
            ("cancel", "End a job that waits, ask one that runs to end."),
            ("pause", "Keep a job from starting, or stop it."),
            ("resume", "Bring a paused job back."),
            ("retry", "Accept an ended job once more, under a new id."),
            ("forget", "Keep an ended job no longer."),
        )
    ),
    get_route("/machine/jobs/{id}", "job", "One job or lease, with its why.", Row, (_ID,)),
    _post("/machine/retry", "retry_failed", "Accept all jobs once more that have failed."),
    _post("/machine/forget", "forget_ended", "Keep no job that has ended."),
    _post("/machine/leases", "lease", "Ask for a permission; the answer stays open as long as it lives.", body=_LEASE),
    _post("/machine/leases/{id}/taken", "taken", "The client of a lease takes its permission.", _ID),
    _post("/machine/leases/{id}/stopped", "stopped", "The terminal of a client has stopped its command.", _ID),
    _post("/machine/leases/{id}/parked", "parked", "The client of a lease has stopped its command.", _ID),
    _post("/machine/leases/{id}/ended", "ended", "The command of a lease has ended.", _ID),
    _post("/machine/page", "page", "Serve the page on a port of this machine; answers with its address."),
    _post("/machine/down", "down", "End the service: with what runs, or now."),
)
