"""Tasks that a former kernel has accepted: what does not fit the budget of now waits, and is never lost."""

from __future__ import annotations

import pytest

from kernel_driver import Driver, kernel, policy
from whywait.errors import Infeasible

LACKING = {
    "a resource that the budget does not know": ({"licence": 1}, {}),
    "a device that the budget does not know": ({"gpu": 1}, {}),
    "more of a resource than there is": ({"cpu": 3}, {}),
    "more units than there are": ({"gpu": 2}, {"devices": {"gpu": {"0": 24}}}),
    "a larger share than any unit has": ({"gpu": 1, "vram": 30}, {"devices": {"gpu": {"0": 24}}}),
    "a unit where all are gone": ({"gpu": 1}, {"devices": {"gpu": {}}}),
}


@pytest.mark.parametrize("backfill", ["greedy", "none"])
@pytest.mark.parametrize("case", LACKING)
def test_a_kept_task_that_does_not_fit_waits_and_stops_nothing(case, backfill):
    """M13: it is READY behind the gate of what is missing, whatever ``backfill`` is; its wait is charged to that."""
    demand, budget = LACKING[case]
    driver = Driver(kernel(slots=1, cpu=2, backfill=backfill, **budget))
    (task,) = driver.submit_many(driver.submission("wide", 90, **demand), kept=True)
    driver.submit("a", cpu=2)
    driver.submit("b", cpu=1)
    driver.until(30)
    assert driver.starts == [(0, "a"), (10, "b")]
    why = driver.why(task)
    (reason,) = why.reasons
    assert (task.state, reason.name, reason.never, why.never) == ("READY", reason.name, True, True)
    assert reason.name in demand
    assert why.breakdown == {reason.name: 30_000_000}
    assert [condition.kind for condition in why.conditions] == ["raise"]


def test_a_task_that_is_not_kept_is_refused_as_before():
    """M13, T3: only what was accepted before is let in; a newcomer that could never start is refused, beside it too."""
    driver = Driver(kernel(cpu=2))
    driver.submit_many(driver.submission("old", gpu=1), driver.submission("wide", cpu=3), kept=True)
    with driver.refuses(Infeasible, "task 'new' demands 1 gpu and the limit is 0: it could never start"):
        driver.submit("new", gpu=1)
    with driver.refuses(Infeasible, "task 'new' demands 3 cpu and the limit is 2: it could never start"):
        driver.submit("new", cpu=3)


def test_a_kept_task_that_does_not_fit_is_never_dropped_for_that():
    """M13, D3: its max_wait counts no wait for what is not there; that of a task that fits counts."""
    driver = Driver(kernel(slots=1, cpu=2))
    driver.submit("long", lasts=1000)
    wide, plain = driver.submit_many(
        driver.submission("wide", cpu=3, policy=policy(max_wait=50)),
        driver.submission("plain", cpu=1, policy=policy(max_wait=50)),
        kept=True,
    )
    driver.until(500)
    assert (wide.state, plain.cause) == ("READY", "max_wait")


@pytest.mark.parametrize("backfill", ["greedy", "none"])
def test_a_kept_task_starts_when_its_gate_is_raised(backfill):
    """M13: under a budget that has what it needs it takes its turn; until it fits it holds the rest back again (B5)."""
    driver = Driver(kernel(slots=2, cpu=2, backfill=backfill))
    driver.submit("first", lasts=100, cpu=2)
    driver.submit_many(driver.submission("wide", 90, cpu=3), kept=True)
    driver.until(10)
    driver.resize("cpu", 4)
    driver.submit("small", cpu=1)
    driver.until(200)
    expected = {"greedy": [(10, "small"), (100, "wide")], "none": [(100, "wide"), (100, "small")]}
    assert driver.starts == [(0, "first"), *expected[backfill]]


def test_dependents_of_a_kept_task_that_does_not_fit_wait_and_say_so():
    """M13, V1: what waits for it is told that it can never start as things are."""
    driver = Driver(kernel(cpu=2))
    _, after = driver.submit_many(
        driver.submission("wide", cpu=3), driver.submission("next", after=["wide"]), kept=True
    )
    driver.until(10)
    (reason,) = driver.why(after).reasons
    assert (after.state, reason.never, reason.tasks[0].never) == ("QUEUED", True, True)
