"""S1, B1, P2: limits that change while tasks run, and slots that pass on to who was next in line."""

import pytest

from whywait.errors import ConfigError
from whywait.kernel.kernel import Kernel
from whywait.kernel.model import Budget, Limits, make_demand
from whywait.kernel.state import Outcome, TaskState


def make(slots=1, **budget):
    """Return a kernel, its scope, and the events it emits."""
    events = []
    kernel = Kernel(Limits(slots=slots), Budget(hard=budget), emit=events.append)
    return kernel, kernel.open_scope(0, "s"), events


def test_more_slots_let_more_start_and_fewer_let_nothing_start_until_enough_have_ended():
    """S1: what runs goes on; as long as more run than may, nothing starts."""
    kernel, scope, events = make(slots=1)
    tasks = [kernel.submit(0, scope) for _ in range(5)]
    assert kernel.dispatch(0) == tasks[:1]
    kernel.resize(1, "slot", 3)
    assert kernel.dispatch(1) == tasks[1:3]
    kernel.resize(2, "slot", 1)
    assert kernel.turn(3, tasks[0], Outcome.SUCCESS) == (None, [])
    assert kernel.turn(4, tasks[1], Outcome.SUCCESS) == (None, [])
    assert kernel.turn(5, tasks[2], Outcome.SUCCESS) == (None, [tasks[3]])
    assert [event[7] for event in events if event[2] == "LIMIT_CHANGED"] == [(("limit", 3),), (("limit", 1),)]


def test_more_of_a_resource_opens_its_gate_for_those_that_fit_now():
    """B1: the lanes that wait for it are looked at again; a resource that was not there can come."""
    kernel, scope, _ = make(slots=10, cpu=1)
    small, large = (kernel.submit(0, scope, demand=make_demand(1)) for _ in range(2))
    assert kernel.dispatch(0) == [small]
    kernel.resize(1, "cpu", 2)
    assert kernel.dispatch(1) == [large]
    kernel.resize(2, "spot", 1)
    spot = kernel.submit(2, scope, demand=make_demand(resources={"spot": 1}))
    assert kernel.dispatch(2) == [spot]
    kernel.resize(3, "spot", 0)
    assert kernel.resources["spot"].free == -1
    kernel.turn(4, spot, Outcome.SUCCESS)
    assert kernel.resources["spot"].free == 0


@pytest.mark.parametrize(("name", "limit"), [("slot", 0), ("cpu", -1), ("dependency", 1)])
def test_a_limit_that_makes_no_sense_is_refused(name, limit):
    """S1, B1: with the name and the value."""
    kernel, _, _ = make(cpu=1)
    with pytest.raises(ConfigError, match=f"limit {name} {limit}"):
        kernel.resize(0, name, limit)


def test_who_follows_in_a_lane_is_told_only_if_it_is_next_in_order():
    """P2: not while somebody of higher priority waits."""
    kernel, scope, _ = make()
    first, second, third = (kernel.submit(0, scope) for _ in range(3))
    kernel.dispatch(0)
    assert kernel.following(0, first, 5) == [second, third]
    assert kernel.following(0, first, 1) == [second]
    kernel.cancel(1, second)
    kernel.dispatch(1)
    assert kernel.following(1, first, 5) == [third]
    kernel.submit(2, scope, priority=80)
    assert kernel.following(2, first, 5) == []


def test_a_slot_passes_on_to_the_heir_whoever_has_come_since():
    """P5, T4: the heir was next when it was promised the slot; one slot, one task at a time."""
    kernel, scope, _ = make()
    first, second = (kernel.submit(0, scope) for _ in range(2))
    kernel.dispatch(0)
    urgent = kernel.submit(1, scope, priority=100)
    assert kernel.hand_on(2, first, Outcome.SUCCESS, None, True, second, heir_runs=True) == (None, True)
    assert second.state == TaskState.RUNNING
    assert second.waits == {"slot": 2}
    assert list(kernel.running.values()) == [second]
    assert kernel.dispatch(2) == []
    assert kernel.turn(3, second, Outcome.SUCCESS) == (None, [urgent])


def test_an_heir_that_is_over_waits_for_its_turn_like_everybody():
    """P2: what it is worth is known, but nobody is overtaken."""
    kernel, scope, _ = make()
    first, second, third = (kernel.submit(0, scope) for _ in range(3))
    kernel.dispatch(0)
    assert kernel.hand_on(1, first, Outcome.SUCCESS, None, True, second, heir_runs=False) == (None, True)
    urgent = kernel.submit(1, scope, priority=100)
    assert kernel.hand_on(2, second, Outcome.SUCCESS, None, True, third, heir_runs=False) == (None, False)
    assert kernel.dispatch(2) == [urgent]


@pytest.mark.parametrize("what", ["cancel", "pause"])
def test_an_heir_that_is_not_ready_any_more_does_not_start(what):
    """D4, X1: the slot is free for whoever is next then."""
    kernel, scope, _ = make()
    first, second, third = (kernel.submit(0, scope) for _ in range(3))
    kernel.dispatch(0)
    getattr(kernel, what)(1, second)
    assert kernel.hand_on(2, first, Outcome.SUCCESS, None, True, second, heir_runs=True) == (None, False)
    assert kernel.dispatch(2) == [third]
