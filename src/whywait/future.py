"""TaskFuture: a ``concurrent.futures.Future`` that is the handle of its task.

The task's own state is the future's state, so nothing is written when a task starts, and what the standard library
keeps in every future (a condition, a list of waiters, a list of callbacks) is made only for those somebody waits for.

Nobody who waits takes the authority's lock. The runtime marks a handle done and *then* looks for callbacks; whoever
wants to be told leaves a note among the callbacks and *then* looks whether the handle is done. So at least one sees
the other, and where both do, a note says who comes first.

``concurrent.futures.wait`` and ``as_completed`` hold a future's condition while they count who is done and leave
their waiter with it; a future must not become done in between. Hence a future that has a condition shows the end of
its task only after :meth:`TaskFuture._show`, which takes the condition; one that has none shows it at once.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, InvalidStateError
from concurrent.futures._base import CANCELLED_AND_NOTIFIED, FINISHED, PENDING, RUNNING
from threading import Condition, Lock, RLock
from typing import Any, Final, TypeVar

from whywait.handle import Handle
from whywait.kernel.state import Cause, Outcome

T = TypeVar("T")
log = logging.getLogger("concurrent.futures")  # where users of futures look for what their callbacks raise

_attaching: Final = RLock()  # held, shortly, to leave a note; never by the runtime
_BELL: Final = type(Lock())


class _Watched:
    """Gives an attribute that ``wait`` and ``as_completed`` look at, making it when it is first looked at."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, future: TaskFuture[Any], owner: type) -> Any:  # noqa: ANN401 - of the attribute's type
        future._be_watched()
        return future.__dict__[self._name]


class TaskFuture(Handle[T], Future[T]):
    """A future of an executor: the standard library's in all it documents, and the handle of its task."""

    _callbacks: list[Any] | None  # notes: a bell for a thread that waits, a list of one function to call back
    _condition: Condition = _Watched()  # type: ignore[assignment]
    _waiters: list[Any] = _Watched()  # type: ignore[assignment]
    _shown: bool | None = None  # whether the end of the task may be seen; None: nobody watches, it may

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
        note = [fn]
        self._leave(note)
        if self._done and note:
            try:
                note.pop()
            except IndexError:
                return  # the thread that ended the task has just taken it
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
        shown = self._shown
        if self._done if shown is None else shown:
            succeeded = self._task.outcome == Outcome.SUCCESS
            return FINISHED if succeeded or not self.cancelled() else CANCELLED_AND_NOTIFIED
        return RUNNING if self._has_started() else PENDING

    @property
    def _result(self) -> T | None:  # type: ignore[override]
        return self._value if self._done and self._task.outcome == Outcome.SUCCESS else None

    @property
    def _exception(self) -> BaseException | None:  # type: ignore[override]
        return self.exception(0) if self._done and not self.cancelled() else None

    # For the runtime

    def body(self) -> tuple[Callable[..., T], tuple[Any, ...], dict[str, Any]]:
        """Return the function and its arguments as they are: a future among them is only a future."""
        return self._fn, self._args, self._kwargs or {}

    def note_failure(self) -> None:
        """Settle the error; like any future's, it is nobody's business if nobody looks."""
        super().note_failure()
        if self._error is not None:
            self._unseen.seen = True

    def run_callbacks(self) -> None:
        """Show the end of the task to whoever waits, then call back; what a callback raises stops nothing."""
        notes = tuple(self._callbacks or ())  # a copy: who gives up waiting takes its bell out of the list
        self._callbacks = None
        for note in notes:
            if note.__class__ is _BELL:
                note.release()
        if self._shown is False:
            self._show()
        for note in notes:
            if note.__class__ is list and note:
                self._call_back(note)

    def _call_back(self, note: list[Callable[[Any], object]]) -> None:
        try:
            fn = note.pop()
        except IndexError:
            return  # whoever left it saw that the task has ended
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
        notes = self._leave(bell)
        if not self._done and not bell.acquire(timeout=-1 if timeout is None else max(0.0, timeout)):
            with contextlib.suppress(ValueError):
                notes.remove(bell)
            raise TimeoutError(f"{self!r} did not end within {timeout} s; it goes on")

    def _leave(self, note: Any) -> list[Any]:  # noqa: ANN401 - a bell, or a list of one function
        """Leave a note for whoever ends the task; it may have ended already. Return where the note is."""
        new = [note]
        with _attaching:
            notes = self._callbacks
            if notes is None:
                self._callbacks = notes = new
            else:
                notes.append(note)
        return notes

    def _be_watched(self) -> None:
        """Make what watchers look at; show the end at once if it is there."""
        condition, waiters, notes = RLock(), [], []  # type: ignore[var-annotated] # before the look, made in one go
        with _attaching:
            if self._shown is None:
                self.__dict__.update(_shown=False, _waiters=waiters, _condition=condition)
                if self._callbacks is None:
                    self._callbacks = notes
        if self._done:
            self._show()

    def _show(self) -> None:
        with self._condition:
            if self._shown:
                return
            self._shown = True
            for waiter in self._waiters:
                if self._task.outcome == Outcome.SUCCESS:
                    waiter.add_result(self)
                elif self.cancelled():
                    waiter.add_cancelled(self)
                else:
                    waiter.add_exception(self)


class _Follower(Future[T]):
    """A future whose cancellation reaches the task of a handle."""

    def __init__(self, handle: Handle[T]) -> None:
        super().__init__()
        self._handle = handle

    def cancel(self) -> bool:
        """Ask the task to end; the future follows when it has."""
        self._handle.cancel()
        return False


def follow(handle: Handle[T]) -> Future[T]:
    """Return a future that ends like a handle."""
    future: Future[T] = _Follower(handle)
    future.set_running_or_notify_cancel()

    def copy(handle: Handle[T]) -> None:
        error = handle.exception()
        if error is None:
            future.set_result(handle._value)
        else:
            future.set_exception(error)

    handle.add_done_callback(copy)
    return future
