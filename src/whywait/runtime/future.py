"""TaskFuture: a ``concurrent.futures.Future`` that is the handle of its task.

The task's own state is the future's state, so nothing is written when a task starts, and what the standard library
keeps in every future (a condition, a list of waiters, a list of callbacks) is made only for futures that need it.

A thread that waits for a future does not take the authority's lock. What must hold instead:

1. The runtime marks a task done and *then* looks for callbacks; a thread that wants to be told leaves a note
   among the callbacks and *then* looks whether the task is done. So at least one sees the other.
2. Where both see each other, a note is a list that only one of them can pop: no function is called twice.
3. ``concurrent.futures.wait`` and ``as_completed`` hold a future's condition while they count which futures are done
   and leave their waiter with it; a future must not become done in between. Hence a future that has a condition shows
   the end of its task only after :meth:`TaskFuture.show_end`, which takes the condition; one that has none shows it at
   once.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, InvalidStateError
from concurrent.futures._base import CANCELLED_AND_NOTIFIED, FINISHED, PENDING, RUNNING
from threading import Condition, Lock, RLock
from typing import Any, Final, TypeVar

from whywait.kernel.durations import Seconds, patience_s
from whywait.kernel.state import Cause, Outcome
from whywait.runtime.blocking import Blocking
from whywait.runtime.handle import Handle

T = TypeVar("T")
log = logging.getLogger("concurrent.futures")  # where users of futures look for what their callbacks raise

_attaching: Final = RLock()  # held, shortly, to leave a note; never by the thread that ends a task
_LOCK: Final = type(Lock())
if hasattr(os, "register_at_fork"):  # in a fork, where executors begin anew, no thread is there that could release it
    os.register_at_fork(after_in_child=_attaching._at_fork_reinit)  # type: ignore[attr-defined] # noqa: SLF001 - made for it


class _Watched:
    """Gives an attribute that ``wait`` and ``as_completed`` look at, making it when it is first looked at."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, future: TaskFuture[Any], owner: type) -> Any:
        future.be_watched()
        return future.__dict__[self._name]


class TaskFuture(Handle[T], Future[T]):
    """A future of an executor: the standard library's in all it documents, and the handle of its task."""

    _condition: Condition = _Watched()  # type: ignore[assignment]
    _waiters: list[Any] = _Watched()  # type: ignore[assignment]
    is_shown: bool | None = None  # whether the end of the task may be seen; None: nothing watches, it may

    def __init__(self) -> None:
        """Made by an executor only, which gives it its call."""

    # What users of a future call

    def cancel(self) -> bool:  # type: ignore[override] # a handle asks a running body to end; a future does not
        """Cancel the task if it has not started; return whether it is cancelled."""
        if self.is_cancellable:
            self.core.cancel_pending([self])
        return self.was_cancelled

    def cancelled(self) -> bool:
        """Return whether the task was ended before it started."""
        return self.was_cancelled

    def running(self) -> bool:
        """Return whether the task has started and not ended."""
        return not self.is_done and self.has_started

    def result(self, timeout: Seconds | None = None) -> T:
        """Wait for the task's result and return it; raise what the task raised, or CancelledError."""
        try:
            if not self.is_done:
                self.wait(patience_s(timeout))
            if self.outcome is Outcome.SUCCESS:
                return self.value  # type: ignore[no-any-return]
            raise self.failure()
        finally:
            del self  # it is on the traceback of the error that it holds

    def exception(self, timeout: Seconds | None = None) -> BaseException | None:
        """Wait for the end and return what the task raised, or None; raise CancelledError if it was cancelled."""
        try:
            if not self.is_done:
                self.wait(patience_s(timeout))
            if self.outcome is Outcome.SUCCESS:
                return None
            if self.was_cancelled:
                raise self.failure()
            return self.failure()
        finally:
            del self

    def add_done_callback(self, fn: Callable[[Any], object]) -> None:
        """Call ``fn(future)`` when the task has ended, at once if it has; what it raises is logged."""
        self.when_done(fn, self)

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
        return f"<Future {self.label} at {id(self):#x} state={self._state.lower()}>"

    # What the functions beside the class in `concurrent.futures` look at

    @property
    def _state(self) -> str:  # type: ignore[override]
        if self.is_done if self.is_shown is None else self.is_shown:
            return CANCELLED_AND_NOTIFIED if self.was_cancelled else FINISHED
        return RUNNING if self.has_started else PENDING

    @property
    def _result(self) -> T | None:  # type: ignore[override]
        return self.value if self.is_done and self.outcome is Outcome.SUCCESS else None

    @property
    def _exception(self) -> BaseException | None:  # type: ignore[override]
        return self.exception(0) if self.is_done and not self.was_cancelled else None

    # As the runtime knows it: its callbacks are notes. A note is the lock of a thread that waits, the future itself if
    # it is watched, or a list of one function to call back and the future to call it with.

    def body(self) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
        """Return the function and its arguments as they are: a future among them is only a future."""
        return self.fn, self.args, self.kwargs or {}

    @property
    def has_started(self) -> bool:
        """Whether a body of this task has ever begun."""
        return self.started_seq != 0 or self.attempt > 1

    @property
    def is_cancellable(self) -> bool:
        """Whether the task can be ended at once: a future that has run is not cancelled between two attempts."""
        return not self.is_done and not self.has_started

    @property
    def was_cancelled(self) -> bool:
        """Whether the task was ended before it started."""
        return (
            self.is_done
            and self.outcome is Outcome.ABORTED
            and self.cause in (Cause.CANCELLED, Cause.SCOPE_DISPOSED)
            and not self.has_started
        )

    def note_failure(self) -> None:
        """Make the error final; like that of any future, it is not logged if it is never looked at."""
        super().note_failure()
        self.mark_seen()

    def failure(self) -> BaseException:
        """Return what the future raises."""
        return CancelledError() if self.was_cancelled else super().failure()

    def wait(self, timeout: float | None) -> None:
        """Block until the task has ended, also on the thread of an event loop, as futures do."""
        waiter = Lock()
        waiter.acquire()
        notes = self.leave(waiter)
        with Blocking(() if self.is_done else (self,)):
            if self.is_done or waiter.acquire(timeout=-1 if timeout is None else max(0.0, timeout)):
                return
        with contextlib.suppress(ValueError):
            notes.remove(waiter)
        raise TimeoutError(f"task {self.label} did not end within {timeout} s; it goes on")

    def when_done(self, fn: Callable[[Any], object], handle: Any) -> None:
        """Call ``fn(future)`` when the task has ended, at once if it has; what it raises is logged."""
        note = [(fn, handle)]
        self.leave(note)
        if self.is_done and note:
            try:
                note.pop()
            except IndexError:
                return  # the thread that ended the task has just taken it
            try:
                fn(handle)
            except Exception:
                log.exception("exception calling callback for %r", handle)

    def ends_with(self, end: Callable[[], object]) -> None:
        """Call ``end`` when the task has ended, at once if it has, with the callbacks."""
        self.when_done(lambda _: end(), None)

    def forget_callback(self, fn: Callable[[Any], object]) -> int:
        """Take back all that :meth:`when_done` was told to call ``fn`` for; return how many those were."""
        notes: list[Any] = self.callbacks or []
        count = 0
        for note in tuple(notes):
            with contextlib.suppress(IndexError):  # the thread that ends the task has just taken it
                if note.__class__ is list and note[0][0] == fn:
                    note.pop()
                    count += 1
                    with contextlib.suppress(ValueError):  # empty notes are alike: another thread has taken this one
                        notes.remove([])
        return count

    def run_callbacks(self) -> None:
        """Show the end of the task to all waiters, then call back; what a callback raises stops nothing."""
        notes: tuple[Any, ...] = tuple(self.callbacks or ())  # a copy: a waiter that times out removes its lock
        for note in notes:
            if note.__class__ is _LOCK:
                note.release()
        for note in notes:
            if isinstance(note, TaskFuture):
                note.show_end()
        for note in notes:
            if note.__class__ is list and note:
                try:
                    fn, future = note.pop()
                except IndexError:
                    continue  # the thread that left it saw that the task has ended
                try:
                    fn(future)
                except BaseException:  # the thread belongs to the next task
                    log.exception("exception calling callback for %r", future)
        self.callbacks = None

    def leave(self, note: Any) -> list[Any]:
        """Leave a note for the thread that ends the task; it may have ended already. Return where the note is."""
        new = [note]
        with _attaching:
            notes: list[Any] | None = self.callbacks
            if notes is None:
                self.callbacks = notes = new
            else:
                notes.append(note)
        return notes

    # For watchers

    def be_watched(self) -> None:
        """Make what watchers look at; show the end at once if it is there."""
        condition, waiters = RLock(), []  # type: ignore[var-annotated] # before the look, made in one go
        with _attaching:
            if self.is_shown is None:
                self.__dict__.update(is_shown=False, _waiters=waiters, _condition=condition)
                self.leave(self)
        if self.is_done:
            self.show_end()

    def show_end(self) -> None:
        """Show watchers that the task has ended."""
        with self._condition:
            if self.is_shown:
                return
            self.is_shown = True
            for waiter in self._waiters:
                if self.outcome is Outcome.SUCCESS:
                    waiter.add_result(self)
                elif self.cancelled():
                    waiter.add_cancelled(self)
                else:
                    waiter.add_exception(self)
