"""The signal of a running task: whether its body should end, or park.

How a pause reaches the threads of a task, and the race that each step closes:

1. Each pause has a number. A thread that sees one takes the latch ``go``, *then* reports that it parks, *then* waits
   for that latch. So a resume between any two of these steps opens the very latch that it waits for.
2. What is wished may change twice before it is passed on: resumed and paused again, while threads are parked. Then the
   authority counts the task as running, yet a thread has reported (``parked``): the pause gets another number, and
   the threads wake, look, and report again. Otherwise no thread would, and the pause would run into its timeout.
3. In another process the number travels with the wish and comes back with the report. A report for a pause that is
   over is dropped.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from whywait.errors import TaskAborted
from whywait.kernel.durations import Seconds, patience_s
from whywait.support.waiters import Awaited, Latch


class AbortSignal:
    """Tells a body that it should end; usable from any thread of the task."""

    __slots__ = ("_aborted", "_label", "_listeners", "_pauses", "go", "parked", "pause", "reason")

    def __init__(self, label: str) -> None:
        """Made by the runtime only."""
        self._label = label
        self._aborted = Latch()
        self._listeners: list[Callable[[], object]] = []
        self._pauses = 0  # there have been so many
        self.go = Latch()  # of the present pause: open when it is over
        self.reason: str | None = None  # the cause code once aborted
        self.pause = 0  # the number of the pause that is wished; 0: none
        self.parked = False  # a thread has reported that it parks for it

    @property
    def aborted(self) -> bool:
        """Whether the body should end."""
        return self.reason is not None

    @property
    def pause_asked(self) -> bool:
        """Whether the body should park at its next checkpoint."""
        return self.pause > 0

    def wait(self, timeout: Seconds | None = None) -> bool:
        """Block until the signal fires or the timeout passes; return whether it has fired."""
        return self._aborted.wait(patience_s(timeout))

    def raise_if_aborted(self) -> None:
        """Raise TaskAborted if the body should end."""
        if self.reason is not None:
            raise TaskAborted(f"task {self._label} is asked to end: {self.reason}")

    # For the runtime

    def pause_number(self, *, parked: bool) -> int:
        """Return the number of the pause that is wished now; ``parked``: the task is PAUSED. Under the lock."""
        if self.pause and (parked or not self.parked):
            return self.pause
        self._pauses += 1
        return self._pauses

    def follow(self, *, pause: int, reason: str | None, parked: bool = False) -> None:
        """Become what is wished of the body now; to be called under the authority's lock, :meth:`notify` after it.

        The arguments are the state of things, not what changed: so two changes may come in one call.
        """
        if pause != self.pause:
            self.go.open()
            if pause:
                self.go = Latch()
            self.parked = False  # before the number: other threads read that one first
            self.pause = pause
        self.parked = self.parked or parked
        self.reason = self.reason or reason
        if self.reason is not None:
            self._aborted.open()
            self.go.open()

    def notify(self) -> None:
        """Call the listeners: something may have changed."""
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

    async def park_async(self, go: Latch) -> None:
        """Wait for the pause that ``go`` stands for to be over, without blocking the event loop."""
        while not go.is_open():
            waiter = Awaited()
            with self.heard_by(waiter.release):
                if not go.is_open():
                    await waiter.future


def raise_in_thread(thread_id: int, error: type[BaseException]) -> None:
    """Raise an error in another thread, as soon as it runs Python code."""
    import ctypes

    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread_id), ctypes.py_object(error))
