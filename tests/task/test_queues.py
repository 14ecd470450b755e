"""Queues of a running task, and where they are taken to: other threads, other tasks, other processes."""

import asyncio
import threading
from queue import Empty, Full

import pytest

import process_bodies
from patience import PATIENCE_S, until
from whywait import Authority, current
from whywait.errors import ConfigError, InvalidTransition, TaskAborted

OVER = "task owner has ended: its queue 'items' takes and gives nothing more"


@pytest.fixture
def authority():
    with Authority(slots=2, pause_timeout=PATIENCE_S) as made:
        yield made


class Owner:
    """A task that lends its queue until it is told to end."""

    def __init__(self, authority, limit=0):
        self.queue = None
        self.limit = limit
        self._lent, self.end = threading.Event(), threading.Event()
        self.handle = authority.submit(self._body, id="owner")
        assert self._lent.wait(PATIENCE_S)

    def _body(self):
        self.queue = current().queue("items", limit=self.limit)
        self._lent.set()
        assert self.end.wait(PATIENCE_S)


def is_waited_for(queue):
    waiters = queue._mailbox.waiters
    return bool(waiters._bells or waiters._awaited)


def raised_in_thread(fn):
    """Start a thread that calls a function; return the thread, and a list for what the function raises."""
    raised = []

    def run():
        try:
            fn()
        except BaseException as error:  # noqa: BLE001 - whatever it is, the test looks at it
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, raised


def test_a_queue_has_limits_and_timeouts(authority):
    """W1: as those of the standard library."""

    def body():
        queue = current().queue(limit=1)
        with pytest.raises(Empty):
            queue.get(0.001)
        queue.put(1)
        with pytest.raises(Full):
            queue.put(2, 0.001)
        assert len(queue) == 1
        with pytest.raises(ConfigError, match="queue limit -1"):
            current().queue("x", limit=-1)
        return queue.get()

    assert authority.submit(body).result(PATIENCE_S) == 1


def test_a_queue_is_no_place_to_hide_from_an_abort(authority):
    """W1, X3: a body that waits for an item wakes up."""
    begun = threading.Event()

    def body():
        begun.set()
        current().queue().get()

    handle = authority.submit(body)
    assert begun.wait(PATIENCE_S)
    handle.cancel()
    assert isinstance(handle.exception(PATIENCE_S), TaskAborted)


@pytest.mark.parametrize("verb", ["get", "put"])
def test_a_thread_that_waits_when_the_task_ends_wakes_and_raises(authority, verb):
    """W1: it was started by nothing of the task, and waits without a timeout."""
    owner = Owner(authority, limit=1)
    if verb == "put":
        owner.queue.put(0)
    thread, raised = raised_in_thread(owner.queue.get if verb == "get" else lambda: owner.queue.put(1))
    until(lambda: is_waited_for(owner.queue))
    owner.end.set()
    thread.join(PATIENCE_S)
    assert [(type(error), str(error)) for error in raised] == [(InvalidTransition, OVER)]
    assert owner.handle.result(PATIENCE_S) is None


def test_a_coroutine_that_waits_when_the_task_ends_wakes_and_raises(authority):
    """W1: on an event loop that knows nothing of the task."""
    owner = Owner(authority)

    async def main():
        getting = asyncio.create_task(owner.queue.get_async())
        while not is_waited_for(owner.queue):  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0.001)
        owner.end.set()
        with pytest.raises(InvalidTransition, match=OVER):
            await getting

    asyncio.run(main())


def uses(queue):
    """Return what each use of a queue raises here."""
    raised = []
    for use in (queue.get, lambda: queue.put(1), lambda: queue.put(1, 0.01), lambda: len(queue)):
        try:
            use()
        except InvalidTransition as error:
            raised.append(str(error))
    return raised


async def uses_async(queue):
    raised = []
    for use in (queue.get_async, lambda: queue.put_async(1)):
        try:
            await use()
        except InvalidTransition as error:
            raised.append(str(error))
    return raised


ELSEWHERE = "queue 'items' belongs to task owner: it can be used by that task only, while it runs"


@pytest.mark.parametrize("place", ["body", "coroutine", "handler", "worker"])
def test_another_task_is_refused_a_queue(authority, place):
    """W1: its body, handlers and workers, though they hold the very object, and neither an item nor room is lacking."""
    owner = Owner(authority)
    owner.queue.put(0)
    if place == "coroutine":
        other = authority.submit(uses_async, owner.queue)
    elif place == "body":
        other = authority.submit(uses, owner.queue)
    else:
        add = "handler" if place == "handler" else "spawn"
        other = authority.submit(lambda: getattr(current(), add)(uses, owner.queue).result(PATIENCE_S))
    raised = other.result(PATIENCE_S)
    assert raised == [ELSEWHERE] * (2 if place == "coroutine" else 4)
    assert owner.queue.get() == 0
    owner.end.set()
    assert owner.handle.result(PATIENCE_S) is None


def test_the_parts_of_the_task_use_its_queue(authority):
    """W1: what one of them puts in, another gets, coroutines of the body too."""

    async def body():
        queue = current().queue("items")
        await current().handler(queue.put, "by a handler")
        await current().spawn(queue.put, "by a worker")
        await asyncio.gather(queue.put_async("by a coroutine"))
        return [await queue.get_async() for _ in range(3)]

    assert authority.submit(body).result(PATIENCE_S) == ["by a handler", "by a worker", "by a coroutine"]


def test_a_queue_in_the_process_of_another_task_is_not_mistaken_for_its_own(authority):
    """W1: a queue travels as a name, which means nothing to another task."""
    owner = Owner(authority)
    puts = authority.submit(process_bodies.puts, owner.queue, engine="process")
    with pytest.raises(InvalidTransition, match="queue 'items' belongs to task owner"):
        puts.result(PATIENCE_S)
    assert len(owner.queue) == 0
    owner.end.set()


def test_a_worker_process_is_refused_a_limit_that_makes_no_sense(authority):
    """W1: with the value."""

    def body():
        return current().spawn(process_bodies.asks_for_queue, -1, process=True).result(PATIENCE_S)

    assert "queue limit -1 is not allowed" in authority.submit(body).result(PATIENCE_S)
