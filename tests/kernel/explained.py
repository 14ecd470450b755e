"""What the kernel answers to "why?", against what the model knows."""

from __future__ import annotations

from collections import Counter
from typing import Any

import model
from model.base import met
from whywait.kernel.kernel import Kernel

NAMED_AHEAD = 10


def check_why(kernel: Kernel, plain: model.Model, task: Any, expected: model.Task) -> None:
    """V1, V2, V7: the numbers of the answer for a task in any state; dispatch has come to rest."""
    why = kernel.why(plain.now, task)
    assert (why.id, why.state, why.outcome, why.cause) == (
        expected.id,
        expected.state,
        expected.outcome,
        expected.cause,
    )
    attempts = [other for other in plain.tasks if expected in attempts_after(other)]
    in_all: Counter[str] = Counter()
    for attempt in attempts:
        in_all.update(attempt.waits)
    assert {cause: ns for cause, ns in why.breakdown.items() if ns} == dict(in_all), f"waits of {expected}"
    assert why.waited_ns == in_all.total()
    assert why.starved_ns == sum(other.starved_ns for other in attempts)
    if expected.pending:
        assert why.primary == plain.wait_cause(expected), f"primary reason of {expected}"
    if expected.active:
        assert (why.lends, why.wants_slot) == (expected.lends, expected in plain.wanting)
        full = [scope.key for scope in expected.scope.path() if plain.is_full(scope)]
        assert sorted(reason.scope or "" for reason in why.reasons) == (sorted(full) if why.wants_slot else [])
    if expected.state == "READY":
        check_ready(why, plain, expected)
    if expected.state == "QUEUED":
        check_queued(why, expected)


def attempts_after(task: model.Task) -> list[model.Task]:
    """The task and all attempts that followed it."""
    return [task] if task.retried_as is None else [task, *attempts_after(task.retried_as)]


def check_ready(why: Any, plain: model.Model, expected: model.Task) -> None:
    """V1: position, what is ahead in order, and every closed gate."""
    order = plain.in_order()
    lane = [other for other in order if other.lane == expected.lane]
    assert why.position == lane.index(expected)
    assert why.effective_priority == plain.effective(expected)
    assert why.starved == plain.outranked(expected)
    ahead = plain.ahead_of(expected)
    first = [other.id for other in ahead[:NAMED_AHEAD]]
    assert {row.priority: row.tasks for row in why.ahead} == {
        priority: sum(other.priority == priority for other in ahead) for priority in {other.priority for other in ahead}
    }
    assert sorted(name for row in why.ahead for name in row.first) == sorted(first)
    told = [(reason.name, reason.scope or "") for reason in why.reasons if reason.kind not in {"held_back", "dispatch"}]
    assert told == plain.stops(expected)
    for reason in why.reasons:
        if reason.kind == "resource":
            payer = expected.scope.payer
            in_use, budget = plain.in_use(reason.name, payer), payer.budget
            assert reason.free == {**budget.hard, **budget.soft}[reason.name] - in_use
            assert sum(holder.amount for holder in reason.holders) == in_use
        if reason.kind == "device":
            check_device(reason, plain, expected)


def check_device(reason: Any, plain: model.Model, expected: model.Task) -> None:
    """N5: every unit with what is free and which tasks are on it; how many fit."""
    kind, payer = reason.name, expected.scope.payer
    units = payer.budget.devices[kind]
    assert (reason.need, reason.share) == plain.asked(kind, expected)
    assert reason.free == len(plain.fitting(kind, expected))
    assert reason.limit == len(units)
    assert reason.never == (not plain.could_ever_have(kind, expected))
    there = [unit for unit in reason.units if unit.present]
    assert {unit.name for unit in there} == set(units)
    for unit in reason.units:
        on_it = plain.on_unit(payer, kind, unit.name)
        assert [holder.number for holder in unit.holders] == [task.number for task in on_it]
        if unit.present and not unit.whole:
            assert unit.free == plain.free_memory(payer, kind, unit.name)


def check_queued(why: Any, expected: model.Task) -> None:
    """V1: unmet dependencies are named."""
    if met(expected):
        return
    unmet = [other.latest() for other in expected.after if other.latest().outcome is None]
    unmet += [other.latest() for other in expected.after_ended if other.latest().outcome is None]
    (reason,) = why.reasons
    assert {each.number for each in reason.tasks} == {other.number for other in unmet}
