"""What a running task can see and do: its signal, checkpoints, streams, handlers, workers, queues."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from queue import Empty, Full
from typing import TYPE_CHECKING, Any, Final

from whywait.errors import InvalidTransition, TaskAborted, WhywaitError
from whywait.kernel.durations import Seconds, patience_s
from whywait.kernel.model import Ref
from whywait.kernel.state import STATE_WORDS, TaskState
from whywait.support.waiters import refuse_on_loop
from whywait.task.parts import Part, parts_of
from whywait.task.queues import EMPTY, QueueElsewhere, queue_of_another
from whywait.task.signals import AbortSignal
from whywait.task.streams import DEFAULT, LIMIT, check_limit, check_name
from whywait.task.surroundings import RunningTask, has_open_stream, signal_of, task_here

if TYPE_CHECKING:
    from whywait.kernel.snapshot import Snapshot


_REMEDIES: Final[dict[str, str]] = {
    TaskState.PAUSED: "; call checkpoint() before, which waits until the task is resumed",
    TaskState.DISPOSING: "; it is asked to end, so let its body end",
}


class TaskContext:
    """The running task, as seen from inside its body, its handlers and its workers."""

    __slots__ = ("_task",)

    def __init__(self, task: RunningTask) -> None:
        """Made by :func:`current` only."""
        self._task = task

    @property
    def ref(self) -> Ref:
        """The task's identity."""
        return self._task.ref

    @property
    def signal(self) -> AbortSignal:
        """The abort signal of this task."""
        return signal_of(self._task)

    @property
    def devices(self) -> dict[str, list[str]]:
        """The units that this task has, by kind: ``{"gpu": ["0"]}``."""
        return {kind: list(names) for kind, names in self._task.units}

    def snapshot(self) -> Snapshot:
        """Return an immutable picture of the scope of this task; in a worker process there is none to look at."""
        picture: Snapshot = self._task.core.picture(self._task)
        return picture

    def checkpoint(self) -> None:
        """Park while a pause is asked for, raise TaskAborted if the task should end; costs almost nothing otherwise."""
        task = self._task
        if task.attention:
            signal = signal_of(task)
            while signal.pause_asked and not signal.aborted:
                refuse_on_loop("checkpoint() of a task that is to pause", "await ctx.checkpoint_async()")
                go = signal.go
                task.core.parked(task)
                go.wait()
            signal.raise_if_aborted()

    async def checkpoint_async(self) -> None:
        """Do the same in a coroutine, without blocking the event loop."""
        task = self._task
        if task.attention:
            signal = signal_of(task)
            while signal.pause_asked and not signal.aborted:
                go = signal.go
                task.core.parked(task)
                await signal.park_async(go)
            signal.raise_if_aborted()

    # Streams

    def emit(self, chunk: Any, stream: str = DEFAULT) -> None:
        """Put a chunk out into a stream; wait, as at a checkpoint, while the stream is full."""
        self.stream(stream).emit(chunk)

    async def emit_async(self, chunk: Any, stream: str = DEFAULT) -> None:
        """Do the same in a coroutine, without blocking the event loop."""
        await self.stream(stream).emit_async(chunk)

    def stream(self, name: str, *, limit: int = LIMIT) -> Output:
        """Return a stream to put chunks out into; a RUNNING task opens it, and says how many chunks it may keep."""
        if not has_open_stream(self._task, name):
            check_name(name)
            self._refuse_unless_running("streams")
        return Output(self, self._task, name, limit)

    # Handlers and workers

    def handler(self, fn: Callable[..., Any], /, *args: Any, after: Iterable[Part] = ()) -> Part:
        """Run a step of this task, in parallel to the body, after other handlers.

        A handler among ``args`` is one that comes before, and is replaced by its result. The task ends when its
        handlers have, and fails with the first that fails.
        """
        self._refuse_unless_running("handlers")
        return parts_of(self._task).add_handler(fn, args, after)

    def spawn(self, fn: Callable[..., Any], /, *args: Any, process: bool = False) -> Part:
        """Start a worker, a thread or a process, that belongs to this task and ends with it.

        When the body and its handlers have ended, the signal fires for the workers (reason ``ended``). A worker that
        fails fails the task.
        """
        self._refuse_unless_running("workers")
        if not process:
            return parts_of(self._task).add_worker(fn, args)
        part: Part = self._task.core.spawn_process(self._task, fn, args)
        return part

    def queue(self, name: str = DEFAULT, *, limit: int = 0) -> TaskQueue:
        """Return a queue of this task by which its body, handlers and workers (processes too) talk to each other.

        It ends with the task: from then on ``put`` and ``get`` raise, wherever the queue is.
        """
        elsewhere = getattr(self._task, "queue_elsewhere", None)
        queue: TaskQueue = (
            TaskQueue(self, self._task, name, limit) if elsewhere is None else elsewhere(self, name, limit)
        )
        return queue

    def _refuse_unless_running(self, what: str) -> None:
        task = self._task
        state = task.state
        if state != TaskState.RUNNING:
            error = TaskAborted if state == TaskState.DISPOSING else InvalidTransition
            remedy = _REMEDIES.get(state, "")
            raise error(f"task {task.label} is {STATE_WORDS[state]}: only a running task has {what}{remedy}")
        signal_of(task).raise_if_aborted()


class Output:
    """A stream, as its producer sees it."""

    __slots__ = ("_context", "_stream", "_task")

    def __init__(self, context: TaskContext, task: RunningTask, name: str, limit: int) -> None:
        """Made by ``ctx.stream`` only."""
        check_limit(limit)
        self._context = context
        self._task = task
        self._stream: Any = task.core.open_stream(task, name, limit)

    def emit(self, chunk: Any) -> None:
        """Put a chunk out; wait, as at a checkpoint, while the stream is full."""
        context, stream = self._context, self._stream
        if self._emit_at_once(stream, chunk := stream.prepare(chunk)):
            return
        refuse_on_loop("emit() into a full stream", "await ctx.emit_async(chunk)")
        with context.signal.heard_by(stream.waiters.ring):
            stream.waiters.wait(lambda: stream.offer(chunk), None, context.checkpoint)
        stream.waiters.ring()

    async def emit_async(self, chunk: Any) -> None:
        """Do the same in a coroutine, without blocking the event loop."""
        context, stream = self._context, self._stream
        if self._emit_at_once(stream, chunk := stream.prepare(chunk)):
            return
        with context.signal.heard_by(stream.waiters.ring):
            await stream.waiters.wait_async(lambda: stream.offer(chunk), context.checkpoint_async)
        stream.waiters.ring()

    def _emit_at_once(self, stream: Any, chunk: Any) -> bool:
        task = self._task
        if task.attention:
            signal_of(task).raise_if_aborted()
        with stream.waiters.lock:
            done: bool = stream.offer(chunk)
        if done:
            stream.waiters.ring()
        return done


class TaskQueue:
    """A queue of a task, for its body, its handlers and its workers; waiting for it is a checkpoint of the task.

    Another task is refused, wherever it got the queue from. A thread that runs in no task may be the body's own.
    """

    __slots__ = ("_context", "_mailbox", "_task")

    def __init__(self, context: TaskContext, task: RunningTask, name: str, limit: int) -> None:
        """Made by ``ctx.queue`` only."""
        self._context = context
        self._task = task
        self._mailbox = parts_of(task).mailbox(name, limit)

    def put(self, item: Any, timeout: Seconds | None = None) -> None:
        """Put an item in; wait while the queue is full, ``queue.Full`` after the timeout."""
        mailbox = self._mailbox
        if not self._wait(lambda: mailbox.offer(item), "put", patience_s(timeout)):
            raise Full(f"queue {mailbox.name!r} is full after {patience_s(timeout)} s")
        mailbox.waiters.ring()

    def get(self, timeout: Seconds | None = None) -> Any:
        """Take the oldest item out; wait for one, ``queue.Empty`` after the timeout."""
        mailbox = self._mailbox
        found: list[Any] = []
        if not self._wait(lambda: _take(mailbox, found), "get", patience_s(timeout)):
            raise Empty(f"queue {mailbox.name!r} is empty after {patience_s(timeout)} s")
        mailbox.waiters.ring()
        return found[0]

    async def put_async(self, item: Any) -> None:
        """Put an item in, without blocking the event loop."""
        mailbox = self._mailbox
        await self._wait_async(lambda: mailbox.offer(item))
        mailbox.waiters.ring()

    async def get_async(self) -> Any:
        """Take the oldest item out, without blocking the event loop."""
        mailbox = self._mailbox
        found: list[Any] = []
        await self._wait_async(lambda: _take(mailbox, found))
        mailbox.waiters.ring()
        return found[0]

    def __len__(self) -> int:
        """Return how many items wait."""
        self._refuse_others()
        return len(self._mailbox)

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel to a worker process of the task as a name."""
        return pickled_queue(self._task, self._mailbox.name, self._mailbox.limit)

    def _wait(self, look: Callable[[], bool], what: str, timeout: float | None) -> bool:
        self._refuse_others()
        context, waiters = self._context, self._mailbox.waiters
        with waiters.lock:
            if look():
                return True
        refuse_on_loop(f"{what}() of a queue", f"await queue.{what}_async()")
        with context.signal.heard_by(waiters.ring):
            done: bool = waiters.wait(look, timeout, context.checkpoint)
        return done

    async def _wait_async(self, look: Callable[[], bool]) -> None:
        self._refuse_others()
        context, waiters = self._context, self._mailbox.waiters
        with context.signal.heard_by(waiters.ring):
            await waiters.wait_async(look, context.checkpoint_async)

    def _refuse_others(self) -> None:
        """Raise if the caller runs in another task."""
        task = task_here()
        if task is not None and task is not self._task:
            raise queue_of_another(self._task.label, self._mailbox.name)


def _take(mailbox: Any, into: list[Any]) -> bool:
    item = mailbox.take()
    if item is EMPTY:
        return False
    into.append(item)
    return True


def pickled_queue(task: RunningTask, name: str, limit: int) -> tuple[Any, ...]:
    """Return what pickle keeps of a queue of a task."""
    return _queue_here, (task.ref, task.label, name, limit)


def _queue_here(ref: Ref, label: str, name: str, limit: int) -> TaskQueue | QueueElsewhere:
    """Return a queue of the task that the caller runs in; it is out of reach if it belongs to another one."""
    task = task_here()
    if task is None or task.ref != ref:
        return QueueElsewhere(label, name)
    return TaskContext(task).queue(name, limit=limit)


def current() -> TaskContext:
    """Return the context of the task that the caller runs in; raise if it runs in none."""
    task = task_here()
    if task is None:
        raise WhywaitError("whywait.current() works inside a running task only; this code runs in none")
    return TaskContext(task)
