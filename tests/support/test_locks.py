"""Locks that no exception out of nowhere leaves taken."""

import signal

from whywait.support.locks import SafeLock

ALARMS = 1000


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
