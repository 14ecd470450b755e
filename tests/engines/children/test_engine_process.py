"""The process engine: what travels to worker processes and back, and what cannot."""

import os
import sys
import threading
import uuid
from pathlib import Path

import pytest

import process_bodies as bodies
from patience import PATIENCE_S
from process_bodies import is_alive, is_free, run_script
from whywait import Authority, ConfigError, TaskFailed
from whywait.engines.process import pickling
from whywait.engines.process.results import RemoteTraceback

OPTIONS = {"engine": "process", "slots": 1, "grace": 0.1}


@pytest.fixture(scope="module")
def shared():
    """One authority for the tests that leave it as it was."""
    with Authority(engine="process", slots=2, grace=0.1) as authority:
        yield authority


# What travels


def test_function_runs_in_another_process(shared):
    """T4: the body runs, in a process that is not this one."""
    assert shared.submit(bodies.add, 1, kwargs={"b": 2}).result(PATIENCE_S) == 3
    assert shared.submit(bodies.pid).result(PATIENCE_S) != os.getpid()
    assert shared.submit(bodies.echo, None).result(PATIENCE_S) is None


def test_closures_and_lambdas_travel_as_they_are_now(shared):
    """T4: a function by value is sent with what it reads at that moment, never with what it read before."""
    counts = [0]

    def read_closure():
        counts.append(1)
        return len(counts)

    assert shared.submit(read_closure).result(PATIENCE_S) == 2
    counts.append(0)
    assert shared.submit(read_closure).result(PATIENCE_S) == 3
    assert shared.submit(lambda x: x * 2, 21).result(PATIENCE_S) == 42


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
    out, _ = process.communicate(timeout=PATIENCE_S)
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
    assert [handle.result(PATIENCE_S) for handle in handles] == [*range(len(made)), *range(5)]


def test_payloads_larger_than_a_pipe(shared):
    """T4: tens of megabytes travel both ways."""
    data = os.urandom(1 << 20) * 24
    assert shared.submit(bodies.echo, data).result(PATIENCE_S) == data


def test_sys_path_follows_and_directory_is_the_same(shared, tmp_path):
    """T4: a module that became importable here after the worker started is importable there too."""
    assert shared.submit(os.getcwd).result(PATIENCE_S) == str(Path.cwd())
    name = f"late_{uuid.uuid4().hex}"
    (tmp_path / f"{name}.py").write_text("def where(): return __name__\n", encoding="utf-8")
    shared.submit(bodies.echo, 1).result(PATIENCE_S)
    sys.path.append(str(tmp_path))
    try:
        where = __import__(name).where
        assert shared.submit(bodies.echo, where).result(PATIENCE_S) is where
        assert shared.submit(where).result(PATIENCE_S) == name
    finally:
        sys.path.remove(str(tmp_path))


def test_function_that_did_not_arrive_is_sent_again(make, tmp_path, monkeypatch):
    """T2: a function that cannot be unpickled there fails its task; when it can be, it works."""
    name, flag = f"shy_{uuid.uuid4().hex}", tmp_path / "flag"
    text = f"""if True:
        import os, pathlib
        if os.getpid() != {os.getpid()} and not pathlib.Path({str(flag)!r}).exists():
            raise ImportError("not yet")
        def where(): return __name__
    """
    (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    where = __import__(name).where
    authority = make()
    for _ in range(2):
        with pytest.raises(TaskFailed, match=r"function could not be unpickled.*not yet"):
            authority.submit(where).result(PATIENCE_S)
    flag.touch()
    assert authority.submit(where).result(PATIENCE_S) == name


def test_output_comes_out_before_the_result():
    """T5: what a body printed is there when its result is."""
    program = """if True:
        from whywait import Authority
        with Authority(engine="process", slots=1) as a:
            a.submit(print, "from the worker").result()
            print("from here", flush=True)
    """
    out, _ = run_script(program, stdout=-1, text=True).communicate(timeout=PATIENCE_S)
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
        handle.result(PATIENCE_S)
    assert caught.value.code == 7
    assert isinstance(caught.value.__cause__, RemoteTraceback)
    assert "raise CustomError" in str(caught.value.__cause__)
    assert (handle.outcome, handle.cause) == ("error", "exception")


@pytest.mark.parametrize("kind", ["unpicklable", "one way"])
def test_exceptions_that_do_not_travel_are_told(shared, kind):
    """T2: an exception that cannot be pickled, or not be unpickled, becomes a TaskFailed that tells of it."""
    with pytest.raises(TaskFailed, match=r"UnpicklableError|OneWayError") as caught:
        shared.submit(bodies.fail, kind).result(PATIENCE_S)
    assert "Traceback" in str(caught.value.__cause__)
    assert is_free(shared)


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
        handle.result(PATIENCE_S)
    assert caught.value.__cause__ is not None
    assert (handle.outcome, handle.cause) == ("error", "exception")
    assert after.result(PATIENCE_S) == 2
    assert is_alive(before.result(PATIENCE_S))
