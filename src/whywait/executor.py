"""Executor: a thread pool for ``concurrent.futures`` whose tasks an authority governs.

The executor itself is only a door. Behind it stands a :class:`_Pool`, which knows nothing of the executor: so an
executor that nobody refers to any more is noticed, and its pool finishes what was submitted and ends its threads.
All pools that have not ended are in ``_living``; when the interpreter exits, each is finished in turn.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from concurrent.futures.thread import BrokenThreadPool, ThreadPoolExecutor
from contextvars import copy_context
from time import monotonic
from typing import Any, Final, Generic, NamedTuple, ParamSpec, TypeVar

from whywait.authority import DEFAULT_SCOPE, Authority
from whywait.engines.base import Engine
from whywait.engines.pool import BROKEN, InitializedPoolEngine, PoolEngine
from whywait.errors import ScopeClosed
from whywait.explain import Why
from whywait.future import TaskFuture
from whywait.kernel.model import Priority
from whywait.settings import UNSET, Unset
from whywait.signals import in_thread

P = ParamSpec("P")
T = TypeVar("T")

SHUT_DOWN: Final = "cannot schedule new futures after shutdown"
EXITING: Final = "cannot schedule new futures after interpreter shutdown"
NORMAL: Final = int(Priority.NORMAL)


class Executor(ThreadPoolExecutor):
    """Does all that ``concurrent.futures.ThreadPoolExecutor`` does, and can say why a future waits.

    ``max_workers`` is the number of slots of its authority, whose other settings may be given by keyword. A task
    runs in the context of its thread, as in the standard library, not in that of whoever submits it.
    """

    _names = itertools.count()

    def __init__(
        self,
        max_workers: int | None = None,
        thread_name_prefix: str = "",
        initializer: Callable[..., object] | None = None,
        initargs: tuple[Any, ...] = (),
        **authority_options: Any,  # noqa: ANN401 - those of Authority
    ) -> None:
        """Settle the settings; no thread starts before it is needed."""
        # The base class gives the type that event loops ask for; nothing of it is used, so it is not initialised.
        if max_workers is not None and max_workers <= 0:
            raise ValueError("max_workers must be greater than 0")
        if initializer is not None and not callable(initializer):
            raise TypeError("initializer must be a callable")
        if "slots" in authority_options:
            raise TypeError("the slots of an executor are its max_workers: give those")
        prefix = thread_name_prefix or f"whywait-ThreadPoolExecutor-{next(self._names)}"
        self._begin(_Plan(max_workers, prefix, initializer, initargs, authority_options))

    def _begin(self, plan: _Plan) -> None:
        self._pool = pool = _Pool(plan)
        self._authority = pool.authority
        self._engine, self._scope = pool.engine, pool.scope
        self._own_threads = isinstance(pool.engine, PoolEngine)
        pool.finalizer = weakref.finalize(self, pool.abandon)
        pool.finalizer.atexit = False
        _living.add(pool)

    @property
    def authority(self) -> Authority:
        """The authority that governs the tasks; it ends with the executor."""
        return self._authority

    def why(self, future: Future[Any]) -> Why:
        """Return why a future of this executor waits, what its task does, or how its wait divided."""
        if not isinstance(future, TaskFuture) or future._authority is not self._authority:
            raise ValueError(f"{future!r} is not a future of this executor: it cannot say why it waits")
        return future.why()

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Submit a call of ``fn``; return the future of its result."""
        pool = self._pool
        if pool.refusal is not None:
            pool.refuse()
        authority = self._authority
        context = None if self._own_threads else copy_context()
        future = TaskFuture(authority, fn, args, context, self._engine)
        if kwargs:
            future._kwargs = kwargs
        try:
            authority.admit(future, self._scope, None)
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
        if chunksize == 1:
            submitted = (self.submit(fn, *call) for call in calls)
            return _results(deque(itertools.islice(submitted, buffersize)), submitted, end_s)
        chunks = (_Chunk(fn, chunk) for chunk in iter(lambda: list(itertools.islice(calls, chunksize)), []))
        begun = ((chunk.results, self.submit(chunk)) for chunk in chunks)
        return _chunk_results(deque(itertools.islice(begun, buffersize)), begun, end_s)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: FBT001, FBT002 - inherited
        """Accept nothing more; ``wait`` for what was submitted, or cancel what has not started."""
        self._pool.shut_down(wait=wait, cancel_futures=cancel_futures)

    # What other libraries and tests look at in a thread pool

    @property
    def _max_workers(self) -> int | None:  # type: ignore[override]
        return self._authority.settings.limits.slots

    @property
    def _threads(self) -> set[threading.Thread]:  # type: ignore[override]
        return self._engine.threads if isinstance(self._engine, PoolEngine) else set()

    @property
    def _broken(self) -> bool | str:  # type: ignore[override]
        return BROKEN if self._pool.refusal == BROKEN else False

    @property
    def _shutdown(self) -> bool:  # type: ignore[override]
        return self._pool.refusal in {SHUT_DOWN, EXITING}


class _Plan(NamedTuple):
    """The arguments of an executor."""

    max_workers: int | None
    thread_name_prefix: str
    initializer: Callable[..., object] | None
    initargs: tuple[Any, ...]
    authority_options: dict[str, Any]

    def slots(self) -> int | Unset | None:
        """Return the number of slots: as given, else by the environment, else as many as thread pools have."""
        scheduler = os.environ.get("WHYWAIT_SCHEDULER", "").strip().lower()
        if scheduler == "simple" and self.authority_options.get("engine") is None:
            return 1
        if self.max_workers is not None:
            return self.max_workers
        if scheduler == "unbounded" or os.environ.get("WHYWAIT_SLOTS", "").strip():
            return UNSET
        count_cpus = getattr(os, "process_cpu_count", os.cpu_count)
        return min(32, (count_cpus() or 1) + 4)


class _Pool:
    """An authority and its threads, from the first submission to the end of the last thread."""

    refusal: str | None = None  # why nothing more is accepted; on the class: for all, the interpreter exits
    finalizer: weakref.finalize[[], Executor]

    def __init__(self, plan: _Plan) -> None:
        self.plan = plan
        options = dict(plan.authority_options)
        if options.get("engine") is None:
            if options.get("inject"):
                raise ValueError("inject needs another engine: an executor's own threads are never interrupted")
            options["engine"] = self._make_engine(plan)
        elif plan.initializer is not None:
            raise ValueError("an initializer needs the executor's own threads: give no engine")
        self.authority = Authority(slots=plan.slots(), **options)
        self.engine: Engine = self.authority.engines.default
        self.scope = self.authority.get_scope(DEFAULT_SCOPE)._kernel_scope
        self._cancelling = False
        self._finishing = False

    def _make_engine(self, plan: _Plan) -> PoolEngine:
        if plan.initializer is None:
            return PoolEngine(plan.thread_name_prefix)
        return InitializedPoolEngine(plan.thread_name_prefix, plan.initializer, plan.initargs, self._break)

    def _break(self) -> None:
        self.refusal = BROKEN

    # Submissions

    def refuse(self) -> None:
        """Raise: nothing more is accepted."""
        if self.refusal == BROKEN:
            raise BrokenThreadPool(BROKEN)
        raise RuntimeError(self.refusal)

    def came_late(self, future: TaskFuture[Any]) -> None:
        """Treat a future that was submitted while the pool was shut down like those before it."""
        if self._cancelling:
            future.cancel()

    # The end

    def shut_down(self, *, wait: bool, cancel_futures: bool) -> None:
        """Accept nothing more and finish, here or elsewhere."""
        if self.refusal != BROKEN:
            self.refusal = SHUT_DOWN
        if cancel_futures:
            self._cancelling = True
            self.authority.command(self._cancel_all)
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
        if self.authority.kernel.stats.submitted == 0:
            _living.discard(self)
        else:
            self._finish_elsewhere()

    def finish(self) -> None:
        """Wait until all that was submitted has ended, then end the authority and its threads."""
        authority = self.authority
        while not authority.command(self._dispose_if_empty):
            bell = threading.Lock()
            bell.acquire()
            authority.watch(self._is_empty, bell.release)
            bell.acquire()
        authority.dispose()
        _living.discard(self)

    def _finish_elsewhere(self) -> None:
        """Finish in a thread of its own; no lock is waited for here, since a finaliser may come this way."""
        if not self._finishing:
            self._finishing = True
            with contextlib.suppress(RuntimeError):  # the interpreter is exiting: it finishes every pool itself
                threading.Thread(target=self.finish, name="whywait-finish", daemon=True).start()

    def _is_inside(self) -> bool:
        handle = in_thread.handle
        if handle is not None and handle._authority is self.authority:
            return True
        return isinstance(self.engine, PoolEngine) and threading.current_thread() in self.engine.threads

    def _cancel_all(self, now: int) -> None:
        cancel = self.authority.kernel.cancel
        for task in list(self.scope.tasks.values()):
            if isinstance(task.job, TaskFuture) and not task.job._has_started():
                cancel(now, task)

    def _is_empty(self) -> bool:
        return not any(scope.tasks for scope in self.authority.kernel.root.subtree())

    def _dispose_if_empty(self, now: int) -> bool:
        """Let no submission come between the look and the end."""
        if self._is_empty():
            self.authority.kernel.dispose(now, self.authority.kernel.root)
            return True
        return False


class _Chunk(Generic[T]):
    """Several calls as one task; what they returned stays even if one of them fails."""

    def __init__(self, fn: Callable[..., T], calls: list[tuple[Any, ...]]) -> None:
        self._fn = fn
        self._calls = calls
        self.results: list[T] = []

    def __call__(self) -> None:
        self.results.clear()  # of an earlier attempt
        for call in self._calls:
            self.results.append(self._fn(*call))


def _results(futures: deque[Future[T]], more: Iterator[Future[T]], end_s: float | None) -> Iterator[T]:
    """Yield the results in order; for each that is taken, submit one ``more``."""
    try:
        while futures:
            futures.extend(itertools.islice(more, 1))
            yield _result_or_cancel(futures.popleft(), end_s)
    finally:
        for future in futures:
            future.cancel()


def _chunk_results(
    chunks: deque[tuple[list[T], Future[None]]], more: Iterator[tuple[list[T], Future[None]]], end_s: float | None
) -> Iterator[T]:
    """Yield the results of chunks in order; those from before an error, too."""
    try:
        while chunks:
            chunks.extend(itertools.islice(more, 1))
            results, future = chunks.popleft()
            try:
                _result_or_cancel(future, end_s)
            except Exception:
                if future.done():
                    yield from results
                raise
            finally:
                del future
            results.reverse()
            while results:
                yield results.pop()  # and keep no reference
    finally:
        for _, future in chunks:
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


def _begin_anew() -> None:
    """Give each executor a new pool in a forked process: the old one's threads are not there, its locks may be held."""
    pools = list(_living)
    _living.clear()
    for pool in pools:
        found = pool.finalizer.detach()
        if found is not None and pool.refusal is None and "engine" not in pool.plan.authority_options:
            found[0]._begin(pool.plan)


# The standard library's thread pools use the same hook: it comes before threads are joined and `atexit` functions run.
threading._register_atexit(_finish_all)  # type: ignore[attr-defined]
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)
