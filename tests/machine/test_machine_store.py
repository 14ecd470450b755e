"""M5, M11: the store by itself: what it takes, what it refuses, and in which order it writes."""

import json
import os
import random
import sqlite3
import stat
import threading
from pathlib import Path

import pytest

from patience import until
from whywait.errors import MachineError
from whywait.machine import store as stores
from whywait.machine.database import APPLICATION_ID, MIGRATIONS
from whywait.machine.moments import Moment
from whywait.machine.rows import Ended, KeptJob, Pending, Running, as_text, environment_key
from whywait.machine.seal import RESERVE_BYTES
from whywait.machine.store import Store

NO_OPTIONS = {"after": [], "after_ended": []}


RUNNING = Running(1, Moment(2.0))
ENDED = Ended("aborted", "cancelled", Moment(3.0), 1, Moment(2.0))


def make_job(number, **fields):
    values = {"scope": "default", "name": str(number), "command": ["true"], "directory": "/", "options": NO_OPTIONS}
    variables = {"A": str(number), **fields.pop("variables", {})}
    key = environment_key(as_text(variables))
    return KeptJob(number=number, added=Moment(1.0), environment=key, variables=variables, **{**values, **fields})


def jobs_of(store):
    """Return the jobs that were in a store when it was opened."""
    return list(store.content.jobs.values())


def accept(store, *jobs, then=lambda: None, **more):
    return store.accept(jobs, then, **more)


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
    jobs = [make_job(number, options={**NO_OPTIONS, "ram": "6GB"}) for number in (1, 2, 3)]
    no_text = {"A": "ä\udce9"}  # names of files may be any bytes
    accept(store, make_job(4, variables=no_text)).wait()
    for job in jobs:
        accept(store, job).wait()
    ended = Moment(5.0, "boot", 2.0)
    success = Ended("success", None, ended, 2, Moment(4.0), 0, {"waits": {"ram": 5}})
    store.update(jobs[1], success).wait()
    store.update(jobs[2], Running(1, ended, is_paused=True, abort="cancelled")).wait()
    store.close()
    again = Store(path)
    try:
        found = jobs_of(again)
        assert [job.number for job in found] == [1, 2, 3, 4]
        assert again.environment(found[3].environment) == no_text
        assert found[0].options == {**NO_OPTIONS, "ram": "6GB"}
        assert found[1].state == success
        assert found[2].state == Running(1, ended, is_paused=True, abort="cancelled")
        assert again.environment(found[0].environment) == {"A": "1"}
        assert again.environment(found[2].environment) == {"A": "3"}
        assert again.notice is None
    finally:
        again.close()


def test_only_its_user_can_read_it(store, tmp_path):
    """M7: nor the files that SQLite keeps beside it."""
    accept(store, make_job(1)).wait()
    modes = {stat.S_IMODE(each.stat().st_mode) for each in tmp_path.iterdir()}
    assert modes == {0o600}


def test_a_job_has_its_new_fields_only_when_they_are_on_the_disk(store, monkeypatch):
    """M5: nothing is told before it is kept."""
    job = make_job(1)
    accept(store, job).wait()
    may_go_on = threading.Event()
    commit = Store._commit
    monkeypatch.setattr(Store, "_commit", lambda self, batch: may_go_on.wait() and commit(self, batch))
    ticket = store.update(job, RUNNING)
    assert job.state == Pending()
    may_go_on.set()
    ticket.wait()
    assert job.state == RUNNING


def test_many_changes_share_one_transaction(store, monkeypatch):
    """M5: group commit under load."""
    sizes = []
    commit = Store._commit

    def count(self, batch):
        sizes.append(len(batch))
        return commit(self, batch)

    monkeypatch.setattr(Store, "_commit", count)
    tickets = [accept(store, make_job(number)) for number in range(1, 201)]
    for ticket in tickets:
        ticket.wait()
    assert sum(sizes) == 200
    assert len(sizes) < 50


def test_a_disk_that_fails_refuses_what_is_new_and_keeps_the_rest_for_later(store, monkeypatch, caplog):
    """M5: what has happened is written when the disk takes it again, before anything that came later."""
    monkeypatch.setattr(stores, "AGAIN_AFTER_S", 0.01)
    job = make_job(1)
    accept(store, job).wait()
    commit, fails = Store._commit, threading.Event()
    fails.set()

    def fail(self, batch):
        if fails.is_set():
            raise sqlite3.OperationalError("the disk is full")
        commit(self, batch)

    monkeypatch.setattr(Store, "_commit", fail)
    started = store.update(job, RUNNING)
    refused = accept(store, make_job(2))
    with pytest.raises(MachineError, match="the disk is full"):
        refused.wait()
    ended = store.update(job, ENDED)
    assert job.state == Pending()
    fails.clear()
    started.wait()
    ended.wait()
    assert job.state == ENDED
    accept(store, make_job(2)).wait()
    assert "the disk is full" in caplog.text


def test_a_store_that_closes_gives_up_what_the_disk_does_not_take(path, monkeypatch, caplog):
    """M5: those who wait for it are told."""
    store = Store(path)
    job = make_job(1)
    accept(store, job).wait()

    def fail(self, batch):
        raise sqlite3.OperationalError("the disk is full")

    monkeypatch.setattr(Store, "_commit", fail)
    ticket = store.update(job, RUNNING)
    store.close()
    with pytest.raises(MachineError, match="the disk is full"):
        ticket.wait()
    with pytest.raises(MachineError, match="the service is ending"):
        store.update(job, ENDED).wait()


def test_a_store_of_a_newer_version_is_left_alone(path):
    """M5: the error says which version would know it."""
    Store(path).close()
    with sqlite3.connect(path) as connection:
        connection.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    connection.close()
    with pytest.raises(MachineError, match="written by a newer whywait"):
        Store(path)


def of_another_program():
    with sqlite3.connect(":memory:") as connection:
        connection.execute("CREATE TABLE theirs (x)")
    return connection.serialize()


@pytest.mark.parametrize(
    "content",
    [
        b"not a database, but long enough to be looked at" * 20,
        b"SQLite format 3\0" + b"\xff" * 4000,
        of_another_program(),
    ],
    ids=["text", "damaged", "of another program"],
)
def test_a_broken_store_is_left_alone(tmp_path, content):
    """M5: the error says what to do; nothing is overwritten."""
    path = tmp_path / "jobs.db"
    path.write_bytes(content)
    with pytest.raises(MachineError, match="move it away to begin with an empty one"):
        Store(str(path))
    assert path.read_bytes() == content or b"theirs" in path.read_bytes()  # SQLite notes there how it writes


WRONG = [
    ("jobs", "command", "[]"),
    ("jobs", "command", "[" * 5000),
    ("jobs", "options", "[1]"),
    ("jobs", "added", "soon"),
    ("jobs", "ended", b"\xff"),
    ("jobs", "state", "weird\n\x1b[31m"),
    ("jobs", "attempt", "x"),
    ("jobs", "exit_code", 1.5),
    ("jobs", "digest", None),
    ("jobs", "environment", "other"),
    ("environments", "variables", "null"),
    ("environments", "variables", b"\xff"),
]


@pytest.mark.parametrize(("table", "column", "value"), WRONG)
def test_a_row_that_no_service_has_written_is_set_aside_and_named(path, tmp_path, table, column, value):
    """M11: the others go on; a copy of the files is kept, and the next start has nothing to say."""
    store = Store(path)
    accept(store, make_job(1))
    accept(store, make_job(2))
    store.close()
    with sqlite3.connect(path) as connection:
        connection.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = 1", (value,))
    connection.close()
    damaged = Store(path)
    damaged.close()
    assert [job.number for job in jobs_of(damaged)] == [2]
    assert "job 1 is lost; the service goes on with 1 job" in damaged.notice
    assert damaged.notice.isprintable()
    assert (tmp_path / damaged.damaged / "jobs.db").exists()
    again = Store(path)
    again.close()
    assert (again.notice, again.sealed.last, [job.number for job in jobs_of(again)]) == (None, 2, [2])


def test_a_changed_scope_is_named(path):
    """M11: its jobs go on, under no limits of their own."""
    store = Store(path)
    accept(store, make_job(1), scope=("default", {"slots": 1})).wait()
    store.close()
    with sqlite3.connect(path) as connection:
        connection.execute("""UPDATE scopes SET options = '{"slots": 2}'""")
    connection.close()
    damaged = Store(path)
    damaged.close()
    assert (len(jobs_of(damaged)), damaged.content.scopes) == (1, {})
    assert "the limits of a scope are damaged" in damaged.notice


def test_a_change_of_a_job_that_is_not_there_breaks_the_store(path, caplog):
    """M11: an update that matches no row is an error, of which every ticket hears."""
    store = Store(path)
    broken = []
    store.on_broken = broken.append
    accept(store, make_job(1)).wait()
    with pytest.raises(MachineError, match="there is no job 2 to change"):
        store.update(make_job(2), RUNNING).wait()
    assert len(broken) == 1
    with pytest.raises(MachineError, match="there is no job 2 to change"):
        accept(store, make_job(3)).wait()
    store.close()
    again = Store(path)
    again.close()
    assert [job.number for job in jobs_of(again)] == [1]


def test_a_new_job_that_cannot_be_written_is_refused_alone(store):
    """M11: also if what is wrong with it is no fault of the disk, and others are written with it."""
    with store._turn:
        tickets = [accept(store, make_job(number)) for number in (1, 2**70, 3)]
    with pytest.raises(MachineError, match="OverflowError"):
        tickets[1].wait()
    tickets[0].wait()
    tickets[2].wait()


def test_what_follows_from_acceptance_follows_in_the_order_of_the_store(store):
    """M5: before the client is answered, and not if the job is refused."""
    followed = []
    with store._turn:
        tickets = [
            accept(store, make_job(number), then=lambda number=number: followed.append(number))
            for number in (1, 2, 1, 3)
        ]
    tickets[3].wait()
    assert followed == [1, 2, 3]
    with pytest.raises(MachineError, match="UNIQUE"):
        tickets[2].wait()


def test_a_writer_that_fails_says_so_to_every_ticket(path, caplog):
    """M11: whatever it fails with; nothing waits for ever."""
    store = Store(path)
    store.on_broken = lambda _: None

    def fail():
        raise RuntimeError("out of the blue")

    with pytest.raises(MachineError, match="out of the blue"):
        accept(store, make_job(1), then=fail).wait()
    with pytest.raises(MachineError, match="out of the blue"):
        accept(store, make_job(2)).wait()
    store.close()


def fail_unless(condition, monkeypatch):
    """Let a commit fail as on a full disk unless a condition holds of its tickets."""
    commit = Store._commit

    def fail(self, batch):
        if not condition(self, batch):
            raise sqlite3.OperationalError("database or disk is full")
        commit(self, batch)

    monkeypatch.setattr(Store, "_commit", fail)


def test_a_full_disk_takes_ends_but_no_starts(path, tmp_path, monkeypatch, caplog):
    """M11: the reserve is given up for what has happened, and made again."""
    monkeypatch.setattr(stores, "AGAIN_AFTER_S", 0.01)
    monkeypatch.setattr(stores, "IDLE_S", 0.01)
    reserve = tmp_path / "reserve"
    store = Store(path)
    assert reserve.stat().st_size == RESERVE_BYTES
    runs, waits = make_job(1), make_job(2)
    accept(store, runs, waits).wait()
    store.update(runs, RUNNING, is_start=True).wait()
    is_full = threading.Event()
    is_full.set()
    fail_unless(lambda _, __: not (is_full.is_set() and reserve.exists()), monkeypatch)
    with store._turn:
        started = store.update(waits, RUNNING, is_start=True)
        refused = accept(store, make_job(3))
        ended = store.update(runs, ENDED)
    ended.wait()
    assert not started.done()
    with pytest.raises(MachineError, match="disk is full"):
        refused.wait()
    is_full.clear()
    started.wait()
    assert (runs.state, waits.state, store.trouble) == (ENDED, RUNNING, None)
    store.close()


def test_a_start_is_written_with_what_has_come_of_it(path, monkeypatch, caplog):
    """M11: in the order of the job, also where the reserve is given up."""
    store = Store(path)
    job = make_job(1)
    accept(store, job).wait()
    failing = iter([False, False, True])
    fail_unless(lambda _, __: next(failing, True), monkeypatch)
    with store._turn:
        store.update(job, RUNNING, is_start=True)
        ended = store.update(job, ENDED)
    ended.wait()
    store.close()
    again = Store(path)
    again.close()
    assert [each.state for each in jobs_of(again)] == [ENDED]


def test_an_idle_store_has_nothing_in_its_log(path, tmp_path, monkeypatch):
    """M11: what is in the log of SQLite is lost with any byte of it."""
    monkeypatch.setattr(stores, "IDLE_S", 0.01)
    store = Store(path)
    accept(store, make_job(1)).wait()
    until(lambda: (tmp_path / "jobs.db-wal").stat().st_size == 0)
    store.close()


def test_a_store_of_0_2_is_taken_over(path):
    """M5: with its jobs, those that were paused too, and its numbers."""
    connection = sqlite3.connect(path)
    connection.executescript(MIGRATIONS[0])
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute("PRAGMA user_version = 1")
    text = json.dumps({"A": "1"})
    connection.execute("INSERT INTO environments VALUES (?, ?)", (environment_key(text), text))
    connection.execute("INSERT INTO scopes VALUES ('default', '{\"slots\": 1}')")
    for number, state in ((1, "ended"), (4, "paused"), (9, "pending")):
        connection.execute(
            "INSERT INTO jobs (number, scope, name, command, directory, environment, options, added, state, ended)"
            " VALUES (?, 'default', ?, '[\"true\"]', '\"/\"', ?, ?, 12.5, ?, ?)",
            (number, str(number), environment_key(text), json.dumps(NO_OPTIONS), state, 13.25 if number == 1 else None),
        )
    connection.execute("DELETE FROM jobs WHERE number = 9")
    connection.commit()
    connection.close()
    for _ in range(2):
        store = Store(path)
        store.close()
        first, second = jobs_of(store)
        assert (first.number, type(first.state), first.state.ended) == (1, Ended, Moment(13.25))
        assert (second.number, second.state) == (4, Pending(is_paused=True))
        assert first.added == Moment(12.5)
        assert (store.sealed.last, store.content.scopes, store.notice) == (9, {"default": {"slots": 1}}, None)


def grown_store(folder, changes=12):
    """Leave the files of a service that was killed; return the jobs that clients know of, by number."""
    store = Store(str(folder / "jobs.db"))
    jobs = {}
    for number in range(1, changes):
        jobs[number] = job = make_job(number)
        accept(store, job).wait()
        if number % 3 == 0:
            store.update(job, ENDED).wait()
        if number == changes // 2:
            store.fold()
    files = {each.name: each.read_bytes() for each in folder.iterdir() if each.name != "reserve"}
    store.close()
    return files, {number: job.state for number, job in jobs.items()}


def test_any_changed_or_cut_byte_is_noticed_if_anything_is_missing(tmp_path):
    """M11: in the file, its log, the index of the log and the seal: what was answered is there, or its loss is said."""
    good = tmp_path / "good"
    good.mkdir()
    files, known = grown_store(good)
    assert set(files) == {"jobs.db", "jobs.db-wal", "jobs.db-shm", "jobs.seal"}
    choose, noticed, refused = random.Random(26), 0, 0
    for trial in range(240):
        folder = tmp_path / str(trial)
        folder.mkdir()
        victim = choose.choice(sorted(files))
        for name, data in files.items():
            broken = bytearray(data)
            if name == victim:
                for _ in range(choose.choice([1, 10, 100])):
                    broken[choose.randrange(len(broken))] = choose.randrange(256)
                del broken[choose.choice([len(data), choose.randrange(len(data))]) :]
            (folder / name).write_bytes(broken)
        try:
            store = Store(str(folder / "jobs.db"))
        except MachineError as error:
            refused += 1
            refusal = str(error)
        else:
            refusal = ""
        if refusal:
            assert refusal.isprintable()
            assert victim == "jobs.db"
            continue
        store.close()
        found = {job.number: job.state for job in jobs_of(store)}
        assert found.items() <= known.items() or store.notice, (trial, victim)
        if found != known:
            noticed += 1
            assert store.notice, (trial, victim, found)
            assert store.notice.isprintable()
            assert (folder / store.damaged / "jobs.db").stat().st_size
    assert noticed > 30
    assert 0 < refused < 6


@pytest.mark.parametrize("seal", [True, False])
@pytest.mark.parametrize("file", [b"", None])
def test_a_log_without_its_file_is_in_the_copy(path, tmp_path, file, seal):
    """M11: SQLite removes such a log when it opens the file, so it is copied before."""
    files, _ = grown_store(tmp_path)
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    (tmp_path / "jobs.db").unlink() if file is None else (tmp_path / "jobs.db").write_bytes(file)
    if not seal:
        (tmp_path / "jobs.seal").unlink()
    store = Store(path)
    store.close()
    assert "only SQLite's log was there" in store.notice
    assert (tmp_path / store.damaged / "jobs.db-wal").read_bytes() == files["jobs.db-wal"]


def test_what_is_left_of_a_file_that_was_cut_is_read(path, tmp_path):
    """M11: SQLite by itself reads nothing of a file that is shorter than its head says."""
    store = Store(path)
    for number in range(1, 101):
        accept(store, make_job(number)).wait()
    store.close()
    os.truncate(path, Path(path).stat().st_size - 2 * 4096)
    store = Store(path)
    store.close()
    assert 0 < len(jobs_of(store)) <= 100
    assert "its structure is damaged" in store.notice
    assert (tmp_path / store.damaged / "jobs.db").exists()
