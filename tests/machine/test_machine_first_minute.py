"""The first minute with a machine: a service, jobs, leases; the real program."""

import json
from typing import get_type_hints

import pytest

from machines import in_home, machine_in
from whywait import machine as this_machine
from whywait.devtools.schemas import fits, schema_of
from whywait.errors import MachineError
from whywait.machine.client import LeaseRequest
from whywait.machine.client import Machine as Client
from whywait.machine.listing import Row


@pytest.fixture(scope="module")
def machine(tmp_path_factory):
    with machine_in(tmp_path_factory.mktemp("machine"), "--cpu", "2", "--slots", "2") as machine:
        yield machine


def test_a_job_runs_and_leaves_its_output_and_its_status(machine):
    good, bad = machine.add("--", "echo", "hello"), machine.add("--", "sh", "-c", "echo oops; exit 3")
    assert machine.run("wait", good).code == 0
    assert machine.run("wait", bad).code == 3
    assert "hello" in machine.run("log", good).out
    jobs = {job["id"]: job for job in json.loads(machine.run("ls", "--json").out)}
    assert jobs[good]["outcome"] == "success"
    assert (jobs[bad]["outcome"], jobs[bad]["cause"], jobs[bad]["exit_code"]) == ("error", "exit_code", 3)


def test_a_lease_waits_for_another_and_says_why(machine):
    reasons = []
    with in_home(machine):
        holder = LeaseRequest(Client(), "first", command=True, cpu=2)
        assert holder.receive(30)["granted"]["environment"]["WHYWAIT_LEASE"]
        with pytest.raises(TimeoutError, match=r"cpu: needs 1, 0 of 2 free, held by first"):
            this_machine.lease(cpu=1, timeout=0.1, on_wait=reasons.append).__enter__()
        assert reasons
        holder.ended()
        with this_machine.lease(cpu=2):
            pass
        holder.close()


def test_a_job_and_a_lease_are_told_in_the_row_that_is_declared(machine):
    """In ls, in status, and one by one."""
    machine.run("wait", machine.add("--", "true"))
    with in_home(machine), this_machine.lease(cpu=1):
        listed = json.loads(machine.run("ls", "--json").out)
        status = json.loads(machine.run("status", "--json").out)
        one = Client().ask("GET", f"/machine/jobs/{listed[0]['id']}")
    assert {row["kind"] for row in listed} == {"job", "lease"}
    assert one.keys() - {"text", "reasons"} == set(get_type_hints(Row))
    for row in [*listed, *status["running"], *status["ended"]]:
        assert row.keys() == set(get_type_hints(Row))
        assert fits(row, schema_of(Row)), row


def test_a_lease_that_can_never_be_granted_is_refused(machine):
    with in_home(machine), pytest.raises(MachineError, match="20 cpu"), this_machine.lease(cpu=20):
        pass
