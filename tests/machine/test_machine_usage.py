"""What runs under a permission is measured, and found again whatever it has done to hide."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from machines import Machine, active, machine_in
from patience import until
from whywait import machine as share
from whywait.trees.system import descendants, stat_of

MB = 1_000_000
# Two processes of so many MB each, one of which has left group, session, environment and parent; they wait for a file.
ALLOCATE = """
import os, subprocess, sys, time
size, go = int(sys.argv[1]) * 1_000_000, sys.argv[2]
if len(sys.argv) == 3:
    subprocess.run(["sh", "-c", 'setsid env -i "$@" &', "sh", sys.executable, __file__, sys.argv[1], go, "last"])
data = bytearray(size)
data[::4096] = b"x" * len(data[::4096])
while not os.path.exists(go):
    time.sleep(0.01)
"""
SPIN = "import time; end = time.process_time() + 0.3\nwhile time.process_time() < end: pass"


@pytest.fixture(scope="module")
def machine(tmp_path_factory):
    with machine_in(tmp_path_factory.mktemp("machine"), "--cpu", "2", "--slots", "2", "--ram", "2GB") as machine:
        yield machine


def listed(machine):
    return [row["id"] for row in machine.rows()]


def end_of(client, name):
    """Return the facts in the event of an end."""

    def found():
        tasks = client.ask("GET", "/api/tasks?state=DISPOSED&limit=1000")["tasks"]
        return next((task for task in tasks if task["id"] == name), None)

    return until(found, f"the end of {name}")


@pytest.mark.parametrize("verb", ["do", "add"])
def test_a_command_is_measured_with_its_descendants(machine, client, tmp_path, verb):
    """U1: `ls` tells the peak of memory so far, the event of the end what it was, both how it was measured."""
    script, go = tmp_path / "allocate.py", tmp_path / "go"
    script.write_text(ALLOCATE)
    running = machine.start(verb, "--ram", "500MB", "--", sys.executable, script, 80, go, stdout=subprocess.DEVNULL)
    name = until(lambda: listed(machine), "the command")[-1]
    until(lambda: (machine.row(name)["peak_ram"] or 0) > 160 * MB, lambda: machine.row(name))
    assert machine.row(name)["peak_ram"] < 260 * MB
    assert machine.row(name)["measured"] in {"sampled", "cgroup"}
    go.touch()
    assert running.wait(30) == 0
    until(lambda: active(machine) == 0, "the end")
    end = end_of(client, name)
    assert 160 * MB < end["peak_ram"] < 260 * MB
    assert end["cpu_ms"] > 0


def test_cpu_time_under_do_is_measured(machine, client):
    """U1: of all processes, those that ended long before included."""
    assert machine.run("do", "--name", "spin", "--", "sh", "-c", f'{sys.executable} -c "{SPIN}"; true').code == 0
    name = until(lambda: [row for row in ids(client) if row.startswith("spin-")], "the end")[0]
    assert 280 < end_of(client, name)["cpu_ms"] < 5000


def ids(client):
    return [task["id"] for task in client.ask("GET", "/api/tasks?state=DISPOSED&limit=1000")["tasks"]]


def test_a_block_of_python_is_measured(client):
    """U1: by the process of the client, with what it has started."""
    with share.lease(name="block", cpu=1) as lease:
        data = bytearray(150 * MB)
        data[::4096] = b"x" * len(data[::4096])
        end = time.process_time() + 0.2
        while time.process_time() < end:
            pass
        row = client.ask("GET", f"/machine/jobs/{lease.id}")
        until(lambda: client.ask("GET", f"/machine/jobs/{lease.id}")["peak_ram"] > len(data), lambda: row)
    end = end_of(client, lease.id)
    assert end["peak_ram"] > len(data)
    assert 180 < end["cpu_ms"] < 20_000
    assert end["measured"] == "sampled"


def test_a_client_that_is_killed_has_been_measured(machine, client, tmp_path):
    """U1: as far as it was seen."""
    script = tmp_path / "allocate.py"
    script.write_text(ALLOCATE)
    running = machine.start("do", "--name", "lost", "--", sys.executable, script, 80, tmp_path / "never")
    name = until(lambda: [each for each in listed(machine) if each.startswith("lost-")], "the command")[0]
    until(lambda: (machine.row(name)["peak_ram"] or 0) > 160 * MB, lambda: machine.row(name))
    running.kill()
    running.wait()
    assert end_of(client, name)["peak_ram"] > 160 * MB


def test_a_service_that_is_killed_with_all_its_helpers_leaves_nothing_to_the_next(tmp_path):
    """M5: what nothing guards any more is found by its mark before the next service starts anything."""
    machine = Machine(tmp_path / "home")
    machine.up("--slots", "1")
    pid = machine.pid
    script = "setsid env -i sh -c 'echo $$ > bare; exec sleep 1000' & echo $$ > command; exec sleep 1000"
    machine.run("add", "--", "sh", "-c", script, cwd=tmp_path)
    lost = [tmp_path / "bare", tmp_path / "command"]
    until(lambda: all(path.exists() and path.read_text().strip() for path in lost), "the command")
    processes = [int(path.read_text()) for path in lost]
    helpers = [each for each in descendants(pid) if Path(f"/proc/{each}/comm").read_text().startswith("tree-")]
    assert len(helpers) == 1
    for each in (pid, *helpers):
        os.kill(each, signal.SIGSTOP)
    for each in (*helpers, pid):  # the end of a parent would let the system continue them
        os.kill(each, signal.SIGKILL)
    until(lambda: all((stat_of(each) or [b"Z"])[0] == b"Z" for each in (pid, *helpers)), "their end")
    assert stat_of(processes[0])  # the system may end the other with its guard
    machine.up()
    try:
        assert not any(stat_of(each) and stat_of(each)[0] != b"Z" for each in processes)
        assert [row["cause"] for row in machine.rows()] == ["worker_lost"]
    finally:
        machine.down()
