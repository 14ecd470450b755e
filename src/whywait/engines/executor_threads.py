"""The pool engine: the threads of an executor, never more than it has slots, unless its tasks lend them.

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
from concurrent.futures import BrokenExecutor
from concurrent.futures.thread import BrokenThreadPool
from threading import RLock
from typing import Any, ClassVar, Final

from whywait.engines.base import EngineTask, Runtime
from whywait.engines.thread import EngineThread, ThreadEngine

log = logging.getLogger("concurrent.futures")  # where users of executors look for what an initializer raises

BROKEN: Final = "A thread initializer failed, the thread pool is not usable anymore"


class PoolEngine(ThreadEngine):
    """Runs the tasks of an executor."""

    name: ClassVar[str] = "pool"
    idle_s: ClassVar[float | None] = None

    def __init__(self, thread_name_prefix: str) -> None:
        """Start without any thread; they come with the tasks."""
        super().__init__()
        self._prefix = thread_name_prefix
        self._numbers: Iterator[int] = itertools.count()  # of threads to come; under the lock
        self._numbering = RLock()  # a finaliser may want a thread while one is named
        self._given_back: deque[str] = deque()

    def attach(self, runtime: Runtime) -> None:
        """Belong to an authority; its slots bound the number of threads."""
        super().attach(runtime)
        limits = runtime.settings.limits
        if limits.slots is not None and limits.when_blocked == "hold":  # what lends its slot keeps its thread
            self._numbers = iter(range(limits.slots))

    def kill(self, execution: EngineTask) -> None:
        """Leave the body alone: whatever it raises is its own."""

    def close(self) -> None:
        """Let the threads end and wait until they have, callbacks of their last tasks included."""
        self._closed = True
        self._queue.put(None)
        while threads := self.threads:
            if threading.current_thread() in threads:
                return
            for thread in threads:
                if thread.is_alive():  # it is not while it is being started
                    thread.join()

    def new_name(self) -> str | None:
        """Return the name of a thread that may be made; None: there are as many as there may be."""
        if self._given_back:
            with contextlib.suppress(IndexError):  # another thread has taken the last one since the look
                return self._given_back.popleft()
        with self._numbering:  # without a GIL, an iterator gives two threads the same
            number = next(self._numbers, None)
        return None if number is None else f"{self._prefix}_{number}"

    def name_is_free(self, name: str) -> None:
        """Take back the name of a thread that the system refused."""
        self._given_back.append(name)


class InitializedPoolEngine(PoolEngine):
    """Calls a function in each new thread; once that has failed, every task fails."""

    def __init__(
        self,
        thread_name_prefix: str,
        initializer: Callable[..., object],
        initargs: tuple[Any, ...],
        on_broken: Callable[[BrokenExecutor], None],
    ) -> None:
        """Have ``initializer(*initargs)`` called in each thread, ``on_broken(error)`` when it raises."""
        super().__init__(thread_name_prefix)
        self._initializer = initializer
        self._initargs = initargs
        self._on_broken = on_broken

    def work(self, runner: EngineThread) -> None:
        """Initialise the thread first."""
        if self.call is None:
            try:
                self._initializer(*self._initargs)
            except BaseException:
                log.critical("Exception in initializer:", exc_info=True)
                self.call = _refuse
                self._on_broken(BrokenThreadPool(BROKEN))
        super().work(runner)


def _refuse(execution: EngineTask) -> None:  # noqa: ARG001 - whatever the task, its thread could not be initialised
    raise BrokenThreadPool(BROKEN)
