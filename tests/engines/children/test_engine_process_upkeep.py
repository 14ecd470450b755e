"""The process engine: what each new worker process calls first, and when one is replaced."""

import logging
import os
import subprocess
import sys
import textwrap
import time
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import pytest

import process_bodies as bodies
from patience import PATIENCE_S, until
from process_bodies import is_alive, run_script
from whywait import ConfigError, ProcessEngine, TaskFailed

OPTIONS = {"slots": 1, "grace": 2.0}
state = []  # what the initializer leaves in its process


def remember(*values):
    state.extend(values)


def remembered():
    return os.getpid(), list(state)


def fail_in_child(path):
    with Path(path).open("a", encoding="utf-8") as file:
        file.write("x")
    raise ValueError("no good")


def allocate(size):
    state.append(bytearray(os.urandom(1) * size))
    return os.getpid()


def start_hog(size):
    """Leave a process of one's own running that holds memory."""
    program = f"import time; held = bytearray(b'x' * {size}); print('.', flush=True); time.sleep(1000)"
    hog = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    hog.stdout.read(1)
    return os.getpid()


def say_goodbye(path, delay_s):
    """Have this process do something slow at its end."""
    import atexit

    atexit.register(lambda: (time.sleep(delay_s), Path(path).write_text("bye", encoding="utf-8")))
    return os.getpid()


# The initializer


def test_each_process_calls_it_once_before_its_first_task(make, tmp_path):
    """T10: whatever number of tasks it runs."""
    authority = make(engine=ProcessEngine(remember, (1, "two")), slots=2)
    held = [authority.submit(bodies.wait_for_file, str(tmp_path / "go")) for _ in range(2)]
    more = [authority.submit(remembered) for _ in range(10)]
    (tmp_path / "go").touch()
    for handle in held:
        handle.result(PATIENCE_S)
    seen = dict(handle.result(PATIENCE_S) for handle in more)
    assert 1 <= len(seen) <= 2
    assert set(map(tuple, seen.values())) == {(1, "two")}


def test_a_failure_ends_all_tasks_that_do_not_run_and_those_to_come(make, tmp_path):
    """T10: ERROR/worker_lost with what it raised, without a retry; no other process tries."""
    authority = make(engine=ProcessEngine(fail_in_child, (str(tmp_path / "count"),)), retry=3)
    handles = [authority.submit(int) for _ in range(4)]
    for handle in (*handles, authority.submit(int)):
        with pytest.raises(TaskFailed, match=r"initializer .* has failed.*ValueError\('no good'\)") as caught:
            handle.result(PATIENCE_S)
        assert isinstance(caught.value, BrokenProcessPool)
        assert "in fail_in_child" in str(caught.value.__cause__.__cause__)
        assert (handle.outcome, handle.cause) == ("error", "worker_lost")
        assert len(handle.attempts) <= 1
    assert (tmp_path / "count").read_text(encoding="utf-8") == "x"
    assert authority.submit(int, engine="thread").result(PATIENCE_S) == 0


def test_what_cannot_be_pickled_breaks_it_with_the_reason(make):
    """T10: at the first task, since it is pickled for each process anew."""
    authority = make(engine=ProcessEngine(print, (sys._getframe(),)))
    with pytest.raises(TaskFailed, match=r"initializer .* has failed.*cannot pickle 'frame' object"):
        authority.submit(int).result(PATIENCE_S)


def test_a_process_that_dies_in_it_costs_its_task(make):
    """T10, T2: like any process that dies."""
    authority = make(engine=ProcessEngine(os._exit, (3,)))
    for _ in range(2):
        with pytest.raises(TaskFailed, match="exit code 3") as caught:
            authority.submit(int).result(PATIENCE_S)
        assert isinstance(caught.value, BrokenProcessPool)


def test_it_is_handed_what_processes_share():
    """T10: queues and locks of multiprocessing, which travel only to new processes."""
    program = """if True:
        import multiprocessing, os
        from whywait import Authority, ProcessEngine
        def put(given, lock, value):
            global queue
            queue = given
            with lock:
                queue.put((os.getpid(), value))
        def put_more(value):
            queue.put((os.getpid(), value))
        spawn = multiprocessing.get_context("spawn")
        shared = spawn.Queue()
        with Authority(slots=1, engine=ProcessEngine(put, (shared, spawn.Lock(), "begin"))) as authority:
            authority.submit(put_more, "task").result()
            (first, begin), (second, task) = shared.get(timeout=30), shared.get(timeout=30)
            print(begin, task, first == second != os.getpid())
            print(authority.submit(print, shared).exception())
    """
    out, _ = run_script(textwrap.dedent(program), stdout=-1, text=True).communicate(timeout=PATIENCE_S)
    assert out.splitlines()[0] == "begin task True"
    assert "through inheritance" in out.splitlines()[1]


def test_managers_of_multiprocessing_serve_tasks():
    """T4: a proxy reaches its manager from a worker process, also from one that was there before the manager."""
    program = """if True:
        from whywait import Executor
        with Executor(1, engine="process") as pool:
            pool.submit(int).result()
            import multiprocessing
            with multiprocessing.get_context("spawn").Manager() as manager:
                shared = manager.dict()
                pool.submit(lambda: None).result()
                pool.submit(shared.update, {"a": 1}).result()
                print(dict(shared))
    """
    out, _ = run_script(textwrap.dedent(program), stdout=-1, text=True).communicate(timeout=PATIENCE_S)
    assert out == "{'a': 1}\n"


def test_globals_that_it_sets_in_main_are_there_for_tasks_of_main():
    """T10: also if they have another value in the program itself, and as the last task left them."""
    program = """if True:
        from functools import partial
        from whywait import Authority, Executor, ProcessEngine
        connection, calls, limit = None, 0, 3
        def connect(name):
            global connection
            connection = f"{name}/{limit}"
        class Query:
            def run(self, table):
                return f"{connection}/{table}"
        def read(table):
            global calls
            calls += 1
            return connection, calls, table
        with Executor(1, engine="process", initializer=connect, initargs=("db",)) as pool:
            limit = 4
            print(pool.submit(read, "a").result(), pool.submit(partial(read, "b")).result())
            print(pool.submit(Query().run, "c").result(), list(pool.map(read, "de", chunksize=2)))
        def count():
            global calls
            calls += 1
            return calls
        with Authority(slots=1, engine=ProcessEngine(count)) as authority:
            print([authority.submit(count).result() for _ in range(3)], calls)
    """
    out, _ = run_script(textwrap.dedent(program), stdout=-1, text=True).communicate(timeout=PATIENCE_S)
    assert out.splitlines() == [
        "('db/4', 1, 'a') ('db/4', 1, 'b')",
        "db/4/c [('db/4', 1, 'd'), ('db/4', 2, 'e')]",
        "[2, 3, 4] 0",
    ]


# Replacing processes


def test_a_process_is_replaced_after_so_many_tasks(make):
    """T10: by another one, in its slot; the old one is gone."""
    authority = make(engine=ProcessEngine(max_tasks_per_child=3))
    pids = [authority.submit(bodies.pid).result(PATIENCE_S) for _ in range(8)]
    assert [pids.count(pid) for pid in dict.fromkeys(pids)] == [3, 3, 2]
    until(lambda: not is_alive(pids[0]) and not is_alive(pids[3]), "the end of the old ones")


def test_failed_tasks_count_and_waiting_ones_go_on(make):
    """T10: each task in a process of its own, on two slots."""
    authority = make(engine=ProcessEngine(max_tasks_per_child=1), slots=2)
    handles = [authority.submit(*call) for call in [(bodies.pid,), (bodies.fail, "")] * 5]
    pids = [handle.result(PATIENCE_S) for handle in handles[::2]]
    assert len(set(pids)) == 5
    assert all(isinstance(handle.exception(PATIENCE_S), ValueError) for handle in handles[1::2])
    assert authority.stats()["active"] == 0


def test_a_process_that_holds_too_much_memory_after_a_task_is_replaced(make):
    """T10: one that has given it back is not."""
    authority = make(engine=ProcessEngine(max_ram_per_child="200MB"))
    pids = [authority.submit(allocate, size).result(PATIENCE_S) for size in (0, 1000, 300_000_000, 0, 0)]
    assert pids[0] == pids[1] == pids[2]
    assert pids[3] == pids[4] != pids[2]
    until(lambda: not is_alive(pids[0]), "its end")


def test_memory_of_descendants_counts(make):
    """T10: what a body has started and left running is ended with its process."""
    authority = make(engine=ProcessEngine(max_ram_per_child="200MB"))
    first = authority.submit(start_hog, 300_000_000).result(PATIENCE_S)
    assert authority.submit(bodies.pid).result(PATIENCE_S) != first
    until(lambda: not is_alive(first), "its end")


def test_a_process_that_is_replaced_ends_by_itself(make, tmp_path):
    """T10: what it does at its end has time, and no task waits for it."""
    authority = make(engine=ProcessEngine(max_tasks_per_child=1), grace=PATIENCE_S)
    first = authority.submit(say_goodbye, str(tmp_path / "bye"), 0.3).result(PATIENCE_S)
    assert authority.submit(bodies.pid).result(PATIENCE_S) != first
    until((tmp_path / "bye").exists, "its goodbye")


def test_one_that_does_not_end_is_killed(make, tmp_path):
    """T10, O5: after the grace of its authority."""
    authority = make(engine=ProcessEngine(max_tasks_per_child=1), grace=0.1)
    first = authority.submit(say_goodbye, str(tmp_path / "bye"), 1000).result(PATIENCE_S)
    until(lambda: not is_alive(first), "its end")
    assert not (tmp_path / "bye").exists()


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"initializer": 3}, "initializer 3 is not allowed: use a function"),
        ({"initargs": [1]}, r"initargs \[1\] is not allowed: use a tuple"),
        ({"max_tasks_per_child": 0}, "max_tasks_per_child 0 is not allowed: use an int of 1 or more, or None"),
        ({"max_tasks_per_child": True}, "max_tasks_per_child True is not allowed"),
        ({"max_ram_per_child": "lots"}, 'max_ram_per_child: "lots" is not a size'),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, text):
    """T10: at once, with the value and what would be right."""
    with pytest.raises(ConfigError, match=text):
        ProcessEngine(**settings)


def test_an_engine_that_is_given_stands_for_its_name(make):
    """T10: a task that names "process" has the processes of the authority's own engine."""
    authority = make(engine=ProcessEngine(remember, ("here",)))
    assert authority.submit(remembered, engine="process").result(PATIENCE_S)[1] == ["here"]


def test_the_reason_of_a_failure_is_in_the_log_of_futures(make, capfd, tmp_path):
    """T10: as the standard library has it, in the process that failed."""
    authority = make(engine=ProcessEngine(fail_in_child, (str(tmp_path / "count"),)))
    assert authority.submit(int).exception(PATIENCE_S) is not None
    assert "Exception in initializer:" in capfd.readouterr().err
    assert logging.getLogger("concurrent.futures").handlers == []
