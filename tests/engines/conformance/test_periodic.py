"""R: periodic tasks in real time, on every engine. The grid itself is proved in virtual time."""

import asyncio
import threading
import time

import pytest

from patience import PATIENCE_S, until
from whywait.errors import DisposeIncomplete, InvalidTransition


def details(authority, kind):
    return [dict(event.details or ()) for event in authority.events() if event.kind == kind]


def codes(authority):
    return {each["code"] for each in details(authority, "PERIODIC_SKIPPED")}


def test_a_trigger_is_an_ordinary_task(wide, body, stage):
    """R1, R3: it starts, ends, counts and shows like any other."""
    scope = wide.scope("s")
    periodic = scope.periodic(body.note, stage, "tick", every="5ms", id="beat", priority="high")
    stage.wait("tick", 3)
    started = [event for event in wide.events() if event.kind == "TASK_STARTED"]
    assert {event.name.split("#")[0] for event in started} == {"beat"}
    status = periodic.status()
    assert (status.id, status.enabled, status.interval_ms) == ("s/beat", True, 5)
    assert status.run_count >= 3
    assert status.last_run_at < status.next_run_at
    assert (status.consecutive_failures, status.last_error) == (0, None)
    assert periodic.ref.scope == status.task_ref.scope == "s"
    assert abs(status.next_run_at.timestamp() - time.time()) < PATIENCE_S
    assert status.last_run_at.tzinfo is not None
    assert status.runtime_id == periodic.runtime_id != scope.periodic(int, every=60).runtime_id
    assert next(listed.id for listed in wide.snapshot().periodics) == "s/beat"


def test_a_periodic_runs_beside_tasks_that_hold_all_slots(make, body, stage, promises):
    """R3, S6: with a slot it would have to wait for one."""
    authority = make(slots=1)
    scope = authority.scope("s")
    first = scope.submit(body.hold, stage, "a", "gate")
    stage.wait("a")
    beside = scope.periodic(body.note, stage, "tick", every="5ms", id="beside")
    waits = scope.periodic(body.note, stage, "tock", every="5ms", id="waits", slot=True)
    until(lambda: beside.status().run_count)
    if promises.crowd > 1:
        stage.wait("tick", 2)
    assert waits.status().run_count == 0
    stage.mark("gate")
    first.result(PATIENCE_S)
    stage.wait("tock")
    assert [view.slot for view in authority.snapshot().periodics] == [False, True]


def test_foreground_work_goes_on_unhindered(wide, body, stage):
    """R3: failing periodics change neither results nor order, also where an error would abort the scope."""
    with wide.scope("s", on_error="abort") as scope:
        bad = scope.periodic(body.fail, "periodic", every="2ms", id="bad")
        scope.periodic(body.note, stage, "tick", every="3ms")
        step = line = scope.submit(body.value, 0)
        for number in range(20):
            step = scope.submit(body.add, step, 1, kwargs={"third": number})
            line = scope.submit(body.line, stage, "order", str(number), after=[step, line])
        assert step.result(PATIENCE_S) == 20 + sum(range(20))
        until(lambda: bad.status().run_count)
    assert scope.state == "DISPOSED"
    assert stage.lines("order") == [str(number) for number in range(20)]


def test_switching_off_lets_an_iteration_finish(wide, body, stage):
    """R5: from any thread; on again, the ticks are on the grid as ever."""
    scope = wide.scope("s")
    periodic = scope.periodic(body.hold, stage, "a", "gate", every="3ms", overlap="queue", id="beat")
    stage.wait("a")
    until(lambda: codes(wide))  # one runs, one waits
    thread = threading.Thread(target=wide.set_periodic_enabled, args=("beat", False))
    thread.start()
    thread.join(PATIENCE_S)
    assert not periodic.enabled
    assert [dict(event.details)["cause"] for event in wide.events() if event.kind == "TASK_DROPPED"] == ["periodic_off"]
    assert stage.count("a") == 1
    stage.mark("gate")
    until(lambda: not scope.snapshot().running)
    assert (stage.count("a"), periodic.status().next_run_at) == (1, None)
    wide.set_periodic_enabled("s/beat", True)
    stage.wait("a", 2)


def test_disposing_ends_it_in_the_midst_of_an_iteration(wide, body, stage):
    """R1, O4: the iteration is aborted, no tick comes any more."""
    scope = wide.scope("s")
    periodic = scope.periodic(body.hold, stage, "a", "never", every="2ms")
    stage.wait("a")
    scope.dispose()
    assert (scope.state, periodic.enabled, stage.count("a.left")) == ("DISPOSED", False, 1)
    with pytest.raises(InvalidTransition, match="has ended with its scope"):
        periodic.set_enabled(True)


def test_leaving_a_block_waits_for_tasks_and_then_stops_it(wide, body, stage):
    """O6: the foreground is waited for, the iteration in flight finishes."""
    with wide.scope("s") as scope:
        periodic = scope.periodic(body.note, stage, "tick", every="1ms")
        stage.wait("tick", 2)
        handle = scope.submit(body.hold, stage, "a", "gate")
        stage.wait("a")
        stage.mark("gate")
    assert (handle.outcome, periodic.enabled) == ("success", False)
    assert not [event for event in wide.events() if event.kind == "TASK_ABORT_ASKED"]


def test_leaving_an_async_block_stops_it(wide, body, stage):
    """O6: the same with `async with`."""

    async def main():
        async with wide, wide.scope("s") as scope:
            scope.periodic(body.note, stage, "tick", every="1ms")
            return await scope.submit(body.value, 1)

    assert asyncio.run(asyncio.wait_for(main(), PATIENCE_S)) == 1


def test_an_iteration_that_ignores_its_timeout_does_not_hold_up_leaving(make, body, stage, promises, monkeypatch):
    """O5, O6, R5: it is killed after its grace where the engine can do that; otherwise leaving raises, and names it."""
    if not promises.ends_deaf:
        monkeypatch.setattr("whywait.runtime.leaving.KILL_S", 0.2)
    authority = make(grace=0.1)
    authority.submit(body.value, 1).result(PATIENCE_S)  # what it takes to start a process is no part of the timeout
    scope = authority.scope("s")

    def leave():
        with scope:
            scope.periodic(body.deaf, stage, "a", "gate", every=60, immediately=True, id="deaf", timeout=1.0)
            stage.wait("a")

    if promises.ends_deaf:
        leave()
        assert not stage.has("a.left")
    else:
        with pytest.raises(DisposeIncomplete, match="deaf#"):
            leave()
        stage.mark("gate")
    until(lambda: scope.state == "DISPOSED")
