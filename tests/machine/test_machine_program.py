"""M1, M2, M5, M7: the program as users run it: the life of a service, wrong use, and who can reach what."""

import os
import re
import signal
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from machines import Machine, in_home, machine_in
from patience import PATIENCE_S, until
from whywait.machine import client as clients
from whywait.machine.client import Machine as Client
from whywait.machine.home import Home


@pytest.fixture
def machine(tmp_path):
    """Return a machine without a service; what a test starts is ended."""
    machine = Machine(tmp_path / "home")
    yield machine
    machine.down()


# The life of a service


def test_the_first_add_starts_a_service_and_says_so(machine):
    """M1: in one line, on stderr; --no-start refuses instead."""
    refused = machine.run("add", "--no-start", "--", "true")
    assert refused.code == 2
    assert "no service runs in" in refused.err
    added = machine.run("add", "--", "true")
    assert (added.code, added.out) == (0, "1\n")
    assert re.fullmatch(
        r"whywait: started the service of this machine \(process \d+\); whywait down ends it\n", added.err
    )
    assert machine.run("add", "--", "true").err == ""
    assert machine.run("wait", "1", "2").code == 0


def test_a_second_service_for_the_same_home_is_refused(machine):
    """M1: the first is untouched."""
    machine.up()
    before = machine.pid
    for options in ((), ("--detach",)):
        refused = machine.run("up", *options)
        assert refused.code == 2
        assert "a service runs in" in refused.err
    assert machine.pid == before


def test_a_service_has_the_machine_unless_told_otherwise(machine):
    """M1: its cores, nine tenths of its memory."""
    machine.up()
    status = machine.status()
    limits = {gate["name"]: gate["limit"] for gate in (status["slots"], *status["budget"])}
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert limits == {"slot": os.cpu_count(), "cpu": os.cpu_count(), "ram": memory * 9 // 10}
    machine.down()
    machine.up("--slots", "none", "--cpu", "3", "--ram", "1GB", "--resource", "licence=2")
    status = machine.status()
    limits = {gate["name"]: gate["limit"] for gate in (status["slots"], *status["budget"])}
    assert limits == {"slot": None, "cpu": 3, "ram": 10**9, "licence": 2}


def test_a_service_that_cannot_write_its_log_still_says_why_it_did_not_start(machine):
    """M1: as on a full disk."""
    limited = ["sh", "-c", 'ulimit -f 0; exec "$@"', "sh", *machine.command("up", "--detach")]
    refused = subprocess.run(limited, env=machine.environment, capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert re.fullmatch(r"whywait: .*jobs\.db cannot be .*\n", refused.stderr)


def test_down_waits_for_what_runs_and_keeps_what_waits(machine, tmp_path):
    """M5: with --now it does not wait."""
    machine.up("--slots", "1")
    machine.add("--", "sh", "-c", f"while ! test -e {tmp_path}/go; do sleep 0.05; done; echo done > {tmp_path}/n")
    machine.add("--", "sleep", "60")
    with machine.start("down", stderr=subprocess.PIPE) as down:
        assert b"1 still runs: the service ends with it; to end it now: whywait down --now" in down.stderr.readline()
        (tmp_path / "go").touch()  # not before: the next job would start
        assert down.wait(PATIENCE_S) == 0
    assert (tmp_path / "n").read_text() == "done\n"
    machine.up("--slots", "1")
    first, second = machine.rows()
    assert (first["outcome"], second["outcome"]) == ("success", None)
    until(lambda: machine.rows()[1]["state"] == "RUNNING")
    assert machine.down().code == 0
    assert machine.run("down").code == 2


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_service_and_what_it_runs(machine, number, tmp_path):
    """M5: nothing of it lives on."""
    machine.up()
    machine.add("--", "sh", "-c", f"echo $$ > {tmp_path}/pid; sleep 60")
    until((tmp_path / "pid").exists)
    os.kill(machine.pid, number)
    until(lambda: not Client(Home(str(machine.home))).home.is_taken())
    assert not Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}").exists()


def test_the_output_of_a_job_can_be_followed_and_is_there_without_a_service(machine, tmp_path):
    """M2: `log -f` ends with the job."""
    machine.up()
    job = machine.add("--", "sh", "-c", f"echo one; while ! test -e {tmp_path}/go; do sleep 0.05; done; echo two")
    following = machine.start("log", job, "-f", stdout=subprocess.PIPE)
    assert following.stdout.readline().startswith(b"whywait: ")
    assert following.stdout.readline() == b"one\n"
    (tmp_path / "go").touch()
    rest, _ = following.communicate(timeout=60)
    assert rest.splitlines()[0] == b"two"
    assert b"exit 0 after" in rest
    machine.down()
    assert "two" in machine.run("log", job).out
    for missing in ("named", "77"):
        assert machine.run("log", missing).code == 2


def test_a_unit_for_systemd_runs_the_same_service(machine):
    """M1: with the options that were given."""
    unit = machine.run("up", "--systemd", "--ram", "1GB").out
    assert f"ExecStart={sys.executable} -m whywait up --ram 1GB\n" in unit
    assert f"Environment=WHYWAIT_HOME={machine.home}\n" in unit
    assert "Delegate=yes" in unit


def test_another_version_is_told(machine, monkeypatch, capsys):
    """M1: which one runs, and how to bring it up to date."""
    machine.up()
    monkeypatch.setattr(clients, "__version__", "99.0")
    with in_home(machine):
        Client().ask("GET", "/machine/status")
    assert "this is 99.0; to bring it up to date: whywait down && whywait up --detach" in capsys.readouterr().err


def test_an_idle_service_uses_no_cpu(machine):
    """M1: after it has worked, too."""
    machine.up()
    machine.run("wait", machine.add("--", "true"))
    machine.run("status")
    time.sleep(1.0)
    stat = Path(f"/proc/{machine.pid}/stat")
    time.sleep(1.0)

    def used():
        return sum(map(int, stat.read_text().rpartition(")")[2].split()[11:13]))

    before = used()
    time.sleep(3.0)
    assert used() - before <= 1  # hundredths of a second


# Killed


def test_a_storm_of_kills_loses_nothing(machine, tmp_path):
    """M5: each accepted job is there once, in order, and ran at most once; nothing of a former life runs on."""
    ran, accepted = tmp_path / "ran", []
    for round_number in range(6):
        machine.up("--slots", "2")
        pid = machine.pid
        script = f'echo "$1" >> {ran}; sleep 0.$(($1 % 3)); setsid sleep 60 & sleep 60'
        command = ["add", "--no-start", "--", "sh", "-c", script, "sh"]
        adding = [
            machine.start(*command, round_number * 10 + index, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            for index in range(4)
        ]
        time.sleep(0.05 * round_number)
        os.kill(pid, signal.SIGKILL)
        accepted += [int(out) for process in adding if (out := process.communicate()[0]).strip()]
        until(lambda: not alive_under(machine.home), "the end of what the service ran")
    machine.up("--slots", "2")
    jobs = machine.rows()
    numbers = [job["number"] for job in jobs]
    assert numbers == sorted(set(numbers))
    assert set(accepted) <= set(numbers)
    runs = ran.read_text().split() if ran.exists() else []
    assert len(runs) == len(set(runs))
    lost = [job for job in jobs if job["outcome"] is not None]
    assert all((job["outcome"], job["cause"]) == ("error", "worker_lost") for job in lost)


def alive_under(home):
    """Return the processes of jobs: they have the way to the home in their environment."""
    mark = f"WHYWAIT_HOME={home}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if (
                    mark in (entry / "environ").read_bytes().split(b"\0")
                    and b"whywait" not in (entry / "cmdline").read_bytes()
                ):
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def test_a_stale_socket_is_no_obstacle(machine):
    """M1: a service that was killed leaves one behind."""
    machine.up()
    os.kill(machine.pid, signal.SIGKILL)
    until(lambda: not Home(str(machine.home)).is_taken())
    assert (machine.home / "machine.sock").exists()
    told = machine.run("ls")
    assert told.code == 2
    assert "no service runs in" in told.err
    assert machine.add("--", "true") == "1"


# Wrong use


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["add"], "there is no command"),
        (["add", "--"], "there is no command"),
        (["do"], "as in: whywait do -- make test"),
        (["do", "--max-wait", "-1", "--", "true"], "not a duration"),
        (["ls", "77"], "77; see whywait ls --help"),
        (["add", "--cpu", "many", "--", "true"], "--cpu"),
        (["add", "--cpu", "9999", "--", "true"], "9999 cpu and the limit is"),
        (["add", "--resource", "licence", "--", "true"], "NAME=AMOUNT"),
        (["add", "--resource", "licence=1", "--", "true"], "'licence'"),
        (["add", "--after", "77", "--", "true"], "no job has the id '77'"),
        (["add", "--colour", "red", "--", "true"], "--colour"),
        (["log", "77"], "no job has the id '77'; see: whywait ls"),
        (["wait", "77"], "no job has the id '77'"),
        (["why", "77"], "no job has the id '77'"),
        (["cancel", "77"], "no job has the id '77'"),
        (["retry"], "needs ids of jobs"),
        (["forget", "--ended", "1"], "needs ids of jobs"),
        (["up", "--cpu", "0"], "--cpu: '0'"),
        (["up", "--slots", "few"], "--slots: 'few'"),
        (["up", "--ram", "much"], "much"),
        (["up", "--gpus", "big,small"], '--gpus: "big" is not a size'),
        (["up", "--keep", "-1"], "--keep"),
        (["up", "--keep-for", "ever"], "ever"),
    ],
)
def test_wrong_use_is_told_in_a_line(wrong_machine, args, says):
    """M1, M2: exit code 2, with the value and what to do; nothing is lost."""
    done = wrong_machine.run(*args)
    assert done.code == 2
    assert says in done.err
    assert (done.err.count("\n"), done.err.partition(" ")[0]) == (1, "whywait:")
    assert wrong_machine.rows() == []


@pytest.fixture(scope="module")
def wrong_machine(tmp_path_factory):
    with machine_in(tmp_path_factory.mktemp("wrong")) as machine:
        yield machine


def test_what_is_no_job_has_no_log_and_no_end_to_wait_for(wrong_machine):
    """M2: said in a line; a slip in its id is told the nearest."""
    runs = wrong_machine.start("do", "--name", "bench", "--", "sleep", "1000")
    until(wrong_machine.rows, "the command")
    (name,) = (row["id"] for row in wrong_machine.rows())
    for verb in ("log", "wait", "retry", "forget"):
        refused = wrong_machine.run(verb, name)
        assert refused.code == 2
        assert refused.err.startswith(f"whywait: {name} is no job: ")
    for verb in ("log", "why", "cancel"):
        refused = wrong_machine.run(verb, name.replace("bench", "bnech"))
        assert refused.code == 2
        assert refused.err.endswith(f"; did you mean {name}?\n")
    assert wrong_machine.run("cancel", name).code == 0
    assert runs.wait(60) == 128 + signal.SIGTERM


@pytest.mark.parametrize("verb", ["ls", "status", "down", "why 1", "cancel 1"])
def test_without_a_service_it_says_how_to_start_one(machine, verb):
    """M1: for the verbs that do not start one."""
    done = machine.run(*verb.split())
    assert done.code == 2
    assert f"no service runs in {machine.home}; start it with: whywait up --detach" in done.err


def test_a_home_with_a_long_name_has_its_socket_too(tmp_path):
    """M1: longer than the address of a socket may be."""
    with machine_in(tmp_path / ("x" * 120) / ("y" * 120)) as machine:
        assert machine.run("wait", machine.add("--", "true")).code == 0


# Who can reach what


def test_only_its_user_can_reach_anything_of_it(machine):
    """M1, M7: the folder, the socket, the store, the logs."""
    before = os.umask(0)
    try:
        machine.up()
    finally:
        os.umask(before)
    machine.run("wait", machine.add("--", "true"))
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in [machine.home, *machine.home.rglob("*")]}
    assert {path.name: mode for path, mode in modes.items() if mode & 0o077} == {}
    assert stat.S_ISSOCK((machine.home / "machine.sock").stat().st_mode)


OF_ANOTHER = pytest.param(
    lambda home: home.mkdir(mode=0o700) or os.chown(home, 12345, -1),
    "is another user's: it belongs to user 12345, and you are user 0",
    marks=pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder to another user"),
    id="of another user",
)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        pytest.param(
            lambda home: home.write_text("mine"), "{} is no folder; choose another one by WHYWAIT_HOME", id="a file"
        ),
        pytest.param(
            lambda home: home.mkdir() or home.chmod(0o755),
            "{} can be entered by other users; close it with: chmod 700 {}",
            id="open to others",
        ),
        OF_ANOTHER,
    ],
)
def test_a_home_that_is_not_a_folder_of_the_user_alone_is_refused(tmp_path, make, says):
    """M1: in a line, by every verb, and it is left as it is."""
    machine = Machine(tmp_path / "home")
    make(machine.home)
    before = machine.home.stat()
    for args in (("up", "--detach"), ("add", "--", "true"), ("ls",)):
        refused = machine.run(*args)
        assert refused.code == 2
        assert says.format(machine.home, machine.home) in refused.err
    assert (machine.home.stat().st_mode, machine.home.stat().st_uid) == (before.st_mode, before.st_uid)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_a_process_of_another_user_is_not_answered(machine):
    """M1: even if it gets at the socket."""
    machine.up()
    machine.home.chmod(0o711)
    (machine.home / "machine.sock").chmod(0o777)
    program = f"""if True:
        import os, socket
        home = os.open({str(machine.home)!r}, os.O_PATH)
        os.setuid(12345)
        s = socket.socket(socket.AF_UNIX)
        s.connect(f"/proc/self/fd/{{home}}/machine.sock")
        s.sendall(b"GET /machine/status HTTP/1.0\\r\\nHost: x\\r\\n\\r\\n")
        while data := s.recv(1000):
            print(data.decode(), end="")
    """
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout.decode()
    machine.home.chmod(0o700)
    assert "403" in told
    assert "for the user who opened it only" in told


def test_the_environment_of_a_job_is_shown_to_nobody(machine):
    """M7: not by any route, event, log or message."""
    machine.up("--slots", "1")
    secret = "do-not-tell-4711"
    for _ in range(2):
        assert machine.run("add", "--", "sleep", "60", env={"TOKEN": secret}).code == 0
    with in_home(machine):
        client = Client()
        for path in (
            "/machine/jobs",
            "/machine/jobs/1",
            "/machine/status",
            "/api/tasks",
            "/api/tasks/default%2F2",
            "/api/events",
            "/api/snapshot",
            "/metrics",
            "/api/report",
        ):
            with client.open("GET", path) as answer:
                assert secret not in answer.text()
    for path in machine.home.rglob("*"):
        if path.is_file() and not path.name.startswith("jobs.db"):
            assert secret.encode() not in path.read_bytes()


def test_forget_leaves_nothing_of_an_environment_on_the_disk(machine):
    """M7: neither in the store nor in its journal, while the service goes on."""
    secrets = ["hunter2-in-the-store", "hunter2-in-the-journal"]

    def are_kept():
        files = [path.read_bytes() for path in machine.home.glob("jobs.db*")]
        return [any(secret.encode() in content for content in files) for secret in secrets]

    for secret in secrets:  # the end of a service brings its journal into the store
        machine.down()
        machine.up()
        added = machine.run("add", "--", "true", env={"PASSWORD": secret}).out.strip()
        assert machine.run("wait", added).code == 0
    assert are_kept() == [True, True]
    machine.run("forget", "--ended")
    assert are_kept() == [False, False]


def test_the_browser_is_led_to_the_page_without_the_token_on_its_command_line(machine, tmp_path):
    """M7: other users see command lines, and not the file that leads there, which goes with the service."""
    machine.up()
    seen, browser = tmp_path / "seen", tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$@" >> {seen}\n')
    browser.chmod(0o755)
    for _ in range(2):
        token = machine.run("status", "--open", env={"BROWSER": str(browser)}).out.strip().partition("#token=")[2]
    door = machine.home / "page.html"
    assert seen.read_text().split() == [door.as_uri()] * 2
    assert token in door.read_text()
    assert door.stat().st_mode & 0o777 == 0o600
    machine.run("down", "--now")
    assert not door.exists()


def test_events_and_metrics_cover_jobs_and_leases_alike(machine):
    """M7: one stream, one count, on the socket."""
    machine.up()
    machine.run("wait", machine.add("--", "true"))
    with in_home(machine):
        from whywait import machine as this_machine

        with this_machine.lease(name="block"):
            pass
        client = Client()
        kinds = [(event["kind"], event.get("name")) for event in client.ask("GET", "/api/events")["events"]]
        assert ("TASK_STARTED", "1") in kinds
        assert ("TASK_FINISHED", "block-1") in kinds
        with client.open("GET", "/metrics") as answer:
            assert "whywait_" in answer.text()


def test_a_client_that_sends_nonsense_is_answered_and_harms_nobody(machine):
    """M1: over the raw socket."""
    machine.up()
    post = "POST /machine/{} HTTP/1.0\r\nHost: x\r\nContent-Length: {}\r\n\r\n{}"
    bodies = [("jobs", "{{{"), ("jobs", "[]"), ("jobs", "{}"), ("leases", "{}"), ("down", "7")]
    for data in (b"\0\0\r\n\r\n", b"GET\r\n\r\n", *(post.format(to, len(body), body).encode() for to, body in bodies)):
        with socket.socket(socket.AF_UNIX) as raw:
            raw.connect(str(machine.home / "machine.sock"))
            raw.sendall(data)
            assert b" 4" in raw.recv(1000)
    assert machine.run("wait", machine.add("--", "true")).code == 0
