"""The process engine where the system is short of processes, threads or file descriptors: tasks wait for a process."""

import errno
import os
import shutil
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest

import process_bodies as bodies
from patience import PATIENCE_S, until
from process_bodies import is_free
from whywait import TaskAborted, TaskFailed
from whywait.engines.process.crew import Crew
from whywait.trees.tree import ProcessTree

OPTIONS = {"engine": "process", "slots": 1, "grace": 0.1}


FEW_FILES = """if True:
    import resource, time
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    from whywait import Authority
    def work(number):
        time.sleep(0.02)
        return number
    with Authority(engine="process", slots=40) as authority:
        handles = [authority.submit(work, number) for number in range(120)]
        waiting = 0
        while not all(handle.done() for handle in handles):
            waiting += any("waits for a process that is free" in str(handle.why()) for handle in handles[:40])
        assert [handle.result() for handle in handles] == list(range(120))
        print(waiting > 0)
"""


def test_with_few_file_descriptors_tasks_wait_for_a_process():
    """T4: the system gives no more processes, and all tasks are done by those that there are; the reason says so."""
    program = [sys.executable, "-c", FEW_FILES]
    done = subprocess.run(program, check=False, capture_output=True, text=True, timeout=PATIENCE_S)
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr


FEW_PROCESSES = """if True:
    import os, resource, time
    resource.setrlimit(resource.RLIMIT_NPROC, (int(os.environ["THERE"]) + 25,) * 2)
    from whywait import Authority
    def work(number, _):
        time.sleep(0.02)
        return number
    with Authority(engine="process", slots=4) as authority:
        handles = [authority.submit(work, number, bytes(200_000 * (number % 2))) for number in range(120)]
        assert [handle.result() for handle in handles] == list(range(120))
        print(True)
"""
USER = 54_321  # one that has no process
AS_USER = [
    "setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "--inh-caps=-all,+dac_override",
    "--ambient-caps=-all,+dac_override", "--bounding-set=-all,+dac_override",
]  # fmt: skip


def _threads_of_this_user():
    found = 0
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdecimal() and entry.stat().st_uid == os.getuid():
                found += len(list(entry.joinpath("task").iterdir()))
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="other systems count processes in other ways")
def test_with_25_processes_and_threads_tasks_wait_for_a_process():
    """T4: processes that the system starts, and then gives no thread, cost their tasks nothing either."""
    program, there = [sys.executable, "-c", FEW_PROCESSES], 0
    if os.getuid():
        there = _threads_of_this_user()
    elif shutil.which("setpriv") is None:
        pytest.skip("setpriv, which runs a program as a user who has a limit, is not installed")
    else:
        program = [*AS_USER, *program]
    env = {**os.environ, "THERE": str(there), "WHYWAIT_CGROUPS": "off"}
    done = subprocess.run(program, check=False, capture_output=True, text=True, timeout=PATIENCE_S, env=env)
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr


NO_THREAD = """if True:
    import threading
    def refuse(_):
        raise RuntimeError("can't start new thread")
    threading.Thread.start = refuse
"""


@pytest.fixture
def without_threads(monkeypatch):
    """Let the system give all processes but the first two no thread."""
    made = []

    def tree(argv, **options):
        made.append(argv)
        *before, program = argv
        return ProcessTree(argv if len(made) <= 2 else [*before, f"{NO_THREAD}    {program}"], **options)

    monkeypatch.setattr("whywait.engines.process.process.ProcessTree", tree)
    return made


@pytest.mark.parametrize("size", [0, 1_000_000])
def test_a_process_that_gets_no_thread_leaves_its_task_to_another(make, tmp_path, without_threads, size):
    """T4: whatever the task's size; none is started in its place as long as nothing has changed."""

    def wait_with(path, _):
        bodies.wait_for_file(path)

    authority = make(slots=6)
    gates = [tmp_path / f"gate{number}" for number in range(6)]
    handles = [authority.submit(wait_with, str(gate), bytes(size)) for gate in gates]
    until(lambda: sum("can't start new thread" in str(handle.why()) for handle in handles) == 4, "four that wait")
    assert len(without_threads) == 6
    for gate in gates:
        gate.touch()
    for handle in handles:
        handle.result(PATIENCE_S)
    assert is_free(authority)


def test_a_shortage_that_is_soon_over_is_waited_out_without_any_process(make, monkeypatch):
    """T4: processes that have just ended may still be counted; the reason says what the system said."""
    is_short = threading.Event()
    is_short.set()

    def tree(argv, **options):
        if is_short.is_set():
            raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
        return ProcessTree(argv, **options)

    monkeypatch.setattr("whywait.engines.process.process.ProcessTree", tree)
    monkeypatch.setattr("whywait.engines.shortage.ALONE_S", PATIENCE_S)
    authority = make(slots=3)
    handles = [authority.submit(bodies.add, 1, number) for number in range(5)]
    said = "Resource temporarily unavailable"
    until(lambda: sum(said in str(handle.why()) for handle in handles) == 3, "three that wait")
    is_short.clear()
    assert [handle.result(PATIENCE_S) for handle in handles] == [1, 2, 3, 4, 5]
    assert is_free(authority)


def test_without_any_process_that_gets_a_thread_a_task_fails(make, without_threads):
    """T2, T4: with what the system said."""
    without_threads += [[], []]
    with pytest.raises(TaskFailed, match=r"no worker process could be started: .*can't start new thread"):
        make().submit(bodies.add, 1, 1).result(PATIENCE_S)


@pytest.fixture
def three_processes(monkeypatch):
    """Let the system give three processes at a time and no more."""
    start, one_at_a_time = Crew.start, threading.Lock()

    def start_one(crew, devices):
        with one_at_a_time:
            if len(crew.processes) >= 3:
                raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
            return start(crew, devices)

    monkeypatch.setattr(Crew, "start", start_one)


@pytest.mark.usefixtures("three_processes")
def test_with_few_processes_tasks_wait_for_one_in_order(make, tmp_path):
    """T4, V1: those that wait come before those that start later, and can be cancelled meanwhile."""
    authority = make(slots=6)
    gates = [tmp_path / f"gate{number}" for number in range(6)]
    handles = [authority.submit(bodies.wait_for_file, str(gate)) for gate in gates]
    until(lambda: sum(str(handle.why()).count("no more of them") for handle in handles) == 3, "three that wait")
    waiting = [handle for handle in handles if "waits for a process that is free" in str(handle.why())]
    assert all(handle.state == "RUNNING" for handle in handles)
    assert "the system gives no more of them: Resource temporarily unavailable" in str(waiting[0].why())
    waiting[1].cancel()
    assert isinstance(waiting[1].exception(PATIENCE_S), TaskAborted)
    for gate in gates:
        gate.touch()
    for handle in handles:
        if handle is not waiting[1]:
            handle.result(PATIENCE_S)
    assert is_free(authority)


@pytest.mark.usefixtures("three_processes")
def test_a_process_that_is_lost_makes_room_for_a_task_that_waits(make, tmp_path):
    """T4: whatever way a process becomes free or ends."""
    authority = make(slots=4)
    victims = [authority.submit(bodies.wait_for_file, str(tmp_path / "never")) for _ in range(3)]
    last = authority.submit(bodies.pid)
    until(lambda: "waits for a process" in str(last.why()) or last.done(), "that it waits")
    victims[0].cancel()
    assert last.result(PATIENCE_S) > 0
    for victim in victims:
        victim.cancel()
