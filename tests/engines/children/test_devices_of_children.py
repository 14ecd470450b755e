"""N4: commands and worker processes find their units in their environment, and no process changes its units."""

import os

import pytest

from patience import PATIENCE_S, until
from process_bodies import is_alive
from whywait import Command, Infeasible, current

OPTIONS = {"slots": 4, "grace": 1.0}
TOLD = "echo ${CUDA_VISIBLE_DEVICES-none} ${WHYWAIT_RIG-none}"


def told():
    """Return what this process is told of its units, and which it is."""
    return current().devices, os.environ.get("CUDA_VISIBLE_DEVICES"), os.environ.get("WHYWAIT_RIG"), os.getpid()


def tell_worker():
    """Return the same of a worker process of this task."""
    return current().spawn(told, process=True).result()


@pytest.fixture
def authority(make, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return make(gpus=["8GB", "8GB"], devices={"rig": ["a", "b"]})


def test_a_command_is_told(authority):
    """N4: gpus by CUDA's variable, other kinds by ours; what the user sets of it does not count."""
    both = authority.submit(Command(TOLD, env={"CUDA_VISIBLE_DEVICES": "7"}), gpu=2, devices={"rig": 1})
    assert both.result(PATIENCE_S).stdout == "0,1 a\n"
    assert authority.submit(Command(TOLD), vram="1GB").result(PATIENCE_S).stdout == "0 none\n"
    assert authority.submit(Command(TOLD)).result(PATIENCE_S).stdout == "none none\n"


def test_a_worker_process_is_told_before_it_starts(authority):
    """N4: so that whatever the body imports sees its units only."""
    devices, cuda, rig, _ = authority.submit(told, gpu=1, devices={"rig": 2}, engine="process").result(PATIENCE_S)
    assert (devices, cuda, rig) == ({"gpu": ["0"], "rig": ["a", "b"]}, "0", "a,b")


def test_a_process_serves_one_set_of_units_only(authority):
    """N4: the next task of the same units may get it, one of others or of none never does."""

    def pid(**demand):
        return authority.submit(told, engine="process", **demand).result(PATIENCE_S)[3]

    one = pid(vram="5GB")
    both, none = pid(gpu=2), pid()
    assert len({one, both, none}) == 3
    assert pid(vram="4GB", gpu=2) == both  # the same two
    assert pid() == none


def test_an_idle_process_leaves_its_unit_when_a_task_with_others_comes(authority):
    """N2, N4: it may hold memory of a unit that another process has now."""
    first = authority.submit(told, gpu=1, engine="process").result(PATIENCE_S)[3]
    second = authority.submit(told, gpu=2, engine="process").result(PATIENCE_S)[3]
    until(lambda: not is_alive(first), "the end of the process that was bound to gpu 0 alone")
    assert is_alive(second)


def test_a_process_does_not_go_on_with_a_task_of_other_units(authority):
    """N4: also where the next task is taken in the same step in which one ends."""
    handles = [
        authority.submit(told, engine="process", **demand)
        for demand in ({"gpu": 1}, {"gpu": 1}, {"vram": "2GB"}, {"gpu": 2}, {"devices": {"rig": 1}}, {}, {"gpu": 1}) * 4
    ]
    served = {}
    for handle in handles:
        devices, cuda, rig, pid = handle.result(PATIENCE_S)
        assert devices == handle.devices
        assert cuda == (",".join(devices["gpu"]) if "gpu" in devices else None)
        assert rig == (",".join(devices["rig"]) if "rig" in devices else None)
        served.setdefault(pid, []).append((cuda, rig))
    assert all(len(set(units)) == 1 for units in served.values()), served


@pytest.mark.parametrize("engine", ["thread", "process"])
def test_a_worker_process_of_a_task_has_the_units_of_the_task(authority, engine):
    """W1, N4: whatever runs the task itself."""
    devices, cuda, _, _ = authority.submit(tell_worker, gpu=1, engine=engine).result(PATIENCE_S)
    assert (devices, cuda) == ({"gpu": ["0"]}, "0")


def test_a_card_that_dies_is_given_to_no_other_task(authority, tmp_path):
    """N1: the command on it goes on; what comes next gets the other card, or is refused."""
    gate = tmp_path / "gate"
    on_each = [authority.submit(Command(f"while [ ! -e {gate} ]; do sleep 0.01; done; {TOLD}"), gpu=1) for _ in "ab"]
    until(lambda: all(handle.devices for handle in on_each), "both to run")
    authority.resize(gpus={"0": "8GB"})
    after = [authority.submit(Command(TOLD), gpu=1) for _ in range(3)]
    with pytest.raises(Infeasible, match=r"demands 2 gpu and there is 1 \(0\)"):
        authority.submit(Command(TOLD), gpu=2)
    gate.touch()
    assert {handle.result(PATIENCE_S).stdout for handle in on_each} == {"0 none\n", "1 none\n"}
    assert [handle.result(PATIENCE_S).stdout for handle in after] == ["0 none\n"] * 3
    authority.resize(gpus={"0": "8GB", "1": "8GB"})
    assert authority.submit(Command(TOLD), gpu=2).result(PATIENCE_S).stdout == "0,1 none\n"
