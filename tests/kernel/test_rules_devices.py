"""Devices: which unit a task gets, and why it gets none yet, computed by hand in virtual time."""

from __future__ import annotations

import json

import pytest

from kernel_driver import MS, Driver, kernel, policy
from whywait.errors import ConfigError, Infeasible
from whywait.kernel.events import Event
from whywait.kernel.limits import Budget, make_demand
from whywait.kernel.snapshot import UnitView
from whywait.observe.explain import in_words

GB = 1_000_000_000


def gpus(*sizes: int, **names: int) -> dict[str, dict[str, int]]:
    """Cards 0, 1... of these sizes, or by name."""
    return {"gpu": {str(number): size for number, size in enumerate(sizes)} | names}


def started(driver: Driver) -> dict[str, str]:
    """Start what may; return the units of each task that runs, as a person would write them."""
    driver.dispatch()
    return {
        task.id: " ".join(f"{kind} {','.join(names)}" for kind, names in task.units)
        for task in driver.kernel.running.values()
    }


def words(driver: Driver, task) -> list[str]:
    return [line.strip() for line in str(in_words(driver.why(task))).splitlines()]


# Which unit


def test_a_whole_unit_is_shared_with_no_task():
    """N2: neither does it go where a share is, nor a share where it is."""
    driver = Driver(kernel(devices=gpus(10, 10)))
    driver.submit("share", vram=1, lasts=10)
    driver.submit("whole", gpu=1, lasts=10)
    driver.submit("another whole", gpu=1, lasts=10)
    driver.submit("small share", vram=1, lasts=30)
    assert started(driver) == {"share": "gpu 0", "whole": "gpu 1", "small share": "gpu 0"}
    driver.until(10)
    assert started(driver) == {"small share": "gpu 0", "another whole": "gpu 1"}


def test_other_kinds_have_units_too_and_each_is_a_gate_of_its_own():
    """N1, N2, V7: rigs without memory; a task that needs both kinds gets both or neither."""
    driver = Driver(kernel(devices={"rig": {"b": 0, "a": 0}, **gpus(8)}))
    driver.submit("one", rig=1, lasts=10)
    driver.submit("both", rig=1, gpu=1, lasts=10)
    neither = driver.submit("neither", rig=1, gpu=1, lasts=10)
    rigs = driver.submit("rigs", rig=2, lasts=10)
    assert started(driver) == {"one": "rig a", "both": "gpu 0 rig b"}
    # gpu comes before rig: by name.
    assert [driver.why(task).primary for task in (neither, rigs)] == ["gpu", "rig"]


def test_a_retry_may_get_another_unit():
    """N3, T7: each attempt is a task and is assigned anew."""
    driver = Driver(kernel(devices=gpus(10, 10)))
    driver.submit("long", gpu=1, lasts=5)
    failing = driver.submit("failing", gpu=1, lasts=10, fails=1, policy=policy(retry=1))
    driver.until(9)
    assert dict(failing.units) == {"gpu": ("1",)}
    driver.until(10)
    assert dict(failing.units) == {"gpu": ("0",)}


# The first four are our own. The rest are HyperQueue's documented examples of indexed resources, in whywait's words:
# there a pool of values is given and tasks ask for an amount; here a part of a value is memory of one unit.
EXAMPLES = {
    "a share goes to the unit with the least free memory that fits": (
        gpus(10, 6, 4),
        [{"vram": 5}] * 4,
        ["gpu 1", "gpu 0", "gpu 0", None],
    ),
    "of equal units the first by name, numbers by value": (
        {"gpu": {"10": 8, "b": 8, "2": 8, "a": 8}},
        [{"gpu": 1}] * 4,
        ["gpu 2", "gpu 10", "gpu a", "gpu b"],
    ),
    "whole units are the smallest that are empty": (
        gpus(24, 12, 24),
        [{"gpu": 1}, {"gpu": 2}],
        ["gpu 1", "gpu 0,2"],
    ),
    "a share on each of two: memory of one does not make up for the other": (
        gpus(24, 12),
        [{"gpu": 2, "vram": 6}] * 3 + [{"vram": 12}],
        ["gpu 0,1", "gpu 0,1", None, "gpu 0"],
    ),
    "range(1-3): one asks for 1, one for 2; no value is given twice": (
        {"gpu": {"1": 0, "2": 0, "3": 0}},
        [{"gpu": 1}, {"gpu": 2}],
        ["gpu 1", "gpu 2,3"],
    ),
    "no more than there are: the third waits": (
        {"gpu": {"a": 0, "b": 0}},
        [{"gpu": 1}, {"gpu": 1}, {"gpu": 1}],
        ["gpu a", "gpu b", None],
    ),
    "two halves share one": (
        {"gpu": {"0": 10_000, "1": 10_000}},
        [{"vram": 5_000}, {"vram": 5_000}, {"vram": 5_000}],
        ["gpu 0", "gpu 0", "gpu 1"],
    ),
    "both are used to 0.75: 0.5 is free in all, but on no single one": (
        {"gpu": {"0": 10_000, "1": 10_000}},
        [{"vram": 7_500}, {"vram": 7_500}, {"vram": 5_000}],
        ["gpu 0", "gpu 1", None],
    ),
    "the smallest part that can be asked for": (
        {"gpu": {"0": 10_000}},
        [{"vram": 9_999}, {"vram": 1}, {"vram": 1}],
        ["gpu 0", "gpu 0", None],
    ),
    "all of them": (
        {"gpu": {"0": 0, "1": 0, "2": 0}},
        [{"gpu": 3}, {"gpu": 1}],
        ["gpu 0,1,2", None],
    ),
    "a list with gaps: values are names, not positions": (
        {"gpu": {"1": 0, "3": 0, "7": 0}},
        [{"gpu": 2}, {"gpu": 1}],
        ["gpu 1,3", "gpu 7"],
    ),
    "four quarters fill one before another is begun": (
        {"gpu": {"0": 10_000, "1": 10_000}},
        [{"vram": 2_500}] * 5,
        ["gpu 0", "gpu 0", "gpu 0", "gpu 0", "gpu 1"],
    ),
    "a whole one is none of which a part is given away": (
        {"gpu": {"0": 10_000, "1": 10_000}},
        [{"vram": 2_500}, {"gpu": 1}, {"gpu": 1}, {"vram": 7_500}],
        ["gpu 0", "gpu 1", None, "gpu 0"],
    ),
    "one that asks for too many now is passed over": (
        {"gpu": {"0": 0, "1": 0}},
        [{"gpu": 1}, {"gpu": 2}, {"gpu": 1}],
        ["gpu 0", None, "gpu 1"],
    ),
    "two kinds at once": (
        {"gpu": {"0": 0, "1": 0}, "fpga": {"x": 0}},
        [{"gpu": 1, "fpga": 1}, {"gpu": 1, "fpga": 1}, {"gpu": 1}],
        ["fpga x gpu 0", None, "gpu 1"],
    ),
}


@pytest.mark.parametrize("example", EXAMPLES)
def test_examples_of_indexed_resources(example):
    """N2, N3: each task of the example gets these units, or waits."""
    devices, demands, expected = EXAMPLES[example]
    driver = Driver(kernel(devices=devices))
    for number, demand in enumerate(demands):
        driver.submit(f"t{number}", lasts=None, **demand)
    running = started(driver)
    assert [running.get(f"t{number}") for number in range(len(demands))] == expected


# What could never be had


@pytest.mark.parametrize(
    ("demand", "message"),
    [
        ({"gpu": 3}, "task 'x' demands 3 gpu and there are 2 \\(0, 1\\): it could never start"),
        ({"vram": 25}, "demands 25 vram on 1 gpu and none has so much \\(0 has 24, 1 has 12\\): it could never start"),
        ({"gpu": 2, "vram": 13}, "demands 13 vram on 2 gpu and only 1 has so much \\(0 has 24, 1 has 12\\):"),
        ({"gpu": 3, "vram": 1}, "demands 1 vram on 3 gpu and there are 2 \\(0, 1\\):"),
        ({"rig": 1}, "demands 1 of 'rig'; the budget has only: cpu, gpu"),
    ],
)
def test_what_no_set_of_units_could_satisfy_is_refused(demand, message):
    """N2, T3: infeasible, with the numbers; nothing stays behind."""
    driver = Driver(kernel(devices=gpus(24, 12), cpu=1))
    with driver.refuses(Infeasible, message) as caught:
        driver.submit("x", **demand)
    assert caught.value.cause == "infeasible"
    assert driver.submit("x", gpu=2, vram=12).state == "READY"
    driver.set_units("gpu", {"0": 0})
    with driver.refuses(Infeasible, "demands 1 vram on 1 gpu and none has so much \\(0 has no known memory"):
        driver.submit("y", vram=1)
    driver.set_units("gpu", {})
    with driver.refuses(Infeasible, "demands 1 gpu and there is none: it could never start"):
        driver.submit("y", gpu=1)


# Units that die and come back


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Budget(devices={"cpu": {"a": 0}}), "a kind of device cannot be named 'cpu': the name is taken"),
        (lambda: Budget(devices={"": {"a": 0}}), "a kind of device cannot be named ''"),
        (
            lambda: Budget(devices={"rig": {"a,b": 0}}),
            "a unit of rig cannot be named 'a,b': use a string",
        ),
        (lambda: Budget(devices=gpus(-1)), "memory -1 of gpu 0 is not allowed: use an int of 0 or more"),
        (lambda: Budget(devices=gpus(True)), "memory True of gpu 0 is not allowed"),
        (lambda: Budget({"gpu": 1}, devices=gpus(0)), "'gpu' is a resource and belongs to the devices 'gpu'"),
        (lambda: Budget({}, {"vram": 1}, gpus(0)), "'vram' is a resource and belongs to the devices 'gpu'"),
        (lambda: make_demand(gpu=0.5), "demand gpu 0.5 is not allowed: use an int of 0 or more"),
        (lambda: make_demand(gpu=True), "demand gpu True is not allowed"),
        (
            lambda: make_demand(devices={"cpu": 1}),
            "demand 'cpu' has an argument of its own",
        ),
        (lambda: make_demand(gpu=1, devices={"gpu": 1}), "demand 'gpu' is given twice: leave it out of devices"),
        (lambda: make_demand(resources={"rig": 1}, devices={"rig": 1}), "demand 'rig' is given twice"),
        (lambda: changed("set_units", "rig", {"a": 0}), "there are no devices of the kind 'rig': the budget has gpu"),
        (lambda: changed("set_units", "gpu", {"a,b": 0}), "cannot be named 'a,b'"),
        (lambda: changed("resize", "gpu", 2), "gpu has units: say which there are, not how many"),
        (lambda: changed("resize", "vram", 2), "vram is the memory of each gpu"),
    ],
)
def test_what_makes_no_sense_is_refused(make, message):
    """N1, N2: with the value, and what would be right."""
    with pytest.raises(ConfigError, match=message):
        make()


def changed(command: str, *what: object) -> None:
    """Change the units of a budget with a card."""
    getattr(Driver(kernel(devices=gpus(10))), command)(*what)


def test_a_task_keeps_a_unit_that_is_gone_and_no_other_gets_it():
    """N1: the one that runs goes on; what waits is served by the units that are left, until the unit comes back."""
    driver = Driver(kernel(devices=gpus(24, 24)))
    for name in "abcd":
        driver.submit(name, gpu=1, lasts=10)
    assert started(driver) == {"a": "gpu 0", "b": "gpu 1"}
    driver.at(5)
    driver.set_units("gpu", {"0": 24})
    driver.until(10)
    assert started(driver) == {"c": "gpu 0"}
    driver.at(12)
    driver.set_units("gpu", {"0": 24, "1": 24})
    assert started(driver) == {"c": "gpu 0", "d": "gpu 1"}


def test_what_waits_for_more_than_is_left_can_never_start():
    """N2, N5: it stays, and says so; the next of its kind is refused; a unit that comes back lets it start."""
    driver = Driver(kernel(devices=gpus(24, 24)))
    driver.submit("a", gpu=1, lasts=10)
    both = driver.submit("both", gpu=2, lasts=10)
    driver.dispatch()
    driver.set_units("gpu", {"0": 24})
    driver.dispatch()
    assert words(driver, both)[:2] == [
        "both has waited 0 ms and can never start as things are:",
        "it needs 2 gpu, and there is 1: gpu 0 is held by a; gpu 1 is gone",
    ]
    with driver.refuses(Infeasible, r"demands 2 gpu and there is 1 \(0\):"):
        driver.submit("more", gpu=2)
    driver.set_units("gpu", {"0": 24, "1": 24})
    driver.until(10)
    assert started(driver) == {"both": "gpu 0,1"}


# Saying it


def test_why_names_every_unit_with_what_is_free_and_which_tasks_hold_the_rest():
    """N5: as the rule has it."""
    driver = Driver(kernel(devices=gpus(24 * GB, 12 * GB)))
    train = driver.submit("train", vram=22_500_000_000, lasts=10)
    driver.submit("lora", vram=8 * GB, lasts=10)
    task = driver.submit("waits", vram=6 * GB)
    driver.dispatch()
    cards = "gpu 0 has 1.5 of 24.0 GB free, held by train; gpu 1 has 4.0 of 12.0 GB free, held by lora"
    assert words(driver, task) == [
        "waits has waited 0 ms:",
        f"no gpu has 6.0 GB free: {cards}",
        "it starts when a gpu has 6.0 GB free",
    ]
    two = driver.submit("two", gpu=2)
    half = driver.submit("half", gpu=2, vram=4 * GB)
    driver.dispatch()
    assert words(driver, two)[1] == f"no gpu is free: {cards}"
    assert words(driver, half)[1].startswith("only 1 gpu of the 2 that it needs has 4.0 GB free: gpu 0 has")
    assert "2 gpu units have 4.0 GB free" in words(driver, half)[-1]
    holder = words(driver, train)
    assert holder[0] == "train has been running for 0 ms and holds a slot, 22.5 GB vram and gpu 0"
    assert "3 tasks wait for its gpu: waits, two and half" in holder


def test_an_answer_about_many_units_is_bounded_and_says_so():
    """N5, V1: the first hundred are given."""
    driver = Driver(kernel(devices={"rig": {str(number): 0 for number in range(150)}}))
    driver.submit("all", rig=150)
    task = driver.submit("waits", rig=1)
    driver.dispatch()
    (reason,) = driver.why(task).reasons
    assert (len(reason.units), reason.units_left_out) == (100, 50)
    assert words(driver, task)[1].endswith("rig 99 is held by all; and 50 more")


def test_the_start_event_names_the_units_and_survives_json():
    """N3, V3: beside how the wait divided; told in words too."""
    driver = Driver(kernel(devices={"rig": {"a": 0}, **gpus(8, 8)}))
    driver.submit("one", gpu=2, rig=1, lasts=10)
    driver.submit("two", vram=2)
    driver.until(10)
    told = [Event.of(raw) for raw in driver.raw if raw[2] == "TASK_STARTED"]
    assert [dict(event.details) for event in told] == [
        {"devices": (("gpu", ("0", "1")), ("rig", ("a",)))},
        {"waits": {"gpu": 10 * MS}, "devices": (("gpu", ("0",)),)},
    ]
    assert told[1].to_dict()["details"] == {"waits": {"gpu": 10 * MS}, "devices": {"gpu": ("0",)}}
    for event in told:
        again = Event.from_dict(json.loads(json.dumps(event.to_dict())))
        assert again == event
        assert Event.of(again.to_raw()) == event


def test_a_snapshot_has_every_unit_and_the_tasks_on_it():
    """V4, N5: also those that are gone, as long as the run lasts."""
    driver = Driver(kernel(devices=gpus(10, 10)))
    driver.submit("a", vram=4, lasts=None)
    driver.submit("b", gpu=1, lasts=None)
    driver.dispatch()
    driver.set_units("gpu", {"0": 10})
    a, b = driver.kernel.snapshot(0).devices
    assert a == UnitView("gpu", "0", 10, 6, 4, whole=False, present=True, holders=a.holders, holders_total=1)
    assert [(holder.id, holder.amount) for holder in (*a.holders, *b.holders)] == [("a", 4), ("b", 10)]
    assert (b.whole, b.present, b.free) == (True, False, 0)
    data = driver.kernel.snapshot(0).to_dict()
    assert data["devices"][0]["holders"][0]["id"] == "a"
    assert data["running"][0]["devices"] == {"gpu": ("0",)}


# Order and cost
