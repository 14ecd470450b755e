"""Numbers that several threads ask for."""

import threading

from patience import PATIENCE_S
from whywait.support.numbers import Numbers

THREADS, EACH = 4, 5_000


def test_no_number_is_given_out_twice():
    numbers, taken, together = Numbers(), [], threading.Barrier(THREADS)

    def take():
        together.wait(PATIENCE_S)
        taken.extend([numbers.next() for _ in range(EACH)])

    threads = [threading.Thread(target=take) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert sorted(taken) == list(range(1, THREADS * EACH + 1))
