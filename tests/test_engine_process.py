"""The process engine: what travels, signals, and everything that can happen to a process."""

import os
import signal
import sys
import threading
import uuid
from contextlib import suppress
from pathlib import Path

import pytest

import process_bodies as bodies
from process_bodies import is_alive, marked, read, run_script, until
from whywait import (
    Authority,
    ConfigError,
    PauseTimeout,
    Retry,
    TaskAborted,
    TaskFailed,
    TaskTimeout,
)
from whywait.engines import pickling
from whywait.engines.process import RemoteTraceback

MARK = f"whywait-test-{uuid.uuid4()}"
WAIT_S = 30.0


@pytest.fixture(scope="module", autouse=True)
def no_orphans():
    """O5: whatever the tests of this file did, no worker process is left after them."""
    os.environ["WHYWAIT_TEST_MARK"] = MARK
    yield
    del os.environ["WHYWAIT_TEST_MARK"]
    until(lambda: not [pid for pid in marked(MARK) if pid != os.getpid()], "the end of all workers")


@pytest.fixture
def make():
    made = []

    def make_authority(**options):
        made.append(Authority(**{"engine": "process", "slots": 1, "grace": 0.1, **options}))
        return made[-1]

    yield make_authority
    for authority in made:
        authority.dispose()


@pytest.fixture(scope="module")
def shared():
    """One authority for the tests that leave it as it was."""
    with Authority(engine="process", slots=2, grace=0.1) as authority:
        yield authority


def pid_in(path):
    return int(until(lambda: read(path), "the body's start"))


def is_free(authority):
    return authority.submit(bodies.add, 1, 1).result(WAIT_S) == 2 and authority.stats()["active"] <= 1


# What travels


def test_function_runs_in_another_process(shared):
    """T4: the body runs, in a process that is not this one."""
    assert shared.submit(bodies.add, 1, kwargs={"b": 2}).result(WAIT_S) == 3
    assert shared.submit(bodies.pid).result(WAIT_S) != os.getpid()
    assert shared.submit(bodies.echo, None).result(WAIT_S) is None


def test_closures_and_lambdas_travel_as_they_are_now(shared):
    """T4: a function by value is sent with what it reads at that moment, never with what it read before."""
    counts = [0]

    def read_closure():
        counts.append(1)
        return len(counts)

    assert shared.submit(read_closure).result(WAIT_S) == 2
    counts.append(0)
    assert shared.submit(read_closure).result(WAIT_S) == 3
    assert shared.submit(lambda x: x * 2, 21).result(WAIT_S) == 42


def test_functions_of_main_see_the_globals_of_the_moment():
    """T4: what stands in __main__ runs without running __main__ again, with its globals as they are at each start."""
    program = """if True:
        import os, sys
        from whywait import Authority
        print("top")
        factor, seen = 2, []
        class Point:
            def __init__(self, x): self.x = x
        class Oops(Exception): pass
        def scale(x): return x * factor
        def count():
            global counter
            counter += 1
            return counter
        counter = 0
        def remember(): seen.append(1); return len(seen)
        def move(p): return Point(p.x + 1)
        def oops(): raise Oops("mine")
        with Authority(engine="process", slots=1) as a:
            print(a.submit(scale, 5).result(), a.submit(scale, 6).result())
            factor = 3
            print(a.submit(scale, 5).result())
            print(a.submit(count).result(), a.submit(count).result())
            print(a.submit(remember).result(), a.submit(remember).result())
            print(isinstance(a.submit(move, Point(1)).result(), Point), a.submit(move, Point(1)).result().x)
            try: a.submit(oops).result()
            except Oops as error: print(error)
    """
    process = run_script(program, stdout=-1, text=True)
    out, _ = process.communicate(timeout=WAIT_S)
    assert out.splitlines() == ["top", "10 12", "15", "1 1", "1 1", "True 2", "mine"]


def test_a_worker_keeps_only_functions_that_cannot_change():
    """T4: a function is sent once only if sending it anew could not make a difference."""
    functions = pickling.Functions()
    number, data = functions.pack(bodies.add)
    assert number
    assert functions.pack(bodies.add) == (number, data)
    space = {"__name__": "__main__", "k": 1, "items": []}
    exec("def reads(): return k\ndef holds(): return items\ndef calls(): return reads()", space)
    first = functions.pack(space["reads"])[0]
    assert first
    assert functions.pack(space["reads"])[0] == first
    by_call = functions.pack(space["calls"])[0]
    space["k"] = 2
    assert functions.pack(space["reads"])[0] not in {0, first}
    assert functions.pack(space["calls"])[0] not in {0, by_call}
    assert functions.pack(space["holds"])[0] == 0
    assert functions.pack(lambda: first)[0] == 0
    assert functions.pack([].append)[0] == 0


def test_more_functions_than_a_worker_keeps(shared):
    """T4: a worker that keeps as many functions as it may forgets them and goes on."""
    made = [eval(f"lambda: {i}") for i in range(pickling.KEPT_AT_MOST + 20)]
    handles = [shared.submit(fn) for fn in made + made[:5]]
    assert [handle.result(WAIT_S) for handle in handles] == [*range(len(made)), *range(5)]


def test_handles_as_arguments(shared):
    """G4: a handle among the arguments is replaced by its result before the call travels."""
    one = shared.submit(bodies.add, 1)
    assert shared.submit(bodies.add, one, kwargs={"b": one}).result(WAIT_S) == 2


def test_payloads_larger_than_a_pipe(shared):
    """T4: tens of megabytes travel both ways."""
    data = os.urandom(1 << 20) * 24
    assert shared.submit(bodies.echo, data).result(WAIT_S) == data


def test_sys_path_follows_and_directory_is_the_same(shared, tmp_path):
    """T4: a module that became importable here after the worker started is importable there too."""
    assert shared.submit(os.getcwd).result(WAIT_S) == str(Path.cwd())
    name = f"late_{uuid.uuid4().hex}"
    (tmp_path / f"{name}.py").write_text("def where(): return __name__\n", encoding="utf-8")
    sys.path.append(str(tmp_path))
    try:
        assert shared.submit(__import__(name).where).result(WAIT_S) == name
    finally:
        sys.path.remove(str(tmp_path))


def test_output_comes_out_before_the_result():
    """T5: what a body printed is there when its result is."""
    program = """if True:
        from whywait import Authority
        with Authority(engine="process", slots=1) as a:
            a.submit(print, "from the worker").result()
            print("from here", flush=True)
    """
    out, _ = run_script(program, stdout=-1, text=True).communicate(timeout=WAIT_S)
    assert out.splitlines() == ["from the worker", "from here"]


def test_missing_cloudpickle_names_the_extra(monkeypatch):
    """T3: an engine that cannot work says so, and what to install, before anything is submitted."""
    monkeypatch.setattr(pickling, "cloudpickle", None)
    with pytest.raises(ConfigError, match=r"pip install 'whywait\[process\]'"):
        Authority(engine="process")


# Errors


def test_exceptions_arrive_as_themselves(shared):
    """T2: ERROR/exception; the body's own exception with its attributes, caused by the traceback of the worker."""
    handle = shared.submit(bodies.fail, "custom")
    with pytest.raises(bodies.CustomError) as caught:
        handle.result(WAIT_S)
    assert caught.value.code == 7
    assert isinstance(caught.value.__cause__, RemoteTraceback)
    assert "raise CustomError" in str(caught.value.__cause__)
    assert (handle.outcome, handle.cause) == ("ERROR", "exception")


@pytest.mark.parametrize("kind", ["unpicklable", "one way"])
def test_exceptions_that_do_not_travel_are_told(shared, kind):
    """T2: an exception that cannot be pickled, or not be unpickled, becomes a TaskFailed that tells of it."""
    with pytest.raises(TaskFailed, match=r"UnpicklableError|OneWayError") as caught:
        shared.submit(bodies.fail, kind).result(WAIT_S)
    assert "Traceback" in str(caught.value.__cause__)
    assert is_free(shared)


def test_retry_by_exception_type(shared, tmp_path):
    """T7: the exception has its own type here, so retries by type work."""
    retry = Retry(3, on=(ConnectionError,))
    assert shared.submit(bodies.fail_until, str(tmp_path / "tries"), 2, retry=retry).result(WAIT_S) == 3
    handle = shared.submit(bodies.fail, "value", retry=retry)
    with pytest.raises(ValueError):
        handle.result(WAIT_S)
    assert len(handle.attempts) == 1


@pytest.mark.parametrize(
    ("fn", "args", "says"),
    [
        (bodies.echo, lambda: (bodies.NoPickle(),), "could not be pickled"),
        (bodies.echo, lambda: (threading.Lock(),), "could not be pickled"),
        (bodies.echo, lambda: (bodies.Bomb(os.getpid(), "elsewhere"),), "arguments could not be unpickled"),
        (bodies.make, lambda: ("no pickle",), "result could not be pickled"),
        (bodies.make, lambda: ("lock",), "result could not be pickled"),
        (bodies.make, lambda: ("bomb", os.getpid(), "here"), "result could not be unpickled"),
    ],
)
def test_what_cannot_travel_fails_its_task_only(shared, fn, args, says):
    """T2: pickling that fails, on either side and either way, is one TaskFailed; the worker and the rest go on."""
    before = shared.submit(bodies.pid)
    handle = shared.submit(fn, *args())
    after = shared.submit(bodies.add, 1, 1)
    with pytest.raises(TaskFailed, match=says) as caught:
        handle.result(WAIT_S)
    assert caught.value.__cause__ is not None
    assert (handle.outcome, handle.cause) == ("ERROR", "exception")
    assert after.result(WAIT_S) == 2
    assert is_alive(before.result(WAIT_S))


def test_many_failures_in_a_row_do_not_pile_up(shared):
    """T4: hundreds of tasks that never reach a worker end one after the other."""
    handles = [shared.submit(bodies.echo, bodies.NoPickle()) for _ in range(1500)]
    assert all(isinstance(handle.exception(WAIT_S), TaskFailed) for handle in handles)
    assert is_free(shared)


# A worker dies


@pytest.mark.parametrize(("how", "says"), [("SIGKILL", "SIGKILL"), ("SIGSEGV", "SIGSEGV"), ("os._exit", "exit code 3")])
def test_worker_dies_while_running(make, tmp_path, how, says):
    """T2, T4: ERROR/worker_lost for the task it ran; slot and budget come back; the other body runs on."""
    authority = make(slots=2, cpu=2)
    other = authority.submit(bodies.stepping, str(tmp_path / "other"), str(tmp_path / "end"), cpu=1)
    pid_in(tmp_path / "other")
    lost = authority.submit(bodies.die, how, cpu=1)
    with pytest.raises(TaskFailed, match=says):
        lost.result(WAIT_S)
    assert (lost.outcome, lost.cause) == ("ERROR", "worker_lost")
    assert authority.submit(bodies.add, 2, 2, cpu=1).result(WAIT_S) == 4
    assert not other.done()
    (tmp_path / "end").touch()
    assert other.result(WAIT_S) > 0


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

    assert authority.submit(die_once, retry=1).result(WAIT_S) == "survived"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_worker_dies_while_idle(make, number):
    """T4: a worker that dies between tasks is nobody's error; the next task gets another one."""
    authority = make()
    first = authority.submit(bodies.pid).result(WAIT_S)
    os.kill(first, number)
    until(lambda: not is_alive(first), "the worker's end")
    assert authority.submit(bodies.pid).result(WAIT_S) != first


def test_worker_dies_while_receiving(make):
    """T2: a worker that dies with half of the task received is a lost worker."""
    authority = make()
    first = authority.submit(bodies.pid).result(WAIT_S)
    os.kill(first, signal.SIGSTOP)
    handle = authority.submit(bodies.echo, bytes(8 << 20))
    until(lambda: handle.state == "RUNNING")
    with pytest.raises(TimeoutError):
        handle.result(0.2)  # it hangs in the middle: the pipe is full
    os.kill(first, signal.SIGKILL)
    with pytest.raises(TaskFailed, match="SIGKILL"):
        handle.result(WAIT_S)
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
            handle.result(WAIT_S)
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
        error = handle.exception(WAIT_S)
        if error is None:
            pids.add(handle.result())
        else:
            assert (type(error), handle.cause) == (TaskFailed, "worker_lost")
        if number in {100, 250, 400}:
            for pid in filter(_is_worker, pids):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
    assert sorted(map(id, ended)) == sorted(map(id, handles))
    assert is_free(authority)


# Signals


def test_current_works_in_a_worker(shared):
    """T8, X3: the same calls work inside a worker process, and the ref is the handle's."""
    handle = shared.submit(bodies.check_context, id=f"named-{uuid.uuid4()}")
    assert handle.result(WAIT_S) == (handle.ref, False, None)


def test_cancel_reaches_the_body(make, tmp_path):
    """X3: the signal fires in the worker with its reason; the worker goes on with other tasks."""
    authority = make(grace=60)
    handle = authority.submit(bodies.obedient, str(tmp_path / "body"))
    pid = pid_in(tmp_path / "body")
    handle.cancel()
    with pytest.raises(TaskAborted):
        handle.result(WAIT_S)
    assert read(tmp_path / "body.reason") == "cancelled"
    assert authority.submit(bodies.pid).result(WAIT_S) == pid


def test_cancel_before_the_worker_is_up(make):
    """X3: an abort that comes while the worker still starts is not lost."""
    authority = make(grace=60)
    for _ in range(3):
        handle = authority.submit(bodies.obedient, "/dev/null/never")
        handle.cancel()
        assert isinstance(handle.exception(WAIT_S), TaskAborted)
    assert is_free(authority)


def test_cancel_ends_a_coroutine(make, tmp_path):
    """X3: a coroutine function runs in the worker; an abort cancels it where it waits."""
    authority = make(grace=60)
    handle = authority.submit(bodies.sleeping_async, str(tmp_path / "body"))
    pid = pid_in(tmp_path / "body")
    handle.cancel()
    with pytest.raises(TaskAborted):
        handle.result(WAIT_S)
    assert authority.submit(bodies.pid).result(WAIT_S) == pid


def test_deaf_body_is_killed_and_the_worker_replaced(make, tmp_path):
    """X3, T4: a body that ignores the signal is killed after ``grace``; only then the slot comes back."""
    authority = make()
    handle = authority.submit(bodies.deaf, str(tmp_path / "body"))
    waiting = authority.submit(bodies.pid)
    pid = pid_in(tmp_path / "body")
    handle.cancel()
    assert waiting.result(WAIT_S) != pid
    assert not is_alive(pid)
    assert handle.outcome == "ABORTED"


def test_deaf_body_times_out(make, tmp_path):
    """T6: a process body ends in time even if it ignores the signal; the outcome is TIMEOUT."""
    authority = make()
    handle = authority.submit(bodies.deaf, str(tmp_path / "body"), timeout=0.2)
    with pytest.raises(TaskTimeout):
        handle.result(WAIT_S)
    assert is_free(authority)


def test_kill_takes_what_the_body_started(make, tmp_path):
    """O5: a program that a killed body has started ends with it; so does a process that it forked."""
    authority = make(slots=2)
    helper = authority.submit(bodies.start_helper, str(tmp_path / "body"))
    forked = authority.submit(bodies.fork_and_wait, str(tmp_path / "fork"))
    worker = pid_in(tmp_path / "fork")
    started = pid_in(tmp_path / "body.helper")
    copies = until(lambda: [pid for pid in marked(MARK) if _parent(pid) == worker], "the fork")
    authority.get_scope("default").dispose()
    assert {helper.outcome, forked.outcome} == {"ABORTED"}
    until(lambda: not any(map(is_alive, [started, *copies])), "the end of all")


def test_dispose_leaves_nothing_running(make, tmp_path):
    """O5: after DISPOSED no body of the scope runs, deaf, obedient or parked."""
    authority = make(slots=3)
    scope = authority.scope("work")
    paths = [tmp_path / name for name in ("deaf", "obedient", "parked")]
    handles = [
        scope.submit(bodies.deaf, str(paths[0])),
        scope.submit(bodies.obedient, str(paths[1])),
        scope.submit(bodies.stepping, str(paths[2]), str(tmp_path / "never")),
    ]
    pids = [pid_in(path) for path in paths]
    handles[2].pause()
    scope.dispose()
    assert scope.state == "DISPOSED"
    assert not is_alive(pids[0])
    assert [(handle.outcome, handle.cause) for handle in handles] == [("ABORTED", "scope_disposed")] * 3


def test_pause_parks_and_resume_goes_on(make, tmp_path):
    """X1, X2: the body parks at its next checkpoint, keeps its slot, and goes on where it was."""
    authority = make()
    handle = authority.submit(bodies.stepping, str(tmp_path / "body"), str(tmp_path / "end"))
    pid_in(tmp_path / "body")
    for _ in range(3):
        handle.pause()
        assert handle.state == "PAUSED"
        count = read(tmp_path / "body.count")
        waiting = authority.submit(bodies.add, 1)
        assert waiting.state == "READY"
        waiting.cancel()
        assert read(tmp_path / "body.count") == count
        handle.resume()
        until(lambda before=count: read(tmp_path / "body.count") not in {before, ""}, "the next step")
    (tmp_path / "end").touch()
    assert handle.result(WAIT_S) > 3


def test_pause_of_a_coroutine(make, tmp_path):
    """X1: ``checkpoint_async`` parks a coroutine in a worker."""
    authority = make()
    handle = authority.submit(bodies.stepping_async, str(tmp_path / "body"), str(tmp_path / "end"))
    pid_in(tmp_path / "body")
    handle.pause()
    assert handle.state == "PAUSED"
    (tmp_path / "end").write_text("x", encoding="utf-8")
    handle.resume()
    assert handle.result(WAIT_S) == handle.ref


def test_cancel_of_a_parked_body(make, tmp_path):
    """X3: a parked body is woken by the abort and ends."""
    authority = make(grace=60)
    handle = authority.submit(bodies.stepping, str(tmp_path / "body"), str(tmp_path / "never"))
    pid_in(tmp_path / "body")
    handle.pause()
    handle.cancel()
    with pytest.raises(TaskAborted):
        handle.result(WAIT_S)


def test_pause_that_no_checkpoint_answers(make, tmp_path):
    """X1: a body that reaches no checkpoint in time is cancelled, and killed after ``grace``; ``pause`` raises."""
    authority = make(pause_timeout=0.1)
    handle = authority.submit(bodies.deaf, str(tmp_path / "body"))
    pid = pid_in(tmp_path / "body")
    with pytest.raises(PauseTimeout):
        handle.pause()
    assert handle.exception(WAIT_S) is not None
    assert (handle.outcome, handle.cause) == ("ABORTED", "pause_timeout")
    assert not is_alive(pid)


# Forks, the parent's end, and those who hold things up


def test_fork_in_a_body_does_not_confuse(make):
    """T4: a body that forks ends once; the copy that returns too is not heard."""
    authority = make()
    assert [authority.submit(bodies.fork_and_fall_through).result(WAIT_S) for _ in range(3)] == ["worker"] * 3
    assert is_free(authority)


def test_idle_workers_end_with_close(make):
    """O5: after the authority is disposed, its worker processes are gone."""
    authority = make(slots=3)
    pids = {authority.submit(bodies.pid).result(WAIT_S) for _ in range(20)}
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
        pids = [int(read(tmp_path / name)) for name in ("lock", "sleep")]
        copies = [
            pid for pid in marked(mark) if _parent(pid) == parent.pid and b"engines.child" not in _command_line(pid)
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


def test_callback_may_wait_for_another_task(make):
    """T5: a callback that waits for another task of the same engine does not stop the engine."""
    authority = make(slots=2)
    results = []
    done = threading.Event()

    def wait_for_another(_):
        results.append(authority.submit(bodies.add, 20, 22).result(WAIT_S))
        done.set()

    authority.submit(bodies.add, 1).add_done_callback(wait_for_another)
    assert done.wait(WAIT_S)
    assert results == [42]
    assert is_free(authority)


def test_slow_pickling_holds_up_nobody(make, tmp_path):
    """T4: while the arguments of one task take their time to be pickled, others start and end."""
    authority = make(slots=2)
    authority.submit(bodies.pid).result(WAIT_S)
    slow = authority.submit(bodies.echo, bodies.SlowToPickle(str(tmp_path / "go")))
    assert [authority.submit(bodies.add, i).result(WAIT_S) for i in range(50)] == [*range(50)]
    assert not slow.done()
    (tmp_path / "go").touch()
    assert slow.result(WAIT_S) == "slow"
    assert [authority.submit(bodies.add, i).result(WAIT_S) for i in range(50)] == [*range(50)]


def _parent(pid):
    return int((read(f"/proc/{pid}/stat") or ") X 0").rpartition(")")[2].split()[1])


def _command_line(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _is_worker(pid):
    return _parent(pid) == os.getpid() and b"engines.child" in _command_line(pid)
