"""M5: the store by itself: what it takes, what it refuses, and in which order it writes."""

import random
import sqlite3
import stat
import threading

import pytest

from whywait.errors import MachineError
from whywait.machine import store as stores
from whywait.machine.store import APPLICATION_ID, MIGRATIONS, Job, Store


def make_job(number, **fields):
    values = {"scope": "default", "name": str(number), "command": ["true"], "directory": "/", "environment": "e"}
    return Job(number=number, added=1.0, **{**values, "options": {"after": [], "after_ended": []}, **fields})


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "jobs.db")


@pytest.fixture
def store(path):
    store = Store(path)
    yield store
    store.close()


def test_what_was_accepted_is_there_after_a_restart_in_order(path):
    """M5: with all its fields."""
    store = Store(path)
    jobs = [make_job(number, options={"after": [], "after_ended": [], "ram": "6GB"}) for number in (1, 2, 3)]
    for job in jobs:
        store.accept(job, {"A": "ä\udce9"}).wait()
    store.update(jobs[1], state="ended", outcome="success", facts={"waits": {"ram": 5}}).wait()
    store.close()
    again = Store(path)
    try:
        found = again.jobs()
        assert [job.number for job in found] == [1, 2, 3]
        assert found[0].options == {"after": [], "after_ended": [], "ram": "6GB"}
        assert (found[1].state, found[1].outcome, found[1].facts) == ("ended", "success", {"waits": {"ram": 5}})
        assert again.environments() == {"e": {"A": "ä\udce9"}}
        assert again.environment("e") == {"A": "ä\udce9"}
    finally:
        again.close()


def test_only_its_user_can_read_it(store, tmp_path):
    """M7: nor the files that SQLite keeps beside it."""
    store.accept(make_job(1), {"SECRET": "x"}).wait()
    modes = {stat.S_IMODE(each.stat().st_mode) for each in tmp_path.iterdir()}
    assert modes == {0o600}


def test_a_job_has_its_new_fields_only_when_they_are_on_the_disk(store, monkeypatch):
    """M5: nothing is told before it is kept."""
    job = make_job(1)
    store.accept(job, {}).wait()
    may_go_on = threading.Event()
    commit = Store._commit
    monkeypatch.setattr(Store, "_commit", lambda self, batch: may_go_on.wait() and commit(self, batch))
    ticket = store.update(job, state="running")
    assert job.state == "pending"
    may_go_on.set()
    ticket.wait()
    assert job.state == "running"


def test_many_changes_share_one_transaction(store, monkeypatch):
    """M5: group commit under load."""
    sizes = []
    commit = Store._commit

    def count(self, batch):
        sizes.append(len(batch))
        return commit(self, batch)

    monkeypatch.setattr(Store, "_commit", count)
    tickets = [store.accept(make_job(number), {}) for number in range(1, 201)]
    for ticket in tickets:
        ticket.wait()
    assert sum(sizes) == 200
    assert len(sizes) < 50


def test_a_disk_that_fails_refuses_what_is_new_and_keeps_the_rest_for_later(store, monkeypatch, caplog):
    """M5: what has happened is written when the disk takes it again, before anything that came later."""
    monkeypatch.setattr(stores, "AGAIN_AFTER_S", 0.01)
    job = make_job(1)
    store.accept(job, {}).wait()
    commit, fails = Store._commit, threading.Event()
    fails.set()

    def fail(self, batch):
        return "the disk is full" if fails.is_set() else commit(self, batch)

    monkeypatch.setattr(Store, "_commit", fail)
    started = store.update(job, state="running")
    refused = store.accept(make_job(2), {})
    with pytest.raises(MachineError, match="the disk is full"):
        refused.wait()
    ended = store.update(job, state="ended")
    assert job.state == "pending"
    fails.clear()
    started.wait()
    ended.wait()
    assert job.state == "ended"
    store.accept(make_job(2), {}).wait()
    assert "the disk is full" in caplog.text


def test_a_store_that_closes_gives_up_what_the_disk_does_not_take(path, monkeypatch, caplog):
    """M5: those who wait for it are told."""
    store = Store(path)
    job = make_job(1)
    store.accept(job, {}).wait()
    monkeypatch.setattr(Store, "_commit", lambda self, batch: "the disk is full")
    ticket = store.update(job, state="running")
    store.close()
    with pytest.raises(MachineError, match="the disk is full"):
        ticket.wait()
    with pytest.raises(MachineError, match="the service is ending"):
        store.update(job, state="ended").wait()


def test_a_store_that_closes_lets_another_thread_write_to_the_end(path, monkeypatch):
    """M5: the file is closed behind the last change, also if that is written by the thread that waits for it."""
    store = Store(path)
    job = make_job(1)
    store.accept(job, {}).wait()
    commit, writes, goes_on = Store._commit, threading.Event(), threading.Event()

    def slowly(self, batch):
        writes.set()
        goes_on.wait()
        return commit(self, batch)

    monkeypatch.setattr(Store, "_commit", slowly)
    ticket = store.update(job, is_awaited=True, state="running")
    waiter = threading.Thread(target=ticket.wait)
    waiter.start()
    writes.wait()
    closer = threading.Thread(target=store.close)
    closer.start()
    closer.join(0.1)
    assert closer.is_alive()
    goes_on.set()
    waiter.join()
    closer.join()
    assert (job.state, ticket.failure) == ("running", None)


def test_numbers_are_never_given_twice(path):
    """M6: not even those of jobs that were forgotten."""
    store = Store(path)
    store.accept(make_job(7), {}).wait()
    store.forget([7], lambda: None).wait()
    store.close()
    again = Store(path)
    assert again.last_number() == 7
    assert again.environments() == {}
    again.close()


def test_a_store_of_an_older_version_is_brought_up_to_date(path, monkeypatch):
    """M5: with all that is in it."""
    store = Store(path)
    store.accept(make_job(1), {}).wait()
    store.close()
    more = (*MIGRATIONS, "ALTER TABLE jobs ADD COLUMN later TEXT NOT NULL DEFAULT 'x'")
    monkeypatch.setattr(stores, "MIGRATIONS", more)
    again = Store(path)
    assert [job.number for job in again.jobs()] == [1]
    again.close()
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (len(more),)
        assert connection.execute("SELECT later FROM jobs").fetchall() == [("x",)]
    connection.close()


def test_a_store_of_a_newer_version_is_left_alone(path):
    """M5: the error says which version would know it."""
    Store(path).close()
    with sqlite3.connect(path) as connection:
        connection.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    connection.close()
    with pytest.raises(MachineError, match="written by a newer whywait"):
        Store(path)


@pytest.mark.parametrize(
    "content", [b"not a database at all, but long enough to be looked at" * 20, b"SQLite format 3\0" + b"\xff" * 4000]
)
def test_a_broken_store_is_left_alone(tmp_path, content):
    """M5: the error says what to do; nothing is overwritten."""
    path = tmp_path / "jobs.db"
    path.write_bytes(content)
    with pytest.raises(MachineError, match="move it away to begin with an empty one"):
        Store(str(path))
    assert path.read_bytes() == content


WRONG = [
    ("jobs", "command", "[]"),
    ("jobs", "command", "["),
    ("jobs", "command", "[" * 5000),
    ("jobs", "directory", "9" * 5000),
    ("jobs", "options", "[1]"),
    ("jobs", "options", "{}"),
    ("jobs", "options", '{"after": [], "after_ended": [], "priority": "x"}'),
    ("jobs", "options", '{"after": [], "after_ended": [], "retry": "x"}'),
    ("jobs", "options", '{"after": [1], "after_ended": []}'),
    ("jobs", "added", "soon"),
    ("jobs", "added", float("inf")),
    ("jobs", "ended", b"\xff"),
    ("jobs", "state", "weird\n\x1b[31m"),
    ("jobs", "attempt", "x"),
    ("jobs", "exit_code", 1.5),
    ("jobs", "facts", '{"waits": 3}'),
    ("environments", "variables", "null"),
    ("environments", "variables", '{"A": 1}'),
    ("scopes", "options", "3"),
    ("sqlite_sequence", "seq", "x"),
]


def refusal_of(path):
    """Read all of a store; return why that cannot be, empty if it can."""
    try:
        store = Store(path)
        try:
            store.jobs(), store.environments(), store.scopes(), store.last_number()
        finally:
            store.close()
    except MachineError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(("table", "column", "value"), WRONG)
def test_a_row_that_no_service_has_written_is_named(path, table, column, value):
    """M5: one line with the file and what to do; nothing is overwritten."""
    store = Store(path)
    store.accept(make_job(1), {"A": "1"})
    store.keep_scope("default", {"slots": 1})
    store.close()
    with sqlite3.connect(path) as connection:
        connection.execute(f"UPDATE {table} SET {column} = ?", (value,))
    connection.close()
    told = refusal_of(path)
    assert told.startswith(f"{path} is no store of jobs, or is broken (")
    assert told.endswith("); move it away to begin with an empty one")
    assert told.isprintable()
    assert len(told) < 1000


def test_a_store_with_any_bytes_changed_gives_its_jobs_or_one_line(tmp_path):
    """M5: 300 damaged copies."""
    good = tmp_path / "good.db"
    store = Store(str(good))
    for number in range(1, 20):
        store.accept(make_job(number), {"A": "1"})
    store.keep_scope("default", {"slots": 1})
    store.close()
    data, choose, refused = good.read_bytes(), random.Random(16), 0
    for trial in range(300):
        broken = bytearray(data)
        for _ in range(choose.choice([1, 10, 100])):
            broken[choose.randrange(len(broken))] = choose.randrange(256)
        path = tmp_path / f"{trial}.db"
        path.write_bytes(broken[: choose.choice([len(data), choose.randrange(len(data))])])
        told = refusal_of(str(path))
        refused += bool(told)
        assert told.isprintable()
    assert refused > 50


def test_the_database_of_another_program_is_left_alone(path):
    """M5: as a broken one is."""
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE theirs (x)")
    connection.close()
    with pytest.raises(MachineError, match="belongs to another program"):
        Store(path)
    assert APPLICATION_ID == 0x77687977
