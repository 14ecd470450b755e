"""D: drops, which are never silent."""

import logging

import pytest

from patience import PATIENCE_S, until
from whywait import Call
from whywait.errors import (
    ConfigError,
    DuplicateTask,
    Infeasible,
    QueueFull,
    StaleRef,
    TaskAborted,
    TaskDropped,
    UnknownDependency,
)


@pytest.fixture(autouse=True)
def listen(caplog):
    caplog.set_level(logging.WARNING, logger="whywait")


def warnings(caplog):
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


def kinds(authority, name):
    return [event.kind for event in authority.events() if event.name == name]


def busy(authority, body, stage):
    """Take the one slot."""
    handle = authority.submit(body.hold, stage, "busy", "gate")
    stage.wait("busy")
    return handle


def test_a_full_queue_drops_the_newcomer(make, body, stage, caplog):
    """D1, D5: `submit` and `submit_many` raise, event and counter tell; the log does not repeat what was raised."""
    authority = make(queue_limit=2)
    busy(authority, body, stage)
    waiting = [authority.submit(body.value, i) for i in range(2)]
    with pytest.raises(QueueFull, match="queue_limit") as caught:
        authority.submit(body.value, id="late", priority="critical")
    assert (caught.value.check, caught.value.cause) == ("queue_limit", "queue_full")
    assert kinds(authority, "late") == ["TASK_DROPPED"]
    assert authority.stats()["dropped"] == {"queue_full": 1}
    with pytest.raises(QueueFull):
        authority.submit_many([body.value])
    assert not warnings(caplog)
    stage.mark("gate")
    assert [handle.result(PATIENCE_S) for handle in waiting] == [0, 1]
    assert authority.submit(body.value, 9, id="late").result(PATIENCE_S) == 9


def test_displacing_drops_the_newest_of_the_lowest_priority(make, body, stage, caplog):
    """D2, D5: its handle raises, its ref is stale, the log names it; the newcomer enters."""
    authority = make(queue_limit=3, overflow="displace")
    first = busy(authority, body, stage)
    low = authority.submit(body.value, 1, id="low", priority="low")
    newer = authority.submit(body.value, 2, id="newer", priority="low")
    normal = authority.submit(body.value, 3)
    high = authority.submit(body.value, 4, priority="high")
    with pytest.raises(TaskDropped):
        newer.result(PATIENCE_S)
    assert (newer.state, newer.outcome, newer.cause) == ("DISPOSED", "rejected", "displaced")
    with pytest.raises(StaleRef):
        authority.get(newer.ref)
    assert kinds(authority, "newer")[-1] == "TASK_DROPPED"
    assert authority.stats()["dropped"] == {"displaced": 1}
    assert ["newer" in text and "displaced" in text for text in warnings(caplog)] == [True]
    stage.mark("gate")
    assert [handle.result(PATIENCE_S) for handle in (first, low, normal, high)] == ["busy", 1, 3, 4]


def test_who_waits_too_long_is_dropped(authority, body, stage, caplog):
    """D3, D5: while READY; the handle raises, the log warns, and it never runs."""
    first = busy(authority, body, stage)
    late = authority.submit(body.note, stage, "late", id="late", max_wait=0.05)
    with pytest.raises(TaskDropped):
        late.result(PATIENCE_S)
    assert (late.outcome, late.cause) == ("rejected", "max_wait")
    assert ["late" in text and "max_wait" in text for text in warnings(caplog)] == [True]
    stage.mark("gate")
    first.result(PATIENCE_S)
    authority.submit(body.value).result(PATIENCE_S)
    assert not stage.has("late")


def test_many_drops_at_once_are_one_line_in_the_log(authority, body, stage, caplog):
    """D5: one line for a bulk, with their number."""
    busy(authority, body, stage)
    late = authority.submit_many([Call(body.value, (i,), {"max_wait": 0.05}) for i in range(50)])
    for handle in late:
        assert isinstance(handle.exception(PATIENCE_S), TaskDropped)
    assert authority.stats()["dropped"] == {"max_wait": 50}
    until(lambda: sum("50" in text for text in warnings(caplog)) == 1)
    assert len(warnings(caplog)) == 1


def test_cancelling_a_pending_task_ends_it_at_once(authority, body, stage, caplog):
    """D4: straight to DISPOSED, in the caller's own call; that is no drop and no warning."""
    busy(authority, body, stage)
    ready = authority.submit(body.note, stage, "x")
    queued = authority.submit(body.note, stage, "x", after=[ready])
    queued.cancel()
    assert (queued.done(), queued.state, queued.outcome, queued.cause) == (True, "DISPOSED", "aborted", "cancelled")
    ready.cancel()
    assert ready.done()
    with pytest.raises(TaskAborted):
        ready.result()
    stage.mark("gate")
    authority.submit(body.value).result(PATIENCE_S)
    assert not stage.has("x")
    assert not warnings(caplog)


SPOILERS = [
    ({"id": "bad", "cpu": 9}, Infeasible),
    ({"id": "good0"}, DuplicateTask),
    ({"id": "taken"}, DuplicateTask),
    ({"id": "bad", "after": ["nobody"]}, UnknownDependency),
    ({"id": "bad", "priority": 101}, ConfigError),
    ({"id": "bad", "colour": "red"}, ConfigError),
]


def test_a_batch_is_taken_in_whole_or_not_at_all(make, body, stage):
    """D6: one refusal refuses all; ids and limits stay free for the next batch."""
    authority = make(cpu=2)
    authority.submit(body.value, id="taken").result(PATIENCE_S)
    good = [Call(body.note, (stage, "ran"), {"id": f"good{i}"}) for i in range(3)]
    for spoiler, error in SPOILERS:
        with pytest.raises(error):
            authority.submit_many([*good, Call(body.note, (stage, "ran"), spoiler)])
    assert authority.stats()["submitted"] == 1
    assert not stage.has("ran")
    for handle in authority.submit_many(good):
        handle.result(PATIENCE_S)
    assert stage.count("ran") == 3


def test_a_refused_batch_names_the_task(make, body):
    """D6: whatever was wrong with it."""
    authority = make(cpu=2)
    authority.submit(body.value, id="taken")
    unnamed = []
    for spoiler, error in SPOILERS:
        with pytest.raises(error) as caught:
            authority.submit_many([Call(body.value, (), {"id": "good0"}), Call(body.value, (), spoiler)])
        if spoiler["id"] not in str(caught.value):
            unnamed.append(str(caught.value))
    assert not unnamed
