"""The Ray engine at unlucky moments: what two threads of its pump do at once, what Ray must not be asked."""

from types import SimpleNamespace

import pytest

from whywait.engines.base import SUCCEEDED
from whywait.engines.frames import KIND_VALUE
from whywait.engines.ray import RayEngine
from whywait.engines.ray_outpost import Outpost, Shipment

STATUS = (KIND_VALUE, None, 0, 5)


def task(number):
    """As much of a handle as the engine looks at."""
    return SimpleNamespace(
        _task=SimpleNamespace(number=number), _fn=None, attention=False, aborted=False, done=lambda: False
    )


@pytest.fixture
def batch(monkeypatch):
    """An engine with two tasks in one batch, of which the second goes ahead; reports end up in ``engine.ended``."""
    for need in ("require_ray", "require_cloudpickle"):  # it is told what its cluster would say
        monkeypatch.setattr(f"whywait.engines.ray.{need}", lambda: None)
    engine = RayEngine(batch=True)
    engine.ended = []
    engine._results = SimpleNamespace(keep=lambda *_: SUCCEEDED)
    engine._pump = SimpleNamespace(later=None, post=lambda _: None)
    first, second = (Outpost(task(number), None, 1) for number in (1, 2))
    second.is_ahead = True
    Shipment([first, second], is_batch=True)
    engine._outposts = {1: first, 2: second}
    return engine, first, second


def let(engine, meanwhile):
    """Let the kernel give the heir its slot, and another thread do something before that is noted."""

    def hand_on(_handle, _outcome, _heir, *, heir_runs):
        meanwhile()
        return True

    engine.authority = SimpleNamespace(
        hand_on=hand_on, ended=lambda handle, *_: engine.ended.append(handle._task.number)
    )


def test_one_that_ends_while_it_gets_its_slot_is_reported(batch):
    """T4: its result came first, on the other thread."""
    engine, first, second = batch
    let(engine, lambda: engine._keep_ahead(second, STATUS, "value"))
    engine._end(first, SUCCEEDED, second, heir_runs=True)
    assert engine.ended == [2]
    assert not engine._outposts


def test_one_that_is_sent_back_while_it_gets_its_slot_is_sent_again(batch):
    """T4: the other thread found that its shipment was lost, or that it had not begun."""
    engine, first, second = batch
    let(engine, lambda: engine._send_again(second))
    engine._end(first, SUCCEEDED, second, heir_runs=True)
    assert list(engine._inbox) == [second.handle]


def test_one_that_gets_its_slot_in_peace_runs_on(batch):
    """T4: nothing is sent, nothing reported; its end is yet to come."""
    engine, first, second = batch
    let(engine, lambda: None)
    engine._end(first, SUCCEEDED, second, heir_runs=True)
    assert (engine.ended, list(engine._inbox), second.is_ahead) == ([], [], False)
    assert engine._outposts == {2: second}


def test_what_was_just_sent_is_not_withdrawn_from_ray_at_once(batch, monkeypatch):
    """X4: Ray may be about to begin it, or to be through; it would take the whole process down."""
    engine, first, _ = batch
    delays, cancelled = [], []
    engine.authority = SimpleNamespace(call_later=lambda delay_s, _: delays.append(delay_s))
    monkeypatch.setattr(Shipment, "cancel", lambda _: cancelled.append(True))
    engine._withdraw(first.shipment)
    assert (len(delays), cancelled) == (1, [])
    first.sent_s -= 10
    engine._withdraw(first.shipment)
    assert (len(delays), cancelled) == (1, [True])
