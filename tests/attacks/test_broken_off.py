"""Exceptions out of nowhere, one after the other: the lock is free, the kernel whole, nothing hangs."""

import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

import whywait
from interrupts import Interrupt, at_every_place
from patience import FREE_THREADED, PATIENCE_S, until
from whywait import Authority, Call, Executor, UnknownScope, WhywaitError
from whywait.engines.base import Engine, run_here
from whywait.kernel import invariants
from whywait.task.running import task_here

WAITING = 30_000
ALARM_S = 0.0013


class Alarm(BaseException):
    """What an alarm raises."""


def check_whole(authority, where):
    """The lock is free for another thread and for this one, the kernel is in order, and what is submitted runs."""
    others = []
    thread = threading.Thread(target=lambda: others.append(authority.submit(int).result(PATIENCE_S)))
    thread.start()
    assert authority.submit(int).result(PATIENCE_S) == 0, where
    thread.join(PATIENCE_S)
    assert others == [0], where
    with authority._core.lock:
        invariants.check(authority._core.kernel, 1 << 62, rested=False)


def at_depth(frames, fn):
    return fn() if not frames else at_depth(frames - 1, fn)


def depth():
    frame, count = sys._getframe(), 0
    while frame is not None:
        frame, count = frame.f_back, count + 1
    return count


@pytest.mark.parametrize("limit", [None, 400])
@pytest.mark.parametrize("waits", [False, True])
def test_submitting_where_the_stack_ends(limit, waits):
    """D1, O6: of 30 depths of the stack none leaves the lock held, whichever call of submit is one too many."""
    before = sys.getrecursionlimit()
    overflows = 0
    sys.setrecursionlimit(limit or before)
    try:
        with Authority(slots=2) as authority:
            for left in range(3, 33):
                gate, ran, handles = threading.Event(), [], []
                if waits:
                    handles += [authority.submit(gate.wait, PATIENCE_S) for _ in range(2)]
                try:
                    frames = sys.getrecursionlimit() - depth() - left
                    at_depth(frames, lambda: handles.append(authority.submit(ran.append, None)))  # noqa: B023
                except RecursionError:
                    overflows += 1
                gate.set()
                check_whole(authority, left)
                assert all(handle.exception(PATIENCE_S) is None for handle in handles), left
                assert len(ran) <= 1, left
            stats = authority.stats()
    finally:
        sys.setrecursionlimit(before)
    assert overflows > 3
    assert stats["active"] == stats["queued"] == 0


def test_a_visitor_that_submits_at_every_depth():
    """D1, O6: it overflows in one submit or another; each task that was accepted runs once, and no thread hangs."""
    ran = []

    def visit(authority, handles, padding):
        handles.append(authority.submit(ran.append, None))
        at_depth(padding, lambda: visit(authority, handles, padding))

    for layout in range(30):
        handles = []
        ran.clear()
        with Authority(slots=2) as authority:
            with pytest.raises(RecursionError):
                at_depth(layout, lambda: visit(authority, handles, layout % 7))  # noqa: B023
            check_whole(authority, layout)
            assert all(handle.exception(PATIENCE_S) is None for handle in handles), layout
        assert len(handles) <= len(ran) <= len(handles) + 1


@pytest.mark.parametrize("again", [0, 1, 2, 3, 5, 8, 13, 21, 34, 55])
def test_a_second_interrupt_while_the_first_is_handled(again):
    """D1, O6: the first at every place of a submission, the second so many calls later; a body runs once or never."""
    with Authority(slots=1, cpu=4) as authority:
        authority.submit(int).result(PATIENCE_S)

        def attempt(place):
            ran = []
            with Interrupt(place, again) as interrupt:
                authority.submit(ran.append, None, priority=80, cpu=1, timeout=PATIENCE_S)
            check_whole(authority, (interrupt.where, again))
            assert len(ran) <= 1, (interrupt.where, again)
            return interrupt.where

        assert at_every_place(attempt) > 50
        assert authority.stats()["active"] == authority.stats()["queued"] == 0


@pytest.mark.parametrize("again", [0, 2, 5, 13, 34])
def test_a_second_interrupt_while_a_disposal_is_mended(again):
    """X4, O4: neither cancel nor dispose, broken off twice, loses a task, a slot or a wake-up; both can be repeated."""

    def attempt(place):
        gate = threading.Event()
        with Authority(slots=1, grace=PATIENCE_S) as authority:
            running = authority.submit(gate.wait, PATIENCE_S)
            scope = authority.scope("doomed")
            doomed = [scope.submit(int) for _ in range(3)]
            behind = authority.submit(int, after=[running])
            with Interrupt(place, again) as interrupt:
                doomed[0].cancel()
                scope.dispose()
            scope.dispose()
            assert all(handle.exception(PATIENCE_S) is not None for handle in doomed), interrupt.where
            gate.set()
            assert behind.result(PATIENCE_S) == 0, interrupt.where
            check_whole(authority, (interrupt.where, again))
        return interrupt.where

    at_every_place(attempt)


def test_a_batch_that_is_broken_off_is_submitted_as_a_whole_or_not_at_all():
    """D6: also where it is broken off after the first of its tasks have been started."""
    with Authority(slots=2) as authority:

        def attempt(place):
            ran = []
            with Interrupt(place) as interrupt:
                authority.submit_many([Call(ran.append, (number,)) for number in range(5)])
            check_whole(authority, interrupt.where)
            authority._open.wait()
            assert len(ran) in (0, 5), interrupt.where
            return interrupt.where

        at_every_place(attempt)


def test_a_scope_whose_opening_is_broken_off_is_there_or_its_key_is_free():
    """O3: nothing keeps a key that belongs to no scope."""
    with Authority(slots=2) as authority:

        def attempt(place):
            with Interrupt(place) as interrupt:
                authority.scope("key", slots=1)
            check_whole(authority, interrupt.where)
            try:
                scope = authority.get_scope("key")
            except UnknownScope:
                scope = authority.scope("key")
            assert scope.submit(int).result(PATIENCE_S) == 0, interrupt.where
            scope.dispose()
            return interrupt.where

        at_every_place(attempt)


def test_an_iteration_whose_start_is_broken_off():
    """R4: it starts after all, or the periodic is not there; the kernel can be repaired either way."""
    with Authority(slots=2) as authority:

        def attempt(place):
            ran = []
            scope = authority.scope(f"place {place}")
            with Interrupt(place) as interrupt:
                scope.periodic(ran.append, None, every=0.001, id="tick", immediately=True, timeout=PATIENCE_S)
            check_whole(authority, interrupt.where)
            with suppress(WhywaitError):  # it is there
                scope.periodic(ran.append, None, every=0.001, id="tick")
            until(lambda: len(ran) > 1)
            scope.dispose()
            return interrupt.where

        at_every_place(attempt)


@pytest.mark.parametrize("when_blocked", ["hold", "lend"])
def test_a_body_that_waits_where_its_stack_ends(when_blocked):
    """S1, S7: a wait that could not begin, or not end, is over: the kernel knows, and the body has its slot again."""
    overflows = []

    def body(left):
        gate = threading.Event()
        other = authority.submit(gate.wait, PATIENCE_S, slot=False)
        threading.Timer(0.002, gate.set).start()
        try:
            at_depth(sys.getrecursionlimit() - depth() - left, lambda: other.result(PATIENCE_S))
        except RecursionError:
            overflows.append(left)
        gate.set()
        execution = task_here()
        until(lambda: (execution.blocked_for, execution.blocked_on, execution.lends) == ((), None, False))
        other.result(PATIENCE_S)

    with Authority(slots=2, when_blocked=when_blocked) as authority:
        for left in range(3, 33):
            authority.submit(body, left).result(3 * PATIENCE_S)
        check_whole(authority, when_blocked)
    assert len(overflows) > 3


@pytest.mark.parametrize("kind", ["handler", "spawn"])
def test_a_part_that_is_added_where_the_stack_ends(kind):
    """W1, W2: it runs, or it is not there: the task does not wait for a part that will never begin."""
    overflows, ran = [], []

    def body(left):
        try:
            add = getattr(whywait.current(), kind)
            at_depth(sys.getrecursionlimit() - depth() - left, lambda: add(ran.append, left))
        except RecursionError:
            overflows.append(left)

    with Authority(slots=2) as authority:
        for left in range(3, 33):
            authority.submit(body, left).result(PATIENCE_S)
    assert len(overflows) > 3
    assert sorted({*ran, *overflows}) == list(range(3, 33))
    assert len(ran) == len(set(ran))


class Pair(Engine):
    """Carries tasks out by threads; with each start, two different signals come at once."""

    name = "pair"
    can_kill = False

    def start(self, execution):
        signals = {signal.SIGUSR1, signal.SIGUSR2}
        if threading.get_ident() == threading.main_thread().ident:
            signal.pthread_sigmask(signal.SIG_BLOCK, signals)
            for each in signals:
                signal.raise_signal(each)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
        threading.Thread(target=lambda: self.runtime.report(execution, run_here(execution)), daemon=True).start()

    def start_all(self, executions):
        while executions:
            self.start(executions[0])
            del executions[0]

    def abort(self, execution):
        pass

    def close(self):
        pass


@pytest.mark.parametrize("many", [False, True])
def test_two_signals_at_once_where_a_decision_is_carried_out(many):
    """T4: the second comes as soon as the first is handled; what was decided is carried out all the same."""

    def ring(number, frame):
        raise Alarm

    before = {each: signal.signal(each, ring) for each in (signal.SIGUSR1, signal.SIGUSR2)}
    ran = []
    try:
        with Authority(slots=2, engine=Pair()) as authority:
            for _ in range(20):
                with pytest.raises(Alarm):
                    authority.submit_many([Call(ran.append, (None,))]) if many else authority.submit(ran.append, None)
                until(lambda: authority.stats()["active"] == 0)
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
    assert len(ran) == 20


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of the standard library's own threads
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("engine", ["thread", "simple", "pool"])
def test_an_interrupt_in_the_first_submission(engine):
    """T4: where a thread of the engine is started; what comes after it finds one, however few there may be."""

    def ring(number, frame):
        if submitting:
            submitting.clear()
            raise Alarm

    submitting, broken = [], 0
    before = signal.signal(signal.SIGALRM, ring)
    try:
        for number in range(300):
            executor = Executor(max_workers=1) if engine == "pool" else Authority(slots=1, engine=engine)
            with executor:
                try:
                    submitting.append(None)
                    signal.setitimer(signal.ITIMER_REAL, 0.00002 + number % 60 * 0.000005)
                    executor.submit(int)
                    submitting.clear()
                except (Alarm, RuntimeError):  # the standard library makes the latter of the former
                    broken += 1
                signal.setitimer(signal.ITIMER_REAL, 0)
                assert executor.submit(int).result(PATIENCE_S) == 0, number
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert broken > 20


@pytest.mark.usefixtures("no_collector")
def test_an_alarm_every_1300_microseconds_with_30000_waiting_tasks():
    """D1, O6: a repair takes longer than that: a thread without signals does it, and every task runs once."""

    def ring(number, frame):
        if submitting:
            submitting.clear()  # in what follows it would only break the test itself off
            raise Alarm

    gate, ran, accepted, broken, submitting = threading.Event(), [], [], 0, []
    before = signal.signal(signal.SIGALRM, ring)
    try:
        with Authority(slots=2) as authority:
            holders = [authority.submit(gate.wait, PATIENCE_S) for _ in range(2)]
            waiting = [authority.submit(ran.append, None) for _ in range(WAITING)]
            end = time.monotonic() + 1.5
            signal.setitimer(signal.ITIMER_REAL, ALARM_S, ALARM_S)
            while time.monotonic() < end:
                try:
                    submitting.append(None)
                    accepted.append(authority.submit(ran.append, None))
                    submitting.clear()
                except Alarm:
                    broken += 1
            gate.set()
            for handle in (*holders, *waiting, *accepted):
                handle.result(6 * PATIENCE_S)
            check_whole(authority, "an alarm")
            assert authority.stats()["active"] == authority.stats()["queued"] == 0
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert broken > 20
    assert WAITING + len(accepted) <= len(ran) <= WAITING + len(accepted) + broken


only_if_python_survives = pytest.mark.skipif(
    FREE_THREADED or (3, 12) <= sys.version_info < (3, 14),
    reason="this interpreter crashes without memory: 3.12 and 3.13 in a call with **, free-threaded ones anyway",
)


@only_if_python_survives
@pytest.mark.parametrize("attempts", [1, 3])
@pytest.mark.parametrize("missing", [1, 3, 30])
def test_no_memory_at_each_allocation(missing, attempts):
    """D1, T2: whichever allocation fails, and so many after it, in whatever thread, the task ends once or was never."""
    assert failures_of("no_memory.py", missing, attempts) > 30, "there was no lack of memory"


@only_if_python_survives
def test_no_memory_for_what_the_main_thread_asks():
    """O6: reads, waits and commands that fail for want of memory leave the lock free, where signals come too."""
    assert failures_of("no_memory_to_read.py") > 300, "there was no lack of memory"


def failures_of(script, *args):
    """Run an attack without memory and return how often it met a lack of it."""
    pytest.importorskip("_testcapi", reason="this Python cannot be told to be out of memory")
    command = [sys.executable, str(Path(__file__).with_name(script)), *map(str, args)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return int(ended.stdout.split()[-1])


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # threads without memory end
@pytest.mark.parametrize("begins", [False, True])
def test_no_memory_to_report_an_attempt(begins, monkeypatch):
    """T2: each attempt ends, and none for another, whether its report could not begin or was broken off at its end."""
    ran = []

    def body():
        ran.append(None)
        if len(ran) < 3:
            raise ValueError
        return len(ran)

    with Authority(slots=2) as authority:
        report = authority._core.report

        def without_memory(execution, outcome, engine):
            if begins:
                report(execution, outcome)
            raise MemoryError

        monkeypatch.setattr(authority._core, "report", without_memory)
        assert authority.submit(body, retry=2).result(PATIENCE_S) == 3
        check_whole(authority, begins)
        assert authority.stats()["active"] == 0
    assert len(ran) == 3
