"""The end of an Executor: interpreter exit, forks, executors nobody holds, and what is kept alive by whom."""

import contextlib
import gc
import os
import subprocess
import sys
import textwrap
import threading
import weakref

import pytest

from patience import PATIENCE_S, until, until_gone
from whywait import Executor


def run_program(program):
    """Run a program in an interpreter of its own; return what it printed, which must not be errors."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE_S,
        check=False,
    )
    assert done.stderr == ""
    assert done.returncode == 0
    return done.stdout.split()


class Thing:
    """Something a weak reference can be made to."""

    def method(self, *_):
        return None


class TestInterpreterExit:
    def test_waits_for_what_was_submitted(self):
        """Pending and running tasks are finished, their callbacks included, of every executor there is."""
        printed = run_program("""
            import time
            from whywait import Executor

            def work(name):
                time.sleep(0.05)
                print(name + "\\n", end="", flush=True)  # in one piece

            one, two = Executor(1), Executor(5)
            for number in range(3):
                one.submit(work, f"one{number}")
            two.submit(work, "two").add_done_callback(lambda _: work("callback"))
            dropped = Executor(1)
            dropped.submit(work, "dropped")
            del dropped
            left = Executor(1)
            left.submit(work, "left")
            left.shutdown(wait=False)
            print("end", flush=True)
        """)
        assert sorted(printed) == ["callback", "dropped", "end", "left", "one0", "one1", "one2", "two"]
        assert [name for name in printed if name.startswith("one")] == ["one0", "one1", "one2"]

    def test_refuses_submissions_once_it_has_begun(self):
        """Tasks, functions at exit and executors made that late get RuntimeError, not silence."""
        printed = run_program("""
            import atexit, time
            from whywait import Executor

            executor = Executor(2)

            def attempt(where, executor):
                try:
                    while True:
                        executor.submit(time.sleep, 0.001).cancel()
                except RuntimeError as error:
                    print(where, *str(error).split()[-2:], sep="-", flush=True)

            executor.submit(attempt, "task", executor)
            atexit.register(lambda: (attempt("atexit", executor), attempt("late", Executor(1))))
        """)
        assert sorted(printed) == [f"{where}-interpreter-shutdown" for where in ("atexit", "late", "task")]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
class TestFork:
    def test_the_child_can_exit_and_cannot_use_the_executor(self):
        """In a forked child no thread of the pool is there: it waits for nothing, and is refused; nothing hangs."""
        printed = run_program("""
            import os, sys, threading
            from whywait import Executor, WhywaitError

            busy, stop = Executor(2), threading.Event()
            busy.submit(stop.wait, 60)

            def again():
                if not stop.is_set():
                    busy.submit(again)  # the lock is held now and then while others fork

            busy.submit(again)
            children = []
            for number in range(10):
                child = os.fork()
                if not child:
                    try:
                        busy.submit(pow, 2, 5)
                    except WhywaitError:
                        sys.exit(Executor(1).submit(int).result(30))
                    sys.exit(1)
                children.append(child)
            codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
            stop.set()
            print(*codes)
        """)
        assert printed == ["0"] * 10


class TestDropped:
    def test_finishes_its_work_and_ends_its_threads(self):
        """An executor nobody holds finishes what was submitted; then its threads end."""
        gate = threading.Event()
        executor = Executor(3)
        futures = [executor.submit(gate.wait, PATIENCE_S) for _ in range(9)]
        threads = executor._threads
        gone = weakref.ref(executor)
        del executor
        gc.collect()
        assert gone() is None
        gate.set()
        assert [future.result(PATIENCE_S) for future in futures] == [True] * 9
        until(lambda: not any(thread.is_alive() for thread in threads))


class TestReferences:
    @pytest.fixture
    def executor(self):
        with Executor(1) as each:
            yield each

    def test_arguments_go_when_the_task_has_ended(self, executor):
        """T5: function and arguments go as soon as the task has ended, though the future is held."""
        things = [Thing(), Thing(), Thing()]
        gone = [weakref.ref(each) for each in things]
        future = executor.submit(things[0].method, things[1])
        another = executor.submit(lambda *_, x: None, x=things[2])
        del things
        until_gone(*gone)
        assert [future.exception(PATIENCE_S), another.exception(PATIENCE_S)] == [None, None]

    def test_errors_make_no_cycle(self, executor):
        """A future, its exception and their traceback go without the garbage collector."""

        def body():
            raise OSError

        gc.disable()
        try:
            future = executor.submit(body)
            for look in (future.result, future.exception, lambda: list(executor.map(int, ["x"]))):
                with contextlib.suppress(OSError, ValueError):
                    look()
            del look
            gone = weakref.ref(future)
            del future
            until_gone(gone)
        finally:
            gc.enable()

    def test_map_holds_no_result(self, executor):
        """A result goes when the loop is done with it, not when the iterator is."""
        for chunksize in (1, 3):
            for thing in executor.map(lambda _: Thing(), range(9), chunksize=chunksize):
                gone = weakref.ref(thing)
                del thing
                until_gone(gone)
