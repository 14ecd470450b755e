"""How handlers answer: JSON, errors that say what was wrong, and parameters checked against their description."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from whywait.devtools.api import MAX_NAME, Param
from whywait.devtools.encoding import encode_in_steps
from whywait.devtools.table import MAX_DIGITS
from whywait.support.units import shown


class Problem(HTTPException):
    """A request that cannot be answered as asked: a status, a message that says why, and headers of the answer."""


class Json(Response):
    """An answer in JSON, encoded in small steps."""

    media_type = "application/json"

    def render(self, content: dict[str, Any]) -> bytes:
        """Encode the answer."""
        return encode_in_steps(content).encode()


async def problem_answer(request: Request, error: Exception) -> Response:
    """Answer a problem as JSON; a path that leads nowhere is one, of which only the router knows."""
    assert isinstance(error, HTTPException), "registered for these only"
    is_nowhere = error.status_code == HTTPStatus.NOT_FOUND and not isinstance(error, Problem)
    text = f"there is nothing at {shown(request.url.path)}: see /openapi.json" if is_nowhere else error.detail
    return Json({"error": text}, error.status_code, error.headers)


def read_query(request: Request, params: tuple[Param, ...]) -> dict[str, Any]:
    """Return the query's parameters by name, checked; None for those that were not given."""
    known = {param.name: param for param in params if param.where == "query"}
    for name in request.query_params:
        if name not in known:
            raise Problem(400, f"unknown parameter {shown(name)}: use {', '.join(known) or 'none'}")
    values: dict[str, Any] = {}
    for name, param in known.items():
        given = request.query_params.getlist(name)
        if len(given) > 1:
            raise Problem(400, f"parameter {name} was given {len(given)} times: give it once")
        values[name] = check_value(param, given[0]) if given else None
    return values


def read_name(request: Request, param: str) -> str:
    """Return the name that stands in the path; raise a Problem if it is too long to be looked up."""
    name: str = request.path_params[param]
    if len(name) > MAX_NAME:
        raise Problem(
            400, f"{shown(name)} is longer than {MAX_NAME} characters: a task is also found as @ and its number"
        )
    return name


def check_value(param: Param, text: str) -> int | str:
    """Return what a text stands for, as the parameter describes it; raise a Problem otherwise."""
    schema = param.schema
    if schema["type"] == "integer":
        low, high = schema["minimum"], schema.get("maximum", 2**63)
        if not (text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS and low <= int(text) <= high):
            raise Problem(400, f"{param.name}={shown(text)} is not an int from {low} to {high}")
        return int(text)
    if "enum" in schema and text not in schema["enum"]:
        raise Problem(400, f"{param.name}={shown(text)} is not one of {', '.join(schema['enum'])}")
    if len(text) > schema.get("maxLength", len(text)):
        raise Problem(400, f"{param.name} is longer than {schema['maxLength']} characters")
    return text
