"""Workload files: what is accepted, how it is kept, and that every problem names its place."""

import json
import re
from pathlib import Path

import pytest

from whywait.errors import ConfigError
from whywait.simulation.simulation import Simulation
from whywait.simulation.workload import ALWAYS, Op, TaskKind, Workload

X = {"id": "x", "at_ms": 0, "duration_ms": 1}


def task(**fields):
    return {**X, **fields}


def message_of(data, source=None):
    with pytest.raises(ConfigError) as refusal:
        Workload(data, source)
    return str(refusal.value)


def message_of_file(tmp_path, content):
    file = tmp_path / "farm.json"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ConfigError) as refusal:
        Workload.from_file(file)
    told = str(refusal.value)
    found = re.fullmatch(rf"{file}:(?:\d+:)? (.*)", told)
    assert found, told
    return found[1]


def test_three_fields_are_enough():
    workload = Workload({"tasks": [X]})
    assert (workload.ids, workload.at_ms, workload.duration_ms) == (("x",), (0,), (1,))
    assert workload.kinds[workload.kind_of[0]] == TaskKind(priority=50, scope=None, demand=(), policy=(), fails=0)


def test_the_example_of_the_format_is_accepted_as_it_stands():
    workload = Workload(
        {
            "config": {
                "slots": 4, "order": "aging", "every_ms": 5000, "boost": 10, "cap": 100, "backfill": "greedy",
                "cpu": 8, "ram": 100, "vram": 40, "scopes": {"a": {"slots": 1}},
                "queue_limit": None, "overflow": "reject",
            },
            "tasks": [
                {
                    "id": "x", "at_ms": 0, "duration_ms": 10, "priority": 50, "after": [], "scope": "a", "cpu": 1,
                    "ram": 0, "vram": 0, "outcome": "success", "retry": 0, "max_wait_ms": None, "timeout_ms": None,
                }
            ],
            "ops": [{"at_ms": 5, "do": "cancel", "id": "x"}],
        }
    )  # fmt: skip
    assert workload.kinds[workload.kind_of[0]].demand == (("cpu", 1),)
    assert workload.config["queue_limit"] is None
    assert workload.ops == [Op(5, "cancel", "x")]


def test_shared_settings_are_kept_once():
    """A million tasks of one kind cost one kind."""
    tasks = [task(id=f"t{number}", priority="high", ram="2GB") for number in range(1000)]
    workload = Workload({"tasks": tasks})
    assert set(workload.kind_of) == {workload.kind_of[0]}
    assert workload.kinds[workload.kind_of[0]] == TaskKind(priority=80, demand=(("ram", 2_000_000_000),))


def test_equal_values_of_other_types_are_not_taken_for_the_checked_one():
    """1, true and 1.0 are equal in Python, and only the first is an amount."""
    for wrong in (True, 1.0):
        assert "tasks[1].cpu" in message_of({"tasks": [task(cpu=1), task(id="y", cpu=wrong)]})


@pytest.mark.parametrize("wrong", [-1, 101, "urgent", True, 50.0, None, [50]])
def test_priority_outside_0_to_100_is_refused(wrong):
    """P1: outside 0..100 is an error."""
    assert message_of({"tasks": [task(), task(id="y", priority=wrong)]}).startswith("tasks[1].priority: ")


def test_demand_is_kept_in_the_order_in_which_gates_are_asked():
    """B3, B4: nothing that is not used, named resources last and by name."""
    tasks = [task(vram="4GiB", cpu=2, ram=0, resources={"b": 1, "a": 2, "none": 0})]
    workload = Workload({"tasks": tasks})
    assert workload.kinds[workload.kind_of[0]].demand == (("cpu", 2), ("vram", 4 * 2**30), ("a", 2), ("b", 1))


@pytest.mark.parametrize(
    ("fields", "fails"),
    [
        ({}, 0),
        ({"outcome": "error"}, ALWAYS),
        ({"outcome": "error", "fails": 2}, 2),
        ({"fails": 1}, 1),
        ({"fails": 0}, 0),
    ],
)
def test_fails_limits_how_many_attempts_fail(fields, fails):
    workload = Workload({"tasks": [task(**fields)]})
    assert workload.kinds[workload.kind_of[0]].fails == fails


def test_a_task_keeps_apart_what_it_leaves_out_and_what_it_sets_to_none():
    """T6: what is left out is inherited, null means none."""
    tasks = [task(), task(id="y", timeout_ms=None, max_wait_ms=7)]
    workload = Workload({"tasks": tasks})
    assert [workload.kinds[kind].policy for kind in workload.kind_of] == [
        (),
        (("timeout_ns", None), ("max_wait_ns", 7_000_000)),
    ]


def test_tasks_out_of_order_and_repeated_ids_are_noticed():
    ordered = Workload({"tasks": [task(at_ms=1), task(id="y", at_ms=1), task(id="z", at_ms=2)]})
    assert (ordered.in_order, ordered.unique) == (True, True)
    other = Workload({"tasks": [task(at_ms=2), task(at_ms=1)]})
    assert (other.in_order, other.unique) == (False, False)


def test_parents_come_before_their_scopes():
    """O7."""
    scopes = {"c": {"parent": "b"}, "b": {"parent": "a"}, "a": {"slots": 3}}
    assert list(Workload({"config": {"scopes": scopes}, "tasks": []}).scopes) == ["a", "b", "c"]


def test_what_can_be_counted_is_fine():
    Simulation({"config": {"ram": 10**18}, "tasks": [task(at_ms=10**12, duration_ms=10**12, ram=10**18)]}).run()


@pytest.mark.parametrize(
    ("config", "fields", "told"),
    [
        ({}, {"at_ms": 2 * 10**12, "duration_ms": 10**12}, "the run takes more than 73 years"),
        ({}, {"at_ms": 10**30}, "the run takes more than 73 years"),
        ({}, {"duration_ms": 10**30}, "the run takes more than 73 years"),
        ({"slots": 1}, {"timeout_ms": 10**12}, "timeout_ms: .* is too long for a duration: expected at most ten years"),
        ({"slots": 1}, {"max_wait_ms": 2**63}, "max_wait_ms: .* is too long for a duration: expected at most"),
        ({}, {"ram": 10**18 + 1}, "demand ram .* is not allowed: use at most 10\\^18"),
        ({"ram": 2**63}, {}, "ram .* is not allowed: use at most 10\\^18"),
        ({"slots": 2**63}, {}, "slots .* is not allowed: use at most 10\\^18"),
    ],
)
def test_what_cannot_be_counted_is_refused(config, fields, told):
    """C0: before a number of the machine would be too small for it."""
    with pytest.raises(ConfigError, match=told):
        Simulation({"config": config, "tasks": [task(**fields)]}).run()


@pytest.mark.parametrize("digits", [101, 309, 4000])
@pytest.mark.parametrize("field", ["at_ms", "duration_ms", "timeout_ms", "backoff_ms", "ram", "cpu"])
def test_what_no_number_can_stand_for_is_refused(field, digits):
    """C0: in the first task and in any other, before anything is worked out from it."""
    for first, number in ((10**digits, 0), (1, 1)):
        tasks = [task(**{field: first}), task(id="y", **{field: 10**digits})]
        assert message_of({"tasks": tasks}).startswith(f"tasks[{number}].{field}: an int of")


def test_a_periodic_that_can_never_start_is_named():
    """C0: by its place in the file."""
    periodic = {"id": "p", "every_ms": 5, "duration_ms": 1, "until_ms": 50, "gpu": 1}
    simulation = Simulation({"config": {"slots": 1, "cpu": 2}, "tasks": [task()], "periodics": [periodic]})
    with pytest.raises(ConfigError, match=r"^periodics\[0\]: periodic 'p' demands 1 of 'gpu'; "):
        simulation.run()


PLACES = [
    ([], "[] is not a table with keys such as name, config, tasks"),
    ({}, '"tasks" is missing: expected a list of tasks'),
    ({"task": []}, 'task: unknown key; did you mean "tasks"?'),
    ({"tasks": {}}, "tasks: {} is not allowed: expected a list of objects"),
    ({"tasks": [], "config": []}, "config: [] is not allowed: expected an object"),
    ({"tasks": [], "config": {"slot": 1}}, 'config.slot: unknown key; did you mean "slots"?'),
    ({"tasks": [], "config": {"slots": 0}}, "config.slots: 0 is not allowed: expected an int >= 1"),
    (
        {"tasks": [], "config": {"order": "agin"}},
        'config.order: "agin" is not allowed: expected one of aging, strict; did you mean "aging"?',
    ),
    ({"tasks": [], "config": {"every_ms": float("nan")}}, "config.every_ms: nan is not allowed: expected an int >= 1"),
    ({"tasks": [], "config": {"ram": "8 apples"}}, 'config.ram: "8 apples" is not a size: expected an int >= 0'),
    ({"tasks": [], "config": {"resources": {"gpu": -1}}}, "config.resources: gpu: -1 is not a size"),
    ({"tasks": [], "config": {"scopes": []}}, "config.scopes: [] is not allowed: expected an object"),
    (
        {"tasks": [], "config": {"scopes": {"a": {"slots": -1}}}},
        "config.scopes.a.slots: -1 is not allowed: expected an int >= 1",
    ),
    (
        {"tasks": [], "config": {"scopes": {"render": {}, "io": {"parent": "rendr"}}}},
        'config.scopes.io.parent: "rendr" is not a scope of this config; did you mean "render"?',
    ),
    (
        {"tasks": [], "config": {"scopes": {"a": {"parent": "b"}, "b": {"parent": "a"}}}},
        "config.scopes.a.parent: the scopes form a circle: a -> b -> a",
    ),
    ({"tasks": [7]}, "tasks[0]: 7 is not a table with keys such as id, at_ms, duration_ms"),
    ({"tasks": [X, "y"]}, 'tasks[1]: "y" is not a table'),
    ({"tasks": [X, {"id": "y", "at_ms": 0}]}, 'tasks[1]: "duration_ms" is missing'),
    ({"tasks": [task(prioritty=5)]}, 'tasks[0].prioritty: unknown key; did you mean "priority"?'),
    ({"tasks": [X, task(id=7)]}, "tasks[1].id: 7 is not allowed: expected a string that is not empty"),
    ({"tasks": [X, task(id="")]}, 'tasks[1].id: "" is not allowed: expected a string that is not empty'),
    ({"tasks": [X, task(id="@1")]}, 'tasks[1].id: "@1" is not allowed: ids that begin with @ are given by whywait'),
    ({"tasks": [X, task(at_ms=-1)]}, "tasks[1].at_ms: -1 is not allowed: expected an int >= 0"),
    ({"tasks": [X, task(duration_ms=0)]}, "tasks[1].duration_ms: 0 is not allowed: expected an int >= 1"),
    ({"tasks": [task(priority=101)]}, "tasks[0].priority: 101 is not allowed: expected an int from 0 to 100 or one of"),
    ({"tasks": [task(priority="hihg")]}, 'tasks[0].priority: "hihg" is not allowed: expected an int from 0 to 100'),
    ({"tasks": [task(after="y")]}, 'tasks[0].after: "y" is not allowed: expected a list of ids'),
    ({"tasks": [task(after=["x", 3])]}, "tasks[0].after: [1] is 3: expected an id"),
    (
        {"tasks": [task(id="decode-01"), task(id="y", after=["decode-1"])]},
        'tasks[1].after: "decode-1" is not a task of this workload; did you mean "decode-01"?',
    ),
    ({"tasks": [X, task(id="y", after_ended=["q"])]}, 'tasks[1].after_ended: "q" is not a task of this workload'),
    (
        {"tasks": [task(outcome="failure")]},
        'tasks[0].outcome: "failure" is not allowed: expected one of success, error',
    ),
    (
        {"tasks": [task(resources={"cpu": 1})]},
        'tasks[0].resources: "cpu" has a key of its own: do not put it here',
    ),
    ({"config": {"gpus": "24GB"}, "tasks": []}, 'config.gpus: "24GB" is not allowed: expected how many (2)'),
    ({"config": {"gpus": ["0"]}, "tasks": []}, 'config.gpus: "0" could be a name or a size'),
    ({"config": {"gpus": {"a": "x"}}, "tasks": []}, 'config.gpus: a: "x" is not a size'),
    ({"config": {"devices": {"gpu": 1}}, "tasks": []}, "config.devices: gpu has a setting of its own: gpus"),
    ({"tasks": [task(gpu=0.5)]}, "tasks[0].gpu: 0.5 is not allowed: expected an int >= 0"),
    ({"tasks": [task(devices={"rig": "a"})]}, 'tasks[0].devices: rig: "a" is not allowed: expected an int >= 0'),
    ({"tasks": [task(gpu=1, devices={"gpu": 1})]}, 'tasks[0].devices: "gpu" has a key of its own: do not put it here'),
    ({"tasks": [task(slot=0)]}, "tasks[0].slot: 0 is not allowed: expected true or false"),
    (
        {"tasks": [X], "ops": [{"at_ms": 1, "do": "stop", "id": "x"}]},
        'ops[0].do: "stop" is not allowed: expected one of',
    ),
    ({"tasks": [X], "ops": [{"at_ms": 1, "do": "cancel"}]}, 'ops[0]: "id" is missing'),
    (
        {"tasks": [task(id="encode")], "ops": [{"at_ms": 1, "do": "cancel", "id": "encoed"}]},
        'ops[0].id: "encoed" is not a task of this workload; did you mean "encode"?',
    ),
    (
        {"tasks": [], "periodics": [{"id": "p", "every_ms": 5, "duration_ms": 1}]},
        'periodics[0]: "until_ms" is missing: every periodic has id, every_ms, duration_ms and until_ms',
    ),
    (
        {"tasks": [], "periodics": [{"id": "p", "every_ms": 5, "duration_ms": 1, "until_ms": 9, "jitter": 0.4}]},
        "periodics[0].jitter: 0.4 is not allowed: expected a number from 0 to 0.3",
    ),
    (
        {"tasks": [task(id="p#3")], "periodics": [{"id": "p", "every_ms": 5, "duration_ms": 1, "until_ms": 9}]},
        'periodics[0].id: "p" is taken by a task or a periodic',
    ),
]


@pytest.mark.parametrize(("data", "told"), PLACES, ids=[told[:40] for _, told in PLACES])
def test_a_problem_names_the_place_the_value_and_what_was_expected(data, told):
    """R7, T1 and the format: the first problem is reported, with the nearest name for a typo."""
    assert message_of(data).startswith(told)
    assert message_of(data, "farm.json").startswith(f"farm.json: {told}")


FILES = [
    ("", 'is empty: expected a JSON object with "tasks"'),
    (" \n\t ", 'is empty: expected a JSON object with "tasks"'),
    ("{", "column 2: is not JSON: expecting property name enclosed in double quotes"),
    ('{"tasks": [}', "column 12: is not JSON: expecting value"),
    ('{"tasks": []}\n{}', "column 1: is not JSON: extra data"),
    (b"\x7fELF\x00\x01\x02", "is a binary file: expected JSON text"),
    ('{"tasks": []}'.encode("utf-16"), "is a binary file: expected JSON text"),
    (b'{"tasks": [], "name": "\xff"}', "is not UTF-8 text (byte 0xff at offset 23): expected JSON"),
    ("[" * 200_000, "is nested too deeply: expected an object with a list of tasks"),
    ('{"tasks": [' + '{"a":' * 200_000, "is nested too deeply"),
    ('{"tasks": [{"id": "x", "at_ms": ' + "9" * 5000 + "}]}", "holds a number that cannot be read"),
    ('{"tasks": [], "tasks": []}', 'the key "tasks" stands there twice: expected once'),
    (
        '{"tasks": [{"id": "a"}, {"id": "x", "at_ms": 0, "id": "y"}]}',
        'tasks[1]: the key "id" stands there twice: expected once',
    ),
    ('{"config": {"scopes": {"a": {}, "a": {}}}, "tasks": []}', 'config.scopes: the key "a" stands there twice'),
    ('{"tasks": [{"id": "x", "at_ms": NaN, "duration_ms": 1}]}', "tasks[0].at_ms: nan is not allowed"),
    ('{"tasks": [{"id": "x", "at_ms": 1e400, "duration_ms": 1}]}', "tasks[0].at_ms: inf is not allowed"),
    ("null", "null is not a table with keys such as name, config, tasks"),
    ('"tasks"', '"tasks" is not a table'),
]


@pytest.mark.parametrize(("content", "told"), FILES, ids=[told[:40] for _, told in FILES])
def test_a_malformed_file_is_named_with_the_place(tmp_path, content, told):
    assert message_of_file(tmp_path, content).startswith(told)


def test_a_byte_order_mark_is_no_problem(tmp_path):
    file = tmp_path / "farm.json"
    file.write_bytes(b"\xef\xbb\xbf" + json.dumps({"tasks": [X]}).encode())
    assert Workload.from_file(file).ids == ("x",)


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        Workload.from_file(tmp_path / "nowhere.json")
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        Workload.from_file(tmp_path)


def test_a_file_that_is_too_large_is_refused_before_it_is_parsed(tmp_path, monkeypatch):
    monkeypatch.setattr("whywait.support.files.MAX_BYTES", 10)
    assert message_of_file(tmp_path, json.dumps({"tasks": [X]})).startswith(
        "is larger than 10 B, the most that is read"
    )


def test_the_shipped_example_is_a_workload_with_a_name():
    example = Path(__file__).parents[2] / "examples" / "render-farm.json"
    workload = Workload.from_file(example)
    assert workload.name
    assert 60 <= len(workload.ids) <= 120


def test_a_problem_in_a_file_has_its_line(tmp_path):
    """G5: of the field, or of what is around it."""
    path = tmp_path / "w.json"
    path.write_text(
        '{"tasks": [\n{"id": "a", "at_ms": 0, "duration_ms": 1},\n{"id": "b",\n"at_ms": -1, "duration_ms": 1}]}'
    )
    with pytest.raises(ConfigError, match=r"w.json:4: tasks\[1\].at_ms: -1 is not allowed"):
        Workload.from_file(path)
    path.write_text('{"tasks": [\n{"id": "a", "at_ms": 0}]}')
    with pytest.raises(ConfigError, match=r'w.json:2: tasks\[0\]: "duration_ms" is missing'):
        Workload.from_file(path)
