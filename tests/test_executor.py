"""An Executor does what the standard library documents for thread pools: submit, map, shutdown, initializer."""

import contextvars
import logging
import os
import threading
import time
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait
from concurrent.futures.thread import BrokenThreadPool

import pytest

from whywait import Executor, QueueFull, Retry, TaskAborted, TaskDropped, TaskTimeout
from whywait.context import current

PATIENCE_S = 30  # how long anything may take on a loaded machine


def until(condition, timeout_s=PATIENCE_S):
    """Wait for something that comes about in another thread."""
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.001)


@pytest.fixture
def gate():
    """An event that tasks wait for; executors that are fixtures open it before they wait for their tasks."""
    return threading.Event()


@pytest.fixture
def executor(gate):
    with Executor(4) as each:
        yield each
        gate.set()


@pytest.fixture
def one(gate):
    with Executor(1) as each:
        yield each
        gate.set()


def capture(*args, **kwargs):
    return args, kwargs


def blocked(executor, gate):
    """Submit a task that runs until the gate opens; return its future once it runs."""
    started = threading.Event()

    def body():
        started.set()
        assert gate.wait(PATIENCE_S)

    future = executor.submit(body)
    assert started.wait(PATIENCE_S)
    return future


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

    def test_a_slow_callback_holds_up_no_task_while_there_are_workers(self):
        """A callback may wait for a task that is pending when it begins."""
        gate, second = threading.Event(), threading.Event()
        with Executor(2) as executor:
            first = blocked(executor, gate)
            first.add_done_callback(lambda _: second.wait(PATIENCE_S))
            blocked(executor, gate)
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
    def test_a_timeout_cancels_the_rest(self, one, gate, chunksize):
        """What has not started when the time is up never starts, the item waited for included."""
        blocked(one, gate)
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

    def test_waiting_after_not_waiting(self, gate):
        """A second shutdown may wait for what the first left running."""
        executor = Executor(1)
        future = blocked(executor, gate)
        executor.shutdown(wait=False)
        threading.Timer(0.05, gate.set).start()
        executor.shutdown(wait=True)
        assert future.done()

    def test_cancels_what_has_not_started(self, gate):
        """`cancel_futures`: running tasks are finished, pending ones are cancelled, and everybody is told."""
        executor = Executor(1)
        running = blocked(executor, gate)
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
    def test_runs_once_in_each_thread(self, gate):
        """Each worker is initialised before its first task."""
        local = threading.local()
        count = []

        def initialize(value):
            local.value = value
            count.append(1)

        with Executor(3, initializer=initialize, initargs=("ready",)) as executor:
            held = [blocked(executor, gate) for _ in range(3)]
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


class TestSettings:
    @pytest.mark.parametrize("number", [0, -1])
    def test_needs_a_worker(self, number):
        """`max_workers` below one is an error."""
        with pytest.raises(ValueError, match="max_workers must be greater than 0"):
            Executor(max_workers=number)

    def test_default_number_of_workers(self, monkeypatch):
        """By default as many workers as a thread pool of the standard library has."""
        for name in ("WHYWAIT_SCHEDULER", "WHYWAIT_SLOTS"):
            monkeypatch.delenv(name, raising=False)
        assert Executor()._max_workers == ThreadPoolExecutor()._max_workers

    @pytest.mark.parametrize(
        ("variable", "value", "given", "slots"),
        [
            ("WHYWAIT_SLOTS", "3", None, 3),
            ("WHYWAIT_SLOTS", "3", 2, 2),
            ("WHYWAIT_SCHEDULER", "unbounded", None, None),
            ("WHYWAIT_SCHEDULER", "unbounded", 2, 2),
            ("WHYWAIT_SCHEDULER", "simple", None, 1),
            ("WHYWAIT_SCHEDULER", "simple", 2, 1),
        ],
    )
    def test_environment_stands_between_argument_and_default(self, monkeypatch, variable, value, given, slots):
        """E1, E2: the environment gives the default number of workers; the simple scheduler has one slot."""
        for name in ("WHYWAIT_SCHEDULER", "WHYWAIT_SLOTS"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv(variable, value)
        with Executor(given) as executor:
            assert executor.authority.settings.limits.slots == slots
            assert list(executor.map(abs, range(-3, 0))) == [3, 2, 1]

    def test_thread_names(self, gate):
        """Threads are named by the prefix and numbered from 0."""
        with Executor(3, thread_name_prefix="special") as executor:
            for _ in range(3):
                blocked(executor, gate)
            assert {thread.name for thread in executor._threads} == {"special_0", "special_1", "special_2"}
            gate.set()
        with Executor(1) as first, Executor(1) as second:
            names = [
                each.submit(lambda: threading.current_thread().name).result(PATIENCE_S) for each in (first, second)
            ]
            assert names[0] != names[1]

    def test_slots_go_by_the_name_of_max_workers(self):
        """Two names for one number would be a contradiction."""
        with pytest.raises(TypeError, match="max_workers"):
            Executor(slots=3)

    def test_unknown_option(self):
        """A typing error in an option is not ignored."""
        with pytest.raises(TypeError):
            Executor(no_such_option=1)

    def test_another_engine(self):
        """The authority's options are at hand, the engine among them; an initializer needs the executor's own."""
        with Executor(2, engine="thread") as executor:
            assert list(executor.map(abs, range(-3, 0))) == [3, 2, 1]
            assert executor.submit(capture, 1, x=2).result(PATIENCE_S) == ((1,), {"x": 2})
        with pytest.raises(ValueError, match="initializer"):
            Executor(engine="thread", initializer=int)
        with pytest.raises(ValueError, match="inject"):
            Executor(inject=True)


class TestAuthority:
    def test_why_a_future_waits(self, one, gate):
        """V1: `why(future)` says whose permission a pending task waits for."""
        running = blocked(one, gate)
        pending = one.submit(int)
        why = one.why(pending)
        assert why.state == "READY"
        assert [reason.kind for reason in why.reasons] == ["slot"]
        assert running.id in str(why)
        assert one.why(running).state == "RUNNING"
        gate.set()
        pending.result(PATIENCE_S)
        assert one.why(pending).outcome == "SUCCESS"

    def test_why_of_a_stranger(self, one):
        """Futures of others are refused."""
        with Executor(1) as other:
            for future in (Future(), other.submit(int)):
                with pytest.raises(ValueError, match="not a future of this executor"):
                    one.why(future)

    def test_shares_its_slots_with_tasks_of_its_authority(self, one, gate):
        """S1: what is submitted to `.authority` waits for the same slot, and shutdown waits for it."""
        blocked(one, gate)
        handle = one.authority.submit(int)
        assert handle.state == "READY"
        gate.set()
        one.shutdown()
        assert handle.result() == 0

    def test_a_future_can_be_a_dependency_of_such_a_task(self, one):
        """G4: for the authority a future of its executor is a handle."""
        assert one.authority.submit(abs, one.submit(int, "-3")).result(PATIENCE_S) == 3

    def test_retries_are_followed(self):
        """T7: with `retry`, the future gives the result of the attempt that succeeded, and runs all the time."""
        attempts = []

        def body():
            attempts.append(future.running())
            if len(attempts) < 3:
                raise OSError
            return "at last"

        ready = threading.Event()
        with Executor(1, retry=5) as executor:
            executor.submit(ready.wait, PATIENCE_S)
            future = executor.submit(body)
            ready.set()
            assert future.result(PATIENCE_S) == "at last"
        assert attempts == [True] * 3

    def test_a_task_that_runs_too_long(self, gate):
        """T6: with `timeout`, the future's exception says so."""
        with Executor(1, timeout=0.05) as executor:
            future = executor.submit(lambda: current().signal.wait(PATIENCE_S))
            assert isinstance(future.exception(PATIENCE_S), TaskTimeout)
            assert not future.cancelled()

    def test_a_task_that_waits_too_long(self, gate, caplog):
        """D3: with `max_wait`, a dropped task is an exception, not a cancellation."""
        with Executor(1, max_wait=0.05) as executor:
            blocked(executor, gate)
            future = executor.submit(int)
            assert isinstance(future.exception(PATIENCE_S), TaskDropped)
            gate.set()

    def test_disposing_the_authority(self, gate):
        """O4: pending futures are cancelled, running ones get TaskAborted once the body has ended."""
        executor = Executor(1)
        running = executor.submit(lambda: current().signal.wait(PATIENCE_S))
        pending = executor.submit(int)
        executor.authority.dispose()
        assert pending.cancelled()
        assert isinstance(running.exception(PATIENCE_S), TaskAborted)
        with pytest.raises(RuntimeError, match="after shutdown"):
            executor.submit(int)
        executor.shutdown()

    def test_refused_submissions_are_refused_here_too(self, gate):
        """D1: with `queue_limit`, `submit` raises and leaves nothing behind."""
        with Executor(1, queue_limit=1) as executor:
            blocked(executor, gate)
            executor.submit(int)
            with pytest.raises(QueueFull):
                executor.submit(int)
            gate.set()

    def test_is_a_thread_pool_executor_to_whoever_asks(self, one):
        """Event loops take only thread pools as their default executor."""
        assert isinstance(one, ThreadPoolExecutor)
        assert os.getpid() == one.submit(os.getpid).result(PATIENCE_S)
