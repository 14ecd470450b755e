"""Drops, none of them silent, computed by hand in virtual time."""

from __future__ import annotations

import pytest

from kernel_driver import Driver, end_of, kernel, policy
from whywait.errors import DuplicateTask, Infeasible, QueueFull, Rejected, UnknownDependency


def full(pending: int, **settings) -> Driver:
    """One slot, taken by ``run``, and room for so many pending tasks."""
    driver = Driver(kernel(1, queue_limit=pending, **settings))
    driver.submit("run", 100, lasts=20)
    driver.dispatch()
    return driver


def test_queue_limit_counts_queued_ready_and_paused_tasks():
    """D1: three pending ones fill it; the running one does not count."""
    driver = full(3)
    driver.submit("queued", after=["run"])
    driver.submit("ready")
    driver.pause(driver.submit("paused"))
    text = "the authority has 3 pending tasks and queue_limit is 3: task 'more' is refused"
    with driver.refuses(QueueFull, text) as caught:
        driver.submit("more", 100)
    assert (caught.value.check, caught.value.cause) == ("queue_limit", "queue_full")
    assert driver.story("dropped") == ["0 dropped more queue_full"]


def test_queue_limit_is_checked_before_anything_of_the_instant_starts():
    """D1: two slots are free, but the second of the same instant finds the queue full."""
    driver = Driver(kernel(2, queue_limit=1))
    driver.submit("a")
    with driver.refuses(QueueFull, "queue_limit is 1"):
        driver.submit("b")
    assert driver.dispatch() == ["a"]
    driver.submit("b")
    assert driver.dispatch() == ["b"]


def test_a_scope_has_a_queue_limit_of_its_own():
    """D1: the scope is full, the authority is not."""
    driver = full(3)
    scope = driver.scope("s", queue_limit=1)
    driver.submit("a", scope=scope)
    with driver.refuses(QueueFull, "scope 's' has 1 pending task and queue_limit is 1"):
        driver.submit("b", scope=scope)
    driver.submit("b")


def test_displace_drops_the_newest_of_the_lowest_priority_that_the_full_limit_counts():
    """D2, G3: of a full scope with 10, 0 and 0 the second 0 goes, and its child with it; the 0 outside stays."""
    driver = full(9, overflow="displace")
    scope = driver.scope("s", queue_limit=4, overflow="displace")
    driver.submit("outside", 0)
    for name, priority in (("ten", 10), ("old", 0), ("new", 0)):
        driver.submit(name, priority, scope=scope)
    driver.submit("child", 100, scope=scope, after=["new"])
    driver.submit("newcomer", 50, scope=scope)
    assert driver.story()[-3:] == [
        "0 dropped new displaced",
        "0 cancelled child dependency new",
        "0 submitted newcomer READY",
    ]


@pytest.mark.parametrize("priority", [20, 10])
def test_displace_needs_a_lower_base_priority(priority):
    """D2, P4: an equal one is not displaced; aging does not matter, neither for nor against it."""
    driver = full(1, overflow="displace")
    driver.submit("waits", 20, lasts=None)
    with driver.refuses(QueueFull, "task 'newcomer' is refused"):
        driver.submit("newcomer", priority)
    driver.pause(driver.kernel.find("run"))
    driver.until(60_000)
    assert driver.why(driver.kernel.find("waits")).effective_priority == 99
    driver.submit("higher", 21)
    assert driver.kernel.find("waits") == "rejected"


@pytest.mark.parametrize("kinds", [(x, y) for x in ("after", "after_ended") for y in ("after", "after_ended")])
def test_displace_spares_what_the_newcomer_depends_on_through_others(kinds):
    """D2: by `after` or `after_ended`, at each step."""
    driver = full(3, overflow="displace")
    driver.submit("far", 0)
    driver.submit("near", 100, **{kinds[0]: ["far"]})
    driver.submit("free", 30)
    driver.submit("newcomer", 50, **{kinds[1]: ["near"]})
    assert driver.story("dropped") == ["0 dropped free displaced"]


@pytest.mark.parametrize("kind", ["after", "after_ended"])
def test_displace_spares_a_task_with_a_descendant_that_the_newcomer_depends_on(kind):
    """D2: `root` is the lowest, but with it would end `leaf`, which the newcomer awaits; so the newcomer is dropped."""
    driver = full(3, overflow="displace")
    driver.submit("root", 0)
    driver.submit("middle", 100, after=["root"])
    driver.submit("leaf", 100, after=["middle"])
    with driver.refuses(QueueFull, "task 'newcomer' is refused"):
        driver.submit("newcomer", 50, **{kind: ["leaf"]})
    assert driver.story("dropped") == ["0 dropped newcomer queue_full"]


def test_several_full_limits_lose_one_task_that_all_of_them_count():
    """D2, S5: a retry has made the authority's queue longer than its limit; yet a newcomer displaces one task."""
    driver = full(3, overflow="displace")
    scope = driver.scope("s", queue_limit=1, overflow="displace")
    failing = driver.submit("failing", 90, lasts=1, fails=1, slot=False, policy=policy(retry=1))
    driver.dispatch()
    for name in ("a", "b"):
        driver.submit(name, 0)
    inside = driver.submit("inside", 10, scope=scope)
    driver.pause(driver.kernel.find("a"))
    driver.at(1)
    assert failing.state == "READY"
    driver.submit("newcomer", 50, scope=scope)
    assert driver.story("dropped") == ["1 dropped inside displaced"]
    assert inside.outcome == "rejected"


def with_failed(**settings) -> Driver:
    """A full queue of one, `low`, and a task `failed` that has failed."""
    driver = Driver(kernel(1, queue_limit=1, **settings))
    driver.submit("failed", lasts=1, outcome="error")
    driver.until(1)
    driver.submit("run", 100, lasts=None)
    driver.dispatch()
    driver.submit("low", 0, lasts=1)
    return driver


@pytest.mark.parametrize("overflow", ["displace", "reject"])
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0)])
def test_tasks_of_a_batch_that_end_at_once_take_no_place(overflow, order):
    """D2, G1, D6: neither the one whose dependency has failed nor those of the batch that depend on it."""
    driver = with_failed(overflow=overflow)
    batch = [
        driver.submission("first", 50, after=["failed"]),
        driver.submission("second", 50, after=["first"]),
        driver.submission("third", 50, after=["second", "run"]),
    ]
    tasks = driver.submit_many(*(batch[index] for index in order))
    assert [end_of(task) for task in tasks] == [("DISPOSED", "aborted", "dependency")] * 3
    assert driver.story("dropped") == []
    assert driver.kernel.find("low").state == "READY"


def test_a_newcomer_that_ends_at_once_counts_against_no_other_limit():
    """D2, S3, S4: `max_spawn` and `when_busy` do not count it, and it is not refused by them."""
    driver = Driver(kernel(1, max_spawn=3, when_busy="reject"))
    driver.submit("failed", lasts=1, outcome="error")
    driver.until(1)
    driver.submit("run", lasts=1)
    driver.dispatch()
    for name in "abc":
        assert end_of(driver.submit(name, after=["failed"]))[1:] == ("aborted", "dependency")
    driver.until(2)
    driver.submit("third", lasts=None)
    driver.dispatch()
    assert end_of(driver.submit("d", after=["failed"]))[1:] == ("aborted", "dependency")
    with driver.refuses(Rejected, "the only slot"):
        driver.submit("busy")


def test_paused_and_queued_tasks_can_be_displaced():
    """D2: all pending ones count."""
    driver = full(2, overflow="displace")
    driver.submit("queued", 10, after=["run"])
    driver.pause(driver.submit("paused", 5))
    driver.submit("x", 50)
    driver.submit("y", 50)
    assert driver.story("dropped") == ["0 dropped paused displaced", "0 dropped queued displaced"]


def test_max_wait_drops_who_is_still_ready_after_a_last_chance():
    """D3, C0: at 20 ms the slot is free, so the first of two starts and the second is dropped."""
    driver = full(9)
    driver.submit("lucky", policy=policy(max_wait=20))
    driver.submit("unlucky", policy=policy(max_wait=20))
    late = driver.submit("late", policy=policy(max_wait=21), lasts=1)
    driver.submit("child", after=["unlucky"])
    driver.until(19)
    assert driver.story("dropped") == []
    driver.until(50)
    assert driver.story("started", "dropped", "cancelled")[1:] == [
        "20 started lucky",
        "20 dropped unlucky max_wait",
        "20 cancelled child dependency unlucky",
        "21 dropped late max_wait",
    ]
    assert driver.waits(late) == {"slot_higher": 20, "slot": 1}


def test_several_expire_in_entry_order():
    """D3, C0: nobody looked until 12 ms; then they go by entry, not by priority or by who was due first."""
    driver = full(9)
    driver.submit("first", 0, policy=policy(max_wait=10))
    driver.submit("second", 90, policy=policy(max_wait=8))
    driver.submit("third", 50, policy=policy(max_wait=9))
    driver.stall_until(12)
    assert driver.story("dropped") == [f"12 dropped {name} max_wait" for name in ("first", "second", "third")]


def test_queued_and_paused_time_does_not_count_as_waiting():
    """D3: QUEUED until 20, paused from 25 to 65; READY again then, it has 10 ms more."""
    driver = full(9)
    task = driver.submit("task", after=["run"], policy=policy(max_wait=10))
    driver.until(19)
    driver.submit("long", 100, lasts=500)
    driver.until(25)
    assert task.state == "READY"
    driver.pause(task)
    driver.until(65)
    driver.resume(task)
    driver.until(74)
    assert task.state == "READY"
    driver.until(75)
    assert end_of(task) == ("DISPOSED", "rejected", "max_wait")
    assert driver.waits(task) == {"dependency": 20, "slot_higher": 15, "paused": 40}


def test_max_wait_of_zero_is_a_chance_to_start_at_once():
    """D3: dropped at the instant of its submission, unless a slot is free."""
    driver = full(9)
    task = driver.submit("task", policy=policy(max_wait=0))
    driver.dispatch()
    assert end_of(task) == ("DISPOSED", "rejected", "max_wait")
    driver.until(20)
    driver.submit("again", policy=policy(max_wait=0))
    assert driver.dispatch() == ["again"]


BAD = {
    "infeasible": ({"cpu": 2}, Infeasible, "task 'bad' demands 2 cpu"),
    "duplicate": ({"name": "run"}, DuplicateTask, "task id 'run' is used in scope ''"),
    "twice": ({"name": "good"}, DuplicateTask, r"task id 'good' is used in scope '' \(twice in this batch\)"),
    "unknown": ({"after": ["nobody"]}, UnknownDependency, "task 'bad' waits for 'nobody'"),
}


@pytest.mark.parametrize("case", BAD)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_one_refusal_refuses_the_batch_and_names_the_task(case, place):
    """D6: wherever it stands in the batch, nothing stays; one event tells."""
    request, error, text = BAD[case]
    driver = full(9, cpu=1)
    batch = [driver.submission("good"), driver.submission(None, after=["good"])]
    batch.insert(place, driver.submission(**{"name": "bad", **request}))
    told = len(driver.raw)
    with driver.refuses(error, text) as caught:
        driver.submit_many(*batch)
    (event,) = driver.events[told:]
    assert event.kind == "TASK_REJECTED"
    assert event.details == (("cause", caught.value.cause),)


def test_a_batch_is_counted_as_a_whole():
    """D6, D1: two of three would fit into the queue; the third is named and none enters."""
    driver = full(2)
    with driver.refuses(QueueFull, "task 'c' is refused"):
        driver.submit_many(*(driver.submission(name) for name in "abc"))
    assert driver.story("dropped") == ["0 dropped c queue_full"]
    assert [task.id for task in driver.submit_many(driver.submission("a"), driver.submission("b"))] == ["a", "b"]


def test_a_refused_batch_displaces_nothing():
    """D6, D2: the first newcomer has a victim, the second has none."""
    driver = full(1, overflow="displace")
    driver.submit("waits", 20)
    with driver.refuses(QueueFull, "task 'second' is refused"):
        driver.submit_many(driver.submission("first", 50), driver.submission("second", 50))
