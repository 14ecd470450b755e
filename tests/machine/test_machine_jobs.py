"""M2, M6, M7: jobs from acceptance to oblivion, in a service without a socket."""

import os
import signal
import stat
import sys
import time
from pathlib import Path

import pytest

from patience import until
from whywait.errors import ConfigError, MachineError, StaleRef, UnknownTask, WhywaitError
from whywait.machine.keep import Keep
from whywait.machine.listing import Reasons, job_row, rows, why_of


def row(machine, job):
    return job_row(machine.service, job, Reasons())


def test_a_job_runs_in_the_directory_and_the_environment_of_its_client(machine, tmp_path):
    """M2: nothing of the service's own environment is added but the way to the service."""
    script = 'import os; print(os.getcwd(), os.environ["MINE"], "SERVICE_ONLY" in os.environ)'
    os.environ["SERVICE_ONLY"] = "1"
    try:
        live = machine.service.jobs.add([sys.executable, "-c", script], str(tmp_path), {"MINE": "yes"})
    finally:
        del os.environ["SERVICE_ONLY"]
    job = machine.ended(live.job)
    assert f"{tmp_path} yes False" in machine.log(job)


def test_the_log_has_a_header_all_output_and_a_trailer(machine):
    """M2: both streams in the order in which they were written."""
    job = machine.ended(machine.add("sh", "-c", "echo out; echo err >&2; exit 3"))
    head, *output, end = machine.log(job).splitlines()
    assert head.startswith("whywait: ")
    assert head.endswith("sh -c 'echo out; echo err >&2; exit 3'")
    assert output == ["out", "err"]
    assert "exit 3 after" in end
    assert stat.S_IMODE(Path(machine.home.log_of(job.number)).stat().st_mode) == 0o600


def test_output_without_a_last_newline_keeps_its_line(machine):
    """M2: what the service says begins on a line of its own."""
    job = machine.ended(machine.add("printf", "no end of line"))
    _, output, end = machine.log(job).splitlines()
    assert output == "no end of line"
    assert end.startswith("whywait: ")


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
    """M2: the status is the command's."""
    told = row(machine, machine.ended(machine.add(*command)))
    assert (told["outcome"], told["cause"], told["exit_code"]) == (outcome, cause, code)


def test_what_cannot_be_started_says_so_in_its_log(machine):
    """M2: a program that is not there, a directory that is not there."""
    job = machine.ended(machine.add("/no/such/program"))
    assert "command not found: '/no/such/program'" in machine.log(job)
    live = machine.service.jobs.add(["true"], "/no/such/folder", {})
    assert "there is no directory /no/such/folder" in machine.log(machine.ended(live.job))


def test_the_next_service_has_what_ended_before_it_as_it_was(machine):
    """M6: ended jobs stay listed."""
    job = machine.ended(machine.add("sh", "-c", "exit 7", id="mine", priority="high"))
    before = row(machine, job)
    machine.close()
    machine.up()
    assert row(machine, machine.service.jobs.find("mine")) == before


def test_attempts_are_told_apart_in_the_log(machine, tmp_path):
    """M2: a job with retries fails only when the last attempt has failed."""
    job = machine.ended(machine.add("sh", "-c", f"echo x >> {tmp_path}/n; test $(wc -l < {tmp_path}/n) = 3", retry=2))
    assert (job.outcome, job.attempt) == ("success", 3)
    assert "(attempt 2)" in machine.log(job)
    assert "(attempt 3)" in machine.log(job)


def test_a_job_waits_for_those_it_comes_after(machine, tmp_path):
    """M2: and is ended with the first that does not succeed."""
    first = machine.add("sh", "-c", f"sleep 0.2; echo 1 >> {tmp_path}/n", id="first")
    second = machine.add("sh", "-c", f"echo 2 >> {tmp_path}/n", after=["first"])
    bad = machine.add("false", after=[second.id])
    last = machine.add("true", after=[bad.id])
    machine.ended(last)
    assert (tmp_path / "n").read_text().split() == ["1", "2"]
    assert (last.outcome, last.cause) == ("aborted", "dependency")
    assert f"because {bad.id} did not succeed" in str(why_of(machine.service, last))
    assert machine.ended(machine.add("true", after=first.id)).outcome == "success"


def test_limits_of_time_end_a_job(machine):
    """M2: timeout from its start, max_wait until its start."""
    slow = machine.ended(machine.add("sleep", "60", timeout=1.0))
    assert (slow.outcome, slow.cause, slow.exit_code) == ("timeout", "run_timeout", 128 + signal.SIGTERM)
    holder = machine.add("sleep", "60", cpu=2)
    late = machine.ended(machine.add("true", cpu=1, max_wait=0.1))
    assert (late.outcome, late.cause, late.exit_code) == ("rejected", "max_wait", None)
    machine.handle(holder).cancel()
    assert machine.ended(holder).outcome == "aborted"


def test_a_job_is_over_when_its_last_descendant_is(machine, tmp_path):
    """M3: also one that has left its session."""
    script = f"setsid sh -c 'sleep 0.3; echo late >> {tmp_path}/n' & echo early >> {tmp_path}/n"
    machine.ended(machine.add("sh", "-c", script))
    assert (tmp_path / "n").read_text().split() == ["early", "late"]


def test_why_and_the_row_of_a_job_that_waits_name_what_holds_it_up(machine):
    """M7: the kernel's own explanation."""
    holder = machine.running(machine.add("sleep", "60", ram="3GB"))
    waits = machine.add("true", ram="2GB")
    assert row(machine, waits)["why"].startswith("ram: needs 2.0 GB, 1.0 GB of 4.0 GB free, held by 1 (3.0 GB,")
    assert "it starts when 1.0 GB more ram is free" in str(why_of(machine.service, waits))
    machine.handle(holder).cancel()
    machine.ended(waits)
    told = str(why_of(machine.service, waits))
    assert "succeeded" in told
    assert "waiting for ram" in told


def test_a_paused_job_stays_paused_in_the_next_life(machine):
    """M5: and a resumed one goes on."""
    holder = machine.add("sleep", "60", cpu=2)
    job = machine.add("true", cpu=1)
    machine.handle(job).pause()
    until(lambda: job.state == "paused")
    machine.close()
    machine.up()
    job = machine.service.jobs.find(job.id)
    assert machine.handle(job).state == "PAUSED"
    assert machine.service.jobs.find(holder.id).cause == "worker_lost"
    machine.handle(job).resume()
    assert machine.ended(job).outcome == "success"


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
    assert machine.ended(job).outcome == "aborted"


def test_retry_submits_an_ended_job_again_under_a_new_id(machine, tmp_path):
    """M6: with the same command, directory, environment and demands."""
    script = f'echo "$MINE" >> {tmp_path}/n; exit 1'
    live = machine.service.jobs.add(["sh", "-c", script], "/", {"MINE": "kept"}, id="mine", cpu=1)
    first = machine.ended(live.job)
    again = machine.service.jobs.add_again(first)
    second = machine.ended(again.job)
    assert (tmp_path / "n").read_text().split() == ["kept", "kept"]
    assert second.id == "2"
    assert (second.scope, second.options) == (first.scope, first.options)
    running = machine.running(machine.add("sleep", "60"))
    with pytest.raises(MachineError, match="has not ended"):
        machine.service.jobs.add_again(running)


def test_a_forgotten_job_is_gone_with_its_log_and_its_environment(machine):
    """M6: its id is free again, its number never."""
    job = machine.ended(machine.add("true", id="mine"))
    with pytest.raises(MachineError, match="'mine' is taken by another job"):
        machine.add("true", id="mine")
    machine.service.jobs.forget([job]).wait()
    assert not Path(machine.home.log_of(1)).exists()
    assert machine.service.store.environments() == {}
    with pytest.raises(UnknownTask):
        machine.service.jobs.find("mine")
    assert machine.ended(machine.add("true", id="mine")).number == 2
    machine.service.jobs.forget([machine.service.jobs.find("mine")]).wait()
    machine.close()
    machine.up()
    assert machine.add("true").number == 3


def test_what_has_not_ended_cannot_be_forgotten(machine):
    """M6: cancel it first."""
    job = machine.running(machine.add("sleep", "60"))
    with pytest.raises(MachineError, match="has not ended: cancel it first"):
        machine.service.jobs.forget([job])


def test_ended_jobs_are_kept_up_to_a_number_and_an_age(machine):
    """M6: the oldest go first."""
    for _ in range(4):
        machine.ended(machine.add("true"))
    Keep(most=3).apply(machine.service.jobs)
    assert [job.id for job in machine.service.jobs.all()] == ["2", "3", "4"]
    Keep(age_s=0.0).apply(machine.service.jobs)
    assert machine.service.jobs.all() == []


def test_the_rows_of_many_jobs_share_the_reasons_of_their_lanes(machine):
    """M7: the same text for all that wait for the same, other texts for others."""
    machine.running(machine.add("sleep", "60", cpu=2))
    waiting = [machine.add("true", cpu=1) for _ in range(3)]
    dependent = machine.add("true", after=[waiting[0].id])
    told = {each["id"]: each["why"] for each in rows(machine.service)}
    assert len({told[job.id] for job in waiting}) == 1
    assert told[waiting[0].id].startswith("cpu: needs 1, 0 of 2 free, held by 1")
    assert told[dependent.id].startswith(f"dependencies: {waiting[0].id} waits for cpu held by 1")


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"cpu": 3}, "3 cpu and the limit is 2"),
        ({"cpu": -1}, "-1"),
        ({"ram": "much"}, '"much"'),
        ({"gpus": 1}, "no option gpus"),
        ({"priority": 101}, "101"),
        ({"priority": "urgent"}, "'urgent'"),
        ({"after": ["77"]}, "no job has the id '77'"),
        ({"after": "77"}, "no job has the id '77'"),
        ({"resources": {"licence": 1}}, "'licence'"),
        ({"resources": 5}, "resources 5"),
        ({"retry": -1}, "retry -1"),
        ({"retry": "often"}, "retry 'often'"),
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
    machine.service.jobs.add(["sh", "-c", script, "sh", word], "/", environment, cpu=1).accepted.wait()
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


def test_a_draining_service_lets_what_runs_end_and_keeps_what_waits(machine):
    """M5: `down` accepts nothing more."""
    running = machine.running(machine.add("sleep", "0.3", cpu=2))
    waits = machine.add("true", cpu=1)
    done = []
    machine.service.drain(lambda: done.append(True))
    with pytest.raises(MachineError, match="takes nothing more"):
        machine.service.refuse_if_draining()
    assert machine.ended(running).outcome == "success"
    until(lambda: done)
    assert waits.state == "pending"
    machine.close()
    machine.up()
    assert machine.ended(machine.service.jobs.find(waits.id)).outcome == "success"


@pytest.mark.parametrize("after", [1, [1], [["a"]], {"a": 1}, [None]])
def test_only_texts_are_ids(machine, after):
    """M2: a request of a wrong form is refused and leaves nothing behind."""
    with pytest.raises((ConfigError, UnknownTask, TypeError)):
        machine.add("true", after=after)
    machine.ended(machine.add("true"))


@pytest.mark.parametrize("ref", ["²", "9" * 5_000])
def test_digits_that_are_no_number_name_no_job(machine, ref):
    """M2: as any other id that there is not."""
    with pytest.raises(UnknownTask, match="no job has the id"):
        machine.service.jobs.find(ref)


def test_a_demand_beyond_all_bounds_is_refused(machine):
    """M2: it could not even be told in an error."""
    with pytest.raises(ConfigError, match=r"demand cpu an int of \d+ bits is not allowed"):
        machine.add("true", cpu=10**400)
