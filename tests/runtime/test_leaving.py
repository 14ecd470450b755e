"""Leaving a block that does not end: what the log says, and when leaving gives up. The minutes pass in virtual time."""

from __future__ import annotations

import asyncio
import re
import threading
import time

import pytest

from patience import PATIENCE_S, until
from whywait import Authority, Executor, Retry, current
from whywait.errors import DisposeIncomplete, TaskAborted

GRACE_S = 0.05


@pytest.fixture(autouse=True)
def look_often(monkeypatch):
    """Look often enough for a test."""
    monkeypatch.setattr("whywait.runtime.scope.LOOK_S", 0.01)


@pytest.fixture
def clock(monkeypatch):
    """Make time pass for what leaving a block looks at: `clock(seconds)`."""
    ahead_ns = [0]
    monkeypatch.setattr("whywait.runtime.leaving.monotonic_ns", lambda: time.monotonic_ns() + ahead_ns[0])

    def pass_time(seconds):
        ahead_ns[0] += round(seconds * 1e9)

    return pass_time


@pytest.fixture
def hung():
    """A body that ignores everything until the test is over."""
    over, begun = threading.Event(), threading.Semaphore(0)

    def body():
        begun.release()
        assert over.wait(2 * PATIENCE_S)

    body.begun, body.end = begun, over.set
    yield body
    over.set()


def begin(authority, body, **options):
    """Submit a body and wait until it runs."""
    handle = authority.submit(body, **options)
    assert body.begun.acquire(timeout=PATIENCE_S)
    return handle


def lines(caplog):
    return [record.getMessage() for record in caplog.records if "waits for" in record.getMessage()]


def test_a_hung_iteration_past_timeout_and_grace_does_not_hold_up_leaving(hung, caplog):
    """O5, O6, R5: the log names it, disposal raises and names it too; the status tells since when it runs."""
    authority = Authority(slots=1, grace=GRACE_S)
    with pytest.raises(DisposeIncomplete, match="sampler#") as caught, authority:  # noqa: PT012 - leaving raises
        sampler = authority.scope("s").periodic(hung, every=60, immediately=True, id="sampler", timeout=1.0)
        assert hung.begun.acquire(timeout=PATIENCE_S)
        status = sampler.status()
    assert status.running_since == status.last_run_at is not None
    (survivor,) = caught.value.survivors
    told = r"leaving the authority waits for 1 task: sampler#\d+ \(ending for .*, started .* ago\)"
    assert re.fullmatch(told, lines(caplog)[-1])
    assert survivor in lines(caplog)[-1]
    assert len(lines(caplog)) <= 2  # it runs for longer than its grace; it is overdue
    assert {record.levelname for record in caplog.records if "waits for" in record.getMessage()} == {"WARNING"}
    hung.end()
    authority.dispose()


def test_an_iteration_without_a_timeout_is_waited_for_and_told(hung, caplog):
    """O6, R5: one in flight finishes; the log says after its grace that it is waited for."""
    with Authority(slots=1, grace=GRACE_S) as authority:
        authority.scope("s").periodic(hung, every=60, immediately=True, id="sampler")
        assert hung.begun.acquire(timeout=PATIENCE_S)
        ends = threading.Thread(target=lambda: (until(lambda: lines(caplog)), hung.end()))
        ends.start()
    ends.join()
    assert re.fullmatch(r"leaving the authority waits for 1 task: sampler#\d+ \(running for .*\)", lines(caplog)[0])


def test_a_hung_body_past_timeout_and_grace_does_not_hold_up_leaving(hung, caplog):
    """O5, O6: nor do tasks that wait for its slot, and for them."""
    authority = Authority(slots=1, grace=GRACE_S)
    with pytest.raises(DisposeIncomplete) as caught, authority.scope("work") as scope:  # noqa: PT012 - leaving raises
        begin(scope, hung, id="hung", timeout=1.0)
        behind = scope.submit(int, id="behind")
        later = scope.submit(int, id="later", after=[behind])
    assert caught.value.survivors == ("hung",)
    assert (behind.cause, later.cause) == ("scope_disposed", "scope_disposed")
    (line,) = lines(caplog)
    assert line.startswith("leaving scope 'work' waits for 3 tasks: hung (ending for ")
    assert "behind (waiting for " in line
    assert "later (waiting for " in line
    hung.end()
    until(lambda: scope.state == "DISPOSED")
    authority.dispose()


def test_a_task_that_is_not_asked_to_end_is_waited_for_without_limit(hung, caplog, clock):
    """O6: the log says so after a minute, and again every minute."""
    with Authority(slots=1, grace=GRACE_S) as authority:
        begin(authority, hung, id="long")
        leaving = authority._whole._leaving()
        told = []
        for seconds in (0, 59, 2, 30, 31, 59, 2):
            clock(seconds)
            next(leaving)
            told.append(len(lines(caplog)))
        hung.end()
    assert told == [0, 0, 1, 1, 2, 2, 3]
    assert re.fullmatch(r"leaving the authority waits for 1 task: long \(running for 1m 01s\)", lines(caplog)[0])


def test_a_paused_task_is_told_at_once(hung, caplog):
    """O6: it may be resumed."""
    with Authority(slots=1) as authority:
        begin(authority, hung)
        scope = authority.scope("work")
        paused = scope.submit(int, id="paused")
        paused.pause()
        next(inside(scope))
        assert re.fullmatch(r"leaving scope 'work' waits for 1 task: paused \(paused for .*\)", lines(caplog)[0])
        paused.resume()
        hung.end()
    assert len(lines(caplog)) == 1


def inside(scope):
    return scope._open._leaving()


def test_tasks_of_a_suspended_scope_are_told_at_once(caplog):
    """O2, O6: they stay pending until it is resumed."""
    with Authority(slots=1) as authority:
        scope = authority.scope("work")
        go = threading.Event()
        first = scope.submit(go.wait)
        until(lambda: scope.state == "RUNNING")
        waiting = scope.submit(int, id="waiting")
        scope.suspend()
        go.set()
        first.result(PATIENCE_S)
        next(inside(scope))
        assert "waiting (waiting in a suspended scope for " in lines(caplog)[0]
        scope.resume()
        waiting.result(PATIENCE_S)


def test_a_task_that_parks_while_a_block_is_left_is_told_once(caplog):
    """O6, X1: as soon as it has parked, though others run."""
    over = threading.Event()

    def checks():
        while not over.wait(0.001):
            current().checkpoint()

    with Authority(slots=2, pause_timeout=PATIENCE_S) as authority:
        handle, _ = authority.submit(checks, id="parks"), authority.submit(checks, id="runs")
        leaving = authority._whole._leaving()
        next(leaving)
        assert lines(caplog) == []
        handle.pause()
        next(leaving)
        next(leaving)
        assert len(lines(caplog)) == 1
        assert "waits for 2 tasks: parks (paused for " in lines(caplog)[0]
        handle.resume()
        over.set()


def test_a_task_that_may_still_start_is_waited_for_beside_an_overdue_one(hung, clock):
    """O6, T7: in its backoff, or paused; leaving does not give up for the others."""
    with Authority(slots=2, grace=GRACE_S) as authority:
        cancelled = begin(authority, hung)
        cancelled.cancel()
        tried = authority.submit(int, "x", retry=Retry(1, backoff=PATIENCE_S))
        until(lambda: len(tried.attempts) == 2)
        leaving = authority._whole._leaving()
        next(leaving)
        clock(2 * GRACE_S)
        next(leaving)
        tried.cancel()
        assert isinstance(tried.exception(PATIENCE_S), TaskAborted)
        assert list(leaving) == []
        hung.end()


def test_waiting_for_a_scope_says_so_and_does_not_give_up(hung, caplog, clock):
    """O6: only leaving has a disposal behind it."""
    with Authority(slots=1, grace=GRACE_S) as authority:
        handle = begin(authority, hung, id="hung")
        handle.cancel()
        waiting = authority._whole._waiting()
        next(waiting)
        clock(2 * GRACE_S)
        next(waiting)
        next(waiting)
        assert [line[: line.index(" (")] for line in lines(caplog)] == [
            "wait() of the authority waits for 1 task: hung"
        ]
        hung.end()
        handle.exception(PATIENCE_S)
        assert list(waiting) == []


def test_what_can_be_killed_has_the_time_that_a_kill_takes(clock):
    """O5: a coroutine that swallows its cancellation is cancelled again; leaving waits for that."""

    async def main():
        async with Authority(slots=1, grace=30) as authority:
            begun, over = asyncio.Event(), asyncio.Event()

            async def stubborn():
                begun.set()
                while not over.is_set():
                    try:
                        await over.wait()
                    except asyncio.CancelledError:
                        continue

            handle = authority.submit(stubborn)
            await begun.wait()
            handle.cancel()
            leaving = authority._whole._leaving()
            next(leaving)
            clock(31)
            next(leaving)
            clock(5)
            assert list(leaving) == []
            over.set()

    asyncio.run(main())


def test_the_end_of_an_executor_says_what_it_waits_for(hung, caplog, clock, monkeypatch):
    """O6: it waits as those of the standard library do, but not in silence."""
    monkeypatch.setattr("whywait.runtime.executor.LOOK_S", 0.01)
    executor = Executor(1)
    begin(executor, hung)
    ending = threading.Thread(target=executor.shutdown)
    ending.start()
    until(lambda: (clock(10), lines(caplog))[1])
    hung.end()
    ending.join(PATIENCE_S)
    assert lines(caplog)[0].startswith("the end of an executor waits for 1 task: ")


@pytest.mark.parametrize("form", ["plain", "async"])
def test_errors_of_tasks_are_raised_beside_what_still_runs(hung, form):
    """O5, O6, O10: a failure ends the scope; a body that ignores that does not hide the error."""
    authority = Authority(slots=2, grace=GRACE_S)

    def fill(scope):
        begin(scope, hung, id="hung")
        scope.submit(int, "x", id="failed")

    def leave():
        with authority.scope("work", on_error="abort") as scope:
            fill(scope)

    async def leave_async():
        async with authority.scope("work", on_error="abort") as scope:
            fill(scope)

    with pytest.raises(ExceptionGroup, match="tasks of scope 'work' failed") as caught:
        leave() if form == "plain" else asyncio.run(leave_async())
    failed, incomplete = caught.value.exceptions
    assert (type(failed), type(incomplete), incomplete.survivors) == (ValueError, DisposeIncomplete, ("hung",))
    hung.end()
    authority.dispose()
