"""M5: the service is killed at every write and every fsync, or its disk fails there: nothing that was told is lost."""

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
from whywait.machine.service import Service

FAULTS = Path(__file__).with_name("faults")
JOBS = 3
ATTEMPTS = {index: 1 + index % 3 for index in range(JOBS)}
EXPECTED = {index: "error" if index % 2 else "success" for index in range(JOBS)}
STEP = 1 if os.environ.get("WHYWAIT_ALL_FAULTS") else 3  # every third point, from another one for each kind


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
        return [int(words[1]) for words in self.told if words[0] == word]

    def outcomes(self):
        return {int(words[1]): words[2] for words in self.told if words[0] == "ended"}


def spend_day(disk, folder, **fault):
    home, synced, ran, total = (folder / name for name in ("home", "synced", "ran", "total"))
    home.mkdir(mode=0o700)
    synced.mkdir(mode=0o700)
    variables = {"FAULT_FOLDER": home, "FAULT_SHADOW": synced, "FAULT_TOTAL": total, "LD_PRELOAD": disk, **fault}
    done = subprocess.run(
        [sys.executable, FAULTS / "workday.py", home, ran, str(JOBS)],
        env={**clean_environment(), **{name: str(value) for name, value in variables.items()}},
        capture_output=True,
        check=False,
        timeout=LONGEST_S,
    )
    told = [line.split() for line in done.stdout.decode().splitlines()]
    assert done.returncode in (0, -9), done.stderr.decode()
    calls = int(total.read_text()) if total.exists() else 0
    return Day(told, done.returncode, home, synced, ran, calls)


def finish(home):
    """Let another service do the rest; return its jobs."""
    service = Service(Home(str(home)), slots=1, cpu=1)
    try:
        for job in service.jobs.all():
            live = service.jobs.live(job)
            deadline = time.monotonic() + LONGEST_S
            while live is not None and job.state != "ended":
                assert time.monotonic() < deadline, job
                time.sleep(0.002)
        return service.jobs.all()
    finally:
        service.close()


def check(day, jobs):
    found = [int(job.name.removeprefix("job-")) for job in jobs]
    assert found == sorted(set(found)), "each once, in the order of acceptance"
    assert set(day.said("accepted")) <= set(found), "what was accepted is there"
    assert len(found) <= len(day.said("accepted")) + 1, "what was not accepted is not, but for the one in flight"
    assert not set(day.said("refused")) & set(found)
    outcomes = {index: job.outcome for index, job in zip(found, jobs, strict=True)}
    assert outcomes.items() >= day.outcomes().items(), "an end that was told stays as it was told"
    runs = Counter(map(int, day.ran.read_text().split())) if day.ran.exists() else Counter()
    for index, job in zip(found, jobs, strict=True):
        assert job.state == "ended"
        assert runs[index] <= ATTEMPTS[index], f"job {index} ran too often"
        assert job.outcome == EXPECTED[index] or job.cause == "worker_lost"
        if job.outcome == "success":
            assert runs[index] >= 1
        if job.cause == "exit_code":
            assert job.attempt == ATTEMPTS[index]


@pytest.fixture(scope="module")
def calls(disk, tmp_path_factory):
    """Return how many writes and fsyncs a day without a fault has."""
    day = spend_day(disk, tmp_path_factory.mktemp("whole"))
    assert day.told[-1] == ["closed"]
    assert day.outcomes() == EXPECTED
    check(day, finish(day.home))
    return day.calls


@pytest.mark.parametrize("fault", ["kill", "torn"])
def test_a_kill_at_a_write_or_an_fsync_loses_nothing_that_was_told(disk, calls, tmp_path, fault):
    """M5: neither after a kill, that leaves what is written, nor after a loss of power, that leaves what is synced."""
    assert calls > 20
    for at in range(1 + ["kill", "torn"].index(fault), calls + 1, STEP):
        folder = tmp_path / str(at)
        folder.mkdir()
        day = spend_day(disk, folder, FAULT=fault, FAULT_AT=at)
        ran_before = day.ran.read_bytes() if day.ran.exists() else b""
        check(day, finish(day.home))
        day.ran.write_bytes(ran_before)
        check(day, finish(day.synced))


@pytest.mark.parametrize("fault", ["full", "io"])
def test_a_disk_that_fails_for_a_while_refuses_new_jobs_and_loses_none(disk, calls, tmp_path, fault):
    """M5: what could not be kept is refused with a reason; what had happened is written when the disk works again."""
    for at in range(12 + ["full", "io"].index(fault), calls + 1, STEP * 2):
        folder = tmp_path / str(at)
        folder.mkdir()
        day = spend_day(disk, folder, FAULT=fault, FAULT_AT=at, FAULT_COUNT=2)
        if day.told and day.told[-1] == ["closed"]:
            assert set(day.outcomes()) | set(day.said("refused")) == set(range(JOBS))
        check(day, finish(day.home))
