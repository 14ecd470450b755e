"""``whywait run`` as a pipe: what it prints, what it leaves, with which exit code."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from program import clean_environment, whywait, whywait_here

full = pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device here that is always full")
MIXED = """\
name = "mixed"
slots = 2
[vars]
word = "hello"
[task.first]
run = "echo {word} from $PWD; echo more >&2"
[task.second]
call = "helper:double"
args = [21]
after = ["first"]
[task.third]
call = "helper:sleepy"
after = ["second"]
[task.remote]
call = "helper:remote"
engine = "process"
env = { COLOUR = "green" }
after = ["second"]
[task.many]
run = ["sh", "-c", 'test "$1" != b', "sh", "{item}"]
foreach = ["a", "b"]
[task.lost]
run = "true"
after = ["many"]
"""
HELPER = """\
import asyncio
import os
import sys


def double(number):
    print("doubled", 2 * number)
    return 2 * number


async def sleepy():
    await asyncio.sleep(0.01)
    print("slept", file=sys.stderr)


def remote():
    print("remote", os.environ["COLOUR"], os.getpid() != os.getppid())
    os.system("echo from below")


def fail():
    raise ValueError("this is wrong")
"""


def until_there(path, program):
    """Return as soon as somebody has written into the file."""
    while not path.exists() or not path.read_text().strip():
        assert program.poll() is None
        time.sleep(0.005)


@pytest.fixture
def mixed(tmp_path):
    folder = tmp_path / "flows"
    folder.mkdir()
    (folder / "mixed.toml").write_text(MIXED)
    (folder / "helper.py").write_text(HELPER)
    return folder / "mixed.toml"


@pytest.fixture
def flow(tmp_path):
    def write(text, name="flow.toml"):
        file = tmp_path / name
        file.write_text(text)
        return file

    return write


def test_a_run_tells_starts_ends_and_a_report(mixed, tmp_path):
    """G3, T2: commands, functions, coroutines and processes in one run; what failed, and what went down with it."""
    logs = tmp_path / "new" / "logs"
    done = whywait("run", mixed, "--logs", logs)
    assert (done.code, done.err) == (1, "")
    assert "start    first\n" in done.out
    assert "aborted  lost (dependency of many:b)\n" in done.out
    assert "mixed: 7 tasks in" in done.out
    assert "5 success, 1 error, 1 aborted" in done.out
    assert "Where the waiting went" in done.out
    assert "The longest chain: " in done.out
    assert "Failed: 1 task\n  many:b  error (exit_code)" in done.out
    assert "Not run because of these: lost" in done.out
    written = {path.name: path.read_text() for path in logs.iterdir()}
    first = written.pop("first.log").splitlines(keepends=True)
    assert sorted(first) == [f"hello from {mixed.parent}\n", "more\n"]  # two pipes: either may be read first
    assert written == {
        "second.log": "doubled 42\n",
        "third.log": "slept\n",
        "remote.log": "remote green True\nfrom below\n",
        "many:a.log": "",
        "many:b.log": "",
        "lost.log": "",
    }


def test_json_is_all_there_is_on_stdout(mixed):
    done = whywait("run", mixed, "--json", "--set", "word=bye", "--slots", "1")
    assert (done.code, done.err) == (1, "")
    data = json.loads(done.out)
    assert (data["workflow"], data["result"], data["exit_code"]) == ("mixed", "failed", 1)
    assert {ident: row["outcome"] for ident, row in data["tasks"].items()} == {
        "first": "success", "second": "success", "third": "success", "remote": "success", "many:a": "success",
        "many:b": "error", "lost": "aborted",
    }  # fmt: skip
    assert data["tasks"]["lost"]["root"] == "many:b"
    assert data["tasks"]["many:b"]["error"].endswith("ended with exit code 1")
    assert data["report"]["utilisation"]["slots"]["limit"] == 1
    assert data["report"]["critical_path"]["steps"]


def test_quiet_says_nothing_but_what_went_wrong(mixed):
    assert whywait("run", mixed, "-q", "--only", "third") == (0, "", "")
    done = whywait("run", mixed, "--quiet")
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("Failed: 1 task\n  many:b")


def test_only_runs_what_is_named_and_what_it_needs(mixed):
    data = json.loads(whywait("run", mixed, "--json", "--only", "third", "many:a").out)
    assert sorted(data["tasks"]) == ["first", "many:a", "second", "third"]
    plan = whywait_here("run", mixed, "--dry-run", "--json", "--only", "third", "--only", "many:a").out
    assert json.loads(plan)["plan"] == [["first", "many:a"], ["second"], ["third"]]
    done = whywait_here("run", mixed, "--only", "thrid")
    assert (done.code, done.out) == (2, "")
    assert '"thrid" is not a task of' in done.err
    assert 'did you mean "third"?' in done.err


def test_dry_run_runs_nothing_and_predicts(flow, tmp_path):
    file = flow('slots = 2\n[defaults]\nduration = "2s"\n[task.a]\nrun = "touch ran"\nforeach = [1, 2, 3]\n'
                '[task.b]\nrun = "touch ran"\nafter = ["a"]\n')  # fmt: skip
    done = whywait_here("run", file, "--dry-run")
    assert (done.code, done.err) == (0, "")
    assert done.out == (
        "flow: 4 tasks, nothing is run\n  step 1\n    a:1\n    a:2\n    a:3\n  step 2\n"
        "    b  after a:1, a:2, a:3\n  predicted: 6.0 s\n"
    )
    assert not (tmp_path / "ran").exists()
    data = json.loads(whywait_here("run", file, "--dry-run", "--json", "--slots", "3").out)
    assert data == {"workflow": "flow", "plan": [["a:1", "a:2", "a:3"], ["b"]], "predicted_ms": 4000}
    assert (
        "no prediction: 1 task has no duration" in whywait_here("run", "-", "--dry-run", stdin="[task.a]\nrun='x'").out
    )


def test_a_python_error_is_told_with_its_output(flow, tmp_path):
    (tmp_path / "helper.py").write_text(HELPER)
    file = flow('[task.a]\ncall = "helper:fail"\nretry = 2\n')
    done = whywait("run", file, "--logs", tmp_path / "logs")
    assert done.code == 1
    assert "a  error (exception) in 3 attempts" in done.out
    assert "ValueError: this is wrong (helper.py, line 22)" in done.out
    assert "Traceback" not in done.out + done.err
    assert "Traceback" in (tmp_path / "logs" / "a.log").read_text()


def test_the_tail_of_the_output_is_shown_without_its_escapes(flow):
    file = flow("[task.a]\nrun = \"seq 30; printf '\\\\033[31mred\\\\033[0m\\\\033]0;title\\\\007\\\\n'; exit 3\"\n")
    done = whywait_here("run", file)
    assert done.code == 1
    assert "    │ 22\n" in done.out
    assert "    │ 21\n" not in done.out
    assert "    │ red\n" in done.out
    assert "\x1b" not in done.out


def test_abort_ends_the_rest_and_keep_going_does_not(flow):
    """O6: on_error = "abort" ends everything with the first failure; the default goes on."""
    text = 'slots = 1\n{}[task.a]\nrun = "exit 1"\npriority = "high"\n[task.b]\nrun = "true"\n'
    file = flow(text.format('on_error = "abort"\n'))
    data = json.loads(whywait_here("run", file, "--json").out)
    assert (data["tasks"]["b"]["outcome"], data["tasks"]["b"]["cause"]) == ("aborted", "scope_disposed")
    data = json.loads(whywait_here("run", file, "--json", "--keep-going").out)
    assert data["tasks"]["b"]["outcome"] == "success"
    data = json.loads(whywait_here("run", flow(text.format("")), "--json").out)
    assert data["tasks"]["b"]["outcome"] == "success"


def test_trace_events_and_record_are_written(mixed, tmp_path):
    """V3: events as JSON Lines, a Chrome Trace, and a record that simulate takes."""
    done = whywait("run", mixed, "-q", "--trace", "t.json", "--events", "e.jsonl", "--record", "r.rec", cwd=tmp_path)
    assert done.code == 1
    names = {event["name"] for event in json.loads((tmp_path / "t.json").read_text())["traceEvents"]}
    assert {"first", "many:a"} <= names
    limits, *lines = map(json.loads, (tmp_path / "e.jsonl").read_text().splitlines())
    assert limits["whywait events"] == 1
    seqs = [line["seq"] for line in lines]
    assert seqs == list(range(1, len(seqs) + 1))
    simulated = json.loads(whywait("simulate", tmp_path / "r.rec", "--json", "--slots", "1").out)
    assert simulated["final"]["second"] == "success"
    assert simulated["final"]["many:b"] == "error"


@pytest.mark.parametrize("out", ["-", "/dev/stdout"])
def test_events_on_stdout_are_all_that_is_there(mixed, out):
    """V3: what people read goes to stderr then."""
    done = whywait("run", mixed, "--events", out)
    lines = [json.loads(line) for line in done.out.splitlines()]
    assert lines[0]["whywait events"] == 1
    assert lines[-1]["kind"] == "SCOPE_DISPOSED"
    assert "Failed:" in done.err
    assert json.loads(whywait("run", mixed, "-q", "--trace", out).out)["traceEvents"]
    both = whywait("run", mixed, "--json", "--events", out)
    assert both.code == 2
    assert "--json and --events cannot both be standard output" in both.err


@full
def test_side_files_on_a_full_disk_cost_themselves_alone(flow, tmp_path):
    """V3: the result, the exit code and all tasks are as they would be; each file is said once."""
    (tmp_path / "noisy.py").write_text("def f():\n    print('x' * 100, flush=True)\n")
    file = flow("""
        [task.command]
        run = "echo out; echo more"
        [task.thread]
        call = "noisy:f"
        [task.process]
        call = "noisy:f"
        engine = "process"
        [task.next]
        run = "true"
        after = ["command", "thread", "process"]
    """)
    logs = tmp_path / "logs"
    logs.mkdir()
    for task in ("command", "thread", "process"):
        (logs / f"{task}.log").symlink_to("/dev/full")
    options = [part for name in ("--trace", "--events", "--record") for part in (name, "/dev/full")]
    done = whywait("run", file, "--json", "--logs", logs, *options)
    assert done.code == 0
    assert json.loads(done.out)["outcomes"] == {"success": 4}
    assert sorted(done.err.splitlines()) == [
        "whywait: events are no longer written to /dev/full: No space left on device; the run goes on",
        f"whywait: logs in {logs} are not complete: No space left on device; the run goes on",
        "whywait: the record is no longer written to /dev/full: No space left on device; the run goes on",
        "whywait: the trace is not written to /dev/full: No space left on device",
    ]
    assert {path.name for path in logs.iterdir()} == {"command.log", "thread.log", "process.log", "next.log"}


@full
@pytest.mark.parametrize(
    "command",
    [("check", "f"), ("graph", "f"), ("run", "f"), ("run", "f", "--json"), ("run", "f", "--dry-run"), ("schema",),
     ("--help",), ("run", "--help"), ("--version",)],
)  # fmt: skip
def test_a_program_that_cannot_print_says_so(flow, command):
    """E1: exit code 2, one line, and nothing complains on the way out."""
    file = flow('[task.a]\nrun = "true"\n')
    words = [str(file) if word == "f" else word for word in command]
    with Path("/dev/full").open("w") as out:
        done = subprocess.run(
            [sys.executable, "-m", "whywait", *words],
            stdout=out, stderr=subprocess.PIPE, env=clean_environment(), text=True, check=False, timeout=60,
        )  # fmt: skip
    assert (done.returncode, done.stderr) == (2, "whywait: No space left on device\n")


@full
@pytest.mark.parametrize(
    ("streams", "command", "code"),
    [
        ("2>/dev/full", ("run", "f", "--json", "--trace", "/dev/full"), 0),
        ("2>/dev/full", ("run", "nothing"), 2),
        ("2>/dev/full", ("nothing",), 2),
        ("2>/dev/full", ("ls",), 2),
        (">/dev/full 2>/dev/full", ("run", "f"), 2),
        (">/dev/full 2>/dev/full", ("--version",), 2),
        ("2>&-", ("run", "f", "--json"), 0),
        ("2>&-", ("run", "nothing"), 2),
        (">&-", ("run", "f"), 0),
        (">&-", ("--version",), 0),
        (">&- 2>&- <&-", ("run", "f", "--events", "e"), 0),
        ("<&-", ("run", "-"), 2),
    ],
)
def test_streams_that_are_full_or_closed_change_no_exit_code(flow, tmp_path, streams, command, code):
    """E1: what cannot be said on stderr is lost, and nothing else; a closed stream is the null device."""
    file = flow('[task.a]\nrun = "true"\n')
    words = [str(file) if word == "f" else word for word in command]
    done = subprocess.run(
        ["sh", "-c", f'exec "$0" -m whywait "$@" {streams}', sys.executable, *words],
        capture_output=True, env=clean_environment("WHYWAIT_HOME"), text=True, check=False, timeout=60, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    assert "bug" not in done.stderr
    if code == 0 and "--json" in command:
        assert json.loads(done.stdout)["result"] == "success"


@pytest.mark.parametrize("option", ["--trace", "--events", "--record", "--logs"])
def test_a_place_that_cannot_be_written_is_found_before_anything_runs(flow, tmp_path, option):
    (tmp_path / "file").write_text("")
    done = whywait_here("run", flow('[task.a]\nrun = "touch ran"\n'), option, tmp_path / "file" / "x")
    assert done.code == 2
    assert f"whywait: {option} " in done.err
    assert "Not a directory" in done.err
    assert not (tmp_path / "ran").exists()


def test_a_wrong_file_is_told_in_full_and_nothing_runs(flow, tmp_path):
    done = whywait_here("run", flow('[task.a]\nrun = "touch ran"\n[task.b]\nrum = 1\nafter = ["c"]\n'))
    assert (done.code, done.out) == (2, "")
    assert f"{tmp_path}/flow.toml:4: task.b.rum: unknown key" in done.err
    assert f"{tmp_path}/flow.toml:5: task.b.after:" in done.err
    assert not (tmp_path / "ran").exists()


def test_a_module_that_cannot_be_imported_is_told_before_anything_runs(flow, tmp_path):
    (tmp_path / "broken.py").write_text("import no_such_thing\ndef f(): pass\n")
    done = whywait("run", flow('[task.a]\nrun = "touch ran"\n[task.b]\ncall = "broken:f"\n'))
    assert done.code == 2
    assert 'task.b: call = "broken:f" cannot be imported: ModuleNotFoundError' in done.err
    assert "Traceback" not in done.err
    assert not (tmp_path / "ran").exists()
    assert "Traceback" in whywait("run", tmp_path / "flow.toml", "--debug").err


def test_refusals_and_drops_are_told(flow):
    """D1, D3, D5: a task that is not let in, one that waits too long, and what needed them."""
    file = flow(
        'slots = 1\n[scope.s]\nqueue_limit = 2\n[task.long]\nrun = "sleep 0.3"\npriority = "high"\n'
        '[task.late]\nrun = "true"\nmax_wait = "50ms"\n'
        '[task.x]\nrun = "true"\nscope = "s"\nforeach = [1, 2, 3]\n[task.y]\nrun = "true"\nafter = ["x:3"]\n'
        '[task.z]\nrun = "true"\nafter_ended = ["y", "x:3"]\n'
    )
    data = json.loads(whywait_here("run", file, "--json").out)
    told = {ident: (row["outcome"], row["cause"]) for ident, row in data["tasks"].items()}
    assert told == {
        "long": ("success", None), "late": ("rejected", "max_wait"), "x:1": ("success", None),
        "x:2": ("success", None), "x:3": ("rejected", "queue_full"), "y": ("aborted", "dependency"),
        "z": ("success", None),
    }  # fmt: skip
    assert data["tasks"]["y"]["root"] == "x:3"


def test_periodics_run_beside_the_tasks_and_end_with_them(flow, tmp_path):
    """R1, R3: samplers belong to the run; none of them is left over or cut short."""
    (tmp_path / "helper.py").write_text("def tick():\n    print('tick')\n")
    file = flow(
        'slots = 2\n[task.a]\nrun = "sleep 0.3"\n[periodic.p]\ncall = "helper:tick"\nevery = "20ms"\n'
        'immediately = true\n[periodic.q]\nrun = "echo tock"\nevery = "1h"\nimmediately = true\n'
    )
    done = whywait("run", file, "--json", "--logs", tmp_path / "logs")
    assert done.code == 0
    data = json.loads(done.out)
    assert list(data["tasks"]) == ["a"]
    assert set(data["iterations"]) == {"success"}
    assert (tmp_path / "logs" / "p.log").read_text().count("tick\n") == data["iterations"]["success"] - 1
    assert (tmp_path / "logs" / "q.log").read_text() == "tock\n"


def test_what_the_last_iteration_prints_goes_to_its_log(flow, tmp_path):
    """R1: also if it ends after the last task; the output of the program is its own."""
    (tmp_path / "helper.py").write_text(
        "import threading, time\nbegun = threading.Event()\nwork = begun.wait\n"
        "def tick():\n    begun.set()\n    time.sleep(0.2)\n    print('late')\n"
    )
    file = flow(
        'slots = 2\n[task.a]\ncall = "helper:work"\nargs = [30]\n'
        '[periodic.p]\ncall = "helper:tick"\nevery = "1h"\nimmediately = true\n'
    )
    done = whywait("run", file, "--json", "--logs", tmp_path / "logs")
    assert json.loads(done.out)["report"]["tasks"] == json.loads(done.out)["report"]["iterations"] == 1
    assert (tmp_path / "logs" / "p.log").read_text() == "late\n"


def test_a_workflow_may_be_called_like_the_default_scope():
    assert whywait_here("run", "-", "-q", stdin='name = "default"\n[task.a]\nrun = "true"\n') == (0, "", "")


def test_the_three_formats_run_alike():
    toml = '[task.a]\nrun = "exit 3"\n'
    for text in (toml, 'task: {a: {run: "exit 3"}}', '{"task": {"a": {"run": "exit 3"}}}'):
        done = whywait_here("run", "-", "--json", stdin=text)
        assert (done.code, json.loads(done.out)["tasks"]["a"]["cause"]) == (1, "exit_code")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_run_and_its_children(flow, tmp_path, number, code):
    """O4, O5: what runs is asked to end, what waits does not start, nothing is left."""
    file = flow(
        'slots = 1\n[task.a]\nrun = "echo $$ > pid; exec sleep 60"\npriority = "high"\n[task.b]\nrun = "touch ran"\n'
    )
    program = subprocess.Popen(
        [sys.executable, "-m", "whywait", "run", str(file)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=clean_environment(),
    )
    assert program.stdout is not None
    seen = program.stdout.readline()
    assert "start    a" in seen
    until_there(tmp_path / "pid", program)
    program.send_signal(number)
    out, err = program.communicate(timeout=60)
    assert (program.returncode, err) == (code, "")
    assert "stopping: 1 running task is asked to end" in out
    assert "Interrupted while running: a" in out
    assert "Interrupted before it could start: b" in out
    assert not (tmp_path / "ran").exists()
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_a_thread_that_cannot_be_ended_is_named(flow, tmp_path):
    """O5: it never claims what is not true; the program leaves all the same."""
    (tmp_path / "helper.py").write_text(
        "import time\ndef deaf():\n    print('x', file=open('here', 'w'), flush=True)\n    time.sleep(60)\n"
    )
    file = flow('[scheduler]\ngrace = "100ms"\n[task.a]\ncall = "helper:deaf"\n')
    program = subprocess.Popen(
        [sys.executable, "-m", "whywait", "run", str(file)], stdout=subprocess.PIPE, text=True, env=clean_environment()
    )
    until_there(tmp_path / "here", program)
    program.send_signal(signal.SIGINT)
    out, _ = program.communicate(timeout=30)
    assert program.returncode == 130
    assert "Still running, a thread cannot be ended by force: a." in out


def test_a_reader_that_leaves_early_is_no_error(flow):
    file = flow('[task.a]\nrun = "true"\nforeach = [1, 2, 3, 4, 5, 6, 7, 8]\n')
    command = f"{sys.executable} -m whywait run {file} | head -n 1"
    done = subprocess.run(
        command, shell=True, capture_output=True, text=True, timeout=60, check=False, env=clean_environment()
    )
    assert done.stderr == ""
    assert "start    a:1" in done.stdout
