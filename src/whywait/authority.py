"""Authority: what users make and hold; the core, the engines and the scopes put together."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from time import monotonic_ns
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack

from whywait.core import Core
from whywait.devtools import open_devtools
from whywait.engines.base import Engine
from whywait.engines.registry import Engines
from whywait.errors import ForeignRef, InvalidTransition, StaleRef, UnknownScope, UnknownTask
from whywait.handle import Handle
from whywait.journal import Events
from whywait.kernel.events import Event, RawEvent
from whywait.kernel.lanes import Order
from whywait.kernel.model import Ref, Retry, Task
from whywait.kernel.model import Scope as KernelScope
from whywait.kernel.state import ScopeState, TaskState
from whywait.lazy import asyncio
from whywait.scope import Scope, ScopeOptions, open_scope
from whywait.settings import UNSET, Given, Seconds, Settings, Size, Unset

if TYPE_CHECKING:
    from pathlib import Path

    from whywait.devtools.server import DevTools
    from whywait.explain import Why
    from whywait.kernel.snapshot import Snapshot
    from whywait.run_report import Report

_tokens = itertools.count(1)

DEFAULT_SCOPE = "default"


class Authority(Core):
    """Governs tasks: decides what runs when, under one budget, and can always say why something waits.

    Every argument that is left out comes from the environment (``WHYWAIT_*``) or has a default.
    """

    def __init__(
        self,
        *,
        slots: int | Unset | None = UNSET,
        cpu: int | Unset | None = UNSET,
        ram: Size | Unset | None = UNSET,
        vram: Size | Unset | None = UNSET,
        resources: Mapping[str, Size] | None = None,
        soft: Mapping[str, Size] | None = None,
        order: Order | str | Unset = UNSET,
        backfill: str = "greedy",
        queue_limit: int | Unset | None = UNSET,
        overflow: str = "reject",
        when_busy: str = "queue",
        max_wait: Seconds | Unset | None = UNSET,
        retry: int | Retry = 0,
        timeout: Seconds | None = None,
        pause_timeout: Seconds | Unset = UNSET,
        starvation_timeout: Seconds | Unset = UNSET,
        grace: Seconds = 2.0,
        engine: str | Engine | None = None,
        inject: bool = False,
        events: int = 10_000,
        record: str | Path | None = None,
    ) -> None:
        """Settle the settings; no thread starts before it is needed. ``record``: a file for all commands, to replay."""
        given = Given(
            slots=slots,
            cpu=cpu,
            ram=ram,
            vram=vram,
            resources=resources or {},
            soft=soft or {},
            order=order,
            backfill=backfill,
            queue_limit=queue_limit,
            overflow=overflow,
            when_busy=when_busy,
            max_wait=max_wait,
            retry=retry,
            timeout=timeout,
            pause_timeout=pause_timeout,
            starvation_timeout=starvation_timeout,
            grace=grace,
            engine=engine,
            inject=inject,
            events=events,
        )
        self._begin(given.settle(), record)

    @classmethod
    def from_env(cls) -> Self:
        """Make an authority from the environment variables ``WHYWAIT_*`` alone."""
        return cls()

    def _begin(self, settings: Settings, record: str | Path | None = None) -> None:
        super().__init__(settings, record)
        self.token = next(_tokens)  # tells its refs from other authorities'
        self.engines = Engines(self, settings.engine)
        self._root = Scope(self, self.kernel.root, engine=self.engines.default, grace_s=settings.grace_s)
        self._default = open_scope(self, None, DEFAULT_SCOPE, {})
        self._on_close: list[Callable[[], None]] = []  # what ends with the authority
        self.submit = self._default.submit
        self.submit_many = self._default.submit_many

    # Scopes and tasks

    def scope(self, key: str, **options: Unpack[ScopeOptions]) -> Scope:
        """Open a scope: a namespace with limits of its own that ends everything it started."""
        return open_scope(self, None, key, options)

    def get_scope(self, key: str) -> Scope:
        """Return the living scope of a key."""
        self.forget_scopes()
        with self.lock:
            scope, keys = self.scopes.get(key), list(self.scopes)
        if scope is None:
            known = ", ".join(map(repr, keys))
            raise UnknownScope(f"no living scope has the key {key!r}; there are {known}")
        return scope

    def get(self, ref: Ref | str) -> Handle[Any]:
        """Return the handle of a living task by its ref or id."""
        handle = self._find(ref).job
        assert isinstance(handle, Handle), "a living task has its handle"
        return handle

    def why(self, ref: Ref | str) -> Why:
        """Return why a task waits, or what it does, by its ref or id."""
        return self.get(ref).why()

    def snapshot(self) -> Snapshot:
        """Return an immutable picture of everything there is now."""
        return self.picture(self.kernel.root)

    def picture(self, scope: KernelScope) -> Snapshot:
        """Return a picture of one scope and what is below it."""
        with self.lock:
            return self.kernel.snapshot(monotonic_ns(), scope)

    def stats(self) -> dict[str, Any]:
        """Return counters: active, queued, submitted, completed, by outcome, drops, promotions, wait quantiles."""
        with self.lock:
            kernel = self.kernel
            alive = sum(len(scope.tasks) for scope in kernel.scopes.values())
            return {
                "active": len(kernel.running),
                "queued": alive - len(kernel.running),
                **kernel.stats.to_dict(),
                "starvation_promotions": kernel.dispatcher.promotions,
            }

    def events(self, since: int = 0, limit: int | None = None) -> Events:
        """Return remembered events after ``since``, oldest first; their ``skipped`` says how many are lost."""
        with self.lock:
            raw, skipped = self._journal.since(since, self.last_seq, limit)
        return Events(raw, skipped)

    def raw_events(self, since: int, limit: int) -> list[RawEvent]:
        """Return up to ``limit`` remembered events after ``since`` as the kernel told them: for bridges only."""
        with self.lock:
            return self._journal.since(since, self.last_seq, limit)[0]

    def report(self) -> Report:
        """Return where the waiting of the run went, by cause and by holder, and how full slots and budget were."""
        from whywait.run_report import kernel_account, make_report

        with self.lock:
            raw, skipped = self._journal.since(0, self.last_seq)
            totals = kernel_account(self.kernel, monotonic_ns(), self._began_ns, raw[-1][1] if raw else None)
        return make_report(totals, Events(raw), skipped)

    @property
    def last_seq(self) -> int:
        """The seq of the latest event; it can be asked for without a lock."""
        return self.kernel.seq

    def devtools(
        self,
        port: int = 0,
        *,
        control: bool = True,
        host: str = "127.0.0.1",
        expose: bool = False,
        hosts: Iterable[str] = (),
        name: str = "",
        announce: bool = True,
        file: str | None = None,
    ) -> DevTools:
        """Serve a page that shows this run as it happens, until the authority is disposed of; print its address.

        ``control=False`` leaves out everything that changes the run. ``expose=True`` is needed for a ``host`` that
        other machines can reach; ``hosts`` are further names under which it is called then. ``file`` is what
        ``whywait top`` may call the run by; the started program if left out.
        """
        if self._root.state == ScopeState.DISPOSED:
            raise InvalidTransition("the authority is DISPOSED: there is nothing left to show; open DevTools before")
        tools = open_devtools(self, port, control=control, host=host, expose=expose, hosts=hosts, name=name)
        self._on_close.append(lambda: tools.close(run_is_over=True))
        if announce:
            tools.announce(file)
        return tools

    def subscribe(self, fn: Callable[[Event], object]) -> Callable[[], None]:
        """Call ``fn`` with every event from now on, in order; return a function that ends it."""
        with self.lock:
            return self._journal.subscribe(fn)

    def tap(self, fn: Callable[[RawEvent], object]) -> Callable[[], None]:
        """Call ``fn`` with every raw event at once, in the thread that caused it, under the lock: for bridges only."""
        with self.lock:
            return self._journal.tap(fn)

    # Acting on tasks, through their handles

    def cancel(self, handle: Handle[Any]) -> None:
        """End a pending task at once, ask a running one to abort; idempotent."""
        self.command(lambda now: self.kernel.cancel(now, handle._task))

    def pause(self, handle: Handle[Any], tell: Callable[[], object]) -> bool:
        """Pause a task; if it runs, return True and call ``tell`` when it has parked or will not."""

        def act(now: int) -> bool:
            task = handle._task
            self.kernel.pause(now, task)
            if task.state != TaskState.RUNNING:
                return False
            self._pause_waiters.setdefault(task.number, []).append(tell)
            return True

        return self.command(act)

    def resume(self, handle: Handle[Any]) -> None:
        """Bring a paused task back to where it was."""
        self.command(lambda now: self.kernel.resume(now, handle._task))

    def why_handle(self, handle: Handle[Any]) -> Why:
        """Return why a task waits, or what it does, or how its whole wait divided, over all attempts."""
        from whywait.explain import in_words

        with self.lock:
            why = self.kernel.why(monotonic_ns(), handle._task, handle._attempts or ())
        if why.running_ns is not None:
            why = replace(why, placement=handle._engine.placement(handle))
        return in_words(why)

    # The end

    def dispose(self, grace: Seconds | None = None) -> None:
        """End everything at once: abort what runs, drop what waits, wait for the bodies, release the engines."""
        self._root.dispose(grace)
        self._close()

    async def dispose_async(self, grace: Seconds | None = None) -> None:
        """Do the same without blocking the event loop."""
        await self._root.dispose_async(grace)
        await asyncio.to_thread(self._close)

    def __enter__(self) -> Self:
        """Use as a block that ends everything it started."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Leave normally: wait for all tasks, then dispose. Leave by an exception: dispose."""
        try:
            if kind is None:
                self._root.leave()
        finally:  # the wait may be broken off, by Ctrl-C for one
            self.dispose()

    async def __aenter__(self) -> Self:
        """Use as an async block; coroutine functions run on this event loop."""
        self.engines.use_loop(asyncio.get_running_loop())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Leave like a plain block, without blocking the event loop."""
        try:
            if kind is None:
                await self._root.leave_async()
        finally:  # the wait may be cancelled
            await self.dispose_async()

    def _close(self) -> None:
        self._clock.close()
        self.engines.close()
        self.kernel.close()
        while self._on_close:
            self._on_close.pop()()

    def forget_scopes(self) -> None:
        """Let go of scopes that are DISPOSED."""
        with self.lock:
            for key in [key for key, scope in self.scopes.items() if scope.state == ScopeState.DISPOSED]:
                del self.scopes[key]

    def _find(self, ref: Ref | str) -> Task:
        with self.lock:
            if isinstance(ref, str):
                found = self.kernel.find(ref)
                if isinstance(found, str):
                    raise StaleRef(f"task {ref!r} has ended ({found}): only its handle knows more")
                return found
            if not isinstance(ref, Ref):
                raise UnknownTask(f"a task is looked up by its ref or its id, not by {ref!r}")
            if ref.authority != self.token:
                raise ForeignRef(f"{ref} belongs to another authority")
            scope = self.kernel.scopes.get(ref.scope)
            task = scope.tasks.get(ref.number) if scope else None
            if task is not None:
                return task
            if 0 < ref.number <= self.kernel.dispatcher.count:
                raise StaleRef(f"{ref} is no longer valid: its task has ended or was retried under a new ref")
            raise UnknownTask(f"{ref} was never given out")
