"""An exception out of nowhere, at any line: Ctrl-C while submitting, waiting, cancelling, disposing."""

import asyncio
import signal
import sys
import threading

import pytest

from invariants import check_invariants
from patience import PATIENCE_S
from whywait import Authority, current

OURS = "whywait"


class Interrupt:
    """Raises KeyboardInterrupt at the n-th different line of this project's code that runs within the block."""

    def __init__(self, line):
        self.line = line
        self.seen = set()
        self.where = None

    def __enter__(self):
        sys.settrace(self._trace)
        return self

    def __exit__(self, kind, error, traceback):
        sys.settrace(None)
        return kind is KeyboardInterrupt

    def _trace(self, frame, event, arg):
        if not (frame.f_globals.get("__name__") or "").startswith(OURS):
            return None
        if event == "line":
            self.seen.add((frame.f_code, frame.f_lineno))
            if len(self.seen) > self.line and self.where is None:
                self.where = f"{frame.f_code.co_qualname}:{frame.f_lineno}"
                sys.settrace(None)
                raise KeyboardInterrupt
        return self._trace


def at_every_line(attempt, limit=2000):
    """Call ``attempt(line)`` with an interrupt at each line in turn, until it runs through without one."""
    for line in range(limit):
        if attempt(line) is None:
            assert line > 5, "there was nothing to interrupt"
            return
    raise AssertionError(f"still not through after {limit} lines")


def check_all_goes_on(authority, where):
    """The kernel is in order, the lock is free, and what is submitted now runs."""
    assert authority.submit(int).result(PATIENCE_S) == 0, where
    with authority.lock:
        check_invariants(authority.kernel, 1 << 62, rested=False)
    free = []
    thread = threading.Thread(target=lambda: free.append(authority.stats()))
    thread.start()
    thread.join(PATIENCE_S)
    assert free, f"the lock is held after an interrupt at {where}"


OPTIONS = {"priority": 80, "cpu": 1, "timeout": 60, "max_wait": 60}


@pytest.mark.parametrize("engine", ["thread", "simple", "process", "asyncio"])
@pytest.mark.parametrize("options", [{}, OPTIONS])
def test_submit_is_all_or_nothing(engine, options, tmp_path):
    """D1, O6: an interrupted submit has submitted its task, which then runs once, or has left no trace."""
    with Authority(slots=1, cpu=4, engine=engine) as authority:
        authority.submit(int).result(PATIENCE_S)

        def attempt(line):
            name = {"id": f"task-{line}"} if options else {}
            file = tmp_path / f"{line}"
            with Interrupt(line) as interrupt:
                authority.submit(append_to, str(file), **options, **name)
            check_all_goes_on(authority, interrupt.where)
            assert not file.exists() or file.read_text() == "x", interrupt.where
            return interrupt.where

        at_every_line(attempt)
        assert authority.stats()["active"] == authority.stats()["queued"] == 0


def append_to(file):
    with open(file, "a", encoding="utf-8") as lines:  # noqa: PTH123 - runs in a worker process, too
        lines.write("x")


def test_submit_behind_a_full_slot():
    """D1: the same where the task has to wait, and where others wait already."""

    def attempt(line):
        gate, ran = threading.Event(), []
        with Authority(slots=1) as authority:
            authority.submit(gate.wait, PATIENCE_S)
            first = authority.submit(ran.append, "first")
            with Interrupt(line) as interrupt:
                authority.submit(ran.append, "second", after=[first])
            last = authority.submit(ran.append, "last")
            gate.set()
            last.result(PATIENCE_S)
            check_all_goes_on(authority, interrupt.where)
        assert ran in (["first", "last"], ["first", "second", "last"], ["first", "last", "second"]), interrupt.where
        return interrupt.where

    at_every_line(attempt)


def test_cancel_and_dispose():
    """X4, O4: an interrupted cancel or dispose harms nobody else and can be done again."""

    def attempt(line):
        gate = threading.Event()
        with Authority(slots=1, grace=PATIENCE_S) as authority:
            running = authority.submit(gate.wait, PATIENCE_S)
            scope = authority.scope("doomed")
            doomed = [scope.submit(int, id=f"t{number}") for number in range(3)]
            behind = authority.submit(int, after=[running])
            with Interrupt(line) as interrupt:
                doomed[0].cancel()
                scope.dispose()
            doomed[0].cancel()
            scope.dispose()
            assert [handle.exception(PATIENCE_S) is not None for handle in doomed] == [True] * 3
            gate.set()
            assert behind.result(PATIENCE_S) == 0
            check_all_goes_on(authority, interrupt.where)
        return interrupt.where

    at_every_line(attempt)


def test_waiting_for_a_result():
    """T3: an interrupted wait ends the waiting only; others who wait are woken."""

    def attempt(line):
        gate = threading.Event()
        with Authority(slots=1) as authority:
            handle = authority.submit(gate.wait, PATIENCE_S)
            results = []
            other = threading.Thread(target=lambda: results.append(handle.result(PATIENCE_S)))
            other.start()
            threading.Timer(0.002, gate.set).start()
            with Interrupt(line) as interrupt:
                handle.result(PATIENCE_S)
            other.join(PATIENCE_S)
            assert results == [True], interrupt.where
            check_all_goes_on(authority, interrupt.where)
        return interrupt.where

    at_every_line(attempt)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # from a callback of the collector
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
                    for _ in range(10_000):  # or not at all, if it comes where Python swallows exceptions
                        accepted.append(authority.submit(ran.append, None))  # noqa: PERF401 - one at a time
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

    monkeypatch.setattr("whywait.scope.Scope.wait", interrupted)
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
        while not authority._watchers:  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0)
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving
        assert handles[0].cause == "scope_disposed"
        await authority.dispose_async()

    asyncio.run(main())
