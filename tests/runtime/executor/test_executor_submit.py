"""Submitting to an Executor, and mapping over it, as the standard library documents them for thread pools."""

import contextvars
import threading
import time
from concurrent.futures import Future, wait

import pytest

from patience import PATIENCE_S, until
from whywait import Executor
from whywait.task.context import current


def capture(*args, **kwargs):
    return args, kwargs


class TestSubmit:
    def test_returns_a_future_of_the_standard_library(self, executor):
        """`submit` gives a Future that knows the result."""
        future = executor.submit(pow, 2, 8)
        assert isinstance(future, Future)
        assert future.result(PATIENCE_S) == 256
        assert future.done()

    def test_takes_any_keyword_for_the_function(self, executor):
        """All keywords are the function's, those that whywait uses elsewhere, too."""
        given = {"self": 1, "fn": 2, "id": 3, "priority": 4, "kwargs": 5, "timeout": 6}
        assert executor.submit(capture, 0, **given).result(PATIENCE_S) == ((0,), given)

    def test_the_function_is_positional(self, executor):
        """Without a positional function nothing is submitted."""
        with pytest.raises(TypeError):
            executor.submit(fn=capture)

    def test_what_cannot_be_called_fails_in_its_future(self, executor):
        """A wrong function is an error of the task, not of `submit`."""
        with pytest.raises(TypeError):
            executor.submit("no function").result(PATIENCE_S)

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

    def test_at_most_max_workers_run_at_once(self, gate):
        """S1: the slots are all used and never exceeded."""
        lock, now, most = threading.Lock(), 0, 0

        def body():
            nonlocal now, most
            with lock:
                now += 1
                most = max(most, now)
            time.sleep(0.001)
            with lock:
                now -= 1

        with Executor(3) as executor:
            wait([executor.submit(body) for _ in range(60)], PATIENCE_S)
        assert most == 3

    def test_threads_come_with_the_work_and_are_reused(self):
        """No thread before the first task; one that is idle is used again."""
        with Executor(5) as executor:
            assert executor._threads == set()
            for _ in range(5):
                assert executor.submit(int).result(PATIENCE_S) == 0
                until(lambda: executor._engine._sleeping)
            assert len(executor._threads) == 1

    def test_as_many_threads_as_workers(self, gate):
        """A pool that is saturated has a thread for each worker."""
        with Executor(4) as executor:
            for _ in range(60):
                executor.submit(gate.wait, PATIENCE_S)
            assert len(executor._threads) == 4
            gate.set()

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

    def test_inside_a_task(self, executor):
        """A task may submit and wait for others while there are workers left."""

        def outer(depth):
            return 1 + executor.submit(outer, depth - 1).result(PATIENCE_S) if depth else 0

        assert executor.submit(outer, 3).result(PATIENCE_S) == 3

    def test_inside_a_task_without_waiting(self, one):
        """A chain of tasks, each submitted by the one before, runs on a single worker."""
        done = threading.Event()

        def step(left):
            if left:
                one.submit(step, left - 1)
            else:
                done.set()

        one.submit(step, 100)
        assert done.wait(PATIENCE_S)

    def test_inside_a_callback(self, one):
        """A done callback may submit."""
        later = []
        first = one.submit(int)
        first.add_done_callback(lambda _: later.append(one.submit(int)))
        until(lambda: later)
        assert later[0].result(PATIENCE_S) == 0

    def test_many_executors_at_once(self):
        """Executors do not meet: each has its workers, its order, its end."""
        executors = [Executor(2) for _ in range(20)]
        futures = [each.submit(capture, number) for number, each in enumerate(executors) for _ in range(20)]
        for each in executors:
            each.shutdown()
        assert [future.result(0)[0][0] for future in futures] == [number for number in range(20) for _ in range(20)]

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
    def test_like_the_builtin(self, executor):
        """Results come in the order of the items, up to the end of the shortest iterable."""
        assert list(executor.map(pow, range(10), range(12))) == list(map(pow, range(10), range(10)))
        assert list(executor.map(int, [])) == []

    def test_order_is_that_of_the_items_whoever_ends_first(self, executor):
        """A later item that is done waits for the earlier ones."""
        second = threading.Event()

        def body(number):
            if number == 0:
                assert second.wait(PATIENCE_S)
            else:
                second.set()
            return number

        assert list(executor.map(body, range(2))) == [0, 1]

    def test_submits_at_once(self, executor):
        """Items are taken and run whether or not anybody looks at the results."""
        ran = []
        executor.map(ran.append, range(10))
        executor.shutdown()
        assert sorted(ran) == list(range(10))

    def test_an_error_comes_in_its_place(self, executor):
        """Results before the error are given, then the error, then nothing more."""
        results = executor.map(divmod, [1, 1, 1, 1], [2, 3, 0, 5])
        assert [next(results), next(results)] == [(0, 1), (0, 1)]
        with pytest.raises(ZeroDivisionError):
            next(results)
        assert list(results) == []

    def test_timeout_counts_from_the_call(self, executor, gate):
        """What is there in time is given, then TimeoutError."""
        results = executor.map(lambda wanted: wanted and gate.wait(PATIENCE_S), [False, False, True], timeout=0.2)
        found = []
        with pytest.raises(TimeoutError):
            found.extend(iter(lambda: next(results), None))
        assert found in ([False, False], [])  # a machine may stand still for the whole timeout

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

    @pytest.mark.parametrize("chunksize", [2, 3, 7, 100])
    def test_chunks_change_no_result(self, executor, chunksize):
        """Whatever the chunks, results and their order are the same."""
        assert list(executor.map(pow, range(10), range(10), chunksize=chunksize)) == [n**n for n in range(10)]

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
