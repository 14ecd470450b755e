"""The signal of a running task: whether its body should end, or park; and whose body a thread runs."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol

from whywait.errors import TaskAborted
from whywait.lazy import asyncio
from whywait.waiters import ringer

if TYPE_CHECKING:
    from whywait.handle import Handle


class AbortSignal:
    """Tells a body that it should end; usable from any thread of the task."""

    __slots__ = ("_aborted", "_listeners", "_task_id", "go", "pause_asked", "reason")

    def __init__(self, task_id: str) -> None:
        """Made by the runtime only."""
        self._task_id = task_id
        self._aborted = threading.Event()
        self._listeners: list[Callable[[], object]] = []
        self.go = threading.Event()  # of the present pause: set when it is over
        self.reason: str | None = None  # the cause code once aborted
        self.pause_asked = False

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

    # For the runtime

    def follow(self, *, pause: bool, reason: str | None) -> None:
        """Become what is wished of the body now; to be called under the authority's lock, :meth:`notify` after it.

        It is told the state of things, not what changed: so nothing goes wrong if two changes come in one.
        """
        if pause != self.pause_asked:
            if pause:
                self.go = threading.Event()  # another one: who still waits for the last pause has to look again
            else:
                self.go.set()
            self.pause_asked = pause
        if reason is not None and self.reason is None:
            self.reason = reason
            self._aborted.set()
            self.go.set()

    def notify(self) -> None:
        """Tell whoever listens that something may have changed."""
        for tell in tuple(self._listeners):
            tell()

    def listen(self, tell: Callable[[], object]) -> None:
        """Call ``tell`` at every change from now on."""
        self._listeners.append(tell)

    def unlisten(self, tell: Callable[[], object]) -> None:
        """Do not call ``tell`` any more."""
        with contextlib.suppress(ValueError):
            self._listeners.remove(tell)

    @contextlib.contextmanager
    def heard_by(self, tell: Callable[[], object]) -> Iterator[None]:
        """Call ``tell`` at every change inside a block."""
        self.listen(tell)
        try:
            yield
        finally:
            self.unlisten(tell)

    async def park_async(self, go: threading.Event) -> None:
        """Wait for the pause that ``go`` stands for to be over, without blocking the event loop."""
        loop = asyncio.get_running_loop()
        while not go.is_set():
            waiter: asyncio.Future[None] = loop.create_future()
            with self.heard_by(ringer(loop, waiter)):
                if not go.is_set():
                    await waiter


class _Working(Protocol):
    """Something that works off tasks, or is a part of one, on one thread."""

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


def signal_of(handle: Handle[Any]) -> AbortSignal:
    """Return the handle's signal, made when it is first needed."""
    with handle._authority.lock:
        if handle._signal is None:
            handle._signal = AbortSignal(handle.id)
        return handle._signal


def raise_in_thread(thread_id: int, error: type[BaseException]) -> None:
    """Raise an error in another thread, as soon as it runs Python code."""
    import ctypes

    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread_id), ctypes.py_object(error))


def ask_end(handle: Handle[Any], reason: str) -> None:
    """Let everybody in a task know that it should end, for a reason inside the task."""
    signal = signal_of(handle)
    with handle._authority.lock:
        signal.follow(pause=False, reason=reason)
        handle.attention = True
    signal.notify()
