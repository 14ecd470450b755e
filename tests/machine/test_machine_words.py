"""M2, M5, M8, U2, V1: what people read of jobs: states, ends, logs, refusals."""

import json
import os
import re
import signal
import socket
import subprocess
import sys

import pytest

from machines import Machine, in_home, machine_in
from patience import PATIENCE_S, until
from whywait import machine as this_machine
from whywait.devtools import beacon
from whywait.errors import MachineError

# Uses 350 MB. A look while it grows may be the last that is told: what comes then is less than a step of the meter.
HOG = "import time; data = bytearray(340_000_000); data[::4096] = b'x' * len(data[::4096]); time.sleep(60)"


@pytest.fixture(scope="module")
def machine(tmp_path_factory):
    with machine_in(tmp_path_factory.mktemp("machine"), "--cpu", "2", "--slots", "4", "--gpus", "2") as machine:
        yield machine


def line_of(machine, id):
    return next(line for line in machine.run("ls").out.splitlines() if line.split()[0] == id)


# Programs


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (["no-such-program"], 'the program "no-such-program" was not found in PATH\n'),
        (["./no-such"], 'the program "./no-such" does not exist in {folder}\n'),
        (["./plain"], 'the program "./plain" in {folder} cannot be executed: it must be a file that you may execute'),
        (["plain"], 'the program "plain" was not found in PATH; the one in {folder} is ./plain\n'),
        (["make test && x"], "; if this is a line for a shell, write: sh -c 'make test && x'\n"),
        (["WORD=1", "make"], "; if this is a line for a shell, write: sh -c 'WORD=1 make'\n"),
        (["source", "setup.sh"], "; if this is a line for a shell, write: sh -c 'source setup.sh'\n"),
    ],
)
def test_a_program_that_does_not_exist_is_refused_at_add(machine, tmp_path, command, says):
    """M2: with exit status 2 and what to write instead; nothing of it is kept."""
    (tmp_path / "plain").write_text("no program")
    before = machine.run("ls", "--json").out
    refused = machine.run("add", "--", *command, cwd=tmp_path)
    assert (refused.code, refused.out) == (2, "")
    assert says.format(folder=tmp_path) in refused.err
    assert machine.rows() == json.loads(before)


def test_a_program_is_looked_for_with_the_path_and_from_the_directory_of_its_client(machine, tmp_path):
    """M2: those of the request, by Python and by the command line; not the service's."""
    tool = tmp_path / "bin" / "own-tool"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\nexit 5\n")
    tool.chmod(0o755)
    path = {"PATH": f"{tool.parent}:{os.environ['PATH']}"}
    known = machine.run("add", "--", "own-tool", env=path)
    assert machine.run("wait", known.out.strip()).code == 5
    assert machine.run("wait", machine.run("add", "--", "./bin/own-tool", cwd=tmp_path).out.strip()).code == 5
    with in_home(machine):
        assert this_machine.add(["own-tool"], env=path).wait(PATIENCE_S) == 5
        assert this_machine.add(["./own-tool"], cwd=tool.parent).wait(PATIENCE_S) == 5
        with pytest.raises(MachineError, match='the program "own-tool" was not found in PATH'):
            this_machine.add(["own-tool"])


def test_a_program_that_a_job_before_it_makes_is_not_looked_for(machine, tmp_path):
    """M2, M8: `--after`, and `after` in a workflow; one that is not made after all ends as a shell would tell it."""
    (tmp_path / "flow.toml").write_text(
        'name = "makes"\n[task.make]\nrun = "cp /bin/true made"\n[task.use]\nrun = ["./made"]\nafter = ["make"]\n'
    )
    assert machine.run("run", tmp_path / "flow.toml", "--machine").code == 0
    first = machine.add("--", "true")
    missing = machine.run("add", "--after", first, "--", "./never-made", cwd=tmp_path).out.strip()
    assert machine.run("wait", missing).code == 127
    (tmp_path / "flow.toml").write_text('[task.a]\nrun = ["./never-made"]\n')
    refused = machine.run("run", tmp_path / "flow.toml", "--machine")
    assert (refused.code, f"does not exist in {tmp_path}" in refused.err) == (2, True)
    assert machine.run("retry", missing).code == 0  # accepted once: it may be there by now


# Logs


def test_what_a_python_job_prints_is_in_its_log_while_it_runs(machine):
    """M2: Python is told not to keep it back, so it is not lost by a cancel either."""
    job = machine.add("--", sys.executable, "-c", "import time; print('alive'); time.sleep(60)")
    until(lambda: "alive\n" in machine.run("log", job).out)
    assert machine.run("cancel", job).out in (f"{job}: cancelled, it is ending\n", f"{job}: cancelled\n")  # it is quick
    waited = machine.run("wait", job)
    assert (waited.code, waited.err) == (128 + signal.SIGTERM, f"whywait: job {job} was cancelled\n")
    assert "alive\n" in machine.run("log", job).out


@pytest.mark.parametrize("value", ["", "0"])
def test_what_the_user_has_set_stays(machine, value):
    """M2: also if it is empty."""
    show = ["--", "sh", "-c", 'echo "[${PYTHONUNBUFFERED-unset}]"']
    job = machine.run("add", *show, env={"PYTHONUNBUFFERED": value}).out.strip()
    machine.run("wait", job)
    assert f"[{value}]\n" in machine.run("log", job).out


def test_the_log_of_a_job_that_never_ran_says_so_and_why(machine):
    """M2: while it waits, and after its end."""
    holder = machine.add("--gpu", "2", "--", "sleep", "60")
    job = machine.add("--gpu", "1", "--", "true")
    told = machine.run("log", job)
    assert (told.code, told.out) == (0, "")
    assert told.err == (
        f"whywait: job {job} has not run yet: "
        f"no gpu is free: gpu 0 is held by job {holder}; gpu 1 is held by job {holder}\n"
    )
    with machine.start("log", job, "-f", stderr=subprocess.PIPE, text=True) as following:
        assert "has not run yet" in following.stderr.readline()
        machine.run("cancel", job)
        assert following.stderr.readline() == f"whywait: job {job} has not run: it was cancelled\n"
        assert following.wait(PATIENCE_S) == 0
    assert machine.run("log", job).err == f"whywait: job {job} has not run: it was cancelled\n"
    waited = machine.run("wait", job)
    assert (waited.code, waited.err) == (1, f"whywait: job {job} was cancelled\n")
    machine.run("cancel", holder)


# States and ends


def test_a_paused_job_is_called_paused_everywhere(machine):
    """X1, V1: by the verb, `ls`, `status`, `why`, and `why` of those behind it."""
    holder = machine.add("--gpu", "2", "--", "sleep", "60")
    behind = machine.add("--gpu", "1", "--", "true")
    until(lambda: machine.row(holder)["state"] == "RUNNING")
    assert machine.run("pause", holder).out == f"{holder}: paused\n"
    assert line_of(machine, holder).split()[1] == "paused"
    assert line_of(machine, holder).endswith("somebody has to resume it")
    assert ", paused)" in machine.run("status").out
    assert f"job {holder} has been paused for " in machine.run("why", holder).out
    assert f"gpu 0 is held by job {holder} (paused); " in machine.run("why", behind).out
    assert machine.run("resume", holder).out == f"{holder}: resumed, it runs\n"
    assert machine.run("pause", behind).out == f"{behind}: paused\n"
    assert line_of(machine, behind).split()[1] == "paused"
    assert machine.run("resume", behind).out == f"{behind}: resumed, it waits\n"
    not_paused = machine.run("resume", behind)
    assert (not_paused.code, not_paused.err) == (
        2,
        f"whywait: task {behind} is waiting, not paused: there is nothing to resume\n",
    )
    assert machine.run("cancel", behind).out == f"{behind}: cancelled\n"
    machine.run("cancel", holder)


def test_a_job_that_was_lost_with_its_service_says_so_everywhere(tmp_path):
    """M5: in `ls`, `why`, `wait` and the log; the code of the cause stays."""
    with machine_in(tmp_path) as machine:
        job = machine.add("--", "sleep", "60")
        until(lambda: machine.row(job)["state"] == "RUNNING")
        os.kill(machine.pid, signal.SIGKILL)
        machine.up()
        lost = "lost, because the service has ended"
        assert line_of(machine, job).endswith(f"was {lost}")
        assert machine.run("why", job).out.splitlines()[0] == f"job {job} was {lost}"
        waited = machine.run("wait", job)
        assert (waited.code, waited.err) == (1, f"whywait: job {job} was {lost}\n")
        assert machine.run("log", job).out.rstrip().endswith(lost)
        assert (machine.row(job)["outcome"], machine.row(job)["cause"]) == ("error", "worker_lost")


def test_a_service_that_ends_gives_no_more_slots(tmp_path):
    """M5: `status` does not count them against none."""
    with machine_in(tmp_path, "--slots", "3") as machine:
        job = machine.add("--", "sleep", "60")
        until(lambda: machine.row(job)["state"] == "RUNNING")
        with machine.start("down", stderr=subprocess.DEVNULL):
            until(lambda: "ending with what runs" in machine.run("status").out)
            assert "\nslot: 1 taken, and no more are given\n" in machine.run("status").out
            machine.run("cancel", job)


def test_why_says_that_a_holder_uses_more_memory_than_it_asked_for(tmp_path):
    """U2, V1: of what waits for memory, and of the holder itself."""
    with machine_in(tmp_path, "--ram", "400MB", "--slots", "4") as machine:
        hog = machine.add("--ram", "50MB", "--", sys.executable, "-c", HOG)
        own = re.compile(r" and 3\d\d\.\d MB ram \(more than the 50\.0 MB it asked for\)\n")
        until(lambda: own.search(machine.run("why", hog).out))
        job = machine.add("--ram", "200MB", "--", "true")
        assert f"held by job {hog} (uses 3" in machine.run("why", job).out
        assert " MB, more than the 50.0 MB it asked for, " in machine.run("why", job).out
        free = machine.add("--", sys.executable, "-c", HOG)  # has promised nothing
        until(lambda: f"job {free} (uses 3" in machine.run("why", job).out)
        assert " MB, asked for none, " in machine.run("why", job).out


@pytest.fixture
def silent_run(tmp_path, monkeypatch):
    """Leave the address of a run that takes connections and never answers."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield beacon.light(f"http://127.0.0.1:{listener.getsockname()[1]}", "silent")


@pytest.mark.parametrize("verb", ["pause", "why"])
def test_a_run_that_does_not_answer_does_not_hide_that_an_id_is_wrong(tmp_path, silent_run, verb):
    """V1, X5: the verbs look among the runs for what the service does not have."""
    with machine_in(tmp_path) as machine:
        machine.environment["XDG_RUNTIME_DIR"] = str(tmp_path)
        refused = machine.run(verb, "nope")
        assert refused.code == 2
        assert refused.err.startswith(
            "whywait: no job has the id 'nope'; see: whywait ls; nor was it found in a served"
        )
        assert "does not answer (timed out): is the run over?" in refused.err
    assert silent_run.exists()


# The command line


@pytest.mark.parametrize("verb", [[], ["run"], ["why"], ["pause"], ["add"], ["ls"], ["simulate"]])
def test_h_is_help(tmp_path, verb):
    """M2: for every verb, as the long form."""
    machine = Machine(tmp_path / "none")
    short, long = machine.run(*verb, "-h"), machine.run(*verb, "--help")
    assert short == long
    assert (short.code, "--help" in short.out) == (0, True)
