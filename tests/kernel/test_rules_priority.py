"""Priority and order: who goes first, computed by hand in virtual time."""

from __future__ import annotations

import random

import pytest

from kernel_driver import MS, SECOND, Driver, kernel, policy
from whywait.errors import ConfigError
from whywait.kernel.limits import Priority
from whywait.kernel.order import Aging, Strict

CRITICAL, HIGH, NORMAL, LOW, BACKGROUND = 100, 80, 50, 20, 0


def busy(order=None, lasts=10, **settings) -> Driver:
    """One slot, taken by ``run`` from the start."""
    driver = Driver(kernel(1, order, **settings))
    driver.submit("run", lasts=lasts)
    driver.dispatch()
    return driver


@pytest.mark.parametrize(
    ("name", "value"),
    [("CRITICAL", 100), ("HIGH", 80), ("NORMAL", 50), ("LOW", 20), ("BACKGROUND", 0)],
)
def test_a_name_stands_for_its_number_in_any_case(name, value):
    """P1: five names; a name or an int is accepted."""
    assert getattr(Priority, name) == value
    assert Priority.parse(name) == Priority.parse(name.lower()) == Priority.parse(value) == value


@pytest.mark.parametrize("value", [-1, 101, 50.0, True, None, "urgent", ""])
def test_what_is_no_priority_is_refused_with_the_value_and_what_to_use(value):
    """P1: outside 0..100, or neither an int nor a name: an error."""
    with pytest.raises(ConfigError) as caught:
        Priority.parse(value)
    assert repr(value) in str(caught.value)
    assert "use an int from 0 to 100 or" in str(caught.value)


def test_a_priority_stays_through_waiting_pausing_and_retrying():
    """P1, T7: fixed for the task's life, and a retry has the same."""
    driver = busy(lasts=60 * SECOND)
    task = driver.submit("a", LOW, fails=1, policy=policy(retry=1))
    driver.until(30 * SECOND)
    assert driver.why(task).effective_priority == HIGH
    assert task.priority == LOW
    driver.pause(task)
    driver.resume(task)
    driver.until(60 * SECOND + 10)
    assert (task.attempt, task.priority) == (2, LOW)


def test_two_high_go_before_three_low_submitted_with_them():
    """P2, S1: on two slots both HIGH start first, then the LOW ones in submission order."""
    driver = Driver(kernel(2))
    for name in ("task1", "task2", "task3"):
        driver.submit(name, LOW)
    for name in ("task4", "task5"):
        driver.submit(name, HIGH)
    driver.until(100)
    assert driver.starts == [(0, "task4"), (0, "task5"), (10, "task1"), (10, "task2"), (20, "task3")]


@pytest.mark.parametrize("order", [Strict(), Aging()])
def test_higher_priority_first_then_who_is_ready_longer(order):
    """P2: within one priority the earlier comes first, whatever its id."""
    driver = busy(order)
    for at, name, priority in ((1, "z", NORMAL), (2, "a", NORMAL), (3, "m", CRITICAL), (4, "b", HIGH), (5, "c", LOW)):
        driver.at(at)
        driver.submit(name, priority)
    driver.until(100)
    assert driver.order == ["run", "m", "b", "z", "a", "c"]


def test_entry_decides_between_scopes_and_demands_alike():
    """P2: tasks of one instant start in the order in which they became READY, also across lanes."""
    driver = Driver(kernel(1, cpu=4))
    first, second = driver.scope("first"), driver.scope("second")
    driver.submit("d", scope=second)
    driver.submit("c", scope=first, cpu=1)
    driver.submit("b", scope=second, cpu=2)
    driver.submit("a", scope=first, cpu=1)
    driver.submit("0", scope=second)
    driver.until(100)
    assert driver.order == ["d", "c", "b", "a", "0"]


NAMES = ("b", "9", "é", "B", "10", "a")


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        (Aging(), NAMES),
        (Strict(), NAMES),
        (Aging(ties="id"), ("10", "9", "B", "a", "b", "é")),
        (Strict(ties="id"), ("10", "9", "B", "a", "b", "é")),
    ],
)
def test_tasks_woken_by_one_completion_enter_in_order_of_submission_or_id(order, expected):
    """P2: ids by code point, so capitals come before small letters and "10" before "9"."""
    driver = busy(order=order)
    for name in NAMES:
        driver.submit(name, after=["run"])
    driver.until(100)
    assert driver.order == ["run", *expected]


def test_waiting_counts_from_ready_not_from_submission():
    """P2, P4: an old task that was QUEUED until now is younger than one that has been READY meanwhile."""
    driver = Driver(kernel(1))
    driver.submit("run", lasts=100)
    driver.submit("queued", after=["run"])
    driver.until(50)
    driver.submit("ready")
    driver.until(100)
    assert driver.order == ["run", "ready"]
    driver.until(110)
    assert driver.order == ["run", "ready", "queued"]


def test_a_retried_task_goes_to_the_back():
    """P2, T7: the retry is READY since the error, behind who waited already."""
    driver = Driver(kernel(1))
    driver.submit("fails", fails=1, policy=policy(retry=1))
    driver.submit("waits")
    driver.until(100)
    assert driver.starts == [(0, "fails"), (10, "waits"), (20, "fails")]


def test_nothing_ages_into_critical():
    """P4: the default cap is 99, so that CRITICAL goes first however long others have waited."""
    driver = busy(lasts=3600 * SECOND)
    driver.submit("high", HIGH)
    driver.at(3600 * SECOND)
    driver.submit("critical", CRITICAL)
    assert driver.dispatch() == ["critical"]


def test_strict_never_helps_a_starved_task():
    """P3: a steady stream of NORMAL passes BACKGROUND for as long as it flows."""
    driver = Driver(kernel(1, Strict()))
    driver.submit("background", BACKGROUND)
    for second in range(60):
        driver.at(second * SECOND)
        driver.submit(f"n{second}", lasts=SECOND)
    driver.until(60 * SECOND)
    assert driver.order == [*(f"n{second}" for second in range(60)), "background"]
    assert driver.kernel.stats.promotions == 0


def test_background_goes_before_fresh_normal_work_at_25_seconds():
    """P4: +10 per 5 s; passed over until 25 s, then level and older, so it goes first."""
    driver = Driver(kernel(1))
    background = driver.submit("background", BACKGROUND, lasts=SECOND)
    for second in range(25):
        driver.at(second * SECOND)
        driver.submit(f"n{second}", lasts=SECOND)
        assert driver.dispatch() == [f"n{second}"]
        assert driver.why(background).effective_priority == second // 5 * 10
    driver.at(25 * SECOND)
    driver.submit("n25")
    assert driver.dispatch() == ["background"]


@pytest.mark.parametrize(
    ("aging", "base", "waited_ms", "effective"),
    [
        (Aging(), 0, 4_999, 0),
        (Aging(), 0, 5_000, 10),
        (Aging(), 0, 9_999, 10),
        (Aging(), 95, 5_000, 99),
        (Aging(), 100, 60_000, 100),
        (Aging(cap=None), 0, 60_000, 120),
        (Aging(cap=60), 55, 5_000, 60),
        (Aging(cap=60), 80, 60_000, 80),
        (Aging(every=0.002, boost=3), 50, 7, 59),
        (Aging(boost=0), 50, 60_000, 50),
    ],
)
def test_aging_gains_whole_steps_up_to_the_cap_and_never_falls(aging, base, waited_ms, effective):
    """P4: base + floor(waited / every) * boost, never lifted above the cap, never below base."""
    assert aging.effective(base, waited_ms * MS) == effective


def test_an_aging_step_by_itself_triggers_nothing():
    """P4: no timer is set for it, no event tells of it."""
    driver = busy(lasts=None, starvation_timeout_ns=10**18)
    driver.submit("waits", LOW)
    driver.dispatch()
    told = len(driver.raw)
    driver.until(100 * SECOND)
    assert driver.raw[told:] == []


@pytest.mark.parametrize(
    "bad", [{"every": 0}, {"every": -1.0}, {"every": True}, {"boost": -1}, {"boost": 1.5}, {"cap": 2.5}]
)
def test_an_aging_that_makes_no_sense_is_refused(bad):
    """P4: the error gives the setting, the value and what is allowed."""
    ((name, value),) = bad.items()
    with pytest.raises(
        ConfigError, match=rf"aging {name}(={value} is not allowed: use a|: .* is not a duration: expected)"
    ):
        Aging(**bad)


def test_a_running_task_is_never_preempted():
    """P5: CRITICAL work waits for the slot of BACKGROUND work; nobody is asked to stop."""
    driver = Driver(kernel(1))
    low = driver.submit("low", BACKGROUND, lasts=100)
    driver.until(1)
    driver.submit("critical", CRITICAL)
    driver.until(99)
    assert low.state == "RUNNING"
    assert driver.asked == []
    driver.until(100)
    assert driver.starts == [(0, "low"), (100, "critical")]


def test_leaving_from_the_middle_keeps_the_lane_in_order():
    """P6, D4: a cancelled and a paused one leave; the rest start first in, first out."""
    driver = busy()
    tasks = {name: driver.submit(name) for name in "abcdef"}
    driver.cancel(tasks["c"])
    driver.pause(tasks["e"])
    driver.until(100)
    assert driver.order == ["run", "a", "b", "d", "f"]


@pytest.mark.parametrize("order", [Strict(), Aging(every=0.01, boost=7, cap=None), Aging(every=0.005, boost=10)])
def test_the_order_is_exact_among_thousands(order):
    """P7, P2: each start equals the one that a search through all pending tasks would find."""
    driver = Driver(kernel(1, order, starvation_timeout_ns=10**18), check=False)
    chance = random.Random(7)
    driver.submit("run", lasts=300)
    waiting = []
    for at in range(300):
        driver.until(at)
        waiting += [driver.submit(None, chance.randrange(101), lasts=1) for _ in range(5)]
    for at in range(300, 400):
        driver.at(at)
        best = min(
            waiting,
            key=lambda task: (-order.effective(task.priority, driver.now_ns - task.since), task.since, task.entry),
        )
        assert driver.dispatch() == [best.id]
        waiting.remove(best)
