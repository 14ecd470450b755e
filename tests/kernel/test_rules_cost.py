"""What things cost, shown by counting steps and bytes instead of measuring time; and the order within one instant."""

from __future__ import annotations

import gc
import sys
import tracemalloc
from collections import deque

import pytest

from cores import interpreted
from kernel_driver import MS, SECOND, Driver, kernel, policy
from whywait.kernel import starting
from whywait.kernel.kernel import Kernel
from whywait.kernel.limits import Limits, Retry, make_demand
from whywait.kernel.order import Aging

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


def cost(act, **settings) -> tuple[int, int]:
    """Return the calls of ``act(kernel)`` with few and with many pending tasks."""
    few, many = full_kernel(FEW, **settings), full_kernel(MANY, **settings)
    return calls(lambda: act(few)), calls(lambda: act(many))


def end_and_start(one: Kernel) -> None:
    one.ended(SECOND * MS, one.running[1], "success")
    one.dispatch(SECOND * MS)


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
    words = [line.split()[1:3] for line in driver.story()[told:]]
    assert words == [
        ["periodic_tick", "first"],
        ["submitted", driver.events[told + 1].name],
        ["abort_asked", "second"],
        ["periodic_tick", "between"],
        ["submitted", driver.events[told + 4].name],
        ["ready", "third"],
        ["abort_asked", "fourth"],
        ["finished", "second"],
        ["finished", "fourth"],
    ]


class CountingAging(Aging):
    """The default order, and how often it was asked."""

    asked = 0

    def effective(self, base, waited_ns):
        type(self).asked += 1
        return super().effective(base, waited_ns)


@interpreted
def test_choosing_the_next_task_asks_one_task_of_each_level(monkeypatch):
    """C1, P7: 10,000 pending in five levels; one start works out five effective priorities and tries one lane."""
    one = full_kernel(MANY, order=CountingAging())
    monkeypatch.setattr(CountingAging, "asked", 0)
    tried = []
    closed_gate = starting.closed_gate
    monkeypatch.setattr(starting, "closed_gate", lambda k, lane: tried.append(lane) or closed_gate(k, lane))
    for now in range(1, 101):
        one.ended(now, next(iter(one.running.values())), "success")
        assert len(one.dispatch(now).started) == 1
    assert CountingAging.asked <= 100 * 5
    assert len(tried) <= 100


@interpreted
def test_starting_the_next_task_costs_the_same_however_many_wait():
    """C1, P7: the same number of steps with 100 and with 10,000 pending."""
    few, many = cost(end_and_start)
    assert many <= few + 10
    assert few < 200


@interpreted
def test_lanes_that_do_not_fit_are_looked_at_once_and_then_left_alone(monkeypatch):
    """C1: 10,000 lanes wait for cpu; a start that changes nothing for them looks at none of them."""
    one = kernel(None, cpu=4)
    hog = one.submit(0, one.root, "hog", 100, make_demand(cpu=4))
    small = one.submit(0, one.root, "small", 90)
    one.dispatch(0)
    scopes = [one.open_scope(0, f"s{number}") for number in range(2500)]
    for scope in scopes:
        for cpu in range(1, 5):
            one.submit(0, scope, None, 50, make_demand(cpu=cpu))
    one.dispatch(0)
    assert len(list(one.lanes_in_use())) == MANY
    tried = []
    closed_gate = starting.closed_gate
    monkeypatch.setattr(starting, "closed_gate", lambda k, lane: tried.append(lane) or closed_gate(k, lane))
    one.submit(1, one.root, "another", 90)
    one.ended(1, small, "success")
    assert [task.id for task in one.dispatch(1).started] == ["another"]
    assert len(tried) <= 2
    tried.clear()
    one.ended(2, hog, "success")
    assert sum(dict(task.demand)["cpu"] for task in one.dispatch(2).started) == 4
    assert 0 < len(tried) <= 8


@pytest.mark.parametrize(
    "act",
    [
        lambda one: one.submit(SECOND * MS, one.root, "new", 50),
        lambda one: one.submit(SECOND * MS, one.root, "new", 51),
        lambda one: one.submit(SECOND * MS, one.root, "new", 50, after=["t1", "t2"]),
        lambda one: one.find("t50", one.root),
        lambda one: one.cancel(SECOND * MS, one.find("t52", one.root)),
        lambda one: one.pause(SECOND * MS, one.find("t52", one.root)),
        lambda one: one.next_deadline(),
    ],
    ids=["submit", "submit in a new lane", "submit after two", "look up", "cancel", "pause", "next deadline"],
)
@interpreted
def test_commands_cost_the_same_however_many_are_pending(act):
    """C1: lookup, submit, and taking a task out of the middle."""
    few, many = cost(act)
    assert many <= few + 20  # a search by bisection asks a few more
    assert few < 200


@interpreted
def test_a_submission_costs_by_its_dependencies():
    """C1: ten times as many dependencies, about ten times the steps, of 10,000 pending."""
    one = full_kernel(MANY)
    names = [f"t{number}" for number in range(1000)]
    ten = calls(lambda: one.submit(0, one.root, "a", 50, after=names[:100]))
    hundred = calls(lambda: one.submit(0, one.root, "b", 50, after=names))
    assert ten < hundred < 11 * ten


@pytest.mark.parametrize("outcome", ["success", "error"])
@interpreted
def test_an_end_costs_by_whom_it_touches(outcome):
    """C1, G2, G3: waking, and taking down, goes by the dependents and not by who else is pending."""

    def steps(dependents: int, others: int) -> int:
        one = full_kernel(others)
        for _ in range(dependents):
            one.submit(0, one.root, None, 50, after=["run"])
        return calls(
            lambda: one.ended(SECOND * MS, one.running[1], outcome, None if outcome == "success" else "exception")
        )

    assert steps(50, MANY) <= steps(50, FEW) + 500
    assert steps(500, FEW) < 11 * steps(50, FEW)


@interpreted
def test_disposing_costs_by_what_is_inside():
    """C1, O4: ten tasks inside, whoever else is pending."""

    def steps(others: int) -> int:
        one = full_kernel(others)
        scope = one.open_scope(0, "s")
        for _ in range(10):
            one.submit(0, scope)
        return calls(lambda: one.dispose(0, scope))

    assert steps(MANY) <= steps(FEW) + 10


@interpreted
def test_no_timer_walks_the_queue():
    """C1, V2: at most one timer for each level, and looking at the time touches nobody who is not due."""
    few, many = (full_kernel(pending, starvation_timeout_ns=SECOND * MS) for pending in (FEW, MANY))
    assert len(few.timers.heap) <= len(PRIORITIES) + 1
    assert len(many.timers.heap) <= len(PRIORITIES) + 1
    assert calls(lambda: many.fire(MS)) == calls(lambda: few.fire(MS)) < 20


@pytest.mark.parametrize("named", [False, True])
def test_pending_task_memory(named):
    """C1, T9: a pending task costs at most 700 bytes, its name and a ring of 1000 events included."""
    ring = deque(maxlen=1000)
    one = Kernel(Limits(slots=1), emit=ring.append)
    submit_some(one, 2000, "warm", named)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        submit_some(one, MANY, "task", named)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(ring) == 1000
    assert (after - before) / MANY <= 700


def submit_some(one: Kernel, count: int, word: str, named: bool) -> None:
    for number in range(count):
        one.submit(number, one.root, f"{word}-{number}" if named else None)


def test_finished_tasks_without_a_name_leave_memory_flat():
    """T9: after eleven thousand that waited, ran and ended, four thousand more leave less than a byte each."""
    one = Kernel(Limits(slots=1))

    def run_some(first: int, count: int) -> int:
        for now in range(first, first + count):
            one.submit(now, one.root, None, now % 7, make_demand(cpu=now % 3))
            for task in list(one.running.values()):
                one.ended(now, task, "success")
            if now % 50 > 10:
                one.dispatch(now)
        while one.root.tasks:
            for task in (*one.running.values(), *one.dispatch(first + count).started):
                one.ended(first + count, task, "success")
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        before = run_some(0, 11_000)
        after = run_some(20_000, 4_000)
    finally:
        tracemalloc.stop()
    assert after - before < 4_000


def test_lanes_that_are_empty_leave_memory_flat():
    """T9: after tasks of five thousand different demands, no more is kept of their lanes than of a few hundred."""
    one = Kernel(Limits(slots=1))
    for now in range(MANY // 2):
        one.submit(now, one.root, None, now % 7, make_demand(cpu=now))
        for task in one.dispatch(now).started:
            one.ended(now, task, "success")
    assert len(one.lanes) < 5 * FEW
    assert sum(len(level.watch) for level in one.levels) < 5 * FEW


def test_the_lanes_of_all_priorities_are_made_once():
    """C1: a scope whose tasks have any of 101 priorities, few of them at a time, keeps a lane for each."""
    one = Kernel(Limits(slots=1))
    lanes = set()
    for now in range(MANY):
        lanes.add(one.submit(now, one.root, None, now % 101).lane)
        for task in one.dispatch(now).started:
            one.ended(now, task, "success")
    assert len(lanes) == 101
