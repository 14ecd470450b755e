"""``whywait simulate`` through the real program: what it prints, where, and with which exit code."""

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from program import clean_environment, whywait, whywait_here
from terminal import Terminal
from whywait.simulation.simulation import Simulation

EXAMPLE = Path(__file__).parents[2] / "examples" / "render-farm.json"
SMALL = {
    "config": {"slots": 1},
    "tasks": [{"id": "x", "at_ms": 0, "duration_ms": 5}, {"id": "y", "at_ms": 0, "duration_ms": 5}],
}


@pytest.fixture
def small(tmp_path):
    file = tmp_path / "small.json"
    file.write_text(json.dumps(SMALL))
    return file


def test_json_is_exactly_what_the_library_gives():
    """C0, V3: events, final and summary, and nothing else on stdout or stderr."""
    done = whywait("simulate", EXAMPLE, "--json")
    assert done.code == 0
    assert done.err == ""
    data = json.loads(done.out)
    assert data == json.loads(json.dumps(Simulation(json.loads(EXAMPLE.read_text())).run().to_dict()))
    assert {word for _, word, _ in data["events"]} == {"start", "finish", "cancel", "drop", "reject"}


def test_two_runs_print_the_same_bytes():
    """V3: hash seeds do not matter."""
    first, second = (whywait("simulate", EXAMPLE, "--json", env={"PYTHONHASHSEED": seed}) for seed in ("1", "2"))
    assert first.out == second.out


def test_the_readable_report_is_the_default(small):
    done = whywait_here("simulate", small)
    assert done.code == 0
    assert done.err == ""
    text = done.out
    assert text.startswith("small\n  aging +10 every 5.0 s, cap 99 · 1 slot · greedy backfill\n")
    assert "Where the waiting went" in text
    assert "\x1b" not in text


def test_one_value_of_order_and_slots_replaces_that_of_the_file(small):
    done = whywait_here("simulate", small, "--json", "--order", "strict", "--slots", "none")
    data = json.loads(done.out)
    assert set(data) == {"events", "final", "summary"}
    assert (data["summary"]["run"]["order"], data["summary"]["run"]["slots"]) == ("strict", None)
    assert data["events"][1] == [0, "start", "y"]


def test_several_values_give_every_combination_side_by_side(small):
    args = ["simulate", small, "--order", "strict", "--order", "aging", "--slots", "1", "--slots", "none"]
    lines = whywait_here(*args).out.splitlines()
    assert [line.lstrip("▸ ").split()[:2] for line in lines[4:8]] == [
        ["strict", "1"],
        ["strict", "none"],
        ["aging", "1"],
        ["aging", "none"],
    ]
    data = json.loads(whywait_here(*args, "--json").out)
    assert [(run["order"], run["slots"]) for run in data] == [
        ("strict", 1),
        ("strict", None),
        ("aging", 1),
        ("aging", None),
    ]
    assert all(set(run["result"]) == {"events", "final", "summary"} for run in data)


def test_standard_input_is_read_for_a_dash():
    done = whywait_here("simulate", "-", "--json", stdin=json.dumps(SMALL))
    assert json.loads(done.out)["final"] == {"x": "success", "y": "success"}


def test_the_seed_decides_the_jitter():
    """R2."""
    periodic = {"id": "p", "every_ms": 1000, "duration_ms": 1, "until_ms": 9000, "jitter": 0.3}
    data = json.dumps({"tasks": [], "periodics": [periodic]})
    runs = [whywait_here("simulate", "-", "--json", "--seed", seed, stdin=data).out for seed in (1, 1, 2)]
    assert runs[0] == runs[1] != runs[2]


BAD = [
    (b"", "is empty"),
    (b"\x00\x01", "is a binary file"),
    (b"\xff\xfe{}", "is not UTF-8 text"),
    (b"{", "1: column 2: is not JSON"),
    (b"[" * 100_000, "is nested too deeply"),
    (
        b'{"tasks": [{"id": "x", "at_ms": 0, "duration_ms": 0}]}',
        "tasks[0].duration_ms: 0 is not allowed: expected an int",
    ),
    (b'{"tasks": [{"id": "x", "at_ms": 0, "duration_ms": 1, "after": ["q"]}]}', 'tasks[0].after: "q" is not a task'),
    (b'{"tasks": [], "ops": [{"at_ms": 0, "do": "pause", "id": "q"}]}', 'ops[0].id: "q" is not a task'),
    (b'{"tasks": [], "config": {"soft": {"slot": 1}}}', "config: a resource cannot be named 'slot'"),
    (b'{"tasks": [{"id": "\\ud800", "at_ms": 0}]}', 'tasks[0]: "duration_ms" is missing'),
    (b'{"tasks": [{"id": "seq", "at_ms": 0}]}', 'tasks[0]: "duration_ms" is missing'),
    (b'{"whywait events": 1, "slots": 2}\n{"seq": 1}\n', "holds the events of a run"),
    (b'{"seq": 1, "kind": "SCOPE_CREATED"}\n{"seq": 2}\n', "holds the events of a run"),
]


@pytest.mark.parametrize(("content", "told"), BAD, ids=[told for _, told in BAD])
@pytest.mark.parametrize("as_json", [False, True], ids=["text", "json"])
def test_a_malformed_file_is_told_on_stderr_with_exit_code_2(tmp_path, content, told, as_json):
    file = tmp_path / "farm.json"
    file.write_bytes(content)
    done = whywait_here("simulate", file, *(["--json"] if as_json else []))
    assert done.code == 2
    assert done.out == ""
    assert re.sub(rf"^whywait: {file}:(?:\d+:)? ?", "", done.err, count=1).startswith(told.removeprefix("1: "))
    assert done.err.count("\n") == 1
    assert "Traceback" not in done.err


def test_a_file_that_is_not_there_is_named(tmp_path):
    done = whywait_here("simulate", tmp_path / "nowhere.json")
    assert (done.code, done.out) == (2, "")
    assert "nowhere.json: cannot be read: No such file or directory" in done.err


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["--slots", "0"], "'0' is neither an int >= 1 nor none"),
        (["--slots", "many"], "'many' is neither an int >= 1 nor none"),
        (["--order", "fifo"], "argument --order: invalid choice: 'fifo'"),
        (["--seed", "x"], "argument --seed: invalid int value: 'x'"),
        (["--sloths", "2"], "unrecognized arguments: --sloths"),
    ],
)
def test_a_wrong_option_is_named_with_exit_code_2(small, args, told):
    done = whywait_here("simulate", small, *args)
    assert (done.code, done.out) == (2, "")
    assert told in done.err
    assert "│" not in done.err


def test_debug_shows_the_traceback(tmp_path):
    for args in (
        ["--debug", "simulate", tmp_path / "nowhere.json"],
        ["simulate", tmp_path / "nowhere.json", "--debug"],
    ):
        done = whywait(*args)
        assert done.code != 0
        assert "Traceback" in done.err
        assert done.out == ""


def test_a_bug_is_told_in_one_line_without_a_traceback(small):
    program = (
        "import whywait.simulation.simulation as s, whywait.cli as c; s.Simulation.run = lambda self: 1 / 0; c.main()"
    )
    done = whywait("simulate", small, program=("-c", program))
    assert (done.code, done.out) == (70, "")
    assert done.err.startswith("whywait: this is a bug in whywait (ZeroDivisionError: division by zero)")
    assert "Traceback" not in done.err


def test_without_the_extra_the_program_says_what_to_install(small):
    program = "import sys; sys.modules['rich'] = None; from whywait.cli import main; main()"
    assert whywait("simulate", small, program=("-c", program)).code == 0
    done = whywait("top", program=("-c", program))
    assert (done.code, done.out) == (2, "")
    assert "pip install 'whywait[cli]'" in done.err


def test_help_teaches_with_an_example_that_works():
    done = whywait_here("simulate", "--help")
    assert done.code == 0
    text = done.out
    workload = text[text.index("echo '") + 6 : text.index("]}'") + 2]
    assert json.loads(whywait_here("simulate", "-", "--json", stdin=workload).out)["final"]["urgent"] == "success"
    assert "--slots 2 --slots 4" in text


def test_a_stream_that_knows_no_bars_still_gets_the_figures(small):
    done = whywait("simulate", small, env={"PYTHONIOENCODING": "ascii"})
    assert done.code == 0
    assert "Makespan   10 ms" in done.out


def test_on_a_terminal_headings_are_bold_and_a_quick_run_shows_no_bar(small):
    with Terminal("simulate", small) as terminal:
        assert terminal.end() == 0
    assert "\x1b[1mWait once ready" in terminal.seen
    assert "simulating" not in terminal.seen


def test_on_a_terminal_a_long_run_shows_a_bar_on_stderr(tmp_path):
    program = "import whywait.cli.simulate as s; s._PATIENCE_S = 0.0; from whywait.cli import main; main()"
    file = tmp_path / "many.json"
    file.write_text(json.dumps({"tasks": [{"id": f"t{n}", "at_ms": 0, "duration_ms": 1} for n in range(20_000)]}))
    parent, child = pty.openpty()
    command = [sys.executable, "-c", program, "simulate", str(file), "--json"]
    done = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=child,
        env={**clean_environment(), "TERM": "xterm"},
        check=True,
        timeout=60,
    )
    os.close(child)
    seen = os.read(parent, 65536).decode()
    os.close(parent)
    assert "simulating" in seen
    assert len(json.loads(done.stdout)["final"]) == 20_000
