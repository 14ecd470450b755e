"""The pool engine: the threads of an executor.

A task that is started goes to a new thread, or, if a thread sleeps, into a queue. Each task in the queue is promised
to one thread that sleeps: ``_sleeping`` has an entry for each one to which nothing is promised. A thread that has
nothing to do looks into the queue before it goes to sleep; if it finds a task, the sleeper that this was promised to
is free again. So a burst of short tasks is done by the threads that are awake, while a task never waits behind
another one. Everything is done by single operations of ``deque`` and ``SimpleQueue``: there is no lock that a
finaliser could meet.

Unlike those of other engines, the threads stay until the executor ends (an initializer may have made them costly),
tasks run in the context of their thread, and no body is ever interrupted.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures.thread import BrokenThreadPool
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, ClassVar, Final

from whywait.context import in_thread
from whywait.engines.thread import ThreadEngine, _Worker
from whywait.kernel.state import Cause, Outcome

if TYPE_CHECKING:
    from whywait.handle import Handle

log = logging.getLogger("concurrent.futures")  # where users of executors look for what an initializer raises

Ended = tuple[str, str | None, bool]
SUCCEEDED: Final[Ended] = (Outcome.SUCCESS, None, True)
NEVER_RAN: Final[Ended] = (Outcome.ERROR, Cause.EXCEPTION, False)
BROKEN: Final = "A thread initializer failed, the thread pool is not usable anymore"


class PoolEngine(ThreadEngine):
    """Runs the tasks of an executor."""

    name: ClassVar[str] = "pool"

    def __init__(self, thread_name_prefix: str) -> None:
        """Start without any thread; they come with the tasks."""
        super().__init__()
        self._prefix = thread_name_prefix
        self._queue: SimpleQueue[Handle[Any] | None] = SimpleQueue()  # None: end
        self._sleeping: deque[None] = deque()
        self._spare_numbers: list[int] = []  # of threads that have ended, for the names of others

    @property
    def threads(self) -> set[threading.Thread]:
        """The threads there are."""
        return {worker.thread for worker in list(self._workers)}

    def start(self, handle: Handle[Any]) -> None:
        """Hand the task to a thread that sleeps, or to a new one."""
        try:
            self._sleeping.pop()
        except IndexError:
            self._start_thread(handle)
        else:
            self._queue.put(handle)

    def kill(self, handle: Handle[Any]) -> None:
        """Leave the body alone: whatever it raises is its own."""

    def retire(self) -> None:
        """Let each thread end as soon as it has nothing to run."""
        self._closed = True
        while self._sleeping:
            try:
                self._sleeping.pop()
            except IndexError:
                break
            self._queue.put(None)

    def close(self) -> None:
        """Let the threads end and wait until they have, callbacks of their last tasks included."""
        self.retire()
        while threads := self.threads:
            if threading.current_thread() in threads:
                return
            for thread in threads:
                if thread.is_alive():  # it is not while it is being started
                    thread.join()

    def run(self, handle: Handle[Any], worker: _Worker) -> Ended:
        """Run the body; a future's in the thread's own context, so that what an initializer has set there is seen."""
        if handle._context is not None:
            return super().run(handle, worker)
        fn, kwargs = handle._fn, handle._kwargs
        try:
            handle._value = fn(*handle._args) if kwargs is None else fn(*handle._args, **kwargs)
        except BaseException as error:  # noqa: BLE001 - whatever the body raises is its outcome
            error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next
            outcome = handle.failed(error)
            del handle, fn, kwargs  # the error leads to this frame and must not lead back to the future that holds it
            return outcome
        return SUCCEEDED

    def _start_thread(self, handle: Handle[Any]) -> None:
        worker = _Worker()
        worker.inbox = handle
        number = self._spare_numbers.pop() if self._spare_numbers else len(self._workers)
        name = f"{self._prefix}_{number}"
        worker.thread = threading.Thread(target=self._live, args=(worker, number), name=name, daemon=True)
        self._workers.add(worker)
        try:
            worker.thread.start()
        except RuntimeError as error:  # the system gives no more threads
            self._workers.discard(worker)
            handle._error = error
            self.authority.ended(handle, NEVER_RAN)

    def _live(self, worker: _Worker, number: int) -> None:
        """Be a thread."""
        try:
            self._work(worker)
        finally:
            self._spare_numbers.append(number)
            self._workers.discard(worker)

    def _work(self, worker: _Worker) -> None:
        ended, run = self.authority.ended, self.run
        handle = worker.inbox
        while handle is not None:
            in_thread.handle = handle
            outcome = NEVER_RAN if handle.attention and handle.aborted else run(handle, worker)
            in_thread.handle = worker.inbox = None
            handle = ended(handle, outcome, self)
            if handle is None:  # now nothing of the task is left here
                handle = self._next()

    def _next(self) -> Handle[Any] | None:
        """Return a task that was promised to another thread, or sleep until there is one; None: end."""
        try:
            handle = self._queue.get_nowait()
        except Empty:
            self._promise_nothing()
            return self._queue.get()
        if handle is None:
            self._queue.put(None)  # the sleeper that is to end still has to
        else:
            self._promise_nothing()
        return handle

    def _promise_nothing(self) -> None:
        """Note that nothing is promised to a sleeper, but the end if all are to end."""
        self._sleeping.append(None)
        if self._closed:
            self.retire()


class InitializedPoolEngine(PoolEngine):
    """Calls a function in each new thread; once that has failed, every task fails."""

    def __init__(
        self,
        thread_name_prefix: str,
        initializer: Callable[..., object],
        initargs: tuple[Any, ...],
        on_broken: Callable[[], None],
    ) -> None:
        """Have ``initializer(*initargs)`` called in each thread, ``on_broken()`` when it raises."""
        super().__init__(thread_name_prefix)
        self._initializer = initializer
        self._initargs = initargs
        self._on_broken = on_broken
        self._broken = False

    def run(self, handle: Handle[Any], worker: _Worker) -> Ended:
        """Run the body, unless the pool is broken."""
        if self._broken:
            handle._error = BrokenThreadPool(BROKEN)
            return NEVER_RAN
        return super().run(handle, worker)

    def _work(self, worker: _Worker) -> None:
        if not self._broken:
            try:
                self._initializer(*self._initargs)
            except BaseException:
                log.critical("Exception in initializer:", exc_info=True)
                self._broken = True
                self._on_broken()
        super()._work(worker)
