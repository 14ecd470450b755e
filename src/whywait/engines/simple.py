"""The simple engine: one thread that takes one task after another, in the order in which they were started.

Everything is in one queue and one spare token: whoever has put a task into the queue and finds the token starts the
thread; the thread, before it ends, puts the token back and looks into the queue once more. So no task is left lying,
there are never two threads, and no lock is held that a finaliser could meet.
"""

from __future__ import annotations

import threading
from collections import deque
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, ClassVar

from whywait.engines.thread import IDLE_S, ThreadEngine, _Worker
from whywait.inside import wrap_up
from whywait.kernel.state import Cause, Outcome
from whywait.signals import in_thread

if TYPE_CHECKING:
    from whywait.handle import Handle


class SimpleEngine(ThreadEngine):
    """Runs plain functions on one thread, one at a time."""

    name: ClassVar[str] = "simple"

    def __init__(self) -> None:
        """Start without the thread; it comes with the first task."""
        super().__init__()
        self._queue: SimpleQueue[Handle[Any] | None] = SimpleQueue()
        self._token: deque[None] = deque([None])  # there while there is no thread
        self._thread: threading.Thread | None = None

    def start(self, handle: Handle[Any]) -> None:
        """Put the task behind those that were started before it."""
        self._queue.put(handle)
        if self._take_token():
            worker = _Worker()
            self._workers.add(worker)
            name = f"whywait-{self.name}-{next(self._names)}"
            worker.thread = self._thread = threading.Thread(target=self._work, args=(worker,), name=name, daemon=True)
            worker.thread.start()

    def close(self) -> None:
        """Let the thread end after what it has to do."""
        self._queue.put(None)
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout=1.0)

    def _work(self, worker: _Worker) -> None:
        authority, run = self.authority, self.run
        while (handle := self._next()) is not None:
            in_thread.handle = worker.inbox = handle
            if handle.attention and handle.aborted:
                outcome: tuple[str, str | None, bool] = (Outcome.ERROR, Cause.EXCEPTION, False)
            else:
                outcome = run(handle, worker)
                if handle.attention:
                    outcome = wrap_up(handle, outcome)
            in_thread.handle = worker.inbox = None
            authority.ended(handle, outcome)  # what may start now comes back through `start`, to the end of the queue
            del handle  # nothing of it stays here while the thread waits
        self._workers.discard(worker)

    def _next(self) -> Handle[Any] | None:
        """Wait for the next task; None: end."""
        while True:
            try:
                handle = self._queue.get(timeout=IDLE_S)
            except Empty:
                handle = None
            if handle is not None:
                return handle
            self._token.append(None)
            if self._queue.empty() or not self._take_token():
                return None

    def _take_token(self) -> bool:
        try:
            self._token.pop()
        except IndexError:
            return False
        return True
