"""Executor: a pool of threads or processes for ``concurrent.futures`` that an authority governs.

The executor itself is only a door. Behind it stands a :class:`_Pool`, which knows nothing of the executor: so an
executor that is garbage is noticed, and its pool finishes what was submitted and ends its threads.
All pools that have not ended are in ``_living``; when the interpreter exits, each is finished in turn.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import BrokenExecutor, Future
from concurrent.futures.thread import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any, Final, ParamSpec, TypeVar, Unpack

from whywait.engines.base import Engine
from whywait.engines.executor_threads import InitializedPoolEngine, PoolEngine
from whywait.errors import AuthorityBroken, ConfigError, ScopeClosed
from whywait.observe.explain import Why
from whywait.options import Size
from whywait.runtime.authority import DEFAULT_SCOPE, Authority, core_of
from whywait.runtime.chunks import cut, hand_out, in_order
from whywait.runtime.execution import set_up
from whywait.runtime.future import TaskFuture
from whywait.runtime.leaving import LOOK_S, Leaving
from whywait.runtime.option_types import AuthorityOptions
from whywait.runtime.terms import Terms
from whywait.task.chunk import Chunk
from whywait.task.surroundings import in_thread

P = ParamSpec("P")
T = TypeVar("T")

SHUT_DOWN: Final = "cannot schedule new futures after shutdown"
EXITING: Final = "cannot schedule new futures after interpreter shutdown"


class ExecutorOptions(AuthorityOptions, total=False):
    """What an executor takes beside the arguments of a pool: all that its authority takes but for slots, and more."""

    record: str | Path | None
    events_file: str | Path | None
    log: logging.Logger | None
    mp_context: Any
    max_tasks_per_child: int | None
    max_ram_per_child: Size | None


OF_PROCESSES: Final = ("mp_context", "max_tasks_per_child", "max_ram_per_child")


class Executor(ThreadPoolExecutor):
    """Does what ``concurrent.futures`` has its pools for, and can say why a future waits.

    It is a ``ThreadPoolExecutor``, or with ``engine="process"`` what ``ProcessPoolExecutor`` is. ``max_workers`` is the
    number of slots of its authority; other settings of that may be given by keyword. A task runs in the context of its
    thread, as in the standard library, not in that of the submitter.

    With processes, each new one calls ``initializer(*initargs)`` first. One that has done ``max_tasks_per_child``
    tasks, or holds more memory than ``max_ram_per_child`` after a task, is replaced. They are new interpreters, so
    that ``mp_context`` can only be one of the kind "spawn".
    """

    _names = itertools.count()

    def __init__(
        self,
        max_workers: int | None = None,
        thread_name_prefix: str = "",
        initializer: Callable[..., object] | None = None,
        initargs: tuple[Any, ...] = (),
        **options: Unpack[ExecutorOptions],
    ) -> None:
        """Resolve the settings; no thread or process starts before it is needed."""
        # The base class gives the type that event loops ask for; nothing of it is used, so it is not initialised.
        if max_workers is not None and max_workers <= 0:
            raise ValueError("max_workers must be greater than 0")
        if initializer is not None and not callable(initializer):
            raise TypeError("initializer must be a callable")
        if "slots" in options:
            raise TypeError("the slots of an executor are its max_workers: give those")
        prefix = thread_name_prefix or f"whywait-ThreadPoolExecutor-{next(self._names)}"
        self._pool = pool = _Pool(max_workers, prefix, initializer, initargs, dict(options))
        self._core, self._engine, self._scope = pool.core, pool.engine, pool.scope
        self._terms = Terms()
        self._has_own_context = isinstance(pool.engine, PoolEngine) or not pool.engine.shares_memory
        weakref.finalize(self, pool.abandon).atexit = False
        _living.add(pool)

    @property
    def authority(self) -> Authority:
        """The authority that governs the tasks; it ends with the executor."""
        return self._pool.authority

    def why(self, future: Future[Any]) -> Why:
        """Return why a future of this executor waits, what its task does, or how its wait divided."""
        if not isinstance(future, TaskFuture) or future.core is not self._core:
            raise ValueError(f"{future!r} is not a future of this executor: it cannot say why it waits")
        return future.why()

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Submit a call of ``fn``; return the future of its result."""
        pool = self._pool
        if pool.refusal is not None:
            pool.refuse()
        context = None if self._has_own_context else copy_context()
        future: TaskFuture[T] = TaskFuture()
        set_up(future, self._core, fn, args, context, self._engine)
        if kwargs:
            future.kwargs = kwargs
        try:
            self._core.admit(future, self._scope, self._terms)
        except ScopeClosed as error:
            raise RuntimeError(SHUT_DOWN) from error
        if pool.refusal is not None:
            pool.came_late(future)
        return future

    def map(
        self,
        fn: Callable[..., T],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
        buffersize: int | None = None,
    ) -> Iterator[T]:
        """Call ``fn`` with the items of the iterables, in parallel; return an iterator over the results, in order.

        Items are taken, and calls submitted, at once; with ``buffersize``, only so many ahead of the results taken.
        With ``chunksize``, so many calls make up one task. ``timeout`` counts from now. When the iterator ends
        early, by an error, by the timeout or because it is dropped, what has not started is cancelled.
        """
        if chunksize < 1:
            raise ValueError("chunksize must be >= 1.")
        if buffersize is not None and not isinstance(buffersize, int):
            raise TypeError("buffersize must be an integer or None")
        if buffersize is not None and buffersize < 1:
            raise ValueError("buffersize must be None or > 0")
        end_s = None if timeout is None else timeout + monotonic()
        calls = zip(*iterables, strict=False)
        begun: Iterator[_Begun[T]]
        if chunksize == 1:
            begun = ((None, self.submit(fn, *call)) for call in calls)
        else:
            chunks = (Chunk[T](fn, chunk) for chunk in cut(calls, chunksize))
            begun = ((chunk, self.submit(chunk)) for chunk in chunks)
        return in_order(deque(itertools.islice(begun, buffersize)), begun, partial(_results_of, end_s), _cancel)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accept nothing more; ``wait`` for what was submitted, or cancel what has not started."""
        self._pool.shut_down(wait=wait, cancel_futures=cancel_futures)

    # What other libraries and tests look at in a pool

    @property
    def _max_workers(self) -> int | None:  # type: ignore[override]
        return self._core.settings.limits.slots

    @property
    def _threads(self) -> set[threading.Thread]:  # type: ignore[override]
        return self._engine.threads if isinstance(self._engine, PoolEngine) else set()

    @property
    def _processes(self) -> dict[int, Any]:
        return {each.pid: each for each in getattr(self._engine, "processes", ())}

    @property
    def _broken(self) -> bool | str:  # type: ignore[override]
        return False if self._pool.broken is None else str(self._pool.broken)

    @property
    def _shutdown(self) -> bool:  # type: ignore[override]
        return self._pool.refusal in {SHUT_DOWN, EXITING}


class _Pool:
    """An authority and its threads or processes, from the first submission to the end of the last of them."""

    refusal: str | None = None  # why nothing more is accepted; on the class: for all, the interpreter exits

    def __init__(
        self,
        max_workers: int | None,
        prefix: str,
        initializer: Callable[..., object] | None,
        initargs: tuple[Any, ...],
        options: dict[str, Any],
    ) -> None:
        self.broken: BrokenExecutor | None = None  # an initializer has failed
        of_processes = {name: options.pop(name) for name in OF_PROCESSES if name in options}
        named = options.get("engine")
        if named == "process":
            options["engine"] = self._process_engine(initializer, initargs, **of_processes)
        elif any(value is not None for value in of_processes.values()):
            raise ConfigError(f'{", ".join(of_processes)} of an executor needs processes: give engine="process"')
        elif named is not None and initializer is not None:
            raise ValueError(
                'an initializer needs the executor\'s own threads or processes: give engine="process", or none'
            )
        elif named is None and options.get("inject"):
            raise ValueError("inject needs another engine: an executor's own threads are never interrupted")
        elif named is None and initializer is not None:
            options["engine"] = InitializedPoolEngine(prefix, initializer, initargs, self._break)
        elif named is None:
            options["engine"] = PoolEngine(prefix)
        self.authority = Authority(**(_slots(max_workers, named) | options))
        self.core = core = core_of(self.authority)
        self.engine: Engine = core.engines.default
        self.scope = core.scopes[DEFAULT_SCOPE].kernel_scope
        self._cancelling = False
        self._finishing = False

    def _process_engine(
        self,
        initializer: Callable[..., object] | None,
        initargs: tuple[Any, ...],
        *,
        mp_context: Any = None,
        **settings: Any,
    ) -> Engine:
        from whywait.engines.process.engine import ProcessEngine

        method = mp_context if mp_context is None or isinstance(mp_context, str) else mp_context.get_start_method()
        if method not in {None, "spawn"}:
            raise ConfigError(
                f"mp_context {method!r} is not allowed: worker processes are new interpreters, since a process with "
                'threads must not be forked; leave it out or give "spawn", and have an initializer make what they need'
            )
        engine = ProcessEngine(initializer, initargs, **settings)
        engine.on_broken = self._break
        return engine

    def _break(self, error: BrokenExecutor) -> None:
        self.broken = error
        self.refusal = str(error)

    # Submissions

    def refuse(self) -> None:
        """Raise: nothing more is accepted."""
        if self.broken is not None:
            raise type(self.broken)(self.refusal)
        raise RuntimeError(self.refusal)

    def came_late(self, future: TaskFuture[Any]) -> None:
        """Treat a future that was submitted while the pool was shut down like those before it."""
        if self._cancelling:
            future.cancel()

    # The end

    def shut_down(self, *, wait: bool, cancel_futures: bool) -> None:
        """Accept nothing more and finish, here or elsewhere."""
        if self.broken is None:
            self.refusal = SHUT_DOWN
        if cancel_futures:
            self._cancelling = True
            self.core.command(self._cancel_all)
        if not wait:
            self._finish_elsewhere()
        elif self._is_inside():
            self._finish_elsewhere()
            raise RuntimeError("cannot join current thread: shutdown(wait=True) was called by a thread of the pool")
        else:
            self.finish()

    def abandon(self) -> None:
        """Finish without the executor, which is gone; may be called by the garbage collector, at any point."""
        if self.refusal is None:
            self.refusal = SHUT_DOWN
        if self.core.kernel.stats.numbered == 0:
            _living.discard(self)
        else:
            self._finish_elsewhere()

    def finish(self) -> None:
        """Wait until all that was submitted has ended, then end the authority and its threads."""
        leaving = Leaving(self.core, self.core.kernel.root, "the end of an executor")
        with contextlib.suppress(AuthorityBroken):  # each future has said so
            while not self.core.command(self._dispose_if_empty):
                for condition in leaving.until(self._is_empty, gives_up=False):
                    self.core.block_until(condition, LOOK_S)
        _living.discard(self)
        self.authority.dispose()

    def _finish_elsewhere(self) -> None:
        """Finish in a thread of its own; no lock is waited for here, since a finaliser may come this way."""
        if not self._finishing:
            self._finishing = True
            with contextlib.suppress(RuntimeError):  # the interpreter is exiting: it finishes every pool itself
                threading.Thread(target=self.finish, name="whywait-finish", daemon=True).start()

    def _is_inside(self) -> bool:
        execution = in_thread.execution
        if execution is not None and execution.core is self.core:
            return True
        return isinstance(self.engine, PoolEngine) and threading.current_thread() in self.engine.threads

    def _cancel_all(self, now: int) -> None:
        cancel = self.core.kernel.cancel
        for task in list(self.scope.tasks.values()):
            if isinstance(task, TaskFuture) and task.is_cancellable:
                cancel(now, task)

    def _is_empty(self) -> bool:
        return self.core.broken is not None or not any(scope.tasks for scope in self.core.kernel.root.subtree())

    def _dispose_if_empty(self, now: int) -> bool:
        """Let no submission come between the look and the end."""
        if self._is_empty():
            self.core.kernel.dispose(now, self.core.kernel.root)
            return True
        return False


def _slots(max_workers: int | None, engine: object) -> dict[str, Any]:
    """Return the slots as given, or as many as such pools have; nothing if the environment says how many."""
    scheduler = os.environ.get("WHYWAIT_SCHEDULER", "").strip().lower()
    if scheduler == "simple" and engine is None:
        return {"slots": 1}
    if max_workers is not None:
        return {"slots": max_workers}
    if scheduler == "unbounded" or os.environ.get("WHYWAIT_SLOTS", "").strip():
        return {}
    cpus = getattr(os, "process_cpu_count", os.cpu_count)() or 1
    return {"slots": cpus if engine == "process" else min(32, cpus + 4)}


_Begun = tuple[Chunk[T] | None, Future[Any]]  # the chunk that is its task; None: one call is


def _results_of(end_s: float | None, begun: _Begun[T]) -> Iterator[T]:
    """Yield the results of one task of ``map``; those of a chunk from before an error, too."""
    chunk, future = begun
    del begun
    try:
        value = _result_or_cancel(future, end_s)
        results: list[T] = [value] if chunk is None else value
        del value
    except Exception:
        if chunk is not None and future.done():
            yield from chunk.results
        raise
    finally:
        del future
    yield from hand_out(results)


def _cancel(begun: Iterable[_Begun[Any]]) -> None:
    for _, future in begun:
        future.cancel()


def _result_or_cancel(future: Future[T], end_s: float | None) -> T:
    """Wait for a result until a time of ``monotonic``; a future that does not get there is cancelled."""
    try:
        return future.result(None if end_s is None else end_s - monotonic())
    finally:
        future.cancel()
        del future  # it is on the traceback of the error that it holds


_living: set[_Pool] = set()


def _finish_all() -> None:
    """Let the interpreter exit only when all that was submitted has ended; refuse what comes meanwhile."""
    _Pool.refusal = EXITING
    while _living:
        for pool in list(_living):
            pool.finish()


# The standard library's thread pools use the same hook: it comes before threads are joined and `atexit` functions run.
threading._register_atexit(_finish_all)  # type: ignore[attr-defined] # noqa: SLF001 - the only hook that early
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_living.clear)  # of a forked process: no thread of a pool is there
