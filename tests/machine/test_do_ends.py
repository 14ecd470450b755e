"""Every way in which ``whywait do`` can end: the permission comes back when nothing of the command is left."""

import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from machines import active, machine_in
from patience import until
from process_trees import OUTLIVED, state_of
from whywait.machine import do_guard
from whywait.machine.client import Machine as Client
from whywait.machine.home import Home

# A command with three kinds of descendants: a child, a daemon in a session of its own, and one with no environment.
FAMILY = """
echo $$ > command
sleep 1000 & echo $! > child
setsid sh -c 'sh -c "echo \\$\\$ > daemon; exec sleep 1000" &' </dev/null >/dev/null 2>&1
env -i setsid sh -c 'echo $$ > bare; exec sleep 1000' </dev/null >/dev/null 2>&1 &
while [ ! -s bare ] || [ ! -s daemon ]; do sleep 0.01; done
echo ready
wait
"""
MEMBERS = ("command", "child", "daemon", "bare")


@pytest.fixture(scope="module")
def machine(tmp_path_factory):
    with machine_in(tmp_path_factory.mktemp("machine"), "--cpu", "2", "--slots", "2") as machine:
        yield machine


@pytest.fixture(autouse=True)
def nothing_is_left(machine):
    """M3: after each test all permissions are back."""
    yield
    until(lambda: active(machine) == 0, "all permissions coming back")


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def pids(folder, names=MEMBERS):
    return [int((folder / name).read_text()) for name in names]


def guard_of(client):
    """Return the child of the client."""
    return int(Path(f"/proc/{client.pid}/task/{client.pid}/children").read_text().split()[0])


def family(machine, folder, *options):
    """Start a client with the family; return it when all of the family lives."""
    client = machine.start(
        "do", *options, "--", "sh", "-c", FAMILY, cwd=folder, stdout=subprocess.PIPE, process_group=0
    )
    assert client.stdout.readline() == b"ready\n"
    return client


def ended(client):
    client.stdout.close()
    return client.wait(30)


def assert_all_dead_before_the_permission_is_back(machine, processes):
    def is_back():
        count = active(machine)
        alive = [pid for pid in processes if is_alive(pid)]
        assert count or not alive, "the permission was back before the last descendant had ended"
        return not count

    until(is_back, "the permission coming back")
    assert not [pid for pid in processes if is_alive(pid)]


@pytest.mark.parametrize("victims", ["client", "guard", "both", "group"])
def test_a_client_that_is_killed_takes_its_command_with_it(machine, tmp_path, victims):
    """M3: with all descendants, daemons included, and the permission is back only then."""
    client = family(machine, tmp_path)
    processes, guard = pids(tmp_path), guard_of(client)
    for pid in {"client": [client.pid], "guard": [guard], "both": [guard, client.pid], "group": [-client.pid]}[victims]:
        os.kill(pid, signal.SIGKILL)
    ended(client)
    assert_all_dead_before_the_permission_is_back(machine, processes)


def test_a_process_whose_first_thread_has_ended_ends_with_its_client(machine, tmp_path):
    """M3: whatever is killed, the permission is back when all threads have ended."""
    script = f"{sys.executable} -c '{OUTLIVED}' & echo $! > command; wait; exec sleep 1000"
    client = machine.start("do", "--", "sh", "-c", script, cwd=tmp_path)
    command = tmp_path / "command"
    until(lambda: command.exists() and state_of(int(command.read_text() or 0)) == "Z", "the end of the first thread")
    for pid in (guard_of(client), client.pid):
        os.kill(pid, signal.SIGKILL)
    client.wait()
    until(lambda: active(machine) == 0, "the permission coming back")
    assert len(list(Path("/proc").glob(f"{command.read_text().strip()}/task/*"))) <= 1


@pytest.mark.parametrize("then", ["the command ends", "the client is killed", "a cancel", "the service is killed"])
def test_a_guard_that_was_stopped_goes_on(tmp_path, then):
    """M3: it sees the end of the command, of the client and of the service all the same."""
    with machine_in(tmp_path) as machine:
        client = family(machine, tmp_path, "--name", "guarded")
        guard = guard_of(client)
        os.kill(guard, signal.SIGSTOP)
        if then == "the command ends":
            os.kill(pids(tmp_path, ["command"])[0], signal.SIGKILL)
            assert client.wait(30) == 128 + signal.SIGKILL
            os.kill(guard, signal.SIGCONT)
            for pid in pids(tmp_path):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        elif then == "the client is killed":
            client.kill()
        elif then == "a cancel":
            assert machine.run("cancel", "guarded-1").code == 0
        else:
            os.kill(machine.pid, signal.SIGKILL)
        ended(client)
        until(lambda: not [pid for pid in pids(tmp_path) if is_alive(pid)], "the end of the family")


WISHED = """
import os, sys
from whywait.machine.foreground import run
from whywait.trees.system import new_mark

class Request:
    has_message = True
    fileno = staticmethod(lambda: os.pipe()[0])
    ended = staticmethod(lambda *_, **__: None)
    takes = staticmethod(lambda _: True)

    def receive(self):
        self.has_message = False
        return {"wish": "abort", "cause": "cancelled", "by": "a test"}

print(run(Request(), ["sleep", "1000"], {**os.environ, "WHYWAIT_LEASE": f"{new_mark():x}"}, None))
"""


def test_a_wish_that_comes_together_with_the_permission_is_heeded():
    """X3: the descriptor shows nothing of it any more."""
    done = subprocess.run([sys.executable, "-c", WISHED], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == f"({int(signal.SIGTERM)}, 'cancelled', 'a test')\n"


def running(machine, prefix):
    rows = machine.rows()
    return next((row["id"] for row in rows if row["id"].startswith(prefix) and row["state"] == "RUNNING"), None)


def test_a_daemon_that_the_command_leaves_behind_holds_the_permission(machine, tmp_path):
    """M2, M3: the client leaves with the command's status, nothing holds its streams; the permission comes later."""
    daemon = "setsid sh -c 'echo $$ > daemon; exec sleep 1000' >/dev/null 2>&1 &"
    script = f"{daemon} while [ ! -s daemon ]; do sleep 0.01; done; echo text; exit 4"
    done = machine.run("do", "--", "sh", "-c", script, cwd=tmp_path)
    assert (done.code, done.out, done.err) == (4, "text\n", "")
    daemon = pids(tmp_path, ["daemon"])[0]
    assert is_alive(daemon)
    assert active(machine) == 1
    os.kill(daemon, signal.SIGTERM)
    assert_all_dead_before_the_permission_is_back(machine, [daemon])


def test_a_client_that_is_killed_while_it_waits_has_withdrawn_its_request(machine, tmp_path):
    """M3: what it asked for goes to the next."""
    first = family(machine, tmp_path, "--cpu", "2")
    second = machine.start("do", "--cpu", "2", "--", "touch", "ran", cwd=tmp_path, stderr=subprocess.PIPE)
    assert b"waits: cpu" in second.stderr.readline()
    second.kill()
    second.stderr.close()
    second.wait()
    first.kill()
    ended(first)
    assert machine.run("do", "--cpu", "2", "--", "true").code == 0
    assert not (tmp_path / "ran").exists()


def test_clients_that_are_stopped_at_any_moment_keep_nothing_from_others(machine):
    """M15: starting, asking, waiting, taking, running; what has not begun goes to others, and begins later."""
    chance = random.Random(15)
    for _ in range(12):
        client = machine.start("do", "--quiet", "--cpu", "2", "--", "true")
        time.sleep(chance.uniform(0, 0.25))
        client.send_signal(signal.SIGSTOP)
        assert machine.run("do", "--quiet", "--cpu", "2", "--", "true").code == 0
        client.send_signal(signal.SIGCONT)
        assert client.wait(30) == 0


def test_clients_that_are_killed_at_any_moment_leave_nothing_behind(machine, tmp_path):
    """M3: in every phase: starting, asking, waiting, forking, running, ending."""
    chance = random.Random(18)
    for number in range(25):
        mark = f"{1000 + number}.5"
        client = machine.start("do", "--", "sh", "-c", f"sleep {mark} & exec sleep {mark}", stderr=subprocess.DEVNULL)
        time.sleep(chance.uniform(0, 0.3))
        client.kill()
        client.wait()
        until(lambda mark=mark: not running_with(mark), f"the end of sleep {mark}")
    until(lambda: active(machine) == 0, "all permissions coming back")


def running_with(word):
    """Return the processes that have a word among their arguments."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                if word.encode() in (entry / "cmdline").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def test_signals_to_the_client_reach_the_command_once(machine, tmp_path):
    """M2: kill PID means the command; it decides what happens."""
    script = (
        "trap 'echo one >> got' USR1; trap 'echo term >> got; exit 9' TERM; echo ready; while :; do sleep 0.01; done"
    )
    client = machine.start("do", "--", "sh", "-c", script, cwd=tmp_path, stdout=subprocess.PIPE)
    client.stdout.readline()
    client.send_signal(signal.SIGUSR1)
    until((tmp_path / "got").exists, "the first signal")
    client.send_signal(signal.SIGTERM)
    assert ended(client) == 9
    assert (tmp_path / "got").read_text() == "one\nterm\n"


def test_signals_that_the_client_ignores_are_ignored_by_the_command(machine):
    """M2: as by any child of a shell."""
    shown = "grep SigIgn /proc/self/status"
    whywait = " ".join(machine.command("do"))
    outs = [
        subprocess.run(
            ["sh", "-c", f"trap '' HUP INT QUIT TERM TSTP TTIN TTOU; {prefix} {shown}"],
            env=machine.environment, capture_output=True, check=True,
        ).stdout
        for prefix in ("", f"{whywait} --")
    ]  # fmt: skip
    assert outs[0] == outs[1]


def test_a_command_that_cannot_be_run_is_told_before_anything_waits(machine, tmp_path):
    """M2: as shells do: 127 not found, 126 not executable; one line."""
    missing = machine.run("do", "--", "no-such-program")
    assert (missing.code, missing.err) == (127, "whywait: no-such-program: command not found\n")
    (tmp_path / "text").write_text("no program")
    forbidden = machine.run("do", "--", tmp_path / "text")
    assert forbidden.code == 126
    assert forbidden.err == f"whywait: {tmp_path}/text: Permission denied\n"


def test_without_a_terminal_one_line_tells_of_the_wait_and_one_of_its_end(machine, tmp_path):
    """M2: on stderr; with --quiet none."""
    first = family(machine, tmp_path, "--cpu", "2")
    clients = [
        machine.start("do", "--cpu", "2", *quiet, "--", "echo", "ran", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for quiet in ([], ["--quiet"])
    ]
    line = clients[0].stderr.readline()
    assert line.startswith(b"whywait: waits: cpu: needs 2, 0 of 2 free, held by sh"), line
    first.kill()
    ended(first)
    outs = [client.communicate(timeout=30) for client in clients]
    assert outs[0][0] == outs[1][0] == b"ran\n"
    assert outs[0][1].startswith(b"whywait: runs after ")
    assert outs[0][1].count(b"\n") == 1
    assert outs[1][1] == b""


WAITS = "import signal, sys, time; signal.signal(signal.SIGTERM, {}); print('ready', flush=True); time.sleep(1000)"
HEEDS, IGNORES = WAITS.format("lambda *_: sys.exit(0)"), WAITS.format("signal.SIG_IGN")


def told(client):
    """Return the exit status of a client, and what it said on stderr."""
    _, err = client.communicate(timeout=60)
    return client.returncode, err.decode()


def begun(machine, *options, script=HEEDS):
    """Start a client, and return it when its command runs."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    client = machine.start("do", "--name", "it", *options, "--", sys.executable, "-c", script, **pipes)
    assert client.stdout.readline() == b"ready\n"
    return client


@pytest.mark.parametrize("script", [HEEDS, IGNORES], ids=["exits 0", "is killed"])
def test_a_timeout_is_told_and_is_124(machine, script):
    """M14: whatever the command makes of the signal."""
    status, err = told(begun(machine, "--timeout", "0.2", script=script))
    assert re.fullmatch(r"whywait: it-\d+ was ended: it has run for as long as --timeout allows\n", err), err
    assert status == 124


@pytest.mark.parametrize(("script", "status"), [(HEEDS, 143), (IGNORES, 137)], ids=["exits 0", "is killed"])
def test_a_cancel_is_told_with_the_client_that_asked_for_it(machine, script, status):
    """M14: 128 and the signal that ended the command, even if it exits 0 then."""
    client = begun(machine, script=script)
    assert machine.run("cancel", running(machine, "it-")).code == 0
    found, err = told(client)
    assert re.fullmatch(rf"whywait: it-\d+ was ended: it was cancelled by process \d+ of \S+ {os.getpid()}.*\n", err), (
        err
    )
    assert found == status


def test_a_cancel_by_the_page_is_told(machine):
    """M14: which is no process that the service could name."""
    client = begun(machine)
    name = running(machine, "it-")
    Client(Home(str(machine.home))).ask("POST", f"/api/tasks/{name}/cancel", {})  # as the page asks, with a token
    assert told(client) == (143, f"whywait: {name} was ended: it was cancelled by the page\n")


def test_the_end_of_a_request_that_waits_is_told_and_is_125(tmp_path):
    """M14: cancelled, given up, or ended with its scope or the service."""
    with machine_in(tmp_path, "--cpu", "1") as machine:
        first = begun(machine, "--cpu", "1")

        def waiting(*options):
            client = machine.start("do", "--cpu", "1", "--name", "w", *options, "--", "true", stderr=subprocess.PIPE)
            assert b"waits: cpu" in client.stderr.readline()
            return client

        client = waiting()
        name = next(row["id"] for row in machine.rows() if row["id"].startswith("w-"))
        assert machine.run("cancel", name).code == 0
        status, err = told(client)
        assert re.fullmatch(rf"whywait: the request was cancelled by process \d+ of \S+ {os.getpid()}.*\n", err), err
        assert status == 125
        status, err = told(waiting("--max-wait", "0.1"))
        assert (status, err) == (125, "whywait: the request has waited for as long as --max-wait allows\n")
        client = waiting("--scope", "other")
        Client(Home(str(machine.home))).ask("POST", "/api/scopes/other/dispose", {})  # as the page asks
        assert told(client) == (125, "whywait: its scope was ended, and with it the request\n")
        client = waiting()
        down = machine.start("down", stderr=subprocess.DEVNULL)  # ends with what runs
        status, err = told(client)
        assert re.fullmatch(r"whywait: the service was ended by whywait down \(.*\), and with it the request\n", err), (
            err
        )
        assert status == 125
        first.terminate()
        told(first)
        assert down.wait(60) == 0


@pytest.mark.parametrize("how", ["down --now", "a signal", "SIGKILL"])
def test_the_end_of_the_service_is_told_to_what_waits_and_what_runs(tmp_path, how):
    """M14: told to end or killed, which are different things."""
    with machine_in(tmp_path, "--cpu", "1") as machine:
        first = begun(machine, "--cpu", "1")
        second = machine.start("do", "--cpu", "1", "--", "true", stderr=subprocess.PIPE)
        assert b"waits: cpu" in second.stderr.readline()
        if how == "down --now":
            assert machine.run("down", "--now").code == 0
            by = rf"was ended by whywait down --now \(process \d+ of \S+ {os.getpid()}.*\)"
        else:
            os.kill(machine.pid, signal.SIGKILL if how == "SIGKILL" else signal.SIGTERM)
            by = "was killed" if how == "SIGKILL" else "was ended by a signal"
        status, err = told(first)
        assert re.fullmatch(rf"whywait: it-\d+ was ended: the service {by}\n", err), err
        assert status == 143
        status, err = told(second)
        assert re.fullmatch(rf"whywait: the service {by}, and with it the request\n", err), err
        assert status == 125


def test_a_guard_that_was_killed_is_told(machine):
    """M14: 128 and SIGKILL, of which the command dies with it."""
    client = begun(machine)
    os.kill(guard_of(client), signal.SIGKILL)
    status, err = told(client)
    assert re.fullmatch(r"whywait: it-\d+ was ended: the process that guards it was killed\n", err), err
    assert status == 137


def test_an_end_of_its_own_is_told_by_its_status_alone(machine):
    """M2, M14: no line where nothing else has ended the command; SIGINT ends the client too, as shells expect."""
    for script, status in (("exit 3", 3), ("kill -TERM $$", 143), ("kill -INT $$", -signal.SIGINT)):
        done = machine.run("do", "--timeout", "1h", "--", "sh", "-c", script)
        assert (done.code, done.err) == (status, "")


@pytest.mark.parametrize("kills", [0, 1])
def test_a_kill_by_the_system_for_lack_of_memory_is_told(monkeypatch, kills):
    """M14, U2: a SIGKILL that nothing of whywait sent, while the system killed for memory."""
    counts = iter([0, kills, kills])
    monkeypatch.setattr(do_guard, "kills_for_memory", lambda **_: next(counts))
    monkeypatch.setattr(os, "kill", lambda *_: None)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        guard = do_guard.DoGuard(theirs, None, None)
        guard.changed(signal.SIGKILL)
        ours.settimeout(0)
        if kills:
            assert ours.recv(64) == b"because killed "
        assert guard._is_killed_for_memory() == bool(kills)
