"""O5, T2: what happens on a cluster of several nodes when parts of it die."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import ray_bodies
from cluster_tools import LIMIT_S, alive, until

from whywait import TaskFailed
from whywait.engines.ray import engine as ray_engine
from whywait.kernel.state import TaskState

pytestmark = [pytest.mark.ray, pytest.mark.timeout(120)]


def pid_in(path):
    """Return the process id that a body wrote."""
    return int(until(lambda: path.exists() and path.read_text(), "a pid"))


def is_idle(authority):
    """Return whether all slots and all of the budget are free."""
    gates = authority._core.kernel.resources.values()
    return not authority._core.kernel.running and all(gate.free == gate.limit for gate in gates)


def test_a_worker_that_is_killed_loses_its_task(make, tmp_path):
    """T2, T4: outcome ERROR, cause worker_lost; slot and budget come back and the next task runs."""
    authority = make()
    handle = authority.submit(ray_bodies.pid_and_wait, str(tmp_path / "a"), cpu=1)
    os.kill(pid_in(tmp_path / "a"), signal.SIGKILL)
    error = handle.exception(LIMIT_S)
    assert isinstance(error, TaskFailed)
    assert "was lost" in str(error)
    assert (handle.outcome, handle.cause) == ("error", "worker_lost")
    assert is_idle(authority)
    assert authority.submit(ray_bodies.nothing, 1).result(LIMIT_S) == 1


def test_a_lost_worker_is_retried_as_configured_and_not_by_ray(make, tmp_path):
    """T7: the retry is another task of ours; Ray's own are off."""
    authority = make()
    handle = authority.submit(ray_bodies.once_lost, str(tmp_path / "a"), retry=1)
    os.kill(pid_in(tmp_path / "a"), signal.SIGKILL)
    assert handle.result(LIMIT_S) == "second"
    assert len(handle.attempts) == 2


def test_a_node_that_dies_loses_what_runs_there(make, nodes, tmp_path):
    """T2, T7: also a whole node; a retry goes to another one."""
    node = nodes.add(resources={"spot": 1})
    authority = make()
    until(lambda: "spot" in authority._core.kernel.resources, "the budget follows")
    lost = authority.submit(ray_bodies.once_lost, str(tmp_path / "a"), retry=1, resources={"spot": 1})
    pid = pid_in(tmp_path / "a")
    nodes.add(resources={"spot": 1})
    nodes.kill(node)
    assert lost.result(LIMIT_S) == "second"
    until(lambda: not alive(pid), "the worker dies with its node")
    until(lambda: is_idle(authority), "the budget comes back")


def test_a_node_that_dies_does_not_take_along_what_waits_for_a_place(make, nodes, tmp_path):
    """V1, T2: a permitted task that Ray has not placed waits for another node, and why() says so."""
    node = nodes.add(resources={"spot": 1})
    authority = make(resources={"spot": 2})  # more than there is: both are permitted
    running = authority.submit(ray_bodies.pid_and_wait, str(tmp_path / "a"), resources={"spot": 1})
    pid_in(tmp_path / "a")
    waiting = authority.submit(ray_bodies.where, resources={"spot": 1}, id="late")
    why = until(lambda: (found := waiting.why()).placement and found, "it waits for a place")
    assert waiting.state == TaskState.RUNNING
    assert why.placement.node is None
    assert [(row.name, row.need, row.free) for row in why.placement.missing] == [("spot", 1, 0)]
    assert "waits for ray to place it" in str(why)
    assert "it needs 1 spot, and the node that comes closest has 0" in str(why)
    nodes.kill(node)
    assert isinstance(running.exception(LIMIT_S), TaskFailed)
    assert running.cause == "worker_lost"
    assert not waiting.done()
    added = nodes.add(resources={"spot": 1})
    assert waiting.result(LIMIT_S) == added.node_id


def test_what_no_node_can_ever_take_says_so_and_can_be_cancelled(make):
    """V1, X3: permission is ours, placement is Ray's: it is told what Ray has too little of."""
    authority = make(resources={"licence": 1}, cpu=64, slots=64)
    handle = authority.submit(ray_bodies.nothing, cpu=60)
    why = until(lambda: (found := handle.why()).placement and found, "it waits for a place")
    assert "ray has no node for it: it needs 60 cpu, and the largest has 2" in str(why)
    assert why.to_dict()["placement"]["missing"][0]["name"] == "cpu"
    handle.cancel()
    until(handle.done)
    assert (handle.outcome, handle.cause) == ("aborted", "cancelled")
    assert is_idle(authority)


def test_limits_that_nobody_set_follow_the_cluster(make, nodes, tmp_path):
    """S1, B1: a node that joins brings slots and budget, one that leaves takes them away; what runs goes on."""
    authority = make()
    slots = authority._core.kernel.root.slot_gate
    until(lambda: slots.limit == 2, "the head's two")
    handles = [authority.submit(ray_bodies.pid_and_wait, str(tmp_path / f"{i}")) for i in range(3)]
    pid_in(tmp_path / "0"), pid_in(tmp_path / "1")
    assert handles[2].why().primary == "slot"
    node = nodes.add()
    pid_in(tmp_path / "2")
    assert slots.limit == 3
    assert authority._core.kernel.resources["cpu"].limit == 3
    for handle in handles:
        handle.cancel()
    until(lambda: all(handle.done() for handle in handles))
    nodes.kill(node)
    until(lambda: slots.limit == 2, "the node is gone")
    changes = [dict(event.details)["limit"] for event in authority.events() if event.name == "slot"]
    assert changes[-3:] == [2, 3, 2]  # before that, nodes of other tests may have been counted


def test_limits_that_were_set_stay(make, nodes):
    """S1, E1: what the user says wins."""
    authority = make(slots=1, cpu=1, ram="1GB")
    nodes.add()
    kernel = authority._core.kernel
    assert (kernel.root.slot_gate.limit, kernel.resources["cpu"].limit) == (1, 1)
    assert kernel.resources["ram"].limit == 10**9


def test_a_result_that_is_lost_with_its_node_is_an_error_for_who_asks(make, nodes):
    """T2: the driver gets TaskFailed; a task that needs it ends with worker_lost; nothing hangs."""
    node = nodes.add(resources={"spot": 1})
    authority = make()
    until(lambda: "spot" in authority._core.kernel.resources, "the budget follows")
    data = authority.submit(ray_bodies.large, 5_000_000, resources={"spot": 1})
    until(data.done)
    assert data.outcome == "success"
    nodes.kill(node)
    with pytest.raises(TaskFailed, match="lost"):
        data.result(LIMIT_S)
    needs = authority.submit(ray_bodies.length, data)
    assert isinstance(needs.exception(LIMIT_S), TaskFailed)
    assert needs.cause == "worker_lost"
    assert is_idle(authority)


def test_dispose_leaves_nothing_running_on_the_cluster(make, tmp_path):
    """O5: whoever ignores the signal is killed after grace."""
    authority = make(grace=0.3)
    handles = [authority.submit(ray_bodies.deaf, str(tmp_path / str(i))) for i in range(2)]
    pending = authority.submit(ray_bodies.nothing)
    pids = [pid_in(tmp_path / str(i)) for i in range(2)]
    authority.dispose()
    assert {handle.outcome for handle in (*handles, pending)} == {"aborted"}
    until(lambda: not any(map(alive, pids)), "the workers are gone")


def test_a_driver_that_is_killed_leaves_nothing_running(head, tmp_path):
    """O5: Ray ends the workers of a driver that is gone."""
    program = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "import ray_bodies\nfrom whywait import Authority\n"
        "authority = Authority(engine='ray')\n"
        f"authority.submit(ray_bodies.deaf, {str(tmp_path / 'a')!r}).result()\n"
    )
    environment = {**os.environ, "RAY_ADDRESS": head.address}
    driver = subprocess.Popen([sys.executable, "-c", program], env=environment)
    try:
        pid = pid_in(tmp_path / "a")
    finally:
        driver.kill()
        driver.wait()
    until(lambda: not alive(pid), "the worker follows its driver")


def test_a_lost_switchboard_ends_what_runs_and_no_more(make, tmp_path):
    """T2: nothing hangs if nobody can be told or heard any more; what comes later uses another one."""
    import ray

    authority = make()
    handle = authority.submit(ray_bodies.pid_and_wait, str(tmp_path / "a"))
    pid_in(tmp_path / "a")
    until(lambda: (found := handle.why().placement) and found.node, "it is placed")
    ray.kill(authority._core.engines.default._cluster.board)
    assert isinstance(handle.exception(LIMIT_S), TaskFailed)
    assert handle.cause == "worker_lost"
    again = authority.submit(ray_bodies.pid_and_wait, str(tmp_path / "b"))
    pid_in(tmp_path / "b")
    again.cancel()
    until(again.done)
    assert again.outcome == "aborted"


def test_what_a_body_has_said_may_get_lost_but_nobody_waits_for_it_for_ever(make, monkeypatch):
    """T2: worker_lost, since something of the task is missing; the slot comes back."""
    monkeypatch.setattr(ray_engine, "OVERDUE_S", 0.2)
    authority = make()
    monkeypatch.setattr(authority._core.engines.default, "take_message", lambda *_: None)
    handle = authority.submit(ray_bodies.tell_and_end, id="talker")
    assert "what it said (not placed) was lost on the way" in str(handle.exception(LIMIT_S))
    assert handle.cause == "worker_lost"
    assert is_idle(authority)
