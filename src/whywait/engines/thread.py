"""The thread engine: worker threads that report a task and take the next one in one step.

A task that is started goes into a queue and is promised to a thread: to one that sleeps (``_sleeping`` has an entry
for each to which nothing is promised), else to a new one. A thread that has nothing to do looks into the queue before
it goes to sleep, and may take what was promised to another. So a burst of short tasks is done by those that are
awake, no wake-up is lost, and the kernel's slots bound the number of threads. One that nobody needed for a while ends.

There is no lock that a finaliser could meet: everything is done by single operations of ``deque`` and
``SimpleQueue``.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections import deque
from collections.abc import Callable
from contextvars import Context
from queue import Empty, SimpleQueue
from time import sleep
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar

from whywait.engines.base import NEVER_RAN, SUCCEEDED, Ended, Engine
from whywait.errors import TaskAborted
from whywait.inside import wrap_up
from whywait.raised import cut_traceback, traceback_of
from whywait.signals import in_thread, raise_in_thread

if TYPE_CHECKING:
    from whywait.authority import Authority
    from whywait.handle import Handle

T = TypeVar("T")

_OURS: Final = ("whywait", "whywait.engines")


class Worker:
    """One thread, and the handle of the task whose body it runs."""

    __slots__ = ("inbox", "thread")

    def __init__(self) -> None:
        """Have no task yet."""
        self.inbox: Handle[Any] | None = None
        self.thread: threading.Thread


class ThreadEngine(Engine):
    """Runs plain functions on threads of this process."""

    name: ClassVar[str] = "thread"
    can_kill: ClassVar[bool] = False
    idle_s: ClassVar[float | None] = 30.0  # after this long without a task a thread ends; None: it stays
    goes_on: ClassVar[bool] = True  # a thread that ends a task takes the one that starts in its place
    call: Callable[[Handle[Any]], object] | None = None  # runs a body and keeps its value; None: it is simply called

    _names = itertools.count(1)

    def __init__(self) -> None:
        """Start without any thread; they come with the tasks."""
        self._queue: SimpleQueue[Handle[Any] | None] = SimpleQueue()  # None: end
        self._sleeping: deque[None] = deque()
        self._workers: set[Worker] = set()
        self._closed = False
        self._guard = threading.Lock()
        self._interruptible: set[Handle[Any]] = set()  # whose body may be interrupted right now

    @property
    def threads(self) -> set[threading.Thread]:
        """The threads there are."""
        return {worker.thread for worker in list(self._workers)}

    def start(self, handle: Handle[Any]) -> None:
        """Hand the task to a thread that sleeps, to a new one, or to the first that comes."""
        self._queue.put(handle)
        self.look_again(1)

    def start_all(self, handles: list[Handle[Any]]) -> None:
        """Hand the tasks to threads; the queue takes them over in one step that no interrupt divides."""
        count = len(handles)
        handles[:] = filter(self._queue.put, handles)  # `put` returns None: nothing is left
        self.look_again(count)

    def look_again(self, count: int) -> None:
        """Promise so many tasks of the queue to threads that sleep, or to new ones; once too often does no harm."""
        for _ in range(count):
            try:
                self._sleeping.pop()
            except IndexError:
                self.come_for_queue()

    def abort(self, handle: Handle[Any]) -> None:
        """Do nothing more: the body sees its signal."""

    def kill(self, handle: Handle[Any]) -> None:
        """Raise TaskAborted inside the body, where the authority allows that; a body that sits in C code stays."""
        with self._guard:
            if handle not in self._interruptible:
                return
            for worker in list(self._workers):
                if worker.inbox is handle and worker.thread.ident is not None:
                    raise_in_thread(worker.thread.ident, TaskAborted)

    def close(self) -> None:
        """Let the idle threads end; a busy one ends after its task."""
        self._closed = True
        self._queue.put(None)
        for thread in self.threads:
            if thread.is_alive() and thread is not threading.current_thread():
                thread.join(timeout=1.0)

    # For engines built on this one

    def attach(self, authority: Authority) -> None:
        """Belong to an authority from now on; where it allows that, bodies may be interrupted."""
        super().attach(authority)
        if authority.settings.inject and self.call is None:
            self.call = self._call_interruptibly

    def new_name(self) -> str | None:
        """Return the name of a thread that may be made; None: there are as many as there may be."""
        return f"whywait-{self.name}-{next(self._names)}"

    def name_is_free(self, name: str) -> None:
        """Take back the name of a thread that has ended, or that the system refused."""

    def come_for_queue(self) -> None:
        """Make a thread for what is in the queue, if there may be one more."""
        name = self.new_name()
        if name is None:
            return
        worker = Worker()
        worker.thread = threading.Thread(target=self._live, args=(worker,), name=name, daemon=True)
        self._workers.add(worker)
        try:
            worker.thread.start()
        except BaseException as error:
            if worker.thread.is_alive():
                raise
            self._workers.discard(worker)
            refused = isinstance(error, RuntimeError)  # the system gives no more threads
            if refused and not self._workers:  # nobody else will come for the task
                self._give_up(error)
            self.name_is_free(name)
            if not refused:
                raise

    def failed(self, handle: Handle[Any], error: BaseException) -> Ended:
        """Keep what the body raised; return how it has ended."""
        return handle.failed(error)

    def work(self, worker: Worker) -> None:
        """Do tasks until there is nothing more to do."""
        ended, succeeded = self.authority.ended, self.authority.succeeded
        engine = self if self.goes_on else None
        in_thread.worker = worker
        handle = self._sleep()
        while handle is not None:
            worker.inbox = handle
            if handle.attention and handle.aborted:
                handle = ended(handle, NEVER_RAN, engine)
            else:
                try:  # the body is called right here: between it and an error's traceback is nothing of the task
                    if self.call is not None:
                        self.call(handle)
                    elif handle._kwargs is None and handle._context is not None:
                        handle._value = (handle._context or Context()).run(handle._fn, *handle._args)
                    elif not handle._kwargs and handle._context is not None:  # it takes results of others
                        handle._value = (handle._context or Context()).run(handle._fn, *handle.resolved_args())
                    else:
                        handle._value = _call(handle._context, *handle.body())
                except BaseException as error:  # noqa: BLE001 - whatever the body raises is its outcome
                    cut_traceback(error, _within_body(traceback_of(error)))
                    outcome = self.failed(handle, error)
                    handle = ended(handle, wrap_up(handle, outcome) if handle.attention else outcome, engine)
                else:
                    if handle.attention:  # there may be more of the task than its body
                        handle = ended(handle, wrap_up(handle, SUCCEEDED), engine)
                    else:
                        handle = succeeded(handle, engine)
            if handle is None:  # now nothing of the task is left here
                worker.inbox = None
                handle = self._next()

    # Interrupting bodies

    def _call_interruptibly(self, handle: Handle[Any]) -> None:
        try:
            with self._guard:
                self._interruptible.add(handle)
            handle._value = _call(handle._context, *handle.body())
        finally:
            self._end_interruptions(handle)
            del handle  # an error leads to this frame and must not lead back to the handle that holds it

    def _end_interruptions(self, handle: Handle[Any]) -> None:
        """Let no exception come any more, and take one that has come a moment too late for the body."""
        while handle in self._interruptible:
            with contextlib.suppress(TaskAborted):
                with self._guard:  # from here on none is sent
                    self._interruptible.discard(handle)
                sleep(0)  # one that was sent comes now at the latest

    # Threads

    def _give_up(self, error: BaseException) -> None:
        with contextlib.suppress(Empty):
            handle = self._queue.get_nowait()
            if handle is not None:
                handle._error = error
                self.authority.ended(handle, NEVER_RAN)

    def _live(self, worker: Worker) -> None:
        """Be a thread."""
        try:
            self.work(worker)
        finally:
            self._workers.discard(worker)
            self.name_is_free(worker.thread.name)

    def _next(self) -> Handle[Any] | None:
        """Return a task that is in the queue, or sleep until there is one; None: end."""
        try:
            handle = self._queue.get_nowait()
        except Empty:
            self._sleeping.append(None)
            return self._sleep()
        self._sleeping.append(None)  # whoever this was promised to sleeps on, and nothing is promised to it
        return self._and_for_all(handle)

    def _sleep(self) -> Handle[Any] | None:
        while True:
            try:
                return self._and_for_all(self._queue.get(timeout=self.idle_s))
            except Empty:
                with contextlib.suppress(IndexError):  # it fails if something was just promised to a sleeper
                    self._sleeping.pop()
                    return None

    def _and_for_all(self, handle: Handle[Any] | None) -> Handle[Any] | None:
        """Leave the word that ends a thread for the others, too."""
        if handle is None:
            self._queue.put(None)
        return handle


def _call(context: Context | None, fn: Callable[..., T], args: tuple[Any, ...], kwargs: dict[str, Any]) -> T:
    """Call a function in a context, or in the thread's own."""
    return fn(*args, **kwargs) if context is None else (context or Context()).run(fn, *args, **kwargs)


def _within_body(traceback: TracebackType | None) -> TracebackType | None:
    """Return the part of a traceback that begins with the body."""
    while traceback is not None and traceback.tb_frame.f_globals.get("__package__") in _OURS:
        traceback = traceback.tb_next
    return traceback
