"""X: pause, resume and cancel, of what waits and of what runs."""

import asyncio
from dataclasses import replace

import pytest

from patience import PATIENCE_S, until, until_async
from whywait import Retry
from whywait.errors import ForeignRef, InvalidTransition, PauseTimeout, TaskAborted, UnknownTask


def test_a_pending_task_pauses_at_once(authority, body, stage):
    """X1, X2: READY or QUEUED; it does not start, and goes on where it was."""
    first = authority.submit(body.hold, stage, "a", "gate")
    ready, queued = authority.submit(body.value, 1), authority.submit(body.value, first)
    for handle, state in ((ready, "READY"), (queued, "QUEUED")):
        assert handle.state == state
        assert handle.paused_from is None
        handle.pause()
        assert (handle.state, handle.paused_from, handle.why().paused_from) == ("PAUSED", state, state)
    assert {view.id: view.paused_from for view in authority.snapshot().pending} == {
        ready.id: "READY",
        queued.id: "QUEUED",
    }
    ready.resume()
    queued.resume()
    assert (ready.state, queued.state) == ("READY", "QUEUED")
    queued.pause()
    stage.mark("gate")
    assert ready.result(PATIENCE_S) == 1
    assert queued.state == "PAUSED"
    queued.resume()
    assert queued.result(PATIENCE_S) == "a"


def test_a_running_task_parks_at_its_checkpoint_and_goes_on(make, body, stage):
    """X1, X2: `pause` returns when it has parked; it keeps its slot and does nothing until it is resumed."""
    authority = make(pause_timeout=PATIENCE_S)
    handle = authority.submit(body.steps, stage, "a", "gate")
    other = authority.submit(body.note, stage, "b")
    stage.wait("a")
    handle.pause()
    assert handle.state == "PAUSED"
    assert (other.state, authority.stats()["active"]) == ("READY", 1)
    stage.mark("gate")
    assert handle.why().running_ns is not None
    assert not stage.has("a.left")
    assert not stage.has("b")
    handle.resume()
    assert handle.result(PATIENCE_S) == "a"
    other.result(PATIENCE_S)


def test_many_can_be_parked_and_each_goes_on_by_itself(make, body, stage, promises):
    """X2: the last to be parked is resumed first, while all others stay parked."""
    authority = make(slots=None, pause_timeout=PATIENCE_S)
    handles = [authority.submit(body.steps, stage, f"a{i}", f"gate{i}") for i in range(promises.crowd)]
    for i, handle in enumerate(handles):
        stage.wait(f"a{i}")
        handle.pause()
        stage.mark(f"gate{i}")
    assert {handle.state for handle in handles} == {"PAUSED"}
    for i, handle in reversed(list(enumerate(handles))):
        handle.resume()
        assert handle.result(PATIENCE_S) == f"a{i}"


def test_a_body_without_checkpoint_cannot_be_paused(make, body, stage):
    """X1: after `pause_timeout` the task is cancelled and `pause` raises."""
    authority = make(pause_timeout=0.05)
    handle = authority.submit(body.hold, stage, "a", "never")
    stage.wait("a")
    with pytest.raises(PauseTimeout):
        handle.pause()
    with pytest.raises(TaskAborted):
        handle.result(PATIENCE_S)
    assert (handle.outcome, handle.cause) == ("aborted", "pause_timeout")
    assert authority.submit(body.value, 1).result(PATIENCE_S) == 1


def test_a_pause_that_comes_too_late_returns(make, body, stage):
    """X1: the body ends before it reaches a checkpoint; there is nothing to pause any more."""
    authority = make(pause_timeout=PATIENCE_S)
    handle = authority.submit(body.hold, stage, "a", "gate")
    stage.wait("a")
    stage.mark("gate")
    handle.pause()
    assert handle.result(PATIENCE_S) == "a"


def test_a_parked_task_can_be_cancelled(make, body, stage):
    """X3: it wakes up to its abort."""
    authority = make(pause_timeout=PATIENCE_S)
    handle = authority.submit(body.steps, stage, "a", "never")
    stage.wait("a")
    handle.pause()
    handle.cancel()
    with pytest.raises(TaskAborted):
        handle.result(PATIENCE_S)
    assert handle.cause == "cancelled"
    assert stage.has("a.left")


def test_a_running_task_that_is_cancelled_ends_aborted(authority, body, stage):
    """X3: the abort signal reaches the body; cancelling twice is cancelling once."""
    handle = authority.submit(body.hold, stage, "a", "never")
    stage.wait("a")
    handle.cancel()
    handle.cancel()
    with pytest.raises(TaskAborted):
        handle.result(PATIENCE_S)
    assert (handle.outcome, handle.cause, stage.count("a.left")) == ("aborted", "cancelled", 1)
    handle.cancel()
    asked = [event for event in authority.events() if event.kind == "TASK_ABORT_ASKED"]
    assert len(asked) == 1


def test_a_task_that_is_cancelled_as_soon_as_it_is_submitted_ends(authority, body, stage):
    """X3: before its body has come to its first line, too."""
    for i in range(30):
        handle = authority.submit(body.hold, stage, f"a{i}", "never")
        handle.cancel()
        assert isinstance(handle.exception(PATIENCE_S), TaskAborted)
    assert authority.submit(body.value, 1).result(PATIENCE_S) == 1


def test_what_a_cancelled_body_returns_is_lost(authority, body, stage):
    """X3: ABORTED whatever it returns; the descendants end at once, the slot comes back with the body."""
    handle = authority.submit(body.deaf, stage, "a", "gate", id="a")
    child = authority.submit(body.value, handle)
    stage.wait("a")
    handle.cancel()
    assert child.done()
    assert (child.cause, child.why().root) == ("dependency", "a")
    assert (handle.state, handle.done(), authority.stats()["active"]) == ("DISPOSING", False, 1)
    stage.mark("gate")
    with pytest.raises(TaskAborted):
        handle.result(PATIENCE_S)
    assert stage.has("a.left")


def test_an_abort_reaches_a_body_that_does_not_look_where_the_engine_can(authority, body, stage, promises):
    """X3: elsewhere the body runs on, and the task is DISPOSING until it ends."""
    handle = authority.submit(body.waits, stage, "a", "gate")
    stage.wait("a")
    handle.cancel()
    if not promises.interrupts:
        assert handle.state == "DISPOSING"
        stage.mark("gate")
    assert isinstance(handle.exception(PATIENCE_S), TaskAborted)
    assert stage.has("a.left")


def test_pause_without_blocking_the_loop(make, body, stage):
    """X1: `pause_async` waits for the body to park while the loop goes on."""
    authority = make(pause_timeout=PATIENCE_S)

    async def main():
        async with authority:
            handle = authority.submit(body.steps, stage, "a", "gate")
            await until_async(lambda: stage.has("a"))
            await handle.pause_async()
            assert handle.state == "PAUSED"
            handle.resume()
            stage.mark("gate")
            return await handle

    assert asyncio.run(main()) == "a"


def test_a_task_is_paused_resumed_and_cancelled_by_id_or_ref(authority, body, stage):
    """X5: as its handle does it; `scope/id` where the id alone is ambiguous."""
    first = authority.submit(body.hold, stage, "a", "gate", id="first")
    stage.wait("a")
    named, other = authority.submit(body.value, 1, id="named"), authority.submit(body.value, 2)
    authority.pause("named")
    authority.pause(other.ref)
    assert (named.state, other.state) == ("PAUSED", "PAUSED")
    authority.resume("default/named")
    assert named.state == "READY"
    authority.cancel(other.ref)
    authority.cancel("named")
    assert [(handle.outcome, handle.cause) for handle in (named, other)] == [("aborted", "cancelled")] * 2
    stage.mark("gate")
    assert first.result(PATIENCE_S) == "a"


def test_what_has_ended_is_no_error_and_what_never_was_is(authority, body):
    """X5, X3, X4, T8: by id, by generated id, by ref; resuming what is not paused is an error."""
    named, unnamed = authority.submit(body.value, 1, id="named"), authority.submit(body.value, 2)
    for handle in (named, unnamed):
        handle.result(PATIENCE_S)
        for known in (handle.id, handle.ref):
            authority.cancel(known)
            authority.pause(known)
            with pytest.raises(InvalidTransition, match="has ended, it is not paused: there is nothing to resume"):
                authority.resume(known)
    assert (named.outcome, unnamed.outcome) == ("success", "success")
    for act in (authority.cancel, authority.pause, authority.resume):
        with pytest.raises(UnknownTask, match="no task has the id 'never'"):
            act("never")
        with pytest.raises(UnknownTask, match="@0000000999"):
            act("@0000000999")
        with pytest.raises(UnknownTask, match="was never given out"):
            act(replace(named.ref, number=999))
        with pytest.raises(ForeignRef):
            act(replace(named.ref, authority=0))


def test_the_ref_of_an_earlier_attempt_cancels_the_task(authority, body, stage):
    """X5, T7: the handle follows the task through its retries, and so does its first ref."""
    task = authority.submit(body.fail, "x", retry=Retry(1, backoff=60), id="again")
    first = task.ref
    until(lambda: len(task.attempts) == 2)
    authority.cancel(first)
    assert (task.outcome, task.cause) == ("aborted", "cancelled")
