"""The routes as data: what there is, what it takes, what it answers; the server and its description read this."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal

from whywait.devtools.schemas import SCHEMAS, Form, Schema, object_of, schema_of
from whywait.kernel.snapshot import GateView, LaneView, PeriodicView, ScopeView, UnitView
from whywait.kernel.state import Outcome, TaskState
from whywait.observe.fold import UNSEEN

MAX_PAGE: Final = 1_000
MAX_NAME: Final = 1_000  # characters of a name in a path: looking one up, under the lock, costs more the longer it is
NOTHING: Final = "nothing"  # was done, and that is no error: the task has ended already (X4)


@dataclass(frozen=True, slots=True)
class Param:
    """One parameter of a route, in its path or its query."""

    name: str
    schema: Schema
    text: str
    where: str = "query"


@dataclass(frozen=True, slots=True)
class RouteSpec:
    """One route: ``name`` is the handler's, ``control``: it changes the run, ``open``: it needs no token."""

    method: str
    path: str
    name: str
    summary: str
    answer: Form
    params: tuple[Param, ...] = ()
    media: tuple[str, ...] = ("application/json",)
    errors: tuple[int, ...] = ()  # beside those that its parameters and the token can lead to
    body: Schema | None = None
    control: bool = False
    open: bool = False


get_route: Final = partial(RouteSpec, "GET")
post_route: Final = partial(RouteSpec, "POST", control=True)


def _number(low: int, high: int | None = None) -> Schema:
    return {"type": "integer", "minimum": low, **({} if high is None else {"maximum": high})}


def _word(*words: str) -> Schema:
    return {"type": "string", "enum": list(words)}


def _limit(default: int) -> Param:
    return Param("limit", _number(1, MAX_PAGE), f"how many at most; {default} if unset")


_NAME: Final[Schema] = {"type": "string", "minLength": 1, "maxLength": MAX_NAME}
_REF: Final = Param("ref", _NAME, "id, scope/id, number or @number of a task; @number is always short enough", "path")
_KEY: Final = Param("key", _NAME, "key of a scope", "path")
_PERIODIC: Final = Param("id", _NAME, "a periodic: scope/id", "path")
_OF_TASKS: Final = (
    Param("q", {"type": "string", "maxLength": 200}, "text that occurs in the id or the scope"),
    Param("state", _word(*TaskState, "waiting", "living", "ended"), "state, or a group of states"),
    Param("outcome", _word(*Outcome, UNSEEN), "how it ended"),
    Param("scope", {"type": "string"}, "key of its scope"),
    Param("priority", _number(0, 100), "its base priority"),
    Param("after", _number(0), "only tasks with a number above this one: the next page"),
    _limit(100),
)
_OF_EVENTS: Final = (
    Param("since", _number(0), "seq of the last event that is known"),
    _limit(500),
    Param("snapshots", _word("no", "yes"), "whether a stream tells the snapshot too, once a second"),
    Param(
        "seconds",
        _number(1, 86_400),
        "how long a stream lasts; then it ends with `event: again`: a server that is to end does not wait for it",
    ),
)

ROUTES: Final = (
    get_route("/healthz", "healthz", "Whether the server answers.", {"status": Literal["ok"]}, open=True),
    get_route(
        "/metrics",
        "metrics",
        "Counters, gauges and histograms; JSON if asked for by Accept, Prometheus text otherwise.",
        {"scheduler": dict},
        media=("application/json", "text/plain"),
    ),
    get_route("/api/info", "info", "What this server shows: a live or a saved run.", "Info"),
    get_route(
        "/api/snapshot", "snapshot", "What runs and what waits now, bounded and at most a second old.", "Snapshot"
    ),
    get_route(
        "/api/tasks",
        "tasks",
        "Tasks in order of submission, filtered, page by page.",
        {"tasks": ["Task"], "total": int, "seq": int, "next": int | None},
        _OF_TASKS,
    ),
    get_route(
        "/api/tasks/{ref}",
        "task",
        "One task: why it waits, its story, its attempts, its neighbours.",
        "OneTask",
        (_REF,),
    ),
    get_route("/api/lanes", "lanes", "The lanes in order of priority.", {"lanes": [LaneView], "lanes_total": int}),
    get_route("/api/scopes", "scopes", "The living scopes.", {"scopes": [ScopeView]}),
    get_route(
        "/api/budget",
        "budget",
        "Slots, resources and devices, and which tasks hold them.",
        {"slots": GateView, "budget": [GateView], "devices": [UnitView], "devices_total": int},
    ),
    get_route("/api/periodics", "periodics", "The periodic tasks and how they fare.", {"periodics": [PeriodicView]}),
    get_route("/api/report", "report", "Where the waiting went, so far.", dict),
    get_route(
        "/api/events",
        "events",
        "Events after a seq, as JSON; as an endless stream if text/event-stream is accepted (Last-Event-ID resumes).",
        {"events": ["Event"], "seq": int, "next": int, "skipped": int},
        _OF_EVENTS,
        media=("application/json", "text/event-stream"),
        errors=(503,),
    ),
    *(
        post_route(f"/api/tasks/{{ref}}/{verb}", f"{verb}_task", text, "Done", (_REF,))
        for verb, text in (
            ("cancel", "End a pending task, ask a running one to abort; one that has ended stays as it is."),
            ("pause", "Pause a task; a running one parks at its next checkpoint, one that has ended stays as it is."),
            ("resume", "Bring a paused task back."),
        )
    ),
    *(
        post_route(f"/api/scopes/{{key}}/{verb}", f"{verb}_scope", text, "Done", (_KEY,))
        for verb, text in (
            ("suspend", "Keep everything pending in a scope from starting."),
            ("resume", "Lift a suspension."),
            ("dispose", "End everything inside a scope."),
        )
    ),
    RouteSpec(
        "PUT",
        "/api/periodics/{id}",
        "set_periodic_enabled",
        "Switch a periodic task on or off.",
        "Done",
        (_PERIODIC,),
        body={**object_of({"enabled": bool}, immediately=bool), "additionalProperties": False},
        control=True,
    ),
)

_ERROR_TEXTS: Final = {
    400: "A parameter or the body is malformed.",
    401: "The token is missing or wrong.",
    404: "There is no such thing.",
    409: "It is not possible now, or the name is ambiguous.",
    503: "Too many viewers.",
}


def describe(version: str, routes: Iterable[RouteSpec]) -> Schema:
    """Return the OpenAPI description of some routes."""
    paths: dict[str, Schema] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "whywait DevTools",
            "version": version,
            "description": "What runs, what waits, why, and for which tasks; no arguments, results or payloads.",
        },
        "paths": paths,
        "components": {
            "schemas": SCHEMAS,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    }


def _operation(route: RouteSpec) -> Schema:
    contents = {kind: {"schema": schema_of(route.answer if "json" in kind else str)} for kind in route.media}
    answers: dict[str, Schema] = {"200": {"description": "As asked.", "content": contents}}
    has_name = any(param.where == "path" for param in route.params)
    malformed = route.params or route.body is not None
    for status in (
        *((400,) if malformed else ()),
        *(() if route.open else (401,)),
        *((404, 409) if has_name else ()),
        *route.errors,
    ):
        answers[str(status)] = {
            "description": _ERROR_TEXTS[status],
            "content": {"application/json": {"schema": schema_of("Error")}},
        }
    operation: Schema = {
        "operationId": route.name,
        "summary": route.summary,
        "parameters": [
            {
                "name": param.name,
                "in": param.where,
                "required": param.where == "path",
                "schema": param.schema,
                "description": param.text,
            }
            for param in route.params
        ],
        "responses": answers,
    }
    if route.body is not None:
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": route.body}}}
    if route.open:
        operation["security"] = []
    return operation
