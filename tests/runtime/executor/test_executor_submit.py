"""Submitting to an Executor, and mapping over it, as the standard library documents them for thread pools."""

import contextvars
import threading
import time

import pytest

from patience import PATIENCE_S, until
from whywait import Executor
from whywait.task.context import current


def capture(*args, **kwargs):
    return args, kwargs


class TestSubmit:
    def test_takes_any_keyword_for_the_function(self, executor):
        """All keywords are the function's, those that whywait uses elsewhere, too."""
        given = {"self": 1, "fn": 2, "id": 3, "priority": 4, "kwargs": 5, "timeout": 6}
        assert executor.submit(capture, 0, **given).result(PATIENCE_S) == ((0,), given)

    def test_arguments_are_passed_as_they_are(self, executor):
        """A future among the arguments is no dependency here: the function gets the future itself."""
        first = executor.submit(int)
        assert executor.submit(capture, first, x=first).result(PATIENCE_S) == ((first,), {"x": first})

    def test_a_coroutine_function_is_only_called(self, executor):
        """As in the standard library, the result is the coroutine; nobody runs it."""

        async def work():
            return 1

        coroutine = executor.submit(work).result(PATIENCE_S)
        with pytest.raises(StopIteration):
            coroutine.send(None)

    def test_never_more_threads_than_workers(self):
        """Threads that are busy with callbacks count: the next task waits for one of them rather than get a new one."""
        most = 0

        def callback(_):
            nonlocal most
            most = max(most, len(executor._threads))
            time.sleep(0.001)

        with Executor(3) as executor:
            for _ in range(50):
                executor.submit(int).add_done_callback(callback)
        assert 0 < most <= 3

    def test_a_slow_callback_holds_up_no_task_while_there_are_workers(self, gate, block):
        """A callback may wait for a task that is pending when it begins."""
        second = threading.Event()
        with Executor(2) as executor:
            first = block(executor)
            first.add_done_callback(lambda _: second.wait(PATIENCE_S))
            block(executor)
            last = executor.submit(second.set)
            gate.set()
            assert last.exception(PATIENCE_S) is None

    def test_when_the_system_gives_no_thread(self, monkeypatch):
        """The future tells; slot and executor are as good as before."""

        def refuse(thread):
            raise RuntimeError("can't start new thread")

        with Executor(1) as executor:
            with monkeypatch.context() as patch:
                patch.setattr(threading.Thread, "start", refuse)
                futures = [executor.submit(int) for _ in range(3)]
            for future in futures[:1]:
                with pytest.raises(RuntimeError, match="can't start new thread"):
                    future.result(PATIENCE_S)
            assert executor.submit(int).result(PATIENCE_S) == 0

    def test_runs_in_the_context_of_its_thread(self):
        """What an initializer has set is there, what the submitting thread has set is not."""
        variable = contextvars.ContextVar("variable", default="nobody")
        variable.set("who submits")
        with Executor(1) as plain:
            assert plain.submit(variable.get).result(PATIENCE_S) == "nobody"
        with Executor(1, initializer=variable.set, initargs=("initializer",)) as initialized:
            assert initialized.submit(variable.get).result(PATIENCE_S) == "initializer"

    def test_the_running_task_is_known_inside(self, executor):
        """`whywait.current()` works in the tasks of an executor."""
        future = executor.submit(lambda: current().ref)
        assert future.result(PATIENCE_S) == future.ref


class TestMap:
    @pytest.mark.parametrize("chunksize", [1, 2])
    def test_a_timeout_cancels_the_rest(self, one, gate, chunksize, block):
        """What has not started when the time is up never starts, the item waited for included."""
        block(one)
        ran = []
        results = one.map(ran.append, range(6), timeout=0, chunksize=chunksize)
        with pytest.raises(TimeoutError):
            next(results)
        gate.set()
        one.shutdown()
        assert ran == []

    @pytest.mark.parametrize("chunksize", [1, 2])
    def test_a_dropped_iterator_cancels_the_rest(self, one, gate, chunksize):
        """Once a result was taken, dropping the iterator ends what nobody will look at."""
        ran = []

        def body(number):
            ran.append(number)
            if number >= chunksize:
                assert gate.wait(PATIENCE_S)
            return number

        results = one.map(body, range(10), chunksize=chunksize)
        assert next(results) == 0
        until(lambda: len(ran) > chunksize)
        del results
        gate.set()
        one.shutdown()
        assert ran == list(range(2 * chunksize))

    def test_a_chunk_is_one_task(self, executor):
        """Ten calls in chunks of four are three tasks."""
        before = executor.authority.stats()["submitted"]
        assert len(list(executor.map(abs, range(10), chunksize=4))) == 10
        assert executor.authority.stats()["submitted"] - before == 3

    def test_an_error_in_a_chunk_comes_in_its_place(self, executor):
        """Nothing that was computed before the error is lost in its chunk."""
        results = executor.map(divmod, [1, 1, 1, 1], [2, 3, 0, 5], chunksize=4)
        assert [next(results), next(results)] == [(0, 1), (0, 1)]
        with pytest.raises(ZeroDivisionError):
            next(results)

    @pytest.mark.parametrize("chunksize", [1, 2])
    def test_a_buffer_bounds_how_far_ahead_items_are_taken(self, executor, chunksize):
        """With `buffersize`, an endless iterable can be mapped."""
        taken = []

        def endless():
            while True:
                taken.append(len(taken))
                yield taken[-1]

        results = executor.map(abs, endless(), buffersize=3, chunksize=chunksize)
        assert len(taken) == 3 * chunksize
        assert [next(results) for _ in range(10)] == list(range(10))
        assert len(taken) <= 10 + 4 * chunksize
        results.close()

    @pytest.mark.parametrize(
        ("wrong", "error"),
        [
            ({"chunksize": 0}, ValueError),
            ({"buffersize": 0}, ValueError),
            ({"buffersize": 1.5}, TypeError),
        ],
    )
    def test_refuses_sizes_that_make_no_sense(self, executor, wrong, error):
        """A size below one is an error at the call, not at the first result."""
        with pytest.raises(error):
            executor.map(abs, [1], **wrong)
