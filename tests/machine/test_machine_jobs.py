"""M2, M6, M7: jobs from acceptance to oblivion, in a service without a socket."""

import os
import signal
import sqlite3
import stat
import sys
import threading
import time
from pathlib import Path

import pytest

from patience import until
from whywait.errors import ConfigError, MachineError, StaleRef, UnknownTask, WhywaitError
from whywait.machine import moments
from whywait.machine.listing import Reasons, job_row, rows, why_of
from whywait.machine.moments import Moment
from whywait.machine.rows import Running
from whywait.machine.store import Store


def row(machine, job):
    return job_row(machine.service, job, Reasons())


def test_a_job_runs_in_the_directory_and_the_environment_of_its_client(machine, tmp_path):
    """M2: nothing of the service's own is added but the way to the service, and that Python keeps no output back."""
    script = 'import os; print(os.getcwd(), os.environ["MINE"], "SERVICE_ONLY" in os.environ)'
    os.environ["SERVICE_ONLY"] = "1"
    try:
        live = machine.service.jobs.add([sys.executable, "-c", script], str(tmp_path), {"MINE": "yes"})
    finally:
        del os.environ["SERVICE_ONLY"]
    job = machine.ended(live)
    assert f"{tmp_path} yes False" in machine.log(job)


def test_the_log_has_a_header_all_output_and_a_trailer(machine):
    """M2: both streams in the order in which they were written; what the service says begins on a line of its own."""
    job = machine.ended(machine.add("sh", "-c", "echo out; printf err >&2; exit 3"))
    head, *output, end = machine.log(job).splitlines()
    assert head.startswith("whywait: ")
    assert head.endswith("sh -c 'echo out; printf err >&2; exit 3'")
    assert output == ["out", "err"]
    assert "exit 3 after" in end
    assert stat.S_IMODE(Path(machine.home.log_of(job.number)).stat().st_mode) == 0o600


def test_the_log_of_a_job_that_was_lost_says_so(machine):
    """M5: the former life has a trailer too."""
    job = machine.running(machine.add("sh", "-c", "printf begun; exec sleep 1000", retry=1))
    log = Path(machine.home.log_of(job.number))
    until(lambda: log.exists() and log.read_text().count("begun") == 2, "the header and the output")
    machine.close()
    machine.up()
    again = machine.running(machine.service.jobs.find(job.id))
    until(lambda: log.read_text().count("begun") == 4, "those of the next attempt")
    _, output, killed, lost, head, _ = machine.log(again).splitlines()
    assert output == "begun"
    assert "killed by SIGTERM after" in killed  # a service that is killed itself has no time for this line
    assert lost.endswith("lost, because the service has ended")
    assert head.endswith("(attempt 2)")


def test_what_a_job_used_is_kept_and_told(machine):
    """M2, M7: the peak of its memory, in its row and at the end of its log, after a restart too."""
    job = machine.ended(machine.add(sys.executable, "-c", "data = bytearray(80_000_000); data[::4096] = data[::4096]"))
    told = row(machine, job)
    assert told["peak_ram"] > 60_000_000
    assert "exit 0 after" in machine.log(job)
    assert "peak memory" in machine.log(job)
    machine.close()
    machine.up()
    assert row(machine, machine.service.jobs.find(job.id)) == told


@pytest.mark.parametrize(
    ("command", "outcome", "cause", "code"),
    [
        (["true"], "success", None, 0),
        (["sh", "-c", "exit 3"], "error", "exit_code", 3),
        (["sh", "-c", "kill -9 $$"], "error", "exit_code", 128 + signal.SIGKILL),
        (["/no/such/program"], "error", "exit_code", 127),
        (["/etc/passwd"], "error", "exit_code", 126),
    ],
)
def test_a_job_ends_as_a_shell_would_tell_it(machine, command, outcome, cause, code):
    """M2: the status is the command's; a program that is not there may have been left to a job before it to make."""
    before = machine.add("true")
    told = row(machine, machine.ended(machine.add(*command, after=[before.id])))
    assert (told["outcome"], told["cause"], told["exit_code"]) == (outcome, cause, code)


def test_what_cannot_be_started_says_so_in_its_log(machine):
    """M2: a program that is not there, a directory that is not there."""
    before = machine.add("true")
    job = machine.ended(machine.add("/no/such/program", after=[before.id]))
    assert "command not found: '/no/such/program'" in machine.log(job)
    live = machine.service.jobs.add(["true"], "/no/such/folder", {})
    assert "there is no directory /no/such/folder" in machine.log(machine.ended(live))


def test_a_job_waits_for_those_it_comes_after(machine, tmp_path):
    """M2: and is ended with the first that does not succeed."""
    first = machine.add("sh", "-c", f"sleep 0.2; echo 1 >> {tmp_path}/n", id="first")
    second = machine.add("sh", "-c", f"echo 2 >> {tmp_path}/n", after=["first"])
    bad = machine.add("false", after=[second.id])
    last = machine.add("true", after=[bad.id])
    machine.ended(last)
    assert (tmp_path / "n").read_text().split() == ["1", "2"]
    assert (last.state.outcome, last.state.cause) == ("aborted", "dependency")
    assert f"because job {bad.id} did not succeed" in str(why_of(machine.service, last))
    assert machine.ended(machine.add("true", after=first.id)).state.outcome == "success"


def test_limits_of_time_end_a_job(machine):
    """M2: timeout from its start, max_wait until its start."""
    slow = machine.ended(machine.add("sleep", "60", timeout=1.0)).state
    assert (slow.outcome, slow.cause, slow.exit_code) == (
        "timeout",
        "run_timeout",
        128 + signal.SIGTERM,
    )
    holder = machine.add("sleep", "60", cpu=2)
    late = machine.ended(machine.add("true", cpu=1, max_wait=0.1))
    assert (late.state.outcome, late.state.cause, late.state.exit_code) == ("rejected", "max_wait", None)
    machine.handle(holder).cancel()
    assert machine.ended(holder).state.outcome == "aborted"


def test_a_job_is_over_when_its_last_descendant_is(machine, tmp_path):
    """M3: also one that has left its session."""
    script = f"setsid sh -c 'sleep 0.3; echo late >> {tmp_path}/n' & echo early >> {tmp_path}/n"
    machine.ended(machine.add("sh", "-c", script))
    assert (tmp_path / "n").read_text().split() == ["early", "late"]


def test_why_and_the_row_of_a_job_that_waits_name_what_holds_it_up(machine):
    """M7: the kernel's own explanation."""
    holder = machine.running(machine.add("sleep", "60", ram="3GB"))
    waits = machine.add("true", ram="2GB")
    assert row(machine, waits)["why"].startswith("ram: needs 2.0 GB, 1.0 GB of 4.0 GB free, held by job 1 (3.0 GB,")
    assert "it starts when 1.0 GB more ram is free" in str(why_of(machine.service, waits))
    machine.handle(holder).cancel()
    machine.ended(waits)
    told = str(why_of(machine.service, waits))
    assert "succeeded" in told
    assert "waiting for ram" in told


def test_a_paused_job_stays_paused_in_the_next_life(machine, tmp_path):
    """M5, M11: one that waits, and the next attempt of one that runs; a resumed one goes on."""
    lost = machine.running(machine.add("sleep", "60", cpu=1))
    once = tmp_path / "once"
    ran = machine.running(machine.add("sh", "-c", f"test -e {once} || {{ touch {once}; sleep 60; }}", cpu=1, retry=1))
    until(once.exists)
    waited = machine.add("true", cpu=1)
    for job in (ran, waited):
        machine.handle(job).pause()
    machine.service.jobs.kept().wait()
    machine.close()
    machine.up()
    for job in (machine.service.jobs.find(each.id) for each in (ran, waited)):
        assert machine.handle(job).state == "PAUSED"
        machine.handle(job).resume()
        assert machine.ended(job).state.outcome == "success"
    assert machine.service.jobs.find(lost.id).state.cause == "worker_lost"


def test_a_running_job_can_be_stopped_and_continued(machine, tmp_path):
    """M2: by signals to all of its processes."""
    job = machine.running(machine.add("sh", "-c", f"while :; do date +%s%N > {tmp_path}/n; sleep 0.01; done"))
    until((tmp_path / "n").exists)
    machine.handle(job).pause()
    time.sleep(0.3)  # a signal takes its time
    stopped_at = (tmp_path / "n").read_text()
    time.sleep(0.3)
    assert (tmp_path / "n").read_text() == stopped_at
    machine.handle(job).resume()
    until(lambda: (tmp_path / "n").read_text() not in (stopped_at, ""))
    machine.handle(job).cancel()
    assert machine.ended(job).state.outcome == "aborted"


def test_retry_submits_an_ended_job_again_under_a_new_id(machine, tmp_path):
    """M6: with the same command, directory, environment and demands."""
    script = f'echo "$MINE" >> {tmp_path}/n; exit 1'
    live = machine.service.jobs.add(["sh", "-c", script], "/", {"MINE": "kept"}, id="mine", cpu=1)
    first = machine.ended(live)
    (again,) = machine.service.jobs.add_again([first])
    second = machine.ended(again)
    assert (tmp_path / "n").read_text().split() == ["kept", "kept"]
    assert second.id == "2"
    assert (second.scope, second.options) == (first.scope, first.options)
    running = machine.running(machine.add("sleep", "60"))
    for act in (machine.service.jobs.add_again, machine.service.jobs.forget):
        with pytest.raises(MachineError, match="has not ended"):
            act([running])


def test_a_forgotten_job_is_gone_with_its_log_and_its_environment(machine):
    """M6: its id is free again, its number never."""
    job = machine.ended(machine.add("true", id="mine"))
    with pytest.raises(MachineError, match="'mine' is taken by another job"):
        machine.add("true", id="mine")
    machine.service.jobs.forget([job]).wait()
    assert not Path(machine.home.log_of(1)).exists()
    with pytest.raises(UnknownTask):
        machine.service.jobs.find("mine")
    assert machine.ended(machine.add("true", id="mine")).number == 2
    machine.service.jobs.forget([machine.service.jobs.find("mine")]).wait()
    machine.close()
    machine.up()
    assert machine.add("true").number == 3


def test_ended_jobs_are_kept_up_to_a_number_and_an_age(machine):
    """M6: the oldest go first."""
    for _ in range(4):
        machine.ended(machine.add("true"))
    machine.service.jobs.keep(2, 60.0)
    machine.service.jobs.kept().wait()
    assert [job.id for job in machine.service.jobs.all()] == ["3", "4"]
    machine.service.jobs.keep(2, 0.0)
    machine.service.jobs.kept().wait()
    assert machine.service.jobs.all() == []


class Clocks:
    """Both clocks of the machine, in place of the real ones."""

    def __init__(self, monkeypatch):
        self.now = moments.now()
        monkeypatch.setattr(moments, "now", lambda: self.now)

    def pass_s(self, seconds):
        self.now = self.now._replace(wall=self.now.wall + seconds, since_boot=self.now.since_boot + seconds)

    def set_by(self, seconds):
        self.now = self.now._replace(wall=self.now.wall + seconds)

    def boot(self, boot="another", off_s=60.0):
        self.now = Moment(self.now.wall + off_s, boot, 1.0)


DAY_S = 86_400.0


def kept_ids(machine):
    machine.service.tidy()
    machine.service.jobs.kept().wait()
    return [job.id for job in machine.service.jobs.all()]


def test_a_clock_that_is_set_forward_makes_no_job_old(machine, monkeypatch):
    """M6, M11: within one boot the clock that nobody can set counts, also in the next service."""
    clocks = Clocks(monkeypatch)
    machine.ended(machine.add("true"))
    clocks.set_by(3650 * DAY_S)
    assert kept_ids(machine) == ["1"]
    machine.close()
    machine.up()
    assert kept_ids(machine) == ["1"]
    clocks.pass_s(29 * DAY_S)
    assert kept_ids(machine) == ["1"]
    clocks.pass_s(2 * DAY_S)
    assert kept_ids(machine) == []


def test_a_clock_that_is_set_back_gives_no_negative_times(machine, monkeypatch):
    """M11: waited and ran come from the clock that nobody can set."""
    clocks = Clocks(monkeypatch)
    holder = machine.running(machine.add("sleep", "60", cpu=2))
    waits = machine.add("true", cpu=1)
    clocks.pass_s(5)
    clocks.set_by(-3650 * DAY_S)
    told = {each["id"]: each for each in rows(machine.service)}
    assert (told[holder.id]["ran_s"], told[waits.id]["waited_s"]) == (5.0, 5.0)


def test_logs_of_forgotten_jobs_are_gone_after_a_kill(machine):
    """M11: a service that starts removes logs that no job has, and leaves other files alone."""
    kept = machine.ended(machine.add("echo", "kept"))
    logs = Path(machine.home.logs)
    (logs / "77.log").write_text("of a job that was forgotten")
    (logs / "notes.txt").write_text("of the user's own")
    machine.close()
    machine.up()
    assert {each.name for each in logs.iterdir()} == {f"{kept.number}.log", "notes.txt"}


def test_a_running_job_that_was_asked_to_end_is_not_tried_again(machine, tmp_path):
    """M11: the wish is in the store, also if the service is killed before the job has ended."""
    job = machine.running(machine.add("sh", "-c", f"trap '' TERM; echo >> {tmp_path}/n; sleep 60", retry=5))
    until((tmp_path / "n").exists)
    machine.handle(job).cancel()
    machine.service.jobs.kept().wait()
    assert (type(job.state), job.state.abort) == (Running, "cancelled")
    machine.close()
    machine.up()
    again = machine.service.jobs.find(job.id)
    assert (again.state.outcome, again.state.cause) == ("aborted", "cancelled")
    assert (tmp_path / "n").read_text() == "\n"


def test_a_refused_batch_leaves_nothing_behind(machine, monkeypatch, tmp_path, caplog):
    """M11: neither its jobs nor its scope, and nothing of it ever runs."""
    commit, fails = Store._commit, threading.Event()
    fails.set()

    def fail(self, batch):
        if fails.is_set():
            raise sqlite3.OperationalError("database or disk is full")
        commit(self, batch)

    monkeypatch.setattr(Store, "_commit", fail)
    jobs = machine.service.jobs
    batch = [
        {"id": name, "command": ["touch", str(tmp_path / name)], "directory": "/", "environment": dict(os.environ)}
        for name in "abc"
    ]
    (first, *_) = jobs.add_batch(jobs.new_scope("flow"), batch, slots=1)
    with pytest.raises(MachineError, match="disk is full"):
        first.accepted.result()
    fails.clear()
    assert machine.ended(machine.add("true")).state.outcome == "success"
    assert jobs.new_scope("flow") == "flow"
    assert [job.id for job in jobs.all()] == ["4"]
    assert not list(tmp_path.glob("[abc]"))
    held = [machine.running(machine.add("sleep", "60", scope="flow")) for _ in range(2)]
    assert [job.scope for job in held] == ["flow"] * 2, "without the limit of the workflow that was refused"
    assert jobs.new_scope("flow") == "flow-2"
    for job in held:
        machine.handle(job).cancel()
        machine.ended(job)
    jobs.forget(held).wait()
    lives = jobs.add_batch("flow", batch, slots=1)
    assert [machine.ended(live).state.outcome for live in lives] == ["success"] * 3


def test_an_id_is_taken_as_soon_as_it_is_asked_for(machine):
    """M11: two requests at once are one job and one refusal, and the job is as it was asked for."""
    jobs, environment = machine.service.jobs, dict(os.environ)
    with machine.service.store._turn:  # nothing is written meanwhile
        first = jobs.add(["true"], "/", environment, id="mine")
        with pytest.raises(MachineError, match="'mine' is taken"):
            jobs.add(["false"], "/", environment, id="mine")
    first.accepted.result()
    assert machine.ended(first).state.outcome == "success"


def test_a_start_that_comes_while_the_service_ends_does_not_run(machine, tmp_path):
    """M5: it could not be noted, so the next service would run it once more."""
    job = machine.running(machine.add("sh", "-c", f"echo >> {tmp_path}/n; sleep 0.2; exit 1", retry=1))
    until((tmp_path / "n").exists)
    machine.service.jobs.close()
    handle = machine.handle(job)
    until(handle.done)
    assert (tmp_path / "n").read_text() == "\n"


def test_the_rows_of_many_jobs_share_the_reasons_of_their_lanes(machine):
    """M7: the same text for all that wait for the same, other texts for others."""
    machine.running(machine.add("sleep", "60", cpu=2))
    waiting = [machine.add("true", cpu=1) for _ in range(3)]
    dependent = machine.add("true", after=[waiting[0].id])
    told = {each["id"]: each["why"] for each in rows(machine.service)}
    assert len({told[job.id] for job in waiting}) == 1
    assert told[waiting[0].id].startswith("cpu: needs 1, 0 of 2 free, held by job 1")
    assert told[dependent.id].startswith(f"dependencies: job {waiting[0].id} waits for cpu held by job 1")


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"cpu": 3}, "3 cpu and the limit is 2"),
        ({"cpu": -1}, "-1"),
        ({"ram": "much"}, '"much"'),
        ({"gpus": 1}, "no option gpus"),
        ({"priority": 101}, "101"),
        ({"priority": "urgent"}, "'urgent'"),
        ({"after": [["a"]]}, "use the id of a job, or a list"),
        ({"after": [None]}, "use the id of a job, or a list"),
        ({"cpu": 10**400}, "bits is not allowed"),
        ({"after": ["77"]}, "no job has the id '77'"),
        ({"after": "77"}, "no job has the id '77'"),
        ({"after": 5}, "after 5 is not allowed: use the id of a job"),
        ({"after_ended": {"a": 1}}, "use the id of a job, or a list"),
        ({"resources": {"licence": 1}}, "'licence'"),
        ({"resources": 5}, "resources 5"),
        ({"retry": -1}, "retry times -1"),
        ({"retry": "often"}, "retry times 'often'"),
        ({"timeout": "soon"}, '"soon"'),
        ({"id": "7"}, "numbers are given by the service"),
        ({"id": "a/b"}, "without a slash"),
        ({"id": ""}, "id ''"),
        ({"id": "\n"}, "printable"),
        ({"scope": "a/b"}, "without a slash"),
        ({"scope": 7}, "scope 7"),
    ],
)
def test_a_refused_job_leaves_nothing_behind(machine, asked, says):
    """M2: the error has the value; the next job has the number that the refused one would have had."""
    with pytest.raises(WhywaitError) as caught:
        machine.add("true", **asked)
    assert says in str(caught.value)
    assert machine.service.jobs.all() == []
    assert machine.ended(machine.add("true")).number == 1


@pytest.mark.parametrize(
    ("command", "directory", "environment"),
    [
        ([], "/", {}),
        ("true", "/", {}),
        ([7], "/", {}),
        (["true"], "here", {}),
        (["true"], None, {}),
        (["true"], "/", None),
        (["true"], "/", {"A": 1}),
        (["tr\0ue"], "/", {}),
        (["true"], "/", {"A": "\0"}),
    ],
)
def test_what_cannot_be_a_command_is_refused(machine, command, directory, environment):
    """M2: before anything is kept."""
    with pytest.raises(ConfigError):
        machine.service.jobs.add(command, directory, environment)


def test_names_that_are_no_text_are_kept_as_they_are(machine, tmp_path):
    """M5: bytes in arguments and variables that are no UTF-8 survive a restart."""
    word = os.fsdecode(b"caf\xe9")
    holder = machine.running(machine.add("sleep", "60", cpu=2))
    script = f'printf "%s" "$1" > {tmp_path}/arg; printf "%s" "$X" > {tmp_path}/env'
    environment = {"X": word, "PATH": os.environ["PATH"]}
    machine.service.jobs.add(["sh", "-c", script, "sh", word], "/", environment, cpu=1).accepted.result()
    machine.close()
    machine.up()
    machine.ended(machine.service.jobs.find("2"))
    assert (tmp_path / "arg").read_bytes() == (tmp_path / "env").read_bytes() == b"caf\xe9"
    assert holder.id == "1"


def test_a_near_id_is_suggested(machine):
    """M7: an id that there is not names the nearest."""
    machine.add("true", id="render")
    with pytest.raises(UnknownTask, match="did you mean render"):
        machine.service.jobs.find("rendr")
    machine.add("true", id="render", scope="other")
    with pytest.raises(UnknownTask, match="write one of default/render, other/render"):
        machine.service.jobs.find("render")
    assert machine.service.jobs.find("other/render").scope == "other"


def test_the_handle_of_an_ended_job_is_stale(machine):
    """M7: and says how it ended."""
    job = machine.ended(machine.add("true"))
    with pytest.raises(StaleRef, match="job 1 has ended"):
        machine.service.jobs.handle(job)


@pytest.mark.parametrize("ref", ["²", "9" * 5_000])
def test_digits_that_are_no_number_name_no_job(machine, ref):
    """M2: as any other id that there is not."""
    with pytest.raises(UnknownTask, match="no job has the id"):
        machine.service.jobs.find(ref)
