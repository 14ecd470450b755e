"""M1, M10, M13, V6: how a service starts, with which options, and what it does when its files are taken from it."""

import json
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import threading
import time
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from machines import Machine, machine_in
from patience import PATIENCE_S, until
from whywait import Authority, Command, CommandFailed
from whywait.errors import MachineError
from whywait.kernel.order import Aging
from whywait.machine.home import Home
from whywait.machine.kept import keep_options, read_options, token_of
from whywait.support.memory import total_memory
from whywait.support.units import format_size


class Plain(Machine):
    """A machine whose options are those of the test alone."""

    def up(self, *options):
        done = self.run("up", "--detach", *options)
        assert done.code == 0, done
        return done.err

    def jobs(self):
        return {job["id"]: job for job in self.rows()}


@pytest.fixture
def machine(tmp_path):
    """Return a machine without a service; what a test starts is ended."""
    machine = Plain(tmp_path / "home")
    yield machine
    machine.down()


# Options are kept


def test_a_start_on_demand_has_the_options_of_the_service_before(machine):
    """M13, M5: killed, and started by any command in any terminal, it has its cards, and no job is lost."""
    told = machine.up("--gpus", "24GB", "--slots", "1")
    assert re.fullmatch(r"whywait: .*\(process \d+\) with --slots 1 --gpus 24GB, kept for the next start; .*\n", told)
    machine.add("--", "sleep", "1000")
    ids = [machine.add("--gpu", "1", "--", "true") for _ in range(5)]
    machine.kill()
    done = machine.run("do", "--", "echo", "did")
    assert (done.code, done.out) == (0, "did\n")
    assert "with the kept options --slots 1 --gpus 24GB, which whywait up --defaults forgets; " in done.err
    assert machine.run("wait", *ids).code == 0


def test_jobs_that_do_not_fit_wait_and_start_under_a_budget_that_has_what_they_need(machine):
    """M13: READY, with the reason; passed over by what fits; not dropped by max_wait; in their order afterwards."""
    machine.up("--gpus", "24GB", "--resource", "licence=2", "--slots", "1")
    machine.add("--", "sleep", "1000")
    card = machine.add("--gpu", "1", "--max-wait", "1h", "--", "true")
    licence = machine.add("--resource", "licence=2", "--", "true")
    last = machine.add("--after", card, "--", "true")
    machine.kill()
    machine.up("--gpus", "none")
    assert machine.run("do", "--", "echo", "did").out == "did\n"
    jobs = machine.jobs()
    assert {jobs[each]["state"] for each in (card, licence, last)} <= {"waiting", "READY", "QUEUED"}
    assert jobs[card]["outcome"] is None
    assert "gpu: needs 1, and there is none here" in machine.run("why", card).out
    assert "licence: needs 2, and there is none here" in machine.run("why", licence).out
    assert "can never start as things are" in machine.run("why", last).out
    refused = machine.run("add", "--gpu", "1", "--", "true")
    assert (refused.code, "it could never start" in refused.err) == (2, True)
    machine.down()
    machine.up("--gpus", "24GB", "--resource", "licence=2")
    assert machine.run("wait", card, licence, last).code == 0


def test_options_are_replaced_used_and_forgotten(machine):
    """M13: `up` with options replaces the kept set, without it uses it, `--defaults` forgets it; each is said."""
    home = Home(str(machine.home))
    machine.up("--slots", "3", "--resource", "a=1", "--resource", "b=2", "--soft-ram")
    kept = ["--slots=3", "--soft-ram", "--resource=a=1", "--resource=b=2"]
    assert read_options(home) == kept
    assert stat.S_IMODE(Path(home.options).stat().st_mode) == 0o600
    machine.down()
    words = "--slots 3 --soft-ram --resource a=1 --resource b=2"
    assert f" with the kept options {words}, which whywait up --defaults forgets" in machine.up()
    status = machine.status()
    assert {gate["name"]: gate["limit"] for gate in status["budget"]} | {"ram": 0} == {
        "cpu": os.cpu_count(), "ram": 0, "a": 1, "b": 2
    }  # fmt: skip
    machine.down()
    assert " with --slots 4, kept for the next start" in machine.up("--slots", "4")
    assert read_options(home) == ["--slots=4"]
    machine.down()
    assert " with --keep 0, kept for the next start" in machine.up("--keep", "0")
    machine.down()
    assert " without options, those that were kept are forgotten" in machine.up("--defaults")
    assert not Path(home.options).exists()
    machine.down()
    assert " with " not in machine.up()


def test_options_that_are_refused_replace_nothing(machine):
    """M13, B6: nor do those of a second service."""
    machine.up("--slots", "3")
    for wrong in (("--slots", "5"), ("--ram", "0"), ("--defaults", "--slots", "5")):
        assert machine.run("up", "--detach", *wrong).code == 2
    assert read_options(Home(str(machine.home))) == ["--slots=3"]


BROKEN = ["", "{", "[1]", '{"--slots": 3}', '["--slots=many"]', '["--no-such-option"]', '["--ram=0"]', "\xff[]"]


@pytest.mark.parametrize("text", BROKEN)
def test_broken_options_are_told_and_nothing_is_lost(machine, text):
    """M13: nothing starts without them; new ones replace them, or they are forgotten."""
    machine.up("--slots", "1")
    machine.add("--", "true")
    machine.down()
    options = Path(Home(str(machine.home)).options)
    options.write_text(text, encoding="latin-1")
    for args in (("up", "--detach"), ("add", "--", "true"), ("up",)):
        refused = machine.run(*args)
        assert refused.code == 2
        assert re.match(r"whywait: the kept options in .*options\.json cannot be used \(.*\): ", refused.err), refused
    assert options.read_text(encoding="latin-1") == text
    machine.up("--slots", "2")
    assert list(machine.jobs()) == ["1"]


def test_options_are_written_whole_or_not_at_all(tmp_path, monkeypatch):
    """M13: a disk that is full, or a kill before the file has its name, leaves those before."""
    home = Home(str(tmp_path / "home"))
    home.make()
    keep_options(home, ["--slots=1"])

    def full(*_):
        raise OSError(28, "No space left on device")

    for name in ("fsync", "replace"):
        with monkeypatch.context() as patch:
            patch.setattr(os, name, full)
            with pytest.raises(MachineError, match=r"options\.json cannot be written: No space left on device"):
                keep_options(home, ["--slots=2"])
        assert read_options(home) == ["--slots=1"]
        assert sorted(path.name for path in Path(home.path).iterdir()) == ["logs", "options.json"]


# The order, and the budget


def test_the_order_of_a_machine_is_made_for_jobs_of_minutes(tmp_path):
    """M10: 10 points every 10 minutes, starved after 30 minutes, greedy; ram is hard."""
    from whywait.machine.service import Service

    service = Service(Home(str(tmp_path / "home")), slots=1, ram="1GB")
    try:
        settings = service.authority.settings
        assert settings.order == Aging(every=600.0, boost=10, cap=99)
        assert (settings.starvation_timeout, settings.backfill, settings.hard_ram) == (1800.0, "greedy", True)
    finally:
        service.close()


@pytest.mark.parametrize(("aging", "lift"), [("10m", "in 10m"), ("90s", "in 1m"), ("off", None), ("2h", "in 2h")])
def test_aging_is_an_option(machine, aging, lift):
    """M10: a time, or none at all; `why` says when the next lift is."""
    machine.up("--slots", "1", "--aging", aging)
    machine.add("--", "sleep", "1000")
    machine.add("--", "true")
    waiting = machine.add("--", "true")
    told = machine.run("why", waiting).out
    assert ("lift" in told) == (lift is not None)
    if lift is not None:
        assert f"the next lift is {lift}" in told.replace("9m 59s", "10m").replace("1h 59m", "2h").replace(
            "in 89.", "in 1m"
        )


def test_memory_that_is_not_there_is_refused_at_once(machine):
    """M10: with the figures, to a command in a terminal and to a job; `--soft-ram` lets it run alone (B2)."""
    machine.up("--ram", "1GB")
    for verb in ("do", "add"):
        refused = machine.run(verb, "--ram", "2GB", "--", "true")
        assert refused.code == 2
        assert "demands 2 GB ram and the limit is 1 GB: it could never start" in refused.err
    machine.down()
    machine.up("--ram", "1GB", "--soft-ram")
    assert machine.run("do", "--ram", "2GB", "--", "echo", "alone").out == "alone\n"


# Sizes


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("do", "--ram", "10", "--", "true"), "--ram: 10 what? write 10GB, or 10B for bytes"),
        (("add", "--ram", "5", "GB", "--", "true"), "--ram: 5 what? write 5GB, or 5B for bytes"),
        (("add", "--vram", "1.5", "--", "true"), "--vram: 1.5 what? write 1.5GB, or 1.5B for bytes"),
        (("add", "--ram", "learned:2", "--", "true"), "--ram: 2 what? write 2GB, or 2B for bytes"),
        (("up", "--ram", "10"), "--ram: 10 what? write 10GB, or 10B for bytes"),
        (("up", "--vram", "6"), "--vram: 6 what? write 6GB, or 6B for bytes"),
        (("up", "--gpus", "24GB,12"), "--gpus: 12 what? write 12GB, or 12B for bytes"),
        (
            ("add", "--ram", "5GB", "GB", "--", "true"),
            "'GB' stands before -- and is no option: write the whole command",
        ),
        (("do", "git", "log", "--", "file"), "'git' stands before -- and is no option: write the whole command"),
    ],
)
def test_a_size_needs_its_unit(machine, args, says):
    """B6: nothing starts, and nothing is queued."""
    refused = machine.run(*args)
    assert refused.code == 2
    assert says in refused.err
    assert not machine.home.exists()


def test_a_size_of_0_is_none(machine):
    """B6: nothing is asked for; and a number of cards is no size."""
    machine.up("--gpus", "2")
    assert machine.run("do", "--ram", "0", "--vram", "0", "--", "echo", "did").out == "did\n"
    assert machine.run("do", "--gpu", "2", "--", "echo", "did").out == "did\n"


@pytest.mark.parametrize("ram", ["0", "0GB", "1EB"])
def test_a_machine_shares_some_memory_and_no_more_than_there_is(machine, ram):
    """B6: refused with both figures."""
    refused = machine.run("up", "--ram", ram)
    assert refused.code == 2
    asked = {"1EB": "1.0 EB"}.get(ram, "0 B")
    assert refused.err == (f"whywait: --ram: {asked} is not allowed: this computer has {format_size(total_memory())}\n")


# Coming while a service starts


@pytest.fixture
def slow_start(machine):
    """Return a function that begins a service which takes its time, because a former life has not ended."""
    home = Home(str(machine.home))
    home.make()
    alive = [home.take_remains()]
    starting = []

    def start(*options):
        process = machine.start("up", *options, stderr=subprocess.PIPE)
        starting.append(process)
        until(home.is_taken, "the begin of a service")
        return process, lambda: os.close(alive.pop())

    yield start
    for process in starting:
        process.terminate()
        process.communicate()
    for fd in alive:
        os.close(fd)


def test_clients_that_come_while_a_service_starts_wait_for_it(machine, slow_start):
    """M1: `do`, `add` and `ls` are served by it, whichever way it was started; a second `up` is refused, afterwards."""
    process, let_go = slow_start("--slots", "2")
    verbs = (("do", "--", "echo", "did"), ("add", "--", "true"), ("ls",), ("up", "--detach"), ("up",))
    coming = [machine.start(*verb, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for verb in verbs]
    time.sleep(0.5)  # they have found no socket by now
    assert [each.poll() for each in coming] == [None] * len(verbs)
    let_go()
    told = [each.communicate(timeout=PATIENCE_S) for each in coming]
    assert [each.returncode for each in coming] == [0, 0, 0, 2, 2]
    assert (told[0][0], told[1][0]) == (b"did\n", b"1\n")
    assert all(b"a service runs in" in err for _, err in told[3:])
    assert machine.pid == process.pid


def test_many_ups_and_clients_at_once_make_one_service(machine):
    """M1: every client is served; of the services one stays, and the others are refused."""
    verbs = [("up", "--detach"), ("do", "--", "echo", "did"), ("add", "--", "true"), ("up", "--detach")] * 2
    coming = [machine.start(*verb, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for verb in verbs]
    told = [each.communicate(timeout=PATIENCE_S) for each in coming]
    clients = [each.returncode for each, verb in zip(coming, verbs, strict=True) if verb[0] != "up"]
    assert clients == [0] * 4, told
    services = [
        (each.returncode, err) for each, verb, (_, err) in zip(coming, verbs, told, strict=True) if verb[0] == "up"
    ]
    assert all(code == 0 or b"a service runs in" in err for code, err in services), services


# Inside a task or a job


def test_inside_a_command_of_a_program_and_of_another_machine_a_service_is_refused(machine, tmp_path):
    """M1, M3: both are process trees that end as a whole."""
    command = machine.command("add", "--", "true")
    environment = {**machine.environment, "PATH": str(tmp_path)}
    with Authority(slots=1) as authority:
        handle = authority.submit(Command(command, env=environment, inherit=False))
        with pytest.raises(CommandFailed) as failed:
            handle.result(PATIENCE_S)
    assert "a service that is started from inside a task or a job would end with it" in failed.value.stderr
    with machine_in(tmp_path / "other") as other:
        inside = ["env", f"WHYWAIT_HOME={machine.home}", f"PATH={tmp_path}", *command]
        done = other.run("do", "--", *inside)
        assert (done.code, "would end with it" in done.err) == (2, True), done
    assert not Home(str(machine.home)).is_taken()


def test_a_service_has_nothing_private_of_the_process_that_starts_it(machine):
    """M7: neither its secrets nor its variables for whywait are with it, in the background or in the foreground."""
    private = {
        "SECRET": "s",
        "WHYWAIT_SLOTS": "1",
        "WHYWAIT_HISTORY": "/nowhere/history.db",
        "WHYWAIT_SCHEDULER": "simple",
    }
    added = machine.run("add", "--", "true", env=private)
    assert added.code == 0
    environment = Path(f"/proc/{machine.pid}/environ").read_bytes().split(b"\0")
    names = {each.partition(b"=")[0].decode() for each in environment} - {""}
    allowed = {"HOME", "PATH", "LANG", "TZ", "CUDA_VISIBLE_DEVICES", "WHYWAIT_HOME"}
    assert {name for name in names if not name.startswith(("LC_", "XDG_"))} <= allowed
    machine.down()
    process = subprocess.Popen(machine.command("up"), env={**machine.environment, **private}, stderr=subprocess.DEVNULL)
    try:
        until(lambda: machine.run("status").code == 0, "the service in the foreground")
        status = machine.status()
        assert status["slots"]["limit"] == os.cpu_count()
    finally:
        process.terminate()
        assert process.wait(PATIENCE_S) == 0


# Its files


def test_a_service_whose_socket_was_removed_listens_again(machine):
    """M1: every verb finds it by the lock, and waits; what it runs goes on."""
    machine.up()
    before = machine.pid
    job = machine.add("--", "sleep", "1000")
    for verb in (("ls",), ("add", "--", "true"), ("status",)):
        (machine.home / "machine.sock").unlink()
        assert machine.run(*verb).code == 0
    assert machine.pid == before
    assert machine.jobs()[job]["outcome"] is None
    (machine.home / "machine.sock").unlink()
    refused = machine.run("up", "--detach")
    assert (refused.code, "a service runs in" in refused.err) == (2, True)
    (machine.home / "machine.sock").unlink()
    assert machine.run("down", "--now").code == 0
    assert not Home(str(machine.home)).is_taken()


def test_a_service_whose_home_was_removed_ends_with_what_it_runs(machine):
    """M1: like `down --now`; its clients are told, and the next service of that home is the only one."""
    machine.up("--slots", "1")
    pid = machine.pid
    held = machine.start("do", "--", "sleep", "1000")
    until(lambda: machine.status()["running_total"] == 1, "the start of a command")
    waiting = machine.start("do", "--quiet", "--", "true", stderr=subprocess.PIPE)
    until(lambda: machine.status()["waiting_total"] == 1, "a request that waits")
    shutil.rmtree(machine.home)
    _, told = waiting.communicate(timeout=PATIENCE_S)
    assert (waiting.returncode, b"by the removal of its folder" in told) == (125, True), told
    assert held.wait(PATIENCE_S) == 128 + signal.SIGTERM
    until(lambda: not Path(f"/proc/{pid}").exists(), "the end of the service")
    assert machine.add("--", "true") == "1"
    assert machine.pid != pid


@pytest.mark.parametrize(
    "answer", [b"hello\n", b"220 mail.example.org ESMTP\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\n{}", b"HTTP/1.1 odd\r\n\r\n"]
)
def test_another_program_on_the_socket_is_told_in_a_sentence(machine, answer):
    """M1: exit status 2, whatever it says."""
    machine.home.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(machine.home / "machine.sock"))
        listener.listen()

        def serve():
            for _ in range(2):
                connection, _ = listener.accept()
                with connection:
                    connection.recv(65536)
                    connection.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        for verb in (("ls",), ("add", "--no-start", "--", "true")):
            refused = machine.run(*verb)
            assert refused.code == 2
            assert "what listens on the socket of the service is another program" in refused.err
        thread.join(PATIENCE_S)


# The token of the page


def status_of(url, token=None, method="GET"):
    """Return the HTTP status and the body that a request is answered with."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        with urlopen(Request(url, headers=headers, data=b"{}" if method == "POST" else None, method=method)) as answer:
            return answer.status, answer.read()
    except HTTPError as refused:
        with refused:
            return refused.code, b""


def page_of(machine):
    address, _, token = machine.run("status", "--open").out.strip().partition("/#token=")
    return address, token


def test_the_token_of_the_page_stays_until_a_new_one_is_asked_for(machine):
    """V6: across ends of the service, in a file that only its user can read."""
    home = Home(str(machine.home))
    machine.up()
    _, token = page_of(machine)
    assert Path(home.token).read_text() == token
    assert stat.S_IMODE(Path(home.token).stat().st_mode) == 0o600
    machine.kill()
    machine.up()
    assert page_of(machine)[1] == token
    machine.down()
    machine.up("--new-token")
    address, other = page_of(machine)
    assert other != token
    assert [status_of(f"{address}/api/snapshot", each)[0] for each in (token, other)] == [401, 200]
    assert read_options(home) == []


def test_a_broken_token_is_told(tmp_path):
    """V6: no page is opened with it."""
    home = Home(str(tmp_path / "home"))
    home.make()
    Path(home.token).write_text("short")
    with pytest.raises(MachineError, match=r"token holds no token: make another one by whywait up --new-token"):
        token_of(home)


def test_everything_of_the_page_but_the_page_itself_needs_the_token(machine):
    """V6: reading too; each route is asked."""
    machine.up()
    address, token = page_of(machine)
    paths = json.loads(status_of(f"{address}/openapi.json", token)[1])["paths"]
    asked = {(method.upper(), path) for path, methods in paths.items() for method in methods} | {
        ("GET", "/openapi.json")
    }
    assert len(asked) > 10
    open_to_all = {
        (method, path)
        for method, path in asked
        if status_of(address + re.sub(r"\{\w+\}", "x", path), method=method)[0] != 401
    }
    assert open_to_all == {("GET", "/healthz")}
    assert token.encode() not in status_of(f"{address}/")[1]
    assert status_of(f"{address}/machine/jobs", token, "POST")[0] == 404, "commands come over the socket only"
