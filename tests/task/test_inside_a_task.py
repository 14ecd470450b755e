"""Inside a running task: what does not depend on the engine, or only one engine has."""

from __future__ import annotations

import asyncio
import re
import threading
import time

import pytest

import process_bodies
from patience import PATIENCE_S, until
from whywait import Authority, Command, Executor, current
from whywait.errors import ConfigError, InvalidTransition, TaskAborted, TaskTimeout, WhywaitError
from whywait.task.parts import HANDLER_THREADS


@pytest.fixture
def authority():
    with Authority(slots=2, pause_timeout=PATIENCE_S) as made:
        yield made


@pytest.mark.parametrize("engine", ["thread", "process"])
def test_a_pause_that_overtakes_a_resume_parks_the_body_again(authority, tmp_path, engine):
    """X1, X2: resumed and paused before the body hears of either: it parks for the second pause as well."""
    handle = authority.submit(process_bodies.checks_until, str(tmp_path / "go"), engine=engine)
    until((tmp_path / "go.begun").exists)
    handle.pause()
    with authority._core.lock:
        now = time.monotonic_ns()
        for act in (authority._core.kernel.resume, authority._core.kernel.pause):
            act(now, handle)
        decision = authority._core.kernel.dispatch(now)
    assert handle.state == "RUNNING"
    authority._core.ask_and_tell(decision, [])
    until(lambda: handle.state == "PAUSED")
    handle.resume()
    (tmp_path / "go").touch()
    assert handle.result(PATIENCE_S) == "went"


def test_what_is_disposing_says_so_when_it_opens_workers(authority):
    """W1: which state the task is in, and what to do."""
    begun, told = threading.Event(), []

    def body():
        context = current()
        begun.set()
        context.signal.wait(PATIENCE_S)
        for open_one in (lambda: context.spawn(int), lambda: context.handler(int), lambda: context.stream("s")):
            with pytest.raises(TaskAborted) as caught:
                open_one()
            told.append(str(caught.value))

    handle = authority.submit(body, id="ends")
    assert begun.wait(PATIENCE_S)
    handle.cancel()
    handle.exception(PATIENCE_S)
    assert told == [
        f"task ends is ending: only a running task has {what}; it is asked to end, so let its body end"
        for what in ("workers", "handlers", "streams")
    ]


def test_a_thread_body_ends_by_injection_if_that_is_allowed():
    """T6, O5: body and handlers that never look are ended, the opt-in given."""

    def spin():
        while True:
            time.sleep(0.001)

    def body():
        current().handler(spin)
        current().spawn(spin)
        spin()

    with Authority(slots=1, inject=True, grace=0.05) as authority:
        handle = authority.submit(body, timeout=0.02)
        with pytest.raises(TaskTimeout):
            handle.result(PATIENCE_S)


def test_a_command_has_no_stream_but_can_be_followed(authority):
    """W3: it ends with the task, with its error if it fails."""
    assert list(authority.submit(Command("true")).stream()) == []
    with pytest.raises(WhywaitError):
        list(authority.submit(Command("false")).stream())


def test_more_handlers_than_threads(authority):
    """W2: they take turns; one that waits for another makes room for it."""

    def chain(left):
        return 0 if left == 0 else 1 + current().handler(chain, left - 1).result(PATIENCE_S)

    def body():
        context = current()
        wide = [context.handler(int) for _ in range(3 * HANDLER_THREADS)]
        return sum(each.result(PATIENCE_S) for each in wide) + context.handler(chain, 2 * HANDLER_THREADS).result(
            PATIENCE_S
        )

    assert authority.submit(body).result(PATIENCE_S) == 2 * HANDLER_THREADS


def test_waiting_for_a_handler_can_end_before_it_does(authority):
    """W2: TimeoutError ends the waiting only."""
    go = threading.Event()

    def body():
        handler = current().handler(go.wait)
        with pytest.raises(TimeoutError, match="it goes on"):
            handler.result(0.01)
        go.set()
        return handler.result(PATIENCE_S)

    assert authority.submit(body).result(PATIENCE_S) is True


def test_blocking_forms_are_refused_on_the_loop(authority):
    """W2, W3: with the name of the form that does not block."""

    async def body():
        context = current()
        texts = []
        go = asyncio.Event()
        slow = context.handler(go.wait)
        queue = context.queue(limit=1)
        output = context.stream("s", limit=1)
        output.emit(1)
        for call in (slow.result, queue.get, lambda: output.emit(2)):
            with pytest.raises(WhywaitError, match="use `await") as caught:
                call()
            texts.append(str(caught.value))
        go.set()
        return texts

    assert len(authority.submit(body).result(PATIENCE_S)) == 3


def test_futures_of_an_executor_have_it_all():
    """W1, W2, W3: a future is the handle of its task."""

    def body():
        context = current()
        context.emit("chunk")
        return context.handler(int, "7").result(PATIENCE_S)

    with Executor(2) as executor:
        future = executor.submit(body)
        assert list(future.stream()) == ["chunk"]
        assert future.result(PATIENCE_S) == 7


def test_stream_limits_are_checked(authority):
    """W3: with the value."""
    handle = authority.submit(lambda: current().stream("x", limit=0))
    with pytest.raises(ConfigError, match="stream limit 0 is not allowed"):
        handle.result(PATIENCE_S)


def test_a_task_that_uses_nothing_of_it_has_nothing_of_it(authority):
    """C1: no signal, no parts, no stream is made for it."""
    handle = authority.submit(lambda: current().checkpoint())
    handle.result(PATIENCE_S)
    assert handle.inside is None
    assert handle.attention is False


def test_a_blocking_checkpoint_of_a_coroutine_does_not_freeze_the_loop():
    """X1: it raises where it would have to park, and says what to use; the loop goes on."""

    async def main():
        begun = asyncio.Event()

        async def body():
            begun.set()
            while True:
                current().checkpoint()
                await asyncio.sleep(0)

        async with Authority(slots=1, pause_timeout=PATIENCE_S) as authority:
            handle = authority.submit(body)
            await begun.wait()
            await handle.pause_async()
            with pytest.raises(WhywaitError, match=re.escape("use `await ctx.checkpoint_async()`")):
                await handle

    asyncio.run(main())


def test_an_object_that_is_called_like_a_coroutine_function_runs_like_one(authority):
    """E3: what it returns is awaited; a class of such objects is a plain function."""

    class Adder:
        async def __call__(self, number):
            await asyncio.sleep(0)
            return number + 1

    assert authority.submit(Adder(), 1).result(PATIENCE_S) == 2
    assert isinstance(authority.submit(Adder).result(PATIENCE_S), Adder)


def picture_now():
    return current().snapshot()


def test_a_task_sees_its_scope_as_it_is_now():
    """V4: an immutable picture of the scope of the task and what is below; the rest is not in it."""
    with Authority(slots=2) as authority, authority.scope("s") as scope:
        go = threading.Event()
        authority.submit(go.wait, id="outside")
        waiting = authority.submit(int, id="waits outside")
        picture = scope.submit(picture_now, id="looks").result(PATIENCE_S)
        go.set()
        waiting.result(PATIENCE_S)
    assert [(task.id, task.scope, task.state) for task in picture.running] == [("looks", "s", "RUNNING")]
    assert picture.pending == ()


def test_in_a_worker_process_there_is_no_picture():
    """V4: the authority is elsewhere; the error says what to do."""
    with Authority(slots=1) as authority:
        looks = authority.submit(process_bodies.look, engine="process")
        with pytest.raises(InvalidTransition, match="runs in a worker process, where there is no snapshot"):
            looks.result(PATIENCE_S)


def test_what_happens_inside_a_task_is_told_before_its_scope_is_disposed():
    """O4: handlers, workers and streams that end by the disposal itself."""

    def waits():
        current().signal.wait()

    def body():
        current().emit("chunk")
        current().spawn(waits)
        current().handler(waits)
        waits()

    with Authority(slots=1) as authority:
        scope = authority.scope("s")
        scope.submit(body)

        def told():
            return [event.kind for event in authority.events() if event.scope == "s"]

        until(lambda: {"WORKER_STARTED", "HANDLER_STARTED", "STREAM_OPENED"} <= set(told()))
        scope.dispose()
        assert told()[-1] == "SCOPE_DISPOSED"
        assert {"WORKER_ENDED", "HANDLER_ENDED", "STREAM_CLOSED"} <= set(told())
