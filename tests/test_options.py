"""The table of options: what a row promises, and that one row is enough for workflow files and workloads."""

from pathlib import Path

import pytest

from whywait import options
from whywait.options import LOAD_PERIODIC, LOAD_SCOPE, LOAD_TASK, OPTIONS, PERIODIC, SCOPE, TASK
from whywait.simulation.workload import Workload
from whywait.workflow.documents import Document
from whywait.workflow.plan import to_workload
from whywait.workflow.read import read_workflow

# A value of each option that is no default, as people write it, and the key and value of it in a workload.
WRITTEN = {
    "priority": ("high", {"priority": 80}),
    "cpu": (2, {"cpu": 2}),
    "ram": ("2kB", {"ram": 2000}),
    "vram": ("3kB", {"vram": 3000}),
    "resources": ({"licence": 1}, {"resources": {"licence": 1}}),
    "gpu": (1, {"gpu": 1}),
    "devices": ({"rig": 1}, {"devices": {"rig": 1}}),
    "slot": (False, {"slot": False}),
    "every": ("2s", {"every_ms": 2000}),
    "overlap": ("queue", {"overlap": "queue"}),
    "max_parallel": (3, {"max_parallel": 3}),
    "jitter": (0.2, {"jitter": 0.2}),
    "enabled": (False, {"enabled": False}),
    "disable_after": (4, {"disable_after": 4}),
    "slots": (3, {"slots": 3}),
    "on_error": ("abort", {"on_error": "abort"}),
    "max_spawn": (9, {"max_spawn": 9}),
    "queue_limit": (8, {"queue_limit": 8}),
    "overflow": ("displace", {"overflow": "displace"}),
    "when_busy": ("reject", {"when_busy": "reject"}),
    "timeout": ("1m", {"timeout_ms": 60_000}),
    "retry": ({"times": 2, "backoff": "1s"}, {"retry": 2, "backoff_ms": 1000}),
    "max_wait": ("5s", {"max_wait_ms": 5000}),
}
BUDGET = {"gpus": ["8kB"], "devices": {"rig": 1}, "resources": {"licence": 1}}
PAIRS = [
    pytest.param(option.name, place, id=f"{place}.{option.name}")
    for option in OPTIONS
    for place, load in ((TASK, LOAD_TASK), (PERIODIC, LOAD_PERIODIC), (SCOPE, LOAD_SCOPE))
    if place in option.places and load in option.places
]


def workload_with(name, place, value):
    """Return the entry of the workload of a file in which one table has one more key."""
    body = {"run": "true", "duration": "1s"}
    tables = {TASK: {"t": body}, PERIODIC: {"p": {**body, "every": "1s"}}, SCOPE: {"s": {}}}
    (changed,) = tables[place]
    tables[place] = {changed: {**tables[place][changed], name: value}}
    document = Document({"slots": 2, "budget": BUDGET, **tables}, "flow", Path(), lambda _: None)
    workload = to_workload(read_workflow(document))
    assert Workload(workload).ids == ("t",)
    entries = {TASK: workload["tasks"], PERIODIC: workload["periodics"], SCOPE: [workload["config"]["scopes"]["s"]]}
    return entries[place][0]


@pytest.mark.parametrize(("name", "place"), PAIRS)
def test_a_row_for_both_kinds_of_files_takes_a_value_from_one_to_the_other(name, place):
    """C0, G5: a duration in milliseconds, a size in bytes; nothing but the row says so."""
    value, told = WRITTEN[name]
    assert told.items() <= workload_with(name, place, value).items()


@pytest.mark.parametrize("option", [each for each in OPTIONS if each.default is not None], ids=lambda each: each.name)
def test_a_default_is_a_value_of_its_option(option):
    option.form.parse(option.default)


def test_no_place_has_two_rows_of_a_name():
    for place in {place for option in OPTIONS for place in option.places}:
        names = [option.name for option in OPTIONS if place in option.places]
        assert len(names) == len(set(names)) == len(options.table(place)), place
