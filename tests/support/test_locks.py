"""Locks that no exception out of nowhere leaves taken."""

import re
import signal
from pathlib import Path

import whywait
from whywait.support.locks import SafeLock

ALARMS = 1000
PLAIN = {  # locks of the standard library's, and why a signal does no harm there
    "cli/bench_workload.py": "taken by threads of the engine only",
    "engines/ray/collector.py": "taken by the pump's thread and its own; by others as their last act",
    "machine/store.py": "the condition of a SafeLock, which is taken in its place; a latch that one thread waits for",
    "runtime/clock.py": "the condition of a SafeLock, which is taken in its place",
    "runtime/watching.py": "a latch that one thread waits for",
    "support/waiters.py": "a latch that one thread waits for",
}


class Alarm(BaseException):
    """What the handler raises."""


def test_a_signal_leaves_no_lock_taken():
    """O6: wherever it comes, also in a block inside a block."""

    def ring(number, frame):
        raise Alarm

    def take():
        with lock:
            pass

    def take_again():
        with lock, lock:
            pass

    lock = SafeLock()
    before = signal.signal(signal.SIGALRM, ring)
    try:
        for number in range(ALARMS):
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.0001 + number % 97 * 1e-6)
                while True:
                    take()
                    take_again()
            except Alarm:
                assert not lock._is_owned(), number
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_locks_that_a_signal_may_meet_are_safe():
    """O6: what a thread with signals takes is a SafeLock; the others are listed here."""
    source = Path(whywait.__file__).parent
    plain = re.compile(r"\bthreading\.(R?Lock|Condition|(Bounded)?Semaphore)\(")
    found = {str(path.relative_to(source)) for path in source.rglob("*.py") if plain.search(path.read_text())}
    assert found == set(PLAIN)
