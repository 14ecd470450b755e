"""A1, C1: what the kernel keeps alive is hidden from the garbage collector, and nothing is lost or leaked by that."""

import gc
import subprocess
import sys
import threading
import weakref

import pytest

import whywait
from patience import PATIENCE_S, until
from whywait import Authority


class Thing:
    """Something that can be watched."""


@pytest.fixture
def busy():
    """An authority with one slot, which is taken until the test sets the gate."""
    gate = threading.Event()
    with Authority(slots=1) as authority:
        authority.submit(gate.wait, PATIENCE_S)
        authority.gate = gate
        yield authority
        gate.set()


def dies(reference):
    gc.collect()
    return reference() is None


@pytest.mark.skipif(not whywait.compiled, reason="the interpreted core cannot hide anything from the collector")
def test_a_pending_task_is_hidden_and_an_ended_one_is_shown():
    """C1: with a million tasks pending a collection has nothing more to look at."""
    gate = threading.Event()
    with Authority(slots=1) as authority:
        running = authority.submit(gate.wait, PATIENCE_S)
        pending, cancelled = authority.submit(int), authority.submit(int)
        assert [gc.is_tracked(each) for each in (running, pending, cancelled)] == [False, False, False]
        cancelled.cancel()
        gate.set()
        pending.result(PATIENCE_S)
        until(lambda: all(map(gc.is_tracked, (running, pending, cancelled))))


@pytest.mark.parametrize("how", ["success", "error", "cancelled", "disposed", "retried"])
def test_a_cycle_through_an_ended_task_is_collected(how):
    """T5: a result, an error or an argument that leads back to the handle keeps nothing alive."""
    gate = threading.Event()
    with Authority(slots=1) as authority, authority.scope("s") as scope:
        if how in {"cancelled", "disposed"}:
            authority.submit(gate.wait, PATIENCE_S)
        thing, tries = Thing(), []

        def body(thing):
            tries.append(None)
            if how == "error" or (how == "retried" and len(tries) == 1):
                raise ValueError(thing)
            return thing

        handle = scope.submit(body, thing, retry=1 if how == "retried" else 0)
        thing.handle = handle
        if how == "cancelled":
            handle.cancel()
        elif how == "disposed":
            scope.dispose()
        gate.set()
        handle.exception(PATIENCE_S)
        watched = [weakref.ref(thing), weakref.ref(handle)]
        del thing, handle, body, scope
        for reference in watched:
            until(lambda reference=reference: dies(reference), "the end of a cycle")


def test_what_a_pending_task_holds_is_alive_through_collections(busy):
    """T5: the collector sees nothing of a hidden task, and takes nothing from it either."""
    thing = Thing()
    watched = weakref.ref(thing)
    handle = busy.submit(lambda each: each, [thing])
    del thing
    for _ in range(3):
        gc.collect()
    assert watched() is not None
    busy.gate.set()
    assert handle.result(PATIENCE_S) == [watched()]


def test_memory_stays_flat_over_many_tasks():
    """T9: no task that has ended stays, whatever it came to."""
    program = """if True:
        import gc, weakref
        from whywait import Authority

        def fails():
            raise ValueError

        living = weakref.WeakSet()
        with Authority(slots=2, log=__import__("logging").getLogger("silent")) as authority:
            for _ in range(30):
                for handle in [authority.submit(fails if n % 3 else int, retry=n % 2) for n in range(300)]:
                    handle.exception()
                    living.add(handle)
                    del handle
            gc.collect()
            print(len(living))
    """
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=100)
    assert int(run.stdout) <= 10
