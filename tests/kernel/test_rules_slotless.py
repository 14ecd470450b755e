"""Tasks that take no slot: they run beside all others, behind their other gates."""

from __future__ import annotations

import pytest

from kernel_driver import MS, Driver, kernel
from whywait.errors import Rejected
from whywait.kernel.order import Strict
from whywait.kernel.reasons import Condition


def test_it_takes_no_slot_from_others():
    """S6: with it running, as many others start as there are slots, of the authority and of the scope."""
    driver = Driver(kernel(2))
    scope = driver.scope("s", slots=1)
    driver.submit("beside", scope=scope, slot=False, lasts=None)
    driver.submit("a", scope=scope, lasts=None)
    driver.submit("b", lasts=None)
    driver.submit("c", lasts=None)
    driver.until(5)
    assert driver.order == ["beside", "a", "b"]
    picture = driver.kernel.snapshot(driver.now_ns)
    assert (picture.slots.free, picture.counts.running) == (0, 3)
    assert [(task.id, task.slot) for task in picture.running] == [("beside", False), ("a", True), ("b", True)]


@pytest.mark.parametrize(
    ("gate", "setting", "demand"),
    [("cpu", {"cpu": 2}, {"cpu": 2}), ("ram", {"ram": 4}, {"ram": 3}), ("licence", {"licence": 1}, {"licence": 1})],
)
def test_its_budget_gates_hold(gate, setting, demand):
    """S6: it waits for the budget like any other, says so, and starts when there is enough."""
    driver = Driver(kernel(1, **setting))
    driver.submit("holder", lasts=20, **demand)
    task = driver.submit("beside", slot=False, lasts=5, **demand)
    driver.until(10)
    why = driver.why(task)
    assert (why.state, why.primary, [reason.name for reason in why.reasons]) == ("READY", gate, [gate])
    driver.until(20)
    assert driver.starts[-1] == (20, "beside")
    assert driver.waits(task) == {gate: 20}


def test_it_is_not_starved_and_starves_no_other():
    """S6, V2: neither while it waits for what a higher priority holds, nor by holding what a lower one waits for."""
    driver = Driver(kernel(1, Strict(), cpu=1, starvation_timeout_ns=5 * MS))
    driver.submit("high", 80, cpu=1, lasts=40)
    beside = driver.submit("beside", 20, slot=False, cpu=1, lasts=40)
    driver.until(30)
    why = driver.why(beside)
    assert (why.starved, why.starved_ns, why.starved_by) == (False, 0, ())
    driver.until(45)
    low = driver.submit("low", 0, cpu=1)
    driver.until(60)
    assert driver.why(low).starved is False
    driver.until(200)
    assert driver.story("starved") == []
    assert (low.starved_ns, beside.starved_ns) == (0, 0)
    assert driver.waits(low) == {"cpu": 35}


def test_what_runs_beside_without_the_resource_does_not_keep_a_soft_limit_closed():
    """S6, B2, R3: a sampler that never ends holds no ram, so the huge task need not wait for it."""
    driver = Driver(kernel(1, ram=4, vram=2))
    driver.submit("sampler", slot=False, vram=1, lasts=None)
    driver.submit("huge", ram=9, lasts=10)
    driver.submit("huge too", ram=9, vram=2, lasts=10)
    driver.until(100)
    assert driver.starts == [(0, "sampler"), (0, "huge")]
    task = driver.kernel.find("huge too")
    assert driver.why(task).conditions == (Condition("free", "vram", None, 1),)


def test_it_neither_holds_back_nor_is_held_back():
    """S6, B5, R3: backfill="none": the foreground waits for the first that does not fit; what goes beside does not."""
    driver = Driver(kernel(4, backfill="none", cpu=2))
    driver.submit("holder", cpu=1, lasts=50)
    driver.until(0)
    driver.submit("wide beside", 80, slot=False, cpu=2, lasts=5)
    driver.until(1)
    driver.submit("passes", lasts=5)  # behind "wide beside" in order
    driver.until(1)
    wide = driver.submit("wide", cpu=2, lasts=5)
    behind = driver.submit("behind", lasts=5)
    beside = driver.submit("beside", 0, slot=False, cpu=1, lasts=5)
    driver.until(2)
    assert driver.order == ["holder", "passes", "beside"]
    assert [driver.why(task).primary for task in (wide, behind)] == ["cpu", "held_back"]
    assert beside.state == "RUNNING"
    driver.until(200)
    assert driver.starts[3:] == [(50, "wide beside"), (55, "wide"), (55, "behind")]


def test_busy_is_said_of_slots_only():
    """S6, S3: when_busy="reject" refuses none that takes no slot, and counts none that takes none."""
    driver = Driver(kernel(1, when_busy="reject", cpu=1))
    driver.submit("beside", slot=False, cpu=1, lasts=None)
    driver.submit("beside too", slot=False, cpu=1)
    driver.until(1)
    driver.submit("a", lasts=None)
    driver.until(2)
    with driver.refuses(Rejected, "the only slot of the authority is taken"):
        driver.submit("b")
    driver.submit("beside at last", slot=False)
    driver.until(2)
    assert driver.order == ["beside", "a", "beside at last"]


def test_a_holder_without_a_slot_does_not_block_those_who_wait_for_one():
    """S6, V1: what it holds is its share of the budget."""
    driver = Driver(kernel(1, cpu=1))
    beside = driver.submit("beside", slot=False, cpu=1, lasts=None)
    driver.submit("runs", lasts=None)
    driver.submit("for a slot")
    driver.submit("for cpu", cpu=1)
    driver.until(1)
    assert [(blocked.name, blocked.first) for blocked in driver.why(beside).blocks] == []
    driver.end(driver.kernel.find("runs"))
    driver.until(20)
    assert [(blocked.name, blocked.first) for blocked in driver.why(beside).blocks] == [("cpu", ("for cpu",))]
