"""``whywait do`` in an interactive bash on a pseudo-terminal: job control, the waiting line, the end."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from machines import active, machine_in
from patience import until
from shells import Shell


@pytest.fixture(scope="module")
def machine(tmp_path_factory):
    with machine_in(tmp_path_factory.mktemp("machine"), "--cpu", "2", "--slots", "2", "--ram", "24GB") as machine:
        yield machine


@pytest.fixture
def shell(machine):
    with Shell(machine) as shell:
        yield shell


def test_the_command_has_the_terminal_and_its_status_comes_back(shell):
    """M2: stdin, stdout, stderr, window size, environment and directory are the terminal's and the shell's."""
    assert shell.run("cd /; NAME=me whywait do -- sh -c 'echo $NAME in $PWD; test -t 0 -a -t 1 -a -t 2; exit $?'") == (
        "cd /; NAME=me whywait do -- sh -c 'echo $NAME in $PWD; test -t 0 -a -t 1 -a -t 2; exit $?'\nme in /\n",
        0,
    )
    shell.type("""whywait do -- sh -c 'trap "stty size; exit" WINCH; echo here; while :; do sleep 0.01; done'""")
    shell.until("here\r\n")
    shell.resize(91, 33)
    shell.until("33 91\r\n")
    shell.finish()
    assert shell.run("whywait do -- sh -c 'exit 7'").status == 7
    assert shell.run("whywait do -- sh -c 'kill -KILL $$'").status == 128 + signal.SIGKILL
    shell.type("whywait do -- sh -c 'read line; echo got $line'")
    shell.type("something")
    assert shell.finish().out.endswith("got something\n")


@pytest.mark.parametrize(
    ("command", "status", "end"),
    [
        ("sh -c 'echo here; exec sleep 100'; echo not reached", 128 + signal.SIGINT, ""),
        ("""sh -c 'trap "echo caught; exit 5" INT; echo here; while :; do sleep 0.01; done'""", 5, "caught\n"),
        ("sh -c 'echo here >&2; exec sleep 100' | whywait do -- cat", 128 + signal.SIGINT, ""),
    ],
    ids=["dies of it", "handles it", "in a pipeline"],
)
def test_ctrl_c_is_for_the_command_to_decide(shell, machine, command, status, end):
    """M2: of death by SIGINT the shell does not go on with the next command; what survives it, the client survives."""
    shell.type(f"whywait do -- {command}")
    shell.until("here\r\n")
    until(lambda: active(machine) == 1 + ("|" in command), "all commands")
    shell.press_ctrl_c()
    done = shell.finish()
    assert done.status == status
    assert done.out.endswith(end)
    assert "\nnot reached" not in done.out


def test_ctrl_z_stops_the_job_and_fg_goes_on(shell):
    """M2: the shell sees its job stopped; fg gives the terminal back, also to read from it."""
    shell.type("whywait do -- sh -c 'echo here; read line; echo got $line'")
    shell.until("here\r\n")
    shell.press_ctrl_z()
    stopped = shell.finish()
    assert stopped.status == 128 + signal.SIGTSTP
    assert "Stopped" in stopped.out
    shell.type("fg")
    shell.type("more")
    done = shell.finish()
    assert done.out.endswith("got more\n")
    assert done.status == 0


COUNTS = "whywait do --name count -- sh -c 'echo here; while :; do echo still >> count; sleep 0.01; done'"


def state_of(machine):
    row = machine.row("")
    return row and (row["id"], row["state"])


def test_a_paused_command_stops_and_goes_on_by_resume_alone(shell, machine):
    """X1, X2, M7, M15: it parks and keeps its permission; the shell sees its job stopped; fg does not undo a pause."""
    counted = machine.home.parent / "count"
    shell.type(COUNTS)
    shell.until("here\r\n")
    name, _ = state_of(machine)
    paused = machine.run("pause", name)
    assert paused.out == f"{name}: paused\n", paused.err
    assert "Stopped" in shell.finish().out
    size = counted.stat().st_size
    assert active(machine) == 1
    assert state_of(machine) == (name, "PAUSED")
    assert counted.stat().st_size == size
    assert machine.run("resume", name).code == 0
    until(lambda: counted.stat().st_size > size, "the command going on")
    shell.type("fg")
    shell.until("whywait do")  # bash shows what it lets go on
    assert machine.run("pause", name).code == 0
    said = f"whywait: {name} is paused by whywait pause; it goes on with: whywait resume {name}\n"
    assert said in shell.finish().out
    assert said in shell.run("fg").out
    assert state_of(machine) == (name, "PAUSED")
    assert machine.run("resume", name).code == 0
    until(lambda: state_of(machine) == (name, "RUNNING"), "the command going on")
    shell.type("fg")
    shell.until("whywait do")
    shell.press_ctrl_c()
    assert shell.finish().status == 128 + signal.SIGINT
    until(lambda: active(machine) == 0, "the permission coming back")


STOPPED = "paused (its terminal stopped it)"


def test_a_command_that_ctrl_z_has_stopped_is_shown_as_such(shell, machine):
    """M15: in ls, status and why; each why that names it as a holder says so; only its terminal lets it go on."""
    shell.type("whywait do --cpu 2 --name held -- sh -c 'echo here; read line'")
    shell.until("here\r\n")
    waits = machine.start("do", "--cpu", "1", "--name", "next", "--", "true", stderr=subprocess.PIPE)
    shell.press_ctrl_z()
    shell.finish()
    row = until(lambda: (row := machine.row("held-"))["stopped"] and row, "the service hearing of the stop")
    name = row["id"]
    assert row["state"] == "PAUSED"
    assert re.search(rf"^{name} +{re.escape(STOPPED)} ", machine.run("ls").out, re.MULTILINE)
    assert re.search(rf"^ *{name}: .*, {re.escape(STOPPED)}\)$", machine.run("status").out, re.MULTILINE)
    assert f"{name} has been {STOPPED} for " in machine.run("why", name).out
    assert re.search(
        rf"held by {name} \(2, .*, {re.escape(STOPPED)}\)", machine.run("why", machine.row("next-")["id"]).out
    )
    refused = machine.run("resume", name)
    assert "its terminal stopped it: it goes on with fg there" in refused.err
    assert refused.code != 0
    shell.type("fg")
    until(lambda: machine.row("held-")["state"] == "RUNNING", "the service hearing of fg")
    shell.type("")
    assert shell.finish().status == 0
    assert waits.wait(30) == 0
    waits.stderr.close()


# It starts no process: a shell that Ctrl-Z meets while it starts one may not be stopped at all.
COUNTS_ALONE = """import time
print("here", flush=True)
while True:
    print("still", file=open("count", "a"))
    time.sleep(0.01)"""


def test_a_cancel_is_told_with_the_terminal_that_it_came_from(shell, machine):
    """M14: the shell in which it was typed, and where that is."""
    shell.type("whywait do --name victim -- sleep 1000")
    name = until(lambda: (row := machine.row("victim-")) and row["state"] == "RUNNING" and row["id"], "the command")
    with Shell(machine) as other:
        other.run(f"whywait cancel {name}")
        terminal, pid = other.run("tty; echo $$").out.split()[-2:]
        where = f"bash {pid} on {terminal.removeprefix('/dev/')}"
    done = shell.finish()
    assert re.search(
        rf"^whywait: {name} was ended: it was cancelled by process \d+ of {where}$", done.out, re.MULTILINE
    )
    assert done.status == 128 + signal.SIGTERM


def test_a_pause_and_a_stop_are_apart(shell, machine):
    """M15: it goes on when neither holds, whichever comes last."""
    shell.type(f"whywait do --name count -- {sys.executable} -c '{COUNTS_ALONE}'")
    shell.until("here\r\n")
    counted = machine.home.parent / "count"
    name, _ = state_of(machine)
    for last in ("fg", "resume"):
        shell.press_ctrl_z()
        shell.finish()
        until(lambda: machine.row("count-")["stopped"], "the service hearing of the stop")
        assert machine.run("pause", name).code == 0
        if last == "fg":
            assert machine.run("resume", name).code == 0
            row = machine.row("count-")
            assert (row["state"], row["stopped"]) == ("PAUSED", True)
        else:
            assert "is paused by whywait pause" in shell.run("fg").out
            until(lambda: not machine.row("count-")["stopped"], "the end of the stop")
            assert machine.row("count-")["state"] == "PAUSED"
        size = counted.stat().st_size
        if last == "resume":
            assert machine.run("resume", name).code == 0
        shell.type("fg")
        until(lambda size=size: counted.stat().st_size > size, "the command going on")
        until(lambda: state_of(machine) == (name, "RUNNING"), "the service hearing of it")
        shell.until("whywait do")
    shell.press_ctrl_c()
    shell.finish()


@pytest.mark.parametrize("whom", ["the client", "the group"])
def test_a_command_stops_and_goes_on_with_its_client(machine, tmp_path, whom):
    """M15: also where only the client was stopped, which cannot pass that on."""
    command = (sys.executable, "-c", COUNTS_ALONE)
    client = machine.start(
        "do", "--name", "count", "--", *command, cwd=tmp_path, process_group=0, stdout=subprocess.DEVNULL
    )
    counted = tmp_path / "count"
    until(counted.exists, "the command")
    pid = client.pid if whom == "the client" else -client.pid
    os.kill(pid, signal.SIGSTOP)
    until(lambda: machine.row("count-")["stopped"], "the service hearing of the stop")
    size = counted.stat().st_size
    assert machine.row("count-")["state"] == "PAUSED"
    assert counted.stat().st_size == size
    os.kill(pid, signal.SIGCONT)
    until(lambda: counted.stat().st_size > size, "the command going on")
    until(lambda: machine.row("count-")["state"] == "RUNNING", "the service hearing of it")
    client.terminate()
    assert client.wait(30) == 128 + signal.SIGTERM


def test_a_pause_is_not_lost_where_the_command_is_let_go_on_at_that_moment(shell, machine):
    """X1, M7: a shell's SIGCONT takes back the stop that is on its way; the command stops all the same."""
    shell.type("whywait do -- sh -c 'echo $$ here; while :; do sleep 0.01; done'")
    pid = int(re.search(r"(\d+) here\r\n", shell.until("here\r\n"))[1])
    name, _ = state_of(machine)

    def let_go_on():
        end = time.monotonic() + 1.5
        while time.monotonic() < end:
            os.kill(pid, signal.SIGCONT)

    thread = threading.Thread(target=let_go_on)
    thread.start()
    try:
        assert machine.run("pause", name).code == 0
    finally:
        thread.join()
    assert machine.run("cancel", name).code == 0
    until(lambda: active(machine) == 0, "the end of the command")


STARTS = """import os
print(os.getpid(), "here", flush=True)
while True:
    pid = os.posix_spawn("/bin/true", ["true"], {}, file_actions=[(os.POSIX_SPAWN_OPEN, 1, "door", os.O_WRONLY, 0)])
    os.waitpid(pid, 0)"""


@pytest.mark.parametrize("then", ["begins", "is left behind"])
def test_a_command_that_is_starting_another_is_paused(shell, machine, then):
    """X1: the system stops it only when the other has begun, so that is not stopped before."""
    door = machine.home.parent / "door"
    door.unlink(missing_ok=True)
    os.mkfifo(door)  # to open it for writing is to wait for a reader
    shell.type(f"whywait do --name starts -- {sys.executable} -c '{STARTS}'")
    pid = int(re.search(r"(\d+) here\r\n", shell.until("here\r\n"))[1])
    status = Path(f"/proc/{pid}/status")
    until(lambda: "State:\tD" in status.read_text(encoding="utf-8"), "the command waiting for the other to begin")
    name, _ = state_of(machine)
    pausing = machine.start("pause", name)
    until(lambda: _has_to_stop(status), "the stop on its way")
    if then == "begins":
        os.close(os.open(door, os.O_RDONLY | os.O_NONBLOCK))
    else:
        os.kill(pid, signal.SIGKILL)
    assert pausing.wait() == 0
    assert state_of(machine) == (name, "PAUSED")
    assert machine.run("cancel", name).code == 0
    until(lambda: active(machine) == 0, "the end of the command")


def _has_to_stop(status):
    found = re.search(r"ShdPnd:\t(\w+)", status.read_text(encoding="utf-8"))
    return int(found[1], 16) >> (signal.SIGSTOP - 1) & 1


@pytest.mark.parametrize("by", ["the terminal", "the service"])
def test_a_stopped_command_that_is_cancelled_is_no_stopped_job_of_its_shell(shell, machine, by):
    """M3, X3: the client is woken to leave with its command."""
    shell.type("whywait do -- sh -c 'echo here; exec sleep 1000'")
    shell.until("here\r\n")
    name, _ = state_of(machine)
    if by == "the terminal":
        shell.press_ctrl_z()
    else:
        assert machine.run("pause", name).code == 0
    shell.finish()
    assert machine.run("cancel", name).code == 0
    until(lambda: active(machine) == 0, "the end of the command")
    assert shell.run("wait %1").status == 128 + signal.SIGTERM


READS = """import pathlib, time
print("here", flush=True)
for _ in range(20):
    time.sleep(0.01)
pathlib.Path("passed").touch()
print("got", input())"""


def test_bg_goes_on_in_the_background_and_reading_there_stops_it(shell, machine):
    """M2: as a job without whywait: bg lets it run, reading from the terminal stops it until fg."""
    home = machine.home.parent
    shell.type(f"""whywait do -- {sys.executable} -c '{READS}'""")
    shell.until("here\r\n")
    shell.press_ctrl_z()
    shell.finish()
    shell.run("bg")
    until((home / "passed").exists, "the command going on")
    until(lambda: "Stopped" in shell.run("jobs").out, "the stop by the terminal")
    shell.type("fg")
    shell.type("words")
    assert shell.finish().out.endswith("got words\n")


def test_a_command_that_stops_itself_stops_the_job(shell):
    """M2: the client stops and goes on with the command, whichever way that happened."""
    assert shell.run("whywait do -- sh -c 'kill -STOP $$; echo on'").status == 128 + signal.SIGSTOP
    assert shell.run("fg").out.endswith("on\n")


FULL_SCREEN = """
import os, signal, sys, termios, tty
before = termios.tcgetattr(0)
def stop(number, frame):
    termios.tcsetattr(0, termios.TCSADRAIN, before)
    signal.signal(signal.SIGTSTP, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGTSTP)
    signal.signal(signal.SIGTSTP, stop)
    tty.setcbreak(0)
    os.write(1, b"again\\n")
signal.signal(signal.SIGTSTP, stop)
woken, wake = os.pipe()
os.set_blocking(wake, False)
signal.set_wakeup_fd(wake)
tty.setcbreak(0)
os.write(1, b"screen\\n")
import select
while 0 not in select.select([0, woken], [], [])[0]:
    os.read(woken, 1)
print("key", os.read(0, 1), flush=True)
termios.tcsetattr(0, termios.TCSADRAIN, before)
"""


def test_a_full_screen_program_leaves_and_finds_the_terminal_as_it_was(shell, machine):
    """M2: a program that changes the terminal's modes restores them before the shell has the terminal back."""
    (machine.home.parent / "screen.py").write_text(FULL_SCREEN)
    shell.type(f"whywait do -- {sys.executable} screen.py")
    shell.until("screen\r\n")
    shell.press_ctrl_z()
    assert "Stopped" in shell.finish().out
    assert "-icanon" not in shell.run("stty -a").out
    shell.type("fg")
    shell.until("again\r\n")
    shell.press("q")
    assert shell.finish() == ("key b'q'\n", 0)


@pytest.fixture
def waiting(machine):
    """Return a shell beside another one whose command holds all there is; ``waiting.let_go()`` ends that command."""
    with Shell(machine) as first, Shell(machine) as second:
        first.type("whywait do --cpu 2 --ram 20GB --name pytest -- sh -c 'echo here; read line'")
        first.until("here\r\n")
        second.let_go = lambda: first.type("")
        yield second
        first.type("")
        until(lambda: active(machine) == 0, "all permissions coming back")


def test_the_waiting_line_is_rewritten_with_the_reason_and_cleared(waiting):
    """M2, V1: one line says what is missing and what holds it, with the times of now; nothing of it is left."""
    waiting.type("whywait do --ram 10GB -- echo ran")
    lines = [waiting.until(")").rpartition("waits:") for _ in range(3)]
    assert lines[0][0].endswith("\x1b[K")
    assert lines[0][2].startswith(" ram: needs 10.0 GB, 4.0 GB of 24.0 GB free, held by pytest")
    assert "\n" not in "".join(text for _, _, text in lines)
    assert len({text for _, _, text in lines}) == 3
    waiting.let_go()
    assert waiting.finish().status == 0
    assert waiting.seen.rpartition("waits:")[2].partition("\r\x1b[K")[2].startswith("ran\r\n")


def test_ctrl_c_while_it_waits_withdraws_the_request(waiting, machine):
    """M2: nothing is left of the request, and the terminal is clean, also a narrow one, with ``^C`` behind the line."""
    waiting.resize(40, 20)
    waiting.type("whywait do --cpu 1 -- touch ran")
    line = waiting.until("…").rpartition("\x1b[K")[2]
    assert line.startswith("waits: cpu")
    assert len(f"{line}^C") < 40
    waiting.press_ctrl_c()
    assert waiting.finish().status == 128 + signal.SIGINT
    assert waiting.seen.rpartition("waits:")[2].partition("\r\x1b[K")[2].startswith("\r\n")
    waiting.let_go()
    until(lambda: active(machine) == 0, "the permission coming back")
    assert not (machine.home.parent / "ran").exists()


def test_a_request_that_ctrl_z_has_stopped_waits_paused_and_others_go_first(waiting, machine):
    """M15: it is no more granted while it is stopped, holds nothing, and goes on waiting when its terminal lets it."""
    waiting.type("whywait do --cpu 2 --name halted -- echo ran")
    waiting.until("waits: cpu")
    waiting.press_ctrl_z()
    assert waiting.finish().status == 128 + signal.SIGTSTP
    row = until(lambda: (row := machine.row("halted-"))["stopped"] and row, "the service seeing the stop")
    assert (row["state"], row["ran_s"]) == ("PAUSED", None)
    assert row["why"].startswith(f"{STOPPED} for ")
    assert re.search(rf"^{row['id']} +{re.escape(STOPPED)} ", machine.run("ls").out, re.MULTILINE)
    waiting.type("fg")
    waiting.until("waits: cpu")
    waiting.press_ctrl_z()
    waiting.finish()
    waiting.let_go()
    assert machine.run("do", "--cpu", "2", "--", "true").code == 0
    assert machine.row("halted-")["state"] == "PAUSED"
    waiting.type("fg")
    assert waiting.finish().out.endswith("ran\n")


@pytest.mark.parametrize("begun", ["with &", "before bg"])
def test_a_request_in_the_background_leaves_the_line_of_the_user_alone(waiting, begun):
    """M2, M15: it says once that it waits and once that it runs; a line that was drawn before bg is not cleared."""
    if begun == "with &":
        waiting.type("whywait do --cpu 1 -- echo ran &")
        waiting.until("whywait: waits: cpu")
    else:
        waiting.type("whywait do --cpu 1 -- echo ran")
        waiting.until("waits: cpu")
        waiting.press_ctrl_z()
        waiting.finish()
        waiting.run("bg")
    in_background = len(waiting.seen)
    waiting.let_go()
    waiting.until("whywait: runs after")
    waiting.until("ran\r\n")
    assert "\x1b[K" not in waiting.seen[in_background:]
