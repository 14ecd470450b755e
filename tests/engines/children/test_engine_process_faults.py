"""The process engine: workers that die, bodies that listen or do not, forks, and the parent's end."""

import os
import signal
import sys
import threading
import uuid
from contextlib import suppress
from pathlib import Path

import pytest

import process_bodies as bodies
from patience import PATIENCE_S, until
from process_bodies import is_alive, is_free, marked, read, run_script
from whywait import TaskAborted, TaskFailed

OPTIONS = {"engine": "process", "slots": 1, "grace": 0.1}


def pid_in(path):
    return int(until(lambda: read(path), "the body's start"))


# A worker dies


@pytest.mark.parametrize(("how", "says"), [("SIGKILL", "SIGKILL"), ("SIGSEGV", "SIGSEGV"), ("os._exit", "exit code 3")])
def test_worker_dies_while_running(make, tmp_path, how, says):
    """T2, T4: ERROR/worker_lost for the task it ran; slot and budget come back; the other body runs on."""
    authority = make(slots=2, cpu=2)
    other = authority.submit(bodies.stepping, str(tmp_path / "other"), str(tmp_path / "end"), cpu=1)
    pid_in(tmp_path / "other")
    lost = authority.submit(bodies.die, how, cpu=1)
    with pytest.raises(TaskFailed, match=says):
        lost.result(PATIENCE_S)
    assert (lost.outcome, lost.cause) == ("error", "worker_lost")
    assert authority.submit(bodies.add, 2, 2, cpu=1).result(PATIENCE_S) == 4
    assert not other.done()
    (tmp_path / "end").touch()
    assert other.result(PATIENCE_S) > 0


def test_worker_loss_can_be_retried(make, tmp_path):
    """T7: a lost worker is an ERROR like another: it is retried, on a new worker."""
    path = tmp_path / "tries"
    authority = make()

    def die_once():
        with path.open("a", encoding="utf-8") as file:
            file.write("x")
        if path.stat().st_size == 1:
            os._exit(9)
        return "survived"

    assert authority.submit(die_once, retry=1).result(PATIENCE_S) == "survived"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_worker_dies_while_idle(make, number):
    """T4: a worker that dies between tasks is nobody's error; the next task gets another one."""
    authority = make()
    first = authority.submit(bodies.pid).result(PATIENCE_S)
    os.kill(first, number)
    until(lambda: not is_alive(first), "the worker's end")
    assert authority.submit(bodies.pid).result(PATIENCE_S) != first


def test_worker_dies_while_receiving(make):
    """T2: a worker that dies with half of the task received is a lost worker."""
    authority = make()
    first = authority.submit(bodies.pid).result(PATIENCE_S)
    os.kill(first, signal.SIGSTOP)
    handle = authority.submit(bodies.echo, bytes(8 << 20))
    until(lambda: handle.state == "RUNNING")
    with pytest.raises(TimeoutError):
        handle.result(0.2)  # it hangs in the middle: the pipe is full
    os.kill(first, signal.SIGKILL)
    with pytest.raises(TaskFailed, match="SIGKILL"):
        handle.result(PATIENCE_S)
    assert handle.cause == "worker_lost"
    assert is_free(authority)


def test_worker_dies_while_unpickling_and_while_answering(make):
    """T2: killed by its own arguments, or with half of the answer sent: a lost worker; one answering nonsense too."""
    authority = make()
    for fn, args in (
        (bodies.echo, (bodies.Killer(),)),
        (bodies.die_while_answering, ()),
        (bodies.answer_nonsense, ()),
    ):
        handle = authority.submit(fn, *args)
        with pytest.raises(TaskFailed, match="was lost"):
            handle.result(PATIENCE_S)
        assert handle.cause == "worker_lost"
        assert is_free(authority)


def test_workers_killed_at_random(make):
    """T2, T4: whenever workers die, each task ends once, with its result or as lost, and the slots come back."""
    authority = make(slots=3)
    pids = set()
    handles = [authority.submit(bodies.pid) for _ in range(600)]
    ended = []
    for handle in handles:
        handle.add_done_callback(ended.append)
    for number, handle in enumerate(handles):
        error = handle.exception(PATIENCE_S)
        if error is None:
            pids.add(handle.result())
        else:
            assert (type(error), handle.cause) == (TaskFailed, "worker_lost")
        if number in {100, 250, 400}:
            for pid in filter(_is_worker, pids):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            until(lambda: not any(map(_is_worker, pids)), "the end of those that were killed")
            pids.clear()
    until(lambda: len(ended) >= len(handles), "the callback of the last one, which comes after its result")
    assert sorted(map(id, ended)) == sorted(map(id, handles))
    assert is_free(authority)


# Signals


def test_cancel_ends_a_coroutine(make, tmp_path):
    """X3: a coroutine function runs in the worker; an abort cancels it where it waits."""
    authority = make(grace=60)
    handle = authority.submit(bodies.sleeping_async, str(tmp_path / "body"))
    pid = pid_in(tmp_path / "body")
    handle.cancel()
    with pytest.raises(TaskAborted):
        handle.result(PATIENCE_S)
    assert authority.submit(bodies.pid).result(PATIENCE_S) == pid


def test_deaf_body_is_killed_and_the_worker_replaced(make, tmp_path):
    """X3, T4: a body that ignores the signal is killed after ``grace``; only then the slot comes back."""
    authority = make()
    handle = authority.submit(bodies.deaf, str(tmp_path / "body"))
    waiting = authority.submit(bodies.pid)
    pid = pid_in(tmp_path / "body")
    handle.cancel()
    assert waiting.result(PATIENCE_S) != pid
    assert not is_alive(pid)
    assert handle.outcome == "aborted"


def test_kill_takes_what_the_body_started(make, tmp_path, no_orphans):
    """O5: a program that a killed body has started ends with it; so does a process that it forked."""
    authority = make(slots=2)
    helper = authority.submit(bodies.start_helper, str(tmp_path / "body"))
    forked = authority.submit(bodies.fork_and_wait, str(tmp_path / "fork"))
    worker = pid_in(tmp_path / "fork")
    started = pid_in(tmp_path / "body.helper")
    copies = until(lambda: [pid for pid in marked(no_orphans) if _parent(pid) == worker], "the fork")
    authority.get_scope("default").dispose()
    assert {helper.outcome, forked.outcome} == {"aborted"}
    until(lambda: not any(map(is_alive, [started, *copies])), "the end of all")


def test_pause_before_the_worker_is_up(make, tmp_path):
    """X1: a pause that comes while the worker still starts is not lost."""
    authority = make(pause_timeout=PATIENCE_S)
    handle = authority.submit(bodies.stepping, str(tmp_path / "body"), str(tmp_path / "end"))
    handle.pause()
    assert handle.state == "PAUSED"
    (tmp_path / "end").touch()
    handle.resume()
    assert handle.result(PATIENCE_S) < 100


def test_pause_of_a_coroutine(make, tmp_path):
    """X1: ``checkpoint_async`` parks a coroutine in a worker."""
    authority = make()
    handle = authority.submit(bodies.stepping_async, str(tmp_path / "body"), str(tmp_path / "end"))
    pid_in(tmp_path / "body")
    handle.pause()
    assert handle.state == "PAUSED"
    (tmp_path / "end").write_text("x", encoding="utf-8")
    handle.resume()
    assert handle.result(PATIENCE_S) == handle.ref


# Forks, the parent's end, and those who hold things up


def test_fork_in_a_body_does_not_confuse(make):
    """T4: a body that forks ends once; the copy that returns too is not heard."""
    authority = make()
    assert [authority.submit(bodies.fork_and_fall_through).result(PATIENCE_S) for _ in range(3)] == ["worker"] * 3
    assert is_free(authority)


def test_idle_workers_end_with_close(make):
    """O5: after the authority is disposed, its worker processes are gone."""
    authority = make(slots=3)
    pids = {authority.submit(bodies.pid).result(PATIENCE_S) for _ in range(20)}
    authority.dispose()
    assert not any(map(is_alive, pids))


PARENT = """if True:
    import os, sys, time
    from whywait import Authority
    def hold_lock(path):
        open(path, "w").write(str(os.getpid()))
        return 9 ** 9 ** 9      # never lets another thread run
    def sleep(path):
        open(path, "w").write(str(os.getpid()))
        time.sleep(1000)
    folder, forks = sys.argv[1], sys.argv[2] == "forks"
    a = Authority(engine="process", slots=3)
    a.submit(os.getpid).result()
    for name, fn in (("lock", hold_lock), ("sleep", sleep)):
        a.submit(fn, os.path.join(folder, name))
    while not all(os.path.exists(os.path.join(folder, name)) for name in ("lock", "sleep")):
        time.sleep(0.01)
    if forks and os.fork() == 0:
        time.sleep(1000)        # a copy of the parent that lives on
    open(os.path.join(folder, "ready"), "w").write("x")
    time.sleep(1000)
"""


@pytest.mark.parametrize("forks", ["alone", "forks"])
def test_workers_die_with_the_parent(tmp_path, forks):
    """O5: when the program is killed by SIGKILL, all its workers end, whatever their bodies do.

    So they do when a fork of the program lives on.
    """
    mark = f"whywait-parent-{uuid.uuid4()}"
    parent = run_script(PARENT, tmp_path, forks, env={**os.environ, "MARK": mark})
    try:
        until(lambda: read(tmp_path / "ready"), "the program")
        pids = [pid_in(tmp_path / name) for name in ("lock", "sleep")]
        copies = [
            pid
            for pid in marked(mark)
            if _parent(pid) == parent.pid and b"whywait.trees.tree_guard" not in _command_line(pid)
        ]
        assert len(copies) == (forks == "forks")
        assert all(map(is_alive, pids))
        parent.kill()
        parent.wait()
        until(lambda: set(marked(mark)) <= set(copies), "the end of the workers")
    finally:
        parent.kill()
        for pid in marked(mark):
            os.kill(pid, signal.SIGKILL)
        parent.wait()


SLOW_START = """
import os, sys, time
if "whywait.engines.process.child" in " ".join(sys.orig_argv):
    with open(os.environ["PID_FILE"], "w") as file:
        file.write(f"{os.getpid()} ")
    time.sleep(1000)
"""
IMPATIENT_PARENT = """
import time
from whywait import Authority
handle = Authority(slots=1, engine="process").submit(int)
time.sleep(1000)
"""


def test_a_worker_that_still_starts_dies_with_the_parent(tmp_path):
    """O5: also if it has not come to a single line of ours when the program is killed."""
    (tmp_path / "sitecustomize.py").write_text(SLOW_START, encoding="utf-8")
    pid_file = tmp_path / "pid"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path]), "PID_FILE": str(pid_file)}
    with run_script(IMPATIENT_PARENT, env=environment) as parent:
        try:
            worker = int(until(lambda: read(pid_file).endswith(" ") and read(pid_file), "the worker"))
            assert is_alive(worker)
        finally:
            parent.kill()
    until(lambda: not is_alive(worker), "the worker's end")


def test_callback_may_wait_for_another_task(make):
    """T5: a callback that waits for another task of the same engine does not stop the engine."""
    authority = make(slots=2)
    results = []
    done = threading.Event()

    def wait_for_another(_):
        results.append(authority.submit(bodies.add, 20, 22).result(PATIENCE_S))
        done.set()

    authority.submit(bodies.add, 1).add_done_callback(wait_for_another)
    assert done.wait(PATIENCE_S)
    assert results == [42]
    assert is_free(authority)


def test_slow_pickling_holds_up_nobody(make, tmp_path):
    """T4: while the arguments of one task take their time to be pickled, others start and end."""
    authority = make(slots=2)
    authority.submit(bodies.pid).result(PATIENCE_S)
    slow = authority.submit(bodies.echo, bodies.SlowToPickle(str(tmp_path / "go")))
    assert [authority.submit(bodies.add, i).result(PATIENCE_S) for i in range(50)] == [*range(50)]
    assert not slow.done()
    (tmp_path / "go").touch()
    assert slow.result(PATIENCE_S) == "slow"
    assert [authority.submit(bodies.add, i).result(PATIENCE_S) for i in range(50)] == [*range(50)]


def _parent(pid):
    return int((read(f"/proc/{pid}/stat") or ") X 0").rpartition(")")[2].split()[1])


def _command_line(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _is_worker(pid):
    return is_alive(pid) and _parent(pid) == os.getpid() and b"engines.process.child" in _command_line(pid)
