"""M11: what was answered has happened and is on the disk, what was refused never runs; seen from a client."""

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from machines import Machine as Program
from machines import in_home, machine_in
from patience import until
from program import LONGEST_S, clean_environment
from whywait.errors import MachineError
from whywait.machine.client import Machine, NoService

FAULTS = Path(__file__).with_name("faults")
IN_SMALL_DISK = 'mount -t tmpfs -o size=3m none "$1" && exec "$2" "$3" "$1" "$4"'


@pytest.fixture
def program(tmp_path):
    """Return the command line of a machine with one slot."""
    with machine_in(tmp_path, "--slots", "1") as machine, in_home(machine):
        yield machine


def on_disk(machine):
    """Return what the store has of each job at this moment."""
    connection = sqlite3.connect(f"file:{machine.home}/jobs.db?mode=ro", uri=True)
    try:
        found = connection.execute("SELECT name, state, is_paused, abort, outcome FROM jobs").fetchall()
    finally:
        connection.close()
    return {name: rest for name, *rest in found}


def job(name, *command):
    return {"id": name, "command": list(command), "directory": "/", "environment": dict(os.environ)}


@pytest.mark.parametrize("route", ["/machine/jobs/{}/{}", "/api/tasks/{}/{}"])
def test_each_answer_is_on_the_disk_when_it_is_given(program, route):
    """M11: of the verbs and of the page alike."""
    machine = Machine()
    machine.ask("POST", "/machine/jobs", job("runs", "sleep", "60"))
    machine.ask("POST", "/machine/jobs", job("waits", "true"))
    assert on_disk(program)["waits"] == ["pending", 0, None, None]
    machine.ask("POST", route.format("waits", "pause"), {})
    assert on_disk(program)["waits"] == ["pending", 1, None, None]
    machine.ask("POST", route.format("waits", "resume"), {})
    assert on_disk(program)["waits"] == ["pending", 0, None, None]
    machine.ask("POST", route.format("waits", "cancel"), {})
    assert on_disk(program)["waits"] == ["ended", 0, None, "aborted"]
    until(lambda: on_disk(program)["runs"][0] == "running")
    machine.ask("POST", route.format("runs", "cancel"), {})
    state, _, abort, outcome = on_disk(program)["runs"]
    assert (state, abort, outcome) in {("running", "cancelled", None), ("ended", None, "aborted")}  # it may be over


def test_a_job_that_ends_by_its_timeout_has_no_later_attempt_after_a_kill(program, tmp_path):
    """M11: as one that was cancelled, be it while it ends; a timeout is not retried."""
    ran = tmp_path / "ran"
    script = f"echo ran >> {ran}; trap '' TERM; while :; do sleep 0.05; done"
    machine = Machine()
    machine.ask("POST", "/machine/jobs", {**job("slow", "sh", "-c", script), "timeout": 0.5, "retry": 3})
    until(lambda: on_disk(program)["slow"][2] == "run_timeout")
    machine.ask("POST", "/machine/jobs/slow/cancel", {})
    os.kill(machine.ask("GET", "/machine/status")["pid"], signal.SIGKILL)
    program.up()
    row = machine.ask("GET", "/machine/jobs/slow/wait")
    assert (row["outcome"], row["cause"]) == ("timeout", "run_timeout")
    assert ran.read_text().split() == ["ran"]


def test_what_would_not_be_kept_is_refused(program):
    """M11: a scope that the page suspends would not be suspended in the next service."""
    with pytest.raises(MachineError, match="pause its jobs"):
        Machine().ask("POST", "/api/scopes/default/suspend", {})


def test_cancel_says_so_only_of_what_it_has_cancelled(program):
    """M11: a job that has just succeeded was not cancelled."""
    machine = Machine()
    answers = {}
    for number in range(60):
        name = f"short-{number}"
        machine.ask("POST", "/machine/jobs", job(name, "true"))
        if number % 3:
            until(lambda name=name: machine.ask("GET", f"/machine/jobs/{name}")["state"] != "READY")
        answers[name] = machine.ask("POST", f"/machine/jobs/{name}/cancel", {})["done"]
    outcomes = {name: machine.ask("GET", f"/machine/jobs/{name}/wait")["outcome"] for name in answers}
    assert {name: {"cancelled": "aborted", "nothing": "success"}[done] for name, done in answers.items()} == outcomes


def at_once(number, call):
    """Call a function on as many threads at once; return what the calls return, or what they are refused with."""
    ready = threading.Barrier(number)

    def one(_):
        ready.wait()
        try:
            return call()
        except MachineError as error:
            return str(error)

    with ThreadPoolExecutor(number) as pool:
        return list(pool.map(one, range(number)))


@pytest.mark.parametrize("limits", [{}, {"slots": 1}])
def test_a_refused_workflow_leaves_its_name_free(program, limits):
    """M11: nothing of it is left, its scope included."""
    machine = Machine()
    wrong = {"name": "flow", "jobs": [job("one", "true"), {**job("two", "true"), "cpu": 10_000}], **limits}
    with pytest.raises(MachineError, match="could never start"):
        machine.ask("POST", "/machine/workflows", wrong)
    assert machine.ask("POST", "/machine/workflows", {**wrong, "jobs": wrong["jobs"][:1]})["scope"] == "flow"


def test_of_clients_that_ask_for_one_id_at_once_one_gets_it(program):
    """M11: the others are refused before anything is written, and the service goes on."""
    pid = Machine().ask("GET", "/machine/status")["pid"]
    for number in range(10):
        answers = at_once(6, lambda name=f"same-{number}": Machine().ask("POST", "/machine/jobs", job(name, "true")))
        assert sum(isinstance(answer, dict) for answer in answers) == 1
        assert sum("is taken by another job" in answer for answer in answers if isinstance(answer, str)) == 5
    waited = [Machine().ask("GET", f"/machine/jobs/same-{number}/wait") for number in range(10)]
    assert [each["outcome"] for each in waited] == ["success"] * 10
    assert Machine().ask("GET", "/machine/status")["pid"] == pid


def test_clients_that_retry_all_that_failed_at_once_retry_it_once(program):
    """M11: what one client has asked for is on the disk before another one chooses; so it is with forgetting."""
    machine = Machine()
    for name in ("one", "two"):
        machine.ask("POST", "/machine/jobs", job(name, "false"))
        machine.ask("GET", f"/machine/jobs/{name}/wait")
    machine.ask("POST", "/machine/jobs", job("holds", "sleep", "60"))
    answers = at_once(6, lambda: Machine().ask("POST", "/machine/retry", {})["jobs"])
    assert [each["of"] for answer in answers for each in answer] == ["one", "two"]
    answers = at_once(6, lambda: Machine().ask("POST", "/machine/forget", {})["jobs"])
    assert [each for answer in answers for each in answer] == ["one", "two"]


def test_a_service_that_cannot_keep_what_has_happened_ends(tmp_path):
    """M11: its clients are told, and the next service says what is missing and goes on with the rest."""
    program = Program(tmp_path / "home")
    program.up("--slots", "1")
    try:
        with in_home(program):
            machine = Machine()
            machine.ask("POST", "/machine/jobs", job("runs", "sleep", "60"))
            for name in ("lost", "kept"):
                machine.ask("POST", "/machine/jobs", job(name, "true"))
            connection = sqlite3.connect(program.home / "jobs.db")
            with connection:
                connection.execute("DELETE FROM jobs WHERE name = 'lost'")
            connection.close()
            with pytest.raises(MachineError, match="there is no job 2 to change"):
                machine.ask("POST", "/machine/jobs/lost/cancel", {})
            until(lambda: not machine.runs())
            with pytest.raises(NoService):
                machine.ask("GET", "/machine/jobs")
        until(lambda: "cannot be kept" in (program.home / "service.log").read_text())
        assert "2 of 3 jobs are whole" in program.run("up", "--detach", "--slots", "1").err
        status = program.status()
        assert "2 of 3 jobs are whole; the service goes on with 2 jobs" in status["notices"][0]
        assert status["notices"][0] in program.run("status").out
        assert set(on_disk(program)) == {"runs", "kept"}
    finally:
        program.down()


def test_a_job_that_awaits_one_that_was_lost_is_paused(tmp_path):
    """M11: it does not start too soon; the notice says so, and its user lets it go on."""
    program, ran = Program(tmp_path / "home"), tmp_path / "ran"
    program.up("--slots", "1")
    try:
        for number, name in enumerate(["runs", "before", "after", "other"]):
            awaited = ("--after", "before") if name == "after" else ()
            program.add("--id", name, *awaited, "--", "sh", "-c", f"echo {name} >> {ran}; sleep {0 if number else 60}")
        until(lambda: on_disk(program)["runs"][0] == "running")
        program.down()
        connection = sqlite3.connect(program.home / "jobs.db")
        with connection:
            connection.execute("DELETE FROM jobs WHERE name = 'before'")
        connection.close()
        assert "; paused, because what they wait for may be lost: after\n" in program.run("up", "--detach").err
        assert program.run("wait", "other").code == 0
        assert on_disk(program)["after"][:2] == ["pending", 1]
        assert ran.read_text().split() == ["runs", "other"]
        assert program.run("resume", "after").code == 0
        assert program.run("wait", "after").code == 0
    finally:
        program.down()


@pytest.fixture(scope="module")
def full_disk(tmp_path_factory):
    """Return what a service answered on a full disk, and the file that its jobs wrote to."""
    folder = tmp_path_factory.mktemp("small")
    ran = tmp_path_factory.mktemp("beside") / "ran"
    if shutil.which("unshare") is None:
        pytest.skip("needs unshare for a file system of its own")
    arguments = [folder, sys.executable, FAULTS / "full_disk.py", ran]
    done = subprocess.run(
        ["unshare", "--mount", "--map-root-user", "sh", "-c", IN_SMALL_DISK, "sh", *arguments],
        env=clean_environment(),
        capture_output=True,
        check=False,
        timeout=LONGEST_S,
        text=True,
    )
    if "unshare" in done.stderr or "mount:" in done.stderr:
        pytest.skip(f"needs a file system of its own: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), ran


def test_on_a_full_disk_what_is_refused_never_runs(full_disk):
    """M11: neither a job nor any job of a workflow, also when there is space again; a refused scope is not there."""
    told, ran = full_disk
    assert all("full" in answer.get("refused", "") for answer in told["add"])
    assert "full" in told["flow"]["refused"]
    assert ran.read_text().split() == ["ends"]
    assert told["again"]["scope"] == "flow"


def test_on_a_full_disk_what_frees_space_works(full_disk):
    """M11: cancel, pause, ends and forget; the reserve is made again."""
    told, _ = full_disk
    assert (told["cancel waits"]["done"], told["cancel waits"]["state"]) == ("cancelled", "aborted")
    assert told["pause stays"]["done"] == "paused"
    assert told["cancel runs"]["done"] == "cancelled"
    assert told["wait runs"]["outcome"] == "aborted"
    assert told["rows"]["runs"] == ["DISPOSED", "aborted"]
    assert sorted(told["forget"]["jobs"]) == ["over", "runs", "waits"]
    assert {"stays", "ends"} == set(told["left"])
    assert told["end"]["outcome"] == "success"
    assert told["reserve"] is True


def test_a_service_that_cannot_begin_for_a_full_disk_says_so(full_disk):
    """M11: it has to write what was lost before it begins, and does not wait for space without a word."""
    told, _ = full_disk
    assert "jobs.db cannot be written: database or disk is full" in told["begin"]
