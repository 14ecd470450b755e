"""Periodic tasks in real time: what does not depend on the engine."""

from __future__ import annotations

import ctypes
import re
import threading
import time
from datetime import datetime, timedelta

import pytest

from patience import PATIENCE_S, until
from whywait import Authority, Periodic
from whywait.errors import ConfigError, DuplicateTask, UnknownTask

MS = 1_000_000


@pytest.fixture
def authority():
    with Authority(slots=4) as made:
        yield made


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"every": 0}, "interval of 0 ms is not allowed: use at least 1 ms"),
        ({"every": "soon"}, "every: .* is not a duration"),
        ({"every": 1, "overlap": "pile"}, "overlap 'pile' is not allowed: use one of skip, queue, parallel"),
        ({"every": 1, "max_parallel": 0}, "max_parallel 0"),
        ({"every": 1, "max_parallel": "2"}, "max_parallel '2'"),
        ({"every": 1, "jitter": 0.31}, "jitter 0.31 is not allowed: use a share of the interval from 0 to 0.3"),
        ({"every": 1, "jitter": "x"}, "jitter 'x'"),
        ({"every": 1, "disable_after": 0}, "disable_after 0"),
        ({"every": 1, "priority": 101}, "101"),
        ({"every": 1, "after": ["x"]}, "a periodic has no dependencies"),
    ],
)
def test_settings_out_of_range_are_refused(authority, options, text):
    """R7: with the value, and what is allowed; nothing stays behind."""
    with pytest.raises(ConfigError, match=text):
        authority.scope("s").periodic(print, **options)
    assert authority.snapshot().periodics == ()


def test_an_unknown_option_is_refused(authority):
    """R7: by its name."""
    with pytest.raises(TypeError, match="a periodic has no option wrong"):
        authority.scope("s").periodic(print, every=1, wrong=2)


def test_a_handle_is_no_argument_of_a_periodic(authority):
    """G4, R3: there is no single task that could depend on it."""
    handle = authority.submit(int)
    with pytest.raises(ConfigError, match="takes no handle as argument"):
        authority.scope("s").periodic(print, handle, every=1)


def test_periodics_are_found_by_id(authority):
    """R5: `scope/id` where the id alone is ambiguous; unknown ones are listed."""
    first, second = authority.scope("a"), authority.scope("b")
    one = first.periodic(print, every=3600, id="beat")
    two = second.periodic(print, every=3600, id="beat")
    assert isinstance(one, Periodic)
    with pytest.raises(UnknownTask, match="'beat' is ambiguous: write one of a/beat, b/beat"):
        authority.set_periodic_enabled("beat", False)
    authority.set_periodic_enabled("b/beat", False)
    assert (one.enabled, two.enabled) == (True, False)
    assert (repr(two), repr(one)[:19]) == ("<Periodic b/beat off>", "<Periodic a/beat ne")
    with pytest.raises(UnknownTask, match="no periodic has the id 'x'; there are a/beat, b/beat"):
        authority.set_periodic_enabled("x", True)
    with pytest.raises(UnknownTask, match="a periodic is looked up by its id, not by None"):
        authority.set_periodic_enabled(None, True)
    with pytest.raises(DuplicateTask):
        first.periodic(print, every=1, id="beat")


@pytest.mark.parametrize("value", ["off", "on", 0, 1, None, [], "False"])
def test_a_periodic_is_switched_by_a_bool_only(authority, value):
    """R5: anything else is refused with the value, by each way, and the periodic stays as it is."""
    periodic = authority.scope("s").periodic(print, every=3600, id="beat")
    for is_on in (True, False):
        periodic.set_enabled(is_on)
        for switch in (periodic.set_enabled, lambda enabled: authority.set_periodic_enabled("beat", enabled)):
            with pytest.raises(ConfigError, match=re.escape(f"enabled {value!r} is not allowed: use True or False")):
                switch(value)
            with pytest.raises(ConfigError, match=re.escape(f"immediately {value!r} is not allowed: use True or Fals")):
                periodic.set_enabled(True, immediately=value)
            assert periodic.enabled is is_on
    with pytest.raises(ConfigError, match=re.escape(f"immediately {value!r} is not allowed")):
        authority.periodic(print, every=3600, immediately=value)
    kinds = [event.kind for event in authority.events() if event.kind.startswith("PERIODIC_")]
    assert kinds == ["PERIODIC_ADDED", "PERIODIC_DISABLED"]


def test_an_authority_has_periodics_in_its_default_scope(authority):
    """R1: beside `authority.submit`, with the same options as in a scope."""
    ran = []
    periodic = authority.periodic(ran.append, 1, every="5ms", id="beat", overlap="queue")
    until(lambda: ran)
    assert authority.get_scope("default").state == "RUNNING"
    authority.set_periodic_enabled("default/beat", False)
    assert not periodic.enabled


def test_a_stall_gives_one_trigger_and_a_number(authority):
    """R2: the grid stands; what passed unnoticed is counted, not made up for."""

    def ticks(since):
        return [e for e in authority.events(since) if e.kind in {"PERIODIC_TICK", "PERIODIC_SKIPPED"}]

    periodic = authority.scope("s").periodic(int, every="5ms")
    (added,) = [e.time_ns for e in authority.events() if e.kind == "PERIODIC_ADDED"]
    until(lambda: ticks(0))
    with authority._core.lock:  # nothing can tick now
        before = authority.events()[-1].seq
        time.sleep(0.05)
    until(lambda: len(ticks(before)) >= 2)
    first, second = ticks(before)[:2]
    assert dict(first.details)["missed"] >= 8
    assert second.time_ns - added >= ((first.time_ns - added) // (5 * MS) + 1) * 5 * MS  # not before its own time
    assert (authority.snapshot().periodics[0].next_run_at - added) % (5 * MS) == 0
    assert periodic.status().missed >= dict(first.details)["missed"]


def test_ticks_go_on_right_after_a_stall(authority):
    """R2, T6: with the interpreter held for half of the time, ticks come as in a plain loop in the other half."""
    hold = ctypes.PyDLL(None).usleep  # other than time.sleep it keeps the interpreter
    looped, is_over = [], threading.Event()

    def loop():
        began, turns = time.monotonic(), 0
        while not is_over.is_set():
            turns = max(turns + 1, int((time.monotonic() - began) / 0.02))
            time.sleep(max(0.0, began + turns * 0.02 - time.monotonic()))
            looped.append(turns)

    periodic = authority.scope("s").periodic(int, every="20ms")
    (added,) = [e.time_ns for e in authority.events() if e.kind == "PERIODIC_ADDED"]
    thread = threading.Thread(target=loop)
    thread.start()
    for _ in range(5):
        hold(150_000)
        time.sleep(0.15)
    is_over.set()
    thread.join()
    ticks = [e for e in authority.events() if e.kind in {"PERIODIC_TICK", "PERIODIC_SKIPPED"}]
    assert len(ticks) > len(looped) / 2
    assert sum(1 + dict(e.details)["missed"] for e in ticks) == (ticks[-1].time_ns - added) // (20 * MS)
    assert periodic.status().missed >= 5 * 5


def test_the_context_is_that_of_the_call(authority):
    """Context variables are captured once; iterations do not see each other's changes."""
    from contextvars import ContextVar

    colour = ContextVar("colour", default="none")
    seen = []

    def body():
        seen.append(colour.get())
        colour.set("changed")

    colour.set("red")
    authority.scope("s").periodic(body, every="2ms")
    until(lambda: len(seen) >= 3)
    assert set(seen) == {"red"}


def test_a_streak_of_skipped_ticks_is_one_warning(authority, caplog):
    """R4, R1: the log warns once; the status tells since when the iteration runs and how many ticks were skipped."""
    go = threading.Event()
    with caplog.at_level("WARNING", "whywait"):
        periodic = authority.scope("s").periodic(go.wait, every="3ms", id="slow")
        until(lambda: periodic.status().skipped >= 3)
    status = periodic.status()
    assert status.running_since == status.last_run_at
    assert datetime.now().astimezone() - status.running_since < timedelta(seconds=PATIENCE_S)
    assert not authority.get(status.task_ref).done()
    (line,) = [record.getMessage() for record in caplog.records if "drops ticks" in record.getMessage()]
    go.set()  # not before: on a loaded machine further iterations may be the begin of further streaks
    until(lambda: periodic.status().running_since is None)
    assert line.startswith("periodic s/slow drops ticks: SRS-E-RUN-002; an iteration has been running for ")
