"""N: devices through everything that a program can submit with, and what changes while it runs."""

import threading

import pytest

from patience import PATIENCE_S, until
from whywait import Authority, Call, ConfigError, Executor, Infeasible, current

GB = 10**9


def told(_=None):
    return current().devices


@pytest.fixture
def authority():
    with Authority(slots=4, gpus=["24GB", "12GB"], devices={"rig": ["a"]}) as authority:
        yield authority


def test_every_way_in_takes_devices(authority):
    """N2: submit, submit_many, map, periodics, nested scopes."""
    scope = authority.scope("outer").scope("inner")
    assert scope.submit(told, vram="20GB").result(PATIENCE_S) == {"gpu": ["0"]}
    batch = scope.submit_many([Call(told, (), {"gpu": 1}), Call(told, (), {"devices": {"rig": 1}})])
    assert [handle.result(PATIENCE_S) for handle in batch] == [{"gpu": ["1"]}, {"rig": ["a"]}]
    assert list(scope.map(told, range(3), gpu=2)) == [{"gpu": ["0", "1"]}] * 3
    seen = []
    scope.periodic(lambda: seen.append(told()), every=0.01, gpu=1)
    until(lambda: seen, "an iteration")
    assert seen[0] == {"gpu": ["1"]}


def test_an_executor_counts_them_too():
    """N2: its options are those of an authority; what it submits demands nothing."""
    with Executor(2, gpus=1) as executor:
        assert executor.submit(told).result(PATIENCE_S) == {}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"gpu": 0.5}, "demand gpu 0.5 is not allowed: use an int of 0 or more"),
        ({"gpu": "1"}, "demand gpu '1' is not allowed"),
        ({"gpu": -1}, "demand gpu -1 is not allowed"),
        ({"devices": ["rig"]}, "devices ['rig'] is not allowed: use a dict of names and amounts"),
        ({"devices": {"rig": 1.5}}, "demand rig 1.5 is not allowed"),
        ({"devices": {"cpu": 1}}, "demand 'cpu' has an argument of its own: do not put it into devices"),
        ({"gpu": 1, "devices": {"gpu": 1}}, "demand 'gpu' is given twice: leave it out of devices"),
    ],
)
def test_a_bad_demand_is_refused_with_its_value(authority, options, words):
    """N2, E1: and nothing stays behind."""
    with pytest.raises(ConfigError) as caught:
        authority.submit(told, **options)
    assert words in str(caught.value)
    assert authority.stats()["submitted"] == 0


def test_without_devices_a_demand_for_one_is_infeasible():
    """N2: with what there is."""
    with Authority(slots=1, cpu=2) as authority:
        with pytest.raises(Infeasible, match="demands 1 of 'gpu'; the budget has only: cpu"):
            authority.submit(told, gpu=1)
        assert authority.submit(told, vram="5GB").result(PATIENCE_S) == {}  # B2: nothing limits it


def test_vram_of_the_environment_does_not_count_beside_cards(monkeypatch):
    """N2, E1: arguments win over the environment."""
    monkeypatch.setenv("WHYWAIT_VRAM_MB_SOFT", "8")
    with Authority(slots=1, gpus=["24GB"]) as authority:
        assert authority.settings.budget.soft == {}
        assert authority.settings.budget.devices == {"gpu": {"0": 24 * GB}}


# While tasks run


def test_limits_of_every_kind_are_resized_at_once():
    """S1, B1, N1: what was waiting for them starts."""
    gate = threading.Event()
    with Authority(slots=1, cpu=1, ram=1, resources={"licence": 1}, soft={"disk": 1}, gpus=1) as authority:
        first = authority.submit(gate.wait, PATIENCE_S)
        demand = {"cpu": 2, "ram": 2, "resources": {"licence": 2, "disk": 2}, "gpu": 2}
        with pytest.raises(Infeasible):
            authority.submit(told, **demand)
        authority.resize(slots=2, cpu=2, ram="2B", resources={"licence": 2, "new": 1}, soft={"disk": 2}, gpus=2)
        assert authority.submit(told, **demand).result(PATIENCE_S) == {"gpu": ["0", "1"]}
        assert authority.submit(told, resources={"new": 1}).result(PATIENCE_S) == {}
        assert not first.done()
        gate.set()
        changed = [event.name for event in authority.events() if event.kind == "LIMIT_CHANGED"]
        assert changed == ["slot", "licence", "new", "cpu", "disk", "ram", "gpu"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"slots": 0}, "slots: 0 is not allowed"),
        ({"cpu": -1}, "cpu: -1 is not allowed"),
        ({"ram": "much"}, 'ram: "much" is not a size'),
        ({"vram": "8GB"}, "vram is the memory of each gpu: say it with the units"),
        ({"resources": {"gpu": 2}}, "gpu has units: say which there are, not how many"),
        ({"resources": {"dependency": 2}}, "a resource cannot be named 'dependency'"),
        ({"gpus": "all"}, 'gpus: "all" is not allowed'),
        ({"devices": {"fpga": 1}}, "there are no devices of the kind 'fpga': the budget has gpu, rig"),
        ({"gpus": {"a,b": 1}}, "a unit of gpu cannot be named 'a,b'"),
    ],
)
def test_a_resize_is_all_or_nothing(authority, options, words):
    """B1, N1: what is wrong is said, and what stood beside it has not happened."""
    with pytest.raises(ConfigError) as caught:
        authority.resize(**{"resources": {"licence": 5}, "devices": {"rig": 2}, **options})
    assert words in str(caught.value)
    assert len(authority.snapshot().devices) == 3
    assert authority.snapshot().budget == ()


def test_a_card_that_dies_under_many_tasks(authority):
    """N1, N3: no task is put on it while it is gone, whatever waits; the tasks on it end as they would."""
    gate = threading.Event()
    running = [authority.submit(gate.wait, PATIENCE_S, gpu=1) for _ in range(2)]
    waiting = [authority.submit(told, vram="5GB") for _ in range(20)]
    authority.resize(gpus={"0": "24GB"})
    gate.set()
    assert {handle.result(PATIENCE_S)["gpu"][0] for handle in waiting} == {"0"}
    for handle in running:
        handle.result(PATIENCE_S)
    assert [handle.devices["gpu"] for handle in running] == [["1"], ["0"]]
    assert [unit.holders for unit in authority.snapshot().devices] == [(), (), ()]
