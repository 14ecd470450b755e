"""An Executor of processes, as the standard library documents process pools."""

import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from pickle import PicklingError

import pytest

import process_bodies as bodies
from patience import PATIENCE_S, until
from process_bodies import is_alive
from whywait import ConfigError, Executor

state = []


def remember(value):
    state.append(value)


def remembered():
    return list(state)


def fail():
    raise ValueError("no good")


def touch(path):
    Path(path).touch()
    return os.getpid()


@pytest.fixture
def pool():
    with Executor(2, engine="process") as each:
        yield each


def test_tasks_run_in_other_processes(pool):
    """S1: at most `max_workers` of them."""
    pids = set(pool.map(touch, [os.devnull] * 20))
    assert os.getpid() not in pids
    assert 1 <= len(pids) <= 2


def test_as_many_as_there_are_processors(monkeypatch):
    """E1: by default as many as a process pool of the standard library has."""
    for name in ("WHYWAIT_SCHEDULER", "WHYWAIT_SLOTS"):
        monkeypatch.delenv(name, raising=False)
    forks = multiprocessing.get_context("fork")  # other ways leave a process behind to the end of the program
    with ProcessPoolExecutor(mp_context=forks) as theirs:
        assert Executor(engine="process")._max_workers == theirs._max_workers


def test_an_initializer_that_fails_breaks_the_pool():
    """T10: all pending futures and all further submissions raise BrokenProcessPool, with what was raised."""
    with Executor(2, engine="process", initializer=fail) as pool:
        futures = [pool.submit(int) for _ in range(10)]
        for future in futures:
            with pytest.raises(BrokenProcessPool, match="no good"):
                future.result(PATIENCE_S)
        assert "no good" in pool._broken
        with pytest.raises(BrokenProcessPool, match="no good"):
            pool.submit(int)


def test_processes_are_replaced():
    """T10: after so many tasks."""
    with Executor(1, engine="process", max_tasks_per_child=2, max_ram_per_child="10GB") as pool:
        pids = [pool.submit(os.getpid).result(PATIENCE_S) for _ in range(4)]
    assert pids[0] == pids[1] != pids[2] == pids[3]


def test_a_process_that_dies_costs_one_future(pool):
    """T2: that raises BrokenProcessPool; the pool goes on, as one of the standard library does not."""
    with pytest.raises(BrokenProcessPool, match="SIGKILL"):
        pool.submit(bodies.die, "SIGKILL").result(PATIENCE_S)
    assert pool.submit(pow, 2, 3).result(PATIENCE_S) == 8
    assert pool._broken is False


def test_what_cannot_be_pickled(pool):
    """T4: an error of the future, which is a PicklingError."""
    with pytest.raises(PicklingError, match="generator"):
        pool.submit(list, (each for each in "abc")).result(PATIENCE_S)


@pytest.mark.parametrize("context", ["spawn", multiprocessing.get_context("spawn"), None])
def test_contexts_that_are_the_same(context):
    """T10: worker processes are new interpreters, as with "spawn"."""
    with Executor(1, engine="process", mp_context=context) as pool:
        assert pool.submit(pow, 2, 3).result(PATIENCE_S) == 8


@pytest.mark.parametrize("method", ["fork", "forkserver"])
def test_contexts_that_are_not(method):
    """T10: refused, with the reason and what to do."""
    for context in (method, multiprocessing.get_context(method)):
        with pytest.raises(ConfigError, match=f"mp_context '{method}' .* new interpreters.* give \"spawn\""):
            Executor(engine="process", mp_context=context)


def test_settings_of_processes_need_processes():
    """E1: an option that would have no effect is an error; None is none."""
    for name, value in (("max_tasks_per_child", 3), ("max_ram_per_child", "1GB"), ("mp_context", "spawn")):
        with pytest.raises(ConfigError, match=f'{name} of an executor needs processes: give engine="process"'):
            Executor(**{name: value})
        with Executor(1, **{name: None}) as pool:
            assert pool.submit(int).result(PATIENCE_S) == 0


def test_a_forgotten_pool_ends_its_processes():
    """O5: an executor that is garbage finishes what was submitted, then its processes end."""
    pool = Executor(1, engine="process")
    future = pool.submit(touch, os.devnull)
    del pool
    pid = future.result(PATIENCE_S)
    until(lambda: not is_alive(pid), "its end")
