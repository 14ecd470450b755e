"""Timeouts and retries, computed by hand in virtual time."""

from __future__ import annotations

import pytest

from kernel_driver import MS, Driver, kernel, policy
from whywait.errors import ConfigError
from whywait.kernel.durations import LONGEST_S
from whywait.kernel.limits import Retry


def test_timeout_and_retry_come_from_the_authority_the_scope_or_the_task():
    """T6: the nearest wins."""
    driver = Driver(kernel(None, policy=policy(timeout=30)))
    plain = driver.scope("plain")
    own = driver.scope("own", policy=policy(timeout=20))
    child = driver.scope("child", own)
    for name, scope, rule in (("a", plain, None), ("b", own, None), ("c", child, None), ("d", own, policy(timeout=5))):
        driver.submit(name, lasts=100, scope=scope, policy=rule)
    driver.submit("e", lasts=100, scope=own, policy=policy())
    driver.until(200)
    assert driver.story("finished") == [
        "5 finished d timeout run_timeout",
        "20 finished b timeout run_timeout",
        "20 finished c timeout run_timeout",
        "30 finished a timeout run_timeout",
        "100 finished e success",
    ]


def test_a_timeout_counts_from_activation():
    """T6: 10 ms of waiting are not counted; a body that ends at the very instant has succeeded."""
    driver = Driver(kernel(1))
    driver.submit("run")
    driver.submit("late", lasts=11, policy=policy(timeout=10))
    driver.submit("just", lasts=10, policy=policy(timeout=10))
    driver.until(100)
    assert driver.story("finished")[1:] == ["20 finished late timeout run_timeout", "30 finished just success"]


def test_a_timeout_sends_the_abort_signal_and_outlasts_what_the_body_returns():
    """T6, T4: TIMEOUT though the body returns normally later; it is never retried."""
    driver = Driver(kernel(1))
    task = driver.submit("task", lasts=30, obeys=False, policy=policy(timeout=10, retry=3))
    driver.until(10)
    assert driver.asked == [("abort", "task")]
    driver.until(50)
    assert (task.outcome, task.cause, task.attempt) == ("timeout", "run_timeout", 1)
    assert driver.story("abort_asked", "finished") == [
        "10 abort_asked task run_timeout",
        "30 finished task timeout run_timeout",
    ]


def test_a_retry_has_a_new_number_and_backs_off_queued():
    """T7, V7: new number, same id, priority, demand and payload; backoff doubles from 30 ms."""
    driver = Driver(kernel(1, cpu=2))
    task = driver.submit("x", 70, fails=2, cpu=1, policy=policy(retry=Retry(2, backoff=0.03)))
    first = task.number
    driver.until(10)
    second = task.number
    assert task is driver.kernel.find("x")
    assert second > first
    assert (task.state, task.attempt) == ("QUEUED", 2)
    assert (task.id, task.priority, task.demand, task.job.fails) == ("x", 70, (("cpu", 1),), 2)
    (reason,) = driver.why(task).reasons
    assert (reason.name, reason.until_ns) == ("backoff", 40 * MS)
    driver.until(200)
    assert driver.story("started", "finished", "retried", "ready") == [
        "0 started x",
        "10 finished x error exception",
        f"10 retried x {first} 2 QUEUED",
        "40 ready x",
        "40 started x",
        "50 finished x error exception",
        f"50 retried x {second} 3 QUEUED",
        "110 ready x",
        "110 started x",
        "120 finished x success",
    ]
    assert (task.attempt, task.outcome, task.waits) == (3, "success", {"backoff": 60 * MS})
    assert [attempt.number for attempt in task.earlier] == [first, second]
    assert driver.waits(task) == {"backoff": 90}
    assert driver.stats()["by_outcome"]["error"] == 0


def test_retries_end_with_the_last_error():
    """T7: two retries, three errors, then the task has failed."""
    driver = Driver(kernel(1))
    task = driver.submit("x", outcome="error", policy=policy(retry=2))
    driver.submit("y", after=[task])
    driver.until(100)
    assert driver.starts == [(0, "x"), (10, "x"), (20, "x")]
    assert (task.outcome, task.attempt) == ("error", 3)
    assert driver.story("cancelled") == ["30 cancelled y dependency x"]


def test_dependents_follow_a_task_through_its_retries():
    """T7, G6: both kinds of dependents wait for the final outcome, also one that names the old attempt."""
    driver = Driver(kernel(1))
    old = driver.submit("x", fails=1, policy=policy(retry=1))
    driver.submit("needs", after=[old])
    driver.submit("end", after_ended=[old])
    driver.until(10)
    driver.submit("late", after=[old])
    driver.until(100)
    assert driver.starts == [(0, "x"), (10, "x"), (20, "needs"), (30, "end"), (40, "late")]


@pytest.mark.parametrize(
    ("retry", "number", "jitter", "seconds"),
    [
        (Retry(9), 1, 1.0, 0),
        (Retry(9, backoff=0.5), 1, 0.0, 0.5),
        (Retry(9, backoff=0.5), 4, 0.0, 4.0),
        (Retry(9, backoff=0.5, factor=1), 4, 0.0, 0.5),
        (Retry(9, backoff=0.5, max_backoff=3), 9, 0.0, 3.0),
        (Retry(9, backoff=1, jitter=0.25), 1, 1.0, 1.25),
        (Retry(9, backoff=1, jitter=0.25), 1, -1.0, 0.75),
        (Retry(9, backoff="500ms"), 2, 0.0, 1.0),
        (Retry(9, backoff=LONGEST_S), 9999, 0.0, 60.0),
    ],
)
def test_the_backoff_grows_up_to_its_maximum(retry, number, jitter, seconds):
    """T7: optionally with jitter, in both directions."""
    assert retry.delay_ns(number, jitter) == seconds * 1000 * MS


@pytest.mark.parametrize("retry", [Retry(1), Retry(2, 0.5, on=(OSError, KeyError), on_exit=3, grow={"ram": 2.0})])
def test_a_retry_prints_as_it_can_be_typed_again(retry):
    """T7: with what is not the default."""
    assert eval(repr(retry)) == retry
    assert repr(Retry(2, backoff="500ms", on=OSError)) == "Retry(2, backoff=0.5, on=(OSError,))"


@pytest.mark.parametrize(
    ("bad", "text"),
    [
        ({"times": -1}, "retry times -1 is not allowed: use an int of 0 or more"),
        ({"times": True}, "retry times True is not allowed: use an int of 0 or more"),
        ({"times": 1, "backoff": -0.5}, "retry backoff: -0.5 is not a duration: expected a number of seconds"),
        ({"times": 1, "max_backoff": float("inf")}, "retry max_backoff: inf is not a duration"),
        ({"times": 1, "jitter": 1.5}, "retry jitter 1.5 is not allowed: use a number from 0 to 1"),
    ],
)
def test_a_retry_that_makes_no_sense_is_refused(bad, text):
    """T7: the error gives the setting, the value and what is allowed."""
    with pytest.raises(ConfigError, match=text):
        Retry(**bad)
