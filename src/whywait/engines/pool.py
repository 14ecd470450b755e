"""The pool engine: the threads of an executor, with names and an initializer, waited for like any thread pool's."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures.thread import BrokenThreadPool
from typing import TYPE_CHECKING, Any, ClassVar, Final

from whywait.engines.thread import ThreadEngine, _Worker
from whywait.kernel.state import Cause, Outcome

if TYPE_CHECKING:
    from whywait.handle import Handle

log = logging.getLogger("concurrent.futures")  # where users of executors look for what an initializer raises

Ended = tuple[str, str | None, bool]
SUCCEEDED: Final[Ended] = (Outcome.SUCCESS, None, True)
BROKEN: Final = "A thread initializer failed, the thread pool is not usable anymore"


class PoolEngine(ThreadEngine):
    """Runs the tasks of an executor: in the context of the thread that runs them, not of the one that submits."""

    name: ClassVar[str] = "pool"

    def __init__(self, thread_name_prefix: str) -> None:
        """Start without any thread; they come with the tasks."""
        super().__init__()
        self._prefix = thread_name_prefix
        self._numbers: set[int] = set()  # taken ones, in the names of living threads
        self._numbers_lock = threading.Lock()

    @property
    def threads(self) -> set[threading.Thread]:
        """The threads there are."""
        return {worker.thread for worker in list(self._workers)}

    def run(self, handle: Handle[Any], worker: _Worker) -> Ended:
        """Run the body; a future's without a context of its own, so that what an initializer has set is there."""
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

    def retire(self) -> None:
        """Let each thread end as soon as it has nothing to run."""
        self._closed = True
        while self._idle:
            try:
                worker = self._idle.pop()
            except IndexError:
                break
            worker.bell.release()

    def close(self) -> None:
        """Let the threads end and wait until they have, callbacks of their last tasks included."""
        self.retire()
        while workers := list(self._workers):
            for worker in workers:
                if worker.thread is threading.current_thread():
                    return
                if worker.thread.is_alive():  # it is not while it is being started
                    worker.thread.join()

    def _work(self, worker: _Worker) -> None:
        with self._numbers_lock:
            number = next(number for number in range(len(self._numbers) + 1) if number not in self._numbers)
            self._numbers.add(number)
        worker.thread.name = f"{self._prefix}_{number}"
        try:
            super()._work(worker)
        finally:
            with self._numbers_lock:
                self._numbers.discard(number)


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
            return Outcome.ERROR, Cause.EXCEPTION, False
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
