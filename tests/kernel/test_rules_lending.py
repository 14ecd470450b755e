"""S7: slots that are lent while bodies block: gates, accounts, order, repair."""

import pytest

from kernel_driver import MS, Driver, kernel


def lending(slots=1, **settings):
    return Driver(kernel(slots, when_blocked="lend", **settings))


def requests_of(driver):
    """Decide what starts and return what the owner is asked for besides, by name."""
    return [(verb, task.name) for verb, task in driver.kernel.dispatch(driver.now_ns).requests]


def test_a_slot_is_in_use_only_while_it_is_held():
    """S7, V2: the time of the lender, and that of the task that had the slot meanwhile, are each counted once."""
    driver = lending()
    outer = driver.submit("outer", lasts=None)
    driver.at(10)
    inner = driver.submit("inner", lasts=None)
    driver.blocked(outer, inner)
    driver.at(30)
    assert driver.order == ["outer", "inner"]
    driver.at(40)
    driver.end(inner)
    driver.blocked(outer, None)
    driver.at(50)
    driver.end(outer)
    driver.at(60)
    assert driver.kernel.snapshot(driver.now_ns).slots.free == 1
    assert driver.kernel.used_ns(driver.now_ns, driver.kernel.slots) == 50 * MS


def test_a_lender_keeps_its_budget():
    """S7, B1: what waits for its cpu waits on."""
    driver = lending(slots=2, cpu=1)
    outer = driver.submit("outer", lasts=None, cpu=1)
    driver.at(1)
    inner = driver.submit("inner", cpu=1)
    driver.blocked(outer, inner)
    driver.at(2)
    assert driver.order == ["outer"]
    assert [holder.id for holder in driver.why(inner).reasons[0].holders] == ["outer"]


def test_a_soft_gate_yields_while_the_only_holder_lends():
    """S7, B2: a task that lends holds no slot; as long as it uses none of the memory, another may exceed the limit."""
    driver = lending(ram=4)
    outer = driver.submit("outer", lasts=None)
    driver.at(1)
    large = driver.submit("large", lasts=None, ram=9)
    driver.blocked(outer, large)
    driver.at(2)
    assert driver.order == ["outer", "large"]


def test_slots_come_back_in_the_order_of_asking():
    """S7: before tasks of any priority start."""
    driver = lending(slots=2)
    first, second = (driver.submit(name, lasts=None, priority=10) for name in ("first", "second"))
    driver.at(1)
    holders = [driver.submit(name, lasts=None) for name in ("a", "b")]
    driver.blocked(second, holders[0])
    driver.blocked(first, holders[0])
    driver.at(2)
    driver.blocked(second, None)
    driver.blocked(first, None)
    driver.submit("urgent", priority=100, lasts=None)
    driver.at(3)
    assert driver.why(first).wants_slot
    driver.end(holders[1])
    driver.at(4)
    assert not driver.why(second).wants_slot
    assert driver.why(first).wants_slot
    driver.end(holders[0])
    driver.at(5)
    assert not driver.why(first).wants_slot
    assert driver.order == ["first", "second", "a", "b"]


def test_a_lender_of_higher_priority_starves_no_task():
    """S7, V2: only what holds a slot starves others."""
    driver = lending()
    outer = driver.submit("outer", lasts=None, priority=90)
    driver.at(1)
    same, low = driver.submit("same", lasts=None, priority=20), driver.submit("low", priority=20)
    driver.blocked(outer, same)
    driver.at(5)
    driver.at(9)
    assert not driver.why(low).starved
    driver.end(same)
    driver.blocked(outer, None)
    driver.at(10)
    assert driver.why(low).starved


@pytest.mark.parametrize("ends", ["cancel", "end"])
def test_what_ends_while_it_wants_its_slot_is_let_go_on(ends):
    """S7, X3: it needs no slot to end, and gives none back."""
    driver = lending()
    outer = driver.submit("outer", lasts=None, obeys=False)
    driver.at(1)
    inner = driver.submit("inner", lasts=None)
    driver.blocked(outer, inner)
    driver.at(2)
    driver.blocked(outer, None)
    assert requests_of(driver) == []
    getattr(driver, ends)(outer)
    assert ("go_on", "outer") in driver.asked
    assert driver.kernel.snapshot(driver.now_ns).slots.free == 0
    assert not driver.why(outer).wants_slot
