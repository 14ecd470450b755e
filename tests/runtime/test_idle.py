"""Nobody looks at a clock: while nothing is due, no thread of an authority runs."""

import asyncio
import gc
import threading
import time
import weakref
from pathlib import Path

import pytest

import whywait
from patience import PATIENCE_S, until
from whywait import Authority, TaskTimeout

WINDOW_S = 0.4  # many times the period of any polling that would hurt


def wait_for_signal():
    whywait.current().signal.wait(PATIENCE_S)


async def nap():
    await asyncio.sleep(0)


def switches(thread):
    """Return how often a thread has given up or lost the processor: it cannot run without one of the two."""
    try:
        status = Path(f"/proc/self/task/{thread.native_id}/status").read_text(encoding="utf-8")
    except FileNotFoundError:  # it has ended
        return 0
    return sum(int(line.split()[1]) for line in status.splitlines() if "ctxt_switches" in line)


def quietest(threads):
    """Return by how many switches the busiest of the threads is ahead after a window; the best of several windows.

    What comes to rest may take a moment to do so; what polls is never at rest.
    """
    best = None
    for _ in range(5):
        before = [switches(thread) for thread in threads]
        time.sleep(WINDOW_S)
        busiest = max(switches(thread) - earlier for thread, earlier in zip(threads, before, strict=True))
        best = busiest if best is None else min(best, busiest)
        if best == 0:
            return 0
    return best


@pytest.mark.parametrize("engine", ["thread", "simple", "asyncio", "process"])
def test_an_idle_authority_does_not_wake_up(engine):
    """C1: after all kinds of work, with a far deadline set and somebody waiting, its threads sleep."""
    others = set(threading.enumerate())
    stop = threading.Event()
    with Authority(slots=4, engine=engine, grace=PATIENCE_S) as authority:
        for _ in range(3):
            authority.submit(int).result(PATIENCE_S)
        if engine != "process":
            authority.submit(nap).result(PATIENCE_S)
            authority.submit(stop.wait, PATIENCE_S, engine="thread", timeout=PATIENCE_S)  # a timer, far away
        authority.scope("far").periodic(int, every=3600.0)
        waiter = threading.Thread(target=authority.get_scope("default").wait)
        waiter.start()
        mine = [thread for thread in threading.enumerate() if thread not in others]
        until(lambda: all(thread.native_id for thread in mine))
        try:
            assert quietest(mine) == 0
        finally:
            stop.set()
            waiter.join(PATIENCE_S)


@pytest.mark.parametrize("engine", ["thread", "simple", "process"])
def test_an_authority_that_nobody_holds_any_more_is_let_go(engine, monkeypatch):
    """O5: neither left by `with` nor disposed of; its threads and processes end when they have had nothing to do."""
    for name in ("runtime.clock.IDLE_S", "engines.thread.ThreadEngine.idle_s"):
        monkeypatch.setattr(f"whywait.{name}", 0.01)
    others = set(threading.enumerate())
    authority = Authority(slots=1, engine=engine)
    handles = [authority.submit(int, timeout=0.01) for _ in range(3)]  # the timeouts start the clock
    for handle in handles:
        handle.exception(PATIENCE_S)
    gone = weakref.ref(authority)
    del authority, handles, handle

    def is_gone():
        gc.collect()
        return gone() is None and set(threading.enumerate()) <= others

    until(is_gone, lambda: f"the end of {set(threading.enumerate()) - others}")


def test_a_clock_whose_thread_has_ended_starts_another_one(monkeypatch):
    """T6: a timeout that is set later is kept all the same, also beside one that is far away."""
    monkeypatch.setattr("whywait.runtime.clock.IDLE_S", 0.0)
    with Authority(slots=4) as authority:
        far = authority.submit(wait_for_signal, timeout="3650d")
        for _ in range(3):
            assert isinstance(authority.submit(wait_for_signal, timeout=0.001).exception(PATIENCE_S), TaskTimeout)
        far.cancel()


def test_a_body_that_waits_does_not_wake_up():
    """X1, X3: a parked body, one that waits for its signal, and who waits for the result, sleep until they are told."""
    others = set(threading.enumerate())
    begun, go = threading.Semaphore(0), threading.Event()

    def listening():
        begun.release()
        whywait.current().signal.wait()

    def parking():
        begun.release()
        while not go.wait(0.001):
            whywait.current().checkpoint()

    with Authority(slots=4, pause_timeout=PATIENCE_S, grace=PATIENCE_S) as authority:
        listener, parked = authority.submit(listening), authority.submit(parking)
        for _ in range(2):
            assert begun.acquire(timeout=PATIENCE_S)
        parked.pause()
        reader = threading.Thread(target=listener.exception)
        reader.start()
        mine = [thread for thread in threading.enumerate() if thread not in others]
        try:
            assert quietest(mine) == 0
        finally:
            go.set()
            parked.resume()
            listener.cancel()
            reader.join(PATIENCE_S)
