"""P2, S1: which tasks go to a cluster together; decided without one."""

from collections import deque
from types import SimpleNamespace

import pytest

from whywait.engines import ray_batches
from whywait.engines.ray_batches import AT_MOST, CREDIT, DEPTH, PATIENCE_S, PROVEN, SPREAD, TINY_US, Batches


def tiny():
    """Stand for a function that is over in no time."""


def other():
    """Stand for another one."""


def task(fn=tiny, demand=(), timeout_ns=None):
    """Stand for the handle of a permitted task."""
    policy = SimpleNamespace(timeout_ns=timeout_ns, max_wait_ns=None)
    return SimpleNamespace(_fn=fn, _task=SimpleNamespace(policy=policy, demand=demand), _engine="ray", attention=False)


@pytest.fixture
def batches():
    """Batches that know the function as tiny."""
    made = Batches(None)
    for _ in range(CREDIT):
        made.took(tiny, 20)
    return made


def test_a_function_has_to_prove_itself():
    """S1: nothing is assumed of a function that was never run."""
    batches = Batches(None)
    for _ in range(PROVEN):
        assert not batches.may_share(task())
        batches.took(tiny, 20)
    assert batches.may_share(task())
    assert not batches.may_share(task(other))


def test_one_long_body_among_many_tiny_ones_changes_nothing_and_several_do(batches):
    """S1: a busy machine holds up even the shortest now and then; a function that has become slow is found out."""
    batches.took(tiny, 50 * TINY_US)
    assert batches.may_share(task())
    batches.took(tiny, None)
    batches.took(tiny, 2 * TINY_US)
    assert not batches.may_share(task())


def test_a_function_of_which_every_fourth_body_is_long_never_shares():
    """S1: those behind a long body would be handed back all the time."""
    batches = Batches(None)
    for turn in range(400):
        batches.took(tiny, 5 * TINY_US if turn % 4 == 3 else 20)
        assert not batches.may_share(task())


def test_a_failure_ends_it(batches):
    """T2: whoever fails goes alone until it has proven itself again."""
    batches.failed(tiny)
    assert not batches.may_share(task())


@pytest.mark.parametrize(("allowed", "shares"), [(True, True), (False, False)])
def test_the_user_has_the_last_word(allowed, shares):
    """E1: what the user says wins."""
    batches = Batches(allowed)
    assert batches.may_share(task()) is shares
    for _ in range(PROVEN):
        batches.took(tiny, 20)
    assert batches.may_share(task()) is shares
    assert not batches.may_share(task(timeout_ns=1))


def test_a_batch_is_taken_from_the_front_and_ends_where_somebody_else_stands(batches):
    """P2: order is kept."""
    queue = [task(), task(), task(demand=(("cpu", 2),)), task(), task(other)]
    inbox = deque(queue)
    assert batches.take(inbox) == queue[:2]
    assert batches.take(inbox) == queue[2:3]
    assert batches.take(inbox) == queue[3:4]
    assert list(inbox) == queue[4:]


def test_a_queue_is_shared_among_the_cpus_but_not_among_too_many(batches):
    """S1: what runs at the same time is quicker, but to send costs, too."""
    batches.spread_over(4)
    assert len(batches.take(deque(task() for _ in range(40)))) == 10
    batches.spread_over(10_000)
    assert len(batches.take(deque(task() for _ in range(10 * SPREAD)))) == 10
    assert len(batches.take(deque(task() for _ in range(10 * AT_MOST * SPREAD)))) == AT_MOST
    following = [task() for _ in range(4 * SPREAD)]
    assert batches.take_ahead(task(), 3, following) == following[:3]
    assert batches.take_ahead(task(), 30, [*following[:2], task(other), *following]) == following[:1]


def test_who_waits_for_company_does_not_wait_for_ever(batches, monkeypatch):
    """S1: batches that Ray has no place for do not come back."""
    now = [100.0]
    monkeypatch.setattr(ray_batches, "monotonic", lambda: now[0])
    assert not batches.waits(task())
    batches.under_way = DEPTH
    assert not batches.waits(task(other))
    assert batches.waits(task())
    now[0] += 0.9 * PATIENCE_S
    assert batches.waits(task())
    batches.came_back()
    now[0] += 0.9 * PATIENCE_S
    assert batches.waits(task())
    now[0] += 1.1 * PATIENCE_S
    assert not batches.waits(task())
