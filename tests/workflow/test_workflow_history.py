"""Workflow files with a history: what the program keeps, learns and lists."""

import json
import sys
import time

import pytest

from program import whywait
from whywait import ConfigError, History, Workflow
from whywait.observe.history import Finished

MB = 1_000_000
ALLOCATE = "data = bytearray({0}_000_000); data[::4096] = b'x' * len(data[::4096])"
FLOW = """\
history = "runs/history.db"
slots = 2
[budget]
ram = "4GB"
[task.load]
run = [{python}, "-c", "{load}"]
ram = "learned:300MB"
duration = "2s"
[task.train]
foreach = ["small", "large"]
run = "true"
ram = "learned:{{ram}}"
duration = "1s"
[vars]
ram = "100MB"
"""


@pytest.fixture
def flow(tmp_path):
    file = tmp_path / "flow.toml"
    file.write_text(FLOW.format(python=json.dumps(sys.executable), load=ALLOCATE.format(50)))
    return file


def demands(file):
    submitted = [json.loads(line) for line in file.read_text().splitlines()[1:]]
    return {each["name"]: each["details"]["demand"]["ram"] for each in submitted if each["kind"] == "TASK_SUBMITTED"}


def test_the_second_run_asks_for_what_the_first_has_used(flow, tmp_path):
    """U5: the file of the history stands beside the workflow, wherever the program is called."""
    first = whywait("run", flow, "--events", tmp_path / "1.jsonl", cwd="/")
    assert first.code == 0, first.err
    assert demands(tmp_path / "1.jsonl") == {"load": 300 * MB, "train:small": 100 * MB, "train:large": 100 * MB}
    learned = History(tmp_path / "runs" / "history.db").learned_ram("load")
    assert 50 * MB < learned < 100 * MB
    assert whywait("run", flow, "--events", tmp_path / "2.jsonl").code == 0
    assert demands(tmp_path / "2.jsonl")["load"] == learned


def test_a_history_on_the_command_line_wins(flow, tmp_path):
    """U5: and is listed by a verb of its own."""
    done = whywait("run", flow, "--history", "other.db", cwd=tmp_path)
    assert done.code == 0, done.err
    assert not (tmp_path / "runs").exists()
    text = whywait("history", "other.db", cwd=tmp_path).out.splitlines()
    assert text[0].split() == ["task", "runs", "takes", "peak", "memory", "last", "outcomes"]
    assert sorted(line.split()[0] for line in text[1:]) == ["load", "train:*"]
    listed = {row["name"]: row for row in json.loads(whywait("history", tmp_path / "other.db", "--json").out)}
    assert listed["train:*"]["runs"] == 2
    assert listed["load"]["peak_ram"] > 50 * MB
    assert listed["load"]["outcomes"] == {"success": 1}


def test_a_history_that_is_not_there_is_said(tmp_path):
    """U5: and is not made by looking for it."""
    done = whywait("history", tmp_path / "none.db")
    assert done.code == 2
    assert "there is no such history" in done.err
    assert not (tmp_path / "none.db").exists()


def test_what_has_not_been_learned_is_an_error_before_anything_runs(tmp_path):
    """U5: naming the task; with a history and without."""
    file = tmp_path / "flow.toml"
    file.write_text('[task.first]\nrun = "touch ran"\n[task.load]\nrun = "true"\nram = "learned"\n')
    done = whywait("run", file)
    assert done.code == 2
    assert f"{file}: ram='learned' of task 'load' needs a history" in done.err
    done = whywait("run", file, env={"WHYWAIT_HISTORY": str(tmp_path / "h.db")})
    assert done.code == 2
    assert f"{file}: ram='learned' of task 'load'" in done.err
    assert "write ram='learned:2GB'" in done.err
    assert not (tmp_path / "ran").exists()
    assert whywait("check", file).code == 0


def test_a_plan_and_a_simulation_ask_the_history_too(flow, tmp_path):
    """U5: with 4 GB there is room for one load of 3 GB beside nothing else that large."""
    history = History(tmp_path / "runs" / "history.db")
    for name in ("load", "train:small", "train:large"):
        history.add(Finished(name, time.time(), 1, "success", peak_ram=3000 * MB))
    history.close()
    assert "predicted: 4.0 s" in whywait("run", flow, "--dry-run").out
    assert json.loads(whywait("simulate", flow, "--json").out)["summary"]["makespan_ms"] == 4000
    assert Workflow.load(flow).simulate().summary["makespan_ms"] == 4000


def test_a_workflow_from_python_takes_a_history(flow, tmp_path):
    """U5: as `Authority` does."""
    result = Workflow.load(flow).run(history=tmp_path / "mine.db")
    assert result.succeeded
    assert len(History(tmp_path / "mine.db").lessons()) == 2


@pytest.mark.parametrize("ram", ['"learned:"', '"learned:x"', '"learnt"'])
def test_what_is_no_size_is_a_problem_of_the_file(tmp_path, ram):
    """U5, B6: found by `check`, with its place."""
    file = tmp_path / "flow.toml"
    file.write_text(f'[task.load]\nrun = "true"\nram = {ram}\n')
    with pytest.raises(ConfigError, match=r"flow\.toml:3: task\.load\.ram: .* is not a size"):
        Workflow.load(file)
