"""Disposing of a crowd: tasks in every state, bodies that do not listen, in one sweep."""

import asyncio
import os
import threading
from collections import Counter

import pytest

import whywait
from patience import PATIENCE_S, until
from whywait import Authority, DisposeIncomplete, TaskAborted
from whywait.kernel import invariants

COUNT = 100_000  # in all
RUNNING = 40


def test_a_hundred_thousand_tasks_in_all_states():
    """O4, O7, T5: QUEUED, READY, PAUSED, RUNNING, parked and DISPOSING, in scopes inside scopes: each ends once."""
    count = COUNT // 4
    begun, ended = threading.Semaphore(0), []

    def body():
        begun.release()
        context = whywait.current()
        while not context.signal.aborted:
            context.checkpoint()
            context.signal.wait(0.02)

    def stubborn(over):
        begun.release()
        over.wait(PATIENCE_S)

    over = threading.Event()
    with Authority(slots=RUNNING + 1, grace=PATIENCE_S, events=10) as authority:
        outer = authority.scope("outer")
        inner = outer.scope("inner")
        running = [scope.submit(body) for scope in (outer, inner) for _ in range(RUNNING // 2)]
        disposing = inner.submit(stubborn, over)
        for _ in range(RUNNING + 1):
            assert begun.acquire(timeout=PATIENCE_S)
        disposing.cancel()
        for handle in running[::4]:
            handle.pause()
        ready = [scope.submit(int, priority=number % 101) for scope in (outer, inner) for number in range(count)]
        queued = [inner.submit(int, after=[running[number % RUNNING]]) for number in range(count)]
        chain = [outer.submit(int, id="c0", after=[running[1]])]
        for number in range(1, count):
            chain.append(outer.submit(int, id=f"c{number}", after=[chain[-1]]))
        outside = authority.submit(int, after=[queued[0]])
        for handle in (*ready[::7], *queued[::7], *chain[::7]):
            handle.pause()
        states = Counter(handle.state for handle in (*running, disposing, *ready, *queued, *chain))
        assert set(states) == {"RUNNING", "PAUSED", "DISPOSING", "READY", "QUEUED"}
        everything = [*running, *ready, *queued, *chain]
        for handle in everything[::10]:
            handle.add_done_callback(ended.append)
        threading.Timer(0.05, over.set).start()
        outer.dispose()
        assert {(handle.outcome, handle.cause) for handle in everything} == {("aborted", "scope_disposed")}
        assert (disposing.outcome, disposing.cause) == ("aborted", "cancelled")
        assert outside.cause == "dependency"
        assert Counter(map(id, ended)) == Counter(map(id, everything[::10]))
        assert (outer.state, inner.state) == ("DISPOSED", "DISPOSED")
        assert authority.submit(int).result(PATIENCE_S) == 0
        with authority._core.lock:
            invariants.check(authority._core.kernel, 1 << 62, rested=False)


def test_a_coroutine_that_swallows_its_cancellation_once():
    """X3, O5: it is asked again after ``grace``; whatever it returns, the outcome is ABORTED."""
    swallowed, started = [], threading.Event()

    async def reluctant():
        started.set()
        for _ in range(2):
            try:
                await asyncio.sleep(1000)
            except asyncio.CancelledError:
                swallowed.append(1)
        return "nothing has happened"

    with Authority(slots=1, grace=0.05) as authority:
        handle = authority.submit(reluctant)
        assert started.wait(PATIENCE_S)
        handle.cancel()
        assert isinstance(handle.exception(PATIENCE_S), TaskAborted)
        assert swallowed == [1, 1]
        assert authority.submit(int).result(PATIENCE_S) == 0


@pytest.mark.parametrize("engine", ["thread", "asyncio"])
def test_a_body_that_swallows_whatever_it_is_told_is_named(engine, monkeypatch):
    """O5: dispose raises, names it, and the scope stays DISPOSING; when it ends after all, so does the scope."""
    monkeypatch.setattr("whywait.runtime.leaving.KILL_S", 0.05)
    started, end = threading.Event(), threading.Event()

    async def deaf_coroutine():
        started.set()
        while not end.is_set():
            try:
                await asyncio.sleep(0.002)
            except asyncio.CancelledError:
                continue

    def deaf():
        told = False
        started.set()
        while True:
            try:  # all but the handler is inside, so that what is injected is caught wherever it comes
                while not end.is_set():
                    if not told:
                        whywait.current().checkpoint()
                    end.wait(0.002)
            except TaskAborted:
                told = True
            else:
                return

    authority = Authority(slots=1, grace=0.02, inject=True)
    scope = authority.scope("work")
    handle = scope.submit(deaf if engine == "thread" else deaf_coroutine, id="deaf")
    assert started.wait(PATIENCE_S)
    with pytest.raises(DisposeIncomplete, match="deaf still running"):
        scope.dispose()
    assert (scope.state, handle.state) == ("DISPOSING", "DISPOSING")
    end.set()
    assert isinstance(handle.exception(PATIENCE_S), TaskAborted)
    until(lambda: scope.state == "DISPOSED")
    authority.dispose()


@pytest.mark.parametrize("engine", ["thread", "simple"])
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_body_that_forks_is_heard_once(engine, tmp_path):
    """T4, O1: the copy that returns from the body too reports to nobody and runs nothing; here all goes on."""

    def fork():
        pid = os.fork()
        if pid == 0:
            (tmp_path / "copy").touch()
            return None
        return pid

    def mark(number):
        with (tmp_path / "ran").open("a") as file:
            file.write(f"{number}\n")

    with Authority(slots=1, engine=engine) as authority:
        handles = [authority.submit(fork), *(authority.submit(mark, number) for number in range(20))]
        pid = handles[0].result(PATIENCE_S)
        for handle in handles:
            handle.result(PATIENCE_S)
        os.waitpid(pid, 0)
    assert (tmp_path / "copy").exists()
    assert (tmp_path / "ran").read_text().split() == [str(number) for number in range(20)]
