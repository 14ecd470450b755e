"""W1, W2: handlers and workers of a running task; what reaches them, and what becomes of the task."""

import os
import signal
from contextlib import suppress

import inner_bodies
import pytest
from bodies import Oops

from patience import PATIENCE_S, until
from whywait.errors import ConfigError, InvalidTransition, TaskAborted, TaskFailed

# Worker processes take their time to start; where their parent is a thread, all engines do the same.
HIRING = pytest.mark.parametrize("engine", ["thread", "process"])


def events(authority, kind):
    return [dict(event.details) for event in authority.events() if event.kind == kind]


def test_handlers_run_in_the_order_of_their_graph(authority, inner, stage):
    """W2: each after those it names, with their results."""
    handle = authority.submit(inner.graph, stage)
    assert handle.result(PATIENCE_S) == ["end", ["left", ["top"]], ["right"]]
    order = stage.lines("order")
    assert (order[0], set(order[1:3]), order[3]) == ("top", {"left", "right"}, "end")


def test_handlers_run_at_the_same_time_and_take_no_slot(authority, inner, stage):
    """W2: one slot, two handlers that need each other; the task ends when they have."""
    handle = authority.submit(inner.pair, stage)
    assert handle.result(PATIENCE_S) == "body"
    assert stage.has("a")
    assert stage.has("b")


def test_handlers_show_in_the_events(authority, inner, stage):
    """V3: started and ended, by name and number, before the task is."""
    authority.submit(inner.pair, stage).result(PATIENCE_S)
    assert {each["handler"] for each in events(authority, "HANDLER_STARTED")} == {1, 2}
    ended = events(authority, "HANDLER_ENDED")
    assert [(each["name"], each["state"]) for each in ended] == [("meets", "succeeded")] * 2
    kinds = [event.kind for event in authority.events()]
    assert kinds.index("TASK_FINISHED") > max(i for i, kind in enumerate(kinds) if kind == "HANDLER_ENDED")


def test_a_handler_that_fails_fails_the_task(authority, inner, stage):
    """W2: the others get the signal, those to come never do, the body too is asked to end."""
    handle = authority.submit(inner.one_fails, stage)
    error = handle.exception(PATIENCE_S)
    assert (type(error), error.args[0]) == (Oops, "inside")
    assert (handle.outcome, handle.cause) == ("error", "handler")
    assert stage.lines("stays.left") in (["handler"], [])  # it may not have begun
    assert stage.lines("order") == []


def test_a_task_with_handlers_is_tried_again_as_a_whole(authority, inner, stage):
    """W2, T7: no retries of single handlers."""
    handle = authority.submit(inner.one_fails, stage, retry=2)
    assert isinstance(handle.exception(PATIENCE_S), Oops)
    assert (len(handle.attempts), stage.count("failed")) == (3, 3)


def test_a_body_that_fails_takes_its_parts_along(authority, inner, stage):
    """W1, W2: handlers and workers end before the task does."""
    handle = authority.submit(inner.body_fails, stage)
    error = handle.exception(PATIENCE_S)
    assert (type(error), error.args[0], handle.cause) == (Oops, "body", "exception")
    assert (stage.lines("handler.left"), stage.lines("worker.left")) == (["exception"], ["exception"])


def test_a_task_that_is_cancelled_takes_its_parts_along(authority, inner, stage):
    """X3, W2: they see the reason; nothing of the task is left when it has ended."""
    handle = authority.submit(inner.parks_in_handler, stage, "never")
    stage.wait("handler")
    handle.cancel()
    assert isinstance(handle.exception(PATIENCE_S), TaskAborted)
    assert (handle.outcome, stage.has("handler.left")) == ("aborted", False)
    (ended,) = events(authority, "HANDLER_ENDED")
    assert ended["state"] == "cancelled"


def test_current_works_in_handlers_and_workers(authority, inner, stage):
    """W1, W2: they see the task that they belong to."""
    handle = authority.submit(inner.own_ref, stage)
    assert handle.result(PATIENCE_S) == [handle.ref] * 3


def test_a_handler_parks_at_its_checkpoint(make, inner, stage):
    """X1, W2: the task is parked, and goes on when it is resumed."""
    authority = make(pause_timeout=PATIENCE_S)
    handle = authority.submit(inner.parks_in_handler, stage, "gate")
    stage.wait("handler")
    handle.pause()
    assert handle.state == "PAUSED"
    stage.mark("gate")
    assert not stage.has("handler.left")
    handle.resume()
    handle.result(PATIENCE_S)
    assert stage.has("handler.left")


@pytest.mark.parametrize("process", [False, True], ids=["threads", "processes"])
def test_workers_talk_to_each_other(authority, inner, process):
    """W1: by queues of the task; they end with it."""
    assert authority.submit(inner.serves, process).result(PATIENCE_S) == ([0, 2, 4, 6, 8, 10], process)
    assert [each["state"] for each in events(authority, "WORKER_ENDED")] == ["cancelled"] * 2


@pytest.mark.parametrize("process", [False, True], ids=["in_thread", "in_process"])
def test_a_worker_ends_with_its_task(authority, inner, stage, process):
    """W1: when the body has ended it is asked to, and has when the task has."""
    handle = authority.submit(inner.hires, stage, inner_bodies.stays, process)
    assert handle.result(PATIENCE_S) == "body"
    assert stage.lines("stays.left") == ["ended"]


@pytest.mark.parametrize("process", [False, True], ids=["in_thread", "in_process"])
def test_a_worker_that_fails_fails_the_task(authority, inner, stage, process):
    """W1: with what it raised."""
    handle = authority.submit(inner.waits_for_worker, stage, inner_bodies.oops, process)
    error = handle.exception(PATIENCE_S)
    assert (type(error), error.args[0]) == (Oops, "inside")
    assert (handle.outcome, handle.cause) == ("error", "worker")


@HIRING
def test_a_worker_process_that_is_killed_fails_the_task(authority, inner, stage):
    """W1: the error says how it ended."""
    handle = authority.submit(inner.waits_for_worker, stage, inner_bodies.dies, True)
    error = handle.exception(PATIENCE_S)
    assert isinstance(error, TaskFailed)
    assert "was lost: it was killed by SIGKILL" in str(error)
    assert handle.cause == "worker"


@HIRING
def test_a_worker_process_sees_the_reason(authority, inner, stage):
    """X3, W1: the abort of the task reaches it."""
    handle = authority.submit(inner.waits_for_worker, stage, inner_bodies.stays, True)
    stage.wait("stays")
    handle.cancel()
    assert isinstance(handle.exception(PATIENCE_S), TaskAborted)
    assert stage.lines("stays.left") == ["cancelled"]


@HIRING
def test_a_worker_process_that_ignores_everything_is_killed(make, inner, stage):
    """W1, O5: none survives its task."""
    authority = make(grace=0.1)
    handle = authority.submit(inner.hires, stage, inner_bodies.ignores, True)
    assert handle.result(PATIENCE_S) == "body"
    pid = int(stage.lines("stays")[0])
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@HIRING
def test_disposing_waits_for_the_kill_of_a_worker_process(make, inner, stage):
    """O5, W1: a task on a thread cannot be killed, but the worker process that it has hired is, and then it ends."""
    authority = make(grace=0.1)
    scope = authority.scope("s")
    handle = scope.submit(inner.waits_for_worker, stage, inner_bodies.ignores, True)
    stage.wait("stays")
    scope.dispose()
    assert (scope.state, handle.outcome) == ("DISPOSED", "aborted")
    with pytest.raises(ProcessLookupError):
        os.kill(int(stage.lines("stays")[0]), 0)


@HIRING
def test_a_worker_process_puts_out_into_the_stream_of_its_task(authority, inner, stage):
    """W1, W3: across as many processes as there are."""
    handle = authority.submit(inner.hires, stage, inner_bodies.worker_emits, True)
    assert list(handle.stream()) == list(range(10))


def test_what_should_end_takes_no_handlers_and_workers(authority, inner, stage):
    """W1: only a RUNNING task has them."""
    handle = authority.submit(inner.spawns_when_aborted, stage)
    stage.wait("a")
    handle.cancel()
    assert isinstance(handle.exception(PATIENCE_S), TaskAborted)
    assert stage.lines("refused") == ["TaskAborted", "TaskAborted"]


def test_what_has_ended_takes_no_handlers_workers_and_chunks(authority, inner, promises):
    """W1, W3: a context that was kept is of no use."""
    if not promises.shares_memory:
        assert authority.submit(inner.gives_context).exception(PATIENCE_S) is not None  # it does not travel
        return
    context = authority.submit(inner.gives_context).result(PATIENCE_S)
    with pytest.raises(InvalidTransition, match="is ended: only a running task has workers"):
        context.spawn(print)
    with pytest.raises(InvalidTransition, match="is ended: only a running task has handlers"):
        context.handler(print)
    with pytest.raises(InvalidTransition, match="is ended: only a running task has streams"):
        context.emit(1)
    with pytest.raises(InvalidTransition, match="is ended: no body of it runs that could have queues"):
        context.queue()


def test_a_parked_task_opens_no_handlers_workers_and_streams(make, inner, stage):
    """W1: one of its handlers has parked, so it is PAUSED; when it is resumed it opens them."""
    authority = make(pause_timeout=PATIENCE_S)
    handle = authority.submit(inner.opens_while_parked, stage)
    stage.wait("handler")
    handle.pause()
    assert handle.state == "PAUSED"
    stage.mark("parked")
    stage.wait("tried")
    handle.resume()
    assert handle.result(PATIENCE_S) == "opened"
    refused = stage.lines("refused")
    for line, what in zip(refused, ("workers", "handlers", "streams"), strict=True):
        assert f"is paused: only a running task has {what}; call checkpoint() before" in line
    assert len(events(authority, "WORKER_STARTED")) == 1


@HIRING
def test_a_worker_process_of_a_parked_task_opens_no_streams(make, inner, stage):
    """W1: it hears that the task is PAUSED, though another part of the task has parked."""
    authority = make(pause_timeout=PATIENCE_S)
    handle = authority.submit(inner.waits_for_worker, stage, inner_bodies.opens_until_refused, True)
    stage.wait("stays")
    handle.pause()
    stage.mark("parked")
    stage.wait("refused")
    assert "is paused: only a running task has streams" in stage.lines("refused")[0]
    handle.resume()
    handle.cancel()
    assert isinstance(handle.exception(PATIENCE_S), TaskAborted)


def test_a_queue_ends_with_its_task(authority, inner, promises):
    """W1: it takes and gives nothing more, wherever it was taken to, though items were left in it."""
    queue = authority.submit(inner.gives_queue, id="owner").result(PATIENCE_S)
    for use in (queue.get, lambda: queue.put(1), lambda: queue.put(1, 0.01)):
        with pytest.raises(InvalidTransition, match="queue 'items'"):
            use()


def test_a_queue_of_an_attempt_ends_with_it(authority, inner, stage):
    """W1, T7: a retry is another task, with queues of its own."""
    assert authority.submit(inner.keeps_queue, stage, retry=1).result(PATIENCE_S) == ["is over", 0]


@HIRING
def test_a_worker_process_whose_item_never_comes_ends_with_its_task(authority, inner, stage):
    """W1: it waits for an item on its event loop, or in its thread, when the body ends."""
    handle = authority.submit(inner.hires, stage, inner_bodies.waits_for_items, True)
    assert handle.result(PATIENCE_S) == "body"
    assert sorted(stage.lines("left")) == ["TaskAborted", "item"]


def test_the_reason_of_an_abort_reaches_the_body(authority, inner, stage):
    """X3, O4: cancelled, or its scope disposed."""
    handle = authority.submit(inner.says_reason, stage)
    stage.wait("a")
    handle.cancel()
    handle.exception(PATIENCE_S)
    scope = authority.scope("s")
    handle = scope.submit(inner.says_reason, stage)
    stage.wait("a", 2)
    scope.dispose()
    assert stage.lines("reason") == ["cancelled", "scope_disposed"]


def test_the_reason_of_a_timeout_reaches_the_body(authority, inner, stage):
    """T6: the signal says so; the outcome is TIMEOUT."""
    handle = authority.submit(inner.says_reason, stage, timeout=0.2)
    handle.exception(PATIENCE_S)
    assert (handle.outcome, handle.cause) == ("timeout", "run_timeout")
    if stage.has("a"):  # a loaded machine may not have come to its first line
        assert stage.lines("reason") == ["run_timeout"]


def test_a_pause_outlives_an_attempt_that_fails(make, inner, stage):
    """X1, T7: what is asked of the task holds for its next attempt."""
    authority = make(pause_timeout=PATIENCE_S)
    handle = authority.submit(inner.pauses_then_fails, stage, retry=1)
    stage.wait("a")
    handle.pause()
    assert (handle.state, len(handle.attempts)) == ("PAUSED", 2)
    handle.resume()
    assert handle.result(PATIENCE_S) == "again"


def test_handlers_come_after_handlers_of_the_same_task_only(make):
    """W2: anything else is refused with its value."""
    from whywait import current

    def body():
        with suppress(TaskAborted):
            current().handler(print, after=["x"])

    error = make(engine="thread").submit(body).exception(PATIENCE_S)
    assert isinstance(error, ConfigError)
    assert "not after 'x'" in str(error)


@pytest.mark.parametrize("engine", ["process"])
def test_a_worker_process_dies_with_the_process_of_its_task(make, inner, stage):
    """O5, W1: what a killed body has started goes with it."""
    authority = make(grace=0.1)
    handle = authority.submit(inner.hires, stage, inner_bodies.ignores, True, engine="process")
    stage.wait("stays")
    handle.cancel()
    assert isinstance(handle.exception(PATIENCE_S), TaskAborted)
    pid = int(stage.lines("stays")[0])

    def is_gone():
        try:
            os.kill(pid, signal.SIGCONT)
        except ProcessLookupError:
            return True
        return False

    until(is_gone, "the worker process")
