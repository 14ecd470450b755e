"""Lazy resources on the process engine: one value for each worker process."""

import os
import time
from pathlib import Path

import pytest

import process_bodies as bodies
from patience import PATIENCE_S, until
from process_bodies import is_alive
from whywait import Authority, ProcessEngine, current

OPTIONS = {"engine": "process", "slots": 1, "grace": PATIENCE_S}


def note(path, word):
    with Path(path).open("a", encoding="utf-8") as file:
        file.write(f"{word} {os.getpid()}\n")


def words(path):
    return [line.split()[0] for line in bodies.read(path).splitlines()]


class Maker:
    """Makes a resource in a worker process, and notes in a file when it is made and closed."""

    def __init__(self, path, name="made", fails=0):
        self.path, self.name, self.fails = str(path), name, fails

    def __call__(self):
        assert current().ref.scope == "s"
        note(self.path, self.name)
        if len(words(self.path)) <= self.fails:
            raise OSError("no such device")
        return [self.path, os.getpid(), 0]


def close(resource):
    note(resource[0], "closed")


def use(resource, other=None):
    """Return where the resource was made, how often it was used there, and this process."""
    resource[2] += 1
    return resource[1], resource[2], os.getpid()


def use_when_there(resource, path):
    bodies.write_pid(f"{path}.pid")
    bodies.wait_for_file(path)
    return use(resource)


def test_it_is_made_once_in_each_process_and_closed_with_the_scope(make, tmp_path):
    """O9: by the first task there that is handed it; the same value for all tasks of that process."""
    log = tmp_path / "log"
    authority = make(slots=2)
    with authority.scope("s") as scope:
        lazy = scope.lazy(Maker(log), close)
        held = [scope.submit(use_when_there, lazy, str(tmp_path / "go")) for _ in range(2)]
        until(lambda: len(words(log)) == 2, "a value in each process")
        (tmp_path / "go").touch()
        more = [scope.submit(use, kwargs={"resource": lazy}) for _ in range(6)]
        results = [handle.result(PATIENCE_S) for handle in (*held, *more)]
        assert all(made == used for made, _, used in results)
        assert len({made for made, _, _ in results}) == 2
        assert sum(count == 1 for _, count, _ in results) == 2
        assert not lazy.is_made
        assert "lent to worker processes" in repr(lazy)
        assert words(log) == ["made", "made"]
    assert words(log) == ["made", "made", "closed", "closed"]
    assert authority.submit(bodies.add, 1, 1).result(PATIENCE_S) == 2


def test_a_failing_make_fails_the_task_and_the_next_tries_again(make, tmp_path):
    """O9: with what it raised; a retry is a next task."""
    log = tmp_path / "log"
    with make().scope("s") as scope:
        lazy = scope.lazy(Maker(log, fails=2), close)
        with pytest.raises(OSError, match="no such device"):
            scope.submit(use, lazy).result(PATIENCE_S)
        assert scope.submit(use, lazy, retry=1).result(PATIENCE_S)[1] == 1
    assert words(log) == ["made"] * 3 + ["closed"]


def test_a_process_that_is_replaced_closes_what_it_made(make, tmp_path):
    """O9, T10: the next one makes its own."""
    log = tmp_path / "log"
    with make(engine=ProcessEngine(max_tasks_per_child=2)).scope("s") as scope:
        lazy = scope.lazy(Maker(log), close)
        results = [scope.submit(use, lazy).result(PATIENCE_S) for _ in range(4)]
        until(lambda: words(log).count("closed") == 2, "the end of both")
    assert [count for _, count, _ in results] == [1, 2, 1, 2]
    assert len({made for made, _, _ in results}) == 2
    assert sorted(words(log)) == ["closed"] * 2 + ["made"] * 2


def test_an_error_while_closing_is_logged_and_the_others_are_closed(make, tmp_path, capfd):
    """O9: in the process that made them."""
    log = tmp_path / "log"

    def bad(_):
        raise RuntimeError("stuck")

    with make().scope("s") as scope:
        scope.submit(use, scope.lazy(Maker(log), close), scope.lazy(list, bad)).result(PATIENCE_S)
    assert words(log) == ["made", "closed"]
    told = capfd.readouterr().err
    assert "closing <Lazy list of scope 's'" in told
    assert "stuck" in told


def test_a_process_that_is_busy_with_another_scope_closes_it_after_that(make, tmp_path):
    """O9: dispose does not wait for bodies of other scopes."""
    log = tmp_path / "log"
    authority = make()
    scope, other = authority.scope("s"), authority.scope("other")
    pid = scope.submit(use, scope.lazy(Maker(log), close)).result(PATIENCE_S)[2]
    running = other.submit(use_when_there, [0, 0, 0], str(tmp_path / "go"))
    until((tmp_path / "go.pid").exists, "its start")
    scope.dispose()
    assert words(log) == ["made"]
    (tmp_path / "go").touch()
    assert running.result(PATIENCE_S)[2] == pid
    until(lambda: words(log) == ["made", "closed"] and not is_alive(pid), "the end")
    assert other.submit(bodies.pid).result(PATIENCE_S) != pid


def test_processes_without_it_stay(make, tmp_path):
    """O9: only those end that may hold it."""
    authority = make(slots=2)
    plain = authority.submit(use_when_there, [0, 0, 0], str(tmp_path / "go"))
    until((tmp_path / "go.pid").exists, "its start")
    with authority.scope("s") as scope:
        holder = scope.submit(use, scope.lazy(Maker(tmp_path / "log"), close)).result(PATIENCE_S)[2]
        (tmp_path / "go").touch()
        stays = plain.result(PATIENCE_S)[2]
    assert not is_alive(holder)
    assert authority.submit(bodies.pid).result(PATIENCE_S) == stays


def test_closing_has_the_grace_of_the_authority(make, tmp_path):
    """O9, O5: a process that takes longer is killed."""
    log = tmp_path / "log"

    def close_slowly(resource):
        note(resource[0], "begun")
        time.sleep(1000)

    with make(grace=0.2).scope("s") as scope:
        pid = scope.submit(use, scope.lazy(Maker(log), close_slowly)).result(PATIENCE_S)[2]
    assert words(log) == ["made", "begun"]
    assert not is_alive(pid)


def test_threads_and_processes_each_have_their_own(tmp_path):
    """O9: one in this process, one in each worker process."""
    log = tmp_path / "log"
    with Authority(slots=1, grace=PATIENCE_S) as authority, authority.scope("s") as scope:
        lazy = scope.lazy(Maker(log), close)
        here = scope.submit(use, lazy).result(PATIENCE_S)
        there = scope.submit(use, lazy, engine="process").result(PATIENCE_S)
        assert here == (os.getpid(), 1, os.getpid())
        assert there[0] == there[2] != os.getpid()
    assert sorted(words(log)) == ["closed", "closed", "made", "made"]
