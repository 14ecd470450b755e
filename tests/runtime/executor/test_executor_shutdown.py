"""Shutting an Executor down, and what starts its threads, as the standard library documents them."""

import logging
import threading
import time
from concurrent.futures import CancelledError, wait
from concurrent.futures.thread import BrokenThreadPool

import pytest

from patience import PATIENCE_S, until
from whywait import Executor, Retry


class TestShutdown:
    def test_refuses_submissions_afterwards(self):
        """After shutdown, `submit` and `map` raise RuntimeError; shutting down again is no error."""
        executor = Executor(2)
        executor.shutdown()
        with pytest.raises(RuntimeError, match="cannot schedule new futures after shutdown"):
            executor.submit(int)
        with pytest.raises(RuntimeError, match="cannot schedule new futures after shutdown"):
            executor.map(int, [1])
        executor.shutdown()

    def test_waits_for_what_was_submitted(self):
        """All submitted tasks are done and all threads have ended when it returns."""
        executor = Executor(2)
        futures = [executor.submit(time.sleep, 0.001) for _ in range(50)]
        threads = executor._threads
        executor.shutdown()
        assert all(future.done() for future in futures)
        assert not any(thread.is_alive() for thread in threads)

    def test_waits_for_callbacks(self):
        """A done callback that still runs is waited for."""
        called = []
        executor = Executor(2)
        executor.submit(int).add_done_callback(lambda _: (time.sleep(0.05), called.append(1)))
        executor.shutdown()
        assert called

    def test_leaving_a_block_waits(self):
        """`with` waits for everything, whether or not it is left by an exception."""
        with Executor(2) as executor:
            futures = [executor.submit(time.sleep, 0.001) for _ in range(20)]
        assert all(future.done() for future in futures)

        def fail():
            with Executor(2) as executor:
                futures.extend(executor.submit(time.sleep, 0.001) for _ in range(20))
                raise ZeroDivisionError

        futures.clear()
        with pytest.raises(ZeroDivisionError):
            fail()
        assert [future.exception(0) for future in futures] == [None] * 20

    def test_without_waiting(self, gate):
        """`wait=False` returns at once; the tasks are finished and then the threads end."""
        executor = Executor(2)
        futures = [executor.submit(gate.wait, PATIENCE_S) for _ in range(10)]
        threads = executor._threads
        executor.shutdown(wait=False)
        assert not futures[0].done()
        with pytest.raises(RuntimeError):
            executor.submit(int)
        gate.set()
        assert [future.result(PATIENCE_S) for future in futures] == [True] * 10
        until(lambda: not any(thread.is_alive() for thread in threads))

    def test_waiting_after_not_waiting(self, gate, block):
        """A second shutdown may wait for what the first left running."""
        executor = Executor(1)
        future = block(executor)
        executor.shutdown(wait=False)
        threading.Timer(0.05, gate.set).start()
        executor.shutdown(wait=True)
        assert future.done()

    def test_cancels_what_has_not_started(self, gate, block):
        """`cancel_futures`: running tasks are finished, pending ones are cancelled, and everybody is told."""
        executor = Executor(1)
        running = block(executor)
        pending = [executor.submit(int) for _ in range(20)]
        told = []
        pending[3].add_done_callback(told.append)
        watcher = threading.Thread(target=lambda: told.append(wait(pending, PATIENCE_S)))
        watcher.start()
        until(lambda: pending[-1]._waiters)
        executor.shutdown(wait=False, cancel_futures=True)
        watcher.join(PATIENCE_S)
        assert all(future.cancelled() for future in pending)
        assert told == [pending[3], (set(pending), set())]
        assert not running.done()
        gate.set()
        executor.shutdown()
        assert running.exception(0) is None

    @pytest.mark.parametrize("wait_for_it", [True, False])
    def test_what_starts_after_the_threads_have_ended(self, wait_for_it):
        """T7: a task that backs off when the pool is shut down is started later, and shutdown waits for it."""
        attempts = []

        def body():
            attempts.append(1)
            if len(attempts) < 3:
                raise OSError

        executor = Executor(2, retry=Retry(3, backoff=0.05))
        future = executor.submit(body)
        executor.shutdown(wait=wait_for_it)
        assert future.done() or not wait_for_it
        assert future.exception(PATIENCE_S) is None
        until(lambda: not executor._threads)

    def test_a_task_that_was_just_cancelled_does_not_keep_it(self):
        """Nothing waits for a cancelled task."""
        executor = Executor(1)
        executor.submit(int).result(PATIENCE_S)
        executor.submit(int).cancel()
        executor.shutdown()

    def test_by_a_thread_of_the_pool(self, one):
        """A task cannot wait for its own end: RuntimeError, as from joining oneself; the shutdown stands."""
        with pytest.raises(RuntimeError, match="cannot join current thread"):
            one.submit(one.shutdown).result(PATIENCE_S)
        with pytest.raises(RuntimeError):
            one.submit(int)

    def test_while_others_submit(self):
        """A submission is refused, or its task runs or is cancelled; it is never forgotten."""
        for round_ in range(20):
            executor = Executor(2)
            accepted = []

            def submit(executor=executor, accepted=accepted):
                while True:
                    try:
                        accepted.append(executor.submit(int))
                    except RuntimeError:
                        return

            threads = [threading.Thread(target=submit) for _ in range(3)]
            for thread in threads:
                thread.start()
            until(lambda accepted=accepted: len(accepted) > 5)
            executor.shutdown(cancel_futures=bool(round_ % 2))
            for thread in threads:
                thread.join(PATIENCE_S)
            for future in accepted:
                try:
                    assert future.result(PATIENCE_S) == 0
                except CancelledError:
                    assert round_ % 2


class TestInitializer:
    def test_runs_once_in_each_thread(self, gate, block):
        """Each worker is initialised before its first task."""
        local = threading.local()
        count = []

        def initialize(value):
            local.value = value
            count.append(1)

        with Executor(3, initializer=initialize, initargs=("ready",)) as executor:
            held = [block(executor) for _ in range(3)]
            more = [executor.submit(lambda: local.value) for _ in range(20)]
            gate.set()
            assert [future.result(PATIENCE_S) for future in more] == ["ready"] * 20
            wait(held, PATIENCE_S)
        assert len(count) == 3

    @pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
    def test_a_failure_breaks_the_pool(self, caplog, gate, error):
        """All pending tasks and all further submissions raise BrokenThreadPool; the reason is in the log."""

        def fail():
            gate.wait(PATIENCE_S)
            raise error("no good")

        with Executor(2, initializer=fail) as executor:
            futures = [executor.submit(int) for _ in range(10)]
            with caplog.at_level(logging.CRITICAL, "concurrent.futures"):
                gate.set()
                for future in futures:
                    with pytest.raises(BrokenThreadPool):
                        future.result(PATIENCE_S)
            assert "no good" in caplog.text
            assert executor._broken
            with pytest.raises(BrokenThreadPool):
                executor.submit(int)

    def test_must_be_callable(self):
        """A wrong initializer is noticed at once."""
        with pytest.raises(TypeError, match="initializer must be a callable"):
            Executor(initializer=3)
