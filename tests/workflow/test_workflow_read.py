"""From a document to tasks: checks that tell everything at once, matrices, chains, defaults, overrides."""

from pathlib import Path

import pytest

from whywait.errors import ConfigError
from whywait.kernel.limits import Retry
from whywait.simulation.simulation import Simulation
from whywait.simulation.workload import Workload
from whywait.support.gpus import Found
from whywait.workflow import WorkflowError, plan
from whywait.workflow.documents import Document
from whywait.workflow.expand import parse_override
from whywait.workflow.plan import changed, levels, to_workload
from whywait.workflow.read import read_workflow

HERE = Path(__file__).parent


def read(data, *overrides):
    return read_workflow(Document(data, "flow", HERE, lambda _: None), map(parse_override, overrides))


def problems(data, *overrides):
    with pytest.raises(WorkflowError) as caught:
        read(data, *overrides)
    return [f"{problem.place}: {problem.message}" for problem in caught.value.problems]


def tasks(**given):
    return {"task": {name: {"run": "true", **fields} for name, fields in given.items()}}


def by_id(workflow):
    return {task.id: task for task in workflow.tasks}


@pytest.mark.parametrize(
    "wrong", [{"vars": {"z" * 5000: []}}, {"defaults": {"retry": {"times": 1, "grow": {"ram": [["x" * 5000]]}}}}]
)
def test_a_message_is_no_longer_than_people_read(wrong):
    """G5: whatever of it comes from the file."""
    with pytest.raises(WorkflowError) as caught:
        read({**tasks(a={}), **wrong})
    assert all(len(line) < 1000 for line in str(caught.value).splitlines())


def test_tasks_may_be_named_in_any_order():
    """G5: a batch may name tasks in any order; they are submitted after what they need."""
    workflow = read(tasks(c={"after": ["b"]}, b={"after": "a"}, a={}, d={}))
    assert [task.id for task in workflow.tasks] == ["a", "b", "c", "d"]


def cards():
    return {"gpus": ["24GB", "12GB"], "devices": {"rig": ["a"]}}


def test_devices_are_asked_for_by_tasks_defaults_and_periodics():
    """N1, N2: a matrix needs no card by name; what every task has stands in [defaults]."""
    data = tasks(train={"foreach": {"seed": [1, 2, 3]}, "gpu": 1}, lora={"vram": "6GB"}, bench={"devices": {"rig": 1}})
    data |= {"budget": cards(), "defaults": {"gpu": 2}, "periodic": {"p": {"run": "x", "every": "1s", "vram": "5kB"}}}
    workflow = read(data)
    assert {task.id: dict(task.demand) for task in workflow.tasks} == {
        "train:1": {"gpu": 1},
        "train:2": {"gpu": 1},
        "train:3": {"gpu": 1},
        "lora": {"vram": 6 * 10**9, "gpu": 2},
        "bench": {"gpu": 2, "rig": 1},
    }
    assert dict(workflow.periodics[0].demand)["vram"] == 5000
    assert workflow.budget == {"gpus": {"0": 24 * 10**9, "1": 12 * 10**9}, "devices": {"rig": ["a"]}}
    other = read(data, 'budget.gpus=["9GB", "9GB"]', "task.lora.vram=0")
    assert by_id(other)["lora"].demand == (("gpu", 2),)


def test_a_size_in_a_file_needs_its_unit():
    """B6: of ram, vram and cards, in tasks, defaults, periodics and the budget; named resources are plain numbers."""
    data = tasks(a={"ram": 10}, b={"vram": "6", "resources": {"licence": 1}}, c={"ram": "learned:2"}, d={"ram": 0})
    data |= {"budget": {"ram": 8, "gpus": [24, "12GB"], "resources": {"licence": 2}}, "defaults": {"vram": 1}}
    assert sorted(problems(data)) == [
        "budget.gpus: 24 what? write 24GB, or 24B for bytes",
        "budget.ram: 8 what? write 8GB, or 8B for bytes",
        "defaults.vram: 1 what? write 1GB, or 1B for bytes",
        "task.a.ram: 10 what? write 10GB, or 10B for bytes",
        "task.b.vram: 6 what? write 6GB, or 6B for bytes",
        "task.c.ram: 2 what? write 2GB, or 2B for bytes",
    ]
    fine = tasks(d={"ram": 0, "resources": {"licence": 1}}) | {"budget": {"gpus": 2, "resources": {"licence": 2}}}
    assert by_id(read(fine))["d"].demand == (("licence", 1),)


def test_what_no_card_could_do_is_refused_before_anything_runs():
    """N2, T3: all of it at once, with the place."""
    data = tasks(a={"gpu": 3}, b={"vram": "20GB", "gpu": 2}, c={"devices": {"rgi": 1}}, d={"devices": {"rig": 2}}, e={})
    assert problems(data | {"budget": cards() | {"gpus": ["9GB", "9GB"]}}) == [
        "task.a: it demands 3 gpu and there are 2 (0, 1): it could never start",
        "task.b: it demands 20 GB vram on 2 gpu and none has so much (0 has 9 GB, 1 has 9 GB): it could never start",
        "task.c: it demands 1 of 'rgi'; the budget has only: gpu, rig",
        "task.d: it demands 2 rig and there is 1 (a): it could never start",
    ]
    assert problems(tasks(a={"gpu": 1})) == [
        'task.a: the budget has no graphics cards: expected gpus = "auto", or which there are'
    ]
    assert read(tasks(a={"gpu": 9}) | {"budget": {"gpus": "auto"}}).budget == {"gpus": "auto"}  # known when it runs


@pytest.mark.parametrize(
    ("budget", "told"),
    [
        ({"gpus": 1, "vram": "8GB"}, "vram is the memory of each gpu: say it with gpus"),
        ({"gpus": 1, "resources": {"gpu": 1}}, "'gpu' is a resource and belongs to the devices 'gpu' too"),
        ({"devices": {"slot": 1}}, "a kind of device cannot be named 'slot': the name is taken"),
        ({"resources": {"a": 1}, "soft": {"a": 1}}, "resource 'a' is both hard and soft: choose one"),
    ],
)
def test_a_budget_that_means_two_things_is_refused(budget, told):
    """N1: memory belongs to the cards, and a name to one thing."""
    (problem,) = problems(tasks(a={}) | {"budget": budget})
    assert problem.startswith(f"budget: {told}")


def test_a_plan_has_the_cards_of_this_machine_where_the_file_says_auto(monkeypatch):
    """N1, C0: like the slots, which are its processors."""
    monkeypatch.setattr(plan, "find_gpus", lambda: Found({"0": 8}, ""))
    data = tasks(a={"gpu": 1, "duration": "1s"}, b={"gpu": 1, "duration": "1s"}) | {"budget": {"gpus": "auto"}}
    assert Simulation(to_workload(read(data))).run().summary["makespan_ms"] == 2000


def test_a_cycle_is_printed_as_a_cycle():
    """G5: cycles are errors that print the cycle."""
    data = tasks(a={"after": ["b"]}, b={"after": ["c"]}, c={"after_ended": ["a"]}, y={})
    assert problems(data) == ["task.a.after: the tasks wait for each other in a cycle: a -> b -> c -> a"]
    assert problems(tasks(x={"after": ["x"]})) == ["task.x.after: the tasks wait for each other in a cycle: x -> x"]


def test_a_long_cycle_is_cut():
    data = tasks(**{f"t{number}": {"after": [f"t{(number + 1) % 100}"]} for number in range(100)})
    (told,) = problems(data)
    assert "t0 -> t1 -> t2" in told
    assert "more) -> t99 -> t0" in told
    assert len(told) < 200


def test_an_unknown_name_comes_with_the_nearest():
    """G5: unknown names are errors that print the nearest name."""
    data = {**tasks(fetch={}, decode={"after": ["fetc"]}), "sequence": ["fetch", "decod"]}
    assert problems(data) == [
        'sequence[1]: "decod" is not a task of this file; did you mean "decode"?',
        'task.decode.after: "fetc" is not a task of this file; did you mean "fetch"?',
    ]


def test_all_problems_are_told_at_once():
    data = {
        "slot": 3,
        "budget": {"cpu": 4, "licence": 2, "ram": "8G"},
        "scheduler": {"order": "agin"},
        "defaults": {"timout": "1s"},
        "scope": {"io": {"slots": 0, "parent": "i"}},
        "task": {
            "a": {"run": "x", "call": "json:dumps"},
            "b": {"priority": 101, "cpu": 8, "retry": {"times": 1, "backof": 2}},
            "c": {"run": "x", "scope": "oi", "engine": "thread", "kwargs": {}, "resources": {"licence": 1}},
            "d": {"call": "textwrap:dednt", "env": {"A": "1"}, "timeout": "soon"},
            "e": {"call": "no_such_module:x", "engine": "command"},
            "../f": {"run": []},
        },
        "periodic": {"p": {"run": "x"}, "q": {"run": "x", "every": "1us"}, "a": {"run": "x", "every": 1}},
    }
    told = "\n".join(problems(data))
    for expected in (
        'slot: unknown key; did you mean "slots"?',
        "budget.licence: unknown key; a resource of your own goes into resources = { licence = 2 }",
        'budget.ram: "8G" could mean two sizes',
        'scheduler.order: "agin" is not allowed: expected one of aging, strict; did you mean "aging"?',
        'defaults.timout: unknown key; did you mean "timeout"?',
        "scope.io.slots: 0 is not allowed: expected an int from 1",
        'scope.io.parent: "i" is not a scope of this file',
        "task.a: has both run and call",
        "task.b.priority: 101 is not allowed: expected an int from 0 to 100",
        "task.b: it demands 8 cpu and the limit is 4: it could never start",
        'task.b.retry: backof: unknown key; did you mean "backoff"?',
        "task.b: has neither run nor call",
        'task.c.scope: "oi" is not a scope of this file',
        'task.c.engine: "thread" cannot run a command',
        "task.c.kwargs: a command takes no keyword arguments",
        "task.c: it demands 1 of 'licence'; the budget has only: cpu",
        'task.d.call: module "textwrap" has no function "dednt"; did you mean "dedent"?',
        "task.d.env: a function that shares the process cannot have an environment of its own",
        'task.d.timeout: "soon" is not a duration',
        'task.e.call: there is no module "no_such_module"',
        'task.e.engine: "command" cannot call a function',
        'task.../f: "../f" is no name',
        "task.../f.run: [] is not a command",
        'periodic.p: "every" is missing',
        'periodic.q.every: "1us" is not allowed: expected 1 ms or more',
        'periodic.a: "a" is the name of a task too',
    ):
        assert expected in told, expected


def test_a_list_brings_forth_a_task_for_each_value():
    data = tasks(draw={"run": "draw {item} {index} ${item} {other} {{item}}", "foreach": [1, "a/b", True]})
    workflow = read(data)
    assert {task.id: task.body.run for task in workflow.tasks} == {
        "draw:1": "draw 1 0 ${item} {other} {item}",
        "draw:a_b": "draw a/b 1 ${item} {other} {item}",
        "draw:true": "draw true 2 ${item} {other} {item}",
    }


def test_a_table_of_lists_brings_forth_every_combination():
    data = {"task": {"x": {"call": "json:dumps", "args": ["{size}", "{item}-{mode}"], "ram": "{size}kB",
                           "foreach": {"size": [1, 2], "mode": ["a", "b"]}}}}  # fmt: skip
    workflow = read(data)
    assert {task.id: (task.body.args, task.demand) for task in workflow.tasks} == {
        "x:1,a": ((1, "1,a-a"), (("ram", 1000),)),
        "x:1,b": ((1, "1,b-b"), (("ram", 1000),)),
        "x:2,a": ((2, "2,a-a"), (("ram", 2000),)),
        "x:2,b": ((2, "2,b-b"), (("ram", 2000),)),
    }


def test_the_name_of_a_matrix_stands_for_all_its_tasks():
    data = tasks(draw={"foreach": [1, 2]}, blur={"foreach": [1, 2], "after": ["draw:{item}"]}, pack={"after": "blur"})
    workflow = read(data)
    found = by_id(workflow)
    assert found["blur:2"].after == ("draw:2",)
    assert found["pack"].after == ("blur:1", "blur:2")
    assert [[task.id for task in row] for row in levels(workflow)] == [
        ["draw:1", "draw:2"], ["blur:1", "blur:2"], ["pack"]
    ]  # fmt: skip


def test_a_misspelt_placeholder_is_an_error_that_says_how_to_mean_it():
    (told,) = problems(tasks(a={"run": "echo {itme}", "foreach": [1]}))
    assert "{itme} is not a value of this task; did you mean {item}? (for the text itself write {{itme}})" in told


def test_values_that_look_the_same_get_different_ids():
    workflow = read(tasks(a={"run": "echo {item}", "foreach": ["x/y", "x:y", "x y"]}))
    assert [task.id for task in workflow.tasks] == ["a:x_y", "a:x_y.1", "a:x_y.2"]


def test_a_sequence_chains_by_success():
    """G5: the short form for a chain; a failure ends what follows (G3)."""
    workflow = read({**tasks(a={}, b={}, c={}), "sequence": ["a", "b", "c"]})
    assert {task.id: (task.after, task.after_ended) for task in workflow.tasks} == {
        "a": ((), ()), "b": (("a",), ()), "c": (("b",), ())
    }  # fmt: skip


def test_continue_on_fail_chains_by_the_end():
    """G6: after_ended is met whatever the outcome."""
    data = {**tasks(a={}, b={}, c={}), "sequence": ["a", "b", "c"], "failure_policy": "continue_on_fail"}
    assert {task.id: task.after_ended for task in read(data).tasks} == {"a": (), "b": ("a",), "c": ("b",)}


def test_defaults_stand_below_every_task():
    data = {
        "defaults": {"priority": "low", "env": {"A": 1, "B": 2}, "retry": 3, "timeout": "2s", "engine": "process"},
        "task": {
            "a": {"run": "x", "env": {"B": 3}, "retry": 0},
            "b": {"call": "json:dumps", "priority": 7},
        },
    }
    found = by_id(read(data))
    assert found["a"].priority == 20
    assert found["a"].body.env == {"A": "1", "B": "3"}
    assert found["a"].body.engine is None
    assert (found["a"].options["retry"], found["a"].options["timeout_ns"]) == (Retry(0), 2_000_000_000)
    assert (found["b"].priority, found["b"].body.engine) == (7, "process")
    assert found["b"].options["retry"] == Retry(3)


def test_retry_is_a_number_or_a_table():
    data = tasks(a={"retry": 2}, b={"retry": {"times": 3, "backoff": "500ms", "factor": 3, "jitter": 0.1}})
    found = by_id(read(data))
    assert found["a"].options["retry"] == Retry(2)
    assert found["b"].options["retry"] == Retry(3, backoff=0.5, factor=3, jitter=0.1)


def test_set_wins_over_the_file():
    """E1: what is given explicitly wins."""
    data = {"vars": {"n": 1}, **tasks(a={"run": "echo {n}", "priority": "low"})}
    workflow = read(data, "n=7", "task.a.priority=high", "slots=3", "name=other", "budget.ram=1GB")
    (task,) = workflow.tasks
    assert (task.body.run, task.priority, workflow.slots, workflow.name) == ("echo 7", 80, 3, "other")
    assert workflow.budget["ram"] == 1_000_000_000


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x", "expected key=value"),
        ("=3", "expected key=value"),
        ("a..b=3", "expected key=value"),
        ("slots.x=3", "slots.x cannot be set: slots is 2, which has no fields"),
        ("slot=3", 'slot: unknown key; did you mean "slots"?'),
        ("task.b.run=x", None),
    ],
)
def test_a_wrong_set_is_told(text, message):
    data = {"slots": 2, **tasks(a={})}
    if message is None:
        assert len(read(data, text).tasks) == 2
        return
    with pytest.raises(ConfigError) as caught:
        read(data, text)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"timeout": 1e300}, "expected at most ten years"),
        ({"timeout": float("inf")}, "is not a duration"),
        ({"timeout": 0}, "expected a duration above 0"),
        ({"ram": "9" * 29 + "EB"}, "is not allowed: use at most 10^18"),
        ({"cpu": 10**30}, "expected an int from 0"),
        ({"cpu": True}, "expected an int from 0"),
        ({"priority": -1}, "expected an int from 0 to 100"),
        ({"retry": 10**9}, "expected an int from 0 to 1000000"),
        ({"cwd": "a\0b"}, "expected a string that is not empty"),
        ({"run": "a\0b"}, "is not a command"),
        ({"env": {"A=B": 1}}, "is not the name of an environment variable"),
        ({"foreach": []}, "expected a list that is not empty"),
        ({"foreach": {"a": list(range(1000)), "b": list(range(1000))}}, "stands for 1,000,000 tasks"),
        ({"foreach": [{"a": 1}]}, "expected strings, numbers or booleans"),
        ({"duration": "0s"}, "expected a duration above 0"),
    ],
)
def test_absurd_values_are_refused(fields, message):
    assert message in "\n".join(problems({"task": {"a": {"run": "x", **fields}}}))


def test_a_file_without_tasks_is_told():
    assert problems({"name": "x"}) == [": no tasks: expected at least one table [task.NAME]"]
    assert problems({"task": {}}) == ["task: no tasks: expected at least one table [task.NAME]"]
    assert problems({"task": 3}) == ["task: 3 is not allowed: expected an object"]


def test_names_that_are_taken_are_told():
    (told,) = problems({**tasks(a={}), "scope": {"default": {}}})
    assert told.startswith("scope.default: the name is taken by the scope of tasks without one")
    (told,) = problems({"name": "x", **tasks(a={}), "scope": {"x": {}}})
    assert told.startswith("scope.x: the name is taken by the workflow itself")


def test_only_takes_what_is_needed_along():
    data = tasks(a={}, b={"after": ["a"]}, c={"after_ended": ["b"]}, d={}, m={"foreach": [1, 2], "after": "d"})
    workflow = read(data)
    assert [task.id for task in changed(workflow, only=["c"]).tasks] == ["a", "b", "c"]
    assert [task.id for task in changed(workflow, only=["m"]).tasks] == ["d", "m:1", "m:2"]
    assert [task.id for task in changed(workflow, only=["m:2"]).tasks] == ["d", "m:2"]
    with pytest.raises(ConfigError, match=r'"e" is not a task of flow'):
        changed(workflow, only=["e"])


def test_what_takes_a_slot():
    """S6, R3: tasks do unless told, periodics do not; a workload says the same."""
    body = {"run": "x", "duration": "1s"}
    data = {
        "task": {"a": body, "b": {**body, "slot": False}},
        "periodic": {"p": {**body, "every": "10s"}, "q": {**body, "every": "10s", "slot": True}},
    }
    workflow = read(data)
    assert [each.options.get("slot") for each in workflow.tasks + workflow.periodics] == [None, False, None, True]
    workload = Workload(to_workload(workflow))
    assert [workload.kinds[kind].slot for kind in workload.kind_of] == [True, False]
    assert [periodic.kind.slot for periodic in workload.periodics] == [False, True]


def test_a_workflow_with_durations_is_a_workload():
    """C0: all tasks are submitted at 0, in an order in which each comes after what it needs."""
    data = {
        "slots": 2,
        "budget": {"ram": "4GB", "resources": {"licence": 1}},
        "scheduler": {"order": "strict", "queue_limit": 9},
        "scope": {"io": {"slots": 1}},
        "task": {
            "b": {"run": "x", "after": ["a"], "duration": "2s", "resources": {"licence": 1}},
            "a": {"run": "x", "duration": 0.5, "scope": "io", "priority": "high", "retry": {"times": 2, "backoff": 1}},
        },
    }
    workload = to_workload(read(data))
    assert workload["config"] == {
        "slots": 2, "ram": 4_000_000_000, "resources": {"licence": 1}, "order": "strict", "queue_limit": 9,
        "scopes": {"io": {"slots": 1}},
    }  # fmt: skip
    assert workload["tasks"] == [
        {
            "id": "a",
            "at_ms": 0,
            "duration_ms": 500,
            "priority": 80,
            "retry": 2,
            "backoff_ms": 1000,
            "scope": "io",
        },
        {
            "id": "b",
            "at_ms": 0,
            "duration_ms": 2000,
            "resources": {"licence": 1},
            "after": ["a"],
        },
    ]


def test_without_durations_it_says_what_is_missing():
    with pytest.raises(ConfigError, match="no duration is given for a, b; add duration"):
        to_workload(read(tasks(a={}, b={})))
