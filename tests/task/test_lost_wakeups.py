"""Bodies that wait in a queue or in `emit` hear every signal, whenever it comes."""

import asyncio
import threading
from contextlib import suppress

import pytest

from interrupts import Interrupt, at_every_place
from patience import PATIENCE_S, until
from stress import hasty_switches
from whywait import Authority, current
from whywait.engines.process.child_streams import Calls
from whywait.errors import TaskAborted
from whywait.task.context import TaskContext
from whywait.task.signals import AbortSignal

STORM = 250  # one in a hundred was lost where a signal came between the look at it and the sleep


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


def test_a_signal_between_a_question_of_a_worker_process_and_its_sleep_is_heard():
    """X3, W1: a worker process that asks the process above for an item."""
    signal = AbortSignal("asks")

    class Context:
        @property
        def signal(self):
            return signal

        def checkpoint(self):
            signal.raise_if_aborted()
            signal.follow(pause=0, reason="cancelled")  # right after it has looked
            signal.notify()

    class Link:
        def send(self, kind, payload):
            assert payload

    with pytest.raises(TaskAborted):
        Calls(Link()).call(Context(), ("get", "main", 0, None, None))


@WAITS
def test_a_storm_of_signals_loses_none(wait):
    """X3, W1, W3: tasks are cancelled while they begin to wait, the interpreter switching as often as it can."""
    with hasty_switches(), Authority(slots=4) as authority:
        handles = []
        for _ in range(STORM):
            begun = threading.Event()

            def body(begun=begun):
                begun.set()
                wait(current())

            handles.append(authority.submit(body))
            assert begun.wait(PATIENCE_S)
            handles[-1].cancel()
        for handle in handles:
            with suppress(TaskAborted):
                handle.result(PATIENCE_S)
            assert (handle.outcome, handle.cause) == ("aborted", "cancelled")


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


@pytest.mark.parametrize("producer", ["thread", "coroutine"])
def test_a_read_that_is_broken_off_anywhere_leaves_no_producer_waiting(producer):
    """W3: the chunk of that read may be gone with it; whatever comes after is read."""

    def body():
        output = current().stream("main", limit=1)
        for number in range(3):
            output.emit(number)

    async def body_async():
        output = current().stream("main", limit=1)
        for number in range(3):
            await output.emit_async(number)

    with Authority(slots=1) as authority:

        def attempt(place):
            handle = authority.submit(body_async if producer == "coroutine" else body)
            reader, rest = handle.stream(), []
            stream = authority._core.stream_of(handle, "main")
            until(lambda: stream.count and (stream.waiters._bells or stream.waiters._awaited))
            with Interrupt(place) as interrupt:
                next(reader)
            thread = threading.Thread(target=lambda: rest.extend(reader), daemon=True)
            thread.start()
            thread.join(PATIENCE_S)
            assert rest[-2:] == [1, 2], interrupt.where
            return interrupt.where

        at_every_place(attempt)


def test_a_wish_that_was_broken_off_is_passed_on_when_it_is_repeated(monkeypatch):
    """X3: the reason is there, and the interrupt came before the threads that wait for it were woken."""
    signal = AbortSignal("task")
    heard = []
    thread = threading.Thread(target=lambda: heard.append(signal.wait(PATIENCE_S)))
    thread.start()
    until(lambda: signal._aborted._waiters._bells)

    def interrupt(latch):
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(type(signal._aborted), "open", interrupt)
    with pytest.raises(KeyboardInterrupt):
        signal.follow(pause=0, reason="cancelled")
    assert signal.aborted
    signal.follow(pause=0, reason="cancelled")
    thread.join(PATIENCE_S)
    assert heard == [True]
