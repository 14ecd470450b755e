"""The file of a history: what it teaches, what it forgets, and what it does when it cannot be used."""

import errno
import logging
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from patience import until
from program import clean_environment
from whywait import ConfigError, History
from whywait.observe import history as module
from whywait.observe.history import APPLICATION_ID, KEPT_OF_A_NAME, Finished

MB = 1_000_000


def finished(name, ran_s=1.0, outcome="success", peak_ram=None, ended=None):
    return Finished(name, time.time() if ended is None else ended, round(ran_s * 1e9), outcome, peak_ram=peak_ram)


@pytest.fixture
def file(tmp_path):
    return tmp_path / "new" / "history.db"


@pytest.fixture
def history(file):
    history = History(file)
    yield history
    history.close()


def rows(file, query="SELECT count(*) FROM runs"):
    with sqlite3.connect(file) as connection:
        found = connection.execute(query).fetchall()
    connection.close()
    return found


def test_the_highest_peak_of_the_last_ten_successes_and_a_tenth(history):
    """U5: failures teach nothing, nor what was not measured, nor what is older than the last ten."""
    assert history.learned_ram("train") is None
    history.add(finished("train", peak_ram=900 * MB))
    for peak in range(91, 101):
        history.add(finished("train", peak_ram=peak * MB))
    history.add(finished("train", peak_ram=500 * MB, outcome="error"))
    history.add(finished("train"))
    history.add(finished("other", peak_ram=700 * MB))
    assert history.learned_ram("train") == 110 * MB
    history.add(finished("odd", peak_ram=11))
    assert history.learned_ram("odd") == 13  # rounded up


def test_the_median_of_the_last_ten_successes(history):
    """U5: how long a task takes."""
    assert history.median_s("train") is None
    for ran_s in (100.0, *range(1, 11)):
        history.add(finished("train", ran_s))
    history.add(finished("train", 77.0, outcome="timeout"))
    assert history.median_s("train") == 5.5


def test_a_new_name_learns_from_its_family(history):
    """U5: a name of its own counts first; what differs in a number at the end or behind a colon is next of kin."""
    for name, peak in {"frame-1": 100, "frame-2": 200, "train:large": 900, "train:small": 90, "stage": 50}.items():
        history.add(finished(name, peak_ram=peak * MB))
    assert history.learned_ram("frame-1") == 110 * MB
    assert history.learned_ram("frame-3") == 220 * MB
    assert history.learned_ram("train:small") == 99 * MB
    assert history.learned_ram("train:medium") == 990 * MB
    assert history.learned_ram("stage-2") is None
    assert history.learned_ram("train") is None


def test_what_waits_to_be_written_counts_without_being_written(history, file):
    """U5: many tasks that learn do not make as many transactions."""
    history.add(finished("frame-1", 3.0, peak_ram=100))
    history.add(finished("frame-2", 5.0))
    assert history.learned_rams(["frame-1", "frame-2", "frame-3", "other"]) == dict.fromkeys(
        ["frame-1", "frame-2", "frame-3"], 110
    )
    assert history.median_s("frame-2") == 5.0
    assert history.median_s("frame-3") == 4.0
    assert rows(file) == [(0,)]
    history.write()
    history.add(finished("frame-1", 1.0, peak_ram=200))
    assert history.learned_ram("frame-1") == 220
    assert history.median_s("frame-1") == 2.0


def test_names_that_are_no_text_are_kept(history):
    """U5: a command may have any bytes in it."""
    for name in ("cat caf\udce9", "größe", "a'; DROP TABLE runs; --", "x\0y"):
        history.add(finished(name, peak_ram=10))
        assert history.learned_ram(name) == 11


def test_lessons_have_one_row_for_each_family(history):
    """U5: with the runs that are kept, how they ended, how long they take and what they use."""
    now = time.time()
    for number in range(3):
        history.add(finished(f"frame-{number}", 2.0, peak_ram=number * MB, ended=now - 9))
    history.add(finished("frame-9", outcome="error", ended=now))
    history.add(finished("load", outcome="aborted", ended=now - 1))
    assert history.lessons() == [
        ("frame-*", 4, {"error": 1, "success": 3}, 2.0, 2 * MB, now),
        ("load", 1, {"aborted": 1}, None, None, now - 1),
    ]


def test_the_file_is_bounded(history, file, monkeypatch):
    """U5: by name, in all, and by age; failures do not drive out successes."""
    history.add(finished("train", peak_ram=MB))
    for _ in range(3 * KEPT_OF_A_NAME):
        history.add(finished("train", outcome="error"))
        history.write()
    assert rows(file) == [(KEPT_OF_A_NAME + 1,)]
    assert history.learned_ram("train") == 1.1 * MB
    monkeypatch.setattr(module, "KEPT_IN_ALL", 20)
    history.add(finished("new"))
    history.write()
    assert rows(file) == [(20,)]
    assert history.median_s("new") == 1.0
    history.add(finished("old", ended=time.time() - module.KEPT_FOR_S - 60))
    history.add(finished("newer"))
    history.write()
    assert history.median_s("old") is None
    assert history.median_s("newer") == 1.0


def test_it_is_written_soon_and_an_idle_history_has_no_thread_and_no_open_file(history, file):
    """U5: half a second later, without another run or a call."""
    history.add(finished("train"))
    until(lambda: rows(file) == [(1,)])
    until(lambda: not [thread for thread in threading.enumerate() if thread.name == "whywait-history"])
    assert not [each for each in Path("/proc/self/fd").iterdir() if "history.db" in os.path.realpath(each)]


def test_the_file_is_the_users_alone(history, file):
    """U5: it has names and commands."""
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_broken_file_is_set_aside_and_said(file, caplog):
    """U5: a new one begins, also where the damage shows only when it is used."""
    file.parent.mkdir()
    file.write_bytes(b"no database at all" * 100)
    with caplog.at_level(logging.WARNING, "whywait.files"):
        history = History(file)
    assert "was broken" in caplog.text
    history.add(finished("train", peak_ram=100 * MB))
    assert history.learned_ram("train") == 110 * MB
    data = bytearray(file.read_bytes())
    data[4096:] = b"\xa5" * (len(data) - 4096)  # all pages but the first
    file.write_bytes(data)
    history.add(finished("train", peak_ram=200 * MB))
    assert history.learned_ram("train") == 220 * MB
    assert len(list(file.parent.glob("history.db.broken-*"))) == 2


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("family", b"\xff"),
        ("ended", "soon"),
        ("ended", float("inf")),
        ("ran_ns", "x"),
        ("ran_ns", -1),
        ("ran_ns", 1.5),
        ("outcome", "\x1b[31m"),
        ("peak_ram", "x"),
        ("peak_ram", -1),
        ("peak_ram", 2**62),
    ],
)
def test_rows_that_no_history_has_written_are_passed_over(history, file, column, value):
    """U5: the others teach as before."""
    history.add(finished("train", ran_s=3.0, peak_ram=100 * MB))
    history.add(finished("train", ran_s=5.0, peak_ram=200 * MB))
    history.write()
    with sqlite3.connect(file) as connection:
        connection.execute(f"UPDATE runs SET {column} = ? WHERE id = 2", (value,))
    connection.close()
    assert history.learned_ram("train") == 110 * MB
    assert history.median_s("train") == 3.0
    (lesson,) = history.lessons()
    assert (lesson.name, lesson.outcomes) == ("train", {"success": 1})


def test_a_file_with_any_bytes_changed_is_used_or_set_aside(file, tmp_path):
    """U5: 150 damaged copies; SQLite may quote names from the file that are no text."""
    history = History(file)
    for number in range(20):
        history.add(finished(f"train-{number}", peak_ram=100 * MB))
    history.close()
    data, choose = file.read_bytes(), random.Random(16)
    for trial in range(150):
        broken = bytearray(data)
        for _ in range(choose.choice([1, 10, 100])):
            broken[choose.randrange(len(broken))] = choose.randrange(256)
        path = tmp_path / f"{trial}.db"
        path.write_bytes(broken)
        with suppress(ConfigError):  # it is of another program, or of a newer whywait
            damaged = History(path)
            damaged.lessons()
            damaged.learned_ram("train-1")
            damaged.close()


@pytest.mark.parametrize("name", ["flow.toml", "Makefile"])
def test_only_a_database_is_set_aside(tmp_path, name):
    """U5: a slip of the keyboard moves no other file of the user's."""
    file = tmp_path / name
    file.write_text("[task.a]\n")
    with pytest.raises(ConfigError, match="is no history"):
        History(file)
    other = tmp_path / "other.db"
    with sqlite3.connect(other) as connection:
        connection.execute("CREATE TABLE mine (id INTEGER)")
    connection.close()
    before = other.read_bytes()
    with pytest.raises(ConfigError, match="another program"):
        History(other)
    assert other.read_bytes() == before
    assert file.read_text() == "[task.a]\n"


def test_a_newer_file_is_refused_and_left_alone(history, file):
    """U5: by an error that says what to do."""
    history.add(finished("train"))
    history.write()
    with sqlite3.connect(file) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(ConfigError, match=r"newer whywait.*install that version, or name another file"):
        History(file)
    assert rows(file, "PRAGMA application_id") == [(APPLICATION_ID,)]


@pytest.mark.parametrize("make", [lambda path: path.mkdir(), lambda path: path.symlink_to("/dev/null/x")])
def test_a_path_that_can_never_be_one_is_refused(tmp_path, make):
    """U5: before anything runs."""
    make(tmp_path / "x.db")
    with pytest.raises(ConfigError, match=r"x\.db cannot be opened"):
        History(tmp_path / "x.db")


def test_a_full_disk_costs_the_history_and_is_said_once(history, monkeypatch, caplog):
    """U5: and when there is room again, it goes on."""

    def full(path):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch, caplog.at_level(logging.ERROR, "whywait.files"):
        patch.setattr(module, "_connect", full)
        for _ in range(3):
            history.add(finished("train", peak_ram=MB))
            history.write()
        assert history.learned_ram("train") is None
        assert History(history.path).median_s("train") is None  # nor is it an error to begin with
    assert [record.getMessage().count("No space left") for record in caplog.records] == [1, 1]
    history.add(finished("train", peak_ram=MB))
    assert history.learned_ram("train") == 1.1 * MB


WRITER = """if True:
    import sys, time
    from whywait.observe.history import Finished, History
    history = History(sys.argv[1])
    for number in range(20):
        history.add(Finished(f"task-{sys.argv[2]}-{number}", time.time(), 1, "success"))
        history.write()
    history.close()
"""


def test_several_programs_write_one_file(file):
    """U5: from its very making on, and nothing of any is lost."""
    command = [sys.executable, "-c", WRITER, str(file)]
    programs = [subprocess.Popen([*command, str(number)], stderr=subprocess.PIPE) for number in range(6)]
    assert [program.communicate(timeout=60)[1] for program in programs] == [b""] * 6
    assert rows(file) == [(120,)]


KILLED = """if True:
    import sys, time
    from whywait import Authority
    with Authority(history=sys.argv[1]) as authority:
        authority.submit(time.sleep, 0, id="done").result()
        time.sleep(1)
        print("written", flush=True)
        while True:
            authority.submit(time.sleep, 0.001, id=f"t:{time.time_ns()}").result()
"""


def test_a_program_that_is_killed_leaves_a_sound_file(file):
    """U5: with all that it had half a second to write."""
    command = [sys.executable, "-c", KILLED, str(file)]
    program = subprocess.Popen(command, stdout=subprocess.PIPE, env=clean_environment())
    assert program.stdout.readline() == b"written\n"
    time.sleep(0.6)
    program.send_signal(signal.SIGKILL)
    program.communicate()
    assert rows(file, "PRAGMA integrity_check") == [("ok",)]
    assert History(file).median_s("done") is not None
