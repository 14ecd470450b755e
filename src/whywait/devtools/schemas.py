"""The forms of all answers as JSON Schema, made of the types that the answers are made of."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin, get_type_hints

from whywait.devtools.table import ROW
from whywait.kernel.snapshot import GateView, LaneView, PeriodicView, ScopeView, Snapshot, UnitView

Schema = dict[str, Any]
Form = Any  # a type in any of its spellings, the name of a schema, [X] for a list, or a dict for an object

_NAMED: Final[dict[Any, str]] = {
    GateView: "Gate", UnitView: "Unit", LaneView: "Lane", ScopeView: "Scope", PeriodicView: "Periodic",
}  # fmt: skip
_KINDS: Final[dict[Any, str]] = {
    int: "integer", str: "string", bool: "boolean", float: "number", dict: "object", list: "array", type(None): "null",
}  # fmt: skip


def schema_of(kind: Form) -> Schema:
    """Return the JSON Schema of a type.

    ``Annotated`` adds what a field means and, if those are a closed set, its values. Pairs are told as an object.
    """
    if isinstance(kind, str):
        return {"$ref": f"#/components/schemas/{kind}"}
    if isinstance(kind, list):
        return _list(kind[0])
    if isinstance(kind, dict):
        return object_of(kind)
    if kind in _NAMED:
        return schema_of(_NAMED[kind])
    if kind in _KINDS:
        return {"type": _KINDS[kind]}
    make = _COMPOSED.get(get_origin(kind))
    return object_of(get_type_hints(kind, include_extras=True)) if make is None else make(*get_args(kind))


def _list(item: Form, *_: object) -> Schema:
    return {"type": "array", "items": schema_of(item)}


def _mapping(_: type, value: Form) -> Schema:
    return {"type": "object", "additionalProperties": schema_of(value)}


def _tuple(item: Form, *_: object) -> Schema:
    is_pair = getattr(item, "__origin__", None) is tuple and ... not in get_args(item)
    return _mapping(*get_args(item)) if is_pair else _list(item)


def _union(*kinds: Form) -> Schema:
    return {"type": [schema_of(each)["type"] for each in kinds]}


def _annotated(kind: Form, about: str, values: Iterable[str] = ()) -> Schema:
    words = [*map(str, values), *([None] if type(None) in get_args(kind) else [])] if values else []
    return {**schema_of(kind), "description": about, **({"enum": words} if words else {})}


_COMPOSED: Final[dict[Any, Callable[..., Schema]]] = {
    Annotated: _annotated,
    Literal: lambda *words: {"type": "string", "enum": list(words)},
    Union: _union,
    types.UnionType: _union,
    list: _list,
    tuple: _tuple,
    dict: _mapping,
}


def object_of(required: dict[str, Form], **optional: Form) -> Schema:
    """Return the JSON Schema of an object with these fields."""
    properties = {name: schema_of(kind) for name, kind in {**required, **optional}.items()}
    return {"type": "object", "properties": properties, "required": list(required)}


SCHEMAS: Final[dict[str, Schema]] = {
    "Error": object_of({"error": str}),
    "Event": object_of(
        {"seq": int, "time_ns": int, "kind": str, "scope": str}, number=int, name=str, cause=int, details=dict
    ),
    "Task": object_of(ROW),
    **{name: object_of(get_type_hints(view)) for view, name in _NAMED.items()},
    "Snapshot": object_of({**get_type_hints(Snapshot), "seq": int}),
    "Info": object_of(
        {
            "run": str, "version": str, "mode": Literal["live", "saved"], "control": bool, "finished": bool,
            "name": str, "now_ns": int, "wall_ms": float, "seq": int, "settings": dict,
        }
    ),
    "OneTask": object_of(
        {
            "task": "Task", "why": dict, "text": str, "story": ["Event"], "streams": dict[str, int],
            "attempts": ["Task"], "awaits": ["Task"], "awaited_by": ["Task"], "awaited_by_total": int,
        }
    ),
    "Done": object_of({"done": str, "state": str}),
}  # fmt: skip
_TYPES: Final[dict[str, tuple[type, ...]]] = {
    **{name: (kind,) for kind, name in _KINDS.items()},
    "number": (int, float),
}


def fits(value: object, schema: Schema) -> bool:
    """Return whether JSON has the form that is described: kinds and required fields; words of an enum may be newer."""
    if not schema:
        return True
    if "$ref" in schema:
        schema = SCHEMAS[schema["$ref"].rpartition("/")[2]]
    kinds = schema["type"]
    if not any(type(value) in _TYPES[kind] for kind in ([kinds] if isinstance(kinds, str) else kinds)):
        return False
    if isinstance(value, list):
        return all(fits(each, schema.get("items", {})) for each in value)
    if not isinstance(value, dict):
        return True
    fields, others = schema.get("properties", {}), schema.get("additionalProperties") or {}
    return value.keys() >= set(schema.get("required", ())) and all(
        fits(each, fields.get(name, others)) for name, each in value.items()
    )
