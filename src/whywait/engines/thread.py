"""The thread engine: worker threads that report a task and take the next one in one step.

A task is handed to exactly one thread: an idle one, else a new one. Nothing queues here and nothing is counted, so
there is no wake-up to lose; the kernel's slots bound the number of threads. The thread that became idle last is
used first, and one that nobody needed for a while ends.
"""

from __future__ import annotations

import ctypes
import itertools
import logging
import threading
from collections import deque
from typing import TYPE_CHECKING, Any, ClassVar, Final

from whywait.engines.base import Engine
from whywait.errors import TaskAborted
from whywait.inside import wrap_up
from whywait.kernel.state import Cause, Outcome
from whywait.signals import in_thread

if TYPE_CHECKING:
    from whywait.handle import Handle

log = logging.getLogger("whywait")

IDLE_S: Final = 30.0


class _Worker:
    """One thread; ``inbox`` is set before ``bell`` rings."""

    __slots__ = ("bell", "inbox", "thread")

    def __init__(self) -> None:
        self.bell = threading.Lock()
        self.bell.acquire()
        self.inbox: Handle[Any] | None = None
        self.thread: threading.Thread


class ThreadEngine(Engine):
    """Runs plain functions on threads of this process."""

    name: ClassVar[str] = "thread"
    can_kill: ClassVar[bool] = False

    _names = itertools.count(1)

    def __init__(self) -> None:
        """Start without any thread; they come with the tasks."""
        self._idle: deque[_Worker] = deque()
        self._workers: set[_Worker] = set()
        self._closed = False

    def start(self, handle: Handle[Any]) -> None:
        """Hand the task to an idle thread or to a new one."""
        try:
            worker = self._idle.pop()
        except IndexError:
            worker = _Worker()
            worker.inbox = handle
            name = f"whywait-{self.name}-{next(self._names)}"
            worker.thread = threading.Thread(target=self._work, args=(worker,), name=name, daemon=True)
            self._workers.add(worker)
            worker.thread.start()
        else:
            worker.inbox = handle
            worker.bell.release()

    def abort(self, handle: Handle[Any]) -> None:
        """Do nothing more: the body sees its signal."""

    def kill(self, handle: Handle[Any]) -> None:
        """Raise TaskAborted inside the body, where the authority allows that; a body that sits in C code stays."""
        for worker in list(self._workers):
            if worker.inbox is handle and worker.thread.ident is not None:
                set_exception = ctypes.pythonapi.PyThreadState_SetAsyncExc
                set_exception(ctypes.c_ulong(worker.thread.ident), ctypes.py_object(TaskAborted))

    def close(self) -> None:
        """Let the idle threads end; a busy one ends after its task."""
        self._closed = True
        while self._idle:
            try:
                worker = self._idle.pop()
            except IndexError:
                break
            worker.bell.release()
        for worker in list(self._workers):
            if worker.thread is not threading.current_thread():
                worker.thread.join(timeout=1.0)

    def run(self, handle: Handle[Any], worker: _Worker) -> tuple[str, str | None, bool]:  # noqa: ARG002 - for subclasses
        """Run the body; return outcome, cause and whether the error may be retried."""
        try:
            if handle._kwargs is None:
                handle._value = handle._context.run(handle._fn, *handle._args)
            else:
                handle._value = handle.call_body()
        except BaseException as error:  # noqa: BLE001 - whatever the body raises is its outcome
            return handle.failed(error)
        return Outcome.SUCCESS, None, True

    def _work(self, worker: _Worker) -> None:
        ended = self.authority.ended
        run = self.run
        handle = worker.inbox
        while handle is not None:
            worker.inbox = in_thread.handle = handle
            if handle.attention and handle.aborted:
                outcome: tuple[str, str | None, bool] = (Outcome.ERROR, Cause.EXCEPTION, False)
            else:
                outcome = run(handle, worker)
                if handle.attention:
                    outcome = wrap_up(handle, outcome)
            in_thread.handle = None
            try:
                handle = ended(handle, outcome, self)
            except TaskAborted:  # injected by kill() a moment too late for the body: the report is still due
                assert worker.inbox is not None, "the worker has a task"
                handle = ended(worker.inbox, outcome, self)
            if handle is None:
                worker.inbox = None
                handle = self._wait(worker)
        self._workers.discard(worker)
        self.worker_ends(worker)

    def _wait(self, worker: _Worker) -> Handle[Any] | None:
        """Wait for the next task; None: end."""
        self._idle.append(worker)
        while not self._closed:
            if worker.bell.acquire(timeout=IDLE_S):
                return worker.inbox
            try:
                self._idle.remove(worker)
            except ValueError:  # somebody has just taken it
                worker.bell.acquire()
                return worker.inbox
            return None
        try:
            self._idle.remove(worker)
        except ValueError:
            worker.bell.acquire()
            return worker.inbox
        return None

    def worker_ends(self, worker: _Worker) -> None:
        """Release what a worker has besides its thread; for engines built on this one."""
