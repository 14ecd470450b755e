"""Slots and budget: how much runs at once, computed by hand in virtual time."""

from __future__ import annotations

import pytest

from kernel_driver import Driver, kernel, policy
from whywait.errors import ConfigError, Infeasible, QueueFull, Rejected
from whywait.kernel.limits import Budget, Limits, make_demand
from whywait.observe.explain import in_words

HIGH, NORMAL, LOW = 80, 50, 20


# The budget, what is submitted at once, and when it starts; each task lasts 10 ms unless it says otherwise.
PLANS = {
    "S1: five tasks on two slots go two by two": (
        {"slots": 2},
        {"a": {}, "b": {}, "c": {}, "d": {}, "e": {}},
        [(0, "a"), (0, "b"), (10, "c"), (10, "d"), (20, "e")],
    ),
    "S1: without slots everything starts at once": (
        {},
        {f"t{n}": {} for n in range(99)},
        [(0, f"t{n}") for n in range(99)],
    ),
    "B1: 3 and 1 of 4 cpu fit together; 2 waits for the 3 to come back": (
        {"cpu": 4},
        {"three": {"cpu": 3}, "two": {"cpu": 2}, "one": {"cpu": 1, "lasts": 5}, "four": {"cpu": 4}},
        [(0, "three"), (0, "one"), (10, "two"), (20, "four")],
    ),
    "B1: cpu, ram and vram that the budget does not name are unlimited": (
        {},
        {"huge": {"cpu": 1000, "ram": 10**15, "vram": 10**15}},
        [(0, "huge")],
    ),
    "B2: too large for a soft limit, it starts alone, and never while anything runs": (
        {"ram": 8, "vram": 4},
        {"small": {"ram": 1}, "big": {"ram": 9, "vram": 9}, "later": {"ram": 1, "lasts": 20}},
        [(0, "small"), (0, "later"), (20, "big")],
    ),
    "B2, B4: one escapes; what it overdraws stays closed even to a small one, not to what needs none of it": (
        {"ram": 8},
        {"big": {"ram": 20}, "bigger": {"ram": 30}, "small": {"ram": 1}, "none": {}},
        [(0, "big"), (0, "none"), (10, "bigger"), (20, "small")],
    ),
    "B2: while nothing runs the order alone decides, even if a later one would fit": (
        {"ram": 8},
        {"fits": {"priority": LOW, "ram": 8}, "too big": {"priority": HIGH, "ram": 9}},
        [(0, "too big"), (10, "fits")],
    ),
    "B3: three licences are never exceeded; disk may be, by one alone": (
        {"licence": 3, "disk": 10},
        {"a": {"licence": 2}, "b": {"licence": 2}, "c": {"licence": 1, "disk": 11}},
        [(0, "a"), (10, "b"), (20, "c")],
    ),
    "B4: a task is not gated by what it demands none of": (
        {"cpu": 1, "ram": 1, "vram": 1},
        {"greedy": {"cpu": 1, "ram": 5}, "other": {"vram": 1}, "nothing": {}, "zero": {"cpu": 0, "ram": 0}},
        [(0, "greedy"), (0, "other"), (0, "nothing"), (0, "zero")],
    ),
    "B5: greedy lets later ones pass that fit": (
        {"cpu": 4},
        {"runs": {"cpu": 2}, "wide": {"cpu": 3}, "small": {"cpu": 1}, "no cpu": {"priority": LOW}},
        [(0, "runs"), (0, "small"), (0, "no cpu"), (10, "wide")],
    ),
}


@pytest.mark.parametrize("plan", PLANS)
def test_what_starts_when(plan):
    """S1, B1, B2, B3, B4, B5: as the name of the plan says."""
    settings, tasks, starts = PLANS[plan]
    driver = Driver(kernel(**settings))
    for name, options in tasks.items():
        driver.submit(name, **options)
    driver.until(100)
    assert driver.starts == starts


@pytest.mark.parametrize(
    ("demand", "text"),
    [
        ({"cpu": 5}, "task 'more' demands 5 cpu and the limit is 4: it could never start"),
        ({"licence": 4}, "task 'more' demands 4 licence and the limit is 3"),
        ({"gpu0": 1}, "task 'more' demands 1 of 'gpu0'; the budget has only: cpu, licence"),
    ],
)
def test_a_demand_that_can_never_be_met_is_infeasible(demand, text):
    """B1, B3: exactly all of a cap is feasible, one more is not, also while nothing runs."""
    driver = Driver(kernel(None, cpu=4, licence=3))
    driver.submit("all", cpu=4, licence=3)
    with driver.refuses(Infeasible, text) as caught:
        driver.submit("more", **demand)
    assert (caught.value.check, caught.value.cause) == ("demand feasible", "infeasible")
    assert driver.story("rejected") == ["0 rejected more infeasible"]


@pytest.mark.parametrize(
    ("make", "text"),
    [
        *[(lambda value=value: Limits(slots=value), f"slots {value!r} is not allowed: use an int of 1 or more, or None")
          for value in (0, -1, 1.5, True, "2")],
        (lambda: Budget({"paused": 1}), "a resource cannot be named 'paused': the name is taken by a wait cause"),
        (lambda: Budget({"a": 1}, {"a": 1}), "resource 'a' is both hard and soft: choose one"),
        (lambda: Budget({"a": -1}), "budget a -1 is not allowed: use an int of 0 or more"),
        (lambda: Budget({}, {"a": 1.5}), "budget a 1.5 is not allowed: use an int of 0 or more"),
        *[(lambda bad=bad: make_demand(**bad), "is not allowed: use an int of 0 or more")
          for bad in ({"cpu": -1}, {"ram": 1.5}, {"vram": True}, {"resources": {"licence": "2"}})],
        (lambda: kernel(backfill="GREEDY"), "backfill 'GREEDY' is not allowed: use one of greedy, none"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(make, text):
    """S1, B3, B5, B6: the error gives the name, the value and what is allowed."""
    with pytest.raises(ConfigError, match=text):
        make()


def test_more_slots_let_more_start_and_fewer_let_nothing_start_until_enough_have_ended():
    """S1: what runs goes on; without slots nothing starts, as in a service that is about to end."""
    driver = Driver(kernel(2))
    tasks = [driver.submit(name, lasts=None) for name in "abcde"]
    assert driver.dispatch() == ["a", "b"]
    driver.resize("slot", 3)
    assert driver.dispatch() == ["c"]
    driver.resize("slot", 1)
    for task, starts in zip(tasks, ([], [], ["d"]), strict=False):
        driver.end(task)
        assert driver.dispatch() == starts
    driver.resize("slot", 0)
    driver.end(tasks[3])
    assert driver.dispatch() == []
    assert in_words(driver.why(tasks[4])).in_short == "slots: there are none now, nothing more starts"
    driver.resize("slot", 1)
    assert driver.dispatch() == ["e"]
    assert driver.story("limit_changed") == [f"0 limit_changed slot {limit}" for limit in (3, 1, 0, 1)]


def test_a_limit_that_is_raised_lets_those_start_that_fit_now():
    """B1: a resource that was not there can come, and go while it is in use."""
    driver = Driver(kernel(None, cpu=1))
    driver.submit("small", cpu=1)
    driver.submit("large", cpu=1)
    assert driver.dispatch() == ["small"]
    driver.resize("cpu", 2)
    assert driver.dispatch() == ["large"]
    driver.resize("spot", 1)
    driver.submit("first", spot=1)
    driver.submit("second", spot=1)
    assert driver.dispatch() == ["first"]
    driver.resize("spot", 0)
    driver.until(20)
    assert driver.order[-1] == "first"
    for name, limit in (("slot", -1), ("cpu", -1), ("dependency", 1)):
        with driver.refuses(ConfigError, f"limit {name} {limit}"):
            driver.resize(name, limit)


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


@pytest.mark.parametrize("where", ["scope", "child"])
def test_a_scope_is_busy_when_its_slot_or_that_of_its_parent_is_taken(where):
    """S3, S5: though the authority has more."""
    driver = Driver(kernel(3))
    narrow = driver.scope("narrow", slots=1, when_busy="reject")
    inside = narrow if where == "scope" else driver.scope("child", narrow, when_busy="reject")
    driver.submit("a", scope=narrow)
    with driver.refuses(Rejected, "the only slot of scope 'narrow' is taken or spoken for"):
        driver.submit("b", scope=inside)


def test_dependencies_and_budget_never_make_it_busy():
    """S3: QUEUED tasks count nowhere; a newcomer that waits for others or for cpu is let in beside a free slot."""
    driver = Driver(kernel(2, when_busy="reject", cpu=1))
    driver.submit("runs", cpu=1)
    driver.dispatch()
    queued = [driver.submit(f"queued{number}", after=["runs"]) for number in range(5)]
    assert {task.state for task in queued} == {"QUEUED"}
    assert driver.submit("too much now", cpu=1).state == "READY"


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


def test_backfill_none_holds_the_rest_back_until_the_first_fits():
    """B5, V7: the one behind scope slots is passed over; `wide` holds all behind it, also what needs no cpu."""
    driver = Driver(kernel(None, backfill="none", cpu=4))
    full = driver.scope("full", slots=1)
    driver.submit("runs", cpu=2, lasts=10)
    driver.submit("in full", scope=full, lasts=30)
    driver.dispatch()
    driver.submit("behind full", 100, scope=full)
    driver.submit("wide", HIGH, cpu=3)
    driver.submit("small", NORMAL, cpu=1)
    driver.submit("no cpu", LOW)
    driver.until(9)
    causes = {"small": "held_back", "no cpu": "held_back", "wide": "cpu", "behind full": "scope_slots"}
    assert {name: driver.waits(driver.kernel.find(name)) for name in causes} == {n: {c: 9} for n, c in causes.items()}
    driver.submit("urgent", 90)
    driver.until(100)
    assert driver.starts[2:] == [(9, "urgent"), (10, "wide"), (10, "small"), (10, "no cpu"), (30, "behind full")]
