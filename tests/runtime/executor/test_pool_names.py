"""The names of a pool's threads are the pool's bound: never more of them than slots, whatever threads ask at once."""

import sys
import threading
import time

from patience import PATIENCE_S
from stress import hasty_switches
from whywait import Executor
from whywait.engines import executor_threads as pool

SLOTS, THREADS, ROUNDS = 2, 6, 200


def give_way(frame, event, arg):
    """Let other threads run between any two lines of the pool."""
    if frame.f_globals is not vars(pool):
        return None
    time.sleep(0)
    return give_way


def test_names_taken_and_given_back_by_many_threads_at_once():
    """S1: each name is out once at a time, and a name that another thread takes first is no error."""
    out, errors = [], []

    def take_and_give_back():
        barrier.wait(PATIENCE_S)
        sys.settrace(give_way)
        try:
            for _ in range(ROUNDS):
                name = engine.new_name()
                if name is not None:
                    out.append(name)
                    assert len(out) <= SLOTS
                    out.remove(name)
                    engine.name_is_free(name)
        except BaseException as error:  # noqa: BLE001 - told by the test's thread
            errors.append(error)
        finally:
            sys.settrace(None)

    barrier = threading.Barrier(THREADS)
    with Executor(SLOTS) as executor, hasty_switches():
        engine = executor._engine
        threads = [threading.Thread(target=take_and_give_back) for _ in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)
        assert errors == []
        names = [engine.new_name() for _ in range(SLOTS + 1)]
    assert names.pop() is None
    assert len(set(names)) == SLOTS
