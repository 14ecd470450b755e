"""``whywait run`` on a terminal: the live view, keys, resizing, and a terminal that is left as it was."""

import os
import re

import pytest

from terminal import ESCAPE, Terminal

FLOW = """\
name = "demo"
slots = 2
[budget]
ram = "8GB"
[task.quick]
run = "echo soon over"
[task.long]
run = "while [ ! -e go ]; do echo tick; echo last line of a task that talks and talks and talks; sleep 0.05; done"
ram = "5GB"
[task.also]
run = "true"
ram = "5GB"
[task.behind]
run = "true"
after = ["long"]
foreach = [1, 2]
"""
STUBBORN = """\
[scheduler]
grace = "200ms"
[task.stubborn]
run = "trap '' TERM; echo $$ > pid; echo here; while :; do sleep 0.1; done"
[task.waiting]
run = "touch ran"
after = ["stubborn"]
"""


@pytest.fixture
def flow(tmp_path):
    (tmp_path / "flow.toml").write_text(FLOW)
    return tmp_path


@pytest.fixture
def stubborn(tmp_path):
    (tmp_path / "flow.toml").write_text(STUBBORN)
    return tmp_path


def last_frame(drawn):
    """Return the lines of the last picture, without escapes."""
    frames = re.split(r"(?:\x1b\[2K\x1b\[1A)+\x1b\[2K|\r(?=\x1b\[2K)", drawn)
    whole = [frame for frame in frames if "slots" in frame]
    return [line.rstrip() for line in ESCAPE.sub("", whole[-1]).replace("\r", "").split("\n")]


def is_gone(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_the_view_shows_what_runs_what_waits_and_what_is_used(flow):
    """V1, V4: progress, running tasks with their last line, waiting ones by reason, gauges; then the report."""
    with Terminal("run", flow / "flow.toml") as terminal:
        drawn = terminal.until("1/5") + terminal.until("slots")
        frame = "\n".join(last_frame(drawn))
        assert re.search(r"^demo +━+.* 1/5 +[\d.]+ m?s, about ", frame, re.MULTILINE)
        assert re.search(r"^▸ +long +[\d.]+ m?s +last line of a task that talks", frame, re.MULTILINE)
        assert re.search(r"^· +1 waiting for ram +also$", frame, re.MULTILINE)
        assert re.search(r"^· +2 waiting for dependencies +behind:1, behind:2$", frame, re.MULTILINE)
        assert re.search(r"slots ━+─+ 1/2 +ram ━+─+ 5.0 GB/8.0 GB$", frame, re.MULTILINE)
        (flow / "go").touch()
        assert terminal.end() == 0
        assert terminal.is_clean()
        assert "demo: 5 tasks in" in terminal.text()
        assert "5 success" in terminal.text()


def test_narrow_and_resized_terminals_are_respected(flow):
    with Terminal("run", flow / "flow.toml", columns=30, rows=8) as terminal:
        drawn = terminal.until("1/5") + terminal.until("slots")
        assert max(map(len, last_frame(drawn))) <= 30
        terminal.resize(100, 30)
        drawn = terminal.until("last line of a task that talks and talks and talks")
        assert max(map(len, last_frame(drawn + terminal.until("slots")))) <= 100
        terminal.resize(24, 5)
        terminal.until("slots")
        drawn = terminal.until("slots") + terminal.until("slots")
        assert max(map(len, last_frame(drawn))) <= 24
        (flow / "go").touch()
        assert terminal.end() == 0
        assert terminal.is_clean()


def test_no_colour_where_none_is_wanted(flow):
    (flow / "go").touch()
    with Terminal("run", flow / "flow.toml", env={"NO_COLOR": "1"}) as terminal:
        assert terminal.end() == 0
        assert not re.search(r"\x1b\[(?:\d+;)*(?:3|4|9)\d", terminal.seen)
    with Terminal("run", flow / "flow.toml", env={"TERM": "dumb"}) as terminal:
        assert terminal.end() == 0
        assert "\x1b" not in terminal.seen
        assert "start    quick" in terminal.text()


def test_the_first_ctrl_c_asks_and_kills_after_the_grace(stubborn):
    """O4, O5: the body that ignores the signal is killed when its grace is over; nothing is left."""
    with Terminal("run", stubborn / "flow.toml") as terminal:
        terminal.until("here")
        terminal.press_ctrl_c()
        terminal.until("stopping: 1 running task is asked to end; Ctrl-C again kills")
        assert terminal.end() == 130
        assert terminal.is_clean()
        assert "Interrupted while running: stubborn" in terminal.text()
        assert "Interrupted before it could start: waiting" in terminal.text()
        assert "Traceback" not in terminal.text()
    assert is_gone(int((stubborn / "pid").read_text()))
    assert not (stubborn / "ran").exists()


def test_the_second_ctrl_c_kills(stubborn):
    """O5: whoever presses twice does not wait for the grace."""
    with Terminal("run", stubborn / "flow.toml", "--set", "scheduler.grace=1h") as terminal:
        terminal.until("here")
        terminal.press_ctrl_c()
        terminal.until("stopping")
        terminal.press_ctrl_c()
        assert terminal.end() == 130
        assert terminal.is_clean()
        assert "Interrupted while running: stubborn" in terminal.text()
    assert is_gone(int((stubborn / "pid").read_text()))


def test_what_functions_print_does_not_disturb_the_view(tmp_path):
    (tmp_path / "helper.py").write_text(
        "import os, sys, time\n"
        "def talk():\n"
        "    print('to stdout'); print('to stderr', file=sys.stderr)\n"
        "    while not os.path.exists('go'): time.sleep(0.01)\n"
    )
    (tmp_path / "flow.toml").write_text('[task.a]\ncall = "helper:talk"\n')
    with Terminal("run", tmp_path / "flow.toml") as terminal:
        assert "to stdout" not in terminal.until("▸") + terminal.until("to stderr")
        (tmp_path / "go").touch()
        assert terminal.end() == 0
        assert "to stderr\n" not in terminal.text()
