"""The pump of the process engine: nothing that is posted is lost, whoever is held up or cannot be had."""

import logging
import os
import threading
import time
from collections import deque

import pytest

from patience import PATIENCE_S, until
from whywait import Authority, TaskFailed
from whywait.engines.process.pump import Pump

NAME = "pump-under-test"


@pytest.fixture
def pump():
    """A pump that calls what is posted, and may end when it had nothing to do for a while."""
    made = Pump(NAME, lambda item: item(), lambda _: None, lambda _: None, lambda: True)
    yield made
    made.close()


def threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith(NAME)]


class Hook(deque):
    """What is posted; calls ``meanwhile`` once, between the last look of who leads and its sleep."""

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
    pump._posted = posted = Hook()
    freed, through = threading.Event(), threading.Event()

    def held_up():
        assert freed.wait(PATIENCE_S)
        through.set()

    def post_when_the_understudy_sleeps():
        if not pump._is_asleep:  # the look before the one that counts
            posted.meanwhile = post_when_the_understudy_sleeps
            return
        until(lambda: pump._understudy_sleeps and pump._wake_understudy._cond._waiters)
        posted.extend([held_up, freed.set])

    posted.meanwhile = post_when_the_understudy_sleeps
    pump._start()  # and not woken: it would not be asleep then
    assert through.wait(PATIENCE_S)


def test_without_an_understudy_the_pump_goes_on(pump, monkeypatch, caplog):
    """S1: the system gives no thread for it; that is in the log, and what is posted is done."""
    refuse_threads(monkeypatch, f"{NAME}-understudy")
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


def test_a_pump_without_work_has_no_threads_until_something_is_posted(pump, monkeypatch):
    """C1: nobody keeps alive what nobody needs; what is posted while the threads end is not lost."""
    monkeypatch.setattr("whywait.engines.process.pump.NAP_S", 0.0)
    for _ in range(200):
        done = threading.Event()
        pump.post(done.set)
        assert done.wait(PATIENCE_S)
    until(lambda: not threads())
    done = threading.Event()
    pump.post(done.set)
    assert done.wait(PATIENCE_S)


def test_a_pump_that_watches_something_does_not_end():
    """C1: what it watches may have something to say at any time."""
    reading, writing = os.pipe()
    served, rested = threading.Event(), threading.Event()

    def rest():
        rested.set()
        return True

    class Line:
        def fileno(self):
            return reading

    def serve(_):
        os.read(reading, 1)
        served.set()

    pump = Pump(NAME, lambda kind: kind(), serve, lambda _: None, rest)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("whywait.engines.process.pump.NAP_S", 0.001)
        pump.post(Line)
        assert rested.wait(PATIENCE_S)
        os.write(writing, b"x")
        assert served.wait(PATIENCE_S)
        until(lambda: not threads())
    pump.close()
    os.close(reading)
    os.close(writing)


def test_the_pipe_is_closed_by_nobody_who_may_still_be_written_to(pump):
    """O5: who leads ends as soon as it sees that it shall; the pipe stays until who closes has made its last call."""
    ran = threading.Event()
    pump.post(ran.set)
    assert ran.wait(PATIENCE_S)
    call, stayed = pump._wake, []

    def call_slowly():
        call()
        time.sleep(0.05)  # who leads has every chance to be quicker
        stayed.append(not pump._wake_in.closed)
        call()

    pump._wake = call_slowly
    pump.close()
    assert stayed == [True]
    until(lambda: pump._wake_in.closed and not threads(), "the end of the pump")
