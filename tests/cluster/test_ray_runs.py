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
from cluster_tools import LIMIT_S, alive, until

from devtools_client import get
from whywait import Authority, Call, ConfigError, TaskFailed
from whywait.elsewhere import Elsewhere
from whywait.engines.ray import RayEngine
from whywait.engines.ray_batches import PROVEN
from whywait.engines.ray_cluster import _connect

pytestmark = [pytest.mark.ray, pytest.mark.timeout(120)]


def results(handles):
    """Return all results."""
    return [handle.result(LIMIT_S) for handle in handles]


def batches_of(engine):
    """Count how many tasks each shipment of an engine has."""
    sizes = []
    ship = engine._ship

    def counted(handles, ahead=()):
        sizes.append(len(handles) + len(ahead))
        ship(handles, ahead)

    engine._ship = counted
    return sizes


def test_results_stay_in_the_store_until_somebody_asks(make):
    """G4, T5: the next task on the cluster gets a reference; this process gets what it asks for."""
    authority = make()
    data = authority.submit(ray_bodies.large, 3_000_000)
    count = authority.submit(ray_bodies.length, data)
    assert count.result(LIMIT_S) == 3_000_000
    assert isinstance(data._value, Elsewhere)
    assert not data._value._is_here
    assert len(data.result()) == 3_000_000
    assert data._value._is_here


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
        assert authority.stats()["by_outcome"]["SUCCESS"] == 7
        assert "7" in str(authority.report())


def prove(authority, fn):
    """Run a function until the engine has seen that it is tiny."""
    batches = authority.engines.default._batches
    until(lambda: authority.submit(fn, 0).result(LIMIT_S) == 0 and batches._pace_of(fn)[0] >= PROVEN, "it is tiny")


def test_a_tiny_function_goes_in_batches_once_it_has_proven_itself(make):
    """P2, T2: in the order of permission, each with its own outcome; failures stay with whoever failed."""
    authority = make(slots=200)
    sizes = batches_of(authority.engines.default)
    prove(authority, ray_bodies.nothing)
    assert set(sizes) == {1}
    sizes.clear()
    assert results([authority.submit(ray_bodies.nothing, i) for i in range(400)]) == list(range(400))
    assert max(sizes) > 1
    assert sum(sizes) == 400


def test_who_is_next_in_line_goes_along_and_starts_when_its_turn_comes(make):
    """S1, P2: never more than the slots, in order; the slot passes on from one to the next."""
    authority = make(slots=1)
    sizes = batches_of(authority.engines.default)
    peaks = []
    authority.tap(lambda _: peaks.append(len(authority.kernel.running)))
    prove(authority, ray_bodies.nothing)
    handles = [authority.submit(ray_bodies.nothing, i) for i in range(300)]
    assert results(handles) == list(range(300))
    assert max(sizes) > 1
    assert max(peaks) == 1
    numbers = [event.number for event in authority.events() if event.kind == "TASK_STARTED"]
    assert numbers == sorted(numbers)
    assert not authority.engines.default._outposts
    assert not authority.engines.default._ahead


def test_who_went_along_and_is_cancelled_before_its_turn_is_cancelled(head, tmp_path):
    """D4: a pending task ends at once; those behind it are not harmed."""
    with Authority(engine=RayEngine(batch=True), slots=1) as authority:
        gate = authority.submit(ray_bodies.pid_and_wait, str(tmp_path / "a"))
        handles = [authority.submit(ray_bodies.sometimes, i) for i in range(40)]
        handles[6].cancel()
        gate.cancel()
        handles[8].cancel()
        outcomes = [handle.outcome if handle.exception(LIMIT_S) else "SUCCESS" for handle in handles]
    assert outcomes[6] == "ABORTED"
    assert outcomes[8] in ("ABORTED", "SUCCESS")
    expected = ["SUCCESS", "ERROR"] * 20
    assert [each for i, each in enumerate(outcomes) if i not in (6, 8)] == [
        each for i, each in enumerate(expected) if i not in (6, 8)
    ]


def test_a_batch_keeps_outcomes_apart(head):
    """T2: one that fails, or returns what cannot be pickled, fails alone."""
    with Authority(engine=RayEngine(batch=True), slots=100) as authority:
        sizes = batches_of(authority.engines.default)
        with authority.scope("s") as scope:
            handles = [scope.submit(ray_bodies.sometimes, i) for i in range(60)]
        outcomes = [handle.outcome for handle in handles]
        assert outcomes == ["SUCCESS", "ERROR"] * 30
        assert [type(handle.exception()) for handle in handles[1::2]] == [ValueError] * 30
        assert max(sizes) > 1


def test_who_went_along_is_heard_when_its_turn_comes(head):
    """W3: a stream opens only while its task runs, and nothing of it is lost."""
    with Authority(engine=RayEngine(batch=True), slots=1) as authority:
        sizes = batches_of(authority.engines.default)
        handles = [authority.submit(ray_bodies.tell, i) for i in range(30)]
        streams = [handle.stream() for handle in handles]
        assert results(handles) == list(range(30))
        assert [list(stream) for stream in streams] == [[i] for i in range(30)]
        assert max(sizes) > 1
        story = [(event.number, event.kind) for event in authority.events()]
        for handle in handles:
            steps = [kind for number, kind in story if number == handle.ref.number]
            assert steps.index("TASK_STARTED") < steps.index("STREAM_OPENED") < steps.index("TASK_FINISHED")


def test_who_is_cancelled_before_its_turn_does_not_run_on(head, tmp_path):
    """D4, O5: it has gone ahead and takes its time; when that is known, it is not wanted any more."""
    with Authority(engine=RayEngine(batch=True), slots=1) as authority:
        engine = authority.engines.default
        taken_back = engine._take_back
        pid = tmp_path / "pid"

        def late(shipment, payload):
            until(pid.exists)
            handles[1].cancel()
            taken_back(shipment, payload)

        engine._take_back = late
        handles = authority.submit_many(
            [
                Call(ray_bodies.deaf_if, (None,)),
                Call(ray_bodies.deaf_if, (str(pid),)),
                Call(ray_bodies.deaf_if, (None,)),
            ]
        )
        assert handles[0].result(LIMIT_S) is None
        assert handles[1].outcome == "ABORTED"
        assert handles[2].result(LIMIT_S) is None
        until(lambda: not alive(int(pid.read_text())), "its worker is gone")


def test_an_argument_that_cannot_be_unpickled_fails_alone(head):
    """T2: also in a batch."""
    with Authority(engine=RayEngine(batch=True), slots=50) as authority:
        sizes = batches_of(authority.engines.default)
        calls = [Call(ray_bodies.nothing, (ray_bodies.Explosive() if i == 7 else [i],)) for i in range(20)]
        handles = authority.submit_many(calls)
        errors = [handle.exception(LIMIT_S) for handle in handles]
        assert [i for i, error in enumerate(errors) if error is not None] == [7]
        assert "unpickled on a node" in str(errors[7])
        assert max(sizes) > 1


def test_who_is_cancelled_in_a_batch_does_not_make_others_run_twice(head, tmp_path):
    """T2, X3: each body runs at most once; who is not cancelled succeeds."""
    with Authority(engine=RayEngine(batch=True), slots=60) as authority:
        for turn in range(5):
            handles = [authority.submit(ray_bodies.mark, str(tmp_path / f"{turn}-{i}")) for i in range(100)]
            for handle in handles[turn::10]:
                handle.cancel()
            until(lambda handles=handles: all(handle.done() for handle in handles))
            kept = [handle for i, handle in enumerate(handles) if i % 10 != turn]
            assert {handle.outcome for handle in kept} == {"SUCCESS"}
    assert {file.read_text() for file in tmp_path.iterdir()} == {"x"}


def test_a_kill_spares_who_travels_along(head, tmp_path):
    """O5: tasks of two scopes are in one batch that Ray has not placed; one scope is disposed without grace."""
    with Authority(engine=RayEngine(batch=True), slots=60) as authority:
        busy = [authority.submit(ray_bodies.pid_and_wait, str(tmp_path / name)) for name in "ab"]  # all of the CPUs
        until(lambda: (tmp_path / "a").exists() and (tmp_path / "b").exists())
        one, two = authority.scope("one"), authority.scope("two")
        calls = [Call(ray_bodies.nothing, (i,)) for i in range(4)]
        doomed, others = one.submit_many(calls), two.submit_many(calls)
        one.dispose(grace=0)
        assert {handle.outcome for handle in doomed} == {"ABORTED"}
        for handle in busy:
            handle.cancel()
        assert results(others) == [0, 1, 2, 3]


def test_tiny_tasks_are_not_held_up_by_those_that_have_no_place(make):
    """S1: what is permitted and can be placed starts, whatever else waits for Ray."""
    authority = make(slots=100, resources={"spot": 50})
    prove(authority, ray_bodies.nothing)
    stuck = [authority.submit(ray_bodies.nothing, i, resources={"spot": 1}) for i in range(20)]
    assert results([authority.submit(ray_bodies.nothing, i) for i in range(20)]) == list(range(20))
    for handle in stuck:
        handle.cancel()
    until(lambda: all(handle.done() for handle in stuck))


def test_who_is_urgent_overtakes_a_queue_of_tiny_tasks(make):
    """P2: what has gone ahead starts by turn like everybody."""
    authority = make(slots=1)
    prove(authority, ray_bodies.nothing)
    handles = [authority.submit(ray_bodies.nothing, i) for i in range(300)]
    urgent = authority.submit(ray_bodies.nothing, -1, priority="critical")
    results([*handles, urgent])
    seen = [(event.kind, event.number) for event in authority.events()]
    submitted = seen.index(("TASK_SUBMITTED", urgent.ref.number))
    started = seen.index(("TASK_STARTED", urgent.ref.number))
    between = [number for kind, number in seen[submitted:started] if kind == "TASK_STARTED"]
    assert len(between) <= 2  # who had the slot, and an heir whose body still ran in it


def test_who_waits_in_a_batch_behind_somebody_slow_is_sent_elsewhere(head, tmp_path):
    """S1: tasks that are all permitted may wait for each other, batch or not."""
    with Authority(engine=RayEngine(batch=True), slots=100) as authority:
        engine = authority.engines.default
        sizes = batches_of(engine)
        engine._batches.take = lambda inbox: [inbox.popleft() for _ in range(len(inbox))]
        pair = ("a", "b"), ("b", "a")
        calls = [Call(ray_bodies.meet, (str(tmp_path), *names)) for names in pair]
        assert results(authority.submit_many(calls)) == ["a", "b"]
        assert sizes[:2] == [2, 1]


def test_a_local_instance_lives_as_long_as_its_authority(tmp_path):
    """O5: nothing of it is left, and the results that somebody holds are here."""
    program = """
        import os, time, sys
        from whywait import Authority
        from whywait.engines.ray import RayEngine

        if __name__ == "__main__":
            with Authority(engine=RayEngine(num_cpus=1, object_store_memory=80 * 2**20)) as authority:
                handle = authority.submit(bytes, 1_000_000)
            import ray
            assert not ray.is_initialized()
            print(len(handle.result()))
    """
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    file = tmp_path / "program.py"
    file.write_text(textwrap.dedent(program), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(file)], capture_output=True, text=True, timeout=100, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["1000000"]


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("ray://127.0.0.1:10001", "not a Ray client"),
        ("127.0.0.1:1", "nobody answers there"),
        ("127.0.0.1:99999", "nobody answers there"),
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
    assert handle.outcome == "ABORTED"
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


def test_what_cannot_be_pickled_is_refused_as_the_tasks_error(make):
    """T2: the task fails with what is wrong; others go on."""
    authority = make()
    handle = authority.submit(ray_bodies.nothing, sys._getframe())
    assert isinstance(handle.exception(LIMIT_S), TaskFailed)
    assert "could not be pickled" in str(handle.exception())
    assert authority.submit(ray_bodies.nothing, 2).result(LIMIT_S) == 2
