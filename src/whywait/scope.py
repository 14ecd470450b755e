"""Scope: an execution namespace; leaving or disposing it ends everything inside."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextvars import Context, copy_context
from threading import Lock
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypedDict, TypeVar, Unpack, overload

from whywait.errors import ConfigError, DisposeIncomplete, QueueFull
from whywait.handle import Handle
from whywait.kernel.model import Limits, Retry
from whywait.kernel.model import Scope as KernelScope
from whywait.kernel.state import OPEN_SCOPE_STATES, ScopeState
from whywait.lazy import asyncio
from whywait.periodic import Periodic, PeriodicOptions, add_periodic
from whywait.settings import UNSET, Seconds, seconds
from whywait.submission import Call, TaskOptions, awaited_tasks, changed, prepare
from whywait.waiters import finish, refuse_on_loop

if TYPE_CHECKING:
    from whywait.authority import Authority
    from whywait.engines.base import Engine
    from whywait.kernel.snapshot import Snapshot

T = TypeVar("T")
log = logging.getLogger("whywait")

CO_COROUTINE: Final = 0x80  # of the flags of a function's code, as `inspect` has it, which takes long to load
EMPTY: Final = Context()  # for all who submit with no variable set: an object less for the collector with each task
KILL_S: Final = 5.0  # how long killed bodies may take to be gone


class ScopeOptions(TypedDict, total=False):
    """What a scope may set for itself; what is left out is inherited, None means explicitly none.

    There is always an engine and a grace: None leaves them as they are around the scope.
    """

    slots: int | None
    max_spawn: int | None
    on_error: str
    queue_limit: int | None
    overflow: str
    when_busy: str
    max_wait: Seconds | None
    retry: int | Retry
    timeout: Seconds | None
    engine: Any
    grace: Seconds | None


class Scope:
    """An execution namespace with a lifecycle; the gate that all its tasks pass."""

    def __init__(
        self,
        authority: Authority,
        kernel_scope: KernelScope,
        *,
        engine: Engine,
        grace_s: float,
        on_error: str = "continue",
    ) -> None:
        """Made by ``Authority.scope`` or ``Scope.scope`` only."""
        self._authority = authority
        self._kernel_scope = kernel_scope
        self._engine = engine
        self.aborts_on_error = on_error == "abort"  # the first error ends the rest
        self._coroutine_engine: Engine | None = None
        self._errors: list[BaseException] = []
        self.grace_s = grace_s

    @property
    def key(self) -> str:
        """The name of the scope, unique among living ones."""
        return self._kernel_scope.key

    @property
    def _called(self) -> str:
        """What messages call it."""
        return f"scope {self.key!r}" if self.key else "the authority"

    @property
    def state(self) -> str:
        """Where the scope stands: INIT, ATTACHED, RUNNING, SUSPENDED, DISPOSING or DISPOSED."""
        return self._kernel_scope.state

    # Tasks

    @overload
    def submit(
        self,
        fn: Callable[..., Coroutine[Any, Any, T]],
        /,
        *args: Any,  # noqa: ANN401 - the function's own
        **options: Unpack[TaskOptions],
    ) -> Handle[T]: ...

    @overload
    def submit(self, fn: Callable[..., T], /, *args: Any, **options: Unpack[TaskOptions]) -> Handle[T]: ...  # noqa: ANN401 - as above

    def submit(self, fn: Callable[..., Any], /, *args: Any, **options: Unpack[TaskOptions]) -> Handle[Any]:
        """Submit a task; a refusal raises and leaves nothing behind.

        The keywords are those of :class:`~whywait.submission.TaskOptions`; the function's own go into ``kwargs``.
        Handles among ``args`` and ``kwargs`` are dependencies and are replaced by their results.
        """
        authority, kernel_scope = self._authority, self._kernel_scope
        handle: Handle[Any] = Handle(authority, fn, args, copy_context() or EMPTY, self._engine_for(fn, options))
        if options:
            authority.admit(handle, kernel_scope, prepare(authority, kernel_scope, handle, args, options))
        else:
            authority.admit(handle, kernel_scope, None, awaited_tasks(authority, handle, args) if args else None)
        return handle

    def submit_many(self, calls: Iterable[Call | Callable[..., Any]]) -> list[Handle[Any]]:
        """Submit a batch, all or nothing: all are taken in before any starts, so priority decides who goes first.

        Tasks may name each other in ``after`` in any order.
        """
        authority = self._authority
        handles: list[Handle[Any]] = []
        requests = []
        for index, each in enumerate(calls):
            fn, args, options = each if isinstance(each, Call) else Call(each)
            options = options or {}
            try:
                handle: Handle[Any] = Handle(
                    authority, fn, args, copy_context() or EMPTY, self._engine_for(fn, options)
                )
                requests.append(prepare(authority, self._kernel_scope, handle, args, options))
            except (ConfigError, TypeError) as error:
                name = options.get("id") or f"number {index} of the batch"
                raise ConfigError(f"task {name}: {error}") from None
            handles.append(handle)

        def act(now: int) -> None:
            for handle, task in zip(handles, authority.kernel.submit_many(now, requests), strict=True):
                handle._task = task

        try:
            authority.command(act)
        except QueueFull as error:
            log.warning("dropped with its batch: %s", error)
            raise
        return handles

    def periodic(
        self,
        fn: Callable[..., Any],
        /,
        *args: Any,  # noqa: ANN401 - the function's own
        every: Seconds,
        id: str | None = None,
        **options: Unpack[PeriodicOptions],
    ) -> Periodic:
        """Call ``fn(*args)`` at a fixed rate for the life of this scope; each time as an ordinary task.

        The keywords are those of :class:`~whywait.periodic.PeriodicOptions`; the function's own go into ``kwargs``.
        """
        prototype: Handle[Any] = Handle(self._authority, fn, args, copy_context(), self._engine_for(fn, options))
        return add_periodic(self._kernel_scope, prototype, args, every, id, options)

    def _engine_for(self, fn: Callable[..., Any], options: Mapping[str, Any]) -> Engine:
        """Return who carries a function out whose options name no engine."""
        code = getattr(fn, "__code__", None)
        if code is None:
            return self._authority.engines.choose(self._engine, fn, named=options.get("engine") is not None)
        return self._for_coroutines() if code.co_flags & CO_COROUTINE else self._engine

    def _for_coroutines(self) -> Engine:
        """Return who carries coroutine functions out; looked up once."""
        if self._coroutine_engine is None:
            default = self._engine
            self._coroutine_engine = default if default.runs_coroutines else self._authority.engines.get("asyncio")
        return self._coroutine_engine

    # Life

    def scope(self, key: str, **options: Unpack[ScopeOptions]) -> Scope:
        """Open a scope inside this one; disposing this one disposes it first."""
        return open_scope(self._authority, self, key, options)

    def suspend(self) -> None:
        """Keep everything pending here and below from starting; what runs goes on."""
        kernel = self._authority.kernel
        self._authority.command(lambda now: kernel.suspend(now, self._kernel_scope))

    def resume(self) -> None:
        """Lift a suspension."""
        kernel = self._authority.kernel
        self._authority.command(lambda now: kernel.resume_scope(now, self._kernel_scope))

    def snapshot(self) -> Snapshot:
        """Return an immutable picture of this scope and what is below it."""
        return self._authority.picture(self._kernel_scope)

    def wait(self) -> None:
        """Wait until nothing is left to run here or below but iterations of periodics."""
        self._say_if_paused()
        if not self._block_until(self._is_done, None, "leaving a block", "async with"):
            raise AssertionError("an endless wait has no timeout")

    async def wait_async(self) -> None:
        """Do the same without blocking the event loop."""
        self._say_if_paused()
        await self._until(self._is_done, None)

    def leave(self) -> None:
        """Wait for all tasks, then stop the periodics and wait for iterations in flight."""
        self.wait()
        self._stop_periodics()
        self._block_until(self._is_empty, None, "leaving a block", "async with")

    async def leave_async(self) -> None:
        """Do the same without blocking the event loop."""
        await self.wait_async()
        self._stop_periodics()
        await self._until(self._is_empty, None)

    def dispose(self, grace: Seconds | None = None) -> None:
        """End everything inside; raise DisposeIncomplete, naming them, if bodies still run after ``grace``."""
        if self._anything_running():
            refuse_on_loop("dispose()", "await scope.dispose_async()")
        self._begin_disposal(grace)
        wait_s = self.grace_s + (KILL_S if self._anything_killable() else 0.0)
        if not self._block_until(self._is_gone, wait_s, "dispose()", "await scope.dispose_async()"):
            self._complain()
        self._authority.forget_scopes()

    async def dispose_async(self, grace: Seconds | None = None) -> None:
        """Do the same without blocking the event loop."""
        self._begin_disposal(grace)
        wait_s = self.grace_s + (KILL_S if self._anything_killable() else 0.0)
        if not await self._until(self._is_gone, wait_s):
            self._complain()
        self._authority.forget_scopes()

    def __enter__(self) -> Self:
        """Use as a block."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Leave normally: wait for all tasks, then dispose. Leave by an exception: dispose."""
        try:
            if kind is None:
                self.leave()
        finally:  # the wait may be broken off, by Ctrl-C for one
            self.dispose()
        self._raise_errors(error)

    async def __aenter__(self) -> Self:
        """Use as an async block."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Leave like a plain block, without blocking the event loop."""
        try:
            if kind is None:
                await self.leave_async()
        finally:  # the wait may be cancelled
            await self.dispose_async()
        self._raise_errors(error)

    def task_failed(self, error: BaseException) -> bool:
        """Take note that a task of this scope has failed for good; return whether leaving the block raises it."""
        if not self.aborts_on_error:
            return False
        self._errors.append(error)
        return True

    def _raise_errors(self, error: BaseException | None) -> None:
        if self._errors:
            cause = None if error in self._errors else error
            raise BaseExceptionGroup(f"tasks of scope {self.key!r} failed", self._errors) from cause

    def _begin_disposal(self, grace: Seconds | None) -> None:
        if grace is not None:
            self.grace_s = seconds("grace", grace)
            with self._authority.lock:
                below = [self._authority.scopes.get(each.key) for each in self._kernel_scope.subtree()]
            for scope in below:
                if scope is not None:
                    scope.grace_s = self.grace_s
        kernel = self._authority.kernel
        self._authority.command(lambda now: kernel.dispose(now, self._kernel_scope))

    def _complain(self) -> None:
        with self._authority.lock:
            survivors = [task for each in self._kernel_scope.subtree() for task in each.tasks.values()]
        names = [task.id for task in survivors]
        if names:
            raise DisposeIncomplete(
                f"{self._called} stays DISPOSING: {', '.join(names[:10])} still running "
                f"{self.grace_s:g} s after the abort signal",
                names,
            )

    def _anything_running(self) -> bool:
        with self._authority.lock:
            return any(scope.running for scope in self._kernel_scope.subtree())

    def _anything_killable(self) -> bool:
        with self._authority.lock:
            running = self._authority.kernel.running.values()
            return self._authority.settings.inject or any(task.job._engine.can_kill for task in running if task.job)

    def _stop_periodics(self) -> None:
        kernel = self._authority.kernel

        def act(now: int) -> None:
            for scope in self._kernel_scope.subtree():
                if scope.state in (*OPEN_SCOPE_STATES, ScopeState.SUSPENDED):
                    for periodic in scope.periodics.values():
                        kernel.set_periodic_enabled(now, periodic, enabled=False)

        self._authority.command(act)

    def _is_done(self) -> bool:
        return not any(len(scope.tasks) > scope.triggers for scope in self._kernel_scope.subtree())

    def _is_empty(self) -> bool:
        return not any(scope.tasks for scope in self._kernel_scope.subtree())

    def _is_gone(self) -> bool:
        return self._kernel_scope.state == ScopeState.DISPOSED

    def _say_if_paused(self) -> None:
        with self._authority.lock:
            tasks = (task for each in self._kernel_scope.subtree() for task in each.tasks.values())
            paused = [task.id for task in tasks if task.state == "PAUSED"]
        if paused:
            log.info("leaving %s waits for paused tasks: %s", self._called, ", ".join(paused[:10]))

    def _block_until(self, condition: Callable[[], bool], timeout_s: float | None, what: str, instead: str) -> bool:
        with self._authority.lock:
            if condition():
                return True
        refuse_on_loop(what, instead)
        bell = Lock()
        bell.acquire()
        tell = bell.release
        self._authority.watch(condition, tell)
        try:
            return bell.acquire(timeout=-1 if timeout_s is None else timeout_s)
        finally:
            self._authority.unwatch(tell)

    async def _until(self, condition: Callable[[], bool], timeout_s: float | None) -> bool:
        loop = asyncio.get_running_loop()
        waiter = loop.create_future()

        def tell() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is gone: nobody waits any more
                loop.call_soon_threadsafe(finish, waiter)

        self._authority.watch(condition, tell)
        try:
            done, _ = await asyncio.wait([waiter], timeout=timeout_s)
        finally:
            self._authority.unwatch(tell)
        return bool(done)

    def __repr__(self) -> str:
        """Show key and state."""
        return f"<Scope {self.key!r} {self.state}>"


def open_scope(authority: Authority, parent: Scope | None, key: str, options: ScopeOptions) -> Scope:
    """Open a scope below ``parent``, or below the authority itself."""
    unknown = options.keys() - ScopeOptions.__annotations__.keys()
    if unknown:
        raise ConfigError(f"unknown scope options {sorted(unknown)}: use {', '.join(ScopeOptions.__annotations__)}")
    kernel = authority.kernel
    above = parent._kernel_scope if parent is not None else kernel.root
    on_error = options.get("on_error", "continue")
    if on_error not in ("continue", "abort"):
        raise ConfigError(f"on_error {on_error!r} is not allowed: use one of continue, abort")
    limits = Limits(
        slots=options.get("slots"),
        queue_limit=options.get("queue_limit"),
        overflow=options.get("overflow", above.limits.overflow),
        when_busy=options.get("when_busy", above.limits.when_busy),
        max_spawn=options.get("max_spawn"),
    )
    policy = changed(
        above.policy, options.get("timeout", UNSET), options.get("retry", UNSET), options.get("max_wait", UNSET)
    )
    around = parent if parent is not None else authority._root
    engine, grace = options.get("engine"), options.get("grace")
    settings: dict[str, Any] = {  # settled before the kernel knows of the scope: a refusal leaves nothing behind
        "engine": authority.engines.get(engine) if engine is not None else around._engine,
        "grace_s": seconds("grace", grace) if grace is not None else around.grace_s,
        "on_error": on_error,
    }

    def act(now: int) -> Scope:
        scope = Scope(authority, kernel.open_scope(now, key, above, limits, policy), **settings)
        authority.scopes[key] = scope  # under the lock: others look through them
        return scope

    return authority.command(act)
