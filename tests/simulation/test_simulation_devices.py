"""N: devices in virtual time: workloads, options, what if of a recorded run."""

import json
import threading

import pytest

from program import whywait
from simulated import task
from whywait import Authority, Call, ConfigError, Simulation
from whywait.simulation.whatif import workload_of

GB = 10**9
TWO_CARDS = {"config": {"gpus": ["24GB", "24GB"]}, "tasks": [task(f"t{n}", 0, 100, gpu=1) for n in range(4)]}


def test_a_workload_says_which_units_its_tasks_got():
    """N1, N3: in the result and its JSON; the summary has the use of each unit."""
    result = Simulation(TWO_CARDS).run()
    assert result.devices == {"t0": {"gpu": ["0"]}, "t1": {"gpu": ["1"]}, "t2": {"gpu": ["0"]}, "t3": {"gpu": ["1"]}}
    assert result.to_dict()["devices"] == result.devices
    assert result.summary["utilisation"]["gpu 0"] == {"mean": 24 * GB, "peak": 24 * GB, "limit": 24 * GB, "share": 1.0}
    assert result.summary["run"]["gpus"] == {"0": 24 * GB, "1": 24 * GB}
    assert result.summary["waited_for_ms"] == {"gpu": 200}


def test_without_devices_the_result_is_as_it_was():
    """V3: a program that reads it need not know of them."""
    assert set(Simulation({"tasks": [task("x")]}).run().to_dict()) == {"events", "final", "summary"}


def test_units_without_memory_and_periodics():
    """N1, N2, R3: a rig for each iteration; its use is counted in time."""
    workload = {
        "config": {"devices": {"rig": ["b", "a"]}},
        "tasks": [task("x", 0, 100, devices={"rig": 1})],
        "periodics": [
            {"id": "p", "every_ms": 50, "duration_ms": 10, "until_ms": 60, "devices": {"rig": 1}, "priority": "high"}
        ],
    }
    result = Simulation(workload).run()
    assert {name.partition("#")[0]: units for name, units in result.devices.items()} == {
        "x": {"rig": ["a"]},
        "p": {"rig": ["b"]},
    }
    assert result.summary["utilisation"]["rig a"]["share"] == 1.0
    assert result.summary["utilisation"]["rig b"]["share"] == 0.1


def test_options_win_over_the_file():
    """N1: other cards, or none where the file has some memory."""
    assert Simulation(TWO_CARDS, gpus=4).run().summary["makespan_ms"] == 100
    assert Simulation(TWO_CARDS, gpus=["24GB"]).run().summary["makespan_ms"] == 400
    soft = {"config": {"vram": "6GB"}, "tasks": [task("a", 0, 10, vram="4GB"), task("b", 0, 10, vram="4GB")]}
    assert Simulation(soft).run().summary["makespan_ms"] == 20
    assert Simulation(soft, gpus=["6GB", "6GB"]).run().summary["makespan_ms"] == 10


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"gpus": "auto"}, 'gpus: "auto" is not allowed: expected how many'),
        ({"vram": "8GB"}, "config: vram is the memory of each gpu: say it with gpus"),
        ({"devices": {"rig": 0.5}}, "devices: rig: 0.5 is not allowed"),
        ({"resources": {"gpu": 1}}, "config: 'gpu' is a resource and belongs to the devices 'gpu' too"),
    ],
)
def test_a_wrong_option_is_named(options, told):
    """N1: no GPU of this machine has a part in a simulation."""
    with pytest.raises(ConfigError) as refusal:
        Simulation(TWO_CARDS, **options)
    assert str(refusal.value).startswith(told)


@pytest.fixture
def recorded(tmp_path):
    """A recorded run of four tasks on two cards, one of which dies under its task."""
    path = tmp_path / "run.rec"
    gate = threading.Event()
    with Authority(slots=8, gpus=["24GB", "24GB"], resources={"licence": 2}, record=path) as authority:
        options = {"gpu": 1, "resources": {"licence": 1}}
        calls = [Call(gate.wait, (30,), {"id": f"t{number}", **options}) for number in range(4)]
        handles = authority.submit_many(calls)  # at one instant: in the what-if they meet, however short they were
        authority.resize(gpus={"0": "24GB"})
        gate.set()
        for handle in handles:
            handle.result(30)
    assert [handle.devices["gpu"] for handle in handles] == [["0"], ["1"], ["0"], ["0"]]
    return path


def test_what_if_begins_with_what_was(recorded):
    """N1, V3: with nothing changed, the card dies again and each task gets the card that it had."""
    result = Simulation(workload_of(recorded)).run()
    assert {name: units["gpu"] for name, units in result.devices.items()} == {
        "t0": ["0"],
        "t1": ["1"],
        "t2": ["0"],
        "t3": ["0"],
    }


def test_what_if_there_had_been_more_cards(recorded):
    """N1: what is asked for holds for the whole run, so the card that died is not missed."""
    result = Simulation(workload_of(recorded), gpus=4, resources={"licence": 4}).run()
    assert sorted(units["gpu"][0] for units in result.devices.values()) == ["0", "1", "2", "3"]
    held_up = Simulation(workload_of(recorded), gpus=4).run()
    assert held_up.summary["waited_for_ms"].keys() == {"licence"}


def test_limits_that_were_resized_are_resized_again(tmp_path):
    """S1, B1: slots and resources too, also such as came before the first task."""
    path = tmp_path / "run.rec"
    with Authority(slots=1, record=path) as authority:
        authority.resize(slots=3, resources={"spot": 2})
        for _ in range(3):
            authority.submit(int, resources={"spot": 1})
    result = Simulation(workload_of(path)).run()
    assert set(result.final.values()) == {"success"}
    assert Simulation(workload_of(path), slots=1).run().summary["peak_running"] == 1


def test_the_program_compares_cards(recorded):
    """N1: --gpus and --resource of `whywait simulate`, side by side and as JSON."""
    pytest.importorskip("typer", reason="the command line needs it")
    done = whywait("simulate", recorded, "--gpus", "24GB,24GB", "--gpus", "24GB,24GB,12GB", "--resource", "licence=9")
    assert done.code == 0, done.err
    assert "2 x 24 GB" in done.out
    assert "24 GB, 24 G…" in done.out
    one, two = json.loads(whywait("simulate", recorded, "--gpus", "1", "--gpus", "2", "--json").out)
    assert (one["gpus"], two["gpus"]) == ({"0": 0}, {"0": 0, "1": 0})
    assert set(one["result"]) == {"events", "final", "summary", "devices"}


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--gpus", "many"], 'gpus: 0: "many" is not a size'),
        (["--gpus", "0,1"], 'gpus: "0" could be a name or a size'),
        (["--resource", "licence"], "licence: it is written NAME=AMOUNT"),
        (["--resource", "=3"], "=3: it is written NAME=AMOUNT"),
        (["--resource", "ram=3"], "ram=3: it has an option of its own"),
        (["--resource", "licence=few"], 'resources: licence: "few" is not a size'),
    ],
)
def test_the_program_says_what_is_wrong(recorded, options, told):
    """N1, B3: exit code 2, the value, and what is allowed."""
    pytest.importorskip("typer", reason="the command line needs it")
    done = whywait("simulate", recorded, *options)
    assert done.code == 2
    assert told in done.err
