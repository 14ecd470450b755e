"""A task that runs away from its authority: in a child process or on a cluster.

:class:`ChildTask` is the running task and :class:`ChildServices` its surroundings wherever ``whywait.current()`` looks.
How messages travel is left to subclasses: frames (see :mod:`whywait.engines.process.frames`) go up, lines come down.
"""

from __future__ import annotations

import json
import pickle
import sys
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from functools import partial
from threading import RLock
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Final

from whywait.engines.process.child_streams import Calls, ChildQueue, ChildStream, dumps
from whywait.engines.process.frames import KIND_NOTE, KIND_PARKED, PARK
from whywait.errors import InvalidTransition
from whywait.kernel.devices import Assigned
from whywait.kernel.ids import generated_id, label_of
from whywait.kernel.model import Ref
from whywait.kernel.state import Cause, TaskState
from whywait.support.lazy import asyncio
from whywait.support.logger import log
from whywait.support.raised import cut_traceback, traceback_of
from whywait.task.parts import parts_if_any, parts_of
from whywait.task.signals import AbortSignal
from whywait.task.streams import LIMIT
from whywait.task.surroundings import Inside, inside_of, signal_of

if TYPE_CHECKING:
    from whywait.task.context import TaskContext
    from whywait.task.parts import Failure, Part

Wish = tuple[int, int, bool, str]  # the number of the task, then as in wishes.py

_PROTOCOL: Final = pickle.HIGHEST_PROTOCOL


class ChildTask:
    """The task that runs here; at most one at a time."""

    __slots__ = (
        "asyncio_task",
        "attention",
        "core",
        "inside",
        "is_hired",
        "loop",
        "number",
        "signal",
        "told",
    )

    def __init__(self, core: ChildServices, number: int, label: bytes, *, is_hired: bool) -> None:
        self.core = core
        self.told = label
        self.is_hired = is_hired  # it is a worker of a task that runs elsewhere
        self.signal: AbortSignal | None = None
        self.inside: Inside | None = None
        self.number = number
        self.attention = False
        self.loop: asyncio.AbstractEventLoop | None = None
        self.asyncio_task: asyncio.Task[Any] | None = None

    @property
    def id(self) -> str:
        """The task's id."""
        return self._words()[5] or generated_id(self.number)

    @property
    def label(self) -> str:
        """How the task is shown, the same as in the parent."""
        return label_of(self.id, self.number, self._words()[4] or None)

    @property
    def ref(self) -> Ref:
        """The task's identity, the same as in the parent."""
        authority, _, _, scope, *_ = self._words()
        return Ref(self.number, scope, int(authority))

    @property
    def grace_s(self) -> float:
        """How many seconds what belongs to the task may take to end when it should."""
        return float(self._words()[1])

    @property
    def units(self) -> Assigned:
        """The units that the task has, by kind."""
        told = self._words()[2]
        return tuple((kind, tuple(names)) for kind, names in json.loads(told)) if told else ()

    def _words(self) -> list[str]:
        return self.told.decode(errors="surrogatepass").split("\0", 5)

    @property
    def state(self) -> str:
        """Where the task stands, as far as this process knows."""
        if not self.core.runs(self):
            return TaskState.DISPOSED
        signal = self.signal
        if signal is not None and signal.aborted:
            return TaskState.DISPOSING
        return TaskState.PAUSED if signal is not None and signal.pause_asked and signal.parked else TaskState.RUNNING

    @property
    def queue_elsewhere(self) -> Callable[[TaskContext, str, int], ChildQueue] | None:
        """How to make a queue that lives in the process of the task; None: this is that process."""
        return partial(ChildQueue, self.core.calls, self) if self.is_hired else None

    async def run_coroutine(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Await the body such that an abort cancels it."""
        with self.core.lock:
            self.loop, self.asyncio_task = asyncio.get_running_loop(), asyncio.current_task()
            if self.signal is not None and self.signal.aborted:
                self.cancel()
        error: BaseException | None = None
        value = None
        try:
            value = await coroutine
        except BaseException as raised:
            error = raised
        parts = parts_if_any(self)
        failure = await parts.finish_async(failed=error is not None) if parts is not None else None
        return _result(failure, value, error)

    def cancel(self) -> None:
        """Cancel the body if it is a coroutine."""
        if self.loop is not None and self.asyncio_task is not None and not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self.asyncio_task.cancel)


class PartFailed(Exception):
    """A handler or a worker has failed, and the task with it."""

    def __init__(self, cause: str, error: BaseException) -> None:
        super().__init__(cause)
        self.cause = cause
        self.error = error


def _result(failure: Failure | None, value: Any, error: BaseException | None) -> Any:
    """Return the result of a task after the end of its parts, or raise what failed first."""
    if failure is not None:
        raise PartFailed(*failure)
    if error is not None:
        raise error
    return value


class ChildServices(ABC):
    """What a task in a child process asks its surroundings for; at most one task runs at a time."""

    def __init__(self) -> None:
        self.lock = RLock()
        self.log = log
        self.execution: ChildTask | None = None  # the task that runs
        self._early: Wish | None = None  # came before its task
        self._forked = False  # this is a process that a body forked
        self.calls = Calls(self)

    @abstractmethod
    def send(self, kind: int, payload: bytes) -> None:
        """Send a frame to the authority."""

    def parked(self, task: ChildTask) -> None:
        """Tell the authority that the body has parked, and the worker processes of the task."""
        signal = signal_of(task)
        with self.lock:
            pause = signal.pause
            signal.parked = True
        if task is self.execution and not self._forked:
            self.send(KIND_PARKED, PARK.pack(pause))
            signal.notify()

    def runs(self, task: ChildTask) -> bool:
        """Return whether a body is the one that runs."""
        return task is self.execution

    def note(self, task: ChildTask, kind: str, details: tuple[tuple[str, Any], ...]) -> None:
        """Let the authority record an event."""
        if task is self.execution and not self._forked:
            self.send(KIND_NOTE, dumps((kind, details)))

    def grace_of(self, task: ChildTask) -> float:
        """Return how many seconds what belongs to a task may take to end when it should."""
        return task.grace_s

    def interrupt(self, task: ChildTask) -> None:
        """Let the body know at once that something of its task has failed."""
        task.cancel()

    def stream_of(self, task: ChildTask, name: str) -> ChildStream:
        """Return a stream that was opened."""
        return self.open_stream(task, name, LIMIT)

    def open_stream(self, task: ChildTask, name: str, limit: int) -> ChildStream:
        """Return a stream of the task, as far as it is here."""
        with self.lock:
            if task is not self.execution:
                raise InvalidTransition(f"task {task.label} has ended: its stream {name!r} takes nothing more")
            streams = inside_of(task).streams
            if name not in streams:
                streams[name] = ChildStream(self, name, limit)
            stream: ChildStream = streams[name]
            return stream

    def picture(self, task: ChildTask) -> Any:
        """Raise: the authority, whose picture it would be, is in another process."""
        raise InvalidTransition(
            f"task {task.label} runs in a worker process, where there is no snapshot: take it before, and hand it in"
        )

    def spawn_process(self, task: ChildTask, fn: Callable[..., Any], args: tuple[Any, ...]) -> Part:
        """Start a worker of the task in a process below this one."""
        from whywait.engines.process.hired import hire

        return hire(parts_of(task), task, (task.number, task.told), fn, args)

    def run_body(self, task: ChildTask, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call the body, and wait for its handlers and workers if it has any."""
        try:
            value = copy_context().run(fn, *args, **kwargs)  # what it sets there, the next body does not see
            if value.__class__ is CoroutineType:
                return asyncio.run(task.run_coroutine(value))
        except BaseException as error:
            parts = parts_if_any(task)
            if parts is None or self._forked:
                raise
            return _result(parts.finish(failed=True), None, error)
        if task.attention and (parts := parts_if_any(task)) is not None:
            return _result(parts.finish(failed=False), value, None)
        return value

    def begin(self, task: ChildTask) -> None:
        """Run a body from now on; what is wished of it already reaches it."""
        with self.lock:
            self.execution = task
            if self._early is not None and self._early[0] == task.number:
                self._apply(task, self._early)
            self._early = None

    def end(self) -> None:
        """Run no body any more."""
        with self.lock:
            self.execution = None

    def take_line(self, line: str) -> None:
        """Take in a line from the authority."""
        verb, number, *rest = line.split(" ")
        if verb == "wish":
            pause, parked, reason = rest
            self._hear((int(number), int(pause), parked == "1", reason))
        else:
            self._hear_more(verb, int(number), *rest)

    def _hear(self, wish: Wish) -> None:
        with self.lock:
            task = self.execution
            if task is None or task.number != wish[0]:
                self._early = wish
                return
            notify = self._apply(task, wish)
        notify()

    def _hear_more(self, verb: str, number: int, *words: str) -> None:
        """Take in room in a stream, or a part of an answer."""
        with self.lock:
            task = self.execution
            if task is None or task.number != number:
                return
            streams = inside_of(task).streams
        if verb == "room":
            name, count = words
            streams[bytes.fromhex(name).decode(errors="surrogatepass")].add_room(int(count))
        else:
            call, is_last, text = words
            self.calls.take_part(int(call), is_last=is_last == "1", text=text)

    def _apply(self, task: ChildTask, wish: Wish) -> Callable[[], None]:
        """Let a body know what is wished of it, under the lock; return what is to be done without it."""
        _, pause, parked, reason = wish
        abort_signal = signal_of(task)
        abort_signal.follow(pause=pause, parked=parked, reason=reason or None)
        task.attention = True
        if reason:
            task.cancel()
        return abort_signal.notify


def describe(stage: str, error: BaseException, cause: str = Cause.EXCEPTION) -> bytes:
    """Return what the parent needs to raise the error again, or at least to tell about it."""
    frames = traceback_of(error)
    if frames is not None:
        cut_traceback(error, frames.tb_next)  # the first frame is this file
    try:
        text = "".join(traceback.format_exception(error))
        name = repr(error)
    except BaseException:
        text = name = type(error).__name__
    try:
        data = b"" if stage else dumps(error)
    except BaseException:
        data = b""
    return pickle.dumps((stage, name, text, data, cause), _PROTOCOL)


def flush() -> None:
    """Let what the body printed come out before its result does."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (AttributeError, OSError, ValueError):
            continue  # closed, or none at all
