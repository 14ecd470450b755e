"""The futures of an Executor do what the standard library documents for futures, alone, together and with asyncio."""

import asyncio
import logging
import random
import sys
import threading
import time
import traceback
from concurrent.futures import (
    FIRST_COMPLETED,
    InvalidStateError,
    as_completed,
    wait,
)

import pytest

from patience import PATIENCE_S
from whywait import Executor


@pytest.fixture
def running(one, block):
    """The future of a task that runs until the gate opens, on the only worker there is."""
    return block(one)


def fail(error):
    raise error


class EmptyError(Exception):
    """An exception that counts as false."""

    def __bool__(self):
        return False


class TestStates:
    def test_cancelling_frees_its_place_in_the_queue(self, one, gate, running):
        """D4: a cancelled task is gone from its lane: the next one is first."""
        first, second = one.submit(int), one.submit(int)
        assert one.why(second).position == 1
        first.cancel()
        assert one.why(second).position == 0

    def test_cancelling_against_the_start(self, executor):
        """Whoever comes first, cancelling or starting: the answer is true, and the task runs exactly if it is no."""
        ran = []
        futures = [executor.submit(ran.append, number) for number in range(300)]
        refused = [number for number, future in enumerate(futures) if not future.cancel()]
        executor.shutdown()
        assert sorted(ran) == refused

    def test_only_its_executor_settles_it(self, one, running):
        """The methods meant for executors are refused to others."""
        pending = one.submit(int)
        for attempt in (
            lambda: pending.set_result(1),
            lambda: pending.set_exception(ValueError()),
            pending.set_running_or_notify_cancel,
        ):
            with pytest.raises(InvalidStateError):
                attempt()
        assert pending.cancel()
        assert pending.set_running_or_notify_cancel() is False


class TestResults:
    @pytest.mark.parametrize("error", [ValueError, SystemExit, KeyboardInterrupt, GeneratorExit, EmptyError])
    def test_whatever_a_task_raises_is_its_exception(self, one, error):
        """Exceptions of any kind are raised from `result`, returned by `exception`; the worker goes on."""
        raised = error("reason")
        future = one.submit(fail, raised)
        assert future.exception(PATIENCE_S) is raised
        with pytest.raises(error) as caught:
            future.result(PATIENCE_S)
        assert caught.value is raised
        assert one.submit(int).result(PATIENCE_S) == 0

    def test_the_traceback_leads_to_the_task(self, executor):
        """The traceback shows the frames of the task and none of the pool's."""
        error = executor.submit(fail, ValueError("reason")).exception(PATIENCE_S)
        assert [frame.name for frame in traceback.extract_tb(error.__traceback__)] == ["fail"]


class TestCallbacks:
    @pytest.mark.parametrize("error", [ValueError, SystemExit])
    def test_what_one_raises_is_logged_and_stops_nothing(self, one, gate, running, caplog, error):
        """The other callbacks are called and the worker goes on with the next tasks."""
        calls = []
        running.add_done_callback(lambda _: fail(error("told you")))
        running.add_done_callback(calls.append)
        pending = [one.submit(int) for _ in range(3)]
        with caplog.at_level(logging.ERROR, "concurrent.futures"):
            gate.set()
            assert [future.result(PATIENCE_S) for future in pending] == [0] * 3
        assert calls == [running]
        assert "told you" in caplog.text

    def test_may_use_the_future_in_any_way(self, one, gate, running):
        """Inside a callback the future is done for every way of looking at it."""
        seen = []

        def look(future):
            seen.append(future.result(0))
            seen.append(wait([future], PATIENCE_S).done == {future})
            seen.append(next(as_completed([future], PATIENCE_S)) is future)
            future.add_done_callback(lambda _: seen.append("nested"))

        running.add_done_callback(look)
        watcher = threading.Thread(target=wait, args=([running], PATIENCE_S))
        watcher.start()
        gate.set()
        watcher.join(PATIENCE_S)
        one.shutdown()
        assert seen == [True, True, True, "nested"]


class TestTogether:
    def test_many_waiters_of_all_kinds(self):
        """Nobody is forgotten and nobody is told twice, however the threads take turns."""
        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        try:
            for round_ in range(60):
                self.play(random.Random(round_))
        finally:
            sys.setswitchinterval(interval)

    def play(self, chance):
        calls, errors, futures, gate = [], [], [], threading.Event()

        def guarded(use):
            try:
                assert gate.wait(PATIENCE_S)
                use()
            except BaseException as error:  # noqa: BLE001 - shown by the main thread
                errors.append(error)

        def add_callbacks():
            for future in futures:
                future.add_done_callback(calls.append)

        def get_results():
            for number, future in enumerate(futures):
                error = catch(future.result, PATIENCE_S)
                assert isinstance(error, KeyError) == (number % 7 == 0 and not future.cancelled())

        def lose_patience():
            for future in futures:
                catch(future.exception, chance.random() * 0.0005)

        uses = [
            add_callbacks,
            get_results,
            lose_patience,
            lambda: [future.cancel() for future in chance.sample(futures, 8)],
            lambda: (assert_all := wait(list(futures), PATIENCE_S)) and assert_empty(assert_all.not_done),
            lambda: assert_empty({*futures} - {*as_completed(list(futures), PATIENCE_S)}),
            lambda: assert_empty([] if wait(futures, PATIENCE_S, FIRST_COMPLETED).done else futures),
        ]
        threads = [threading.Thread(target=guarded, args=(use,)) for use in uses]
        with Executor(chance.choice([1, 2, 8])) as executor:
            for number in range(30):
                futures.append(executor.submit(fail, KeyError()) if number % 7 == 0 else executor.submit(int))
                if number == 0:
                    for thread in threads:
                        thread.start()
            gate.set()
            for thread in threads:
                thread.join(2 * PATIENCE_S)
        assert errors == []
        assert sorted(map(id, calls)) == sorted(map(id, futures))


class TestAsyncio:
    def test_wrap_future(self, one, gate, running):
        """A wrapped future follows; cancelling it cancels a pending task and not a running one."""

        async def main():
            pending = one.submit(int)
            wrapped = asyncio.wrap_future(pending)
            wrapped.cancel()
            with pytest.raises(asyncio.CancelledError):
                await wrapped
            await asyncio.sleep(0)  # it reaches the task by way of the loop
            assert pending.cancelled()
            lost = asyncio.wrap_future(running)
            kept = asyncio.wrap_future(running)
            lost.cancel()
            await asyncio.sleep(0)
            gate.set()
            assert await kept is True

        asyncio.run(main())

    def test_can_be_awaited(self, executor):
        """A future of an executor is a handle: `await` works without wrapping."""

        async def main():
            assert await executor.submit(pow, 2, 8) == 256
            with pytest.raises(ZeroDivisionError):
                await executor.submit(divmod, 1, 0)

        asyncio.run(main())

    def test_blocking_forms_block_on_a_loop(self, gate):
        """As in the standard library: `result`, `wait` and leaving the block may be used in a coroutine."""

        async def main():
            with Executor(2) as executor:
                future = executor.submit(time.sleep, 0.01)
                assert future.result(PATIENCE_S) is None
                future = executor.submit(time.sleep, 0.01)
                assert wait([future], PATIENCE_S).done == {future}
                last = executor.submit(time.sleep, 0.05)
            assert last.done()

        asyncio.run(main())


def catch(call, *args):
    """Return what a call raises, or None."""
    try:
        call(*args)
    except BaseException as error:  # noqa: BLE001 - whatever it is
        return error
    return None


def assert_empty(what):
    assert not what
