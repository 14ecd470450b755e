"""Bodies that wait in a queue or in `emit` hear every signal, whenever it comes."""

import asyncio
import threading

import pytest

from patience import PATIENCE_S, until
from whywait import Authority, current
from whywait.errors import TaskAborted
from whywait.task.context import TaskContext


def get(context):
    context.queue().get()


def put(context):
    queue = context.queue(limit=1)
    for number in range(2):
        queue.put(number)


def emit(context):
    output = context.stream("main", limit=1)
    for number in range(2):
        output.emit(number)


async def get_async(context):
    await context.queue().get_async()


async def put_async(context):
    queue = context.queue(limit=1)
    for number in range(2):
        await queue.put_async(number)


async def emit_async(context):
    output = context.stream("main", limit=1)
    for number in range(2):
        await output.emit_async(number)


WAITS = pytest.mark.parametrize("wait", [get, put, emit])
WAITS_ASYNC = pytest.mark.parametrize("wait", [get_async, put_async, emit_async])


@WAITS
def test_a_signal_between_the_checkpoint_and_the_sleep_is_heard(monkeypatch, wait):
    """X3, W1, W3: the thread is held where it has just looked at its signal; then the signal fires."""
    looked, fired = threading.Event(), threading.Event()
    checkpoint = TaskContext.checkpoint

    def slow(context):
        checkpoint(context)
        looked.set()
        assert fired.wait(PATIENCE_S)

    monkeypatch.setattr(TaskContext, "checkpoint", slow)
    with Authority(slots=1) as authority:
        handle = authority.submit(lambda: wait(current()))
        assert looked.wait(PATIENCE_S)
        handle.cancel()
        fired.set()
        assert isinstance(handle.exception(PATIENCE_S), TaskAborted)


@WAITS_ASYNC
def test_a_pause_between_the_checkpoint_of_a_coroutine_and_its_sleep_is_heard(monkeypatch, wait):
    """X1, W1, W3: the coroutine parks; an abort would cancel it wherever it waits."""
    looked, asked = threading.Event(), threading.Event()
    checkpoint = TaskContext.checkpoint_async

    async def slow(context):
        await checkpoint(context)
        looked.set()
        await asyncio.to_thread(asked.wait, PATIENCE_S)

    monkeypatch.setattr(TaskContext, "checkpoint_async", slow)

    async def body():
        await wait(current())

    with Authority(slots=1, pause_timeout=PATIENCE_S) as authority:
        handle = authority.submit(body)
        assert looked.wait(PATIENCE_S)
        pausing = threading.Thread(target=handle.pause)
        pausing.start()
        until(lambda: handle.signal is not None and handle.signal.pause_asked)
        asked.set()
        pausing.join(PATIENCE_S)
        assert handle.state == "PAUSED"
        handle.cancel()
        assert isinstance(handle.exception(PATIENCE_S), TaskAborted)


@pytest.mark.parametrize("engine", ["thread", "process"])
def test_a_reader_of_what_comes_next_lets_a_producer_go_on_that_waits_for_a_first_reader(engine):
    """W3: what came before is held for no reader any more, and the producer hears of it."""

    def body():
        for number in range(100):
            current().emit(number)

    with Authority(slots=1) as authority:
        handle = authority.submit(body, engine=engine)
        stream = authority._core.stream_of(handle, "main")
        until(lambda: stream.count == stream.limit)
        assert list(handle.stream(past=False)) == list(range(stream.limit, 100))


@pytest.mark.parametrize("engine", ["thread", "process"])
@pytest.mark.parametrize("leaves", ["closed", "forgotten"])
def test_a_producer_goes_on_when_the_reader_that_held_it_up_has_left(engine, leaves):
    """W3: the producer hears of it, wherever it runs, and the other readers get the rest."""

    def body():
        output = current().stream("main", limit=1)
        for number in range(5):
            output.emit(number)

    with Authority(slots=1) as authority:
        handle = authority.submit(body, engine=engine)
        slow, quick = handle.stream(), handle.stream()
        assert next(quick) == 0
        stream = authority._core.stream_of(handle, "main")
        until(lambda: stream._asking if engine == "process" else stream.waiters._bells)
        if leaves == "closed":
            slow.close()
        del slow
        assert list(quick) == [1, 2, 3, 4]
