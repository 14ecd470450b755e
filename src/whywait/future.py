"""TaskFuture: a ``concurrent.futures.Future`` that is the handle of its task.

The task's own state is the future's state, so nothing is written when a task starts, and what the standard library
keeps in every future (a condition, a list of waiters, a list of callbacks) is made only for those somebody waits for.

``concurrent.futures.wait`` and ``as_completed`` hold a future's condition while they count who is done and leave
their waiter with it; a future must not become done in between. Hence a future that has a condition shows the end of
its task only from :meth:`TaskFuture.run_callbacks` on, which takes the condition; one that has none shows it at once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, InvalidStateError
from concurrent.futures._base import CANCELLED_AND_NOTIFIED, FINISHED, PENDING, RUNNING
from threading import Condition, Lock
from typing import Any, TypeVar

from whywait.handle import Handle
from whywait.kernel.state import Cause, Outcome

T = TypeVar("T")
log = logging.getLogger("concurrent.futures")  # where users of futures look for what their callbacks raise


class _Watched:
    """What ``wait`` and ``as_completed`` need of a future."""

    __slots__ = ("condition", "shown", "waiters")

    def __init__(self, *, shown: bool) -> None:
        self.condition = Condition()
        self.waiters: list[Any] = []
        self.shown = shown  # the end of the task may be seen


class TaskFuture(Handle[T], Future[T]):
    """A future of an executor: the standard library's in all it documents, and the handle of its task."""

    # Most futures never need these; they cost memory only where they are set.
    _watched: _Watched | None = None
    _bells: tuple[Lock, ...] = ()  # each releases a thread that waits in `result` or `exception`

    # What users of a future call

    def cancel(self) -> bool:  # type: ignore[override] # a handle asks a running body to end; a future does not
        """Cancel the task if it has not started; return whether it is cancelled."""
        if not self._done and not self._has_started():
            self._authority.command(self._cancel_unstarted)
        return self.cancelled()

    def cancelled(self) -> bool:
        """Return whether the task was ended before it started."""
        return (
            self._done
            and self._task.outcome == Outcome.ABORTED
            and self._task.cause in (Cause.CANCELLED, Cause.SCOPE_DISPOSED)
            and not self._has_started()
        )

    def running(self) -> bool:
        """Return whether the task has started and not ended."""
        return not self._done and self._has_started()

    def result(self, timeout: float | None = None) -> T:
        """Wait for the task's result and return it; raise what the task raised, or CancelledError."""
        try:
            if not self._done:
                self._wait(timeout)
            if self._task.outcome == Outcome.SUCCESS:
                return self._value
            raise self._failure()
        finally:
            del self  # it is on the traceback of the error that it holds

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for the end and return what the task raised, or None; raise CancelledError if it was cancelled."""
        try:
            if not self._done:
                self._wait(timeout)
            if self._task.outcome == Outcome.SUCCESS:
                return None
            if self.cancelled():
                raise self._failure()
            return self._failure()
        finally:
            del self

    def add_done_callback(self, fn: Callable[[Any], object]) -> None:
        """Call ``fn(future)`` when the task has ended, at once if it has; what it raises is logged."""
        with self._authority.lock:
            if not self._done:
                if self._callbacks is None:
                    self._callbacks = []
                self._callbacks.append(fn)
                return
        try:
            fn(self)
        except Exception:
            log.exception("exception calling callback for %r", self)

    def future(self) -> Future[T]:
        """Return itself."""
        return self

    def set_running_or_notify_cancel(self) -> bool:
        """Return False if the task was cancelled; the rest is the executor's business."""
        if self.cancelled():
            return False
        raise InvalidStateError(f"{self!r} follows its task: only its executor starts it")

    def set_result(self, result: T) -> None:  # noqa: ARG002 - as the base class has it
        """Refuse: the result is what the task returns."""
        raise InvalidStateError(f"{self!r} follows its task: its result cannot be set")

    def set_exception(self, exception: BaseException | None) -> None:  # noqa: ARG002 - as the base class has it
        """Refuse: the exception is what the task raises."""
        raise InvalidStateError(f"{self!r} follows its task: its exception cannot be set")

    def __repr__(self) -> str:
        """Show id and state, in the words of futures."""
        return f"<Future {self.id} at {id(self):#x} state={self._state.lower()}>"

    # What the functions beside the class in `concurrent.futures` look at

    @property
    def _state(self) -> str:  # type: ignore[override]
        watched = self._watched
        if self._done if watched is None else watched.shown:
            return CANCELLED_AND_NOTIFIED if self.cancelled() else FINISHED
        return RUNNING if self._has_started() else PENDING

    @property
    def _condition(self) -> Condition:  # type: ignore[override]
        return (self._watched or self._be_watched()).condition

    @property
    def _waiters(self) -> list[Any]:  # type: ignore[override]
        return (self._watched or self._be_watched()).waiters

    @property
    def _result(self) -> T | None:  # type: ignore[override]
        return self._value if self._done and self._task.outcome == Outcome.SUCCESS else None

    @property
    def _exception(self) -> BaseException | None:  # type: ignore[override]
        return self.exception(0) if self._done and not self.cancelled() else None

    # For the runtime

    def call_body(self) -> T:
        """Call the function in the thread's own context, its arguments as they are."""
        fn, kwargs = self._fn, self._kwargs
        assert fn is not None, "a task that has ended is not run"
        return fn(*self._args) if kwargs is None else fn(*self._args, **kwargs)

    def body(self) -> tuple[Callable[..., T], tuple[Any, ...], dict[str, Any]]:
        """Return the function and its arguments as they are: a future among them is only a future."""
        assert self._fn is not None, "a task that has ended is not run"
        return self._fn, self._args, self._kwargs or {}

    def run_callbacks(self) -> None:
        """Show the end of the task to whoever waits, then call back; what a callback raises stops nothing."""
        callbacks, self._callbacks = self._callbacks, None
        for bell in self._bells:
            bell.release()
        if self._watched is not None:
            self._show(self._watched)
        for fn in callbacks or ():
            try:
                fn(self)
            except BaseException:  # the thread belongs to the next task
                log.exception("exception calling callback for %r", self)

    def _has_started(self) -> bool:
        task = self._task
        return task.started_seq != 0 or task.attempt > 1

    def _cancel_unstarted(self, now: int) -> None:
        if not self._done and not self._has_started():
            self._authority.kernel.cancel(now, self._task)

    def _failure(self) -> BaseException:
        if self.cancelled():
            return CancelledError()
        return super()._failure()

    def _wait(self, timeout: float | None) -> None:
        """Block until the task has ended, also on the thread of an event loop, as futures do."""
        bell = Lock()
        bell.acquire()
        with self._authority.lock:
            if self._done:
                return
            self._call_back_later()
            self._bells = (*self._bells, bell)
        if not bell.acquire(timeout=-1 if timeout is None else max(0.0, timeout)):
            with self._authority.lock:
                self._bells = tuple(each for each in self._bells if each is not bell)
            raise TimeoutError(f"{self!r} did not end within {timeout} s; it goes on")

    def _be_watched(self) -> _Watched:
        with self._authority.lock:
            if self._watched is None:
                self._watched = _Watched(shown=self._done)
                self._call_back_later()
            return self._watched

    def _call_back_later(self) -> None:
        """Have ``run_callbacks`` called at the end; under the lock."""
        if self._callbacks is None and not self._done:
            self._callbacks = []

    def _show(self, watched: _Watched) -> None:
        with watched.condition:
            if watched.shown:
                return
            watched.shown = True
            for waiter in watched.waiters:
                if self.cancelled():
                    waiter.add_cancelled(self)
                elif self._task.outcome == Outcome.SUCCESS:
                    waiter.add_result(self)
                else:
                    waiter.add_exception(self)
            watched.condition.notify_all()
