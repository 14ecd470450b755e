"""What a running task can see and do: the abort signal, checkpoints."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol

from whywait.errors import TaskAborted, WhywaitError
from whywait.kernel.model import Ref

if TYPE_CHECKING:
    from whywait.handle import Handle


def finish(waiter: asyncio.Future[None]) -> None:
    """Let whoever awaits a future go on."""
    if not waiter.done():
        waiter.set_result(None)


class AbortSignal:
    """Tells a body that it should end; usable from any thread of the task."""

    __slots__ = ("_aborted", "_parked", "_task_id", "go", "pause_asked", "reason")

    def __init__(self, task_id: str) -> None:
        """Made by the runtime only."""
        self._task_id = task_id
        self._aborted = threading.Event()
        self.go = threading.Event()  # of the present pause: set when it is over
        self.reason: str | None = None  # the cause code once aborted
        self.pause_asked = False
        self._parked: list[Callable[[], object]] = []  # wake coroutines that have parked

    @property
    def aborted(self) -> bool:
        """Whether the body should end."""
        return self.reason is not None

    def wait(self, timeout: float | None = None) -> bool:
        """Block until the signal fires or the timeout passes; return whether it has fired."""
        return self._aborted.wait(timeout)

    def raise_if_aborted(self) -> None:
        """Raise TaskAborted if the body should end."""
        if self.reason is not None:
            raise TaskAborted(f"task {self._task_id} is asked to end: {self.reason}")

    def fire(self, reason: str) -> None:
        """Ask the body to end."""
        self.reason = reason
        self._aborted.set()
        self._wake()

    def ask_pause(self) -> None:
        """Ask the body to park."""
        if not self.pause_asked:
            self.go = threading.Event()  # another one: who still waits for the last pause to be over has to look again
            self.pause_asked = True

    def let_go(self) -> None:
        """Let a parked body go on."""
        self.pause_asked = False
        self._wake()

    async def park_async(self, go: threading.Event) -> None:
        """Wait for the pause that ``go`` stands for to be over, without blocking the event loop."""
        loop = asyncio.get_running_loop()
        waiter = loop.create_future()

        def wake() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed, and the body with it
                loop.call_soon_threadsafe(finish, waiter)

        self._parked.append(wake)
        if go.is_set():
            wake()
        await waiter

    def _wake(self) -> None:
        self.go.set()
        while self._parked:
            self._parked.pop()()


class TaskContext:
    """The running task, as seen from inside its body."""

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


class _Working(Protocol):
    """Something that works off tasks on one thread."""

    inbox: Handle[Any] | None


class _Current(threading.local):
    """What works on this thread, if anything; its inbox is the task whose body runs."""

    worker: _Working | None = None

    @property
    def handle(self) -> Handle[Any] | None:
        """The handle whose body this thread runs."""
        return None if self.worker is None else self.worker.inbox


in_thread = _Current()
in_coroutine: ContextVar[Handle[Any] | None] = ContextVar("whywait_task", default=None)


def current() -> TaskContext:
    """Return the context of the task that the caller runs in; raise if it runs in none."""
    handle = in_thread.handle or in_coroutine.get()
    if handle is None:
        raise WhywaitError("whywait.current() works inside a running task only; this code runs in none")
    return TaskContext(handle)


def signal_of(handle: Handle[Any]) -> AbortSignal:
    """Return the handle's signal, made when it is first needed."""
    with handle._authority.lock:
        if handle._signal is None:
            handle._signal = AbortSignal(handle.id)
        return handle._signal
