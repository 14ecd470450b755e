"""Scope: an execution namespace; leaving or disposing it ends everything inside."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping
from contextvars import copy_context
from dataclasses import replace
from inspect import CO_COROUTINE
from threading import Lock
from time import monotonic_ns
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, Unpack

from whywait.errors import ConfigError, DisposeIncomplete, ForeignRef, QueueFull, UnknownTask
from whywait.handle import Handle
from whywait.kernel.model import Demand, Limits, Policy, Priority, Retry, Submission, Task, make_demand
from whywait.kernel.model import Scope as KernelScope
from whywait.kernel.state import OPEN_SCOPE_STATES, ScopeState
from whywait.options import Call, PeriodicOptions, ScopeOptions, TaskOptions, refuse_unknown
from whywait.periodic import Periodic, Triggers
from whywait.settings import UNSET, Seconds, Size, Unset, as_retry, duration_ns, optional_ns, seconds
from whywait.units import parse_size
from whywait.waiters import finish, refuse_on_loop

if TYPE_CHECKING:
    from whywait.authority import Authority
    from whywait.engines.base import Engine
    from whywait.kernel.snapshot import Snapshot

T = TypeVar("T")
log = logging.getLogger("whywait")

KILL_S: Final = 5.0  # how long killed bodies may take to be gone


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
        self._on_error = on_error
        self._for_coroutines: Engine | None = None
        self._errors: list[BaseException] = []
        self.grace_s = grace_s

    @property
    def key(self) -> str:
        """The name of the scope, unique among living ones."""
        return self._kernel_scope.key

    @property
    def state(self) -> str:
        """Where the scope stands: INIT, ATTACHED, RUNNING, SUSPENDED, DISPOSING or DISPOSED."""
        return self._kernel_scope.state

    # Tasks

    def submit(
        self,
        fn: Callable[..., T],
        /,
        *args: Any,  # noqa: ANN401 - the function's own
        id: str | None = None,
        kwargs: Mapping[str, Any] | None = None,
        after: Iterable[Any] = (),
        after_ended: Iterable[Any] = (),
        priority: int | str = Priority.NORMAL,
        cpu: int = 0,
        ram: Size = 0,
        vram: Size = 0,
        resources: Mapping[str, Size] | None = None,
        timeout: Seconds | Unset | None = UNSET,
        retry: int | Retry | Unset = UNSET,
        max_wait: Seconds | Unset | None = UNSET,
        engine: str | Engine | None = None,
    ) -> Handle[T]:
        """Submit a task; a refusal raises and leaves nothing behind.

        Handles among ``args`` and ``kwargs`` are dependencies and are replaced by their results.
        """
        authority = self._authority
        code = getattr(fn, "__code__", None)
        if engine is None and code is not None:
            carried_by = self._coroutine_engine() if code.co_flags & CO_COROUTINE else self._engine
        else:
            carried_by = authority.engines.choose(engine, self._engine, fn)
        handle = Handle(authority, fn, args, copy_context(), carried_by)
        if args or kwargs:
            after = self._take_arguments(handle, args, kwargs, after)
        if priority.__class__ is not int or not 0 <= priority <= 100:  # noqa: PLR2004 - the common case, told apart for speed
            priority = Priority.parse(priority)
        demand: Demand = _demand(cpu, ram, vram, resources) if cpu or ram or vram or resources else ()
        policy = None
        if timeout is not UNSET or retry is not UNSET or max_wait is not UNSET:
            policy = _policy(self._kernel_scope.policy, timeout, retry, max_wait)
        before = self._tasks(after) if after else ()
        before_ended = self._tasks(after_ended) if after_ended else ()
        lock = authority.lock
        if lock._is_owned():  # type: ignore[attr-defined]
            authority.refuse_inside()
        try:
            with lock:
                now = monotonic_ns()
                handle._task = authority.kernel.submit(
                    now, self._kernel_scope, id, priority, demand, before, before_ended, policy, handle
                )
                work = authority.after_submit(now)
        except QueueFull as error:
            log.warning("dropped: %s", error)
            raise
        if work is not None:
            authority.carry_out(work)
        return handle

    def submit_many(self, calls: Iterable[Call | Callable[..., Any]]) -> list[Handle[Any]]:
        """Submit a batch, all or nothing: all are taken in before any starts, so priority decides who goes first.

        Tasks may name each other in ``after`` in any order.
        """
        authority = self._authority
        batch = [each if isinstance(each, Call) else Call(each) for each in calls]
        handles: list[Handle[Any]] = []
        requests = []
        for index, call in enumerate(batch):
            try:
                handle, request = self._prepare(call)
            except ConfigError as error:
                name = (call.options or {}).get("id") or f"number {index} of the batch"
                raise ConfigError(f"task {name}: {error}") from None
            handles.append(handle)
            requests.append(request)

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
        overlap: str = "skip",
        max_parallel: int = 1,
        jitter: float = 0.0,
        enabled: bool = True,
        immediately: bool = False,
        priority: int | str = Priority.NORMAL,
        disable_after: int | None = None,
        id: str | None = None,
        **options: Unpack[PeriodicOptions],
    ) -> Periodic:
        """Call ``fn(*args)`` at a fixed rate for the life of this scope; each time as an ordinary task.

        ``overlap`` says what happens to a tick while the last iteration is still there: ``"skip"`` it, ``"queue"``
        one, or run up to ``max_parallel`` in ``"parallel"``. ``jitter`` (0 to 0.3 of the interval) shifts single
        ticks, never the grid. After ``disable_after`` failures in a row it switches itself off.
        """
        refuse_unknown("periodic", options, PeriodicOptions)
        get: Any = options.get
        authority, kernel_scope = self._authority, self._kernel_scope
        engine = authority.engines.choose(get("engine"), self._engine, fn)
        triggers = Triggers(authority, fn, args, get("kwargs"), engine)
        settings: dict[str, Any] = {
            "overlap": overlap,
            "max_parallel": max_parallel,
            "jitter": jitter,
            "enabled": enabled,
            "immediately": immediately,
            "priority": Priority.parse(priority),
            "demand": _demand(get("cpu", 0), get("ram", 0), get("vram", 0), get("resources")),
            "policy": _policy(kernel_scope.policy, get("timeout", UNSET), get("retry", UNSET), get("max_wait", UNSET)),
            "disable_after": disable_after,
            "make_job": triggers.make,
        }
        interval_ns = duration_ns("every", every)
        kernel = authority.kernel
        periodic = authority.command(lambda now: kernel.add_periodic(now, kernel_scope, interval_ns, id, **settings))
        return Periodic(authority, periodic)

    def _prepare(self, call: Call) -> tuple[Handle[Any], Submission]:
        options: dict[str, Any] = dict(call.options or {})
        refuse_unknown("task", options, TaskOptions)
        get = options.get
        engine = self._authority.engines.choose(get("engine"), self._engine, call.fn)
        handle: Handle[Any] = Handle(self._authority, call.fn, call.args, copy_context(), engine)
        after: Any = get("after", ())
        if call.args or get("kwargs"):
            after = self._take_arguments(handle, call.args, get("kwargs"), after)
        sizes: Any = (get("cpu", 0), get("ram", 0), get("vram", 0), get("resources"))
        policy = None
        if options.keys() & {"timeout", "retry", "max_wait"}:
            given: Any = (get("timeout", UNSET), get("retry", UNSET), get("max_wait", UNSET))
            policy = _policy(self._kernel_scope.policy, *given)
        return handle, Submission(
            self._kernel_scope,
            get("id"),
            Priority.parse(get("priority", Priority.NORMAL)),
            _demand(*sizes),
            self._tasks(after),
            self._tasks(get("after_ended", ())),
            policy,
            handle,
        )

    def _coroutine_engine(self) -> Engine:
        """Return who carries coroutine functions out that name no engine; looked up once."""
        if self._for_coroutines is None:
            default = self._engine
            self._for_coroutines = default if default.runs_coroutines else self._authority.engines.get("asyncio")
        return self._for_coroutines

    def _take_arguments(
        self, handle: Handle[Any], args: tuple[Any, ...], kwargs: Mapping[str, Any] | None, after: Iterable[Any]
    ) -> Iterable[Any]:
        """Note keyword arguments; handles among all arguments become dependencies."""
        given = [*args, *kwargs.values()] if kwargs else args
        awaited = [value for value in given if isinstance(value, Handle)]
        if kwargs or awaited:
            handle._kwargs = dict(kwargs or {})
        return [*after, *awaited] if awaited else after

    def _tasks(self, dependencies: Iterable[Any]) -> tuple[Task | str, ...]:
        """Turn handles, refs and ids into what the kernel takes."""
        return tuple(self._task(dependency) for dependency in dependencies)

    def _task(self, dependency: Any) -> Task | str:  # noqa: ANN401 - checked here
        if isinstance(dependency, Handle):
            if dependency._authority is not self._authority:
                raise ForeignRef(f"{dependency!r} belongs to another authority: it cannot be awaited here")
            return dependency._task
        if isinstance(dependency, str):
            return dependency
        try:
            return self._authority.get(dependency)._task
        except AttributeError:
            raise UnknownTask(f"a dependency is a handle, a ref or an id, not {dependency!r}") from None

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
        if kind is None:
            self.leave()
        self.dispose()
        self._raise_errors(error)

    async def __aenter__(self) -> Self:
        """Use as an async block."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Leave like a plain block, without blocking the event loop."""
        if kind is None:
            await self.leave_async()
        await self.dispose_async()
        self._raise_errors(error)

    def task_failed(self, error: BaseException) -> bool:
        """Take note that a task of this scope has failed for good; return whether leaving the block raises it."""
        if self._on_error != "abort":
            return False
        self._errors.append(error)
        if len(self._errors) == 1:
            kernel = self._authority.kernel
            self._authority.command(lambda now: kernel.dispose(now, self._kernel_scope))
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
                f"scope {self.key!r} stays DISPOSING: {', '.join(names[:10])} still running "
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

        if any(scope.periodics for scope in self._kernel_scope.subtree()):
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
            log.info("leaving scope %r waits for paused tasks: %s", self.key, ", ".join(paused[:10]))

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
    refuse_unknown("scope", options, ScopeOptions)
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
    policy = _policy(
        above.policy, options.get("timeout", UNSET), options.get("retry", UNSET), options.get("max_wait", UNSET)
    )
    default = parent._engine if parent is not None else authority.engines.default
    scope = Scope(
        authority,
        authority.command(lambda now: kernel.open_scope(now, key, above, limits, policy)),
        engine=authority.engines.get(options["engine"]) if options.get("engine") is not None else default,
        grace_s=seconds("grace", options.get("grace", authority.settings.grace_s)),
        on_error=on_error,
    )
    authority.scopes[key] = scope
    return scope


def _policy(
    base: Policy, timeout: Seconds | Unset | None, retry: int | Retry | Unset, max_wait: Seconds | Unset | None
) -> Policy:
    """Return a policy with what was given; the rest comes from ``base``."""
    if not isinstance(timeout, Unset):
        base = replace(base, timeout_ns=optional_ns("timeout", timeout))
    if not isinstance(retry, Unset):
        base = replace(base, retry=as_retry(retry))
    if not isinstance(max_wait, Unset):
        base = replace(base, max_wait_ns=optional_ns("max_wait", max_wait))
    return base


def _demand(cpu: int, ram: Size, vram: Size, resources: Mapping[str, Size] | None) -> Demand:
    named = {name: parse_size(amount) for name, amount in resources.items()} if resources else None
    return make_demand(cpu, parse_size(ram), parse_size(vram), named)
