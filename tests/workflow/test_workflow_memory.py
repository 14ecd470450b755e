"""Memory in workflow files: asked, used, and what honest demands would save."""

import json
import sys

import pytest

from program import whywait
from whywait import ConfigError, Workflow
from whywait.workflow.honest import Used, rounded_up, suggestion_lines, suggestions, waste
from whywait.workflow.specs import Body, TaskSpec, WorkflowSpec

MB = 1_000_000
ALLOCATE = "import time; data = bytearray({0}_000_000); data[::4096] = b'x' * len(data[::4096]); time.sleep({1})"


def allocate(megabytes, seconds):
    return f'{sys.executable} -c "{ALLOCATE.format(megabytes, seconds)}"'


def spec(count, asked, budget=1000 * MB):
    body, asking = Body(run="true"), {"ram": asked}
    tasks = [TaskSpec(f"train-{number}", body, asking, name="train") for number in range(count)]
    return WorkflowSpec("w", "w.toml", None, tuple(tasks), has_slots=True, slots=8, budget={"ram": budget})


def used(workflow, peak, ran_ms=1000.0):
    return {task.id: Used(ran_ms, peak, succeeded=True) for task in workflow.tasks}


def test_waste_is_told_by_the_simulator():
    """U1: what the tasks asked for, what they used, and how long the run would take with honest demands."""
    workflow = spec(8, 500 * MB)
    told = waste(workflow, used(workflow, 100 * MB))
    assert told == (
        "8 tasks asked for 4.0 GB of memory and used 800.0 MB at most: with honest demands the run takes 1.0 s "
        "instead of 4.0 s (simulated; --suggest prints them)"
    )


@pytest.mark.parametrize(("asked", "peak"), [(500, 500), (500, 900), (100, 50)])
def test_no_waste_no_sentence(asked, peak):
    """U1: nor if it would save nothing."""
    workflow = spec(8, asked * MB)
    assert waste(workflow, used(workflow, peak * MB)) is None
    assert waste(workflow, {}) is None
    assert waste(spec(8, asked * MB, budget=None), used(workflow, peak * MB)) is None


def test_demands_are_suggested_for_the_tables_of_the_file():
    """U1: the highest peak of a table and a tenth, rounded up, as lines to put into the file."""
    workflow = spec(3, 500 * MB)
    peaks = {"train-0": 90, "train-1": 100, "train-2": 95}
    found = suggestions(workflow, {name: Used(1.0, peak * MB, succeeded=True) for name, peak in peaks.items()})
    assert suggestion_lines(found) == ["[task.train]", 'ram = "112MB"  # peak of 3 tasks: 100.0 MB; asked for 500.0 MB']
    assert suggestion_lines([]) == ['# nothing was measured: only commands and tasks with engine = "process" are']


@pytest.mark.parametrize("size", [1, 999_999, 17 * MB, 110 * MB, 2_310 * MB, 64_000 * MB])
def test_suggested_sizes_are_a_little_larger(size):
    """U1: never smaller, at most a tenth or a MB larger."""
    assert size <= rounded_up(size) <= max(size * 1.1, size + MB)


def test_a_run_tells_what_its_tasks_used(tmp_path):
    """U1, T2: peaks, CPU time, exit codes and signals of each task; the report has asked and peak."""
    (tmp_path / "w.toml").write_text(
        f"""
        [budget]
        ram = "auto"
        [task.large]
        run = '''{allocate(150, 0.3)}'''
        ram = "300MB"
        [task.fails]
        run = "exit 3"
        [task.dies]
        run = "kill -KILL $$"
        """
    )
    done = whywait("run", tmp_path / "w.toml", "--json")
    tasks = json.loads(done.out)["tasks"]
    assert done.code == 1
    assert 150 * MB < tasks["large"]["peak_ram"] < 200 * MB
    assert tasks["large"]["cpu_s"] > 0
    assert [(tasks[name]["exit_code"], tasks[name]["exit_signal"]) for name in tasks] == [
        (0, None),
        (3, None),
        (137, "SIGKILL"),
    ]
    (row,) = [row for row in json.loads(done.out)["report"]["memory"] if row["id"] == "large"]
    assert (row["asked"], row["peak"]) == (300 * MB, tasks["large"]["peak_ram"])
    told = whywait("run", tmp_path / "w.toml", "--suggest")
    assert "large  asked 300.0 MB  peak 1" in told.out
    assert "[task.large]\nram = " in told.out


def test_retry_of_a_file_may_name_exit_codes_and_grow(tmp_path):
    """U3: retry = {times, on_exit, grow}; what overdraft = "kill" ends counts as 137, a death by the system."""
    text = f"""
        [budget]
        ram = "1GB"
        [scheduler]
        overdraft = "kill"
        grace = "100ms"
        [task.grows]
        run = '''{allocate(150, 3)}'''
        ram = "60MB"
        retry = {{ times = 3, grow = {{ ram = 2.0 }} }}
        [task.grows_too]
        run = '''{allocate(150, 3)}'''
        ram = "60MB"
        retry = {{ times = 3, on_exit = [137], grow = {{ ram = 2.0 }} }}
        [task.not_for_memory]
        run = '''{allocate(150, 3)}'''
        ram = "60MB"
        retry = {{ times = 3, on_exit = [9] }}
        [task.again]
        run = "exit 9"
        retry = {{ times = 2, on_exit = [9] }}
        [task.not_again]
        run = "exit 8"
        retry = {{ times = 2, on_exit = [9] }}
        """
    (tmp_path / "w.toml").write_text(text)
    result = Workflow.load(tmp_path / "w.toml").run()
    for name in ("grows", "grows_too"):
        assert result.tasks[name].succeeded
        assert result.tasks[name].attempts in {2, 3}
    assert (result.tasks["not_for_memory"].cause, result.tasks["not_for_memory"].attempts) == ("out_of_memory", 1)
    assert [result.tasks[name].attempts for name in ("again", "not_again")] == [3, 1]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('retry = { times = 1, grow = { ram = "2" } }', "grow"),
        ("retry = { times = 1, grow = { ram = 0.5 } }", "from 1 to 1000"),
        ("retry = { times = 1, on_exit = [0] }", "on_exit"),
        ("retry = { times = 1, on_exit = 300 }", "on_exit"),
        ('ram = "much"', "ram"),
    ],
)
def test_wrong_words_about_memory_are_named(tmp_path, line, says):
    """E1, U3: with the place in the file."""
    (tmp_path / "w.toml").write_text(f'[task.a]\nrun = "true"\n{line}\n')
    with pytest.raises(ConfigError, match=says):
        Workflow.load(tmp_path / "w.toml")
