"""Shutting an Executor down, and what starts its threads, as the standard library documents them."""

import logging
import threading
import time
from concurrent.futures import CancelledError
from concurrent.futures.thread import BrokenThreadPool

import pytest

from patience import PATIENCE_S, until
from whywait import Executor, Retry


class TestShutdown:
    def test_waits_for_callbacks(self):
        """A done callback that still runs is waited for."""
        called = []
        executor = Executor(2)
        executor.submit(int).add_done_callback(lambda _: (time.sleep(0.05), called.append(1)))
        executor.shutdown()
        assert called

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
