"""M1, M5: many clients at once, many jobs in the queue; figures are compared with each other, never with a clock."""

import threading
import time
from pathlib import Path

import pytest

from machines import in_home, machine_in
from whywait.machine.client import LeaseRequest
from whywait.machine.client import Machine as Client

JOB = {"command": ["sleep", "60"], "directory": "/", "environment": {"A": "b"}}


@pytest.fixture
def machine(tmp_path):
    with machine_in(tmp_path, "--slots", "1", "--cpu", "4", "--keep", "20") as machine, in_home(machine):
        yield machine


def test_two_hundred_clients_at_once_are_all_served(machine):
    """M1: adds, leases and looks, each over a connection of its own; every permission is given once and comes back."""
    numbers, failures, lock = [], [], threading.Lock()
    at_once = most = 0

    def add():
        answer = Client().ask("POST", "/machine/jobs", {**JOB, "command": ["true"]})
        with lock:
            numbers.append(answer["number"])

    def look():
        assert Client().ask("GET", "/machine/status")["slots"]["limit"] == 1

    def hold():
        nonlocal at_once, most
        request = LeaseRequest(Client(), "many", command=False, cpu=1, slot=False)
        while "granted" not in request.receive(60):
            pass
        with lock:
            at_once += 1
            most = max(most, at_once)
        time.sleep(0.01)
        with lock:
            at_once -= 1
        request.ended()
        request.close()

    def guarded(act):
        try:
            act()
        except BaseException as error:  # noqa: BLE001 - told below
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=((add, hold, look, hold)[n % 4],)) for n in range(200)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert sorted(numbers) == list(range(1, 51))
    assert 1 <= most <= 4


def test_adding_to_a_long_queue_costs_what_adding_to_an_empty_one_does(machine):
    """M5: and all of it is there after a restart, in order."""
    client = Client()

    threads = Path(f"/proc/{client.ask('GET', '/machine/status')['pid']}/task")

    def used_ns():
        return sum(int((each / "schedstat").read_text().split()[0]) for each in threads.iterdir())

    def cost():
        """Return the CPU time of the service for some jobs: on a busy computer, clocks on walls tell of others."""
        began = used_ns()
        for _ in range(50):
            client.ask("POST", "/machine/jobs", JOB)
        return used_ns() - began

    cost()  # the first ones load what the others use
    empty = cost()
    for _ in range(20):
        client.ask("POST", "/machine/workflows", {"name": "many", "jobs": [JOB] * 100})
    assert cost() < 3 * empty
    before = [row["number"] for row in machine.rows()]
    assert len(before) == 2150
    machine.down()
    machine.up("--slots", "1")
    assert [row["number"] for row in machine.rows()] == before
    assert "more wait: whywait ls --all" in machine.run("ls").out


def test_ended_jobs_are_forgotten_while_the_service_runs(machine):
    """M6: when a tenth more than are kept are there."""
    for _ in range(30):
        machine.run("wait", str(Client().ask("POST", "/machine/jobs", {**JOB, "command": ["true"]})["number"]))
    left = [row["number"] for row in machine.rows()]
    assert len(left) <= 23
    assert left[-1] == 30
