"""The reported reasons are the real ones: make them go away and the task starts, leave one and it does not."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest

import model
from commands import drive
from kernel_driver import MS, Driver, kernel
from pair import Pair
from strategies import Seeded
from whywait.kernel.order import Aging, Strict
from whywait.kernel.reasons import Blocked, Condition, Why

STEPS = 60
GATES = ("free", "units", "alone", "raise", "resume_scope")


class Flipped:
    """A copy of the model in which conditions can be made true, one by one."""

    def __init__(self, pair: Pair, number: int) -> None:
        numbers, pair.model.numbers = pair.model.numbers, None
        self.plain = deepcopy(pair.model)
        pair.model.numbers = numbers
        (self.task,) = [task for task in self.plain.tasks if task.number == number]

    def flip(self, condition: Condition) -> None:
        kind = {"raise": "raise_limit"}.get(condition.kind, condition.kind)
        getattr(self, kind)(condition)

    def raise_limit(self, condition: Condition) -> None:
        """More than there is: more units, or a limit that has room for it beside what is held."""
        budget, name = self.task.scope.payer.budget, condition.name
        if name in budget.devices:
            self.units(condition)
        else:
            budget.hard[name] = self.plain.in_use(name, self.task.scope.payer) + self.task.demand[name]

    def units(self, condition: Condition) -> None:
        """Units that come back are no more than there were: what could never start still cannot."""
        plain, payer = self.plain, self.task.scope.payer
        for other in plain.ready[:]:
            mine = other.scope.payer is payer and other is not self.task
            if condition.kind == "units" and mine and not plain.could_ever_have(condition.name, other):
                plain.leave_ready(other)
        fresh = {f"fresh{number}": condition.share for number in range(condition.amount)}
        payer.budget.devices[condition.name] |= fresh

    def free(self, condition: Condition) -> None:
        plain = self.plain
        if condition.name in {"slot", "scope_slots"}:
            (scope,) = [scope for scope in plain.scopes if scope.key == (condition.scope or "")]
            scope.limits = replace(scope.limits, slots=scope.limits.slots + condition.amount)
        else:
            budget = self.task.scope.payer.budget
            limits = budget.hard if condition.name in budget.hard else budget.soft
            limits[condition.name] += condition.amount

    def alone(self, condition: Condition) -> None:
        self.plain.soft[condition.name] = self.plain.in_use(condition.name) + self.task.demand[condition.name]

    def resume_scope(self, condition: Condition) -> None:
        (scope,) = [scope for scope in self.plain.scopes if scope.key == condition.scope]
        scope.state = "RUNNING"

    def turn(self, condition: Condition) -> None:
        ahead = self.plain.ahead_of(self.task)
        assert len(ahead) == condition.amount
        for other in ahead:
            self.plain.leave_ready(other)

    def let_leave(self, number: int | None) -> None:
        """All READY tasks leave but this one and that of the number."""
        for other in self.plain.ready[:]:
            if other is not self.task and other.number != number:
                self.plain.leave_ready(other)

    def open_to_either(self, other: model.Task) -> None:
        """Those end who hold what the task waits for; then what stopped it is open to either of two, not to both."""
        plain, task = self.plain, self.task
        stops = plain.stops(task)
        for holder in plain.holding_up(task, stops):
            holder.state = "DISPOSED"
        for scope in plain.scopes:
            if ("scope_state", scope.key) in stops:
                scope.state = "RUNNING"
            if {("slot", scope.key), ("scope_slots", scope.key)} & set(stops):
                scope.limits = replace(scope.limits, slots=len(plain.holders(scope)) + 1)
        payer = task.scope.payer
        for limits in (payer.budget.hard, payer.budget.soft):
            for name in limits:
                if (name, payer.key) in stops:
                    same = other.demand.get(name, 0) if other.scope.payer.key == payer.key else 0
                    limits[name] = plain.in_use(name, payer) + max(task.demand[name], same)

    def start(self, condition: Condition) -> None:
        for other in self.plain.ready:
            if other.number == condition.number:
                self.plain.leave_ready(other)

    def dispatch(self, condition: Condition) -> None:
        """Nothing has to happen."""

    def succeed(self, condition: Condition) -> None:
        (other,) = [task for task in self.plain.tasks if task.number == condition.number]
        other.state, other.outcome = "DISPOSED", "success"

    end = succeed

    def time(self, condition: Condition) -> None:
        self.task.backing_off = False

    def resume_task(self, condition: Condition) -> None:
        self.task.state = self.task.paused_from

    def starts(self) -> bool:
        return self.task in self.plain.fill()


def check_ready(pair: Pair, number: int, why: Why) -> None:
    assert why.conditions, "a READY task has a closed gate or somebody ahead of it"
    assert why.reasons
    all_true = Flipped(pair, number)
    for condition in sorted(why.conditions, key=lambda condition: condition.kind != "turn"):  # it counts all ahead
        all_true.flip(condition)
    assert all_true.starts(), f"task {number} does not start though {why.conditions}"
    for left_out in why.conditions:
        if left_out.kind in GATES:
            all_but_one = Flipped(pair, number)
            for condition in sorted(why.conditions, key=lambda condition: condition.kind != "turn"):
                if condition is not left_out:
                    all_but_one.flip(condition)
            assert not all_but_one.starts(), f"task {number} starts without {left_out}"


def check_ahead(pair: Pair, number: int, why: Why) -> int:
    """Whoever is ahead by what it takes of a closed gate really is: with it the task does not start, without it does.

    Return how many were looked at. Those who compete for what is open now keep the task waiting only together.
    """
    plain, task = pair.model, pair.model_task(number)
    competing = [other for other in plain.ahead_of(task) if competes(plain, other, task)]
    for other in competing if not why.never else ():
        for stays in (True, False):
            flipped = Flipped(pair, number)
            flipped.let_leave(other.number if stays else None)
            flipped.open_to_either(other)
            assert flipped.starts() != stays, f"task {number}, {other} stays: {stays}, {why.conditions}"
    return len(competing)


def competes(plain: model.Model, other: model.Task, task: model.Task) -> bool:
    """Whether both take of a gate that stops one of them; which unit of a device they compete for is another matter."""
    shared = [name for name, key in plain.stops(task) if (name, key) in plain.takes(other)]
    return any(name not in task.scope.payer.budget.devices for name in shared)


def check_not_ready(pair: Pair, number: int, why: Why) -> None:
    flipped = Flipped(pair, number)
    for condition in why.conditions:
        flipped.flip(condition)
    task = flipped.task
    assert task.state == "READY" or flipped.plain.may_enter(task), f"task {number}: {why.conditions}"


def check_holders(pair: Pair, why: Why) -> None:
    """Whoever is named as a holder really holds: without it, more is free."""
    for reason in why.reasons:
        for holder in reason.holders:
            without = Flipped(pair, holder.number)
            before = free_of(without.plain, reason)
            without.task.state = "DISPOSED"
            assert free_of(without.plain, reason) == before + holder.amount


def free_of(plain: model.Model, reason: Any) -> int:
    (scope,) = [scope for scope in plain.scopes if scope.key == (reason.scope or "")]
    if reason.kind == "resource":
        return {**scope.budget.hard, **scope.budget.soft}[reason.name] - plain.in_use(reason.name, scope)
    return scope.limits.slots - len(plain.holders(scope))


@pytest.mark.parametrize("devices", [False, True])
@pytest.mark.parametrize("first", range(0, 80, 20))
def test_the_reported_conditions_are_what_it_takes(first, devices):
    """V1, V7, N5: in random states, exactly the reported conditions make a task start; every holder holds.

    And every task that is named as ahead is: the task starts when that one leaves, and not before.
    """
    checked = ahead = 0
    for seed in range(first, first + 20):
        pair = drive(Seeded(seed), STEPS, devices=devices)
        for number, task in pair.tasks.items():
            if task.number != number:  # it was retried
                continue
            why = pair.kernel.why(pair.now, task)
            if task.state == "READY":
                check_ready(pair, number, why)
                check_holders(pair, why)
                ahead += check_ahead(pair, number, why)
                checked += 1
            elif task.pending and task.held_by != "overlap":
                check_not_ready(pair, number, why)
                checked += 1
            elif not task.pending:
                assert why.conditions == ()
    assert checked > 20
    assert ahead > 2


@pytest.mark.parametrize(
    "order", [Strict(), Aging(0.01, 10), Aging(0.003, 7, None), Aging(0.01, 15, 60), Aging(boost=0)]
)
def test_waited_for_is_the_inverse_of_effective(order):
    """P3, P4: from that moment on, not before, the priority is reached; never if it is never."""
    for base in (0, 13, 50, 60, 99, 100):
        for wanted in range(0, 160, 3):
            waited = order.waited_for(base, wanted)
            if waited is None:
                assert order.effective(base, 10**12) < wanted
            else:
                assert order.effective(base, waited) >= wanted
                assert waited == 0 or order.effective(base, waited - 1) < wanted


def test_a_long_chain_gives_its_first_steps_and_its_root():
    """V1: 40 steps; the last one runs."""
    driver = Driver(kernel(1), check=False)
    driver.submit("t0", lasts=None)
    driver.dispatch()
    for number in range(1, 41):
        task = driver.submit(f"t{number}", after=[f"t{number - 1}"])
    driver.until(3)
    ((first,),) = [reason.tasks for reason in driver.why(task).reasons]
    assert first.id == "t39"
    assert [link.id for link in first.chain] == [*(f"t{38 - number}" for number in range(10)), "t0"]
    assert first.left_out == 28
    assert first.chain[-1].running_ns == 3 * MS


def test_a_slot_holder_knows_who_waits_for_what_it_holds():
    """V1: by gate, and its dependents; DISPOSING and parked ones too."""
    driver = Driver(kernel(2, cpu=2))
    train = driver.submit("train", 80, cpu=2, lasts=None, obeys=False)
    driver.dispatch()
    driver.submit("a", cpu=1)
    driver.submit("b", cpu=2)
    driver.submit("c", after=["train"])
    driver.submit("d", after_ended=["train"])
    driver.dispatch()
    driver.submit("slot 2", 80, lasts=None)
    driver.dispatch()
    driver.submit("e")
    driver.until(10)
    why = driver.why(train)
    assert why.blocks == (Blocked("cpu", None, 2, ("a", "b")), Blocked("slot", "", 1, ("e",)))
    assert (why.awaited_by, why.awaiting) == (2, ("c", "d"))
    driver.cancel(train)
    driver.until(15)
    why = driver.why(train)
    assert (why.state, why.ending_ns, why.ending_cause, why.running_ns) == ("DISPOSING", 5 * MS, "cancelled", 15 * MS)
    assert (why.awaited_by, why.awaiting) == (1, ("d",))
    assert [blocked.first for blocked in why.blocks] == [("a", "b"), ("e",)]


def test_too_many_lanes_give_lower_bounds_that_say_so():
    """V1, C1: the answer does not grow with the number of lanes."""
    driver = Driver(kernel(1, cpu=5000), check=False)
    holder = driver.submit("holder", 100, lasts=None, cpu=5000)
    driver.dispatch()
    for number in range(1200):
        driver.submit(f"t{number}", 80, cpu=1 + number)
    task = driver.submit("task")
    why = driver.why(task)
    assert (why.ahead_at_least, why.ahead[0].tasks) == (True, 1000)
    assert driver.why(holder).blocks[-1].at_least
