"""The short way between two tasks decides exactly like the long one."""

import random

import pytest

from whywait.kernel.events import Event
from whywait.kernel.kernel import Kernel
from whywait.kernel.lanes import Aging, Strict
from whywait.kernel.model import Budget, Limits, Policy, make_demand

MS_NS = 1_000_000


def run(seed, use_turn):
    """Drive a busy kernel with a few priorities, scopes and demands; return its events and all waits."""
    rng = random.Random(seed)
    events = []
    kernel = Kernel(
        Limits(slots=rng.choice((1, 2, 3))),
        Budget({"cpu": 3}, {"ram": 4}),
        rng.choice((Strict(), Aging(every=0.003, boost=10))),
        backfill=rng.choice(("greedy", "greedy", "none")),
        emit=events.append,
    )
    scopes = [kernel.open_scope(0, "a"), kernel.open_scope(0, "b", limits=Limits(slots=rng.choice((None, 1))))]
    priorities = rng.choice(((50,), (50, 80), (0, 50, 100)))
    demands = [(), *(make_demand(cpu=rng.randint(0, 3), ram=rng.randint(0, 5)) for _ in range(rng.randint(0, 3)))]
    policies = (None, None, None, Policy(max_wait_ns=5 * MS_NS), Policy(timeout_ns=3 * MS_NS))
    if rng.random() < 0.3:  # all in one lane
        scopes, priorities, demands, policies = scopes[:1], (50,), [()], (None,)
    tasks, now, dependent = [], 0, rng.choice((0.15, 0.8))
    for step in range(120):
        now += rng.choice((0, 1, 2)) * MS_NS
        kernel.fire(now)
        for _, task in kernel.requests:
            if task.holds_slot:
                kernel.ended(now, task, "ERROR", "exception")
        kernel.requests.clear()
        for _ in range(rng.choice((0, 1, 3))):
            after = rng.sample(tasks[-9:], min(len(tasks), rng.choice((1, 1, 2)))) if rng.random() < dependent else ()
            name = f"{rng.choice('abc')}{step}-{len(tasks)}" if rng.random() < 0.5 else None
            scope, priority, demand = rng.choice(scopes), rng.choice(priorities), rng.choice(demands)
            tasks.append(kernel.submit(now, scope, name, priority, demand, after, policy=rng.choice(policies)))
        kernel.dispatch(now)
        for task in list(kernel.running.values()):
            if rng.random() < 0.7 and task.holds_slot:
                outcome = rng.choice((("SUCCESS",), ("SUCCESS",), ("SUCCESS",), ("ERROR", "exception")))
                if use_turn:
                    kernel.turn(now, task, *outcome)
                else:
                    kernel.ended(now, task, *outcome)
                    kernel.dispatch(now)
    return [Event.of(raw) for raw in events], [task.waits for task in tasks]


@pytest.mark.parametrize("first", range(0, 300, 50))
def test_turn_equals_ended_and_dispatch(first):
    """P2, T5, V3, V7: the hand-over of a slot gives the same starts, events and waits as release and dispatch."""
    for seed in range(first, first + 50):
        assert run(seed, use_turn=True) == run(seed, use_turn=False), f"seed {seed}"
