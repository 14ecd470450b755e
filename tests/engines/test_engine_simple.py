"""The simple engine: one thread, one task at a time, first started first run."""

import threading
import time

import pytest

from patience import PATIENCE_S, until
from whywait.engines.simple import SimpleEngine
from whywait.runtime.authority import Authority


def threads_of_engine():
    return [thread for thread in threading.enumerate() if thread.name.startswith("whywait-simple")]


@pytest.fixture(autouse=True)
def no_thread_is_left():
    yield
    until(lambda: not threads_of_engine())


def test_one_at_a_time_also_in_an_authority_with_more_slots():
    """S1: chosen for some tasks only, it takes their slots and runs them one after the other, in start order."""
    ran, inside = [], []

    def body(number):
        inside.append(number)
        assert inside == [number]
        time.sleep(0.001)
        ran.append(number)
        inside.remove(number)

    with Authority(slots=8, engine="thread") as authority, authority.scope("one by one", engine="simple") as scope:
        handles = [scope.submit(body, number) for number in range(40)]
        beside = authority.submit(threading.get_ident)
        idents = {scope.submit(threading.get_ident).result(PATIENCE_S)}
        assert beside.result(PATIENCE_S) not in idents
        assert [handle.exception(PATIENCE_S) for handle in handles] == [None] * 40
    assert ran == list(range(40))


def test_there_is_one_thread_whoever_submits():
    """S1: tasks of many threads, and tasks of tasks, meet in one thread."""
    seen = set()

    def body(depth):
        seen.add(threading.get_ident())
        if depth:
            authority.submit(body, depth - 1)

    with Authority(engine="simple") as authority:
        submitters = [threading.Thread(target=lambda: [authority.submit(body, 2) for _ in range(50)]) for _ in range(4)]
        for thread in submitters:
            thread.start()
        for thread in submitters:
            thread.join()
        until(lambda: authority.stats()["queued"] == 0)
        assert len(threads_of_engine()) == 1
    assert len(seen) == 1


def test_the_thread_goes_when_it_is_not_needed_and_comes_back(monkeypatch):
    """S1: an idle thread ends; no task is lost in between, however it falls."""
    monkeypatch.setattr(SimpleEngine, "idle_s", 0.001)
    with Authority(engine="simple") as authority:
        assert authority.submit(int).result(PATIENCE_S) == 0
        until(lambda: not threads_of_engine())
        for number in range(300):
            assert authority.submit(abs, -number).result(PATIENCE_S) == number
            time.sleep(0.0008 + 0.0004 * (number % 2))


def test_a_task_aborted_before_its_turn_does_not_run():
    """X3: a started task that still waits behind another one ends without having run."""
    gate, ran = threading.Event(), []
    with Authority(slots=2, engine="thread") as authority, authority.scope("one by one", engine="simple") as scope:
        scope.submit(gate.wait, PATIENCE_S)
        behind = scope.submit(ran.append, 1)
        assert behind.state == "RUNNING"
        behind.cancel()
        gate.set()
    assert ran == []
    assert behind.outcome == "aborted"
