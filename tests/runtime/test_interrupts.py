"""An exception out of nowhere, at any place: Ctrl-C while submitting, waiting, cancelling, disposing."""

import asyncio
import signal
import threading
import time
from contextlib import suppress

import pytest

from interrupts import Interrupt, at_every_place
from patience import PATIENCE_S, until
from whywait import Authority, InvalidTransition, WhywaitError, current, wait
from whywait.kernel import invariants
from whywait.runtime.handle import execution_of


def check_all_goes_on(authority, where):
    """The kernel is in order, the lock is free, and what is submitted now runs."""
    assert authority.submit(int).result(PATIENCE_S) == 0, where
    with authority._core.lock:
        invariants.check(authority._core.kernel, 1 << 62, rested=False)
    free = []
    thread = threading.Thread(target=lambda: free.append(authority.stats()))
    thread.start()
    thread.join(PATIENCE_S)
    assert free, f"the lock is held after an interrupt at {where}"


OPTIONS = {"priority": 80, "cpu": 1, "timeout": 60, "max_wait": 60}
UNITS = {"vram": "1GB", "devices": {"rig": 1}}


@pytest.mark.parametrize("engine", ["thread", "simple", "process", "asyncio"])
@pytest.mark.parametrize("options", [{}, OPTIONS, UNITS])
def test_submit_is_all_or_nothing(engine, options, tmp_path):
    """D1, O6: an interrupted submit has submitted its task, which then runs once, or has left no trace."""
    with Authority(slots=1, cpu=4, gpus=["8GB"], devices={"rig": 1}, engine=engine) as authority:
        authority.submit(int).result(PATIENCE_S)

        def attempt(place):
            name = {"id": f"task-{place}"} if options else {}
            file = tmp_path / f"{place}"
            with Interrupt(place) as interrupt:
                authority.submit(append_to, str(file), **options, **name)
            check_all_goes_on(authority, interrupt.where)
            assert not file.exists() or file.read_text() == "x", interrupt.where
            return interrupt.where

        at_every_place(attempt)
        assert authority.stats()["active"] == authority.stats()["queued"] == 0


def append_to(file):
    with open(file, "a", encoding="utf-8") as lines:  # noqa: PTH123 - runs in a worker process, too
        lines.write("x")


def test_submit_behind_a_full_slot():
    """D1: the same where the task has to wait, and where others wait already."""

    def attempt(place):
        gate, ran = threading.Event(), []
        with Authority(slots=1) as authority:
            authority.submit(gate.wait, PATIENCE_S)
            first = authority.submit(ran.append, "first")
            with Interrupt(place) as interrupt:
                authority.submit(ran.append, "second", after=[first])
            last = authority.submit(ran.append, "last")
            gate.set()
            last.result(PATIENCE_S)
            check_all_goes_on(authority, interrupt.where)
        assert ran in (["first", "last"], ["first", "second", "last"], ["first", "last", "second"]), interrupt.where
        return interrupt.where

    at_every_place(attempt)


def test_a_card_that_dies():
    """N1, N3: an interrupted resize has happened or has not; no task loses its unit, and what waits goes on."""

    def attempt(place):
        gate = threading.Event()
        with Authority(slots=4, gpus=["8GB", "8GB"]) as authority:
            holders = [authority.submit(gate.wait, PATIENCE_S, gpu=1) for _ in range(2)]
            waiting = authority.submit(int, vram="6GB")
            with Interrupt(place) as interrupt:
                authority.resize(gpus={"0": "8GB"}, slots=3)
            assert [handle.devices for handle in holders] == [{"gpu": ["0"]}, {"gpu": ["1"]}], interrupt.where
            check_all_goes_on(authority, interrupt.where)
            authority.resize(gpus={"0": "8GB"})
            gate.set()
            assert waiting.result(PATIENCE_S) == 0
            assert waiting.devices == {"gpu": ["0"]}
        return interrupt.where

    at_every_place(attempt)


def test_cancel_and_dispose():
    """X4, O4: an interrupted cancel or dispose harms nobody else and can be done again."""

    def attempt(place):
        gate = threading.Event()
        with Authority(slots=1, grace=PATIENCE_S) as authority:
            running = authority.submit(gate.wait, PATIENCE_S)
            scope = authority.scope("doomed")
            doomed = [scope.submit(int, id=f"t{number}") for number in range(3)]
            behind = authority.submit(int, after=[running])
            with Interrupt(place) as interrupt:
                doomed[0].cancel()
                scope.dispose()
            doomed[0].cancel()
            scope.dispose()
            assert [handle.exception(PATIENCE_S) is not None for handle in doomed] == [True] * 3
            gate.set()
            assert behind.result(PATIENCE_S) == 0
            check_all_goes_on(authority, interrupt.where)
        return interrupt.where

    at_every_place(attempt)


def in_threads(*waits):
    """Run functions that wait in threads of their own; return what tells whether all have heard what they wait for."""
    heard = []

    def run(wait):
        with suppress(WhywaitError):
            wait()
        heard.append(wait)

    threads = [threading.Thread(target=run, args=(wait,), daemon=True) for wait in waits]
    for thread in threads:
        thread.start()

    def have_heard():
        for thread in threads:
            thread.join(PATIENCE_S)
        return len(heard) == len(waits)

    return have_heard


def test_an_end_is_told_to_all_that_wait_for_it():
    """D4, W3: readers of streams and followers among them; and callbacks are called once."""

    def attempt(place):
        gate, called = threading.Event(), []
        with Authority(slots=1) as authority:
            running, waiting = authority.submit(gate.wait, PATIENCE_S), authority.submit(int)
            reader, future = waiting.stream(), waiting.future()
            have_heard = in_threads(lambda: list(reader), future.result, waiting.result, lambda: wait([waiting]))
            until(lambda: len(execution_of(waiting).waiters or ()) == 1 and reader._stream.waiters._bells)
            waiting.add_done_callback(called.append)
            with Interrupt(place) as interrupt:
                waiting.cancel()
            waiting.cancel()
            assert have_heard(), interrupt.where
            until(lambda: called == [waiting], interrupt.where)
            gate.set()
            assert running.result(PATIENCE_S) is True
            check_all_goes_on(authority, interrupt.where)
        return interrupt.where

    at_every_place(attempt)


@pytest.mark.parametrize("verb", ["cancel", "resume"])
def test_a_pause_that_another_thread_waits_for(verb):
    """X1: the thread hears that the body will not park, also where what tells it is broken off."""

    def attempt(place):
        gate = threading.Event()
        with Authority(slots=2, pause_timeout=10 * PATIENCE_S) as authority:
            handle = authority.submit(gate.wait, PATIENCE_S)
            until(lambda: handle.state == "RUNNING")
            have_heard = in_threads(handle.pause)
            until(lambda: authority._core.pause_waiters)
            with Interrupt(place) as interrupt:
                getattr(handle, verb)()
            if interrupt.where is not None:
                with suppress(InvalidTransition):
                    getattr(handle, verb)()
            assert have_heard(), interrupt.where
            gate.set()
            check_all_goes_on(authority, interrupt.where)
        return interrupt.where

    at_every_place(attempt)


@pytest.mark.parametrize("kind", ["thread", "coroutine"])
def test_a_body_that_gets_its_slot_again(kind):
    """S7: it goes on, also where what tells it is broken off."""

    def attempt(place):
        gate = threading.Event()
        with Authority(slots=1, when_blocked="lend") as authority:

            def lends():
                with suppress(TimeoutError):
                    authority.submit(gate.wait, PATIENCE_S).result(0.01)

            async def lends_async():
                with suppress(TimeoutError):
                    await asyncio.wait_for(authority.submit(gate.wait, PATIENCE_S), 0.01)

            handle = authority.submit(lends if kind == "thread" else lends_async)
            until(lambda: execution_of(handle).returning)
            with Interrupt(place) as interrupt:
                authority.resize(slots=2)
            authority.resize(slots=2)
            assert handle.exception(PATIENCE_S) is None, interrupt.where
            gate.set()
            check_all_goes_on(authority, interrupt.where)
        return interrupt.where

    at_every_place(attempt)


def test_waiting_for_a_result():
    """T3: an interrupted wait ends the waiting only; others who wait are woken."""

    def attempt(place):
        gate, is_over = threading.Event(), threading.Event()
        with Authority(slots=1) as authority:
            handle = authority.submit(gate.wait, PATIENCE_S)
            results = []
            other = threading.Thread(target=lambda: results.append(handle.result(PATIENCE_S)))
            other.start()

            def open_gate():
                while not is_over.is_set() and len(execution_of(handle).waiters or ()) < 2:
                    time.sleep(0.0005)
                gate.set()

            threading.Thread(target=open_gate).start()
            with Interrupt(place) as interrupt:
                handle.result(PATIENCE_S)
            is_over.set()
            other.join(PATIENCE_S)
            assert results == [True], interrupt.where
            check_all_goes_on(authority, interrupt.where)
        return interrupt.where

    at_every_place(attempt)


@pytest.mark.usefixtures("no_collector")
def test_signals_at_any_moment():
    """D1: real signals that interrupt a stream of submissions lose no task, no slot and no wake-up."""
    ran, accepted, interrupts = [], [], 0

    def interrupt(number, frame):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGPROF, interrupt)
    try:
        with Authority(slots=2) as authority:
            for _ in range(200):
                try:
                    signal.setitimer(signal.ITIMER_PROF, 1e-6)  # it comes with the next tick of the processor's time
                    while True:
                        accepted.append(authority.submit(ran.append, None))
                except KeyboardInterrupt:
                    interrupts += 1
            for handle in accepted:
                handle.result(PATIENCE_S)
            check_all_goes_on(authority, "a signal")
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
    assert interrupts > 100
    assert len(accepted) <= len(ran) <= len(accepted) + interrupts


@pytest.mark.parametrize("block", ["authority", "scope"])
def test_ctrl_c_while_leaving_a_block_disposes_it(block, monkeypatch):
    """O6: to break off the wait is to leave by an exception."""

    def interrupted(_):
        raise KeyboardInterrupt

    monkeypatch.setattr("whywait.runtime.scope.OpenScope.leave", interrupted)
    authority = Authority(slots=1)
    inside = authority if block == "authority" else authority.scope("s")
    bodies = (lambda: current().signal.wait(PATIENCE_S), int)
    handles = []
    with pytest.raises(KeyboardInterrupt), inside:
        handles += [inside.submit(body) for body in bodies]
    assert [handle.cause for handle in handles] == ["scope_disposed", "scope_disposed"]
    authority.dispose()


@pytest.mark.parametrize("block", ["authority", "scope"])
def test_cancelling_a_wait_to_leave_a_block_disposes_it(block):
    """O6: the async forms do the same."""

    async def main():
        authority = Authority(slots=1)
        inside = authority if block == "authority" else authority.scope("s")
        handles = []

        async def leave():
            async with inside:
                handles.append(inside.submit(asyncio.sleep, PATIENCE_S))

        leaving = asyncio.create_task(leave())
        while not authority._core._watchers:  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0)
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving
        assert handles[0].cause == "scope_disposed"
        await authority.dispose_async()

    asyncio.run(main())
