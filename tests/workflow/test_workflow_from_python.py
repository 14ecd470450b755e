"""A workflow file from Python: loaded, run, simulated; what `whywait run` does."""

import asyncio
import textwrap

import pytest

import whywait
from whywait import CommandFailed, ConfigError, Workflow, WorkflowError, WorkflowResult

FUNCTIONS = """
def double(number):
    print("doubling", number)
    return 2 * number

def fail():
    print("about to fail")
    raise OSError("no luck")

def sleep():
    import whywait
    whywait.current().signal.wait(60)
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with functions, under a module name of its own: modules stay imported."""
    name = f"functions_{abs(hash(tmp_path))}"
    (tmp_path / f"{name}.py").write_text(FUNCTIONS)
    monkeypatch.syspath_prepend(str(tmp_path))
    return lambda text: _write(tmp_path / "flow.toml", text.replace("MODULE", name))


def _write(path, text):
    path.write_text(textwrap.dedent(text))
    return path


def test_a_file_is_run_and_every_task_has_its_value(folder):
    """G5, T2: functions give what they returned, commands their result; the text is the report of `whywait run`."""
    path = folder("""
        [vars]
        number = 4
        [task.double]
        call = "MODULE:double"
        args = ["{number}"]
        [task.list]
        run = "pwd"
        after = ["double"]
    """)
    workflow = Workflow.load(path, set={"number": 21})
    assert (workflow.name, workflow.tasks) == ("flow", ("double", "list"))
    result = workflow.run(slots=1)
    assert isinstance(result, WorkflowResult)
    assert result.succeeded
    assert result.tasks["double"].value == 42
    assert result.tasks["list"].value.stdout.strip() == str(path.parent)
    assert result.tasks["list"].output == (str(path.parent),)
    assert result.to_dict()["outcomes"] == {"success": 2}
    assert str(result).startswith("flow: 2 tasks in")
    assert repr(result) == "<WorkflowResult flow: 2 success>"
    assert [event.name for event in result.events if event.kind == "TASK_STARTED"] == ["double", "list"]
    assert workflow.run(only=["double"]).tasks.keys() == {"double"}  # again, and a part
    result.raise_if_failed()


def test_a_failure_is_in_the_result_and_raises_only_when_asked(folder, tmp_path):
    """G3: the error, its output, and what went down with it."""
    path = folder("""
        on_error = "abort"
        [task.fail]
        call = "MODULE:fail"
        [task.next]
        run = "true"
        after = ["fail"]
        [task.code]
        run = "echo once; exit 3"
        after_ended = ["fail"]
    """)
    result = Workflow.load(path).run(keep_going=True, logs=tmp_path / "logs")
    assert not result.succeeded
    assert isinstance(result.tasks["fail"].error, OSError)
    assert isinstance(result.tasks["code"].error, CommandFailed)
    assert result.tasks["fail"].output == ("about to fail",)
    assert (tmp_path / "logs" / "fail.log").read_text().startswith("about to fail\nTraceback")
    assert (result.tasks["next"].outcome, result.tasks["next"].root) == ("aborted", "fail")
    with pytest.raises(OSError, match="no luck"):
        _ = result.tasks["fail"].value
    with pytest.raises(ExceptionGroup, match="fail, code failed") as caught:
        result.raise_if_failed()
    assert len(caught.value.exceptions) == 2
    assert "about to fail" in str(result)


def test_the_output_of_a_worker_process_is_told_without_logs(folder):
    """T2: its temporary log is read before it goes."""
    path = folder("""
        [task.fail]
        call = "MODULE:fail"
        engine = "process"
    """)
    result = Workflow.load(path).run()
    assert result.tasks["fail"].output == ("about to fail",)
    assert result.tasks["fail"].log is None


def test_what_is_wrong_is_told_before_anything_runs(folder, tmp_path):
    """G5, E1: with the file, or with the argument."""
    path = folder("""
        [task.a]
        run = "touch ran"
        after = ["b"]
    """)
    with pytest.raises(WorkflowError, match=r'flow.toml:4: task.a.after: "b" is not a task'):
        Workflow.load(path)
    path = folder("""
        [task.a]
        run = "touch ran"
    """)
    workflow = Workflow.load(path)
    for wrong in ({"only": ["x"]}, {"engine": "warp"}, {"slots": 0}):
        with pytest.raises(ConfigError):
            workflow.run(**wrong)
    with pytest.raises(TypeError, match="colour"):
        workflow.run(colour="red")
    for wrong in ({"": 1}, {"task..a": 1}, {3: 1}):
        with pytest.raises(ConfigError, match="expected a name or a path"):
            Workflow.load(path, set=wrong)
    assert not (tmp_path / "ran").exists()


def test_on_an_event_loop_it_is_awaited(folder):
    """O6: `run` is refused there; a wait that is cancelled ends what was started."""
    path = folder("""
        [task.double]
        call = "MODULE:double"
        args = [1]
        [task.sleep]
        call = "MODULE:sleep"
    """)
    workflow = Workflow.load(path)

    async def main():
        with pytest.raises(whywait.WhywaitError, match="run_async"):
            workflow.run()
        result = await workflow.run_async(only="double")
        assert result.tasks["double"].value == 2
        running = asyncio.ensure_future(workflow.run_async())
        await asyncio.sleep(0.2)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(main())


def test_a_file_with_durations_is_simulated(folder):
    """C0: in virtual time, as `whywait simulate` does."""
    path = folder("""
        [defaults]
        duration = "2s"
        [task.a]
        run = "true"
        [task.b]
        run = "true"
    """)
    assert Workflow.load(path).simulate(slots=1).summary["makespan_ms"] == 4000
