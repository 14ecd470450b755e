"""T, G, S: programs that use a cluster, alone or beside threads and coroutines."""

import json
import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
import ray_bodies
from cluster_tools import LIMIT_S, until

from devtools_client import get
from whywait import Authority, Call, ConfigError, TaskFailed
from whywait.engines.ray.cluster import _connect
from whywait.engines.ray.engine import RayEngine
from whywait.support.elsewhere import Elsewhere

pytestmark = [pytest.mark.ray, pytest.mark.timeout(120)]


def results(handles):
    """Return all results."""
    return [handle.result(LIMIT_S) for handle in handles]


def test_results_stay_in_the_store_until_somebody_asks(make):
    """G4, T5: the next task on the cluster gets a reference; this process gets what it asks for."""
    authority = make()
    data = authority.submit(ray_bodies.large, 3_000_000)
    count = authority.submit(ray_bodies.length, data)
    assert count.result(LIMIT_S) == 3_000_000
    assert isinstance(data.value, Elsewhere)
    assert not data.value._is_here
    assert len(data.result()) == 3_000_000
    assert data.value._is_here


def test_a_function_that_returned_small_results_may_return_another(make):
    """T5, T2: it comes at once then, later ones stay in the store; one that cannot be pickled is the task's error."""
    authority = make()
    for size in (10, 20, 3_000_000):
        assert len(authority.submit(ray_bodies.large, size).result(LIMIT_S)) == size
    data = authority.submit(ray_bodies.large, 3_000_000)
    assert authority.submit(ray_bodies.length, data).result(LIMIT_S) == 3_000_000
    assert isinstance(data.value, Elsewhere)
    assert authority.submit(ray_bodies.lock_if, False).result(LIMIT_S) is None
    assert "its result could not be pickled" in str(authority.submit(ray_bodies.lock_if, True).exception(LIMIT_S))


def test_coroutines_threads_and_the_cluster_in_one_graph_under_one_budget(head):
    """G4, S1: one run, one report."""
    with Authority(slots=4) as authority:
        start = authority.submit(lambda: 3)  # a thread
        heavy = [authority.submit(ray_bodies.square, start, engine="ray", id=f"heavy{i}") for i in range(3)]
        total = authority.submit(ray_bodies.plus, *heavy)  # a coroutine
        last = authority.submit(ray_bodies.square, total, engine="ray")
        shown = authority.submit(str, last)  # a thread again
        assert shown.result(LIMIT_S) == "729"
        kinds = {event.kind for event in authority.events()}
        assert "TASK_FINISHED" in kinds
        assert authority.stats()["by_outcome"]["success"] == 7
        assert "7" in str(authority.report())


def test_the_cards_of_a_node_are_picked_by_the_cluster_and_told_to_the_body(make, nodes):
    """N4: where the authority has no gpus of its own; `gpu` counts those of the cluster."""
    nodes.add(num_gpus=2)
    authority = make()
    until(lambda: any(gate.name == "gpu" and gate.limit == 2 for gate in authority.snapshot().budget), "the node")
    handles = [authority.submit(ray_bodies.devices, gpu=1) for _ in range(3)]
    told = results(handles)
    assert all(devices == {"gpu": [card]} and card in ("0", "1") for devices, card in told), told
    assert handles[0].devices == {}


def test_never_more_than_the_slots_are_with_the_cluster_and_in_order(make, monkeypatch):
    """S1, P2: the engine sends what the kernel has permitted, and nothing ahead of it."""
    from whywait.engines.ray.packing import Packer

    authority = make(slots=1)
    send, peaks = Packer.send, []

    def count_and_send(*args):
        peaks.append(len(authority._core.engines.default._tasks))
        send(*args)

    monkeypatch.setattr(Packer, "send", count_and_send)
    handles = [authority.submit(ray_bodies.nothing, i) for i in range(100)]
    assert results(handles) == list(range(100))
    assert peaks == [1] * 100
    numbers = [event.number for event in authority.events() if event.kind == "TASK_STARTED"]
    assert numbers == sorted(numbers)
    assert not authority._core.engines.default._tasks


def test_a_stream_opens_while_its_task_runs_and_nothing_of_it_is_lost(make):
    """W3: also if the body ends before its first message has come."""
    authority = make(slots=1)
    handles = [authority.submit(ray_bodies.tell, i) for i in range(30)]
    streams = [handle.stream() for handle in handles]
    assert results(handles) == list(range(30))
    assert [list(stream) for stream in streams] == [[i] for i in range(30)]
    story = [(event.number, event.kind) for event in authority.events()]
    for handle in handles:
        steps = [kind for number, kind in story if number == handle.ref.number]
        assert steps.index("TASK_STARTED") < steps.index("STREAM_OPENED") < steps.index("TASK_FINISHED")


def test_an_argument_that_cannot_be_unpickled_fails_alone(make):
    """T2: others of the same function are not harmed."""
    authority = make(slots=50)
    calls = [Call(ray_bodies.nothing, (ray_bodies.Explosive() if i == 7 else [i],)) for i in range(20)]
    errors = [handle.exception(LIMIT_S) for handle in authority.submit_many(calls)]
    assert [i for i, error in enumerate(errors) if error is not None] == [7]
    assert "unpickled on a node" in str(errors[7])


def test_a_cancel_makes_no_task_run_twice(make, tmp_path):
    """T2, X3: each body runs at most once; a task that is not cancelled succeeds."""
    authority = make(slots=60)
    for turn in range(3):
        handles = [authority.submit(ray_bodies.mark, str(tmp_path / f"{turn}-{i}")) for i in range(100)]
        for handle in handles[turn::10]:
            handle.cancel()
        until(lambda handles=handles: all(handle.done() for handle in handles))
        kept = [handle for i, handle in enumerate(handles) if i % 10 != turn]
        assert {handle.outcome for handle in kept} == {"success"}
    assert {file.read_text() for file in tmp_path.iterdir()} == {"x"}


def test_tasks_are_not_held_up_by_those_that_have_no_place(make):
    """S1: what is permitted and can be placed starts, whatever else waits for Ray."""
    authority = make(slots=100, resources={"spot": 50})
    stuck = [authority.submit(ray_bodies.nothing, i, resources={"spot": 1}) for i in range(20)]
    assert results([authority.submit(ray_bodies.nothing, i) for i in range(20)]) == list(range(20))
    for handle in stuck:
        handle.cancel()
    until(lambda: all(handle.done() for handle in stuck))


def test_a_local_instance_lives_as_long_as_its_authority(tmp_path):
    """O5, T5: nothing of it is left; results that are held are here, the small ones first, up to a total."""
    program = """
        import os, time, sys
        from whywait import Authority, TaskFailed
        from whywait.engines.ray import results
        from whywait.engines.ray.engine import RayEngine

        if __name__ == "__main__":
            results._BROUGHT_HOME = 2_500_000
            with Authority(engine=RayEngine(num_cpus=1, object_store_memory=80 * 2**20)) as authority:
                handles = [authority.submit(bytes, size * 1_000_000) for size in (4, 1, 1)]
            import ray
            assert not ray.is_initialized()
            print([len(handle.result()) for handle in handles[1:]])
            try:
                handles[0].result()
            except TaskFailed as error:
                print(error)
    """
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    file = tmp_path / "program.py"
    file.write_text(textwrap.dedent(program), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(file)], capture_output=True, text=True, timeout=100, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr
    assert "1 results (4.0 MB) end with the cluster" in done.stderr
    brought, told = done.stdout.splitlines()
    assert brought == "[1000000, 1000000]"
    assert "only 2.5 MB of results are brought here unasked" in told
    assert "Call result() before the authority ends" in told


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("ray://127.0.0.1:10001", "not a Ray client"),
        ("127.0.0.1:1", "nothing answers there"),
        ("127.0.0.1:99999", "nothing answers there"),
    ],
)
def test_an_address_that_cannot_be_used_is_refused(address, message):
    """E1: at once, with what is wrong and what to do."""
    with pytest.raises(ConfigError, match=f"address '{address}'.*{message}"):
        _connect(address, {})


def test_an_address_other_than_that_of_the_program_is_refused(make):
    """E1: Ray has one connection for each program."""
    make()
    with pytest.raises(ConfigError, match="allows one at a time"):
        Authority(engine=RayEngine("127.0.0.1:1"))


def test_a_workflow_runs_on_the_cluster(head, tmp_path):
    """T3: `whywait run --engine ray`: functions there, commands here."""
    Path(tmp_path, "steps.py").write_text("import os\ndef step(x=1):\n    print('pid', os.getpid())\n    return x\n")
    Path(tmp_path, "flow.toml").write_text(
        '[task.a]\ncall = "steps:step"\n[task.b]\nrun = "echo hello"\nafter = ["a"]\n', encoding="utf-8"
    )
    environment = {**os.environ, "RAY_ADDRESS": head.address}
    command = [sys.executable, "-m", "whywait", "run", "flow.toml", "--engine", "ray", "--json", "--events", "e.jsonl"]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr + done.stdout
    assert json.loads(done.stdout)["exit_code"] == 0
    assert "LIMIT_CHANGED" in Path(tmp_path, "e.jsonl").read_text(encoding="utf-8")


def test_a_pause_and_an_abort_reach_the_body_quickly(make, tmp_path):
    """X1, X3: through the switchboard; neither waits for a poll."""
    authority = make()
    handle = authority.submit(ray_bodies.pid_and_wait, str(tmp_path / "a"))
    until(lambda: (found := handle.why().placement) and found.node, "it is placed")
    assert "ray runs it on" in str(handle.why())
    began = time.monotonic()
    handle.cancel()
    until(handle.done)
    assert handle.outcome == "aborted"
    assert time.monotonic() - began < LIMIT_S / 2


def test_devtools_tell_where_a_task_runs_and_what_one_without_a_place_lacks(make, tmp_path):
    """V6: node, machine and process of the one, and the shortage of the other."""
    authority = make(cpu=64, slots=64)
    tools = authority.devtools(announce=False)
    path = tmp_path / "a"
    authority.submit(ray_bodies.pid_and_wait, str(path), id="runs")
    authority.submit(ray_bodies.nothing, cpu=60, id="waits")
    place = until(lambda: get(tools, "/api/tasks/runs")["task"]["place"], "it is placed")
    assert (place["engine"], str(place["pid"])) == ("ray", path.read_text())
    assert authority.why("runs").placement.node == f"{place['machine']} ({place['node']})"
    lacks = until(lambda: get(tools, "/api/tasks/waits")["why"]["placement"], "it waits for a place")
    assert [(row["name"], row["need"], row["largest"]) for row in lacks["missing"]] == [("cpu", 60, 2)]


def test_a_full_object_store_is_told_as_such(make, monkeypatch):
    """T2: nothing is wrong with the task or its arguments, and it says what would help."""
    from ray.exceptions import ObjectStoreFullError, OutOfDiskError, RayTaskError

    from whywait.engines.ray.packing import Packer
    from whywait.engines.ray.results import full_store

    def refuse(*_):
        raise ObjectStoreFullError("there is no room")

    authority = make()
    with monkeypatch.context() as patch:
        patch.setattr(Packer, "send", refuse)
        error = authority.submit(ray_bodies.nothing, 1).exception(LIMIT_S)
    assert isinstance(error, TaskFailed)
    assert "the object store of the cluster is full: hold fewer large results at once" in str(error)
    assert "pickled" not in str(error)
    assert authority.submit(ray_bodies.nothing, 2).result(LIMIT_S) == 2
    on_the_cluster = RayTaskError("carry_out", "", ObjectStoreFullError("there is no room"))
    assert "object_store_memory" in full_store(on_the_cluster)
    assert "the disk, to which its object store spills, of the cluster is full" in full_store(OutOfDiskError("no"))
    assert full_store(ValueError("another")) is None


def test_what_cannot_be_pickled_is_refused_as_the_tasks_error(make):
    """T2: the task fails with what is wrong; others go on."""
    authority = make()
    handle = authority.submit(ray_bodies.nothing, sys._getframe())
    assert isinstance(handle.exception(LIMIT_S), TaskFailed)
    assert "could not be pickled" in str(handle.exception())
    assert authority.submit(ray_bodies.nothing, 2).result(LIMIT_S) == 2
