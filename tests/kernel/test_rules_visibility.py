"""Starvation, events, snapshots and counters, computed by hand in virtual time."""

from __future__ import annotations

import dataclasses
import json

import pytest

from kernel_driver import MS, SECOND, Driver, kernel, policy
from whywait.errors import Rejected
from whywait.kernel.events import Kind
from whywait.kernel.limits import Retry
from whywait.kernel.order import Aging, Strict
from whywait.kernel.snapshot import (
    Counts,
    GateView,
    HolderView,
    LaneView,
    Most,
    ReadyView,
    ScopeView,
    TaskView,
    take,
)

HIGH, NORMAL, LOW, BACKGROUND = 80, 50, 20, 0


def starved(driver: Driver, task) -> tuple[bool, float]:
    """Whether it starves now, and for how many seconds it has in all."""
    why = driver.why(task)
    return why.starved, why.starved_ns / MS / SECOND


@pytest.mark.parametrize("order", [Strict(), Aging()])
def test_ready_behind_a_higher_base_priority_is_starvation(order):
    """V2: behind HIGH, not behind NORMAL or LOW; aging changes nothing about it."""
    driver = Driver(kernel(3, order))
    for priority, lasts in ((HIGH, 10), (NORMAL, 20), (LOW, 30)):
        driver.submit(str(priority), priority, lasts * SECOND)
    driver.dispatch()
    task = driver.submit("task", NORMAL, policy=policy())
    queued = driver.submit("queued", NORMAL, after=["task"])
    driver.until(4 * SECOND)
    assert starved(driver, task) == (True, 4)
    assert starved(driver, queued) == (False, 0)
    driver.until(10 * SECOND)
    assert (task.state, starved(driver, task)) == ("RUNNING", (False, 10))


def test_starvation_past_its_timeout_is_told_once():
    """V2: at 30 s in all, for each task by itself, with the time; who has been told is not told again."""
    driver = Driver(kernel(1, Strict()))
    driver.submit("hog", HIGH, lasts=200 * SECOND)
    driver.submit("a")
    driver.until(10 * SECOND)
    driver.submit("b", LOW)
    driver.submit("c")
    driver.submit("equal", HIGH)
    driver.until(39_999)
    assert driver.story("starved") == [f"30000 starved a {30_000 * MS}"]
    driver.until(190 * SECOND)
    assert sorted(driver.story("starved")[1:]) == [f"40000 starved {name} {30_000 * MS}" for name in "bc"]
    assert driver.stats()["starved"] == 3


def test_starvation_as_signals():
    """V2: how many now, the longest and the total; they agree with why() of all tasks at any time."""
    driver = Driver(kernel(1, Strict()))
    driver.submit("high", 80, lasts=40)
    driver.dispatch()
    tasks = [driver.submit("a", 50, lasts=10)]
    driver.at(10)
    tasks += [driver.submit("b", 20, lasts=10, fails=1, policy=policy(retry=1)), driver.submit("c", 80, lasts=10)]
    expected = [(10, 2, 10, 10), (30, 2, 30, 50), (45, 2, 45, 80), (55, 1, 50, 95), (61, 0, 50, 100)]
    for time, now, longest, total in expected:
        driver.until(time)
        signals = driver.kernel.snapshot(driver.now_ns).starvation
        assert tuple(signals) == (now, longest * MS, total * MS), f"at {time} ms"
        told = [driver.kernel.why(driver.now_ns, task).starved_ns for task in tasks]
        assert (max(told), sum(told)) == (signals.longest_ns, signals.total_ns)
    driver.submit("high again", 80, lasts=20)
    driver.until(100)
    signals = driver.kernel.snapshot(driver.now_ns).starvation
    # b was starved for 50 ms before its first attempt, and for 20 ms before the next.
    assert (signals.longest_ns, signals.total_ns) == (70 * MS, 120 * MS)


@pytest.mark.parametrize(
    ("base", "waited", "how", "promotions"),
    [
        (LOW, 12, "start", 2),
        (LOW, 12, "cancel", 2),
        (LOW, 12, "pause", 2),
        (LOW, 4, "start", 0),
        (95, 60, "start", 1),
        (100, 60, "start", 0),
    ],
)
def test_promotions_are_the_steps_gained_when_a_task_leaves_ready(base, waited, how, promotions):
    """V2: only steps that lifted it; none is counted while it waits."""
    driver = Driver(kernel(1))
    driver.submit("hog", 100, lasts=waited * SECOND)
    driver.dispatch()
    task = driver.submit("task", base, lasts=None)
    driver.at(waited * SECOND)
    assert driver.kernel.stats.promotions == 0
    {"start": lambda _: driver.dispatch(), "cancel": driver.cancel, "pause": driver.pause}[how](task)
    assert driver.kernel.stats.promotions == promotions


def test_each_kind_of_event_is_told():
    """V3: in a run in which everything happens that there is an event for, and no other kind."""
    driver = Driver(kernel(3, cpu=3, ram=4, when_blocked="lend", starvation_timeout_ns=10 * MS))
    outer = driver.scope("outer", slots=2, queue_limit=3, overflow="displace")
    inner = driver.scope("inner", outer, mount=False)
    driver.mount(inner)
    beat = driver.periodic("beat", every=7, lasts=9, overlap="queue", disable_after=2, outcome="error", slot=True)
    parks = driver.submit("parks", HIGH, cpu=2, ram=1, lasts=20)
    driver.submit("retries", fails=1, policy=policy(retry=Retry(1, backoff=0.004)), cpu=1)
    pauses = driver.submit("pauses", LOW, after=["parks"], after_ended=["retries"])
    driver.submit("starves", 10, cpu=3, obeys=False)
    driver.submit(None, 1, scope=inner, ram=9)
    driver.submit("expires", 10, scope=inner, policy=policy(max_wait=5), cpu=3)
    driver.submit("displaced", 0, scope=outer)
    driver.submit("falls", 90, scope=outer, after=["displaced"])
    driver.submit("times out", scope=outer, policy=policy(timeout=6), lasts=30)
    driver.submit_many(driver.submission("second", after=["first"]), driver.submission("first"))
    with pytest.raises(Rejected):
        driver.submit("parks")
    driver.until(3)
    driver.resize("cpu", 3)
    for kind in Kind:
        if kind.startswith(("HANDLER", "STREAM", "WORKER", "TASK_PLACED")):
            driver.note(parks, kind)
    driver.measured(parks, 3)
    driver.blocked(parks, pauses)
    driver.blocked(parks, None)
    driver.pause(parks)
    driver.pause(pauses)
    driver.until(8)
    driver.resume(parks)
    driver.resume(pauses)
    driver.until(20)
    driver.submit("waits", scope=outer)
    driver.suspend(outer)
    driver.until(40)
    driver.switch(beat, enabled=True)
    driver.resume_scope(outer)
    driver.until(50)
    driver.submit("ends with its scope", scope=inner, after=["outer/waits"])
    driver.dispose(outer)
    driver.until(200)
    assert {event.kind for event in driver.events} == set(Kind)


def test_a_cause_is_the_seq_of_what_led_to_it():
    """V3: start from submission, end from start, wake-up from end, start from wake-up or from the freed slot."""
    driver = Driver(kernel(1))
    driver.submit("a")
    driver.submit("b", 80, after=["a"])
    driver.submit("c", after=["b"])
    driver.submit("d")
    driver.until(5)
    driver.submit("e", after=["d"])
    driver.until(20)
    driver.cancel(driver.kernel.find("d"))
    seq = {(event.kind, event.name): event.seq for event in driver.events}
    led_by = {(event.kind, event.name): event.cause for event in driver.events}
    assert led_by["TASK_SUBMITTED", "a"] is None
    assert led_by["TASK_FINISHED", "a"] == seq["TASK_STARTED", "a"]
    assert led_by["TASK_READY", "b"] == seq["TASK_FINISHED", "a"]
    assert led_by["TASK_STARTED", "b"] == seq["TASK_READY", "b"]
    assert led_by["TASK_STARTED", "d"] == seq["TASK_READY", "c"] > seq["TASK_FINISHED", "b"]
    assert led_by["TASK_CANCELLED", "e"] == seq["TASK_ABORT_ASKED", "d"]


class Secret:
    """A payload that would show if anybody looked at it."""

    def __repr__(self):
        return "SECRET"

    __str__ = __repr__


def test_no_payload_is_in_events_answers_and_pictures():
    """V3: no argument, no secret, also for refused and failed tasks."""
    driver = Driver(kernel(1))
    one, job = driver.kernel, Secret()
    task = one.submit(0, one.root, "a", job=job, policy=policy(retry=1))
    one.dispatch(0)
    one.submit(0, one.root, "b", job=job, after=["a"])
    with pytest.raises(Rejected) as caught:
        one.submit(0, one.root, "a", job=job)
    one.ended(1, task, "error", "exception")
    one.cancel(2, task)
    shown = [event.to_dict() for event in driver.events]
    shown += [one.why(2, task).to_dict(), one.snapshot(2).to_dict(), str(caught.value)]
    assert "SECRET" not in json.dumps(shown)


def test_a_snapshot_shows_tasks_lanes_gates_and_scopes():
    """V4: exactly what there is."""
    driver = Driver(kernel(2, cpu=4, ram=10))
    scope = driver.scope("s", slots=1)
    runs = driver.submit("runs", scope=scope, cpu=3)
    driver.until(5)
    waits = driver.submit("waits", LOW, scope=scope)
    queued = driver.submit("queued", after=[waits])
    wide = driver.submit("wide", cpu=2)
    driver.until(6)
    picture = driver.kernel.snapshot(driver.now_ns)
    assert picture.now_ns == 6 * MS
    assert picture.running == (TaskView("runs", runs.number, "s", "RUNNING", NORMAL, 0, 1, None, (("cpu", 3),)),)
    assert picture.pending == (
        TaskView("waits", waits.number, "s", "READY", LOW, 5 * MS, 1, "scope_slots"),
        TaskView("queued", queued.number, "", "QUEUED", NORMAL, 5 * MS, 1, "dependency"),
        TaskView("wide", wide.number, "", "READY", NORMAL, 5 * MS, 1, "cpu", (("cpu", 2),)),
    )
    assert sorted(picture.lanes) == [
        LaneView(LOW, "s", (), 1, "scope_slots", "waits", "s", starved=True),
        LaneView(NORMAL, "", (("cpu", 2),), 1, "cpu", "wide"),
    ]
    held = (HolderView(runs.number, "runs", "s", 3),)
    assert picture.budget == (
        GateView("cpu", 4, 1, soft=False, holders=held, holders_total=1),
        GateView("ram", 10, 10, soft=True),
    )
    assert picture.counts == Counts(running=1, ready=2, not_ready=1, starved=1)
    assert picture.slots == GateView("slot", 2, 1, soft=False)
    assert picture.scopes == (ScopeView("s", "", "RUNNING", 2, 1, GateView("scope_slots", 1, 0, soft=False), 1),)
    inside = driver.kernel.snapshot(driver.now_ns, scope)
    assert [task.id for task in (*inside.running, *inside.pending)] == ["runs", "waits"]


def test_a_bounded_snapshot_names_the_first_and_counts_all():
    """V4: the lane that is next and its first tasks, the largest holder; counts as if all were named."""
    driver = Driver(kernel(2, cpu=4))
    for number in range(2):
        driver.submit(f"runs{number}", 80, cpu=1 + number, lasts=None)
    driver.until(1)
    for number in range(6):
        driver.submit(f"waits{number}", 20 + number % 2)
    whole = driver.kernel.snapshot(driver.now_ns)
    most = Most(running=1, pending=0, lanes=1, in_lane=2, holders=1, scopes=0)
    picture = take(driver.kernel, driver.now_ns, driver.kernel.root, most)
    assert picture.counts == whole.counts == Counts(running=2, ready=6, not_ready=0, starved=6)
    assert (picture.running, picture.pending, picture.lanes_total) == (whole.running[:1], (), 2)
    (lane,) = picture.lanes
    assert lane._replace(tasks=()) == whole.lanes[0]
    assert (
        lane.tasks
        == tuple(
            ReadyView(view.number, view.id, view.since_ns, 21, starved_told=False)
            for view in whole.pending
            if view.priority == 21
        )[:2]
    )
    (cpu,) = picture.budget
    assert ([holder.id for holder in cpu.holders], cpu.holders_total) == (["runs1"], 2)
    assert json.loads(json.dumps(picture.to_dict()))["lanes"][0]["demand"] == {}


def test_a_snapshot_does_not_change_afterwards():
    """V4: immutable, and nothing in it is alive."""
    driver = Driver(kernel(1))
    driver.periodic("beat", every=3)
    driver.submit("a")
    driver.submit("b", after=["a"])
    driver.until(1)
    picture = driver.kernel.snapshot(driver.now_ns)
    before = json.dumps(picture.to_dict())
    driver.until(50)
    assert json.dumps(picture.to_dict()) == before
    with pytest.raises(dataclasses.FrozenInstanceError):
        picture.running = ()
    with pytest.raises(AttributeError):
        picture.running[0].state = "READY"


def test_the_counters_add_up():
    """V4: submitted, completed, by outcome, drops and refusals by cause."""
    driver = Driver(kernel(1, queue_limit=6))
    driver.submit("ok", 100)
    driver.submit("bad", 90, outcome="error", policy=policy(retry=1))
    driver.submit("slow", 80, policy=policy(timeout=5))
    driver.submit("late", 0, policy=policy(max_wait=1))
    driver.cancel(driver.submit("cancelled"))
    driver.submit("child", after=["slow"])
    driver.submit("waits", lasts=None)
    for name in ("ok", "one too many"):
        with pytest.raises(Rejected):
            driver.submit(name)
    driver.until(60)
    stats = driver.stats()
    assert (stats["submitted"], stats["completed"], stats["retried"]) == (7, 6, 1)
    assert stats["by_outcome"] == {"success": 1, "error": 1, "timeout": 1, "aborted": 2, "rejected": 1}
    assert stats["dropped"] == {"max_wait": 1, "queue_full": 1}
    assert stats["rejected"] == {"duplicate": 1}


def test_the_quantiles_of_the_wait_are_exact():
    """V4: waits of 10, 20, ... 1000 ms; the median is 500 or 510."""
    driver = Driver(kernel(1), check=False)
    for number in range(101):
        driver.submit(f"t{number}")
    driver.until(1010)
    wait = driver.stats()["wait_ns"]
    assert wait["p50"] / MS in {500, 510}
    assert wait["p90"] / MS in {900, 910}
    assert wait["p99"] / MS == 990
    assert driver.stats()["wait_ns_by_cause"] == {"slot": sum(range(10, 1010, 10)) * MS}
