"""The thread engine: what the conformance suite cannot ask of every engine."""

import gc
import random
import threading
import time
import weakref

import pytest

from patience import PATIENCE_S, until
from whywait import Authority, AuthorityBroken
from whywait.engines.thread import ThreadEngine


def spin(seconds):
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


def test_an_injected_exception_comes_to_its_body_or_to_nobody():
    """O5: however close to the end of a body it is sent, no other task, no report and no thread is hit."""
    rng = random.Random(3)
    with Authority(slots=4, inject=True, grace=0) as authority:
        for _ in range(60):
            handles = [authority.submit(spin, rng.uniform(0, 0.003)) for _ in range(8)]
            time.sleep(rng.uniform(0, 0.003))
            for handle in handles:
                handle.cancel()
            for handle in handles:
                handle.exception(PATIENCE_S)
            assert {handle.outcome for handle in handles} <= {"success", "aborted"}
        assert authority.submit(int).result(PATIENCE_S) == 0
        assert authority.stats()["active"] == 0


def test_a_thread_that_the_system_refuses_costs_its_task_only(monkeypatch):
    """T2, S1: the task fails with the system's error, its slot is back, and the next one runs."""
    start = threading.Thread.start
    refusals = [RuntimeError("can't start new thread")]

    def refuse(thread):
        if thread.name.startswith("whywait-thread") and refusals:
            raise refusals.pop()
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with Authority(slots=1) as authority:
        with pytest.raises(RuntimeError, match="can't start new thread"):
            authority.submit(int).result(PATIENCE_S)
        assert authority.submit(int).result(PATIENCE_S) == 0


def test_a_thread_that_breaks_breaks_its_authority(monkeypatch):
    """A2: what was promised to the thread would never be done, so every task fails and nothing hangs."""
    sleep, failures = ThreadEngine._sleep, [MemoryError("no memory")]
    monkeypatch.setattr(threading, "excepthook", lambda _: None)

    def sleep_without_memory(engine):
        if engine._sleeping and failures:
            raise failures.pop()
        return sleep(engine)

    monkeypatch.setattr(ThreadEngine, "_sleep", sleep_without_memory)
    authority = Authority(slots=1)
    assert authority.submit(int).result(PATIENCE_S) == 0
    until(lambda: not failures)
    with pytest.raises(AuthorityBroken, match="MemoryError"):
        authority.submit(int, 1).result(PATIENCE_S)
    authority.dispose()


@pytest.mark.parametrize("options", [{}, {"kwargs": {"base": 10}}])
def test_an_error_makes_no_cycle(options):
    """T2: handle, error and traceback go without the garbage collector."""
    with Authority(slots=1) as authority:
        gc.disable()
        try:
            handle = authority.submit(int, "x", **options)
            assert isinstance(handle.exception(PATIENCE_S), ValueError)
            gone = weakref.ref(handle)
            del handle
            until(lambda: gone() is None)
        finally:
            gc.enable()


def test_there_are_no_more_threads_than_are_needed():
    """S1: threads come with the tasks that run at once, not with those that wait."""
    with Authority(slots=50) as authority:
        for _ in range(20):
            authority.submit(int).result(PATIENCE_S)
        assert len(authority._core.engines.default.threads) < 5
