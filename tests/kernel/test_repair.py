"""Repairs after commands that were broken off; and one that is itself broken off, and begun again."""

import pytest

from interrupts import Interrupt, at_every_place
from whywait.kernel import invariants, waiting
from whywait.kernel.base import Decision
from whywait.kernel.kernel import Kernel
from whywait.kernel.limits import Limits, Policy, Retry
from whywait.kernel.state import Outcome


@pytest.mark.parametrize("breaks_at", [1, 2, 3])
def test_a_repair_that_is_broken_off_forgets_no_wait(monkeypatch, breaks_at):
    """P6, V3: tasks keep their places and their time in READY, wherever in the lane the first repair ended."""
    kernel = Kernel(Limits(slots=1))
    kernel.submit(0, kernel.root)
    kernel.dispatch(0)
    tasks = [kernel.submit(now, kernel.root) for now in (10, 20, 30)]
    calls = []
    become_ready = waiting.become_ready

    def broken_off(*args: object) -> None:
        become_ready(*args)
        calls.append(args)
        if len(calls) == breaks_at:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(waiting, "become_ready", broken_off)
        with pytest.raises(KeyboardInterrupt):
            kernel.repair(40, Decision())
    kernel.repair(50, Decision())
    assert [task.since for task in tasks] == [10, 20, 30]
    assert list(tasks[0].lane) == tasks
    assert [waiting.ready_wait_of(kernel, 60, task) for task in tasks] == [{"slot": 50}, {"slot": 40}, {"slot": 30}]


def pauses(kernel, scope, task):
    return lambda: kernel.pause(10, task)


def resumes(kernel, scope, task):
    kernel.pause(5, task)
    return lambda: kernel.resume(10, task)


def aborts(kernel, scope, task):
    kernel.pause(5, task)
    return lambda: kernel.cancel(10, task)


def starts(kernel, scope, task):
    return lambda: kernel.submit(10, scope, policy=Policy(timeout_ns=100, max_wait_ns=50))


def drops(kernel, scope, task):
    kernel.resize(5, "slot", 1)
    kernel.submit(5, scope, policy=Policy(max_wait_ns=5))
    return lambda: kernel.dispatch(10)


def fails(kernel, scope, task):
    return lambda: kernel.ended(10, task, Outcome.ERROR)


def goes_on_after_backoff(kernel, scope, task):
    kernel.ended(2, task, Outcome.ERROR)
    kernel.dispatch(2)
    return lambda: kernel.fire(10**8)


def adds_periodic(kernel, scope, task):
    return lambda: kernel.add_periodic(10, scope, 2_000_000, immediately=True)


def ticks(kernel, scope, task):
    kernel.add_periodic(1, scope, 2_000_000)
    return lambda: kernel.fire(2_000_001)


def switches_off(kernel, scope, task):
    periodic = kernel.add_periodic(1, scope, 2_000_000)
    return lambda: kernel.set_periodic_enabled(10, periodic, False)


def disposes(kernel, scope, task):
    child = kernel.open_scope(1, "child", parent=scope)
    kernel.add_periodic(1, scope, 2_000_000)
    kernel.add_periodic(1, child, 2_000_000)
    kernel.submit(1, child)
    return lambda: kernel.dispose(10, scope)


def times_out(kernel, scope, task):
    kernel.pause(5, task)
    return lambda: kernel.fire(5000)


VERBS = (pauses, resumes, aborts, starts, drops, fails, goes_on_after_backoff, adds_periodic, ticks, switches_off,
         disposes, times_out)  # fmt: skip


@pytest.mark.parametrize("verb", VERBS)
def test_no_timer_is_left_over_and_none_is_lost(verb):
    """T6, R2, O7, X1: wherever a command is broken off, each timer that is to come belongs to what waits for it."""

    def attempt(place):
        kernel = Kernel(Limits(slots=2), pause_timeout_ns=1000)
        scope = kernel.open_scope(0, "work")
        task = kernel.submit(0, scope, policy=Policy(timeout_ns=10**6, retry=Retry(2, backoff=0.05)))
        kernel.dispatch(0)
        act, decision, now = verb(kernel, scope, task), Decision(), 10**8
        with Interrupt(place) as interrupt:
            act()
            kernel.dispatch(now, decision)
        if interrupt.where is not None:
            kernel.repair(now, decision, task if verb is fails else None)
        invariants.check(kernel, now, rested=True)
        for _ in range(8):
            now = max(now, kernel.next_deadline() or 0)
            kernel.fire(now)
            kernel.dispatch(now)
            invariants.check(kernel, now, rested=True)
        kernel.dispose(now, scope)
        for each in list(kernel.running.values()):
            kernel.ended(now, each, Outcome.SUCCESS)
        assert list(kernel.scopes) == [""], interrupt.where
        assert kernel.next_deadline() is None, interrupt.where
        return interrupt.where

    at_every_place(attempt)
