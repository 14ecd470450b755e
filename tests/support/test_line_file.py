"""Files that get lines while a run goes on: readable at any moment, and no burden when they cannot be written."""

import logging
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from patience import until
from whywait.support.line_file import LineFile

full = pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device here that is always full")


def test_a_line_is_there_soon_without_another_and_an_idle_file_has_no_thread(tmp_path):
    """V3: what was added last is not kept back until more comes."""
    file = LineFile(tmp_path / "x", "lines are")
    file.add("one")
    file.add("two")
    until(lambda: (tmp_path / "x").read_text() == "one\ntwo\n")
    until(lambda: not [thread for thread in threading.enumerate() if thread.name == "whywait-file"])
    file.add("three")
    file.close()
    assert (tmp_path / "x").read_text() == "one\ntwo\nthree\n"
    file.add("too late")
    file.close()
    assert (tmp_path / "x").read_text() == "one\ntwo\nthree\n"


def test_what_has_to_be_there_at_once_is_and_all_before_it(tmp_path):
    file = LineFile(tmp_path / "x", "lines are")
    file.add("one")
    file.add("two", at_once=True)
    assert (tmp_path / "x").read_text() == "one\ntwo\n"
    file.close()


def test_many_threads_lose_nothing_and_mix_nothing(tmp_path):
    """V3: every line whole, those of one thread in order."""
    file = LineFile(tmp_path / "x", "lines are")

    def add(name):
        for number in range(3000):
            file.add(f"{name} {number}", at_once=number % 100 == 0)

    threads = [threading.Thread(target=add, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    file.close()
    lines = [line.split() for line in (tmp_path / "x").read_text().splitlines()]
    for name in "abcd":
        assert [int(number) for who, number in lines if who == name] == list(range(3000))


@full
def test_a_full_disk_is_logged_once_and_not_by_the_caller(caplog):
    """V3: the caller may hold a lock, and a handler of the log is not ours."""
    heard = []
    handler = logging.Handler()
    handler.emit = lambda _: heard.append(threading.current_thread().name)
    log = logging.getLogger("whywait.files")
    log.addHandler(handler)
    try:
        file = LineFile("/dev/full", "lines are")
        for number in range(100):
            file.add(str(number), at_once=True)
        until(lambda: heard and caplog.messages)
        file.close()
    finally:
        log.removeHandler(handler)
    assert heard == ["whywait-file"]
    assert caplog.messages == ["lines are no longer written to /dev/full: No space left on device; the run goes on"]
    assert isinstance(file.error, OSError)


def test_where_no_thread_is_to_be_had_it_writes_itself(tmp_path, monkeypatch):
    def refuse(_):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    file = LineFile(tmp_path / "x", "lines are")
    file.add("one")
    assert (tmp_path / "x").read_text() == "one\n"
    file.close()


def test_a_stream_of_the_program_goes_on_where_it_is(tmp_path):
    """V3: /dev/stdout is not opened anew, which would overwrite what stands in a file."""
    with (tmp_path / "x").open("w") as out:
        out.write("before\n")
        out.flush()
        file = LineFile(f"/dev/fd/{out.fileno()}", "lines are")
        file.add("line")
        file.close()
        out.write("after\n")
    assert (tmp_path / "x").read_text() == "before\nline\nafter\n"


def test_a_program_that_just_ends_has_written_everything(tmp_path):
    """V3: without closing the file, as without leaving an authority."""
    code = "import sys; from whywait.support.line_file import LineFile; LineFile(sys.argv[1], '').add('last words')"
    subprocess.run([sys.executable, "-c", code, tmp_path / "x"], check=True, timeout=60)
    assert (tmp_path / "x").read_text() == "last words\n"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_fork_writes_nothing_twice(tmp_path):
    """V3: what waits to be written is written by the original alone."""
    code = (
        "import os, sys; from whywait.support.line_file import LineFile\n"
        "file = LineFile(sys.argv[1], ''); file.add('once')\n"
        "child = os.fork()\n"
        "if child: os.waitpid(child, 0); file.close()\n"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", code, tmp_path / "x"], check=True, timeout=60)
    assert (tmp_path / "x").read_text() == "once\n"
