"""What the kernel answers to "why?", against what the model knows."""

from __future__ import annotations

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
    assert {cause: ns for cause, ns in why.breakdown.items() if ns} == expected.waits, f"waits of {expected}"
    assert why.waited_ns == sum(expected.waits.values())
    assert why.starved_ns == expected.starved_ns
    if expected.pending:
        assert why.primary == plain.wait_cause(expected), f"primary reason of {expected}"
    if expected.state == "READY":
        check_ready(why, plain, expected)
    if expected.state == "QUEUED":
        check_queued(why, expected)


def check_ready(why: Any, plain: model.Model, expected: model.Task) -> None:
    """V1: position, what is ahead in order, and every closed gate."""
    order = plain.in_order()
    lane = [other for other in order if other.lane == expected.lane]
    assert why.position == lane.index(expected)
    assert why.effective_priority == plain.effective(expected)
    assert why.starved == plain.outranked(expected)
    ahead = order[: order.index(expected)]
    first = [other.id for other in ahead[:NAMED_AHEAD]]
    assert {row.priority: row.tasks for row in why.ahead} == {
        priority: sum(other.priority == priority for other in ahead) for priority in {other.priority for other in ahead}
    }
    assert sorted(name for row in why.ahead for name in row.first) == sorted(first)
    closed = plain.closed_gates(expected)
    if plain.is_full(plain.root):
        closed = [*closed, ("slot", "")]
    told = [(reason.name, reason.scope or "") for reason in why.reasons if reason.kind not in {"held_back", "dispatch"}]
    assert told == closed
    for reason in why.reasons:
        if reason.kind == "resource":
            assert reason.free == {**plain.hard, **plain.soft}[reason.name] - plain.in_use(reason.name)
            assert sum(holder.amount for holder in reason.holders) == plain.in_use(reason.name)


def check_queued(why: Any, expected: model.Task) -> None:
    """V1: unmet dependencies are named."""
    if met(expected):
        return
    unmet = [other.latest() for other in expected.after if other.latest().outcome is None]
    unmet += [other.latest() for other in expected.after_ended if other.latest().outcome is None]
    (reason,) = why.reasons
    assert {each.number for each in reason.tasks} == {other.number for other in unmet}
