"""V: what can be seen of a run."""

import json

import pytest

from patience import PATIENCE_S, until


def in_order(events):
    seqs = [event.seq for event in events]
    return seqs == sorted(set(seqs))


def test_why_names_who_holds_the_slot(authority, body, stage):
    """V1: a waiting task names the gate, its numbers and the holder."""
    authority.submit(body.hold, stage, "a", "gate", id="holder")
    waiting = authority.submit(body.value, id="waiting")
    stage.wait("a")
    why = authority.why("waiting")
    assert (why.state, why.primary, why.position, why.effective_priority) == ("READY", "slot", 0, 50)
    (reason,) = why.reasons
    assert (reason.kind, reason.need, reason.free, reason.limit) == ("slot", 1, 0, 1)
    assert [(holder.id, holder.state) for holder in reason.holders] == [("holder", "RUNNING")]
    assert "holder" in str(waiting.why())
    assert json.loads(json.dumps(why.to_dict()))["reasons"][0]["holders"][0]["id"] == "holder"
    assert why.waited_ns == sum(why.breakdown.values())


def test_a_snapshot_is_one_moment_and_stays_so(authority, body, stage):
    """V4: tasks, gates and scopes; it does not change afterwards."""
    scope = authority.scope("s", slots=1)
    running = scope.submit(body.hold, stage, "a", "gate", id="a")
    waiting = scope.submit(body.value, id="b")
    stage.wait("a")
    snapshot = authority.snapshot()
    stage.mark("gate")
    waiting.result(PATIENCE_S)
    running.result(PATIENCE_S)
    assert [(view.id, view.state) for view in snapshot.running] == [("a", "RUNNING")]
    assert [(view.id, view.state) for view in snapshot.pending] == [("b", "READY")]
    assert (snapshot.slots.limit, snapshot.slots.free) == (1, 0)
    assert {view.key: view.tasks for view in snapshot.scopes} == {"default": 0, "s": 2}
    with pytest.raises(AttributeError):
        snapshot.slots = None
    assert json.dumps(snapshot.to_dict())
    assert scope.snapshot().running == ()


def test_stats_count_everything(authority, body, stage):
    """V4: active, queued, submitted, completed, by outcome, dropped by cause, quantiles of the wait."""
    held = authority.submit(body.hold, stage, "a", "gate")
    handles = [authority.submit(body.value, 1), authority.submit(body.fail, "x"), authority.submit(body.value)]
    stage.wait("a")
    stats = authority.stats()
    assert (stats["active"], stats["queued"], stats["submitted"], stats["completed"]) == (1, 3, 4, 0)
    handles[2].cancel()
    stage.mark("gate")
    for handle in (held, *handles):
        handle.exception(PATIENCE_S)
    stats = authority.stats()
    assert (stats["active"], stats["queued"], stats["submitted"], stats["completed"]) == (0, 0, 4, 4)
    assert {name: count for name, count in stats["by_outcome"].items() if count} == {
        "success": 2,
        "error": 1,
        "aborted": 1,
    }
    assert json.dumps(stats)


def test_events_tell_the_life_of_a_task_in_order(authority, body):
    """V3: strictly increasing seq, each event naming the one that led to it, no arguments."""
    handle = authority.submit(body.value, "secret", id="job")
    handle.result(PATIENCE_S)
    events = authority.events()
    assert in_order(events)
    mine = [event for event in events if event.name == "job"]
    assert [event.kind for event in mine] == ["TASK_SUBMITTED", "TASK_STARTED", "TASK_FINISHED"]
    assert mine[1].cause == mine[0].seq
    assert mine[2].cause == mine[1].seq
    assert "secret" not in str(events)
    assert authority.events(since=mine[1].seq)[0].seq == mine[1].seq + 1


def test_the_memory_of_events_is_bounded(make, body):
    """V3: the oldest go first."""
    authority = make(events=10)
    for i in range(20):
        authority.submit(body.value, i).result(PATIENCE_S)
    assert len(authority.events()) == 10
    assert in_order(authority.events())


def test_subscribers_get_every_event_in_order(wide, body, stage):
    """V3: exactly what is remembered, whichever threads the tasks end in; until they have had enough."""
    seen, other = [], []
    start = max((event.seq for event in wide.events()), default=0)
    stop = wide.subscribe(seen.append)
    stop_other = wide.subscribe(other.append)
    handles = [wide.submit(body.value, i, priority=i % 100) for i in range(100)]
    handles.append(wide.submit(body.flaky, stage, "f", 1, retry=1))
    for handle in handles:
        handle.result(PATIENCE_S)
    until(lambda: seen and len(seen) == len(wide.events(since=start)))
    assert seen == wide.events(since=start)
    assert in_order(seen)
    stop_other()
    assert other == seen
    wide.submit(body.value).result(PATIENCE_S)
    until(lambda: seen[-1].kind == "TASK_FINISHED" and len(seen) == len(wide.events(since=start)))
    assert len(other) < len(seen)
    stop()
    stop()


def test_a_failing_subscriber_is_logged_and_harms_nobody(authority, body, caplog):
    """V3: the others get their events, the tasks run."""
    seen = []

    def broken(event):
        raise ValueError(event.kind)

    authority.subscribe(broken)
    authority.subscribe(seen.append)
    assert authority.submit(body.value, 1).result(PATIENCE_S) == 1
    until(lambda: [event.kind for event in seen][-1:] == ["TASK_FINISHED"])
    assert any("subscriber" in record.getMessage() for record in caplog.records)
