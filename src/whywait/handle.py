"""Handle: what ``submit`` returns; follows a task through its retries to the final outcome."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from contextvars import Context
from threading import Lock, get_ident
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from whywait.elsewhere import Elsewhere, fetched
from whywait.errors import (
    PauseTimeout,
    TaskAborted,
    TaskDropped,
    TaskFailed,
    TaskTimeout,
)
from whywait.kernel.model import Ref
from whywait.kernel.state import Cause, Outcome, TaskState
from whywait.lazy import asyncio
from whywait.raised import is_one_of, shown_error, tell_log, traceback_of
from whywait.streams import DEFAULT, Reader
from whywait.waiters import finish, refuse_on_loop

if TYPE_CHECKING:
    from concurrent.futures import Future

    from whywait.authority import Authority
    from whywait.engines.base import Engine
    from whywait.explain import Why
    from whywait.inside import Inside
    from whywait.kernel.model import Task
    from whywait.signals import AbortSignal

T = TypeVar("T")
log = logging.getLogger("whywait")


class Handle(Generic[T]):
    """Follows one task, through its retries, to its final outcome."""

    __slots__ = (
        "__weakref__",
        "_args",
        "_attempts",
        "_authority",
        "_bells",
        "_callbacks",
        "_context",
        "_done",
        "_engine",
        "_error",
        "_fn",
        "_inside",
        "_kwargs",
        "_signal",
        "_task",
        "_unseen",
        "_value",
        "attention",
    )

    _inside: Inside  # set with the first stream, handler or worker only
    _task: Task
    _unseen: Unseen  # set with a final error only
    _value: T

    def __init__(
        self, authority: Authority, fn: Callable[..., T], args: tuple[Any, ...], context: Context | None, engine: Engine
    ) -> None:
        """Made by ``submit`` only."""
        self._authority = authority
        self._fn: Any = fn  # this, the arguments and the context are let go at the end
        self._args = args
        self._context: Any = context
        self._engine = engine
        self._done = False  # outcome, value and error are final
        self.attention = False  # an abort or a pause is asked for
        self._kwargs: dict[str, Any] | None = None
        self._error: BaseException | None = None
        self._callbacks: list[Callable[[Handle[T]], object]] | None = None
        self._bells: list[Lock] | None = None  # released at the end, before the callbacks
        self._attempts: list[Task] | None = None  # earlier ones
        self._signal: AbortSignal | None = None

    # What it is

    @property
    def ref(self) -> Ref:
        """The identity of the present (or last) attempt."""
        task = self._task
        return Ref(task.number, task.scope.key, self._authority.token)

    @property
    def id(self) -> str:
        """The id the task was given, or a generated one."""
        return self._task.id

    @property
    def state(self) -> str:
        """Where the task stands: QUEUED, READY, RUNNING, PAUSED, DISPOSING or DISPOSED."""
        return self._task.state

    @property
    def outcome(self) -> str | None:
        """How the task ended; None until it has."""
        return self._task.outcome if self._done else None

    @property
    def cause(self) -> str | None:
        """The code beside the outcome."""
        return self._task.cause if self._done else None

    @property
    def priority(self) -> int:
        """The base priority."""
        return self._task.priority

    @property
    def attempts(self) -> list[Ref]:
        """The refs of all attempts so far, the present one last."""
        tasks = (*(self._attempts or ()), self._task)
        return [Ref(task.number, task.scope.key, self._authority.token) for task in tasks]

    def done(self) -> bool:
        """Return whether the final outcome is there."""
        return self._done

    # Waiting for it

    def result(self, timeout: float | None = None) -> T:
        """Wait for the task's result and return it; raise what the task raised, or why it has none.

        A ``timeout`` (TimeoutError) ends the waiting only, not the task.
        """
        if not self._done:
            self._wait(timeout)
        if self._task.outcome == Outcome.SUCCESS:
            return fetched(self._value)  # type: ignore[no-any-return]
        raise self._failure()

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for the end and return the error that ``result`` would raise, or None."""
        if not self._done:
            self._wait(timeout)
        return None if self._task.outcome == Outcome.SUCCESS else self._failure()

    def add_done_callback(self, fn: Callable[[Handle[T]], object]) -> None:
        """Call ``fn(handle)`` when the final outcome is there; at once if it is. An error in it is logged."""
        with self._authority.lock:
            if not self._done:
                if self._callbacks is None:
                    self._callbacks = [fn]
                else:
                    self._callbacks.append(fn)
                return
        self._call(fn)

    def future(self) -> Future[T]:
        """Return a ``concurrent.futures.Future`` that follows this handle; cancelling it cancels the task."""
        from whywait.future import follow

        return follow(self)

    def __await__(self) -> Generator[Any, None, T]:
        """Wait on the running event loop."""
        if not self._done:
            loop = asyncio.get_running_loop()
            waiter = loop.create_future()
            thread = get_ident()

            def wake(_: Handle[T]) -> None:
                if get_ident() == thread:
                    finish(waiter)
                else:
                    try:
                        loop.call_soon_threadsafe(finish, waiter)
                    except RuntimeError:
                        log.debug("the loop that awaited %s is closed", self.id)

            self.add_done_callback(wake)
            yield from waiter
        if isinstance(getattr(self, "_value", None), Elsewhere):
            yield from asyncio.to_thread(self.result).__await__()  # the loop need not wait for it to come
        return self.result()

    # Acting on it

    def cancel(self) -> None:
        """End the task at once if it is pending, ask it to abort if it runs; idempotent."""
        self._authority.cancel(self)

    def pause(self) -> None:
        """Pause the task; a running one parks at its next checkpoint, or PauseTimeout is raised and it is cancelled."""
        if self.state == TaskState.RUNNING:
            refuse_on_loop("pause() of a running task", "await handle.pause_async()")
        waiter = Lock()
        waiter.acquire()
        if self._authority.pause(self, waiter.release):
            waiter.acquire()
            self._check_paused()

    async def pause_async(self) -> None:
        """Pause the task without blocking the event loop."""
        loop = asyncio.get_running_loop()
        waiter = loop.create_future()
        if self._authority.pause(self, lambda: loop.call_soon_threadsafe(finish, waiter)):
            await waiter
            self._check_paused()

    def resume(self) -> None:
        """Bring a paused task back to where it was."""
        self._authority.resume(self)

    def why(self) -> Why:
        """Return why the task waits, what it does, or how its wait divided."""
        return self._authority.why_handle(self)

    def stream(self, name: str = DEFAULT, *, past: bool = True) -> Reader:
        """Return a reader of one of the task's streams, for ``for`` and ``async for``.

        It begins with the oldest chunk that is still there, or with the next one if not ``past``. A failure or an
        abort of the task is raised when what came before it has been read.
        """
        return Reader(self, self._authority.stream_of(self, name), past=past)

    def __repr__(self) -> str:
        """Show id and state."""
        return f"<Handle {self._task.scope.key}/{self.id} {self.outcome or self.state}>"

    # For the runtime

    @property
    def aborted(self) -> bool:
        """Whether the body has been asked to end."""
        return self._signal is not None and self._signal.aborted

    @property
    def is_running(self) -> bool:
        """Whether the body runs and nobody has asked it to end."""
        task = self._task
        return task.holds_slot and task.abort is None

    def body(self) -> tuple[Callable[..., T], tuple[Any, ...], dict[str, Any]]:
        """Return the function and its arguments, handles among them replaced by results."""
        fn, kwargs = self._fn, self._kwargs
        if kwargs is None:
            return fn, self._args, {}
        return fn, tuple(self.resolved_args()), {key: _resolved(kwargs[key]) for key in kwargs}

    def call_here(self) -> Any:  # noqa: ANN401 - a coroutine or what a plain function returns
        """Call the function in the present context; a coroutine is the caller's to await."""
        fn, kwargs = self._fn, self._kwargs
        if kwargs is None:
            return fn(*self._args)
        return fn(*self.resolved_args(), **{key: _resolved(kwargs[key]) for key in kwargs})

    def resolved_args(self) -> list[Any]:
        """Return the arguments by position, handles among them replaced by results."""
        return [fetched(arg._value) if isinstance(arg, Handle) else arg for arg in self._args]

    def failed(self, error: BaseException) -> tuple[str, str | None, bool]:
        """Keep what the body raised; return outcome, cause and whether it may be retried."""
        self._error = error
        retry = self._task.policy.retry
        return Outcome.ERROR, Cause.EXCEPTION, retry is not None and is_one_of(error, retry.on)

    def note_failure(self) -> None:
        """Settle the error of a task that ended otherwise than in success, before anybody can ask for it."""
        task = self._task
        if task.outcome == Outcome.ERROR:
            if self._error is None:
                self._error = TaskFailed(f"task {task.id} ended as {task.outcome} ({task.cause})")
            self._unseen = Unseen(task.id, self._error)
        else:
            self._error = None

    def retried(self, task: Task) -> None:
        """Follow the task to its next attempt."""
        self._attempts = [*(self._attempts or ()), self._task]
        self._task = task
        self._error = self._signal = None
        self.attention = False

    def _wait(self, timeout: float | None) -> None:
        refuse_on_loop("result()", "await handle")
        waiter = Lock()
        waiter.acquire()
        lock = self._authority.lock
        with lock:
            if self._done:
                return
            if self._bells is None:
                self._bells = [waiter]
            else:
                self._bells.append(waiter)
        try:
            if waiter.acquire(timeout=-1 if timeout is None else max(0.0, timeout)):
                return
        finally:
            with lock:
                if self._bells is not None and waiter in self._bells:
                    self._bells.remove(waiter)
        raise TimeoutError(f"task {self.id} is {self.state} after {timeout} s of waiting; it goes on")

    def _failure(self) -> BaseException:
        if hasattr(self, "_unseen"):
            self._unseen.seen = True
        if self._error is not None:
            return self._error
        task, policy = self._task, self._task.policy
        ended = f"task {task.id} ended as {task.outcome} ({task.cause})"
        if task.outcome == Outcome.TIMEOUT:
            return TaskTimeout(f"{ended}: it ran longer than its timeout of {(policy.timeout_ns or 0) / 1e9:g} s")
        if task.outcome == Outcome.REJECTED:
            limit = f" (max_wait {(policy.max_wait_ns or 0) / 1e9:g} s)" if task.cause == Cause.MAX_WAIT else ""
            return TaskDropped(f"{ended}: it was dropped before it could start{limit}")
        root = f" of {task.root!r}" if task.cause == Cause.DEPENDENCY else ""
        return TaskAborted(f"{ended}{': the end' + root + ' took it down' if root else ''}")

    def _call(self, fn: Callable[[Handle[T]], object]) -> None:
        try:
            fn(self)
        except BaseException as error:  # noqa: BLE001 - a callback has no say in scheduling
            tell_log(logging.ERROR, "a done callback of task %s failed", self.id, error=error)

    def run_callbacks(self) -> None:
        """Call back, once, after the final outcome; outside the lock."""
        callbacks, self._callbacks = self._callbacks, None
        for fn in callbacks or ():
            self._call(fn)

    def _check_paused(self) -> None:
        if self._task.cause == Cause.PAUSE_TIMEOUT or (self._task.abort or ("", ""))[1] == Cause.PAUSE_TIMEOUT:
            limit_s = self._authority.settings.pause_timeout_s
            raise PauseTimeout(
                f"task {self.id} reached no checkpoint within {limit_s:g} s (pause_timeout): it is cancelled"
            )


class Unseen:
    """Logs an error, when the last reference to its handle goes, that nobody has looked at."""

    __slots__ = ("error", "seen", "task_id")

    def __init__(self, task_id: str, error: BaseException) -> None:
        """Watch over the error of a task."""
        self.task_id = task_id
        self.error = error
        self.seen = False

    def __del__(self) -> None:
        """Log the error, and where it was raised, if it was never seen.

        No traceback is formatted: that parses source code, which a finaliser must not do in the midst of a parse.
        """
        if not self.seen:
            told = shown_error(self.error)
            log.error("task %s failed and nobody looked: %s, raised %s", self.task_id, told, _place(self.error))


def _place(error: BaseException) -> str:
    traceback = traceback_of(error)
    if traceback is None:
        return "elsewhere"
    while traceback.tb_next is not None:
        traceback = traceback.tb_next
    return f"at {traceback.tb_frame.f_code.co_filename}:{traceback.tb_lineno}"


def _resolved(value: Any) -> Any:  # noqa: ANN401 - any argument
    return fetched(value._value) if isinstance(value, Handle) else value
