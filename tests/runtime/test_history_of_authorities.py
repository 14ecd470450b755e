"""What an authority tells its history, and what its tasks learn from it."""

import functools
import logging
import sqlite3
import sys
import time

import pytest

from whywait import Authority, Call, Command, ConfigError, History, Record, Retry
from whywait.observe.history import Finished

MB = 1_000_000
ALLOCATE = "data = bytearray({0}_000_000); data[::4096] = b'x' * len(data[::4096])"


def allocate(megabytes):
    return Command([sys.executable, "-c", ALLOCATE.format(megabytes)])


def double(number):
    return 2 * number


@pytest.fixture
def file(tmp_path):
    return tmp_path / "history.db"


def kept(file, columns="name, outcome"):
    with sqlite3.connect(file) as connection:
        found = connection.execute(f"SELECT {columns} FROM runs ORDER BY id").fetchall()
    connection.close()
    return found


def teach(file, **peaks):
    history = History(file)
    for name, peak in peaks.items():
        history.add(Finished(name, time.time(), 1, "success", peak_ram=peak))
    history.close()


def demand_of(authority, **options):
    handle = authority.submit(double, 1, **options)
    handle.result()
    submitted = next(event for event in authority.events() if event.kind == "TASK_SUBMITTED" and event.id == handle.id)
    return dict(dict(submitted.details).get("demand", ()))


def test_every_attempt_that_started_is_kept(file):
    """U5: with how long it ran, how it ended and what it used; what never ran is not."""
    with Authority(history=file, slots=1) as authority:
        authority.submit(time.sleep, 0.05, id="nap").result()
        authority.submit(allocate(50), id="load").result()
        authority.submit(Command("exit 3"), id="fails", retry=1).exception()
        authority.submit(double, id="never", after=["fails"]).exception()
    columns = "name, outcome, cause, exit_code, ran_ns >= 50000000, peak_ram > 50000000, cpu_ms IS NULL"
    assert kept(file, columns)[0] == ("nap", "success", None, None, 1, None, 1)
    assert kept(file, columns)[1][:4] == ("load", "success", None, 0)
    assert kept(file, columns)[1][5:] == (1, 0)
    assert [row[:4] for row in kept(file, columns)[2:]] == [("fails", "error", "exit_code", 3)] * 2
    assert all(abs(ended - time.time()) < 60 for (ended,) in kept(file, "ended"))


class Callable:
    def __call__(self):
        return 1


def test_what_the_history_calls_a_task(file):
    """U5: its id, else its command or its function; a periodic its id."""
    here = __name__
    names = {
        f"{here}.double": [functools.partial(double, 1)],
        f"{here}.Callable": [Callable()],
        f"{here}.test_what_the_history_calls_a_task.<locals>.<lambda>": [lambda: 1],
        "true --please": [Command(["true", "--please"])],
        "time.sleep": [time.sleep, 0],
    }
    with Authority(history=file, slots=1) as authority:
        for call in names.values():
            authority.submit(*call).result()
        assert list(authority.map(double, range(6), chunksize=3)) == [0, 2, 4, 6, 8, 10]
        with authority.scope("s") as scope:
            scope.periodic(double, 1, every=60, immediately=True, id="tick")
            scope.periodic(double, 1, every=60, immediately=True)
            authority.submit(time.sleep, 0.2, id="x:1").result()
    found = [name for name, _ in kept(file)]
    assert found[: len(names)] == list(names)
    assert found[len(names) : len(names) + 2] == [f"{here}.double"] * 2
    assert sorted(found[len(names) + 2 :]) == [f"{here}.double", "tick", "x:1"]


def test_ram_is_learned_by_name(file, tmp_path):
    """U5: the kernel is given the amount, so that record and replay are exact."""
    teach(file, train=100 * MB, **{"frame-1": 50 * MB})
    with Authority(history=file, record=tmp_path / "r.rec") as authority:
        assert demand_of(authority, id="train", ram="learned") == {"ram": 110 * MB}
        assert demand_of(authority, id="frame-2", ram="learned", cpu=1) == {"ram": 55 * MB, "cpu": 1}
        assert demand_of(authority, id="new", ram="learned:2GB") == {"ram": 2000 * MB}
    assert Record(tmp_path / "r.rec").replay() == authority.events()


def test_what_a_run_has_just_measured_counts(file):
    """U5: a task learns from the one that ended before it was submitted."""
    with Authority(history=file) as authority:
        first = authority.submit(allocate(50), ram="learned:1GB")
        first.result()
        again = authority.submit(allocate(50), ram="learned")
        again.result()
        peak = first.usage.peak_ram
        expected = peak + -(-peak // 10)
        submitted = [dict(event.details) for event in authority.events() if event.kind == "TASK_SUBMITTED"]
        assert [dict(details["demand"]) for details in submitted] == [{"ram": 1000 * MB}, {"ram": expected}]
        assert "asked 1.0 GB" in str(authority.report())


def test_batches_periodics_and_retries_learn_too(file):
    """U5: each attempt that grows begins from what was learned."""
    teach(file, a=100 * MB, b=200 * MB, tick=300 * MB)
    with Authority(history=file, ram="10GB") as authority:
        calls = [Call(double, (1,), {"id": name, "ram": "learned"}) for name in "ab"]
        authority.submit_many(calls)
        grown = authority.submit(
            Command("exit 1"), id="a:x", ram="learned:1GB", retry=Retry(1, on_exit=1, grow={"ram": 2.0})
        )
        grown.exception()
        with authority.scope("s") as scope:
            scope.periodic(double, 1, every=60, immediately=True, id="tick", ram="learned")
            scope.submit(time.sleep, 0.1).result()
        demands = [
            dict(dict(event.details)["demand"])["ram"]
            for event in authority.events()
            if event.kind in ("TASK_SUBMITTED", "TASK_RETRIED") and "demand" in dict(event.details)
        ]
    assert demands == [110 * MB, 220 * MB, 1000 * MB, 2000 * MB, 330 * MB]


@pytest.mark.parametrize("ram", ["learned", "learned:2GB"])
def test_without_a_history_it_is_an_error_that_says_so(ram):
    """U5: whatever the value for the first time: nothing would ever be learned."""
    with Authority() as authority, pytest.raises(ConfigError, match="task 'a' needs a history: give the authority one"):
        authority.submit(double, 1, id="a", ram=ram)


def test_a_name_that_is_new_is_an_error_that_says_what_to_do(file):
    """U5: nothing stays behind of the task."""
    with Authority(history=file) as authority:
        with pytest.raises(ConfigError, match=r"no success of that name .*write ram='learned:2GB'"):
            authority.submit(double, 1, id="a", ram="learned")
        assert authority.submit(double, 1, id="a").result() == 2


@pytest.mark.parametrize("ram", ["learned:", "learned:much", "learnt", "learned 2GB"])
def test_what_is_no_size_is_refused(file, ram):
    """U5, B6: with what would be right."""
    with Authority(history=file) as authority, pytest.raises(ConfigError, match="is not a size"):
        authority.submit(double, 1, ram=ram)


def test_the_environment_names_a_history(file, tmp_path, monkeypatch):
    """E1, U5: an argument wins, also one that says none."""
    monkeypatch.setenv("WHYWAIT_HISTORY", str(file))
    monkeypatch.setenv("HOME", str(tmp_path))
    with Authority() as authority:
        assert authority.settings.history == str(file)
    with Authority(history="~/other.db") as authority:
        assert authority.settings.history == str(tmp_path / "other.db")
        assert authority.history.path == tmp_path / "other.db"
    with Authority(history=None) as authority:
        assert authority.history is None


@pytest.mark.parametrize("history", ["", 3, b"x.db", "a\0b"])
def test_what_is_no_path_is_refused(history):
    """E1: naming the setting."""
    with pytest.raises(ConfigError, match=r"history: .* is not allowed: expected the path of a file"):
        Authority(history=history)


def test_a_file_that_is_lost_costs_the_history_only(file, caplog):
    """U5: the tasks go on, and it is said once."""
    with caplog.at_level(logging.ERROR, "whywait.files"), Authority(history=file) as authority:
        file.unlink()
        file.mkdir()
        for number in range(3):
            assert authority.submit(double, number).result() == 2 * number
            authority.history.write()
    assert len([record for record in caplog.records if "is not written" in record.getMessage()]) == 1
