"""``check``, ``graph``, ``schema``, ``bench``, ``simulate`` of workflows, and completion, through the real program."""

import json
import os
import shlex
import stat
import subprocess
import sys
import threading

import pytest

from program import clean_environment, whywait, whywait_here
from whywait.cli.verbs import MACHINE, OWN
from whywait.workflow.format import make_schema

GOOD = """\
name = "good"
slots = 2
[scope.io]
slots = 1
[task.a]
run = "true"
duration = "2s"
scope = "io"
[task.b]
run = "true"
foreach = [1, 2]
after = ["a"]
duration = "3s"
[task.c]
run = "true"
after_ended = ["b"]
priority = "high"
duration = "1s"
[periodic.p]
run = "true"
every = "500ms"
duration = "1ms"
"""


@pytest.fixture
def good(tmp_path):
    file = tmp_path / "good.toml"
    file.write_text(GOOD)
    return file


@pytest.fixture
def bad(tmp_path):
    file = tmp_path / "bad.toml"
    file.write_text('slot = 1\n[task.a]\nrun = "x"\nafter = ["b"]\n[task.b]\nrun = "x"\nafter = ["a"]\n')
    return file


def test_check_says_that_all_is_well(good):
    assert whywait("check", good) == (0, f"{good}: all is well: 4 tasks, 3 steps, 1 periodic, 1 scope\n", "")
    assert json.loads(whywait_here("check", good, "--json").out) == {"ok": True, "tasks": 4, "problems": []}


def test_check_lists_every_problem_with_its_line(bad):
    """G5: file, line, place, what was expected, the nearest name, the cycle."""
    done = whywait_here("check", bad)
    assert done == (
        2,
        (
            f'{bad}:1: slot: unknown key; did you mean "slots"?\n'
            f"{bad}:4: task.a.after: the tasks wait for each other in a cycle: a -> b -> a\n"
        ),
        "",
    )
    done = whywait_here("check", bad, "--json")
    assert done.code == 2
    assert [problem["line"] for problem in json.loads(done.out)["problems"]] == [1, 4]
    assert whywait_here("check", bad.parent / "none.toml").code == 2


def test_check_shows_the_name_of_a_file_as_text(tmp_path):
    file = tmp_path / "odd\x1b[31m.toml"
    assert "\x1b" not in whywait_here("check", file).out
    file.write_text(GOOD, encoding="utf-8")
    assert "odd\\x1b[31m.toml: all is well" in whywait_here("check", file).out


def test_check_runs_no_code(tmp_path):
    (tmp_path / "helper.py").write_text("raise SystemExit(3)\ndef f(): pass\n")
    file = tmp_path / "flow.toml"
    file.write_text('[task.a]\ncall = "helper:f"\n')
    assert whywait_here("check", file).code == 0


def test_graph_draws_text_mermaid_and_dot(good, tmp_path):
    assert whywait_here("graph", good).out == (
        "good\n"
        "└─ a · 2.0 s\n"
        "   ├─ b:1 · 3.0 s\n"
        "   └─ b:2 · 3.0 s\n"
        "      └─ c · priority 80 · 1.0 s  (also after b:1)\n"
        "every 500 ms: p\n"
    )
    mermaid = whywait_here("graph", good, "--format", "mermaid").out
    assert mermaid.startswith("flowchart LR\n")
    assert '  subgraph s0["io"]\n    t0["a · 2.0 s"]\n  end\n' in mermaid
    assert "  t0 --> t1\n" in mermaid
    assert "  t2 -.-> t3\n" in mermaid
    assert whywait_here("graph", good, "--out", tmp_path / "good.dot", "--only", "b").out == ""
    dot = (tmp_path / "good.dot").read_text()
    assert dot.startswith('digraph "good" {\n')
    assert '  "a" -> "b:1";\n' in dot
    assert '"c"' not in dot


def test_an_svg_is_drawn_by_graphviz(good, tmp_path):
    """A stand-in takes the place of graphviz, so that the way to it and back is tested wherever this runs."""
    program = tmp_path / "bin" / "dot"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\nread first\necho "<svg>$1 $first</svg>"\n')
    program.chmod(program.stat().st_mode | stat.S_IEXEC)
    path = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
    done = whywait("graph", good, "--format", "svg", env={"PATH": path})
    assert done == (0, '<svg>-Tsvg digraph "good" {</svg>\n', "")


def test_without_graphviz_it_says_what_to_do(good, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    done = whywait_here("graph", good, "--out", tmp_path / "good.svg")
    assert done.code == 2
    assert "needs graphviz (the program dot), which is not installed: use mermaid, dot or text" in done.err
    assert not (tmp_path / "good.svg").exists()


def test_schema_prints_what_the_checks_run_on():
    done = whywait_here("schema")
    assert done.code == 0
    assert json.loads(done.out) == make_schema()


def test_a_workflow_with_durations_is_simulated(good, tmp_path):
    """C0: a, then both of b on the two slots, then c; the periodic ticks beside them."""
    data = json.loads(whywait_here("simulate", good, "--json").out)
    assert [event for event in data["events"] if not event[2].startswith("p#")] == [
        [0, "start", "a"], [2000, "finish", "a"], [2000, "start", "b:1"], [2000, "start", "b:2"],
        [5000, "finish", "b:1"], [5000, "finish", "b:2"], [5000, "start", "c"], [6000, "finish", "c"],
    ]  # fmt: skip
    final = {ident: outcome for ident, outcome in data["final"].items() if not ident.startswith("p#")}
    assert final == {"a": "success", "b:1": "success", "b:2": "success", "c": "success"}
    as_json = tmp_path / "flow.json"
    as_json.write_text('{"task": {"a": {"run": "x", "duration": 1}}}')
    assert json.loads(whywait_here("simulate", as_json, "--json").out)["final"] == {"a": "success"}
    done = whywait_here("simulate", "--slots", "1", "--slots", "2", good)
    assert "good\n  4 tasks · 2 runs" in done.out


def test_a_workflow_without_durations_says_what_is_missing(bad, tmp_path):
    file = tmp_path / "flow.toml"
    file.write_text('[task.a]\nrun = "x"\n')
    done = whywait_here("simulate", file)
    assert (done.code, done.out) == (2, "")
    assert 'no duration is given for a; add duration = "2s"' in done.err


def test_bench_measures_both_schedulers(tmp_path):
    """E2: simple runs one at a time, threadpool as many as there are slots."""
    out = tmp_path / "bench.json"
    done = whywait_here("bench", "--runs", "2", "--slots", "4", "--out", out)
    assert (done.code, done.err) == (0, "")
    assert "600 tasks, median of 2 runs" in done.out
    data = json.loads(out.read_text())
    assert {"whywait", "python", "processors", "system"} <= set(data["facts"])
    simple, pool = data["results"]
    assert (simple["scheduler"], simple["peak_parallel"], len(simple["runs"])) == ("simple", 1, 2)
    assert (pool["scheduler"], pool["slots"]) == ("threadpool", 4)
    assert 1 < pool["peak_parallel"] <= 4
    for result in (simple, pool):
        assert result["tasks"] == 600
        assert result["median"]["per_second"] > 0
        assert set(result["median"]["latency_ms"]) == {"p50", "p90", "p99"}


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--scheduler", "quick"], "argument --scheduler: invalid choice: 'quick'"),
        (["--runs", "0"], "argument --runs: '0' is not an int from 1 to 1000"),
        (["--out", "/no/such/folder/x.json"], "--out /no/such/folder/x.json: cannot be written"),
    ],
)
def test_bench_refuses_what_makes_no_sense(args, message):
    done = whywait_here("bench", *args)
    assert done.code == 2
    assert message in done.err


def test_the_shell_completes_verbs_and_tasks(good):
    def complete(line):
        words = line.split(" ")
        script = (
            f'whywait() {{ {sys.executable} -m whywait "$@"; }}; eval "$(whywait completion bash)"\n'
            f'COMP_WORDS=({shlex.join(words)}); COMP_CWORD={len(words) - 1}; _whywait; echo "${{COMPREPLY[@]}}"'
        )
        done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
        return done.stdout.split()

    assert complete("whywait gr") == ["graph"]
    assert complete(f"whywait run {good} --only a b") == ["b", "b:1", "b:2"]
    assert complete(f"whywait run {good} --only ") == ["a", "b", "b:1", "b:2", "c"]
    assert complete(f"whywait run {good} --d") == ["--dry-run", "--devtools", "--detach"]
    assert complete(f"whywait run {good} --logs ") == []
    assert complete("whywait add --ra") == ["--ram"]
    for shell in ("zsh", "fish"):
        assert f"whywait completion {shell} --" in whywait_here("completion", shell).out


def test_help_lists_the_verbs_and_each_teaches_with_an_example():
    told = whywait_here("--help").out
    for verb in (*OWN, *MACHINE):
        assert f"\n  {verb} " in told
        assert f"\n  whywait {verb}" in whywait_here(verb, "--help").out
    assert whywait("--version").out.startswith("whywait ")
    assert (whywait_here("nonsense").code, whywait_here().code) == (2, 2)


@pytest.mark.parametrize("args", [["schema"], ["--help"], ["run", "--help"], ["graph", "GOOD"]])
def test_a_reader_that_has_gone_is_no_failure(good, args):
    """The exit code is that of the verb, whichever part of the program meets the closed pipe."""
    args = [good if arg == "GOOD" else arg for arg in args]
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "wb") as out:
        done = subprocess.run(
            [sys.executable, "-m", "whywait", *map(str, args)],
            stdout=out, stderr=subprocess.PIPE, env=clean_environment(), check=False, timeout=60,
        )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, b"")


HUGE = "9" * 5_000


@pytest.mark.parametrize("number", [HUGE, "²"], ids=["huge", "superscript"])
@pytest.mark.parametrize(
    "args",
    [
        ["simulate", "GOOD", "--slots", "N"],
        ["simulate", "GOOD", "--cpu", "N"],
        ["simulate", "GOOD", "--gpus", "N"],
        ["simulate", "GOOD", "--resource", "licence=N"],
        ["run", "GOOD", "--dry-run", "--slots", "N"],
        ["run", "GOOD", "--dry-run", "--gpus", "N"],
        ["up", "--slots", "N"],
        ["up", "--cpu", "N"],
        ["up", "--gpus", "N"],
        ["add", "--no-start", "--priority", "N", "--", "true"],
        ["add", "--no-start", "--resource", "licence=N", "--", "true"],
        ["do", "--no-start", "--device", "rig=N", "--", "true"],
        ["log", "N"],
    ],
    ids=" ".join,
)
def test_digits_that_are_no_number_are_told_in_one_line(good, tmp_path, monkeypatch, args, number):
    """C0: digits of other scripts, and more of them than a number has."""
    monkeypatch.setenv("WHYWAIT_HOME", str(tmp_path / "home"))
    done = whywait_here(*(str(good) if arg == "GOOD" else arg.replace("N", number) for arg in args))
    assert done.code == 2
    assert "bug" not in done.err


def test_a_workload_may_come_through_a_pipe(tmp_path):
    """C0: what can be read once only is read once."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    text = b'{"tasks": [{"id": "a", "at_ms": 0, "duration_ms": 5}]}'
    writer = threading.Thread(target=pipe.write_bytes, args=[text])
    writer.start()
    done = whywait("simulate", pipe, "--json")
    writer.join(10)
    assert (done.code, done.err) == (0, "")
    assert json.loads(done.out)["summary"]["makespan_ms"] == 5


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["simulate", "/dev/zero"], "/dev/zero: is a binary file: expected JSON text"),
        (["top", "http://127.0.0.1:1", "--token-file", "/dev/zero"], "/dev/zero: holds no token"),
    ],
    ids=["workload", "token"],
)
def test_a_device_that_never_ends_is_refused(args, told):
    """C0: with little memory, and at once."""
    limit = "import resource as r; r.setrlimit(r.RLIMIT_DATA, (10**9, 10**9)); from whywait.cli import main; main()"
    done = whywait(*args, program=("-c", limit))
    assert done.code == 2
    assert done.err.startswith(f"whywait: {told}")


def test_history_leaves_a_file_that_is_none_as_it_is(tmp_path):
    """U5: the verb lists, and writes nothing."""
    empty, other = tmp_path / "__init__.py", tmp_path / "Makefile"
    empty.touch()
    other.write_text("all:\n")
    assert whywait_here("history", empty) == (0, "nothing has ended yet\n", "")
    assert whywait_here("history", other).code == 2
    assert (empty.read_bytes(), other.read_text(), len(list(tmp_path.iterdir()))) == (b"", "all:\n", 2)
