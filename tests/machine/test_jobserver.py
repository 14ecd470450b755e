"""``whywait do --jobserver``: make, ninja and cargo use what cpu the machine has free, and give it back."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from machines import active, machine_in
from patience import until
from whywait.machine.jobserver import Jobserver, style_for

CPU = 4
NINJA = shutil.which("ninja", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
CARGO = shutil.which("cargo")
# A job says that it runs, and waits until it is told to end; how many say so at once is what the machine permitted.
JOB = "touch running-$n; while [ ! -e end-$n ] && [ ! -e end ]; do sleep 0.01; done; rm running-$n"


@pytest.fixture
def machine(tmp_path):
    with machine_in(tmp_path, "--cpu", str(CPU), "--slots", "8") as machine:
        yield machine


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "project"
    place.mkdir()
    return place


def needs(name, program, version, least):
    """Skip where a program is missing or too old to be asked."""
    if program is None:
        pytest.skip(f"{name}, which speaks to the jobserver here, is not installed")
    told = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    found = tuple(int(part) for part in told.split()[version].split(".")[:2])
    if found < least:
        pytest.skip(f"{told.strip()} knows no jobserver; {'.'.join(map(str, least))} does")


def makefile(folder, jobs=6):
    recipe = JOB.replace("$n", "$@").replace("$", "$$").replace("$$@", "$@")
    names = " ".join(f"t{number}" for number in range(jobs))
    (folder / "Makefile").write_text(f"all: {names}\n{names}:\n\t@{recipe}\n")


def running(folder):
    return sorted(path.name for path in folder.glob("running-*"))


def cpu_in_use(machine):
    budget = machine.status()["budget"]
    return next(each["limit"] - each["free"] for each in budget if each["name"] == "cpu")


def start(machine, folder, *command, options=()):
    return machine.start("do", "--jobserver", *options, "--", *command, cwd=folder, stdout=subprocess.DEVNULL)


def finish(folder, client):
    (folder / "end").touch()
    assert client.wait(60) == 0


def test_make_uses_what_is_free_and_the_next_command_gets_what_it_gives_back(machine, folder):
    """M9: make runs as many jobs as the machine has cpu; a token that comes back goes to the task that waits."""
    makefile(folder)
    client = start(machine, folder, "make")
    until(lambda: len(running(folder)) == CPU, lambda: f"{CPU} jobs at once, there are {running(folder)}")
    assert cpu_in_use(machine) == CPU
    other = machine.start("do", "--", "touch", "other", cwd=folder)  # no cpu asked for: not stopped by it
    assert other.wait(60) == 0
    waits = machine.start("do", "--cpu", "1", "--", "touch", "got", cwd=folder, stderr=subprocess.PIPE)
    assert b"waits: cpu: needs 1, 0 of 4 free, held by make" in waits.stderr.readline()
    assert machine.run("ls").out.count("(one more job of make-") == CPU - 1
    (folder / f"end-{running(folder)[0].removeprefix('running-')}").touch()
    finish(folder, client)
    assert waits.wait(60) == 0
    waits.stderr.close()
    until(lambda: active(machine) == 0, "all permissions coming back")
    assert cpu_in_use(machine) == 0


def test_a_command_with_cpu_of_its_own_has_its_tokens_at_once(machine, folder):
    """M9: its demand is what it is sure of; tokens beyond are what is free."""
    makefile(folder)
    blocker = machine.start("do", "--cpu", "2", "--", "sleep", "1000")
    until(lambda: cpu_in_use(machine) == 2, "the other command")
    client = start(machine, folder, "make", options=("--cpu", "2"))
    until(lambda: len(running(folder)) == 2, "two jobs at once")
    blocker.send_signal(signal.SIGTERM)
    blocker.wait(60)
    until(lambda: len(running(folder)) == CPU, "four jobs at once")
    finish(folder, client)


def test_a_token_that_lies_ready_goes_back_when_others_wait(machine, folder):
    """M9: a command that does not use its tokens does not keep others from their cpu."""
    client = start(machine, folder, "sleep", "1000")
    until(lambda: cpu_in_use(machine) == CPU, "its own cpu, and tokens that lie ready")
    done = machine.run("do", "--cpu", str(CPU - 1), "--", "true")
    assert done.code == 0
    client.send_signal(signal.SIGTERM)
    client.wait(60)


@pytest.mark.parametrize("victim", ["client", "guard"])
def test_tokens_of_a_client_that_is_killed_come_back(machine, folder, victim):
    """M9, M3: with its permission, and not before its last job has ended."""
    makefile(folder)
    client = start(machine, folder, "make")
    until(lambda: len(running(folder)) == CPU, "all jobs running")
    guard = int(Path(f"/proc/{client.pid}/task/{client.pid}/children").read_text().split()[0])
    os.kill({"client": client.pid, "guard": guard}[victim], signal.SIGKILL)
    client.wait(60)
    until(lambda: cpu_in_use(machine) == 0, "all cpu coming back")
    assert active(machine) == 0


def test_a_busy_build_on_two_cores_gives_back_down_to_one_job(tmp_path, folder):
    """M9: a command that waits for cpu starts when a job of the build has ended, long before the build has."""
    with machine_in(tmp_path, "--cpu", "2", "--slots", "8") as machine:
        makefile(folder, jobs=1000)
        client = start(machine, folder, "make")
        until(lambda: len(running(folder)) == 2, "the build having all cpu")
        script = "touch got; while [ ! -e go ]; do sleep 0.01; done"
        other = machine.start("do", "--quiet", "--cpu", "1", "--", "sh", "-c", script, cwd=folder)
        until(lambda: (folder / "got").exists() or end_one(folder), "the other command")
        assert client.poll() is None
        until(lambda: len(running(folder)) == 1, "the build having one job")
        assert cpu_in_use(machine) == 2
        (folder / "go").touch()
        assert other.wait(60) == 0
        until(lambda: len(running(folder)) == 2, "the build having all cpu again")
        finish(folder, client)


def end_one(folder):
    """End a job that runs."""
    for name in running(folder)[:1]:
        (folder / f"end-{name.removeprefix('running-')}").touch()


@pytest.mark.parametrize("style", ["fifo", "pipe"])
def test_ninja_uses_what_is_free(machine, folder, style):
    """M9: ninja, from 1.13 on, by a fifo; some builds also by a pipe."""
    needs("ninja", NINJA, 0, (1, 13))
    if style == "pipe" and "pipe" not in subprocess.check_output([NINJA, "--version"], text=True):
        pytest.skip("this ninja takes its tokens from a fifo only")
    rule = JOB.replace("$n", "$out")
    builds = "\n".join(f"build t{number}: job" for number in range(6))
    (folder / "build.ninja").write_text(f"rule job\n  command = {rule}; touch $out\n{builds}\n")
    # It looks for tokens when it starts and when a job has ended: so it starts when they are there.
    waits = f"while [ ! -e go ]; do sleep 0.01; done; exec {NINJA}"
    client = start(machine, folder, "sh", "-c", waits, options=("--jobserver-by", style))
    until(lambda: cpu_in_use(machine) == CPU, "tokens that lie ready")
    (folder / "go").touch()
    until(lambda: len(running(folder)) == CPU, lambda: f"{CPU} jobs at once, there are {running(folder)}")
    finish(folder, client)


@pytest.mark.parametrize("style", ["fifo", "pipe"])
def test_cargo_uses_what_is_free(machine, folder, style):
    """M9: cargo runs as many build scripts at once as there are tokens, and not as many as there are cores."""
    needs("cargo", CARGO, 1, (1, 74))
    members = [f"m{number}" for number in range(6)]
    (folder / "Cargo.toml").write_text(f'[workspace]\nresolver = "2"\nmembers = {json.dumps(members)}\n')
    for name in members:
        (folder / name / "src").mkdir(parents=True)
        (folder / name / "src" / "lib.rs").write_text("")
        (folder / name / "Cargo.toml").write_text(f'[package]\nname = "{name}"\nversion = "0.1.0"\nedition = "2021"\n')
        script = f"cd {folder}; " + JOB.replace("$n", name)
        (folder / name / "build.rs").write_text(
            'fn main() { assert!(std::process::Command::new("sh").arg("-c").arg(r#"'
            + script
            + '"#).status().unwrap().success()); }\n'
        )
    client = start(machine, folder, CARGO, "build", "--offline", "--quiet", options=("--jobserver-by", style))
    until(lambda: len(running(folder)) == CPU, lambda: f"{CPU} build scripts at once, there are {running(folder)}")
    finish(folder, client)


class Supplied(Jobserver):
    """A jobserver for which there is so much cpu, given out at once if it is there."""

    def __init__(self, style, free):
        super().__init__(style, 2, 5)
        self.free = free
        self.is_asked = False
        for _ in range(5):
            self.look()

    def ask(self):
        self.is_asked = True
        self.serve()

    def withdraw(self):
        self.is_asked = False

    def give_back(self, count):
        self.free += count
        self.serve()

    def serve(self):
        if self.is_asked and self.free:
            self.free -= 1
            self.is_asked = False
            self.granted()


@pytest.fixture
def supplied():
    """Return a function that makes a jobserver which has had what it may."""
    made = []

    def make(style, free=0):
        made.append(Supplied(style, free))
        return made[-1]

    yield make
    for each in made:
        each.close()
        for fd in each.inherited:
            os.close(fd)


def test_by_a_pipe_all_that_comes_back_goes_to_others_while_they_want_it(supplied):
    """M9: exactly: what programs put back they do not get again before this has decided; the command's own stay."""
    jobserver = supplied("pipe", 5)
    reads, writes = jobserver.inherited
    assert jobserver.free == 2  # two of its own and three more: the most that it may have
    assert os.read(reads, 4) == b"++++"
    os.write(writes, b"+")
    jobserver.look()
    assert (jobserver.free, os.read(reads, 4)) == (2, b"++")  # nothing else waits: it goes round
    jobserver.wanted(is_wanted=True)
    os.write(writes, b"++")
    assert_empty(reads)  # though it was put back
    jobserver.look()
    assert jobserver.free == 4
    os.write(writes, b"+++")
    jobserver.look()
    assert (jobserver.free, jobserver.is_asked, os.read(reads, 4)) == (5, False, b"++")  # its own
    for _ in range(5):
        jobserver.wanted(is_wanted=False)
    assert (jobserver.free, os.read(reads, 4)) == (2, b"+++")


def assert_empty(fd):
    os.set_blocking(fd, False)
    with pytest.raises(BlockingIOError):
        os.read(fd, 1)
    os.set_blocking(fd, True)


def test_by_a_fifo_what_is_seen_goes_to_others_while_they_want_it(supplied):
    """M9: programs take and put back in the same place, and may be quicker; it is watched only while that matters."""
    jobserver = supplied("fifo", 3)
    assert not jobserver.has_to_look
    fd = jobserver.fileno()
    assert len(os.read(fd, 5)) == 5  # all are in use
    jobserver.wanted(is_wanted=True)
    assert jobserver.has_to_look
    os.write(fd, b"++")
    jobserver.look()
    assert jobserver.free == 2
    os.write(fd, b"+++")
    jobserver.look()
    assert (jobserver.free, len(os.read(fd, 5)), jobserver.has_to_look) == (3, 2, False)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", " {}"),
        ("k -j9 --jobserver-auth=7,8", "k -j9 --jobserver-auth=7,8 {}"),
        (" -- VERSION=3.14", " {} -- VERSION=3.14"),
        ("k -- A=1 B=2\\ 3", "k {} -- A=1 B=2\\ 3"),
    ],
)
def test_flags_of_make_are_kept_and_those_of_another_jobserver_are_not(supplied, before, after):
    """M9: a command inside another make uses this jobserver and no other; variables stay behind all flags."""
    environment = {"MAKEFLAGS": before, "CARGO_MAKEFLAGS": "-j --jobserver-auth=7,8", "A": "b"}
    jobserver = supplied("pipe")
    jobserver.add_to(environment)
    reads, writes = jobserver.inherited
    assert environment == {"A": "b", "MAKEFLAGS": after.format(f"-j6 --jobserver-auth={reads},{writes}")}


@pytest.mark.parametrize(
    ("answer", "style"),
    [("GNU Make 4.3\n", "pipe"), ("GNU Make 4.4.1\n", "fifo"), ("bmake\n", "fifo"), ("", "fifo"), (None, "fifo")],
)
def test_the_way_is_the_one_that_the_program_understands(tmp_path, answer, style):
    """M9: a pipe where the program is known to take one; anything else may start anything, also a make that is old."""
    if answer is not None:
        (tmp_path / "make").write_text(f"#!/bin/sh\nprintf '{answer}'\n")
        (tmp_path / "make").chmod(0o755)
    environment = {"PATH": str(tmp_path)}
    assert style_for("./build.sh", environment) == style
    assert style_for("/usr/bin/make", environment) == style_for("cargo", environment) == "pipe"
    assert style_for("ninja", environment) == "fifo"
