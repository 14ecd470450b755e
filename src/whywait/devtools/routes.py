"""The routes as data: what there is, what it takes, what it answers; the server and its description read this."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from whywait.devtools.table import UNSEEN
from whywait.kernel.state import Outcome

Schema = dict[str, Any]

_INT: Final[Schema] = {"type": "integer"}
_TEXT: Final[Schema] = {"type": "string"}
_FLAG: Final[Schema] = {"type": "boolean"}
_NUMBER: Final[Schema] = {"type": "number"}
_MAYBE_INT: Final[Schema] = {"type": ["integer", "null"]}
_MAYBE_TEXT: Final[Schema] = {"type": ["string", "null"]}
_AMOUNTS: Final[Schema] = {"type": "object", "additionalProperties": _INT}
_NUMBERS: Final[Schema] = {"type": "array", "items": _INT}

MAX_PAGE: Final = 1_000
MAX_NAME: Final = 1_000  # characters of a name in a path: looking one up, under the lock, costs more the longer it is
NOTHING: Final = "nothing"  # was done, and that is no error: the task has ended already (X4)
STATES: Final = ("QUEUED", "READY", "RUNNING", "PAUSED", "DISPOSING", "DISPOSED")
OUTCOMES: Final = (*Outcome, UNSEEN)


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _object(required: Schema, **optional: Schema) -> Schema:
    return {"type": "object", "properties": {**required, **optional}, "required": list(required)}


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


_UNITS: Final = {"type": "object", "additionalProperties": _list(_TEXT)}
_HOLDERS: Final = _list(_object({"number": _INT, "id": _TEXT, "scope": _TEXT, "amount": _INT, "function": _MAYBE_TEXT}))
_GATE: Final = {"name": _TEXT, "limit": _MAYBE_INT, "free": _MAYBE_INT, "soft": _FLAG}

SCHEMAS: Final[dict[str, Schema]] = {
    "Error": _object({"error": _TEXT}),
    "Event": _object(
        {"seq": _INT, "time_ns": _INT, "kind": _TEXT, "scope": _TEXT},
        number=_INT,
        name=_TEXT,
        cause=_INT,
        details={"type": "object"},
    ),
    "Task": _object(
        {
            "number": _INT,
            "id": _TEXT,
            "function": _MAYBE_TEXT,
            "scope": _TEXT,
            "state": {"type": "string", "enum": list(STATES)},
            "priority": _INT,
            "demand": _AMOUNTS,
            "devices": _UNITS,
            "attempt": _INT,
            "of": _MAYBE_INT,
            "retried_as": _MAYBE_INT,
            "after": _NUMBERS,
            "after_ended": _NUMBERS,
            "periodic": _MAYBE_TEXT,
            "held_by": _MAYBE_TEXT,
            "submitted_ns": _INT,
            "ready_ns": _MAYBE_INT,
            "started_ns": _MAYBE_INT,
            "ended_ns": _MAYBE_INT,
            "paused_from": _MAYBE_TEXT,
            "outcome": {"enum": [*OUTCOMES, None]},
            "cause": _MAYBE_TEXT,
            "root": _MAYBE_TEXT,
            "waits": _AMOUNTS,
            "starved_ns": _INT,
            "place": {"type": ["object", "null"]},
            "seq": _INT,
            "waits_for": _MAYBE_TEXT,
        }
    ),
    "Gate": _object(_GATE),
    "Resource": _object(
        {
            **_GATE,
            "holders": _HOLDERS,
            "holders_total": _INT,
        }
    ),
    "Unit": _object(
        {
            "kind": _TEXT,
            "name": _TEXT,
            "size": _INT,
            "free": _INT,
            "used": _INT,
            "whole": _FLAG,
            "present": _FLAG,
            "holders": _HOLDERS,
            "holders_total": _INT,
        }
    ),
    "Lane": _object(
        {
            "priority": _INT,
            "scope": _TEXT,
            "demand": _AMOUNTS,
            "length": _INT,
            "waits_for": _TEXT,
            "gate_scope": _MAYBE_TEXT,
            "starved": _FLAG,
            "tasks": _list(
                _object(
                    {
                        "number": _INT,
                        "id": _TEXT,
                        "since_ns": _INT,
                        "effective_priority": _INT,
                        "starved_told": _FLAG,
                        "function": _MAYBE_TEXT,
                    }
                )
            ),
        }
    ),
    "Scope": _object(
        {
            "key": _TEXT,
            "parent": _MAYBE_TEXT,
            "state": _TEXT,
            "tasks": _INT,
            "running": _INT,
            "ready": _INT,
            "slots": _ref("Gate"),
        }
    ),
    "Periodic": _object(
        {
            "id": _TEXT,
            "task_ref": _MAYBE_INT,
            "enabled": _FLAG,
            "interval_ms": _NUMBER,
            "last_run_at": _MAYBE_INT,
            "running_since": _MAYBE_INT,
            "next_run_at": _MAYBE_INT,
            "run_count": _INT,
            "skipped": _INT,
            "missed": _INT,
            "consecutive_failures": _INT,
            "last_error": _MAYBE_TEXT,
        },
        overlap=_TEXT,
        priority=_INT,
    ),
    "Snapshot": _object(
        {
            "now_ns": _INT,
            "seq": _INT,
            "counts": _object({"running": _INT, "ready": _INT, "not_ready": _INT, "starved": _INT}),
            "starvation": _object({"now": _INT, "longest_ns": _INT, "total_ns": _INT}),
            "slots": _ref("Gate"),
            "running": _list({"type": "object"}),
            "lanes": _list(_ref("Lane")),
            "lanes_total": _INT,
            "budget": _list(_ref("Resource")),
            "devices": _list(_ref("Unit")),
            "devices_total": _INT,
            "scopes": _list(_ref("Scope")),
            "periodics": _list(_ref("Periodic")),
        }
    ),
    "Info": _object(
        {
            "run": _TEXT,
            "version": _TEXT,
            "mode": {"enum": ["live", "saved"]},
            "control": _FLAG,
            "finished": _FLAG,
            "name": _TEXT,
            "now_ns": _INT,
            "wall_ms": _NUMBER,
            "seq": _INT,
            "settings": {"type": "object"},
        }
    ),
    "OneTask": _object(
        {
            "task": _ref("Task"),
            "why": {"type": "object"},
            "text": _TEXT,
            "story": _list(_ref("Event")),
            "streams": _AMOUNTS,
            "attempts": _list(_ref("Task")),
            "awaits": _list(_ref("Task")),
            "awaited_by": _list(_ref("Task")),
            "awaited_by_total": _INT,
        }
    ),
    "Done": _object({"done": _TEXT, "state": _TEXT}),
}


_KINDS: Final[dict[str, tuple[type, ...]]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}


def fits(value: object, schema: Schema) -> bool:
    """Return whether JSON has the form that is described: kinds and required fields; words of an enum may be newer."""
    if not schema:
        return True
    if "$ref" in schema:
        schema = SCHEMAS[schema["$ref"].rpartition("/")[2]]
    kinds = schema.get("type", list(_KINDS))
    if not any(type(value) in _KINDS[kind] for kind in ([kinds] if isinstance(kinds, str) else kinds)):
        return False
    if isinstance(value, list):
        return all(fits(each, schema.get("items", {})) for each in value)
    if not isinstance(value, dict):
        return True
    fields, others = schema.get("properties", {}), schema.get("additionalProperties") or {}
    return value.keys() >= set(schema.get("required", ())) and all(
        fits(each, fields.get(name, others)) for name, each in value.items()
    )


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
    answer: Schema
    params: tuple[Param, ...] = ()
    media: tuple[str, ...] = ("application/json",)
    errors: tuple[int, ...] = ()
    body: Schema | None = None
    control: bool = False
    open: bool = False


_NAME: Final[Schema] = {"type": "string", "minLength": 1, "maxLength": MAX_NAME}
_REF: Final = Param("ref", _NAME, "id, scope/id, number or @number of a task; @number is always short enough", "path")
_KEY: Final = Param("key", _NAME, "key of a scope", "path")
_PERIODIC: Final = Param("id", _NAME, "a periodic: scope/id", "path")
_SINCE: Final = Param("since", {"type": "integer", "minimum": 0}, "seq of the last event that is known")


_SNAPSHOTS: Final = Param(
    "snapshots", {"type": "string", "enum": ["no", "yes"]}, "whether a stream tells the snapshot too, once a second"
)


_SECONDS: Final = Param(
    "seconds",
    {"type": "integer", "minimum": 1, "maximum": 86_400},
    "how long a stream lasts; then it ends with `event: again`, so that a server that is to end does not wait for it",
)


def _limit(default: int) -> Param:
    return Param(
        "limit", {"type": "integer", "minimum": 1, "maximum": MAX_PAGE}, f"how many at most; {default} if unset"
    )


_TASK_FILTERS: Final = (
    Param("q", {"type": "string", "maxLength": 200}, "text that occurs in the id or the scope"),
    Param("state", {"type": "string", "enum": [*STATES, "waiting", "living", "ended"]}, "state, or a group of states"),
    Param("outcome", {"type": "string", "enum": list(OUTCOMES)}, "how it ended"),
    Param("scope", {"type": "string"}, "key of its scope"),
    Param("priority", {"type": "integer", "minimum": 0, "maximum": 100}, "its base priority"),
    Param("after", {"type": "integer", "minimum": 0}, "only tasks with a number above this one: the next page"),
    _limit(100),
)

ROUTES: Final = (
    RouteSpec(
        "GET", "/healthz", "healthz", "Whether the server answers.", _object({"status": {"enum": ["ok"]}}), open=True
    ),
    RouteSpec(
        "GET",
        "/metrics",
        "metrics",
        "Counters, gauges and histograms; JSON if asked for by Accept, Prometheus text otherwise.",
        _object({"scheduler": {"type": "object"}}),
        media=("application/json", "text/plain"),
    ),
    RouteSpec("GET", "/api/info", "info", "What this server shows: a live or a saved run.", _ref("Info")),
    RouteSpec(
        "GET", "/api/snapshot", "snapshot", "What runs and what waits now, bounded and at most a second old.",
        _ref("Snapshot"),
    ),
    RouteSpec(
        "GET",
        "/api/tasks",
        "tasks",
        "Tasks in order of submission, filtered, page by page.",
        _object({"tasks": _list(_ref("Task")), "total": _INT, "seq": _INT, "next": _MAYBE_INT}),
        params=_TASK_FILTERS,
        errors=(400,),
    ),
    RouteSpec(
        "GET", "/api/tasks/{ref}", "task", "One task: why it waits, its story, its attempts, its neighbours.",
        _ref("OneTask"), params=(_REF,), errors=(400, 404, 409),
    ),
    RouteSpec(
        "GET", "/api/lanes", "lanes", "The lanes in order of priority.",
        _object({"lanes": _list(_ref("Lane")), "lanes_total": _INT}),
    ),
    RouteSpec("GET", "/api/scopes", "scopes", "The living scopes.", _object({"scopes": _list(_ref("Scope"))})),
    RouteSpec(
        "GET", "/api/budget", "budget", "Slots, resources and devices, and which tasks hold them.",
        _object(
            {
                "slots": _ref("Gate"),
                "budget": _list(_ref("Resource")),
                "devices": _list(_ref("Unit")),
                "devices_total": _INT,
            }
        ),
    ),
    RouteSpec(
        "GET", "/api/periodics", "periodics", "The periodic tasks and how they fare.",
        _object({"periodics": _list(_ref("Periodic"))}),
    ),
    RouteSpec("GET", "/api/report", "report", "Where the waiting went, so far.", {"type": "object"}),
    RouteSpec(
        "GET",
        "/api/events",
        "events",
        "Events after a seq, as JSON; as an endless stream if text/event-stream is accepted (Last-Event-ID resumes).",
        _object({"events": _list(_ref("Event")), "seq": _INT, "next": _INT, "skipped": _INT}),
        params=(_SINCE, _limit(500), _SNAPSHOTS, _SECONDS),
        media=("application/json", "text/event-stream"),
        errors=(400, 503),
    ),
    *(
        RouteSpec(
            "POST", f"/api/tasks/{{ref}}/{verb}", f"{verb}_task", text, _ref("Done"), params=(_REF,),
            errors=(400, 404, 409), control=True,
        )
        for verb, text in (
            ("cancel", "End a pending task, ask a running one to abort; one that has ended stays as it is."),
            ("pause", "Pause a task; a running one parks at its next checkpoint, one that has ended stays as it is."),
            ("resume", "Bring a paused task back."),
        )
    ),
    *(
        RouteSpec(
            "POST", f"/api/scopes/{{key}}/{verb}", f"{verb}_scope", text, _ref("Done"), params=(_KEY,),
            errors=(400, 404, 409), control=True,
        )
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
        _ref("Done"),
        params=(_PERIODIC,),
        errors=(400, 404, 409),
        body={
            "type": "object",
            "properties": {"enabled": _FLAG, "immediately": _FLAG},
            "required": ["enabled"],
            "additionalProperties": False,
        },
        control=True,
    ),
)  # fmt: skip

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
    answers: dict[str, Schema] = {
        "200": {
            "description": "As asked.",
            "content": {kind: {"schema": route.answer if "json" in kind else _TEXT} for kind in route.media},
        }
    }
    for status in (*route.errors, *(() if route.open else (401,))):
        answers[str(status)] = {
            "description": _ERROR_TEXTS[status],
            "content": {"application/json": {"schema": _ref("Error")}},
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
