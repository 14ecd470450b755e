"""GPUs and other devices of the machine, for commands, jobs and blocks of Python."""

import pytest

from machines import in_home, machine_in
from whywait import machine as this_machine


@pytest.fixture(scope="module")
def machine(tmp_path_factory):
    given = ("--gpus", "24GB,12GB", "--device", "rig=left,right", "--slots", "4")
    with machine_in(tmp_path_factory.mktemp("machine"), *given) as machine:
        yield machine


def test_a_command_is_told_its_units(machine):
    """N4, M2: by the variables that programs know; the smallest that fits is taken (N3)."""
    assert machine.run("do", "--gpu", "1", "--", "printenv", "CUDA_VISIBLE_DEVICES").out == "1\n"
    assert machine.run("do", "--vram", "20GB", "--", "printenv", "CUDA_VISIBLE_DEVICES").out == "0\n"
    assert machine.run("do", "--device", "rig=1", "--", "printenv", "WHYWAIT_RIG").out == "left\n"


def test_a_job_is_told_its_units(machine):
    """N4, M2: as a command in a terminal is."""
    job = machine.add("--gpu", "1", "--", "printenv", "CUDA_VISIBLE_DEVICES")
    assert machine.run("wait", job).code == 0
    assert "\n1\n" in machine.run("log", job).out


def test_a_block_of_python_is_told_its_units(machine):
    """N4, M2: in the lease."""
    with in_home(machine), this_machine.lease(gpu=1, devices={"rig": 2}, name="block") as lease:
        assert lease.devices == {"gpu": ["1"], "rig": ["left", "right"]}


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        (("--gpu", "3"), "demands 3 gpu and there are 2"),
        (("--device", "rig"), "--device: 'rig' is not allowed: write"),
        (("--device", "dongle=1"), "dongle"),
    ],
)
def test_what_no_unit_could_ever_satisfy_is_refused(machine, asked, reason):
    """N2: at once, in a sentence, with exit status 2."""
    done = machine.run("do", *asked, "--", "true")
    assert done.code == 2
    assert reason in done.err


def test_the_status_has_a_line_for_each_unit(machine):
    """N5, M7: how much of it is taken, and by what."""
    with in_home(machine), this_machine.lease(vram="5GB", devices={"rig": 1}, name="block") as lease:
        lines = machine.run("status").out.splitlines()
    assert [line for line in lines if line.startswith(("gpu", "rig"))] == [
        "gpu 0: 0 B of 24.0 GB taken",
        f"gpu 1: 5.0 GB of 12.0 GB taken by {lease.id} (5.0 GB)",
        f"rig left: taken by {lease.id}",
        "rig right: free",
    ]
