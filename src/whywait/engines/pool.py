"""The pool engine: the threads of an executor, never more than it has slots.

A task that is started goes into a queue and is promised to a thread: to one that sleeps (``_sleeping`` has an entry
for each to which nothing is promised), else to a new one; if there are as many as there may be, to whichever gets
there first. A thread that has nothing to do looks into the queue before it goes to sleep, and may take what was
promised to another. So a burst of short tasks is done by those that are awake, while a task waits behind nothing but
the callbacks of others.

There is no lock that a finaliser could meet: everything is done by single operations of ``deque`` and
``SimpleQueue``.

Unlike those of other engines, the threads stay until the executor ends (an initializer may have made them costly),
tasks run in the context of their thread, and no body is ever interrupted.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures.thread import BrokenThreadPool
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, ClassVar, Final

from whywait.engines.thread import ThreadEngine, _Worker
from whywait.inside import wrap_up
from whywait.kernel.state import Cause, Outcome
from whywait.signals import in_thread

if TYPE_CHECKING:
    from whywait.authority import Authority
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
        self._more_numbers: Iterator[int] = itertools.count()  # of threads to come
        self._numbers: deque[int] = deque()

    def attach(self, authority: Authority) -> None:
        """Belong to an authority, whose slots bound the number of threads."""
        super().attach(authority)
        slots = authority.settings.limits.slots
        if slots is not None:
            self._numbers.extend(range(slots))
            self._more_numbers = iter(())

    @property
    def threads(self) -> set[threading.Thread]:
        """The threads there are."""
        return {worker.thread for worker in list(self._workers)}

    def start(self, handle: Handle[Any]) -> None:
        """Hand the task to a thread that sleeps, to a new one, or to the first that comes."""
        self._queue.put(handle)
        try:
            self._sleeping.pop()
        except IndexError:
            number = self._next_number()
            if number is not None:
                self._start_thread(number)

    def kill(self, handle: Handle[Any]) -> None:
        """Leave the body alone: whatever it raises is its own."""

    def close(self) -> None:
        """Let the threads end and wait until they have, callbacks of their last tasks included."""
        self._queue.put(None)
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

    def _next_number(self) -> int | None:
        """Return the number of a thread that may be made; None: there are as many as there may be."""
        try:
            return self._numbers.popleft()
        except IndexError:
            return next(self._more_numbers, None)

    def _start_thread(self, number: int) -> None:
        worker = _Worker()
        name = f"{self._prefix}_{number}"
        worker.thread = threading.Thread(target=self._live, args=(worker,), name=name, daemon=True)
        self._workers.add(worker)
        try:
            worker.thread.start()
        except RuntimeError as error:  # the system gives no more threads
            self._workers.discard(worker)
            self._numbers.append(number)
            if not self._workers:  # nobody else will come for the task
                self._give_up(error)

    def _give_up(self, error: RuntimeError) -> None:
        with contextlib.suppress(Empty):
            handle = self._queue.get_nowait()
            if handle is not None:
                handle._error = error
                self.authority.ended(handle, NEVER_RAN)

    def _live(self, worker: _Worker) -> None:
        """Be a thread."""
        try:
            self._work(worker)
            self._queue.put(None)  # the end is for all
        finally:
            self._workers.discard(worker)

    def _work(self, worker: _Worker) -> None:
        ended, run = self.authority.ended, self.run
        handle = self._queue.get()
        while handle is not None:
            in_thread.handle = handle
            outcome = NEVER_RAN if handle.attention and handle.aborted else run(handle, worker)
            if handle.attention:
                outcome = wrap_up(handle, outcome)
            in_thread.handle = None
            handle = ended(handle, outcome, self)
            if handle is None:  # now nothing of the task is left here
                handle = self._next()

    def _next(self) -> Handle[Any] | None:
        """Return a task that is in the queue, or sleep until there is one; None: end."""
        try:
            handle = self._queue.get_nowait()
        except Empty:
            self._sleeping.append(None)
            return self._queue.get()
        self._sleeping.append(None)  # whoever this was promised to sleeps on, and nothing is promised to it
        return handle


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
