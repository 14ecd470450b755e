"""Slots and budget: how much runs at once, computed by hand in virtual time."""

from __future__ import annotations

import pytest

from kernel_driver import Driver, kernel, policy
from whywait.errors import ConfigError, Infeasible, QueueFull, Rejected
from whywait.kernel.limits import Budget, Limits, make_demand
from whywait.support.units import parse_size

HIGH, NORMAL, LOW = 80, 50, 20


def running(driver: Driver) -> list[str]:
    return [task.id for task in driver.kernel.running.values()]


def test_no_more_run_than_there_are_slots():
    """S1: five tasks on two slots go two by two."""
    driver = Driver(kernel(2))
    for name in "abcde":
        driver.submit(name)
    driver.until(100)
    assert driver.starts == [(0, "a"), (0, "b"), (10, "c"), (10, "d"), (20, "e")]


def test_without_a_limit_everything_starts_at_once():
    """S1: slots=None."""
    driver = Driver(kernel(None))
    for number in range(500):
        driver.submit(f"t{number}")
    assert len(driver.dispatch()) == 500


@pytest.mark.parametrize("value", [0, -1, 1.5, True, "2"])
def test_slots_that_make_no_sense_are_refused(value):
    """S1: the error gives the value and what is allowed."""
    with pytest.raises(ConfigError, match=f"slots {value!r} is not allowed: use an int of 1 or more, or None"):
        Limits(slots=value)


def test_both_limits_hold_at_every_instant():
    """S2: three slots in all, one of them for `a` at most, two for `b`."""
    driver = Driver(kernel(3))
    a, b = driver.scope("a", slots=1), driver.scope("b", slots=2)
    for number, lasts in enumerate((5, 4, 3)):
        driver.submit(f"a{number}", HIGH, lasts, scope=a)
    for number, lasts in enumerate((7, 2, 2, 6)):
        driver.submit(f"b{number}", LOW, lasts, scope=b)
    driver.submit("root", lasts=3)
    driver.until(100)
    # a0 takes the one slot of `a`; root and b0 the other two. At 3 root ends: b1. At 5 a0 and b1 end: a1, b2.
    assert driver.starts == [
        (0, "a0"),
        (0, "root"),
        (0, "b0"),
        (3, "b1"),
        (5, "a1"),
        (5, "b2"),
        (7, "b3"),
        (9, "a2"),
    ]


def test_a_full_scope_does_not_keep_others_from_the_free_slot():
    """S2: the second of the scope is passed over."""
    driver = Driver(kernel(2))
    narrow = driver.scope("narrow", slots=1)
    driver.submit("first", HIGH, scope=narrow)
    driver.submit("second", HIGH, scope=narrow)
    driver.submit("other", LOW)
    assert driver.dispatch() == ["first", "other"]


def test_when_busy_reject_counts_holders_and_ready_tasks():
    """S3: two slots, one held, one spoken for; the third is refused and nothing of it stays."""
    driver = Driver(kernel(2, when_busy="reject"))
    driver.submit("runs")
    driver.dispatch()
    driver.submit("ready")
    with driver.refuses(
        Rejected, "all 2 slots of the authority are taken or spoken for: task 'third' is refused"
    ) as caught:
        driver.submit("third")
    assert (caught.value.check, caught.value.cause) == ("when_busy", "busy")
    assert driver.story("rejected") == ["0 rejected third busy"]
    assert driver.stats()["rejected"] == {"busy": 1}


def test_when_busy_reject_admits_again_once_a_slot_is_free():
    """S3: refused at 9 ms, accepted at 10 ms under the same id."""
    driver = Driver(kernel(1, when_busy="reject"))
    driver.submit("runs")
    driver.until(9)
    with driver.refuses(Rejected, "slot of the authority"):
        driver.submit("later")
    driver.at(10)
    driver.submit("later")
    assert driver.dispatch() == ["later"]


def test_when_busy_reject_looks_at_the_scope_too():
    """S3: the scope's own slot is taken though the authority has more."""
    driver = Driver(kernel(3))
    narrow = driver.scope("narrow", slots=1, when_busy="reject")
    driver.submit("a", scope=narrow)
    with driver.refuses(Rejected, "the only slot of scope 'narrow' is taken or spoken for"):
        driver.submit("b", scope=narrow)


def test_dependencies_and_budget_never_make_it_busy():
    """S3: QUEUED tasks count nowhere; a newcomer that waits for others or for cpu is let in beside a free slot."""
    driver = Driver(kernel(2, when_busy="reject", cpu=1))
    driver.submit("runs", cpu=1)
    driver.dispatch()
    queued = [driver.submit(f"queued{number}", after=["runs"]) for number in range(5)]
    assert {task.state for task in queued} == {"QUEUED"}
    assert driver.submit("too much now", cpu=1).state == "READY"


def test_when_busy_queue_keeps_a_task_waiting():
    """S3: the default."""
    driver = Driver(kernel(1))
    driver.submit("a")
    driver.dispatch()
    assert driver.submit("b").state == "READY"
    driver.until(10)
    assert driver.order == ["a", "b"]


def test_max_spawn_closes_a_scope_after_so_many_accepted_tasks():
    """S4: finished ones count, refused ones do not."""
    driver = Driver(kernel(1))
    scope = driver.scope("few", max_spawn=3)
    driver.submit("a", scope=scope)
    driver.until(50)
    with driver.refuses(Rejected, "task id 'a' is used in scope 'few'"):
        driver.submit("a", scope=scope)
    driver.submit("b", scope=scope)
    driver.submit("c", scope=scope)
    text = "scope 'few' has accepted 3 tasks in its life and max_spawn is 3: task 'd' is refused"
    with driver.refuses(Rejected, text) as caught:
        driver.submit("d", scope=scope)
    assert (caught.value.check, caught.value.cause) == ("max_spawn", "spawn_limit")
    driver.until(500)
    with driver.refuses(Rejected, "max_spawn is 3"):
        driver.submit(None, scope=scope)
    assert driver.story("rejected") == [
        "50 rejected a duplicate",
        "50 rejected d spawn_limit",
        "500 rejected few spawn_limit",
    ]


def test_a_childs_tasks_count_against_every_ancestors_slots():
    """S5, S2: two slots for the family, one for the child."""
    driver = Driver(kernel(None))
    parent = driver.scope("parent", slots=2)
    child = driver.scope("child", parent, slots=1)
    grandchild = driver.scope("grandchild", child)
    driver.submit("g", scope=grandchild)
    driver.submit("c", scope=child)
    driver.submit("p1", scope=parent)
    driver.submit("p2", scope=parent)
    driver.until(100)
    assert driver.starts == [(0, "g"), (0, "p1"), (10, "c"), (10, "p2")]


def test_a_childs_tasks_count_against_an_ancestors_queue_and_spawn_limits():
    """S5, S4, D1: both limits are the grandparent's."""
    driver = Driver(kernel(None))
    above = driver.scope("above", queue_limit=2, max_spawn=4)
    below = driver.scope("below", driver.scope("between", above))
    driver.submit("a", scope=below)
    driver.submit("b", scope=above)
    with driver.refuses(QueueFull, "scope 'above' has 2 pending tasks and queue_limit is 2"):
        driver.submit("c", scope=below)
    driver.dispatch()
    driver.submit("c", scope=below)
    driver.submit("d", scope=above)
    driver.dispatch()
    with driver.refuses(Rejected, "scope 'above' has accepted 4 tasks in its life and max_spawn is 4"):
        driver.submit("e", scope=below)


def test_a_child_is_as_busy_as_its_parent():
    """S5, S3: the parent's only slot is taken by the parent's own task."""
    driver = Driver(kernel(None))
    parent = driver.scope("parent", slots=1)
    child = driver.scope("child", parent, when_busy="reject")
    driver.submit("p", scope=parent)
    with driver.refuses(Rejected, "the only slot of scope 'parent' is taken"):
        driver.submit("c", scope=child)


@pytest.mark.parametrize("limits", [{"queue_limit": 1}, {"when_busy": "reject"}, {"max_spawn": 2}])
def test_a_retry_is_let_in_whatever_the_limits_say(limits):
    """S5, T7: each limit is reached when the first attempt fails, and the second runs all the same."""
    driver = Driver(kernel(None))
    tight = driver.scope("tight", slots=1, **limits)
    patient = driver.scope("patient", tight)
    driver.submit("fails", scope=tight, fails=1, policy=policy(retry=1))
    driver.dispatch()
    driver.submit("waits", scope=patient)
    with driver.refuses(Rejected, "task 'newcomer' is refused"):
        driver.submit("newcomer", scope=tight)
    driver.until(100)
    assert driver.story("finished") == [
        "10 finished fails error exception",
        "20 finished waits success",
        "30 finished fails success",
    ]


def test_cpu_is_never_exceeded():
    """B1: of 4 cpu, 3 and 1 fit together; 2 waits for the 3 to come back."""
    driver = Driver(kernel(None, cpu=4))
    driver.submit("three", cpu=3)
    driver.submit("two", cpu=2)
    driver.submit("one", cpu=1, lasts=5)
    driver.submit("four", cpu=4)
    driver.until(100)
    assert driver.starts == [(0, "three"), (0, "one"), (10, "two"), (20, "four")]


def test_a_demand_above_the_cpu_is_infeasible():
    """B1: exactly all of it is feasible, one more is not, also while nothing runs."""
    driver = Driver(kernel(None, cpu=4))
    driver.submit("all", cpu=4)
    text = "task 'more' demands 5 cpu and the limit is 4: it could never start"
    with driver.refuses(Infeasible, text) as caught:
        driver.submit("more", cpu=5)
    assert (caught.value.check, caught.value.cause) == ("demand feasible", "infeasible")
    assert driver.story("rejected") == ["0 rejected more infeasible"]


def test_without_a_cpu_limit_any_demand_fits():
    """B1: cpu, ram and vram that the budget does not name are unlimited."""
    driver = Driver(kernel(None))
    driver.submit("huge", cpu=1000, ram=10**15, vram=10**15)
    assert driver.dispatch() == ["huge"]


def test_a_soft_limit_gates_while_something_runs():
    """B2: 6 of 8 are used; 3 do not fit, 2 do."""
    driver = Driver(kernel(None, ram=8))
    driver.submit("six", ram=6)
    driver.submit("three", ram=3)
    driver.submit("two", ram=2)
    driver.until(100)
    assert driver.starts == [(0, "six"), (0, "two"), (10, "three")]


def test_a_demand_above_a_soft_limit_runs_when_nothing_else_does():
    """B2: M3's escape rule; accepted at submit, started alone, and never while anything runs."""
    driver = Driver(kernel(None, ram=8, vram=4))
    driver.submit("small", ram=1, lasts=10)
    driver.submit("big", ram=9, vram=9)
    driver.submit("later", ram=1, lasts=20)
    driver.until(19)
    assert driver.starts == [(0, "small"), (0, "later")]
    driver.until(20)
    assert driver.starts[2:] == [(20, "big")]


def test_only_one_task_escapes_and_what_it_overdraws_stays_closed():
    """B2, B4: the second oversized one and even a small one wait; who needs none of it starts."""
    driver = Driver(kernel(None, ram=8))
    driver.submit("big", ram=20)
    driver.submit("bigger", ram=30)
    driver.submit("small", ram=1)
    driver.submit("none")
    driver.until(100)
    assert driver.starts == [(0, "big"), (0, "none"), (10, "bigger"), (20, "small")]


def test_the_first_in_order_escapes_even_if_a_later_one_would_fit():
    """B2: with nobody running the soft gates count as open, so order alone decides."""
    driver = Driver(kernel(None, ram=8))
    driver.submit("fits", LOW, ram=8)
    driver.submit("too big", HIGH, ram=9)
    driver.until(100)
    assert driver.starts == [(0, "too big"), (10, "fits")]


def test_who_escapes_needs_its_other_gates_open():
    """B2: the first in order is in a suspended scope; the next one escapes in its place."""
    driver = Driver(kernel(None, ram=8))
    scope = driver.scope("s")
    driver.submit("opens the scope", scope=scope)
    driver.dispatch()
    driver.submit("first", HIGH, scope=scope, ram=9)
    driver.suspend(scope)
    driver.submit("second", LOW, ram=9)
    driver.until(15)
    assert driver.starts[1:] == [(10, "second")]
    driver.resume_scope(scope)
    driver.until(100)
    assert driver.starts[1:] == [(10, "second"), (20, "first")]


@pytest.mark.parametrize("how", ["parked", "disposing"])
def test_a_parked_and_a_disposing_task_still_hold_their_slot(how):
    """B2, X2, T4: the oversized one waits until that body has really ended."""
    driver = Driver(kernel(None, ram=8))
    holder = driver.submit("holder", lasts=None, obeys=how == "parked")
    driver.dispatch()
    driver.pause(holder) if how == "parked" else driver.cancel(holder)
    assert holder.state == ("PAUSED" if how == "parked" else "DISPOSING")
    driver.submit("big", ram=9)
    driver.until(50)
    assert driver.order == ["holder"]
    driver.end(holder)
    assert driver.dispatch() == ["big"]


def test_an_oversized_task_may_wait_as_long_as_others_keep_running():
    """B2, V1: greedy backfill starves it, and why() shows the gate with need, free and limit."""
    driver = Driver(kernel(2, ram=8))
    driver.submit("s0", lasts=15)
    driver.dispatch()
    big = driver.submit("big", 100, ram=9)
    for number in range(1, 20):
        driver.at(number * 10)
        driver.submit(f"s{number}", lasts=15)
    driver.until(200)
    assert big.state == "READY"
    (reason,) = driver.why(big).reasons
    assert (reason.name, reason.need, reason.free, reason.limit, reason.soft) == ("ram", 9, 8, 8, True)
    assert not reason.never
    driver.until(205)
    assert big.state == "RUNNING"


def test_named_resources_are_hard_or_soft():
    """B3: three licences are never exceeded; disk may be, by one alone."""
    driver = Driver(kernel(None, licence=3, disk=10))
    driver.submit("a", licence=2)
    driver.submit("b", licence=2)
    driver.submit("c", licence=1, disk=11)
    driver.until(30)
    assert driver.starts == [(0, "a"), (10, "b"), (20, "c")]
    with driver.refuses(Infeasible, "task 'd' demands 4 licence and the limit is 3"):
        driver.submit("d", licence=4)


def test_a_resource_that_the_budget_does_not_have_is_infeasible():
    """B3: the error lists those it has."""
    driver = Driver(kernel(None, cpu=1, licence=2))
    with driver.refuses(Infeasible, "the task demands 1 of 'gpu0'; the budget has only: cpu, licence"):
        driver.submit(None, gpu0=1)


@pytest.mark.parametrize(
    ("hard", "soft", "text"),
    [
        ({"paused": 1}, {}, "a resource cannot be named 'paused': the name is taken by a wait cause"),
        ({"a": 1}, {"a": 1}, "resource 'a' is both hard and soft: choose one"),
        ({"a": -1}, {}, "budget a -1 is not allowed: use an int of 0 or more"),
        ({}, {"a": 1.5}, "budget a 1.5 is not allowed: use an int of 0 or more"),
    ],
)
def test_a_budget_that_makes_no_sense_is_refused(hard, soft, text):
    """B3: the error gives name, value and what to do."""
    with pytest.raises(ConfigError, match=text):
        Budget(hard, soft)


def test_a_task_is_not_gated_by_what_it_demands_none_of():
    """B4: ram is used up and overdrawn, cpu is used up; a task that asks for vram alone starts."""
    driver = Driver(kernel(None, cpu=1, ram=1, vram=1))
    driver.submit("greedy", cpu=1, ram=5)
    driver.submit("other", vram=1)
    driver.submit("nothing")
    driver.submit("zero", cpu=0, ram=0)
    assert driver.dispatch() == ["greedy", "other", "nothing", "zero"]


def backfilled(mode: str) -> Driver:
    """`wide` does not fit beside `runs`; `small` would."""
    driver = Driver(kernel(None, backfill=mode, cpu=4))
    full = driver.scope("full", slots=1)
    driver.submit("runs", cpu=2, lasts=10)
    driver.submit("in full", scope=full, lasts=30)
    driver.dispatch()
    driver.submit("behind full", 100, scope=full)
    driver.submit("wide", HIGH, cpu=3)
    driver.submit("small", NORMAL, cpu=1)
    driver.submit("no cpu", LOW)
    return driver


def test_greedy_backfill_lets_later_ones_pass():
    """B5: `small` and `no cpu` start at once, and `wide` waits longer for it."""
    driver = backfilled("greedy")
    driver.until(100)
    assert driver.starts[2:] == [(0, "small"), (0, "no cpu"), (10, "wide"), (30, "behind full")]


def test_backfill_none_holds_the_rest_back_until_the_first_fits():
    """B5, V7: the one behind scope slots is passed over; `wide` holds all behind it, also who needs no cpu."""
    driver = backfilled("none")
    driver.until(9)
    assert driver.starts[2:] == []
    small, nothing = driver.kernel.find("small"), driver.kernel.find("no cpu")
    assert driver.waits(small) == driver.waits(nothing) == {"held_back": 9}
    assert driver.waits(driver.kernel.find("wide")) == {"cpu": 9}
    assert driver.waits(driver.kernel.find("behind full")) == {"scope_slots": 9}
    driver.until(100)
    assert driver.starts[2:] == [(10, "wide"), (10, "small"), (10, "no cpu"), (30, "behind full")]


def test_backfill_none_lets_who_is_ahead_of_it_start():
    """B5: only later ones are held back; a newcomer of higher priority goes before the one that does not fit."""
    driver = backfilled("none")
    driver.until(5)
    driver.submit("urgent", 90)
    assert driver.dispatch() == ["urgent"]


@pytest.mark.parametrize("bad", ["", "GREEDY", None])
def test_an_unknown_backfill_is_refused(bad):
    """B5: the error gives the value and what is allowed."""
    with pytest.raises(ConfigError, match=f"backfill {bad!r} is not allowed: use one of greedy, none"):
        kernel(backfill=bad)


def test_sizes_are_ints_or_strings_and_gate_exactly():
    """B6: "2GB" is 2 * 10^9 and "2GiB" 2 * 2^30, so 4GB hold two of the first and one of the second."""
    assert (parse_size("512MB"), parse_size("4GiB"), parse_size(7)) == (512 * 10**6, 4 * 2**30, 7)
    driver = Driver(kernel(None, ram=parse_size("4GB")))
    for name, size in (("a", "2GB"), ("b", "2GB"), ("c", "1")):
        driver.submit(name, ram=parse_size(size))
    assert driver.dispatch() == ["a", "b"]
    driver.until(20)
    for name in ("d", "e"):
        driver.submit(name, ram=parse_size("2GiB"))
    assert driver.dispatch() == ["d"]


@pytest.mark.parametrize("bad", [{"cpu": -1}, {"ram": 1.5}, {"vram": True}, {"resources": {"licence": "2"}}])
def test_a_demand_that_makes_no_sense_is_refused(bad):
    """B6: an amount is an int of 0 or more; the error gives the value."""
    with pytest.raises(ConfigError, match="is not allowed: use an int of 0 or more"):
        make_demand(**bad)
