"""Locks that no exception out of nowhere leaves taken."""

import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import whywait
from patience import FREE_THREADED
from whywait.support.locks import SafeLock

ALARMS = 1000
PLAIN = {  # locks of the standard library's, and why a signal does no harm there
    "cli/bench_workload.py": "taken by threads of the engine only",
    "engines/thread.py": "a latch that one thread waits for",
    "engines/ray/collector.py": "taken by the pump's thread and its own; by others as their last act",
    "machine/store.py": "the condition of a SafeLock, which is taken in its place; a latch that one thread waits for",
    "runtime/clock.py": "the condition of a SafeLock, which is taken in its place",
    "runtime/watching.py": "a latch that one thread waits for",
    "support/waiters.py": "a latch that one thread waits for",
}


class Alarm(BaseException):
    """What the handler raises."""


@pytest.mark.usefixtures("no_collector")
def test_a_signal_leaves_no_lock_taken():
    """O6: wherever it comes, with a jump back too, which Python 3.12 to 3.14 guard by no block; and none is lost."""

    def ring(number, frame):
        raise Alarm

    def take():
        with lock:
            pass

    def take_and_jump_back():
        with lock:
            left = 20
            while left:
                left -= 1

    def take_again():
        with lock, lock:
            assert [each for each in range(4) if each] == [1, 2, 3]

    lock = SafeLock()
    before = signal.signal(signal.SIGALRM, ring)
    try:
        for number in range(ALARMS):
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.0001 + number % 97 * 1e-6)
                while True:
                    take()
                    take_and_jump_back()
                    take_again()
            except Alarm:
                assert not lock._is_owned(), number
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("watch", [sys.setprofile, sys.settrace])
def test_one_that_keeps_frames_does_not_release_a_lock(watch):
    """O6: a profiler or a debugger lets go of the frame of an earlier block inside a later one."""
    lock, frames = SafeLock(), []

    def keep(frame, event, argument):
        frames.append(frame)
        return keep

    try:
        watch(keep)
        with lock:
            pass
    finally:
        watch(None)
    assert frames
    with lock:
        frames.clear()
        assert lock._is_owned()


@pytest.mark.usefixtures("no_collector")
def test_a_signal_leaves_no_lock_taken_by_a_task_that_parks(monkeypatch):
    """O6, X1: the command that reports it takes the lock once, however deep the signal comes."""

    def ring(number, frame):
        raise Alarm

    def park():
        while True:
            core.parked(execution)

    gate = threading.Event()
    with whywait.Authority(slots=1) as authority:
        core = authority._core
        authority.submit(gate.wait)
        (task,) = core.kernel.running.values()
        execution = task.job
        monkeypatch.setattr(type(core.kernel), "parked", lambda kernel, now, task: None)
        before = signal.signal(signal.SIGALRM, ring)
        try:
            for number in range(ALARMS):
                try:
                    signal.setitimer(signal.ITIMER_REAL, 0.0001 + number % 97 * 1e-6)
                    park()
                except Alarm:
                    assert not core._lock._is_owned(), number
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
            gate.set()


WITHOUT_MEMORY = """
import _testcapi, threading
from whywait.support.locks import SafeLock

def take(lock):
    with lock:
        pass

def take_and_raise(lock):
    with lock:
        raise ValueError

def attack():
    for use, missing in ((take, 1), (take, 30), (take_and_raise, 1), (take_and_raise, 30)):
        for first in range(12):
            lock = SafeLock()
            kept = [(each,) * size for size in range(1, 6) for each in range(2100)]  # none is left for reuse
            _testcapi.set_nomemory(first, first + missing)
            try:
                use(lock)
            except BaseException as error:
                _testcapi.remove_mem_hooks()
                failed.append(type(error))
            _testcapi.remove_mem_hooks()
            taken.append(lock._is_owned())

failed, taken = [], []
def attack_in_thread():
    begins.acquire()
    try:
        attack()
    finally:
        ended.release()

attack()
begins, ended = threading.Lock(), threading.Lock()
begins.acquire()
ended.acquire()
threading.Thread(target=attack_in_thread).start()
begins.release()  # from here on this thread needs no memory until it is over
ended.acquire()
print(failed.count(MemoryError), len(taken), any(taken))
"""


@pytest.mark.skipif(FREE_THREADED, reason="a free-threaded interpreter without memory crashes, with any threads")
def test_a_lack_of_memory_leaves_no_lock_taken():
    """O6: whichever allocation fails, alone or with all after it, in the main thread and in others."""
    pytest.importorskip("_testcapi", reason="this Python cannot be told to be out of memory")
    command = [sys.executable, "-c", WITHOUT_MEMORY]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    failures, uses, is_taken = ended.stdout.split() or [ended.stderr, "", ""]
    assert (uses, is_taken) == ("96", "False"), failures
    assert int(failures) > 2, "there was no lack of memory"


def test_locks_that_a_signal_may_meet_are_safe():
    """O6: what a thread with signals takes is a SafeLock; the others are listed here."""
    source = Path(whywait.__file__).parent
    plain = re.compile(r"\bthreading\.(R?Lock|Condition|(Bounded)?Semaphore)\(")
    found = {str(path.relative_to(source)) for path in source.rglob("*.py") if plain.search(path.read_text())}
    assert found == set(PLAIN)
