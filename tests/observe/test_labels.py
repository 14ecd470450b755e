"""How tasks without an id are shown: by the names of their functions and their numbers."""

import asyncio
import functools
import json
import logging
import pickle
import threading

import pytest

from patience import until
from whywait import Authority, Command, Executor, InvalidTransition, TaskAborted, TaskFailed, current
from whywait.bridges.chrome import chrome_trace
from whywait.bridges.logs import LogBridge
from whywait.devtools.table import TaskTable, picture, row_of
from whywait.kernel.events import Event, Kind
from whywait.observe.event_file import read_events
from whywait.observe.fold import Attempt, Fold
from whywait.observe.record import Record

SECRET = "the-argument"


class Caller:
    """Can be called, and has a method."""

    def __call__(self):
        """Do nothing."""

    def method(self):
        """Do nothing."""


def download(*_):
    """Do nothing."""


def fail():
    """Raise an error."""
    raise ValueError(SECRET)


@pytest.fixture
def busy():
    """Give an authority whose only slot is taken by the task number 1, a bound method of an event."""
    go = threading.Event()
    with Authority(slots=1) as authority:
        authority.submit(go.wait)
        try:
            yield authority
        finally:
            go.set()


@pytest.mark.parametrize(
    ("body", "label"),
    [
        (download, "download@2"),
        (lambda: None, "lambda@2"),
        (functools.partial(functools.partial(download, SECRET), SECRET), "download@2"),
        (functools.wraps(download)(lambda: None), "download@2"),
        (Caller(), "Caller@2"),
        (Caller().method, "method@2"),
        (dict, "dict@2"),
        (Command(["/bin/echo", SECRET]), "echo@2"),
        (Command(f"A={SECRET} /bin/echo {SECRET}"), "echo@2"),
        (Command("(true)"), "sh@2"),
    ],
)
def test_each_kind_of_body_has_a_label(busy, body, label):
    """T9: a task without an id is shown by what it calls and its number; nothing else of it is told (V3)."""
    handle = busy.submit(body)
    assert str(handle.why()).startswith(f"{label} has waited")
    assert repr(handle) == f"<Handle default/{label} READY>"
    assert handle.id == "@0000000002"
    assert SECRET not in json.dumps([event.to_dict() for event in busy.events()], default=str)


def test_why_names_holders_those_ahead_and_dependencies(busy):
    """V1: every task that an explanation names is named by its label."""
    first = busy.submit(download)
    second = busy.submit(int, first)
    third = busy.submit(download, id="given")
    assert "taken, by wait@1 (" in str(first.why())
    assert "1 task ahead of it: download@2" in str(third.why())
    told = str(second.why())
    assert told.startswith("int@3 has waited")
    assert "dependencies: download@2 waits for a slot held by wait@1" in told
    assert "it starts when download@2 has succeeded" in told
    assert third.why().label == "given"


def test_a_label_is_an_address(busy):
    """T9: the label, the number behind @ and the id mean the same task; another function's name means none."""
    handle = busy.submit(download)
    for name in ("download@2", "default/download@2", "@2", handle.id):
        assert busy.why(name).number == 2
    with pytest.raises(LookupError):
        busy.why("upload@2")


def test_attempts_dependents_errors_and_logs(caplog):
    """T7, T9: each attempt is shown with its own number, in what follows from it too."""
    with Authority(slots=1) as authority:
        go = threading.Event()
        authority.submit(go.wait)
        handle = authority.submit(fail, retry=1)
        dependent = authority.submit(download, handle)
        go.set()
        with pytest.raises(ValueError, match=SECRET):
            handle.result(30)
        assert repr(handle) == "<Handle default/fail@4 error>"
        assert "because fail@4 did not succeed" in str(dependent.why())
        retried = [event for event in authority.events() if event.kind == Kind.TASK_RETRIED]
        assert [dict(event.details)["function"] for event in retried] == ["fail"]
        with caplog.at_level(logging.ERROR):
            authority.submit(fail)
            authority.submit(download).result(30)
    assert "task fail@5 failed and nobody looked" in caplog.text


def test_the_log_shows_labels(caplog):
    """V3: each line of the log bridge names its task by its label."""
    with caplog.at_level(logging.DEBUG, "whywait.task"), Authority(slots=1) as authority, LogBridge(authority):
        authority.submit(download).result(30)
    assert "download@1 was submitted and is waiting" in caplog.messages
    assert "download@1 started at once" in caplog.messages
    assert "download@1 succeeded" in caplog.messages


def test_chunks_coroutines_processes_and_futures(tmp_path):
    """T9: whatever runs it, a task is shown by its function."""

    async def fetch():
        await asyncio.sleep(0)

    with Authority(slots=2) as authority:
        list(authority.map(abs, [-1, -2, -3], chunksize=3))
        authority.submit(fetch).result(30)
        lost = authority.submit(open, tmp_path, engine="process")
        with pytest.raises(OSError, match="directory"):
            lost.result(30)
        unpicklable = authority.submit(threading.RLock, engine="process")
        with pytest.raises(TaskFailed, match=r"task RLock@4: "):
            unpicklable.result(30)
        told = [dict(event.details)["function"] for event in authority.events() if event.kind == Kind.TASK_SUBMITTED]
        assert told[:3] == ["abs", "fetch", "open"]
    with Executor(1) as pool:
        assert "<Future download@1 at" in repr(pool.submit(download))


def keep_signal_and_queue(kept):
    here = current()
    kept += [here.signal, here.queue()]
    here.emit("ready")
    here.signal.wait(30)


def wait_for_an_item(queue):
    queue.get()


def hire():
    current().spawn(wait_for_an_item, current().queue(), process=True).result()


def test_what_a_body_keeps_shows_the_label():
    """T9, W1: the signal and the queue of a task name it as all else does, also when it has ended."""
    kept = []
    with Authority(slots=1) as authority:
        handle = authority.submit(keep_signal_and_queue, kept)
        next(iter(handle.stream()))
        handle.cancel()
        with pytest.raises(TaskAborted):
            handle.result(30)
        signal, queue = kept
        with pytest.raises(TaskAborted, match="task keep_signal_and_queue@1 is asked to end"):
            signal.raise_if_aborted()
        with pytest.raises(InvalidTransition, match="task keep_signal_and_queue@1 has ended: its queue"):
            queue.put("late")
        elsewhere = pickle.loads(pickle.dumps(queue))
        with pytest.raises(InvalidTransition, match="belongs to task keep_signal_and_queue@1"):
            elsewhere.get()


def test_a_warning_of_a_drop_shows_the_label(caplog):
    """D5, T9: of one task as of several."""
    go = threading.Event()
    with Authority(slots=1) as authority:
        authority.submit(go.wait)
        authority.submit(download, max_wait=0.01)
        until(lambda: "was dropped" in caplog.text)
        go.set()
    assert "task download@2 was dropped: max_wait" in caplog.text


def test_what_reads_events_shows_labels(busy):
    """V3: report, trace, table, JSON of the stream and a file that is read back know the label, as a replay does."""
    handle = busy.submit(download)
    raw, _ = handle.core.raw_events(0)
    events = [Event.of(each) for each in raw]
    assert events == busy.events()
    for fold, told in ((Fold(Attempt), raw), (TaskTable(), raw)):
        for each in told:
            fold.apply(each)
        assert fold.attempts[2].label == "download@2"
        assert row_of(fold.attempts[2], None)["function"] == "download"
    table = TaskTable()
    for event in events:
        table.feed(Event.from_dict(json.loads(json.dumps(event.to_dict()))))
    assert [row.number for name in ("download@2", "default/download@2") for row in table.find(name)] == [2, 2]
    assert picture(handle, 1).label == "download@2"
    view = busy.snapshot().pending[0]
    assert (view.id, view.label) == ("@0000000002", "download@2")


def test_files_of_a_run_show_labels(tmp_path):
    """V3: the report, the event file, the trace and the record of a run tell the same names."""
    record, saved = tmp_path / "run.rec", tmp_path / "events.jsonl"
    with Authority(slots=1, record=record) as authority:
        go = threading.Event()
        authority.submit(go.wait)
        authority.submit(download, SECRET)
        last = authority.submit(download, id="given")
        go.set()
        last.result(30)
        report, events = str(authority.report()), list(authority.events())
    assert "a slot held by wait@1" in report
    assert Record(record).replay()[: len(events)] == events
    assert record.read_text().count('{"calls":"download"}') == 1  # the other has an id
    assert SECRET not in record.read_text()
    saved.write_text("".join(json.dumps(event.to_dict()) + "\n" for event in events))
    assert [event.details for event in read_events(saved)] == [event.details for event in events]
    assert '"download@2"' in json.dumps(chrome_trace(events))
