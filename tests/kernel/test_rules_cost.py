"""What things cost, shown by counting steps and bytes instead of measuring time; and the order within one instant."""

from __future__ import annotations

import gc
import sys
import tracemalloc
from collections import deque
from functools import partial

import pytest

from cores import interpreted
from kernel_driver import MS, SECOND, Driver, kernel, policy
from whywait.kernel.kernel import Kernel
from whywait.kernel.limits import Limits, Retry, make_demand

FEW, MANY = 100, 10_000
PRIORITIES = (0, 20, 50, 80, 100)


def calls(act) -> int:
    """Return how many functions, Python's and C's, are called while ``act`` runs."""
    count = 0

    def look(frame, event, arg):
        nonlocal count
        count += event in {"call", "c_call"}

    gc.disable()  # finalisers of what came before would be counted
    sys.setprofile(look)
    try:
        act()
    finally:
        sys.setprofile(None)
        gc.enable()
    return count


def full_kernel(pending: int, **settings) -> Kernel:
    """One slot, taken, and so many READY tasks in five priorities."""
    one = kernel(1, **settings)
    one.submit(0, one.root, "run", 100)
    one.dispatch(0)
    for number in range(pending):
        one.submit(number, one.root, f"t{number}", PRIORITIES[number % 5])
    return one


def test_the_instant_has_its_order():
    """C0: ends in start order, timers in creation order, submissions, ops, dispatch, max_wait, dispatch again."""
    driver = Driver(kernel(3, backfill="none", cpu=2))
    driver.submit("low", 0, lasts=10)
    driver.submit("high", 90, lasts=10)
    driver.submit("times out", 80, lasts=50, policy=policy(timeout=10))
    driver.dispatch()
    driver.periodic("beat", every=10, slot=True)
    cancelled = driver.submit("cancelled", 70, policy=policy(max_wait=10))
    driver.submit("expires", 60, cpu=2, policy=policy(max_wait=10))
    told = len(driver.raw)
    driver.at(10)
    driver.submit("hog", 100, cpu=1)
    driver.submit("new", 1)
    driver.cancel(cancelled)
    driver.dispatch()
    beat = driver.order[-2]
    assert driver.story()[told:] == [
        "10 finished high success",
        "10 finished low success",
        "10 abort_asked times out run_timeout",
        "10 periodic_tick beat 0",
        f"10 submitted {beat} READY",
        "10 finished times out timeout run_timeout",
        "10 submitted hog READY",
        "10 submitted new READY",
        "10 cancelled cancelled cancelled",
        "10 started hog",
        "10 dropped expires max_wait",
        f"10 started {beat}",
        "10 started new",
    ]


def test_timers_of_one_instant_fire_in_creation_order():
    """C0: two ticks, two timeouts and a backoff, all due at 20 ms; the bodies obey after that."""
    driver = Driver(kernel(None))
    driver.periodic("first", every=20)
    driver.submit("second", lasts=None, policy=policy(timeout=20))
    driver.until(5)
    driver.submit("third", lasts=5, fails=1, policy=policy(retry=Retry(1, backoff=0.01)))
    driver.dispatch()
    driver.periodic("between", every=15)
    driver.until(12)
    driver.submit("fourth", lasts=None, policy=policy(timeout=8))
    driver.dispatch()
    told = len(driver.raw)
    driver.at(20)
    lines = [line.split()[1:3] for line in driver.story("periodic_tick", "abort_asked", "ready", "finished")]
    assert lines[-7:] == [
        ["periodic_tick", "first"],
        ["abort_asked", "second"],
        ["periodic_tick", "between"],
        ["ready", "third"],
        ["abort_asked", "fourth"],
        ["finished", "second"],
        ["finished", "fourth"],
    ]
    assert len(driver.raw) == told + 9, "besides, each tick has submitted an iteration"


def end_and_start(one: Kernel) -> None:
    one.ended(SECOND * MS, one.find("run"), "success")
    assert len(one.dispatch(SECOND * MS).started) == 1


@pytest.mark.parametrize(
    "act",
    [
        end_and_start,
        lambda one: one.submit(SECOND * MS, one.root, "new", 50),
        lambda one: one.submit(SECOND * MS, one.root, "new", 51),
        lambda one: one.submit(SECOND * MS, one.root, "new", 50, after=["t1", "t2"]),
        lambda one: one.find("t50", one.root),
        lambda one: one.cancel(SECOND * MS, one.find("t52", one.root)),
        lambda one: one.pause(SECOND * MS, one.find("t52", one.root)),
        lambda one: one.fire(MS),
        lambda one: one.next_deadline(),
    ],
    ids=["end and start", "submit", "in a new lane", "after two", "look up", "cancel", "pause", "fire", "deadline"],
)
@interpreted
def test_commands_cost_the_same_however_many_are_pending(act):
    """C1, P7: choosing the next task, lookup, submit, timers, and taking a task out of the middle."""
    kernels = full_kernel(FEW), full_kernel(MANY)
    few, many = [calls(partial(act, one)) for one in kernels]
    assert many <= few + 20  # a search by bisection asks a few more


def with_dependents(count, others, outcome):
    """End a task with so many dependents."""
    one = full_kernel(others)
    for _ in range(count):
        one.submit(0, one.root, None, 50, after=["run"])
    return lambda: one.ended(SECOND * MS, one.find("run"), outcome, None if outcome == "success" else "exception")


def with_dependencies(count, others):
    """Submit a task with so many dependencies."""
    one = full_kernel(others)
    names = [one.submit(0, one.root, f"d{number}").name for number in range(count)]
    return lambda: one.submit(0, one.root, "new", after=names)


def with_tasks_inside(count, others):
    """Dispose of a scope with so many tasks."""
    one = full_kernel(others)
    scope = one.open_scope(0, "s")
    for _ in range(count):
        one.submit(0, scope)
    return lambda: one.dispose(0, scope)


@pytest.mark.parametrize(
    "prepare",
    [
        lambda count, others: with_dependents(count, others, "success"),
        lambda count, others: with_dependents(count, others, "error"),
        with_dependencies,
        with_tasks_inside,
    ],
    ids=["wake up", "take down", "submit", "dispose"],
)
@interpreted
def test_a_command_costs_by_what_it_touches(prepare):
    """C1, G2, G3, O4: by dependents, dependencies or tasks inside, and not by who else is pending."""
    assert calls(prepare(50, MANY)) <= calls(prepare(50, FEW)) + 500
    assert calls(prepare(50, FEW)) < calls(prepare(500, FEW)) < 11 * calls(prepare(50, FEW))


@interpreted
def test_lanes_that_do_not_fit_are_left_alone():
    """C1, P7: 10,000 lanes wait for cpu; a start that changes nothing for them looks at none of them."""

    def steps(scopes: int) -> int:
        one = kernel(None, cpu=4)
        one.submit(0, one.root, "hog", 100, make_demand(cpu=4))
        small = one.submit(0, one.root, "small", 90)
        one.dispatch(0)
        for number in range(scopes):
            scope = one.open_scope(0, f"s{number}")
            for cpu in range(1, 5):
                one.submit(0, scope, None, 50, make_demand(cpu=cpu))
        one.dispatch(0)
        one.submit(1, one.root, "another", 90)
        one.ended(1, small, "success")
        return calls(lambda: one.dispatch(1))

    assert steps(MANY // 4) <= steps(FEW // 4) + 20


@pytest.mark.parametrize("named", [False, True])
def test_pending_task_memory(named):
    """C1, T9: a pending task costs at most 700 bytes, its name and a ring of 1000 events included."""
    one = Kernel(Limits(slots=1), emit=deque(maxlen=1000).append)

    def submit_some(count: int, word: str) -> int:
        for number in range(count):
            one.submit(number, one.root, f"{word}-{number}" if named else None)
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        before = submit_some(2000, "warm")
        after = submit_some(MANY, "task")
    finally:
        tracemalloc.stop()
    assert (after - before) / MANY <= 700


def test_finished_tasks_without_a_name_leave_memory_flat():
    """T9: after thousands that waited, ran and ended, with any demand, others leave less than a byte each."""
    one = Kernel(Limits(slots=1))

    def run_some(first: int, count: int) -> int:
        for now in range(first, first + count):
            one.submit(now, one.root, None, now % 101, make_demand(cpu=now % 1000))
            for task in list(one.running.values()):
                one.ended(now, task, "success")
            if now % 50 > 10:
                one.dispatch(now)
        while one.root.tasks:
            for task in (*one.running.values(), *one.dispatch(first + count).started):
                one.ended(first + count, task, "success")
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        before = run_some(0, 11_000)
        after = run_some(20_000, 4_000)
    finally:
        tracemalloc.stop()
    assert after - before < 4_000
