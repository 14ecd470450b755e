"""M4: requests from inside a permission are served out of it, never in addition to it."""

import subprocess
import sys
import threading
from contextvars import Context

import pytest

from machines import granted, machine_in
from patience import until
from whywait import Authority
from whywait import machine as this_machine
from whywait.errors import MachineError


@pytest.fixture(scope="module")
def machine(tmp_path_factory):
    with machine_in(tmp_path_factory.mktemp("machine"), "--cpu", "4", "--slots", "2", "--ram", "8GB") as machine:
        yield machine


def ask(client, inside=None, **asked):
    return client.request(inside=inside, **asked)


def token(request):
    return granted(request)["environment"]["WHYWAIT_LEASE"]


def test_a_request_from_inside_takes_nothing_of_the_machine(client):
    """M4: though the lease around it holds all there is, and all slots are taken."""
    outer, other = ask(client, cpu=4, ram="8GB"), ask(client)
    inner = ask(client, token(outer), cpu=2, ram="6GB")
    granted(other)
    granted(inner)
    assert client.free() == {"cpu": 0, "ram": 0}


def test_what_does_not_fit_now_waits_for_others_inside_and_says_so(client):
    """M4: it is the budget of the lease that is short."""
    outer = ask(client, cpu=4, ram="8GB")
    inside = token(outer)
    first = ask(client, inside, ram="6GB")
    granted(first)
    second = ask(client, inside, ram="3GB")
    waits = second.receive(30)["waiting"]
    assert waits.startswith(
        f"ram of inside {outer.id}: needs 3.0 GB, 2.0 GB of 8.0 GB free, held by {first.id} (6.0 GB,"
    )
    first.ended()
    granted(second)


def test_what_could_never_fit_is_refused_with_what_the_lease_holds(client):
    """M4: also what the lease holds nothing of."""
    outer = ask(client, cpu=2, ram="4GB")
    inside = token(outer)
    with pytest.raises(
        MachineError,
        match=f"demands 5 GB ram and the limit is 4 GB: .* inside {outer.id}, which holds 2 cpu and 4.0 GB ram",
    ):
        ask(client, inside, ram="5GB")
    plain = ask(client)
    with pytest.raises(MachineError, match="which holds a slot and nothing else"):
        ask(client, token(plain), cpu=1)
    with pytest.raises(MachineError, match="may wait for what it holds"):
        ask(client, inside, after=["1"])


def test_as_many_run_inside_as_the_lease_has_cpu(client):
    """M4: one at a time if it has none."""
    outer = ask(client, cpu=2)
    inside = token(outer)
    running = [ask(client, inside) for _ in range(2)]
    for each in running:
        granted(each)
    third = ask(client, inside)
    assert third.receive(30)["waiting"].startswith(f"places of inside {outer.id}: needs 1, 0 of 2 free")
    running[0].ended()
    granted(third)


def test_leases_nest_to_any_depth_without_a_deadlock(client):
    """M4: each is served out of the one around it."""
    inside = None
    for _ in range(5):
        inside = token(ask(client, inside, cpu=4, ram="8GB"))


def test_what_is_inside_ends_with_the_lease_around_it(client):
    """M4: and the permission lasts until it has."""
    outer = ask(client, cpu=4)
    inside = token(outer)
    inner, waiting = ask(client, inside, cpu=4), ask(client, inside, cpu=4)
    granted(inner)
    outer.ended()
    wish = next(message for message in iter(lambda: inner.receive(30), None) if "wish" in message)
    assert wish == {"wish": "abort", "cause": "scope_disposed"}
    after = ask(client, cpu=4)
    assert "waiting" in after.receive(30)
    inner.ended()
    granted(after)
    assert next(message for message in iter(lambda: waiting.receive(30), None) if "ended" in message)
    with pytest.raises(MachineError, match=r"has ended|no lease"):
        outer.ended()


def test_a_token_of_a_lease_that_has_ended_means_nothing(client):
    """M4: such a request is one like any other."""
    outer = ask(client, cpu=1)
    inside = token(outer)
    outer.ended()
    until(lambda: client.status()["running_total"] == 0)
    granted(ask(client, inside, cpu=4))


def test_commands_find_the_lease_around_them_by_themselves(machine, tmp_path):
    """M4: `whywait do` in a job, and in a `do`."""
    command = " ".join(machine.command("do", "--cpu", "4", "--", "echo", "inner"))
    job = machine.add("--cpu", "4", "--", "sh", "-c", f"{command} > {tmp_path}/out")
    assert machine.run("wait", job).code == 0
    assert (tmp_path / "out").read_text() == "inner\n"
    done = machine.run("do", "--cpu", "4", "--", "sh", "-c", command)
    assert (done.code, done.out) == (0, "inner\n")
    too_much = " ".join(machine.command("do", "--cpu", "4", "--", "true"))
    refused = machine.run("do", "--cpu", "2", "--", "sh", "-c", too_much)
    assert refused.code != 0
    assert "which holds 2 cpu" in refused.err


def test_an_authority_inside_has_the_limits_of_the_lease(machine):
    """M4: unless it is told others."""
    program = """if True:
        from whywait import Authority
        settings = Authority().settings
        print(settings.limits.slots, dict(settings.budget.hard), dict(settings.budget.soft))
    """
    done = machine.run("do", "--cpu", "3", "--ram", "2GB", "--", sys.executable, "-c", program)
    assert done.out == "3 {'cpu': 3} {'ram': 2000000000}\n", done


def test_a_block_inside_a_block_is_served_out_of_it(client):
    """M4: in the same context; a thread with a context of its own asks for itself."""
    with this_machine.lease(cpu=4, name="outer") as outer:
        with this_machine.lease(cpu=4, name="inner", timeout=30) as inner:
            rows = {row["id"]: row for row in client.ask("GET", "/machine/jobs")}
            assert rows[inner.id]["scope"] == f"inside {outer.id}"
        with Authority() as authority:
            assert (authority.settings.limits.slots, dict(authority.settings.budget.hard)) == (4, {"cpu": 4})
        outcome = []

        def ask_for_itself():
            try:
                with this_machine.lease(cpu=4, timeout=0.2):
                    pass
            except TimeoutError as error:
                outcome.append(str(error))

        thread = threading.Thread(target=Context().run, args=(ask_for_itself,))  # free-threaded Pythons hand theirs on
        thread.start()
        thread.join()
        assert f"held by {outer.id}" in outcome[0]
    with Authority() as authority:
        assert authority.settings.budget.hard == {}


def test_a_program_that_a_block_starts_is_inside_its_lease(client, machine):
    """M4: by its parent, or by the environment that the block hands on."""
    with this_machine.lease(cpu=4):
        done = subprocess.run(
            machine.command("do", "--cpu", "4", "--", "echo", "in"),
            env=machine.environment,
            capture_output=True,
            check=True,
            timeout=60,
        )
        assert done.stdout == b"in\n"
