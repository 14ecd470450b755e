"""What a running task can see and do: its signal, checkpoints, streams, handlers, workers, queues."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from queue import Empty, Full
from typing import TYPE_CHECKING, Any

from whywait.crew import Member
from whywait.errors import ConfigError, InvalidTransition, WhywaitError
from whywait.inside import crew_of
from whywait.kernel.model import Ref
from whywait.mailbox import EMPTY
from whywait.signals import AbortSignal, in_coroutine, in_thread, signal_of
from whywait.streams import DEFAULT, LIMIT, check_limit
from whywait.waiters import refuse_on_loop

if TYPE_CHECKING:
    from whywait.handle import Handle


class TaskContext:
    """The running task, as seen from inside its body, its handlers and its workers."""

    __slots__ = ("_handle",)

    def __init__(self, handle: Handle[Any]) -> None:
        """Made by :func:`current` only."""
        self._handle = handle

    @property
    def ref(self) -> Ref:
        """The task's identity."""
        return self._handle.ref

    @property
    def signal(self) -> AbortSignal:
        """The abort signal of this task."""
        return signal_of(self._handle)

    def checkpoint(self) -> None:
        """Park while a pause is asked for, raise TaskAborted if the task should end; costs almost nothing otherwise."""
        handle = self._handle
        if handle.attention:
            signal = signal_of(handle)
            while signal.pause_asked and not signal.aborted:
                refuse_on_loop("checkpoint() of a task that is to pause", "await ctx.checkpoint_async()")
                go = signal.go
                handle._authority.parked(handle)
                go.wait()
            signal.raise_if_aborted()

    async def checkpoint_async(self) -> None:
        """Do the same in a coroutine, without blocking the event loop."""
        handle = self._handle
        if handle.attention:
            signal = signal_of(handle)
            while signal.pause_asked and not signal.aborted:
                go = signal.go
                handle._authority.parked(handle)
                await signal.park_async(go)
            signal.raise_if_aborted()

    # Streams

    def emit(self, chunk: Any, stream: str = DEFAULT) -> None:  # noqa: ANN401 - any chunk
        """Put a chunk out into a stream; wait, as at a checkpoint, while the stream is full."""
        self.stream(stream).emit(chunk)

    async def emit_async(self, chunk: Any, stream: str = DEFAULT) -> None:  # noqa: ANN401 - any chunk
        """Do the same in a coroutine, without blocking the event loop."""
        await self.stream(stream).emit_async(chunk)

    def stream(self, name: str, *, limit: int = LIMIT) -> Output:
        """Return a stream to put chunks out into; who names it first says how many it may keep."""
        return Output(self, name, limit)

    # Handlers and workers

    def handler(self, fn: Callable[..., Any], /, *args: Any, after: Iterable[Member] = ()) -> Member:  # noqa: ANN401 - the function's own
        """Run a step of this task, in parallel to the body, after other handlers.

        A handler among ``args`` is one that comes before, and is replaced by its result. The task ends when its
        handlers have, and fails with the first that fails.
        """
        self._refuse_unless_running("handlers")
        return crew_of(self._handle).add_handler(fn, args, after)

    def spawn(self, fn: Callable[..., Any], /, *args: Any, process: bool = False) -> Member:  # noqa: ANN401 - the function's own
        """Start a worker, a thread or a process, that belongs to this task and ends with it.

        When the body and its handlers have ended, the signal fires for the workers (reason ``ended``). A worker that
        fails fails the task.
        """
        self._refuse_unless_running("workers")
        if not process:
            return crew_of(self._handle).add_worker(fn, args)
        from whywait.engines.hired import hire

        return hire(crew_of(self._handle), self._handle, fn, args)

    def queue(self, name: str = DEFAULT, *, limit: int = 0) -> TaskQueue:
        """Return a queue of this task by which its body, handlers and workers (processes too) talk to each other."""
        remote = getattr(self._handle, "remote_queue", None)
        queue: TaskQueue = TaskQueue(self, name, limit) if remote is None else remote(self, name, limit)
        return queue

    def _refuse_unless_running(self, what: str) -> None:
        handle = self._handle
        signal_of(handle).raise_if_aborted()
        if not handle.is_running:
            raise InvalidTransition(f"task {handle.id} is {handle.state}: only a RUNNING task has {what}")


class Output:
    """A stream, as its producer sees it."""

    __slots__ = ("_context", "_stream")

    def __init__(self, context: TaskContext, name: str, limit: int) -> None:
        """Made by ``ctx.stream`` only."""
        check_limit(limit)
        self._context = context
        handle = context._handle
        self._stream: Any = handle._authority.open_stream(handle, name, limit)

    def emit(self, chunk: Any) -> None:  # noqa: ANN401 - any chunk
        """Put a chunk out; wait, as at a checkpoint, while the stream is full."""
        context, stream = self._context, self._stream
        if self._emit_at_once(stream, chunk := stream.prepare(chunk)):
            return
        refuse_on_loop("emit() into a full stream", "await ctx.emit_async(chunk)")
        with context.signal.heard_by(stream.waiters.ring):
            context.checkpoint()
            stream.waiters.wait(lambda: stream.offer(chunk), None, context.checkpoint)
        stream.waiters.ring()

    async def emit_async(self, chunk: Any) -> None:  # noqa: ANN401 - any chunk
        """Do the same in a coroutine, without blocking the event loop."""
        context, stream = self._context, self._stream
        if self._emit_at_once(stream, chunk := stream.prepare(chunk)):
            return
        with context.signal.heard_by(stream.waiters.ring):
            await context.checkpoint_async()
            await stream.waiters.wait_async(lambda: stream.offer(chunk), context.checkpoint_async)
        stream.waiters.ring()

    def _emit_at_once(self, stream: Any, chunk: Any) -> bool:  # noqa: ANN401 - any chunk
        handle = self._context._handle
        if handle.attention:
            signal_of(handle).raise_if_aborted()
        with stream.waiters.lock:
            done: bool = stream.offer(chunk)
        if done:
            stream.waiters.ring()
        return done


class TaskQueue:
    """A queue of a task; waiting for it is a checkpoint, and ends with TaskAborted when the task should end."""

    __slots__ = ("_context", "_mailbox")

    def __init__(self, context: TaskContext, name: str, limit: int) -> None:
        """Made by ``ctx.queue`` only."""
        if isinstance(limit, bool) or not isinstance(limit, int) or limit < 0:
            raise ConfigError(f"queue limit {limit!r} is not allowed: use an int, 0 for no limit")
        self._context = context
        handle = context._handle
        self._mailbox = crew_of(handle).mailbox(name, limit)

    def put(self, item: Any, timeout: float | None = None) -> None:  # noqa: ANN401 - any item
        """Put an item in; wait while the queue is full, ``queue.Full`` after the timeout."""
        mailbox = self._mailbox
        if not self._wait(lambda: mailbox.offer(item), "put", timeout):
            raise Full(f"queue {mailbox.name!r} is full after {timeout} s")
        mailbox.waiters.ring()

    def get(self, timeout: float | None = None) -> Any:  # noqa: ANN401 - any item
        """Take the oldest item out; wait for one, ``queue.Empty`` after the timeout."""
        mailbox = self._mailbox
        found: list[Any] = []
        if not self._wait(lambda: _take(mailbox, found), "get", timeout):
            raise Empty(f"queue {mailbox.name!r} is empty after {timeout} s")
        mailbox.waiters.ring()
        return found[0]

    async def put_async(self, item: Any) -> None:  # noqa: ANN401 - any item
        """Put an item in, without blocking the event loop."""
        mailbox = self._mailbox
        await self._wait_async(lambda: mailbox.offer(item))
        mailbox.waiters.ring()

    async def get_async(self) -> Any:  # noqa: ANN401 - any item
        """Take the oldest item out, without blocking the event loop."""
        mailbox = self._mailbox
        found: list[Any] = []
        await self._wait_async(lambda: _take(mailbox, found))
        mailbox.waiters.ring()
        return found[0]

    def __len__(self) -> int:
        """Return how many items wait."""
        return len(self._mailbox)

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel to a worker process of the task as a name."""
        return queue_here, (self._mailbox.name, self._mailbox.limit)

    def _wait(self, look: Callable[[], bool], what: str, timeout: float | None) -> bool:
        context, waiters = self._context, self._mailbox.waiters
        with waiters.lock:
            if look():
                return True
        refuse_on_loop(f"{what}() of a queue", f"await queue.{what}_async()")
        with context.signal.heard_by(waiters.ring):
            context.checkpoint()
            done: bool = waiters.wait(look, timeout, context.checkpoint)
        return done

    async def _wait_async(self, look: Callable[[], bool]) -> None:
        context, waiters = self._context, self._mailbox.waiters
        with context.signal.heard_by(waiters.ring):
            await context.checkpoint_async()
            await waiters.wait_async(look, context.checkpoint_async)


def _take(mailbox: Any, into: list[Any]) -> bool:  # noqa: ANN401 - here or in another process
    item = mailbox.take()
    if item is EMPTY:
        return False
    into.append(item)
    return True


def queue_here(name: str, limit: int) -> TaskQueue:
    """Return a queue of the task that the caller runs in."""
    return current().queue(name, limit=limit)


def current() -> TaskContext:
    """Return the context of the task that the caller runs in; raise if it runs in none."""
    handle = in_thread.handle or in_coroutine.get()
    if handle is None:
        raise WhywaitError("whywait.current() works inside a running task only; this code runs in none")
    return TaskContext(handle)
