"""A1: the lock of an authority behaves as an RLock, compiled and interpreted."""

import signal
import threading
import time

import pytest

from whywait.support.mutex import give, is_taken_here, new_lock, take


@pytest.fixture
def lock():
    return new_lock()


@pytest.fixture
def holder(lock):
    """Have another thread hold the lock; it gives the lock back when it is told to."""
    held, let_go = threading.Event(), threading.Event()

    def hold():
        with lock:
            held.set()
            let_go.wait(10)

    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(10)
    yield let_go
    let_go.set()
    thread.join()


def test_its_thread_may_take_it_again(lock):
    assert take(lock)
    assert take(lock)
    with lock:
        assert lock.acquire()
    assert is_taken_here(lock)
    for _ in range(3):
        give(lock)
    assert not is_taken_here(lock)


def test_no_other_thread_gets_it(lock, holder):
    assert not take(lock)
    assert not lock.acquire(False)
    assert not lock.acquire(timeout=0.02)
    assert not is_taken_here(lock)
    with pytest.raises(RuntimeError, match="un-acquired"):
        lock.release()
    threading.Timer(0.05, holder.set).start()
    with lock:
        assert is_taken_here(lock)


def test_a_signal_ends_the_wait_for_it(lock, holder):
    def interrupt(*_):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        threading.Timer(0.1, signal.pthread_kill, (threading.main_thread().ident, signal.SIGUSR1)).start()
        with pytest.raises(KeyboardInterrupt):
            lock.acquire()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert not is_taken_here(lock)


def test_one_thread_at_a_time(lock):
    inside, most = [], []

    def work():
        for _ in range(2_000):
            with lock:
                inside.append(None)
                most.append(len(inside))
                if len(most) % 50 == 0:
                    time.sleep(0)
                inside.pop()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(most) == 8_000
    assert max(most) == 1
