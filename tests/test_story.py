"""What the events tell is what the kernel accounted for and what an observer at every moment sees."""

from __future__ import annotations

from collections import defaultdict

import pytest

from commands import Commands, make_settings
from kernel_driver import MS, Driver, kernel
from pair import Pair
from strategies import Seeded
from whywait.kernel.events import Event
from whywait.run_report import Account
from whywait.story import GateKey, Story, TaskStory

STEPS = 80


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


class Observer:
    """Looks at the model at every moment and notes who holds what others wait for."""

    def __init__(self, pair: Pair) -> None:
        self.caused: defaultdict[tuple[str, str, str, str], float] = defaultdict(float)
        self.plain = pair.model
        self.advance = pair.model.advance
        pair.model.advance = self.look

    def look(self, now: int) -> None:
        elapsed = now - self.plain.now
        if elapsed:
            for task in self.plain.ready:
                self.charge(self.plain.lane_causes[task.lane], elapsed)
        self.advance(now)

    def charge(self, gate: tuple[str, str], elapsed: int) -> None:
        name, scope = gate
        if name == "held_back":  # at the bottom of it is what the first in line waits for
            first = next(task for task in self.plain.in_order() if self.plain.only_budget_stops(task))
            name, scope = self.plain.lane_causes[first.lane]
        if name == "scope_state":
            return
        shares = {}
        for holder in self.plain.holders():
            inside = {"slot": True, "scope_slots": scope in [each.key for each in holder.scope.path()]}
            amount = inside.get(name, holder.demand.get(name, 0))
            if amount:
                shares[holder] = amount
        for holder, amount in shares.items():
            self.caused[name, scope, holder.scope.key, holder.id] += amount * elapsed / sum(shares.values())


def observed(seed: int) -> tuple[Pair, Observer, list[Event]]:
    choose = Seeded(seed)
    pair = Pair(make_settings(choose))
    observer = Observer(pair)
    commands = Commands(choose, pair)
    commands.open_scope()
    for _ in range(STEPS):
        commands.step()
    pair.pass_time(pair.now)
    pair.model.advance(pair.now)
    return pair, observer, [Event.of(raw) for raw in pair.raw_events]


@pytest.mark.parametrize("first", range(0, 60, 20))
def test_stretches_add_up_to_the_kernels_account(first):
    """V1, V3, V7: moment by moment from the events, in total from the accounts; the same for every task."""
    for seed in range(first, first + 20):
        pair, _, events = observed(seed)
        story = Kept(events)
        assert story.skipped == 0
        for task in story.over:
            assert division(task.stretches) == task.waits, f"seed {seed}, {task.id}"
        for number, task in story.tasks.items():
            if task.started_ns is None:
                why = pair.kernel.why(pair.now, pair.tasks[number])
                assert division(story.stretches_of(task, pair.now)) == why.breakdown, f"seed {seed}, {task.id}"


@pytest.mark.parametrize("first", range(0, 60, 20))
def test_holders_are_charged_with_what_an_observer_sees(first):
    """V1, V7: at every moment, every waiting task is charged to those who hold what it waits for, by amount."""
    for seed in range(first, first + 20):
        pair, observer, events = observed(seed)
        account = Account(events)
        if pair.now > (account.now or 0):
            account.time_passes(account.now or 0, pair.now)
        told = defaultdict(float)
        for row in account.by_holder():
            if row["held"] != "dependency":
                told[row["held"], row["of"] or "", row["scope"], row["id"]] += row["cost_ms"]
        seen = {key: ns / MS for key, ns in observer.caused.items() if round(ns)}
        assert told == pytest.approx(seen, rel=1e-6, abs=1e-5), f"seed {seed}"


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
    driver.submit("slow", lasts=30, after=["fetch"], fails=1, policy=retry_once())
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


def retry_once():
    from kernel_driver import policy

    return policy(retry=1)
