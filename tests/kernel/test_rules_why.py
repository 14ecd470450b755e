"""Why a task waits: gates, holders, places, causes and starvation, computed by hand in virtual time."""

from __future__ import annotations

import json

import pytest

from kernel_driver import MS, Driver, end_of, kernel, policy
from whywait.kernel.order import Aging, Strict
from whywait.kernel.reasons import Ahead, Blocking, Condition, Holder

HIGH, NORMAL, LOW, BACKGROUND = 80, 50, 20, 0


def reason_names(driver: Driver, task) -> list[str]:
    return [reason.name for reason in driver.why(task).reasons]


def test_a_closed_gate_is_given_with_need_free_limit_and_holders():
    """V1: vram needs 4000, 1500 of 6000 are free, held by upscale-7 since 20 ms."""
    driver = Driver(kernel(4, vram=6000))
    scope = driver.scope("video")
    upscale = driver.submit("upscale-7", scope=scope, vram=4500, lasts=None)
    driver.submit("other", lasts=None)
    driver.dispatch()
    task = driver.submit("task", vram=4000)
    driver.until(20)
    why = driver.why(task)
    (reason,) = why.reasons
    assert (reason.kind, reason.name, reason.soft, reason.never) == ("resource", "vram", True, False)
    assert (reason.need, reason.free, reason.limit) == (4000, 1500, 6000)
    assert reason.holders == (Holder("upscale-7", "video", upscale.number, 4500, "RUNNING", 20 * MS),)
    assert (why.state, why.primary, why.waited_ns, why.breakdown) == ("READY", "vram", 20 * MS, {"vram": 20 * MS})


def test_every_closed_gate_is_listed_in_the_order_in_which_they_are_asked():
    """V1, V7: scope state, scope slots, cpu, ram, vram, named ones by name, and at last the authority's slots."""
    driver = Driver(kernel(1, cpu=1, ram=1, vram=1, licence=1, disk=1))
    parent = driver.scope("parent")
    scope = driver.scope("s", parent, slots=1)
    everything = {"cpu": 1, "ram": 1, "vram": 1, "licence": 1, "disk": 1}
    holder = driver.submit("holder", scope=scope, lasts=None, **everything)
    driver.dispatch()
    task = driver.submit("task", scope=scope, **everything)
    driver.suspend(parent)
    driver.suspend(scope)
    driver.until(10)
    reasons = driver.why(task).reasons
    assert [reason.name for reason in reasons] == [
        "scope_state", "scope_state", "scope_slots", "cpu", "ram", "vram", "disk", "licence", "slot",
    ]  # fmt: skip
    assert [reason.scope for reason in reasons[:3]] == ["s", "parent", "s"]
    assert [[each.id for each in reason.holders] for reason in reasons] == [[], []] + [["holder"]] * 7
    driver.pause(holder)
    assert {each.state for reason in driver.why(task).reasons for each in reason.holders} == {"PAUSED"}


def test_what_is_ahead_is_counted_by_level_and_the_first_ten_are_named():
    """V1: twelve HIGH and three NORMAL come first; later, lower and running ones do not count."""
    driver = Driver(kernel(1, cpu=8))
    driver.submit("run", 100, lasts=None)
    driver.dispatch()
    for number in range(3):
        driver.submit(f"n{number}", NORMAL)
    task = driver.submit("task", NORMAL, cpu=1)
    for number in range(12):
        driver.submit(f"h{number:02}", HIGH, cpu=number % 3)
    driver.submit("later", NORMAL)
    driver.submit("lower", LOW)
    high = Ahead(HIGH, 12, tuple(f"h{number:02}" for number in range(10)))
    assert driver.why(task).ahead == (high, Ahead(NORMAL, 3, ()))
    driver.cancel(driver.kernel.find("h00"))
    for number in range(5, 12):
        driver.cancel(driver.kernel.find(f"h{number:02}"))
    assert driver.why(task).ahead == (
        Ahead(HIGH, 4, ("h01", "h02", "h03", "h04")),
        Ahead(NORMAL, 3, ("n0", "n1", "n2")),
    )


@pytest.mark.parametrize(("order", "base"), [(Strict(), 0), (Aging(cap=60), 60), (Aging(boost=0), 0)])
def test_who_will_not_be_lifted_is_told_so(order, base):
    """V1, P3, P4: no time is given."""
    driver = Driver(kernel(1, order))
    assert driver.why(driver.submit("task", base)).lifted_in_ns is None


def test_unmet_dependencies_are_given_with_where_they_stand():
    """V1: met ones are left out; a dependency that was retried is shown as its newest attempt."""
    driver = Driver(kernel(2))
    driver.submit("done", 100)
    driver.submit("runs", 90, lasts=None)
    failed = driver.submit("again", 80, fails=1, policy=policy(retry=1))
    waits = driver.submit("waits")
    task = driver.submit("task", after=["done", "runs", "again"], after_ended=["waits"])
    driver.until(25)
    (reason,) = driver.why(task).reasons
    runs, again = driver.kernel.find("runs"), failed
    assert (reason.kind, reason.need, reason.never) == ("dependency", 3, False)
    assert reason.tasks == (
        Blocking("runs", "", runs.number, "RUNNING", 25 * MS),
        Blocking("again", "", again.number, "RUNNING", 5 * MS),
        Blocking("waits", "", waits.number, "READY", None, "slot_higher", ("runs", "again"), end_suffices=True),
    )
    assert driver.why(task).conditions == (
        Condition("succeed", scope="", task="runs", number=runs.number),
        Condition("succeed", scope="", task="again", number=again.number),
        Condition("end", scope="", task="waits", number=waits.number),
    )
    assert driver.why(runs).awaited_by == 1
    assert (driver.why(task).primary, driver.waits(task)) == ("dependency", {"dependency": 25})


def test_who_is_held_back_learns_by_whom():
    """V1, B5: no gate of its own is closed."""
    driver = Driver(kernel(None, backfill="none", cpu=2))
    driver.submit("runs", cpu=1, lasts=None)
    driver.dispatch()
    wide = driver.submit("wide", cpu=2)
    small = driver.submit("small")
    driver.until(10)
    (reason,) = driver.why(small).reasons
    waiting = Blocking("wide", "", wide.number, "READY", None, "cpu", ("runs",))
    assert (reason.kind, reason.tasks) == ("held_back", (waiting,))
    assert reason_names(driver, wide) == ["cpu"]


def test_a_running_task_tells_what_it_holds():
    """V1: and how long it has run, waited, and who awaits it; a parked one too."""
    driver = Driver(kernel(1, cpu=4))
    driver.submit("run")
    task = driver.submit("task", cpu=3, lasts=None)
    driver.submit("a", after=["task"])
    driver.submit("b", after_ended=["task"])
    driver.until(25)
    why = driver.why(task)
    assert (why.state, why.holds, why.running_ns, why.awaited_by) == ("RUNNING", (("cpu", 3),), 15 * MS, 2)
    assert (why.waited_ns, why.breakdown, why.reasons, why.primary) == (10 * MS, {"slot": 10 * MS}, (), None)
    driver.pause(task)
    assert driver.why(task).holds == (("cpu", 3),)


def test_a_finished_task_tells_how_its_wait_divided():
    """V1, V7: four causes that add up to the whole wait; outcome, cause and root besides."""
    driver = Driver(kernel(2, cpu=1))
    driver.submit("first", lasts=5)
    driver.submit("cpu hog", lasts=20, cpu=1)
    task = driver.submit("task", cpu=1, after=["first"])
    driver.at(7)
    driver.pause(task)
    driver.at(9)
    driver.resume(task)
    driver.until(19)
    driver.submit("slot hog", HIGH, lasts=30)
    driver.at(20)
    driver.submit("slot hog too", HIGH, lasts=5)
    driver.until(100)
    assert end_of(task) == ("DISPOSED", "success", None)
    assert driver.waits(task) == {"dependency": 5, "cpu": 13, "paused": 2, "slot_higher": 5}
    assert driver.why(task).waited_ns == 25 * MS
    assert driver.why(task).outcome == "success"


def test_the_answer_is_json_ready_in_every_state():
    """V1: for QUEUED, READY, RUNNING, PAUSED, DISPOSING and DISPOSED tasks."""
    driver = Driver(kernel(3, cpu=4))
    tasks = [driver.submit(name, cpu=1, lasts=None, obeys=name != "stubborn") for name in ("runs", "stubborn", "ended")]
    driver.dispatch()
    tasks += [driver.submit("ready"), driver.submit("queued", after=["runs"]), driver.submit("paused")]
    driver.pause(tasks[-1])
    driver.cancel(tasks[1])
    driver.end(tasks[2])
    states = [json.loads(json.dumps(driver.why(task).to_dict()))["state"] for task in tasks]
    assert states == ["RUNNING", "DISPOSING", "DISPOSED", "READY", "QUEUED", "PAUSED"]


def test_the_first_closed_gate_is_charged_and_then_the_next():
    """V7: scope slots until 5, cpu until 10, ram until 20, the named one until 30."""
    driver = Driver(kernel(None, cpu=1, ram=1, licence=1))
    scope = driver.scope("s", slots=1)
    driver.submit("in scope", lasts=5, scope=scope)
    driver.submit("cpu", lasts=10, cpu=1)
    driver.submit("ram", lasts=20, ram=1)
    driver.submit("licence", lasts=30, licence=1)
    task = driver.submit("task", scope=scope, cpu=1, ram=1, licence=1)
    seen = []
    for time in (4, 9, 19, 29, 30):
        driver.until(time)
        seen.append(driver.why(task).primary)
    assert seen == ["scope_slots", "cpu", "ram", "licence", None]
    assert driver.waits(task) == {"scope_slots": 5, "cpu": 5, "ram": 10, "licence": 10}
