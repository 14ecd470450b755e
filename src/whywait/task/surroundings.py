"""The running task as its inside knows it: two protocols, where a body finds its task, and the task's signal.

:class:`RunningTask` and :class:`Services` come in pairs: the runtime has one, a child process has another.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import ContextVar
from threading import RLock
from typing import Any, Final, Protocol

from whywait.kernel.devices import Assigned
from whywait.kernel.model import Ref
from whywait.kernel.state import Cause, Outcome
from whywait.support.logger import Log
from whywait.task.signals import AbortSignal

Ended = tuple[str, str | None, bool]  # outcome, cause, may be retried
SUCCEEDED: Final[Ended] = (Outcome.SUCCESS, None, True)
NEVER_RAN: Final[Ended] = (Outcome.ERROR, Cause.EXCEPTION, False)  # it was aborted first; the kernel knows better


class Inside:
    """The streams of a task, and the parts of its present attempt; most tasks have neither and pay nothing."""

    __slots__ = ("parts", "streams")

    def __init__(self) -> None:
        """Start with nothing."""
        self.streams: dict[str, Any] = {}
        self.parts: Any = None  # a `whywait.task.parts.Parts`


class RunningTask(Protocol):
    """A task while its body runs."""

    attention: bool  # an abort or a pause is asked for, or the task has parts
    signal: AbortSignal | None
    inside: Inside | None  # set with the first stream, handler or worker

    @property
    def core(self) -> Services:
        """What the task asks its surroundings for."""

    @property
    def id(self) -> str:
        """The id of the task."""

    @property
    def label(self) -> str:
        """How the task is shown."""

    @property
    def ref(self) -> Ref:
        """The identity of the present attempt."""

    @property
    def state(self) -> str:
        """Where the present attempt stands."""

    @property
    def units(self) -> Assigned:
        """The units that the present attempt has, by kind."""


class EndingTask(RunningTask, Protocol):
    """A running task in the process that decides how it ends."""

    def failed(self, error: BaseException, /) -> Ended:
        """Keep what the body, or a part of the task, raised; return how the task has ended."""


class Services(Protocol):
    """What a running task asks its surroundings for; every method takes the task first."""

    @property
    def lock(self) -> RLock:
        """Guards the task's signal and its inside; may be taken twice by one thread."""

    @property
    def log(self) -> Log:
        """The log of the authority."""

    def parked(self, task: Any, /) -> None:
        """Report that the body has parked at a checkpoint."""

    def note(self, task: Any, kind: str, details: tuple[tuple[str, Any], ...], /) -> None:
        """Record an event of a handler, a worker or a stream."""

    def interrupt(self, task: Any, /) -> None:
        """Let the body know at once that a part of its task has failed."""

    def grace_of(self, task: Any, /) -> float:
        """Return how many seconds the parts of a task have to end after they are asked to."""

    def stream_of(self, task: Any, name: str, /) -> Any:
        """Return a stream of the task, made at its first use."""

    def open_stream(self, task: Any, name: str, limit: int, /) -> Any:
        """Return a stream for a producer; the first producer says how many chunks the stream may keep."""

    def picture(self, task: Any, /) -> Any:
        """Return a picture of the scope of the task."""

    def spawn_process(self, task: Any, fn: Callable[..., Any], args: tuple[Any, ...], /) -> Any:
        """Start a worker of the task in a process of its own; return its part."""


class Runner(Protocol):
    """One thread that runs bodies one after the other, or one part of a task."""

    @property
    def execution(self) -> RunningTask | None:
        """The task that the thread runs code of now."""


class _InThread(threading.local):
    """What this thread is to the tasks; a runner changes its task without touching the slower thread-local."""

    runner: Runner | None = None

    @property
    def execution(self) -> RunningTask | None:
        """The task that this thread runs code of."""
        return None if self.runner is None else self.runner.execution


in_thread = _InThread()
in_coroutine: ContextVar[RunningTask | None] = ContextVar("whywait_task", default=None)


def task_here() -> RunningTask | None:
    """Return the task that the caller runs in; None: it runs in none."""
    return in_thread.execution or in_coroutine.get()


def signal_of(task: RunningTask) -> AbortSignal:
    """Return the task's signal, made when it is first needed."""
    with task.core.lock:
        if task.signal is None:
            task.signal = AbortSignal(task.label)
        return task.signal


def ask_end(task: RunningTask, reason: str) -> None:
    """Fire the signal of a task for a reason inside the task."""
    signal = signal_of(task)
    with task.core.lock:
        signal.follow(pause=0, reason=reason)
        task.attention = True
    signal.notify()


def inside_of(task: RunningTask) -> Inside:
    """Return what a task has made use of; under the lock."""
    inside = task.inside
    if inside is None:
        inside = task.inside = Inside()
    return inside


def has_open_stream(task: RunningTask, name: object) -> bool:
    """Return whether a producer of a task has opened a stream of this name."""
    inside = task.inside
    stream = inside.streams.get(name) if inside is not None and isinstance(name, str) else None
    return stream is not None and stream.is_open


def stream_counts(task: RunningTask) -> dict[str, int]:
    """Return how many chunks each stream of a task has had so far."""
    inside = task.inside
    return {} if inside is None else {name: stream.count for name, stream in list(inside.streams.items())}
