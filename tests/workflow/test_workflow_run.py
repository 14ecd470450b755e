"""A run from the inside: progress and its estimate, outputs, hooks, ends."""

import pytest

from kernel_driver import MS
from whywait.kernel.events import Event, Kind
from whywait.runtime.authority import Authority
from whywait.workflow import Body, TaskSpec, WorkflowSpec
from whywait.workflow.one_run import Run
from whywait.workflow.outputs import Outputs, Sink, file_name
from whywait.workflow.task_progress import Progress


def spec(ident, **more):
    return TaskSpec(ident, Body(run="true"), name=ident.partition(":")[0], **more)


def event(at_ms, kind, name, **details):
    return Event(0, at_ms * MS, kind, "s", sum(name.encode()), name, None, tuple(details.items()) or None)


def test_the_estimate_comes_from_what_has_finished():
    """Two ran side by side for 100 ms each; of the four tasks that are left, one is half done."""
    progress = Progress([spec(f"a:{number}") for number in range(5)] + [spec("b", duration_ms=400)])
    assert progress.estimate_ns(50 * MS) is None
    for name in ("a:0", "a:1"):
        progress.feed(event(0, Kind.TASK_STARTED, name))
    for name in ("a:0", "a:1"):
        progress.feed(event(100, Kind.TASK_FINISHED, name, outcome="success"))
    for name in ("a:2", "a:3"):
        progress.feed(event(100, Kind.TASK_STARTED, name))
    # at 150: 50 + 50 of the running ones, 100 of a:4, 400 of b, by two at once
    assert progress.estimate_ns(150 * MS) == 300 * MS
    assert progress.ended == 2


def test_a_retry_takes_the_end_back():
    """T7: a task has ended when its last attempt has."""
    progress = Progress([spec("a")])
    heard = []
    progress.listen(lambda word, task: heard.append((word, task.attempts)))
    progress.feed(event(0, Kind.TASK_STARTED, "a"))
    progress.feed(event(1, Kind.TASK_FINISHED, "a", outcome="error", cause="exit_code"))
    progress.feed(event(1, Kind.TASK_RETRIED, "a")._replace(number=1))
    assert progress.ended == 0
    progress.feed(event(2, Kind.TASK_STARTED, "a")._replace(number=1))
    progress.feed(event(5, Kind.TASK_FINISHED, "a", outcome="success")._replace(number=1))
    assert (progress.ended, progress.tasks["a"].latest.ran_ns, progress.tasks["a"].succeeded) == (1, 3 * MS, True)
    assert heard == [("start", 1), ("end", 1), ("retry", 1), ("start", 2), ("end", 2)]


@pytest.mark.parametrize("name", ["../../etc/passwd", "a/b", "x" * 500, "ü" * 300, "a\nb", "", "..", "a:b,c"])
def test_a_log_has_a_safe_name(name):
    safe = file_name(name)
    assert "/" not in safe
    assert "\n" not in safe
    assert len(safe.encode()) < 200
    assert safe.endswith(".log")


def test_no_two_tasks_share_a_log():
    """T9: names that differ only in what a file name cannot have."""
    names = ["a b", "a_b", "a/b", "a\tb", "a_b~", "A_b", "a" * 200, "a" * 201, "", "_", "a_b~c8687a08"]
    assert len({file_name(name) for name in names}) == len(names)
    assert file_name("encode:small,av1") == "encode:small,av1.log"


def test_the_last_lines_are_what_a_person_would_see():
    sink = Sink(None)
    sink.write(b"first\n\n 10%\r 20%\r100%\n\x1b[1mbold\x1b[0m\x07\n\xff\n  \n")
    assert sink.lines(10) == ["first", "100%", "bold\\x07", "\\xff"]
    assert sink.lines(1) == ["\\xff"]
    sink.write(b"x" * 100_000)
    assert len(sink.lines(1)[0]) == 8192


def test_temporary_logs_go_with_the_run(tmp_path):
    outputs = Outputs(None)
    path = outputs.open("a", external=True).path
    path.write_text("from a worker\n")
    assert outputs.lines("a", 3) == ["from a worker"]
    assert outputs.path_of("a") is None
    outputs.close()
    assert not path.exists()


def test_hooks_get_the_authority_before_anything_is_submitted(tmp_path):
    """V3: whoever attaches there sees every event of the run; what it returned is called at the end."""
    seen, ended = [], []

    def hook(authority):
        assert isinstance(authority, Authority)
        authority.subscribe(seen.append)
        return lambda: ended.append(True)

    run = Run(WorkflowSpec("demo", "demo.toml", tmp_path, (spec("a"), spec("b", after=("a",)))), hooks=[hook])
    run.prepare()
    run.start()
    assert run.wait(60)
    assert not ended
    run.close()
    run.close()
    assert ended == [True]
    assert [event.name for event in seen if event.kind == Kind.TASK_STARTED] == ["a", "b"]
    assert run.errors() == {}
    assert run.survivors == ()
