"""What the events tell is what the kernel accounted for and what an observer at every moment sees."""

from __future__ import annotations

from collections import Counter, defaultdict

import pytest

from kernel_driver import MS, Driver, kernel, policy
from observed_runs import observed
from whywait.kernel.limits import Retry
from whywait.observe.fold import Attempt, Fold
from whywait.observe.report import Account
from whywait.observe.story import GateKey, Story, TaskStory


class Kept(Story):
    """Keeps every task whose wait is over."""

    def __init__(self, events):
        self.over: list[TaskStory] = []
        super().__init__(events)

    def task_started(self, task):
        self.over.append(task)

    def task_ended(self, task):
        if task.started_ns is None:
            self.over.append(task)


def division(stretches) -> dict[str, int]:
    totals: dict[str, int] = {}
    for stretch in stretches:
        totals[stretch.cause] = totals.get(stretch.cause, 0) + stretch.end_ns - stretch.begin_ns
    return totals


@pytest.mark.parametrize("devices", [False, True])
@pytest.mark.parametrize("first", range(0, 60, 20))
def test_stretches_add_up_to_the_kernels_account(first, devices):
    """V1, V3, V7: moment by moment from the events, in total from the accounts; the same for every task."""
    for seed in range(first, first + 20):
        pair, _, events = observed(seed, devices=devices)
        story = Kept(events)
        assert story.skipped == 0
        for task in story.over:
            assert division(task.stretches) == task.waits, f"seed {seed}, {task.id}"
        for task in story.living():
            if task.started_ns is None:
                known = pair.tasks[task.number]
                waits = Counter(pair.kernel.why(pair.now, known).breakdown)
                for attempt in known.earlier:
                    waits.subtract(attempt.waits)
                assert division(story.stretches_of(task, pair.now)) == +waits, f"seed {seed}, {task.id}"


@pytest.mark.parametrize("devices", [False, True])
@pytest.mark.parametrize("first", range(0, 60, 20))
def test_holders_are_charged_with_what_an_observer_sees(first, devices):
    """V1, V7: at every moment, every waiting task is charged to those who hold what it waits for, by amount."""
    for seed in range(first, first + 20):
        pair, observer, events = observed(seed, devices=devices)
        account = Account(events)
        if pair.now > (account.now or 0):
            account.time_passes(account.now or 0, pair.now)
        told = defaultdict(float)
        for row in account.by_holder():
            if row["held"] != "dependency":
                told[row["held"], row["of"] or "", row["scope"], row["id"]] += row["cost_ms"]
        seen = {key: ns / MS for key, ns in observer.caused.items() if round(ns)}
        assert told == pytest.approx(seen, rel=1e-6, abs=1e-5), f"seed {seed}"


ALWAYS = ("id", "state", "priority", "demand", "attempt", "outcome")  # and slot, units
ONCE_ENDED = ("cause", "root")


@pytest.mark.parametrize("devices", [False, True])
@pytest.mark.parametrize("first", range(0, 60, 20))
def test_the_fold_agrees_with_the_kernel(first, devices):
    """V3: what the events tell of each attempt is what the kernel knows of it, whether it lives or has ended."""
    for seed in range(first, first + 20):
        pair, _, events = observed(seed, devices=devices)
        fold = Fold(Attempt, events, kept_ended=len(events))
        alive = {task.number for scope in pair.kernel.scopes.values() for task in scope.tasks.values()}
        assert {attempt.number for attempt in fold.living()} == alive
        assert fold.attempts.keys() == pair.tasks.keys()
        picture = pair.kernel.snapshot(pair.now)
        waits_for = {view.number: view.waits_for for view in picture.pending}
        for number, task in pair.tasks.items():
            attempt = fold.attempts[number]
            if task.number != number:
                following = [each.number for each in task.earlier if each.number > number] or [task.number]
                assert (attempt.outcome, attempt.retried_as) == ("error", following[0])
                continue
            assert facts_told(attempt) == facts_known(task, waits_for.get(number)), f"seed {seed}, {task.id}"
            if task.state == "QUEUED":  # of what it awaited, the kernel knows what it still awaits
                awaited = {each.number for each in (*(task.after or ()), *(task.after_ended or ()))}
                assert awaited <= {pair.tasks[each].number for each in (*attempt.after, *attempt.after_ended)}


def facts_told(attempt: Attempt) -> dict:
    facts = {name: getattr(attempt, name) for name in (*ALWAYS, "devices", "slot", "scope", "periodic", "retried_as")}
    if attempt.alive:
        since = attempt.ready_ns if attempt.state == "READY" else attempt.started_ns if attempt.active else None
        return {**facts, "waits_for": attempt.held_by, "paused_from": attempt.paused_from, "since": since}
    return {**facts, **{name: getattr(attempt, name) for name in ONCE_ENDED}, "waits": attempt.waits}


def facts_known(task, waits_for: str | None) -> dict:
    facts = {name: getattr(task, name) for name in ALWAYS}
    facts |= {
        "devices": task.units,
        "slot": task.takes_slot,
        "scope": task.scope.key,
        "periodic": task.periodic and task.periodic.name,
        "retried_as": None,
    }
    if task.outcome is None:
        return {
            **facts,
            "waits_for": None if task.state == "READY" else waits_for,
            "paused_from": task.paused_from,
            "since": task.since if task.state == "READY" or not task.pending else None,
        }
    return {**facts, **{name: getattr(task, name) for name in ONCE_ENDED}, "waits": task.waits or {}}


def test_a_paused_backoff_is_a_backoff_again_when_it_is_resumed():
    """T7, V3: pausing a task does not change what it waits for afterwards."""
    driver = Driver(kernel(1))
    task = driver.submit("flaky", lasts=1, fails=1, policy=policy(retry=Retry(1, backoff=1.0)))
    driver.until(5)
    driver.pause(task)
    driver.until(6)
    driver.resume(task)
    (attempt,) = Fold(Attempt, driver.events).living()
    assert (attempt.held_by, attempt.attempt) == ("backoff", 2)


def follow(driver: Driver) -> Account:
    return Account(driver.events)


def test_vram_held_by_one_cost_the_others():
    """V1: two tasks wait 40 and 30 ms for what train holds; the slot of nobody."""
    driver = Driver(kernel(None, vram=6))
    driver.submit("train", vram=5, lasts=40)
    driver.submit("a", vram=4, lasts=1)
    driver.until(10)
    driver.submit("b", vram=2, lasts=1)
    driver.until(100)
    assert follow(driver).by_holder() == [
        {"id": "train", "scope": "", "held": "vram", "of": None, "cost_ms": 70},
    ]


def test_holders_share_the_blame_by_what_they_hold():
    """V1: 3 of 4 and 1 of 4 while both run, all of it afterwards."""
    driver = Driver(kernel(None, cpu=4))
    driver.submit("wide", cpu=3, lasts=20)
    driver.submit("narrow", cpu=1, lasts=40)
    driver.submit("all", cpu=4, lasts=1)
    driver.until(100)
    costs = {row["id"]: row["cost_ms"] for row in follow(driver).by_holder()}
    assert costs == {"wide": 15, "narrow": 25}


def test_the_critical_path_follows_the_dependency_that_ended_last():
    """V1: of two branches the longer; an attempt that failed is a step of its own."""
    driver = Driver(kernel(None))
    driver.submit("fetch", lasts=10)
    driver.submit("quick", lasts=5, after=["fetch"])
    driver.submit("slow", lasts=30, after=["fetch"], fails=1, policy=policy(retry=1))
    driver.submit("pack", lasts=7, after=["quick", "slow"])
    driver.submit("alone", lasts=50)
    driver.until(200)
    path = follow(driver).critical_path()
    assert [(step["id"], step["attempt"], step["waited_ms"], step["ran_ms"]) for step in path] == [
        ("fetch", 1, 0, 10),
        ("slow", 1, 0, 30),
        ("slow", 2, 0, 30),
        ("pack", 1, 0, 7),
    ]


def test_a_story_that_begins_in_the_middle_says_so():
    """V3: what was missed is counted; tasks are known from then on."""
    driver = Driver(kernel(1))
    for number in range(4):
        driver.submit(f"t{number}")
    driver.until(100)
    events = driver.events
    story = Kept(events[5:7] + events[9:])
    assert story.first_seq == events[5].seq
    assert story.skipped == 2
    assert not any(task.complete for task in story.over if task.number == 1)


def test_peaks_are_the_most_that_was_held_at_once():
    """V1: of slots and of each resource."""
    driver = Driver(kernel(3, cpu=5))
    for number in range(6):
        driver.submit(f"t{number}", cpu=number % 3)
    driver.until(100)
    account = follow(driver)
    assert account.peaks[GateKey("slot")] == 3
    assert account.peaks[GateKey("cpu")] == 3
