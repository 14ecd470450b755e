"""``whywait do`` in an interactive bash on a pseudo-terminal: job control, the waiting line, the end."""

import json
import os
import re
import signal
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


def test_ctrl_c_ends_the_command_and_the_list_that_it_stands_in(shell):
    """M2: the shell sees death by SIGINT, so it does not go on with the next command."""
    shell.type("whywait do -- sh -c 'echo here; exec sleep 100'; echo not reached")
    shell.until("here\r\n")
    shell.press_ctrl_c()
    done = shell.finish()
    assert done.status == 128 + signal.SIGINT
    assert "\nnot reached" not in done.out


def test_a_command_that_handles_ctrl_c_decides_what_happens(shell):
    """M2: the client does not die of what the command survives."""
    shell.type("""whywait do -- sh -c 'trap "echo caught; exit 5" INT; echo here; while :; do sleep 0.01; done'""")
    shell.until("here\r\n")
    shell.press_ctrl_c()
    done = shell.finish()
    assert done.status == 5
    assert done.out.endswith("caught\n")


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
    """Return what is listed of the one lease there is, as its id and state; None if there is none."""
    rows = [row for row in json.loads(machine.run("ls", "--json").out) if row["kind"] == "lease"]
    return (rows[0]["id"], rows[0]["state"]) if rows else None


def test_a_paused_command_stops_and_goes_on_by_resume_or_by_its_shell(shell, machine):
    """X1, X2, M7: it parks, keeps its permission, and is not cancelled; the shell sees its job stopped."""
    counted = machine.home.parent / "count"
    shell.type(COUNTS)
    shell.until("here\r\n")
    name, _ = state_of(machine)
    paused = machine.run("pause", name)
    assert paused.out == f"{name}: paused, now PAUSED\n", paused.err
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
    shell.finish()
    shell.type("fg")
    until(lambda: state_of(machine) == (name, "RUNNING"), "the service hearing of fg")
    shell.press_ctrl_c()
    assert shell.finish().status == 128 + signal.SIGINT
    until(lambda: active(machine) == 0, "the permission coming back")


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


def test_a_pipeline_shares_the_terminal(shell, machine):
    """M2: clients in one pipeline are one job; Ctrl-C reaches all of them."""
    assert shell.run("whywait do -- seq 3 | whywait do -- tac").out.endswith("3\n2\n1\n")
    shell.type("whywait do -- sh -c 'echo here >&2; exec sleep 100' | whywait do -- cat")
    shell.until("here\r\n")
    until(lambda: active(machine) == 2, "both commands")  # an interpreter that just starts has another status
    shell.press_ctrl_c()
    assert shell.finish().status == 128 + signal.SIGINT


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


def test_the_waiting_line_is_rewritten_with_the_reason_and_cleared(machine):
    """M2, V1: one line says what is missing and what holds it; nothing of it is left when the command runs."""
    with Shell(machine) as first, Shell(machine) as second:
        first.type("whywait do --ram 20GB --name pytest -- sh -c 'echo here; read line'")
        first.until("here\r\n")
        second.type("whywait do --ram 10GB -- echo ran")
        drawn = second.until("held by pytest")
        assert "\x1b[Kwaits: ram: needs 10.0 GB, 4.0 GB of 24.0 GB free, held by pytest" in drawn
        assert "\n" not in drawn.partition("waits:")[2]
        first.type("")
        first.finish()
        done = second.finish()
        assert second.seen.rpartition("waits:")[2].partition("\r\x1b[K")[2].startswith("ran\r\n")
        assert done.status == 0


def test_ctrl_c_while_it_waits_withdraws_the_request(machine):
    """M2: nothing is left of the request, and the terminal is clean."""
    with Shell(machine) as first, Shell(machine) as second:
        first.type("whywait do --cpu 2 -- sh -c 'echo here; read line'")
        first.until("here\r\n")
        second.type("whywait do --cpu 1 -- touch ran")
        second.until("waits:")
        second.press_ctrl_c()
        assert second.finish().status == 128 + signal.SIGINT
        assert second.seen.rpartition("waits:")[2].partition("\r\x1b[K")[2].startswith("\r\n")
        first.type("")
        first.finish()
        until(lambda: active(machine) == 0, "the permission coming back")
        assert not (machine.home.parent / "ran").exists()


def test_a_request_that_was_stopped_waits_on_after_fg(machine):
    """M2: Ctrl-Z while it waits gives the terminal back, and fg shows the reason again."""
    with Shell(machine) as first, Shell(machine) as second:
        first.type("whywait do --cpu 2 -- sh -c 'echo here; read line'")
        first.until("here\r\n")
        second.type("whywait do --cpu 1 -- echo ran")
        second.until("waits:")
        second.press_ctrl_z()
        assert second.finish().status == 128 + signal.SIGTSTP
        second.type("fg")
        second.until("waits: cpu")
        first.type("")
        assert second.finish().out.endswith("ran\n")
        first.finish()


def test_a_request_in_the_background_leaves_the_line_of_the_user_alone(machine):
    """M2: a job in the background says once that it waits and once that it runs."""
    with Shell(machine) as first, Shell(machine) as second:
        first.type("whywait do --cpu 2 -- sh -c 'echo here; read line'")
        first.until("here\r\n")
        second.type("whywait do --cpu 1 -- echo ran &")
        second.until("whywait: waits: cpu")
        first.type("")
        second.until("whywait: runs after")
        second.until("ran\r\n")
        assert "\x1b[K" not in second.seen.partition("whywait: waits")[2]
