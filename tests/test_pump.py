"""The pump of the process engine: nothing that is posted is lost, whoever is held up or cannot be had."""

import logging
import threading
from collections import deque

import pytest

from patience import PATIENCE_S, until
from whywait import Authority, TaskFailed
from whywait.engines.pump import Pump


@pytest.fixture
def pump():
    """A pump that calls what is posted."""
    made = Pump("pump-under-test", lambda item: item(), lambda _: None, lambda _: None, lambda: None)
    yield made
    made.close()


class Hook(deque):
    """An inbox that calls ``meanwhile`` once, between the last look of who leads and its sleep."""

    meanwhile = None

    def __bool__(self):
        if self.meanwhile is not None:
            act, self.meanwhile = self.meanwhile, None
            act()
        return len(self) > 0


def refuse_threads(patch, name):
    """Let the system refuse every thread of this name."""
    start = threading.Thread.start

    def refuse(thread):
        if thread.name == name:
            raise RuntimeError("can't start new thread")
        start(thread)

    patch.setattr(threading.Thread, "start", refuse)


def test_an_understudy_that_saw_the_leader_fall_asleep_is_woken_when_it_does_not(pump):
    """S1: who leads was about to sleep and got something to do instead; when that takes long, somebody else leads."""
    pump._inbox = inbox = Hook()
    freed, through = threading.Event(), threading.Event()

    def held_up():
        assert freed.wait(PATIENCE_S)
        through.set()

    def post_when_the_understudy_sleeps():
        if not pump._is_asleep:  # the look before the one that counts
            inbox.meanwhile = post_when_the_understudy_sleeps
            return
        until(lambda: pump._understudy_sleeps and pump._bell._cond._waiters)
        inbox.extend([held_up, freed.set])

    inbox.meanwhile = post_when_the_understudy_sleeps
    pump.look_again()
    assert through.wait(PATIENCE_S)


def test_without_an_understudy_the_pump_goes_on(pump, monkeypatch, caplog):
    """S1: the system gives no thread for it; that is in the log, and what is posted is done."""
    refuse_threads(monkeypatch, "pump-under-test-understudy")
    done = threading.Event()
    with caplog.at_level(logging.WARNING, "whywait"):
        pump.post(done.set)
    assert done.wait(PATIENCE_S)
    assert "has no understudy" in caplog.text


def test_when_nobody_can_lead_the_task_fails_and_the_next_one_runs():
    """T2, S1: with the system's error; its slot is back."""
    with Authority(engine="process", slots=1) as authority:
        with pytest.MonkeyPatch.context() as patch:
            refuse_threads(patch, "whywait-process")
            for _ in range(2):
                with pytest.raises(TaskFailed, match="can't start new thread"):
                    authority.submit(int).result(PATIENCE_S)
        assert authority.submit(int).result(PATIENCE_S) == 0
