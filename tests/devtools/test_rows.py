"""A task's row is declared once, in observe/fold.py: what is shown has its fields, neither more nor fewer."""

import json
import re
from pathlib import Path
from typing import Annotated, get_type_hints

import pytest

from devtools_client import get, served
from patience import until
from whywait.cli import execute
from whywait.devtools.schemas import SCHEMAS, fits, object_of, schema_of
from whywait.devtools.table import ROW
from whywait.machine.listing import Row
from whywait.observe.fold import Attempt

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def standing():
    with served(slots=1) as (authority, tools, gate):
        first = authority.submit(gate, id="first")
        authority.submit(int, id="second", after_ended=[first])
        until(lambda: get(tools, "/api/info")["seq"] == authority._core.last_seq)
        yield tools


def test_the_fields_of_a_row_are_those_of_an_attempt_that_say_what_they_mean():
    told = {
        name for name, kind in get_type_hints(Attempt, include_extras=True).items() if hasattr(kind, "__metadata__")
    }
    assert told | {"held_by", "waits_for"} == set(ROW)
    assert set(Attempt.__slots__) - told == {"complete", "queued_for"}, "which only the fold itself needs"


def test_every_answer_with_tasks_has_the_row_as_it_is_declared(standing):
    one = get(standing, "/api/tasks/second")
    for row in (*get(standing, "/api/tasks")["tasks"], one["task"], *one["attempts"], *one["awaits"]):
        assert set(row) == set(ROW)
        assert fits(row, SCHEMAS["Task"])


def test_the_description_has_each_field_with_its_meaning(standing):
    task = get(standing, "/openapi.json")["components"]["schemas"]["Task"]
    assert set(task["properties"]) == set(task["required"]) == set(ROW)
    assert all(field["description"] for field in task["properties"].values())


def test_the_command_line_prints_the_row_as_it_is_declared(standing, capsys):
    for verb in (["top", standing.url], ["why", "second", "--url", standing.url]):
        assert execute([*verb, "--json"]) == 0
        told = json.loads(capsys.readouterr().out)
        for row in told.get("tasks") or [told["task"]]:
            assert set(row) == set(ROW)


def test_the_page_of_the_rows_lists_the_fields_of_tasks_and_jobs():
    tasks, jobs = (DOCS / "rows.md").read_text(encoding="utf-8").split("## Jobs and permissions")
    for text, fields in ((tasks, ROW), (jobs, get_type_hints(Row))):
        assert re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE) == list(fields)


def test_a_schema_is_made_of_a_type():
    assert schema_of(int | None) == {"type": ["integer", "null"]}
    assert schema_of(tuple[int, ...]) == schema_of([int]) == {"type": "array", "items": {"type": "integer"}}
    assert schema_of(tuple[tuple[str, int], ...]) == schema_of(dict[str, int])
    assert schema_of(Annotated[str | None, "a word", ("yes", "no")]) == {
        "type": ["string", "null"], "description": "a word", "enum": ["yes", "no", None],
    }  # fmt: skip
    described = object_of({"number": int}, name=str)
    assert fits({"number": 1}, described)
    assert fits({"number": 1, "name": "x", "newer": []}, described)
    assert not fits({"name": "x"}, described)
    assert not fits({"number": True}, described)
