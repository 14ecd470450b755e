"""Files of events: written as the run goes on, readable after a kill, read with care."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from patience import until
from program import clean_environment, whywait
from whywait import Authority, Call, ConfigError, Record
from whywait.bridges import read_events
from whywait.observe.event_file import FileLimits, read_event_file
from whywait.simulation.whatif import workload_of

LONG_RUN = """
import sys, threading, time
from whywait import Authority
with Authority(slots=2, cpu=4, events_file="run.jsonl", record="run.rec") as authority:
    authority.submit(int, id="first").result()
    for number in range(60):
        authority.submit(time.sleep, 60, id=f"long-{number}")
    print("ready", flush=True)
"""


def test_a_file_that_belongs_to_the_authority_has_everything(tmp_path):
    """V3: from the first event to the last, without the help of `events`."""
    path = tmp_path / "run.jsonl"
    with Authority(slots=2, cpu=3, ram="2GB", events=0, events_file=path) as authority:
        for number in range(100):
            authority.submit(int, id=f"t{number}")
    file = read_event_file(path)
    assert [event.seq for event in file.events] == list(range(1, len(file.events) + 1))
    assert (file.events[0].kind, file.events[-1].kind) == ("SCOPE_CREATED", "SCOPE_DISPOSED")
    assert sum(event.kind == "TASK_FINISHED" for event in file.events) == 100
    assert file.limits == FileLimits(2, {"cpu": 3}, {"ram": 2_000_000_000})
    assert file.complete


def test_the_end_of_a_task_is_in_the_files_when_it_is_known(tmp_path):
    """V3: what was told to the program is in the file."""
    events, record = tmp_path / "run.jsonl", tmp_path / "run.rec"
    gate = threading.Event()
    with Authority(slots=1, events_file=events, record=record) as authority:
        authority.submit(int, id="first").result(30)
        until(lambda: '"kind":"TASK_FINISHED"' in events.read_text())
        assert '["ended"' in record.read_text()
        authority.submit(gate.wait, id="second")
        until(lambda: [event.kind for event in read_events(events)][-1] == "TASK_STARTED")  # though nothing ends
        gate.set()


def test_a_path_that_cannot_be_opened_is_refused_and_nothing_is_left(tmp_path):
    with pytest.raises(FileNotFoundError):
        Authority(events_file=tmp_path / "nowhere" / "x", record=tmp_path / "run.rec")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device here that is always full")
def test_full_disks_cost_the_files_and_nothing_else(caplog):
    """V3: each is said once."""
    with Authority(slots=2, events_file="/dev/full", record="/dev/full") as authority:
        assert sum(handle.result(30) for handle in [authority.submit(int, 1) for _ in range(300)]) == 300
    assert sorted(caplog.messages) == [
        "events are no longer written to /dev/full: No space left on device; the run goes on",
        "the record is no longer written to /dev/full: No space left on device; the run goes on",
    ]


def test_a_kill_leaves_files_that_can_be_read(tmp_path):
    """V3: SIGKILL half a second after 60 submissions: events, record, simulate and serve know all of them."""
    program = subprocess.Popen(
        [sys.executable, "-c", LONG_RUN], stdout=subprocess.PIPE, env=clean_environment(), cwd=tmp_path
    )
    try:
        assert program.stdout.readline() == b"ready\n"
        until(lambda: "long-59" in (tmp_path / "run.jsonl").read_text())
        until(lambda: "long-59" in (tmp_path / "run.rec").read_text())
    finally:
        os.kill(program.pid, signal.SIGKILL)
        program.wait(60)
        program.stdout.close()
    file = read_event_file(tmp_path / "run.jsonl")
    assert sum(event.kind == "TASK_SUBMITTED" for event in file.events) == 61
    replayed = Record(tmp_path / "run.rec").replay()
    assert sum(event.kind == "TASK_SUBMITTED" for event in replayed) == 61
    assert len(workload_of(tmp_path / "run.rec").ids) == 61
    assert json.loads(whywait("simulate", tmp_path / "run.rec", "--json", "--slots", "30").out)["final"]["long-7"]


def test_a_last_line_that_was_cut_off_is_said_and_passed_over(tmp_path, caplog):
    """V3: wherever the cut is; a line in the midst that is no JSON is refused."""
    path = tmp_path / "run.jsonl"
    with Authority(slots=1, events_file=path) as authority:
        authority.submit(int, id="ä").result(30)
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)
    for cut in range(len(lines[0]) + 1, len(whole)):
        caplog.clear()
        path.write_bytes(whole[:cut])
        events = list(read_events(path))
        assert len(events) == whole[:cut].count(b"\n") - 1 + (whole[cut : cut + 1] == b"\n")
        was_cut = whole[cut - 1 : cut] != b"\n" and whole[cut : cut + 1] != b"\n"
        assert [message.partition(": ")[2] for message in caplog.messages] == [
            "the last line is cut off, as by a kill or a full disk; it is left out"
        ] * was_cut
    path.write_bytes(b"".join([*lines[:3], lines[3][:-10] + b"\n", *lines[4:]]))
    with pytest.raises(ConfigError, match=r"run.jsonl:4: .* is not an event"):
        list(read_events(path))


def event(seq, kind, number, **details):
    return {"seq": seq, "time_ns": seq, "kind": kind, "scope": "s", "number": number, "details": details}


def begins(seq, number, **details):
    return event(seq, "TASK_SUBMITTED", number, state="READY", priority=50, **details)


def again(seq, number, **details):
    return event(seq, "TASK_RETRIED", number, state="READY", attempt=2, **details)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([begins(1, 1, of="x")], '1: details.of is "x": expected an int of 0 or more'),
        ([begins(1, 1, of=2), begins(2, 2)], "1: task 1 is a retry of task 2: expected an earlier one"),
        ([again(1, 1, of="x")], '1: details.of is "x": expected an int of 0 or more'),
        ([again(1, 1, of=1)], "1: task 1 is a retry of task 1: expected an earlier one"),
        ([again(1, 1, of=2)], "1: task 1 is a retry of task 2: expected an earlier one"),
        ([again(1, 2, of=1, after=7)], "1: details.after is 7: expected a list of task numbers"),
        ([again(1, 2, of=1, after_ended=["x"])], "1: details.after_ended is"),
        ([begins(1, 1, after=[1])], "1: tasks await each other in a circle, 1 -> 1"),
        (
            [begins(1, 1, after=[3]), begins(2, 2), begins(3, 3, after_ended=[1])],
            "3: tasks await each other in a circle",
        ),
        ([begins(1, 1, after=[9]), begins(2, 2, after=[3]), begins(3, 3, after=[2])], "3: tasks await each other"),
    ],
)
def test_a_retry_is_of_an_earlier_task_and_no_task_awaits_itself(tmp_path, lines, said):
    """V3, T7, G5: a file that says otherwise is refused in one line."""
    path = tmp_path / "run.jsonl"
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    with pytest.raises(ConfigError, match=re.escape(f"run.jsonl:{said}")):
        read_event_file(path)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (begins(1, 1, slot={"cpu": 1}), "1: details.slot is {'cpu': 1}: expected true or false"),
        (event(1, "LANE_WAITS", None, priority=50, cause="slot", tasks=1, slot=[]), "1: details.slot is []: expected"),
        (event(1, "TASK_PAUSED", 1, **{"from": "READY"}, stopped="x"), '1: details.stopped is "x": expected true or'),
    ],
)
def test_what_is_true_or_false_is_nothing_else(tmp_path, line, said):
    """V3, S6, M15: a file that says otherwise is refused in one line."""
    path = tmp_path / "run.jsonl"
    path.write_text(json.dumps(line))
    with pytest.raises(ConfigError, match=re.escape(f"run.jsonl:{said}")):
        read_event_file(path)


def test_the_program_refuses_such_a_file_in_one_line(tmp_path):
    """V3: exit code 2, and no traceback."""
    path = tmp_path / "run.jsonl"
    path.write_text(json.dumps(begins(1, 1, of="x")))
    done = whywait("serve", path)
    assert (done.code, done.out) == (2, "")
    assert 'run.jsonl:1: details.of is "x": expected an int of 0 or more' in done.err
    assert "Traceback" not in done.err


def test_tasks_of_a_batch_that_await_later_ones_are_read(tmp_path):
    """V3, G5: as `submit_many` writes them."""
    path = tmp_path / "run.jsonl"
    with Authority(slots=1, events_file=path) as authority:
        authority.submit_many([Call(int, (), {"after": ["b"]}), Call(int, (), {"id": "b"})])
    ends = [each.number for each in read_event_file(path).events if each.kind == "TASK_FINISHED"]
    assert ends == [2, 1]
