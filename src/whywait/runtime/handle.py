"""Handle: what ``submit`` returns; follows a task through its retries to the final outcome."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextvars import Context
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, Generic, NoReturn, TypeVar

from whywait.engines.base import Engine
from whywait.errors import PauseTimeout, printable
from whywait.kernel.durations import Seconds, patience_s
from whywait.kernel.model import Ref
from whywait.kernel.state import Cause, Outcome, TaskState
from whywait.runtime.blocking import Blocking
from whywait.runtime.execution import Execution, Owner, result_of, set_up
from whywait.support.elsewhere import Elsewhere
from whywait.support.lazy import asyncio
from whywait.support.usage import Usage
from whywait.support.waiters import Awaited, call_on, refuse_on_loop
from whywait.task.streams import DEFAULT, Reader
from whywait.task.surroundings import task_here

if TYPE_CHECKING:
    from concurrent.futures import Future

    from whywait.observe.explain import Why

T = TypeVar("T")
_FACTS: Final = ("cause", "id", "outcome", "paused_from", "priority", "ref", "state")


class Handle(Execution, Generic[T]):
    """Follows one task, through its retries, to its final outcome.

    ``result``, ``exception`` and ``await handle`` wait for the end. ``cancel``, ``pause`` and ``resume`` act on the
    task, ``why`` says what it waits for. What it is: ``ref`` (of the present or last attempt), ``id`` and
    ``priority``. Where it stands: ``state`` (QUEUED, READY, RUNNING, PAUSED, DISPOSING or DISPOSED),
    ``paused_from`` (the state that a PAUSED one goes back to), ``outcome`` and the ``cause`` beside it (None until
    it has ended).
    """

    # What it is; what ``_FACTS`` names is in the kernel's task

    @property
    def usage(self) -> Usage | None:
        """What a command or a process task uses with all its descendants, or has used in its last attempt.

        None if nothing was measured: the task has not started, was very short, or shares the process of the program.
        """
        if self.facts:
            return Usage.of(dict(self.facts))
        usage_now = self.usage_now
        return None if usage_now is None else usage_now()

    @property
    def exit_code(self) -> int | None:
        """The exit code of a command that has ended, as a shell has it: 128 and its number if a signal ended it."""
        return dict(self.facts).get("exit_code")

    @property
    def exit_signal(self) -> str | None:
        """The name of the signal that ended a command, if one did."""
        return dict(self.facts).get("exit_signal")

    @property
    def devices(self) -> dict[str, list[str]]:
        """The units that the present (or last) attempt has or had, by kind; empty before it starts."""
        return {kind: list(names) for kind, names in self.units}

    @property
    def attempts(self) -> list[Ref]:
        """The refs of all attempts so far, the present one last."""
        numbers = (*(each.number for each in self.earlier), self.number)
        return [Ref(number, self.scope.key, self.core.token) for number in numbers]

    def done(self) -> bool:
        """Return whether the final outcome is there."""
        return self.is_done

    # Waiting for it

    def result(self, timeout: Seconds | None = None) -> T:
        """Wait for the task's result and return it; raise what the task raised, or why it has none.

        A ``timeout`` (TimeoutError) ends the waiting only, not the task.
        """
        return result_of(self, timeout)  # type: ignore[no-any-return]

    def exception(self, timeout: Seconds | None = None) -> BaseException | None:
        """Wait for the end and return the error that ``result`` would raise, or None."""
        if not self.is_done:
            self.wait(patience_s(timeout))
        return None if self.outcome is Outcome.SUCCESS else self.failure()

    def add_done_callback(self, fn: Callable[[Handle[T]], object]) -> None:
        """Call ``fn(handle)`` when the final outcome is there; at once if it is. An error in it is logged."""
        if getattr(fn, "__module__", None) == "asyncio.tasks":  # of `asyncio.wait`, which knows no other threads
            fn = _OnLoop(fn, asyncio.get_running_loop())
        self.when_done(fn, self)

    def remove_done_callback(self, fn: Callable[[Handle[T]], object]) -> int:
        """Take back a function given to :meth:`add_done_callback`; return how often it was given and not called yet."""
        return self.forget_callback(fn)

    def cancelled(self) -> bool:
        """Return whether the task has ended as ``aborted``, because it was cancelled or something it depends on was."""
        return self.outcome is Outcome.ABORTED

    @property
    def _condition(self) -> NoReturn:
        """Refuse what `concurrent.futures.wait` and `as_completed` look for in a future of their own kind."""
        raise TypeError(
            "concurrent.futures takes futures, not handles: use whywait.wait, whywait.as_completed or handle.future()"
        )

    def future(self) -> Future[T]:
        """Return a ``concurrent.futures.Future`` that follows this handle; cancelling it cancels the task."""
        from whywait.runtime.follower import follow

        return follow(self, self.ends_with, self.core.log)

    def __await__(self) -> Generator[Any, None, T]:
        """Wait on the running event loop."""
        if not self.is_done:
            waiter = Awaited()
            if self.add_waiter(waiter):
                try:
                    if task_here() is None:
                        yield from waiter.future
                    else:  # it is told that the body waits
                        yield from Blocking((self,)).over(waiter.future).__await__()
                except BaseException as error:
                    self.remove_waiter(waiter)
                    if self.cancel_with_awaiter and isinstance(error, asyncio.CancelledError):
                        self.cancel()
                    raise
        if isinstance(self.value, Elsewhere):
            yield from asyncio.to_thread(self.result).__await__()  # the loop need not wait for it to come
        return self.result()

    # Acting on it

    def cancel(self) -> None:
        """End the task at once if it is pending, ask it to abort if it runs; idempotent."""
        self.core.cancel(self)

    def pause(self) -> None:
        """Pause the task; a running one parks at its next checkpoint, or PauseTimeout is raised and it is cancelled."""
        if self.state == TaskState.RUNNING:
            refuse_on_loop("pause() of a running task", "await handle.pause_async()")
        waiter = Lock()
        waiter.acquire()
        if self.core.pause(self, waiter.release):
            waiter.acquire()
            self._check_paused()

    async def pause_async(self) -> None:
        """Pause the task without blocking the event loop."""
        waiter = Awaited()
        if self.core.pause(self, waiter.release):
            await waiter.future
            self._check_paused()

    def resume(self) -> None:
        """Bring a paused task back to where it was."""
        self.core.resume(self)

    def why(self) -> Why:
        """Return why the task waits, what it does, or how its wait divided."""
        return self.core.why(self)

    def stream(self, name: str = DEFAULT, *, past: bool = True) -> Reader:
        """Return a reader of one of the task's streams, for ``for`` and ``async for``.

        It begins with the oldest chunk that is still there, or with the next one if not ``past``. A failure or an
        abort of the task is raised when what came before it has been read.
        """
        return Reader(self, self.core.stream_of(self, name), past=past)

    def __dir__(self) -> list[str]:
        """List what is for users: the kernel's task and its body, which a handle is as well, are not."""
        return sorted({*_FACTS, *vars(Handle), *vars(type(self)), *dir(object)})

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled: a handle leads to a task of this process."""
        raise TypeError(
            f"{self!r} cannot be pickled: give it to submit() as an argument, or in a list, dict or dataclass there, "
            "and the task gets the result"
        )

    def __repr__(self) -> str:
        """Show id and state."""
        return f"<Handle {printable(self.scope.key)}/{self.label} {self.outcome or self.state}>"

    def _repr_html_(self) -> str:
        """Return a line for a notebook: the id, where the task stands, and the first reason if it waits."""
        from whywait.observe.html import handle_html

        return handle_html(self.label, self.why())

    def _check_paused(self) -> None:
        if self.cause == Cause.PAUSE_TIMEOUT or (self.abort or ("", ""))[1] == Cause.PAUSE_TIMEOUT:
            limit_s = self.core.pause_timeout_s
            raise PauseTimeout(
                f"task {self.label} reached no checkpoint within {limit_s:g} s (pause_timeout): it is cancelled"
            )


class _OnLoop:
    """A done callback that is called on an event loop, whichever thread the task ends in."""

    __slots__ = ("fn", "loop")

    def __init__(self, fn: Callable[[Any], object], loop: asyncio.AbstractEventLoop) -> None:
        self.fn = fn
        self.loop = loop

    def __call__(self, handle: Handle[Any]) -> None:
        call_on(self.loop, self.fn, handle)

    def __eq__(self, other: object) -> bool:
        return other == self.fn or (isinstance(other, _OnLoop) and other.fn == self.fn)

    __hash__ = None  # type: ignore[assignment] # compared only


def new_handle(
    core: Owner, fn: Callable[..., Any], args: tuple[Any, ...], context: Context | None, engine: Engine
) -> Handle[Any]:
    """Return the handle of a call that is to be submitted."""
    handle: Handle[Any] = Handle()
    set_up(handle, core, fn, args, context, engine)
    return handle
