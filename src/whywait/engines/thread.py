"""The thread engine: threads that report a task and take the next one in one step.

How a task finds a thread; every step is a single operation of ``deque`` or ``SimpleQueue``, so there is no lock that a
finaliser could meet:

1. A task that is started goes into the queue, and *then* is promised to a thread: an entry leaves ``_sleeping``, which
   has one for each thread that sleeps with nothing promised to it, or a new thread is made. So a thread that is
   promised a task finds it.
2. A thread that has nothing to do looks into the queue before it sleeps, and may take a task that was promised to
   another thread. It then adds the entry of that other thread, which sleeps on: no promise is lost and none counts
   twice. A burst of short tasks is done by the threads that are awake.
3. A thread without a task for a while ends if it can take an entry from ``_sleeping``; if there is none, something was
   just promised to a sleeping thread, and it looks again.

The kernel's slots bound the number of threads.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from _thread import get_ident, start_new_thread
from collections import deque
from collections.abc import Callable
from contextvars import Context
from functools import partial
from queue import Empty, SimpleQueue
from threading import RLock
from time import sleep, thread_time_ns
from typing import Any, ClassVar, Final, TypeVar

from whywait.engines.base import NEVER_RAN, Ended, Engine, EngineTask, Runtime, call
from whywait.errors import TaskAborted
from whywait.support.threads import lasting_thread
from whywait.support.usage import Usage
from whywait.task.signals import raise_in_thread
from whywait.task.surroundings import in_thread

T = TypeVar("T")

_NOTHING: Final = object()  # was in the queue
MADE_WITHIN_S: Final = 1.0  # a thread is made by another one in this time


class EngineThread:
    """One thread of an engine, and the task that it runs."""

    __slots__ = ("empty", "execution", "thread")

    def __init__(self) -> None:
        """Have no task yet."""
        self.execution: EngineTask | None = None
        self.empty = Context()  # for bodies submitted with no variable set, as long as none of them leaves one set
        self.thread: threading.Thread


class ThreadEngine(Engine):
    """Runs plain functions on threads of this process."""

    name: ClassVar[str] = "thread"
    can_kill: ClassVar[bool] = False
    idle_s: ClassVar[float | None] = 30.0  # after this long without a task a thread ends; None: it stays
    goes_on: ClassVar[bool] = True  # a thread that ends a task takes the one that starts in its place
    call: Callable[[EngineTask], object] | None = None  # runs a body and keeps its value; None: it is simply called

    _names = itertools.count(1)

    def __init__(self) -> None:
        """Start without any thread; they come with the tasks."""
        self._queue: SimpleQueue[EngineTask | None] = SimpleQueue()  # None: end
        self._sleeping: deque[None] = deque()
        self._threads: set[EngineThread] = set()
        self._closed = False
        self._guard = RLock()
        self._interruptible: set[EngineTask] = set()  # their bodies may be interrupted right now

    @property
    def threads(self) -> set[threading.Thread]:
        """The threads there are."""
        return {each.thread for each in list(self._threads)}

    def start(self, execution: EngineTask) -> None:
        """Hand the task to a thread that sleeps, to a new one, or to the first that comes."""
        self._queue.put(execution)
        if not self._left_sleeping():
            self.come_for_queue()

    def start_all(self, executions: list[EngineTask]) -> None:
        """Hand several tasks to threads."""
        for execution in executions:
            self.start(execution)

    def abort(self, execution: EngineTask) -> None:
        """Do nothing more: the body sees its signal."""

    def kill(self, execution: EngineTask) -> None:
        """Raise TaskAborted inside the body, where the authority allows that; a body that sits in C code stays."""
        with self._guard:
            if execution not in self._interruptible:
                return
            threads = (each.thread for each in list(self._threads) if each.execution is execution)
            for thread_id in tuple(each.ident for each in threads if each.ident is not None):
                raise_in_thread(thread_id, TaskAborted)

    def withdraw(self, executions: list[EngineTask]) -> list[EngineTask]:
        """Empty the queue; return those of these tasks that no thread runs: one that a thread takes now is not run."""
        with contextlib.suppress(Empty):
            while self._queue.get_nowait() is not None:
                pass
        taken = [each.execution for each in list(self._threads)]
        return [execution for execution in executions if execution not in taken]

    def close(self) -> None:
        """Let the idle threads end; a busy one ends after its task."""
        self._closed = True
        self._queue.put(None)
        for thread in self.threads:
            if thread.is_alive() and thread is not threading.current_thread():
                thread.join(timeout=1.0)

    # For engines built on this one

    def attach(self, runtime: Runtime) -> None:
        """Belong to an authority from now on; where it allows that, bodies may be interrupted."""
        super().attach(runtime)
        if self.call is not None:
            return
        if runtime.settings.inject:
            self.call = self._call_interruptibly
        if runtime.settings.thread_cpu:
            self.call = partial(_call_measured, self.call or _call_body)

    def new_name(self) -> str | None:
        """Return the name of a thread that may be made; None: there are as many as there may be."""
        return f"whywait-{self.name}-{next(self._names)}"

    def name_is_free(self, name: str) -> None:
        """Take back the name of a thread that has ended, or that the system refused."""

    def come_for_queue(self) -> None:
        """Make a thread for what is in the queue, if there may be one more."""
        if get_ident() != threading.main_thread().ident:
            self._make_thread()
            return
        made = threading.Lock()
        made.acquire()
        try:  # by a thread that gets no signals, begun by a single call: one that is half made has its name for ever
            start_new_thread(self._make_thread_and_tell, (made.release,))
        except RuntimeError as error:
            if error.__class__ is not RuntimeError:  # RecursionError: there are threads
                raise
            if not self._threads:
                self._give_up(error)
        else:
            if not made.acquire(timeout=MADE_WITHIN_S):  # it may have had no memory to begin; one too many does no harm
                self._make_thread()

    def _make_thread_and_tell(self, tell: Callable[[], None]) -> None:
        try:
            self._make_thread()
        finally:
            tell()

    def _make_thread(self) -> None:
        name = self.new_name()
        if name is None:
            return
        new = EngineThread()
        new.thread = lasting_thread(self._live, name, (new,))
        self._threads.add(new)
        try:
            new.thread.start()
        except BaseException as error:
            if new.thread.is_alive():
                raise
            self._threads.discard(new)
            refused = error.__class__ is RuntimeError  # the system gives no more threads
            if refused and not self._threads:  # no other thread will come for the task
                self._give_up(error)
            self.name_is_free(name)
            if not refused:
                raise

    def failed(self, execution: EngineTask, error: BaseException) -> Ended:
        """Keep what the body raised; return how it has ended."""
        return execution.failed(error)

    def work(self, runner: EngineThread) -> None:
        """Do tasks until there is nothing more to do."""
        in_thread.runner = runner
        runner.execution = self._sleep()
        while runner.execution is not None:
            self.runtime.carry_out(runner, self)
            runner.empty = Context()
            runner.execution = self._next()

    # Interrupting bodies

    def _call_interruptibly(self, execution: EngineTask) -> None:
        try:
            with self._guard:
                self._interruptible.add(execution)
            if execution.attention and execution.aborted:  # its time may have been up before it could be interrupted
                raise TaskAborted
            execution.value = call(execution.context, *execution.body())
        finally:
            self._end_interruptions(execution)
            del execution  # an error leads to this frame and must not lead back to the execution that holds it

    def _end_interruptions(self, execution: EngineTask) -> None:
        """Let no exception come any more, and take one that has come a moment too late for the body."""
        while execution in self._interruptible:
            with contextlib.suppress(TaskAborted):
                with self._guard:  # from here on none is sent
                    self._interruptible.discard(execution)
                sleep(0)  # one that was sent comes now at the latest

    # Threads

    def _give_up(self, error: BaseException) -> None:
        with contextlib.suppress(Empty):
            execution = self._queue.get_nowait()
            if execution is not None:
                execution.error = error
                self.runtime.report(execution, NEVER_RAN)

    def _live(self, runner: EngineThread) -> None:
        """Be a thread."""
        is_over = False
        try:
            self.work(runner)
            is_over = True
        finally:
            if not is_over:  # no memory: what was promised to this thread would never be done
                self.runtime.thread_lost(runner.execution)
            self._threads.discard(runner)
            self.name_is_free(runner.thread.name)

    def _next(self) -> EngineTask | None:
        """Return a task that is in the queue, or sleep until there is one; None: end."""
        execution: Any = _NOTHING
        try:  # noqa: SIM105 - compiled, a handler that is not empty crashes where there is no memory for a traceback
            execution = self._queue.get_nowait()
        except Empty:
            pass
        self._sleeping.append(None)  # for this thread; or the one that a task was promised to, which sleeps on
        return self._sleep() if execution is _NOTHING else self._taken(execution)

    def _sleep(self) -> EngineTask | None:
        while True:
            execution: Any = _NOTHING
            try:  # noqa: SIM105 - as above
                execution = self._queue.get(timeout=self.idle_s)
            except Empty:
                pass
            if execution is not _NOTHING:
                return self._taken(execution)
            if self._left_sleeping():  # else something was just promised to a sleeper
                return None

    def _left_sleeping(self) -> bool:
        """Take an entry of a thread that sleeps with nothing promised to it; return whether there was one."""
        found = False
        try:
            self._sleeping.pop()
            found = True
        except IndexError:
            pass
        return found

    def _taken(self, execution: EngineTask | None) -> EngineTask | None:
        """Return what was taken from the queue; the word that ends a thread is for the others, too."""
        if execution is None:
            self._queue.put(None)
        return execution


def _call_body(execution: EngineTask) -> None:
    execution.value = call(execution.context, *execution.body())


def _call_measured(call: Callable[[EngineTask], object], execution: EngineTask) -> None:
    """Run a body and note the CPU time of its thread."""
    began_ns = thread_time_ns()
    try:
        call(execution)
    finally:
        execution.facts = Usage((thread_time_ns() - began_ns) / 1e9, None, "thread").facts()
