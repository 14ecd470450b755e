"""M8, M2: a workflow on the machine, and jobs from Python."""

import json
import os
import signal
from pathlib import Path

import pytest

from machines import in_home, machine_in
from patience import until
from whywait import machine as this_machine
from whywait.cli.run_machine import INSTEAD
from whywait.cli.verbs import make_parser
from whywait.errors import MachineError

FILE = """
name = "film"
slots = 1
[task.fetch]
run = "sleep 0.2; echo $WORD >> $PWD/order"
env = {WORD = "fetch"}
[task.decode]
call = "pipeline:decode"
args = ["decode"]
kwargs = {again = 1}
after = ["fetch"]
priority = "high"
retry = 1
[task.pack]
run = ["sh", "-c", "echo pack >> order"]
after = ["decode"]
"""
PIPELINE = """
async def decode(word, again):
    with open("order", "a") as file:
        print(word, file=file)
"""


@pytest.fixture(scope="module")
def machine(tmp_path_factory):
    with machine_in(tmp_path_factory.mktemp("machine"), "--cpu", "2", "--slots", "2") as machine:
        yield machine


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "film.toml").write_text(FILE)
    (tmp_path / "pipeline.py").write_text(PIPELINE)
    return tmp_path


def jobs_of(machine, scope):
    return [job for job in machine.rows() if job["scope"] == scope]


RETRIES = """
name = "again"
[task.killed]
run = "kill -9 $$"
ram = "10MB"
retry = { times = 2, on_exit = [137], grow = { ram = 2.0 } }
[task.other]
run = "exit 3"
retry = { times = 2, on_exit = [137] }
"""


def test_jobs_of_one_name_are_listed_as_the_other_verbs_take_them(machine, tmp_path):
    """M8, X5: with the scope, if the same file was submitted twice."""
    (tmp_path / "twice.toml").write_text('name = "twice"\n[task.only]\nrun = "true"\n')
    for _ in range(2):
        assert machine.run("run", tmp_path / "twice.toml", "--machine").code == 0
    names = [line.split()[0] for line in machine.run("ls").out.splitlines() if "only " in line]
    assert names == ["twice/only", "twice-2/only"]
    assert [machine.run("wait", name).code for name in names] == [0, 0]


def test_exit_codes_and_signals_decide_about_retries_and_are_told(machine, tmp_path):
    """U3, M8: retry = {times, on_exit, grow} of a file holds on the machine too; `ls --json` has code and signal."""
    (tmp_path / "again.toml").write_text(RETRIES)
    assert machine.run("run", tmp_path / "again.toml", "--machine").code == 1
    told = {job["id"]: (job["attempt"], job["exit_code"], job["exit_signal"]) for job in jobs_of(machine, "again")}
    assert told == {"killed": (3, 137, "SIGKILL"), "other": (1, 3, None)}


def test_a_workflow_is_submitted_as_one_scope_and_followed(machine, folder):
    """M8: commands and functions, in the order of their dependencies; the exit code is that of a run."""
    done = machine.run("run", folder / "film.toml", "--machine")
    assert done.code == 0, done
    assert (folder / "order").read_text().split() == ["fetch", "decode", "pack"]
    assert [line.split(":")[0] for line in done.out.splitlines()] == ["fetch", "decode", "pack"]
    rows = jobs_of(machine, "film")
    assert [(row["id"], row["outcome"]) for row in rows] == [(name, "success") for name in ("fetch", "decode", "pack")]
    assert rows[1]["priority"] == 80


def test_a_workflow_that_fails_says_so(machine, tmp_path):
    """M8: what depended on the failure is told."""
    (tmp_path / "bad.toml").write_text('[task.a]\nrun = "exit 3"\n[task.b]\nrun = "true"\nafter = ["a"]\n')
    done = machine.run("run", tmp_path / "bad.toml", "--machine", "--json")
    assert done.code == 1
    rows = json.loads(done.out)["jobs"]
    assert [(row["outcome"], row["cause"]) for row in rows] == [("error", "exit_code"), ("aborted", "dependency")]


def test_a_detached_workflow_goes_on_by_itself_and_survives_the_service(tmp_path, folder):
    """M8, M5: with its scope's own limit."""
    with machine_in(tmp_path) as machine:
        (folder / "long.toml").write_text(
            'name = "long"\nslots = 1\n[task.a]\nrun = "sleep 60"\nretry = 1\n[task.b]\nrun = "sleep 60"\n'
        )
        done = machine.run("run", folder / "long.toml", "--machine", "--detach")
        assert (done.code, done.out) == (0, "long\n")
        assert machine.run("run", folder / "long.toml", "--machine", "--detach").out == "long-2\n"
        os.kill(machine.pid, signal.SIGKILL)
        machine.up()
        until(lambda: any(job["state"] == "RUNNING" for job in jobs_of(machine, "long")))
        rows = {job["id"]: job for job in jobs_of(machine, "long")}
        assert rows["b"]["why"].startswith("slots of scope long: the only one is taken, by a")
        assert rows["a"]["attempt"] == 2


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('[task.a]\nrun = "true"\n[periodic.p]\nrun = "true"\nevery = "1s"\n', "periodic 'p' needs a run of its own"),
        (
            '[task.a]\nrun = "true"\nscope = "s"\n[scope.s]\nslots = 1\n',
            "scope 's' has settings, and needs a run of its own",
        ),
        ('[task.a]\nrun = "true"\ncpu = 99\n', "99 cpu and the limit is 2"),
    ],
)
def test_what_the_machine_cannot_keep_is_refused_as_a_whole(machine, tmp_path, text, says):
    """M8: before anything of it is accepted."""
    before = machine.run("ls", "--json").out.count('"id"')
    (tmp_path / "flow.toml").write_text(text)
    done = machine.run("run", tmp_path / "flow.toml", "--machine")
    assert done.code == 2
    assert says in done.err
    assert machine.run("ls", "--json").out.count('"id"') == before
    alone = machine.run("run", tmp_path / "flow.toml", "--detach")
    assert (alone.code, "--detach needs --machine" in alone.err) == (2, True)


@pytest.mark.parametrize(
    ("option", "instead"),
    [
        (["--logs", "logs"], "whywait log"),
        (["--trace", "trace.json"], "whywait status --open"),
        (["--events", "events.jsonl"], "whywait status --open"),
        (["--record", "run.rec"], "leave out --machine"),
        (["--history", "history.db"], "whywait up --history"),
        (["--suggest"], "whywait ls --json"),
        (["--devtools"], "whywait status --open"),
        (["--port", "8123"], "whywait status --open"),
        (["--gpus", "2"], "whywait up --gpus"),
        (["--engine", "process"], "leave one of the two out"),
    ],
)
def test_an_option_that_the_machine_has_no_use_for_is_refused(machine, folder, option, instead):
    """M8: with what to do instead; no file is made and nothing is submitted."""
    done = machine.run("run", "film.toml", "--machine", *option, cwd=folder)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"whywait: {option[0]} cannot be used with --machine: ")
    assert instead in done.err
    assert sorted(path.name for path in folder.iterdir() if path.is_file()) == ["film.toml", "pipeline.py"]


def test_every_option_of_a_run_works_on_the_machine_or_is_refused():
    """M8: none is passed over in silence; a new one has to be put into one of the two tables."""
    options = vars(make_parser("run").parse_args(["x.toml"])).keys() - {"verb", "debug", "more"}
    works = {"file", "only", "keep_going", "slots", "sets", "dry_run", "machine", "detach", "quiet", "json"}
    assert options == works | INSTEAD.keys()
    assert not works & INSTEAD.keys()


def test_options_that_change_the_workflow_hold_on_the_machine(machine, tmp_path):
    """M8: `--only`, `--set`, `--slots` and `--keep-going`; a dry run promises no time."""
    flow = tmp_path / "options.toml"
    flow.write_text(
        'on_error = "abort"\n[vars]\ncode = 3\n[task.bad]\nrun = "exit {code}"\nduration = "1s"\n'
        '[task.good]\nrun = "sleep 0.3"\nduration = "1s"\n[task.other]\nrun = "true"\nduration = "1s"\n'
    )
    chosen = ["run", flow, "--machine", "--only", "bad", "good", "--set", "code=4", "--slots", "2"]
    plain = machine.run(*chosen)
    assert (plain.code, "good: was ended with its scope" in plain.out) == (1, True)
    going = machine.run(*chosen, "--keep-going")
    bad, good = going.out.splitlines()
    assert (going.code, bad.partition(" after ")[0], good.partition(" after ")[0]) == (
        1,
        "bad: exit 4",
        "good: succeeded",
    )
    planned = machine.run("run", flow, "--machine", "--dry-run")
    assert (planned.code, planned.out.splitlines()[-1]) == (0, "  no prediction: the machine may have other jobs, too")


def test_what_a_file_says_of_its_own_run_is_said_to_be_left_aside(machine, tmp_path):
    """M8: in a line on stderr, terminal or not."""
    flow = tmp_path / "aside.toml"
    flow.write_text('[budget]\ncpu = 1\n[scheduler]\norder = "strict"\n[task.a]\nrun = "true"\n')
    done = machine.run("run", flow, "--machine")
    assert (done.code, done.err) == (
        0,
        "whywait: the budget and scheduler of the file are left aside: the machine has its own, for all its jobs\n",
    )
    assert machine.run("run", flow, "--machine", "--quiet").err == ""


def test_a_job_from_python(machine, tmp_path):
    """M2: added, waited for, explained, cancelled."""
    with in_home(machine):
        job = this_machine.add(["sh", "-c", 'echo "$WORD" > out; exit 3'], cwd=tmp_path, env={"WORD": "hello"})
        assert job.wait(30) == 3
        assert (tmp_path / "out").read_text() == "hello\n"
        assert "failed: its command left with an error" in job.why()
        slow = this_machine.add(["sleep", "60"], id="slow", cpu=2, priority="low")
        with pytest.raises(TimeoutError):
            slow.wait(0.2)
        waits = this_machine.add(["true"], cpu=1)
        until(lambda: slow.status()["state"] == "RUNNING")
        assert "cpu: needs 1, 0 of 2 free, held by slow" in waits.why()
        slow.cancel()
        assert slow.wait(30) == 128 + signal.SIGTERM
        assert waits.wait(30) == 0
        with pytest.raises(MachineError, match="20 cpu and the limit is 2"):
            this_machine.add(["true"], cpu=20)
        with pytest.raises(MachineError, match="use a list of strings"):
            this_machine.add("true")


def test_no_module_stands_in_the_way_of_a_public_name():
    """M2: `machine.lease` stays callable: a submodule of that name, once imported, would take its place."""
    folder = Path(this_machine.__path__[0])
    assert not {path.stem for path in folder.glob("*.py")} & set(this_machine.__all__)
