"""The API against its own description: requests made from it by the hundred, every answer as described."""

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from devtools_client import served
from whywait.devtools.api import ROUTES

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
REFUSALS = {400, 404, 405, 413}


@pytest.fixture(scope="module")
def tools():
    with served(slots=1) as (authority, tools, gate):
        authority.scope("render").periodic(int, every=3600, id="sample")
        authority.submit(gate, id="first")
        for index in range(20):
            authority.submit(int, id=f"t{index}", priority=index)
        authority.submit(int, id="last", after=["t3"])
        yield tools


@pytest.fixture(scope="module")
def description(tools):
    return schemathesis.openapi.from_url(
        f"{tools.base_url}openapi.json", headers={"Authorization": f"Bearer {tools.token}"}
    )


FINE, MALFORMED = GenerationMode.POSITIVE, GenerationMode.NEGATIVE
CASES = [(route, FINE) for route in ROUTES]
CASES += [(route, MALFORMED) for route in ROUTES if route.body or any(param.where == "query" for param in route.params)]


@pytest.mark.parametrize(("route", "mode"), CASES, ids=lambda part: getattr(part, "name", part))
def test_every_answer_is_as_described(tools, description, route, mode):
    operation = description[route.path][route.method]
    headers = {"Authorization": f"Bearer {tools.token}", "Accept": "application/json"}

    @settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True, database=None)
    @given(case=operation.as_strategy(generation_mode=mode))
    def ask(case):
        answer = case.call(headers=headers, timeout=20)
        if mode is MALFORMED and answer.status_code in REFUSALS:
            assert answer.json()["error"]
        else:
            case.validate_response(answer, checks=CHECKS)

    ask()
