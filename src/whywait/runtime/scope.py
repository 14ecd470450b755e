"""Scope: an execution namespace; leaving or disposing it ends everything inside."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from contextvars import copy_context
from operator import attrgetter
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, Unpack, overload

from whywait.engines.base import Engine
from whywait.errors import ConfigError, DisposeIncomplete, UnknownScope
from whywait.kernel.durations import NS, Seconds, in_seconds
from whywait.kernel.limits import Budget
from whywait.kernel.model import Task
from whywait.kernel.state import ScopeState
from whywait.options import NEW_SCOPE, make_limits, read_keywords
from whywait.runtime import acts, submission
from whywait.runtime.blocking import Blocking
from whywait.runtime.chunks import map_calls
from whywait.runtime.handle import Handle, new_handle
from whywait.runtime.lazy import Lazy
from whywait.runtime.leaving import LOOK_S, Leaving, kill_s
from whywait.runtime.leftovers import remedy
from whywait.runtime.option_types import PeriodicOptions, ScopeOptions, TaskOptions
from whywait.runtime.periodic import Periodic, add_periodic
from whywait.runtime.services import CoreServices
from whywait.runtime.settings import policy_of
from whywait.runtime.submission import CO_COROUTINE, EMPTY, Call, request_for
from whywait.runtime.terms import ScopeRecord
from whywait.support.lazy import asyncio
from whywait.support.waiters import refuse_on_loop

if TYPE_CHECKING:
    from whywait.kernel.snapshot import Snapshot

T = TypeVar("T")


_LEAVING: Final = ("leaving a block", "async with")  # what would block, and what to use instead


class OpenScope(ScopeRecord):
    """A scope as the runtime knows it: what it takes tasks by, and the ways it ends."""

    def __init__(self, core: CoreServices, engine: Engine, grace_s: float) -> None:
        """Begin; the kernel gives it a scope of its own."""
        super().__init__(engine, grace_s)
        self.core = core

    @property
    def _called(self) -> str:
        """What messages call it."""
        key = self.kernel_scope.key
        return f"scope {key!r}" if key else "the authority"

    def open(self, key: str, options: ScopeOptions, budget: Budget | None = None) -> Scope:
        """Open a scope inside; with ``budget`` it has one of its own."""
        core, above = self.core, self.kernel_scope
        values = read_keywords(NEW_SCOPE, options, "a scope has")
        of_kernel = {
            "limits": make_limits(values, above.limits),
            "policy": policy_of(above.policy, values),
            "budget": budget,
            "mount": values.get("mount", True),
        }
        engine, grace_ns = values.get("engine"), values.get("grace_ns")
        inside = OpenScope(
            core,
            self.engine if engine is None else core.engines.get(engine),
            self.grace_s if grace_ns is None else grace_ns / NS,
        )
        scope = Scope(inside)
        core.command(acts.open_scope, core, inside, key, above, of_kernel)
        return scope

    def engine_for(self, fn: Callable[..., Any], options: Mapping[str, Any]) -> Engine:
        """Return the engine for a function; options that name another one come after this."""
        code = getattr(fn, "__code__", None)
        if code is None:
            return self.core.engines.choose(self.engine, fn, named=options.get("engine") is not None)
        if not code.co_flags & CO_COROUTINE:
            return self.engine.here()
        if self.coroutine_engine is None:
            default = self.engine
            self.coroutine_engine = default if default.runs_coroutines else self.core.engines.get("asyncio")
        return self.coroutine_engine.here()

    # Its end

    def wait(self) -> None:
        """Wait until only iterations of periodics are left, here and below."""
        with Blocking(self._last()):
            for condition in self._waiting():
                self.core.wait_until(condition, LOOK_S, "wait()", "await scope.wait_async()")

    def done_within(self, timeout_s: float) -> bool:
        """Do the same for so long at most; return whether that was in time."""
        return self.core.wait_until(self._is_done, timeout_s, "wait()", "await scope.wait_async()")

    async def wait_async(self) -> None:
        """Wait without blocking the event loop."""
        await Blocking(self._last()).over(self._until(self._waiting()))

    def leave(self) -> None:
        """Wait for all tasks, then stop the periodics and wait for iterations in flight; not for what is overdue."""
        with Blocking(self._last()):
            for condition in self._leaving():
                self.core.wait_until(condition, LOOK_S, *_LEAVING)

    async def leave_async(self) -> None:
        """Do the same without blocking the event loop."""
        await Blocking(self._last()).over(self._until(self._leaving()))

    async def _until(self, conditions: Iterator[Callable[[], bool]]) -> None:
        for condition in conditions:
            await self.core.wait_until_async(condition, LOOK_S)

    def _last(self) -> list[Any]:
        """Return the task of the scope, or of one below, that was submitted last; what waits for all waits for it."""
        with self.core.lock:
            last = [next(reversed(each.tasks.values()), None) for each in self.kernel_scope.subtree()]
        tasks = [task for task in last if task is not None and task.periodic is None]
        return [max(tasks, key=attrgetter("number"))] if tasks else []

    def dispose(self, grace: Seconds | None, *, leaving: bool = False) -> None:
        """End everything inside; raise DisposeIncomplete, naming them, if bodies still run after ``grace``.

        ``leaving``: a block is left, and what is refused on an event loop is that.
        """
        own_name = "authority" if self.kernel_scope.parent is None else "scope"
        what, instead = _LEAVING if leaving else ("dispose()", f"await {own_name}.dispose_async()")
        if self._anything_running():
            refuse_on_loop(what, instead)
        wait_s = self._begin_disposal(grace)
        self._disposed(in_time=self.core.wait_until(self._is_gone, wait_s, what, instead))
        self.core.close_lazies()

    async def dispose_async(self, grace: Seconds | None) -> None:
        """Do the same without blocking the event loop."""
        wait_s = self._begin_disposal(grace)
        self._disposed(in_time=await self.core.wait_until_async(self._is_gone, wait_s))
        if self.core.lazies:
            await asyncio.to_thread(self.core.close_lazies)

    def is_given_up(self, error: BaseException | None) -> bool:
        """Return whether a block is left because its scope was disposed of and bodies still run after ``grace``."""
        return isinstance(error, DisposeIncomplete) and self.kernel_scope.state == ScopeState.DISPOSING

    def raise_errors(self, error: BaseException | None, incomplete: DisposeIncomplete | None = None) -> None:
        """Raise the tasks' errors as a group, if a failure ends the scope; include ``incomplete``."""
        if self.errors:
            cause = None if error in self.errors else error
            told = self.errors if incomplete is None else [*self.errors, incomplete]
            raise BaseExceptionGroup(f"tasks of {self._called} failed", told) from cause
        if incomplete is not None:
            raise incomplete

    def html(self, title: str, url: str | None = None) -> str:
        """Return a picture of the scope for a notebook; ``url`` leads to more."""
        from whywait.observe.html import IN_SHORT, run_html

        return run_html(title, self.core.snapshot(self.kernel_scope, IN_SHORT), url)

    def is_empty(self) -> bool:
        """Return whether no task is left here or below; under the lock."""
        return self.core.broken is not None or not any(scope.tasks for scope in self.kernel_scope.subtree())

    def _begin_disposal(self, grace: Seconds | None) -> float:
        """Ask everything inside to end; return how many seconds it has."""
        core = self.core
        if grace is not None:
            self.grace_s = in_seconds("grace", grace)
            with core.lock:
                below = [core.scopes.get(each.key) for each in self.kernel_scope.subtree()]
            for each in below:
                if each is not None:
                    each.grace_s = self.grace_s
        if core.broken is None:
            core.command(core.kernel.dispose, self.kernel_scope)
        with core.lock:
            return self.grace_s + max((kill_s(core, job) for job in self._bodies()), default=0.0)

    def _bodies(self) -> list[Any]:
        """Return the executions whose bodies run, here and below; under the lock."""
        core, scope = self.core, self.kernel_scope
        running: Iterable[Any] = list(core.kernel.running.values()) if core.broken is None else core.survivors
        return [execution for execution in running if scope in execution.scope.chain]

    def _waiting(self) -> Iterator[Callable[[], bool]]:
        """Yield what to wait for next, :data:`LOOK_S` at most."""
        what = f"wait() of {self._called}"
        return Leaving(self.core, self.kernel_scope, what).until(self._is_done, gives_up=False)

    def _leaving(self) -> Iterator[Callable[[], bool]]:
        """Yield what to wait for next, :data:`LOOK_S` at most; between tasks and iterations, stop the periodics."""
        leaving = Leaving(self.core, self.kernel_scope, f"leaving {self._called}")
        yield from leaving.until(self._is_done)
        self.core.command(acts.stop_periodics, self.core, self.kernel_scope)
        yield from leaving.for_iterations(self.grace_s).until(self.is_empty)

    def _disposed(self, *, in_time: bool) -> None:
        if not in_time:
            with self.core.lock:
                stuck = self._left()
            if stuck:
                names = [task.label for task in stuck]
                self.core.close_lazies_later(self._is_gone)
                raise DisposeIncomplete(
                    f"{self._called} has not ended: {', '.join(names[:10])} still running "
                    f"{self.grace_s:g} s after the abort signal{remedy(stuck)}",
                    names,
                )
        self.core.forget_scopes()

    def _left(self) -> list[Task]:
        """Return the tasks that have not ended, here and below; of a broken authority those whose bodies still run."""
        if self.core.broken is not None:
            return list(self._bodies())
        return [task for each in self.kernel_scope.subtree() for task in each.tasks.values()]

    def _anything_running(self) -> bool:
        with self.core.lock:
            return bool(self._bodies())

    def _is_done(self) -> bool:
        scopes = self.kernel_scope.subtree()
        return self.core.broken is not None or not any(len(scope.tasks) > scope.triggers for scope in scopes)

    def _is_gone(self) -> bool:
        if self.core.broken is not None:
            return self.core.has_failed and not self._bodies()
        return self.kernel_scope.state == ScopeState.DISPOSED


class Submitter:
    """What users hold: a scope, or an authority, which submits to its default scope and ends as a whole."""

    _open: OpenScope  # where tasks go
    _whole: OpenScope  # what ends with the block

    if TYPE_CHECKING:

        @overload
        def submit(
            self,
            fn: Callable[..., Coroutine[Any, Any, T]],
            /,
            *args: Any,
            **options: Unpack[TaskOptions],
        ) -> Handle[T]: ...

        @overload
        def submit(self, fn: Callable[..., T], /, *args: Any, **options: Unpack[TaskOptions]) -> Handle[T]: ...

        def submit(self, fn: Callable[..., Any], /, *args: Any, **options: Unpack[TaskOptions]) -> Handle[Any]:
            """Submit a task; see :func:`whywait.runtime.submission.submit`."""

    else:
        submit = submission.submit  # of the compiled core: a method that calls it would take longer than all it does

    def submit_many(self, calls: Iterable[Call | Callable[..., Any]]) -> list[Handle[Any]]:
        """Submit a batch, all or nothing: all are taken in before any starts, so priority decides which go first.

        Tasks may name each other in ``after`` in any order. A call goes to its ``scope``, if it has one: to any scope
        of an authority, or to a scope inside this one.
        """
        core = self._open.core
        handles: list[Handle[Any]] = []
        requests = []
        for index, each in enumerate(calls):
            fn, args, options, where = each if isinstance(each, Call) else Call(each)
            options = options or {}
            try:
                scope = self._open if where is None else self._open_for(where)
                handle = new_handle(core, fn, args, copy_context() or EMPTY, scope.engine_for(fn, options))
                requests.append(request_for(core, scope, handle, {**options}))
            except (ConfigError, TypeError, UnknownScope) as error:
                kind = UnknownScope if isinstance(error, UnknownScope) else ConfigError
                shown = options.get("id") or f"number {index} of the batch"
                raise kind(f"task {shown}: {error}") from None
            handles.append(handle)
        core.command(core.kernel.submit_many, requests)
        return handles

    def _open_for(self, where: Any) -> OpenScope:
        """Return the scope to which a call of a batch goes."""
        core = self._open.core
        if isinstance(where, str):
            where = core.find_scope(where).scope
        found = open_of(where) if isinstance(where, Scope) else None
        if found is None or found.core is not core:
            raise ConfigError(f"scope {where!r} is not allowed: use a scope of this authority or its key")
        if isinstance(self, Scope) and self._open.kernel_scope not in found.kernel_scope.chain:
            inside = f"inside scope {self.key!r}"
            raise ConfigError(f"scope {where.key!r} is not {inside}: submit the batch to the authority")
        return found

    @overload
    def map(
        self,
        fn: Callable[..., Coroutine[Any, Any, T]],
        /,
        *iterables: Iterable[Any],
        chunksize: int = 1,
        **options: Unpack[TaskOptions],
    ) -> Iterator[T]: ...

    @overload
    def map(
        self, fn: Callable[..., T], /, *iterables: Iterable[Any], chunksize: int = 1, **options: Unpack[TaskOptions]
    ) -> Iterator[T]: ...

    def map(
        self, fn: Callable[..., Any], /, *iterables: Iterable[Any], chunksize: int = 1, **options: Unpack[TaskOptions]
    ) -> Iterator[Any]:
        """Call ``fn`` with the items of the iterables, in parallel; return an iterator over the results, in order.

        All items are taken, and all tasks submitted, at once; the shortest iterable ends them. ``chunksize`` calls
        make up one task and run one after another in it, also those of a coroutine function. A call that raises
        fails its chunk: none of the chunk's results is yielded, and a retry begins the chunk anew. When the iterator
        ends early, by an error or because it is dropped after the first result, tasks that have not started are
        cancelled. The keywords are those of :class:`TaskOptions` without ``id`` and hold for each task. Handles
        among the items are dependencies of their task and are replaced by their results, as in ``submit``.
        """
        return map_calls(self.submit, fn, iterables, chunksize, options)

    def periodic(
        self,
        fn: Callable[..., Any],
        /,
        *args: Any,
        every: Seconds,
        id: str | None = None,
        **options: Unpack[PeriodicOptions],
    ) -> Periodic:
        """Call ``fn(*args)`` at a fixed rate for the life of the scope; each time as an ordinary task.

        The keywords are those of :class:`PeriodicOptions`; the function's own go into ``kwargs``.
        """
        scope = self._open
        prototype = new_handle(scope.core, fn, args, copy_context(), scope.engine_for(fn, options))
        return add_periodic(scope.core, scope, prototype, every, id, options)

    def dispose(self, grace: Seconds | None = None) -> None:
        """End everything inside; raise DisposeIncomplete, naming them, if bodies still run after ``grace``."""
        self._whole.dispose(grace)

    async def dispose_async(self, grace: Seconds | None = None) -> None:
        """Do the same without blocking the event loop."""
        await self._whole.dispose_async(grace)

    def _close(self) -> None:
        """Close what ends after the last body."""

    def __enter__(self) -> Self:
        """Use as a block that ends everything it started."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Leave normally: wait for all tasks, then dispose. Leave by an exception: dispose."""
        whole = self._whole
        if not whole.is_given_up(error):  # else it is not waited for again
            try:
                if kind is None:
                    whole.leave()
            finally:  # the wait may be broken off, by Ctrl-C for one
                try:
                    whole.dispose(None, leaving=True)
                    self._close()
                except DisposeIncomplete as incomplete:
                    whole.raise_errors(error, incomplete)
        whole.raise_errors(error)

    async def __aenter__(self) -> Self:
        """Use as an async block."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Leave like a plain block, without blocking the event loop."""
        whole = self._whole
        if not whole.is_given_up(error):
            try:
                if kind is None:
                    await whole.leave_async()
            finally:  # the wait may be cancelled
                try:
                    await self.dispose_async()
                except DisposeIncomplete as incomplete:
                    whole.raise_errors(error, incomplete)
        whole.raise_errors(error)


class Scope(Submitter):
    """An execution namespace with a lifecycle; the gate that all its tasks pass.

    To run something: ``submit``, ``map``, ``submit_many``, ``periodic``, in it or in a ``scope`` inside.
    To hold what is pending: ``suspend`` and ``resume``. To end: leave the ``with`` block, or ``dispose``.
    """

    def __init__(self, inside: OpenScope) -> None:
        """Made by ``Authority.scope`` or ``Scope.scope`` only."""
        self._open = self._whole = inside
        inside.scope = self

    def _repr_html_(self) -> str:
        """Return a picture for a notebook: what runs, what waits, how full the slots are."""
        return self._open.html(f"scope {self.key}")

    @property
    def key(self) -> str:
        """The name of the scope, unique among living ones."""
        return self._open.kernel_scope.key

    @property
    def state(self) -> str:
        """Where the scope stands: INIT, ATTACHED, RUNNING, SUSPENDED, DISPOSING or DISPOSED."""
        return self._open.kernel_scope.state

    def scope(self, key: str, **options: Unpack[ScopeOptions]) -> Scope:
        """Open a scope inside this one; disposing this one disposes it first."""
        return self._open.open(key, options)

    def mount(self) -> None:
        """Let a scope that was opened with ``mount=False`` accept tasks."""
        core = self._open.core
        core.command(core.kernel.mount, self._open.kernel_scope)

    def lazy(self, make: Callable[[], T], close: Callable[[T], object] | None = None) -> Lazy[T]:
        """Return a resource that this scope owns, handed to ``submit`` as an argument or inside one, like a handle.

        ``make()`` is called once, by the first running task that is handed it, in that task's slot and budget; all
        tasks get the same value. If it fails, so does that task, and the next one tries again. ``close(value)`` is
        called when the scope is disposed, after the last body. For tasks of this scope and of scopes inside it.

        Worker processes share nothing: with ``engine="process"`` each of them makes a value of its own, and closes it
        when the process ends. Those that hold it end with the scope.
        """
        return Lazy(self._open.kernel_scope, make, close, self._open.core.lazy_made)

    def suspend(self) -> None:
        """Keep everything pending here and below from starting; what runs goes on."""
        core = self._open.core
        core.command(core.kernel.suspend, self._open.kernel_scope)

    def resume(self) -> None:
        """Lift a suspension."""
        core = self._open.core
        core.command(core.kernel.resume_scope, self._open.kernel_scope)

    def snapshot(self) -> Snapshot:
        """Return an immutable picture of this scope and what is below it."""
        return self._open.core.snapshot(self._open.kernel_scope)

    def wait(self) -> None:
        """Wait until nothing is left to run here or below but iterations of periodics."""
        self._open.wait()

    async def wait_async(self) -> None:
        """Do the same without blocking the event loop."""
        await self._open.wait_async()

    def __repr__(self) -> str:
        """Show key and state."""
        return f"<Scope {self.key!r} {self.state}>"


open_of: Final[Callable[[Scope], OpenScope]] = attrgetter("_open")  # for what stands around the runtime
