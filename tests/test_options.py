"""The table of options: what a row promises, and that one row is enough for workflow files and workloads."""

import subprocess
import sys
import textwrap
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


NEW_OPTION = """
    import inspect, json, sys
    import whywait.options as options
    from whywait.support.forms import Option, whole

    places = {place for row in options.OPTIONS for place in row.places} - {options.RETRY, options.RESIZE}
    options.OPTIONS += (Option("hurry", whole(0), "how much it hurries", tuple(places), 7, "WHYWAIT_HURRY"),)
    options.table.cache_clear()

    from page_options import option_types, settings_page
    from whywait import Authority, ConfigError, Settings, Simulation
    from whywait.machine import asked
    from whywait.simulation.workload import Workload
    from whywait.workflow.documents import Document
    from whywait.workflow.format import make_schema
    from whywait.workflow.read import read_workflow

    assert Settings.from_env({}).hurry == 7
    assert Settings.from_env({"WHYWAIT_HURRY": "4"}).hurry == 4
    assert Settings.from_env({"WHYWAIT_HURRY": "4"}, hurry=3).hurry == 3
    assert "hurry=3" in repr(Settings(hurry=3))
    assert inspect.signature(Authority).parameters["hurry"].annotation == "int"
    with Authority(hurry=2) as authority, authority.scope("s", hurry=1) as scope:
        assert scope.submit(int, hurry=1).result() == 0
        scope.periodic(int, every=9, hurry=1)
        for refused in (Authority, Settings, lambda hurry: authority.scope("t", hurry=hurry)):
            try:
                refused(hurry=-1)
            except ConfigError as error:
                assert "hurry: -1 is not allowed" in str(error)
    types = option_types()
    assert types.count("    hurry: int  # how much it hurries") == 3, types  # of authorities, scopes, and bodies
    assert "| `hurry` | `WHYWAIT_HURRY` | `7` | how much it hurries |" in settings_page()
    table = {"hurry": 5}
    document = {"task": {"t": {"run": "true", **table}}, "scope": {"s": table}, "scheduler": table, "defaults": table}
    flow = read_workflow(Document(document, "flow", Path("."), lambda _: None))
    assert flow.tasks[0].options["hurry"] == 5
    shown = json.dumps(make_schema())
    assert shown.count('"hurry": {"description": "how much it hurries"') == 7
    workload = {"config": table, "tasks": [{"id": "t", "at_ms": 0, "duration_ms": 1, **table}]}
    assert Simulation(workload, hurry=9)._config["hurry"] == 9
    assert "hurry" in asked.OF_JOBS and "hurry" in asked.OF_LEASES
"""


def test_a_new_option_is_one_row():
    """E1, E2: it is in every table, signature, type, page, schema and variable; the effect is all that is missing."""
    tools = str(Path(__file__).parent.parent / "tools")
    program = "import sys\nfrom pathlib import Path\nsys.path.insert(0, sys.argv[1])\n" + textwrap.dedent(NEW_OPTION)
    done = subprocess.run([sys.executable, "-c", program, tools], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
