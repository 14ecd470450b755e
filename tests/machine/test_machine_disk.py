"""M5, M11: the service is killed at every write and every fsync of every verb, or its disk fails or is full there.

What was answered has happened, what was refused never runs, and nothing is there twice.
"""

import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest

from program import LONGEST_S, clean_environment
from whywait.machine.home import Home
from whywait.machine.rows import Ended
from whywait.machine.service import Service

FAULTS = Path(__file__).with_name("faults")
NAMES = ("first", "holds", "stays", "goes", "never", "fails")
FLOW = ("flow/one", "flow/two")
OUTCOMES = {"first": "success", "goes": "success", "fails": "error", "one": "success", "two": "success"}
ATTEMPTS = {"holds": 3, "fails": 4}  # twice, and twice again after `retry`
POINTS = 10_000 if os.environ.get("WHYWAIT_ALL_FAULTS") else 8  # of each fault, spread over the day


@pytest.fixture(scope="module")
def disk(tmp_path_factory):
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler for the disk that fails")
    library = tmp_path_factory.mktemp("disk") / "disk.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, FAULTS / "disk.c", "-ldl"], check=True)
    return library


class Day(NamedTuple):
    """What came of a day: what was told, the homes that are left, and which jobs have run."""

    told: list[list[str]]
    code: int
    home: Path
    synced: Path
    ran: Path
    calls: int

    def said(self, word):
        return [words[1] for words in self.told if words[0] == word]

    def asked(self, verb):
        return [words[2] for words in self.told if words[:2] == ["asks", verb]]

    def refused(self, verb):
        return [words[2] for words in self.told if words[:2] == ["refused", verb]]

    def outcomes(self):
        return {words[1]: words[2] for words in self.told if words[0] == "ended"}


def spend_day(disk, folder, **fault):
    folder.mkdir()
    home, synced, ran, total = (folder / name for name in ("home", "synced", "ran", "total"))
    home.mkdir(mode=0o700)
    synced.mkdir(mode=0o700)
    variables = {"FAULT_FOLDER": home, "FAULT_SHADOW": synced, "FAULT_TOTAL": total, "LD_PRELOAD": disk, **fault}
    done = subprocess.run(
        [sys.executable, FAULTS / "workday.py", home, ran],
        env={**clean_environment(), **{name: str(value) for name, value in variables.items()}},
        capture_output=True,
        check=False,
        timeout=LONGEST_S,
    )
    told = [line.split() for line in done.stdout.decode().splitlines()]
    assert done.returncode in (0, -9), done.stderr.decode()
    return Day(told, done.returncode, home, synced, ran, int(total.read_text()) if total.exists() else 0)


def finish(home):
    """Let another service do the rest; return its jobs, and what it says of damage."""
    service = Service(Home(str(home)), slots=1, cpu=1)
    try:
        deadline = time.monotonic() + LONGEST_S
        for job in service.jobs.all():
            while not isinstance(job.state, Ended) and not job.state.is_paused:
                assert time.monotonic() < deadline, job
                time.sleep(0.002)
        logs = {int(path.stem) for path in Path(service.home.logs).iterdir()}
        return service.jobs.all(), service.store.notice, logs
    finally:
        service.close()


def check(day, jobs, notice, logs):
    """Compare what another service has found with what the client was told."""
    assert notice is None, "the store is never behind its seal"
    assert [job.number for job in jobs] == sorted({job.number for job in jobs}), "each once, in order"
    assert logs <= {job.number for job in jobs}, "no log without its job"
    named = {job.full_id.removeprefix("default/"): job for job in jobs}
    again = [job for job in jobs if job.name == str(job.number)]  # what `retry` has made
    runs = Counter(day.ran.read_text().split()) if day.ran.exists() else Counter()

    forgotten, may_be_gone = set(day.said("forgotten")), set(day.asked("forgotten"))
    for name in day.said("accepted"):
        ids = FLOW if name == "flow" else (name,)
        assert all(each in named or name in may_be_gone for each in ids), f"{name} was accepted"
    assert not forgotten & set(named)
    for name in set(NAMES) - set(day.said("accepted")):
        assert name not in day.refused("accepted") or (name not in named and not runs[name]), f"{name} was refused"
    assert (FLOW[0] in named) == (FLOW[1] in named), "a workflow is there as a whole or not at all"
    if "flow" in day.refused("accepted"):
        assert FLOW[0] not in named
        assert not runs["one"] + runs["two"]

    assert named.keys() >= {"never"} or "never" not in day.said("cancelled")
    for name in day.said("cancelled"):
        assert (named[name].state.outcome, named[name].state.cause) == ("aborted", "cancelled")
    assert not ("never" in day.said("cancelled") and runs["never"])
    assert not ("holds" in day.said("cancelled") and runs["holds"] > 1), "no later attempt starts"
    if "stays" in day.said("paused"):
        assert named["stays"].state.is_paused
        assert not runs["stays"]
    if "goes" in day.said("paused") and "goes" not in day.asked("resumed"):
        assert named["goes"].state.is_paused
        assert not runs["goes"]
    if "goes" in day.said("resumed"):
        assert isinstance(named["goes"].state, Ended) or not named["goes"].state.is_paused

    assert len(again) <= 1
    assert again or "fails" not in day.said("retried")
    if "fails" in named:
        assert named["fails"].state.facts.get("retried_as") == (again[0].number if again else None)
    for name, outcome in day.outcomes().items():
        assert name in forgotten or name in may_be_gone or named[name].state.outcome == outcome, (
            "an end that was told stays"
        )
    for name, job in named.items():
        assert runs[job.name] <= ATTEMPTS.get(job.name, 1), f"{name} ran too often"
        if not isinstance(job.state, Ended):
            assert job.state.is_paused
            continue
        if job.state.outcome == "success":
            assert runs[job.name] == 1 or name == "holds"
        elif job.name in OUTCOMES and job.state.cause not in ("worker_lost", "dependency"):
            assert job.state.outcome == OUTCOMES[job.name]


@pytest.fixture(scope="module")
def calls(disk, tmp_path_factory):
    """Return how many writes and fsyncs a day without a fault has."""
    day = spend_day(disk, tmp_path_factory.mktemp("whole") / "day")
    assert day.told[-1] == ["closed"]
    assert not [words for words in day.told if words[0] == "refused"]
    assert day.outcomes() == {"first": "success", "goes": "success", "fails": "error"}
    assert day.said("accepted") == [*NAMES[:5], "flow", "fails"]
    check(day, *finish(day.home))
    assert day.calls > 50
    return day.calls


def points(calls, first):
    """Return at which calls a fault comes."""
    return range(first, calls + 1, max(1, calls // POINTS))


@pytest.mark.parametrize("fault", ["kill", "torn"])
def test_a_kill_at_a_write_or_an_fsync_loses_nothing_that_was_told(disk, calls, tmp_path, fault):
    """M5, M11: neither after a kill, that leaves what is written, nor without power, that leaves what is synced."""
    for at in points(calls, 1 + ["kill", "torn"].index(fault)):
        day = spend_day(disk, tmp_path / str(at), FAULT=fault, FAULT_AT=at)
        ran_before = day.ran.read_bytes() if day.ran.exists() else b""
        check(day, *finish(day.home))
        day.ran.write_bytes(ran_before)
        check(day, *finish(day.synced))


@pytest.mark.parametrize("fault", ["full", "io"])
def test_a_disk_that_fails_for_a_while_refuses_new_jobs_and_loses_none(disk, calls, tmp_path, fault):
    """M5, M11: what could not be kept is refused with a reason; the rest is written when the disk works again."""
    for at in points(calls, 30 + ["full", "io"].index(fault)):
        day = spend_day(disk, tmp_path / str(at), FAULT=fault, FAULT_AT=at, FAULT_COUNT=2)
        assert day.told[-1][0] == "closed"
        check(day, *finish(day.home))
