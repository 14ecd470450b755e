"""M2, M3, M5: leases, from the request to the end, over the real socket."""

import asyncio
import logging
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import get_type_hints

import pytest

from machines import granted, in_home, machine_in
from patience import until
from whywait import machine as this_machine
from whywait.devtools.schemas import fits, schema_of
from whywait.errors import MachineError, TaskDropped
from whywait.machine import remains as remains_module
from whywait.machine.client import LeaseRequest
from whywait.machine.client_lease import TAKE_S
from whywait.machine.home import Home
from whywait.machine.listing import Row
from whywait.machine.remains import Remain, Remains
from whywait.machine.service import Service

GRACE_S = 2.0  # of a scope, before a body is killed


@pytest.fixture(scope="module")
def machine(tmp_path_factory):
    with machine_in(tmp_path_factory.mktemp("machine"), "--cpu", "4", "--slots", "4") as machine:
        yield machine


def free(client):
    return client.free()["cpu"]


def ask(client, cpu=4, **asked):
    return client.request(cpu=cpu, **asked)


@pytest.mark.parametrize("command", [[], {}, [[]], [1], "make", 1, None])
def test_a_lease_for_no_command_is_refused_and_harms_no_other(client, command):
    """M2: one request of a wrong form costs the others nothing."""
    with pytest.raises(MachineError, match=r"command .* is not allowed"):
        LeaseRequest(client, "test", command=command, cpu=1)
    request = ask(client, cpu=1)
    granted(request)
    request.ended()


def test_a_lease_waits_for_its_turn_and_hears_why(client):
    """M2: the reason comes when it begins to wait, and when it changes."""
    first = ask(client)
    granted(first)
    second = ask(client, cpu=1)
    message = second.receive(30)
    assert message["waiting"].startswith(f"cpu: needs 1, 0 of 4 free, held by {first.id} (4,")
    assert message["why"]["reasons"][0]["holders"][0]["id"] == first.id
    third = ask(client, cpu=4)
    first.ended()
    granted(second)
    assert f"held by {second.id}" in [third.receive(30)["waiting"] for _ in range(2)][-1]
    second.ended()
    granted(third)
    third.ended()
    assert third.receive(30) == {"ended": {"outcome": "success", "cause": None}}


def test_what_a_client_has_left_behind_is_killed_before_the_permission_is_given_on(client, tmp_path):
    """M3: never while anything of it lives, also if it has left its session."""
    first = ask(client)
    environment = {**os.environ, **granted(first)["environment"]}
    mark = tmp_path / "alive"
    script = f"trap '' TERM HUP; while :; do date +%s%N > {mark}; sleep 0.01; done"
    left = subprocess.Popen(["setsid", "sh", "-c", script], env=environment)
    until(mark.exists)
    second = ask(client)
    first.close()
    granted(second)
    written = mark.read_bytes()
    assert left.wait(10) == -signal.SIGKILL
    time.sleep(0.05)
    assert mark.read_bytes() == written
    second.ended()


def test_a_permission_lasts_as_long_as_a_descendant_that_the_command_left_behind(client):
    """M3: the client may be gone long since."""
    first = ask(client)
    environment = {**os.environ, **granted(first)["environment"]}
    left = subprocess.Popen(["sleep", "60"], env=environment)
    until(Path(f"/proc/{left.pid}/environ").read_bytes)  # the system shows it a moment after Popen has returned
    first.ended(0)
    first.close()
    second = ask(client)
    assert "waiting" in second.receive(30)
    with pytest.raises(TimeoutError):
        second.receive(0.5)
    left.kill()
    left.wait()
    granted(second)
    second.ended()


def test_a_lease_can_be_cancelled_paused_and_resumed_like_any_task(client, machine):
    """M7: by the same verbs; the client is told."""
    request = ask(client)
    granted(request)
    pausing = threading.Thread(target=machine.run, args=("pause", request.id))
    pausing.start()
    assert request.receive(30) == {"wish": "pause"}
    request.tell("parked")
    pausing.join()
    assert "has been paused" in machine.run("why", request.id).out
    assert machine.run("resume", request.id).code == 0
    assert request.receive(30) == {"wish": "resume"}
    assert machine.run("cancel", request.id).code == 0
    wish = request.receive(30)
    assert re.fullmatch(rf"process \d+ of \S+ {os.getpid()}( on pts/\d+)?", wish.pop("by")), wish
    assert wish == {"wish": "abort", "cause": "cancelled"}
    request.ended(143)
    ended = request.receive(30)["ended"]
    assert (ended["outcome"], ended["cause"]) == ("aborted", "cancelled")


def test_many_leases_can_be_paused_at_the_same_moment(client, machine):
    """X1: more than the service has threads; none is cancelled because another one is waited for."""
    count = 40
    requests = [ask(client, cpu=0, slot=False) for _ in range(count)]
    for request in requests:
        granted(request)
    told = []

    def pause(name):
        told.append(client.ask("POST", f"/machine/jobs/{name}/pause", {})["state"])

    pausing = [threading.Thread(target=pause, args=(request.id,)) for request in requests]
    for thread in pausing:
        thread.start()
    for request in requests:
        assert request.receive(30) == {"wish": "pause"}
        request.tell("parked")
    for thread in pausing:
        thread.join()
    assert told == ["PAUSED"] * count


def test_a_client_that_does_not_heed_an_abort_loses_its_permission(client, machine):
    """M3: after the grace, what runs under it is killed."""
    request = ask(client, timeout=0.1)
    environment = {**os.environ, **granted(request)["environment"]}
    stubborn = subprocess.Popen(["sh", "-c", "trap '' TERM; sleep 60; sleep 60"], env=environment)
    assert request.receive(30) == {"wish": "abort", "cause": "run_timeout"}
    assert request.receive(30) == {"wish": "kill", "cause": "run_timeout"}
    assert request.receive(30) == {"ended": {"outcome": "timeout", "cause": "run_timeout"}}
    assert stubborn.wait(10) == -signal.SIGKILL


def test_a_cancelled_block_keeps_its_permission_until_it_has_ended(client, machine):
    """M3, T4: a block of Python cannot be killed, so what it holds is given to no other before it is over."""
    with this_machine.lease(cpu=4, name="block") as block:
        assert machine.run("cancel", block.id).code == 0
        until(lambda: block.lost, "the block hearing of it")
        time.sleep(GRACE_S + 0.5)
        assert free(client) == 0
        assert "asked to end" in block.why()
    until(lambda: free(client) == 4, "the permission coming back")


LEAVES = """
import os, subprocess, time
from whywait import machine
with machine.lease(cpu=4) as lease:
    child = subprocess.Popen(["sleep", "1000"], env={**os.environ, **lease.environment})
    print(child.pid, flush=True)
    time.sleep(1000)
"""


def test_what_a_killed_block_has_started_in_its_name_is_killed(client, machine):
    """M3: programs with the environment of the lease run under its permission."""
    block = subprocess.Popen([sys.executable, "-c", LEAVES], env=machine.environment, stdout=subprocess.PIPE)
    child = int(block.stdout.readline())
    block.kill()
    block.wait()
    block.stdout.close()
    until(lambda: free(client) == 4, "the permission coming back")
    assert not Path(f"/proc/{child}/exe").exists()


def test_a_job_and_a_lease_are_told_in_the_row_that_is_declared(client, machine):
    """M7: in ls, in status, and one by one."""
    machine.run("wait", machine.add("--", "true"))
    with this_machine.lease(cpu=1):
        listed = machine.rows()
        status = machine.status()
        one = client.ask("GET", f"/machine/jobs/{listed[0]['id']}")
    assert {row["kind"] for row in listed} == {"job", "lease"}
    assert one.keys() - {"text", "reasons"} == set(get_type_hints(Row))
    for row in [*listed, *status["running"], *status["ended"]]:
        assert row.keys() == set(get_type_hints(Row))
        assert fits(row, schema_of(Row)), row


@pytest.mark.parametrize(
    ("asked", "says"),
    [({"cpu": 5}, "5 cpu and the limit is 4"), ({"colour": "red"}, "no option colour"), ({"after": ["77"]}, "'77'")],
)
def test_what_can_never_be_granted_is_refused(client, asked, says):
    """M2: with the reason."""
    with pytest.raises(MachineError, match=says):
        LeaseRequest(client, "test", command=True, **asked)


# In a session of its own: where no shell waits for the group of the tests, the system lets what is stopped in it go on
# (SIGCONT to an orphaned process group) whenever a process of some other test ends in it.
APART = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "start_new_session": True}
STOPPED = """
import sys
from whywait.machine.client import LeaseRequest, Machine
request = LeaseRequest(Machine(), "halted", command=True, cpu=4)
print(request.id, flush=True)
input()
for _ in range(2):
    while "granted" not in (message := request.receive()):
        pass
    print(request.takes(message["granted"]["environment"]), flush=True)
request.ended()
"""


def test_a_grant_that_a_stopped_client_does_not_take_is_withdrawn(client, machine):
    """M15: it waits again, paused, others go first, and the first grant is void when the client goes on."""
    with subprocess.Popen([sys.executable, "-c", STOPPED], env=machine.environment, **APART) as halted:
        name = halted.stdout.readline().strip()
        until(lambda: client.ask("GET", f"/machine/jobs/{name}")["state"] == "RUNNING", "its grant")
        assert free(client) == 0
        os.kill(halted.pid, signal.SIGSTOP)
        other = ask(client)
        granted(other)
        row = client.ask("GET", f"/machine/jobs/{name}")
        assert (row["state"], row["stopped"], row["started"]) == ("PAUSED", True, None)
        other.ended()
        until(lambda: free(client) == 4, "the end of the other")
        os.kill(halted.pid, signal.SIGCONT)
        halted.stdin.write("\n")
        halted.stdin.flush()
        assert [halted.stdout.readline() for _ in range(2)] == ["False\n", "True\n"]


def test_a_grant_that_was_taken_is_not_withdrawn(client, machine):
    """M15: a block of Python that is stopped keeps what it holds, and is shown as paused."""
    program = (
        "from whywait import machine\nwith machine.lease(cpu=4, name='halted') as it: print(it.id, flush=True); input()"
    )
    with subprocess.Popen([sys.executable, "-c", program], env=machine.environment, **APART) as halted:
        name = halted.stdout.readline().strip()
        os.kill(halted.pid, signal.SIGSTOP)

        def row():
            return client.ask("GET", f"/machine/jobs/{name}")

        until(lambda: row()["stopped"], "the service seeing the stop")
        time.sleep(TAKE_S + 0.6)  # another look has come
        assert (row()["state"], free(client)) == ("PAUSED", 0)
        os.kill(halted.pid, signal.SIGCONT)
        until(lambda: row()["state"] == "RUNNING", "the service seeing that it goes on")
        halted.stdin.write("\n")
        halted.stdin.flush()


def test_leases_that_end_together_are_looked_for_together(client, monkeypatch):
    """M3: a look reads all processes of the computer; one for each would make ends wait behind each other."""
    looks, seen, may_go_on = [], threading.Event(), threading.Event()

    def look(_, marks):
        looks.append(len(marks))
        seen.set()
        assert may_go_on.wait(30)
        return {}

    monkeypatch.setattr(remains_module, "bearers", look)
    remains, gone = Remains(), threading.Semaphore(0)
    remains.add(Remain(1, False, gone.release, bool))
    assert seen.wait(30)
    for mark in range(2, 52):
        remains.add(Remain(mark, False, gone.release, bool))
    may_go_on.set()
    for _ in range(51):
        assert gone.acquire(timeout=30)
    assert looks == [1, 50]


# In Python


def test_a_block_runs_under_a_lease(client):
    """M2: and gives it back however it ends."""
    with this_machine.lease(cpu=4, name="block") as lease:
        assert lease.id.startswith("block-")
        assert free(client) == 0
    until(lambda: free(client) == 4)
    with pytest.raises(ZeroDivisionError), this_machine.lease(cpu=4):
        raise ZeroDivisionError


def test_a_block_that_waits_tells_why(client, caplog):
    """M2: to a callback, or to the log; and to other threads."""
    heard = []
    waiting = this_machine.lease(cpu=1, on_wait=heard.append)
    first = ask(client)
    granted(first)
    thread = threading.Thread(target=lambda: enter(waiting).__exit__(None, None, None))
    thread.start()
    until(lambda: heard)
    assert f"held by {first.id}" in heard[0]
    assert "it starts when 1 more cpu is free" in waiting.why()
    with caplog.at_level(logging.INFO, "whywait"), pytest.raises(TimeoutError):
        enter(this_machine.lease(cpu=1, timeout=0.1, name="logged"))
    first.ended()
    thread.join()
    assert "lease logged-" in caplog.text
    assert "waits: cpu: needs 1" in caplog.text


def test_a_request_that_is_cancelled_while_it_waits_raises(client, machine):
    """M2: in the block that waits."""
    granted(ask(client))
    waiting = this_machine.lease(cpu=1, on_wait=lambda _: machine.run("cancel", waiting.id))
    with pytest.raises(TaskDropped, match="ended as aborted"):
        enter(waiting)


def test_a_program_without_a_file_has_a_name_that_commands_can_take(client, machine):
    """M2: of `python -c` the first argument is an option."""
    program = "from whywait import machine\nwith machine.lease(cpu=1) as lease: print(lease.id)"
    done = subprocess.run([sys.executable, "-c", program], env=machine.environment, capture_output=True, check=True)
    assert done.stdout.startswith(b"python-")
    request = LeaseRequest(client, "-c", command=False, cpu=1)
    client.made.append(request)
    assert request.id.startswith("c-")


def test_an_async_block_leaves_its_loop_free(client):
    """M2: `async with`; others run while it waits."""
    first = ask(client)
    granted(first)

    async def main():
        ticks = 0

        async def tick():
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0.001)

        ticking = asyncio.create_task(tick())
        with pytest.raises(TimeoutError, match=f"held by {first.id}"):
            async with this_machine.lease(cpu=1, timeout=0.2):
                pass
        assert ticks > 3  # one, if the loop were held up
        ticking.cancel()

    asyncio.run(main())


def test_an_async_block_that_is_cancelled_withdraws_its_request(client):
    """M2: nothing waits any more."""
    granted(ask(client))

    async def main():
        waiting = asyncio.create_task(this_machine.lease(cpu=1, name="withdrawn").__aenter__())
        await asyncio.sleep(0.1)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(main())
    until(lambda: client.ask("GET", "/machine/status")["waiting_total"] == 0)


def enter(lease):
    return lease.__enter__()


def test_a_lease_whose_service_is_gone_is_lost(tmp_path, caplog):
    """M5: the block runs to its end, and can ask."""
    with machine_in(tmp_path, "--cpu", "4") as machine, in_home(machine), this_machine.lease(cpu=4) as lease:
        assert not lease.lost
        machine.down()
        until(lambda: lease.lost)
    assert "the block has run to its end" in caplog.text


@pytest.mark.parametrize(("verb", "wish"), [("cancel", "abort"), ("pause", "pause")])
def test_a_wish_that_comes_while_a_lease_is_granted_is_told_after_the_grant(tmp_path, monkeypatch, verb, wish):
    """X1, X3, M14: a client that does not know of its grant yet heeds no wish, so it would be lost."""
    service = Service(Home(str(tmp_path / "home")), slots=1, cpu=1)
    leases, was_asked = service.leases, threading.Event()
    permissions = leases._permissions
    grant, ask_engine = permissions.grant, getattr(leases.engine, wish)
    heard: list[dict[str, object]] = []

    def grant_late(scope, id, execution):
        if id == "second-2":
            threading.Thread(target=getattr(leases.get(id).handle, verb), daemon=True).start()
            assert was_asked.wait(30)
        return grant(scope, id, execution)

    def pass_on(execution):
        ask_engine(execution)
        was_asked.set()

    monkeypatch.setattr(permissions, "grant", grant_late)
    monkeypatch.setattr(leases.engine, wish, pass_on)
    try:
        first = leases.request("first", lambda _: None, command=False)
        second = leases.request("second", heard.append, command=False)
        first.ended(0)
        until(lambda: any(message.get("wish") == wish for message in heard), "the wish that the client hears")
        kinds = [next(iter(message)) for message in heard if "waiting" not in message]
        assert kinds[:3] == ["id", "granted", "wish"]
        assert verb == "pause" or heard[-1]["cause"] == "cancelled"
        second.parked()
        second.ended(0)
    finally:
        service.close()
