"""S1, B1: limits that change while tasks run."""

import pytest

from whywait.errors import ConfigError
from whywait.kernel.kernel import Kernel
from whywait.kernel.limits import Budget, Limits, make_demand
from whywait.kernel.state import Outcome
from whywait.observe.explain import in_words


def make(slots=1, **budget):
    """Return a kernel, its scope, and the events it emits."""
    events = []
    kernel = Kernel(Limits(slots=slots), Budget(hard=budget), emit=events.append)
    return kernel, kernel.open_scope(0, "s"), events


def end_and_dispatch(kernel, now, task):
    assert kernel.ended(now, task, Outcome.SUCCESS) is None
    return kernel.dispatch(now).started


def test_more_slots_let_more_start_and_fewer_let_nothing_start_until_enough_have_ended():
    """S1: what runs goes on; as long as more run than may, nothing starts."""
    kernel, scope, events = make(slots=1)
    tasks = [kernel.submit(0, scope) for _ in range(5)]
    assert kernel.dispatch(0).started == tasks[:1]
    kernel.resize(1, "slot", 3)
    assert kernel.dispatch(1).started == tasks[1:3]
    kernel.resize(2, "slot", 1)
    assert end_and_dispatch(kernel, 3, tasks[0]) == []
    assert end_and_dispatch(kernel, 4, tasks[1]) == []
    assert end_and_dispatch(kernel, 5, tasks[2]) == [tasks[3]]
    assert [event[7] for event in events if event[2] == "LIMIT_CHANGED"] == [(("limit", 3),), (("limit", 1),)]


def test_without_slots_nothing_starts_until_there_are_some_again():
    """S1: a service that is about to end lets what runs end."""
    kernel, scope, _ = make(slots=2)
    tasks = [kernel.submit(0, scope) for _ in range(3)]
    assert kernel.dispatch(0).started == tasks[:2]
    kernel.resize(1, "slot", 0)
    assert end_and_dispatch(kernel, 2, tasks[0]) == []
    assert end_and_dispatch(kernel, 3, tasks[1]) == []
    assert in_words(kernel.why(4, tasks[2])).in_short == "slots: there are none now, nothing more starts"
    kernel.resize(5, "slot", 1)
    assert kernel.dispatch(5).started == [tasks[2]]


def test_more_of_a_resource_opens_its_gate_for_those_that_fit_now():
    """B1: the lanes that wait for it are looked at again; a resource that was not there can come."""
    kernel, scope, _ = make(slots=10, cpu=1)
    small, large = (kernel.submit(0, scope, demand=make_demand(1)) for _ in range(2))
    assert kernel.dispatch(0).started == [small]
    kernel.resize(1, "cpu", 2)
    assert kernel.dispatch(1).started == [large]
    kernel.resize(2, "spot", 1)
    spot = kernel.submit(2, scope, demand=make_demand(resources={"spot": 1}))
    assert kernel.dispatch(2).started == [spot]
    kernel.resize(3, "spot", 0)
    assert kernel.resources["spot"].free == -1
    kernel.ended(4, spot, Outcome.SUCCESS)
    assert kernel.resources["spot"].free == 0


@pytest.mark.parametrize(("name", "limit"), [("slot", -1), ("cpu", -1), ("dependency", 1)])
def test_a_limit_that_makes_no_sense_is_refused(name, limit):
    """S1, B1: with the name and the value."""
    kernel, _, _ = make(cpu=1)
    with pytest.raises(ConfigError, match=f"limit {name} {limit}"):
        kernel.resize(0, name, limit)
