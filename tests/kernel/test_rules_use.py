"""U: what bodies really use, as the kernel is told it."""

import pytest

from kernel_driver import Driver, end_of, kernel, policy
from whywait.errors import ConfigError
from whywait.kernel.kernel import Kernel
from whywait.kernel.limits import Budget, Limits, Retry


def driver_with(overdraft="count", slots=4, **soft):
    return Driver(Kernel(Limits(slots=slots), Budget({}, soft), overdraft=overdraft))


def free_ram(driver):
    (gate,) = driver.kernel.snapshot(driver.now_ns).budget
    return gate.free


def test_the_budget_counts_what_is_used_if_that_is_more():
    """U2: the larger of asked and measured; what is used no more is free again."""
    driver = driver_with(ram=10)
    task = driver.submit("t", ram=4, lasts=None)
    driver.until(0)
    for ram, free in ((3, 6), (7, 3), (12, -2), (5, 5), (0, 6)):
        driver.measured(task, ram)
        assert free_ram(driver) == free
    driver.measured(task, 9)
    driver.end(task, "success")
    assert free_ram(driver) == 10


def test_a_task_waits_for_memory_that_others_use_beyond_what_they_asked_for():
    """U2, V1: the reason names the holder with what is counted for it, and the task starts when it is used no more."""
    driver = driver_with(ram=10)
    greedy = driver.submit("greedy", ram=4, lasts=None)
    driver.until(0)
    driver.measured(greedy, 8)
    waits = driver.submit("waits", ram=5, lasts=1)
    driver.until(5)
    (reason,) = driver.why(waits).reasons
    assert (reason.name, reason.need, reason.free) == ("ram", 5, 2)
    assert [(holder.id, holder.amount, holder.asked) for holder in reason.holders] == [("greedy", 8, 4)]
    assert driver.why(greedy).holds == (("ram", 8),)
    driver.measured(greedy, 5)
    driver.until(6)
    assert driver.starts[-1] == (5, "waits")
    assert driver.waits(waits) == {"ram": 5}


def test_memory_of_a_task_that_asked_for_none_counts_but_breaks_no_promise():
    """U2, B4: the budget counts it; it is neither told as overdrawn nor ended."""
    driver = driver_with("kill", ram=10)
    task = driver.submit("t", lasts=None)
    driver.until(0)
    driver.measured(task, 7)
    assert (free_ram(driver), task.state) == (3, "RUNNING")
    assert (driver.why(task).demand, driver.why(task).holds) == ((), (("ram", 7),))
    assert driver.story("overdrawn") == []
    driver.end(task, "success")
    assert free_ram(driver) == 10


@pytest.mark.parametrize(
    ("overdraft", "told"),
    [
        ("count", ["measured t 5", "overdrawn t 4 5", "measured t 6", "measured t 4", "measured t 9"]),
        ("warn", ["overdrawn t 4 5"]),
    ],
)
def test_an_overdraft_is_told_once(overdraft, told):
    """U2: with what was asked for and what is used; every change of what counts is told, and "warn" counts nothing."""
    driver = driver_with(overdraft, ram=10)
    task = driver.submit("t", ram=4, lasts=None)
    driver.until(0)
    for ram in (4, 5, 5, 6, 2, 9):
        driver.measured(task, ram)
    assert driver.story("measured", "overdrawn") == [f"0 {line}" for line in told]
    assert free_ram(driver) == (1 if overdraft == "count" else 6)


def test_with_kill_an_overdraft_ends_the_task():
    """U2: ERROR/out_of_memory when the body has ended; tasks that depend on it end then."""
    driver = driver_with("kill", ram=10)
    task = driver.submit("t", ram=4, lasts=100)
    after = driver.submit("after", after=["t"])
    driver.until(5)
    driver.measured(task, 9)
    driver.until(6)
    assert end_of(task) == ("DISPOSED", "error", "out_of_memory")
    assert end_of(after) == ("DISPOSED", "aborted", "dependency")
    assert driver.asked == [("abort", "t")]
    assert free_ram(driver) == 10


@pytest.mark.parametrize("verb", ["cancel", "dispose"])
def test_a_task_that_is_ended_for_its_memory_can_be_ended_for_good(verb):
    """U2, X3, O4: no retry follows a cancel or a disposal that comes before the body has ended."""
    driver = driver_with("kill", ram=10)
    scope = driver.scope("s")
    task = driver.submit("t", scope=scope, ram=4, lasts=None, obeys=False, policy=policy(retry=Retry(3)))
    driver.until(0)
    driver.measured(task, 9)
    driver.cancel(task) if verb == "cancel" else driver.dispose(scope)
    driver.end(task, "error")
    assert (task.outcome, task.attempt) == ("aborted", 1)


def test_a_retry_may_ask_for_more_up_to_the_limit():
    """U3: each new attempt asks for so many times more; the event of the retry tells it."""
    driver = driver_with("kill", ram=10)
    task = driver.submit("t", ram=3, lasts=5, fails=3, policy=policy(retry=Retry(3, grow={"ram": 2.0})))
    asked = []
    for time_ms in (0, 5, 10, 15):
        driver.until(time_ms)
        asked.append(dict(task.demand)["ram"])
    assert asked == [3, 6, 10, 10]
    driver.until(100)
    told = [dict(event.details).get("demand") for event in driver.events if event.kind == "TASK_RETRIED"]
    assert told == [(("ram", 6),), (("ram", 10),), None]


def test_memory_of_devices_grows_up_to_the_largest_unit():
    """U3, N2: what no unit has is never asked for."""
    driver = Driver(Kernel(Limits(), Budget({}, {}, {"gpu": {"0": 10, "1": 24}})))
    task = driver.submit("t", vram=8, lasts=5, fails=2, policy=policy(retry=Retry(2, grow={"vram": 2.0})))
    driver.until(5)
    assert dict(task.demand)["vram"] == 16
    driver.until(50)
    assert dict(task.demand)["vram"] == 24


def test_what_makes_no_sense_is_refused():
    """U2, U3, E1: the value, and what would do."""
    with pytest.raises(ConfigError, match="overdraft 'maybe' is not allowed: use one of count, warn, kill"):
        Kernel(overdraft="maybe")
    for wrong, match in (
        ({"grow": {"ram": 0.5}}, "grow ram 0.5 is not allowed: use a number from 1 to 1000"),
        ({"grow": {"ram": "2"}}, "grow ram '2' is not allowed"),
        ({"grow": 2}, "grow 2 is not allowed: use factors by name"),
        ({"grow": {"": 2}}, "grow names ''"),
        ({"on_exit": (0,)}, "on_exit .* is not allowed: use exit codes from 1 to 255"),
        ({"on_exit": (True,)}, "on_exit"),
    ):
        with pytest.raises(ConfigError, match=match):
            Retry(1, **wrong)
    assert Retry(1, on_exit=137) == Retry(1, on_exit=(137,))
    assert hash(Retry(1, grow={"ram": 2})) == hash(Retry(1, grow={"ram": 2}))


def test_facts_are_told_with_the_end():
    """U1, V3: what the engine knows of an end stands in its event, whatever the outcome."""
    driver = Driver(kernel(2))
    good, bad = driver.submit("good", lasts=None), driver.submit("bad", lasts=None)
    driver.until(0)
    facts = (("exit_code", 0), ("peak_ram", 5))
    driver.kernel.ended(driver.now_ns, good, "success", None, True, facts)
    driver.kernel.ended(driver.now_ns, bad, "error", "exit_code", True, (("exit_code", 3),))
    ends = {event.name: dict(event.details) for event in driver.events if event.kind == "TASK_FINISHED"}
    assert ends == {
        "good": {"outcome": "success", "exit_code": 0, "peak_ram": 5},
        "bad": {"outcome": "error", "cause": "exit_code", "exit_code": 3},
    }
