"""Authority: the kernel, its lock, the engines and the clock, put together."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from random import uniform
from time import monotonic_ns
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from whywait.clock import Clock
from whywait.devtools import open_devtools
from whywait.engines.base import SUCCEEDED, Ended, Engine
from whywait.engines.forks import own
from whywait.engines.registry import Engines
from whywait.errors import ForeignRef, QueueFull, StaleRef, UnknownScope, UnknownTask, WhywaitError
from whywait.explain import Why, in_words
from whywait.handle import Handle
from whywait.inside import take_crew
from whywait.journal import Events, Journal
from whywait.kernel.events import Event, RawEvent
from whywait.kernel.lanes import Order
from whywait.kernel.model import Ref, Retry, Submission, Task
from whywait.kernel.model import Scope as KernelScope
from whywait.kernel.snapshot import Snapshot
from whywait.kernel.state import Outcome, ScopeState, TaskState
from whywait.locks import LeftBehind, take, wait_for
from whywait.periodic import log_failure
from whywait.record import RecordingKernel, make_kernel
from whywait.run_report import Report, kernel_account, make_report
from whywait.scope import Scope, ScopeOptions, open_scope
from whywait.services import Services
from whywait.settings import NS, UNSET, Given, Seconds, Settings, Size, Unset
from whywait.signals import signal_of
from whywait.work import Work, warn_of_drops

if TYPE_CHECKING:
    from whywait.devtools.server import DevTools

T = TypeVar("T")
log = logging.getLogger("whywait")
_tokens = itertools.count(1)

DEFAULT_SCOPE = "default"


class Authority(Services):
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
        self.settings = settings
        self.token = next(_tokens)  # tells its refs from other authorities'
        self.lock = threading.RLock()
        self._began_ns = monotonic_ns()
        self.kernel = make_kernel(settings, record, _jitter)
        self._journal = Journal(settings.events, self.kernel.emit_to)
        self._clock = Clock(self._tick)
        self._slots = self.kernel.root.slot_gate
        self._settled = self.kernel.settled
        self._enter, self._submit, self._pass_on = self.kernel.enter, self.kernel.submit, self.kernel.pass_on
        self._timers, self._expiries = self.kernel.timers, self.kernel.expiries
        self._watchers: list[tuple[Callable[[], bool], Callable[[], None]]] = []
        self._pause_waiters: dict[int, list[Callable[[], object]]] = {}
        self.engines = Engines(self, settings.engine)
        self.scopes: dict[str, Scope] = {}  # living ones by key
        self._root = Scope(self, self.kernel.root, engine=self.engines.default, grace_s=settings.grace_s)
        self._default = open_scope(self, None, DEFAULT_SCOPE, {})
        self._on_close: list[Callable[[], None]] = []  # what ends with the authority
        own(self)
        self.submit = self._default.submit
        self.submit_many = self._default.submit_many

    # Scopes and tasks

    def scope(self, key: str, **options: Unpack[ScopeOptions]) -> Scope:
        """Open a scope: a namespace with limits of its own that ends everything it started."""
        return open_scope(self, None, key, options)

    def get_scope(self, key: str) -> Scope:
        """Return the living scope of a key."""
        self.forget_scopes()
        scope = self.scopes.get(key)
        if scope is None:
            known = ", ".join(map(repr, self.scopes))
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
            raw, skipped = self._journal.since(since)
        return Events(raw if limit is None else raw[:limit], skipped)

    def report(self) -> Report:
        """Return where the waiting of the run went, by cause and by holder, and how full slots and budget were."""
        with self.lock:
            raw, skipped = self._journal.since(0)
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
        if kind is None:
            self._root.leave()
        self.dispose()

    async def __aenter__(self) -> Self:
        """Use as an async block; coroutine functions run on this event loop."""
        self.engines.use_loop(asyncio.get_running_loop())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Leave like a plain block, without blocking the event loop."""
        if kind is None:
            await self._root.leave_async()
        await self.dispose_async()

    def let_go(self) -> None:
        """Be of no use in a fork of this process: none of the threads is there, and locks may be held for ever."""
        self.lock = LeftBehind()  # type: ignore[assignment] # it only refuses

    def _close(self) -> None:
        self._clock.close()
        self.engines.close()
        if isinstance(self.kernel, RecordingKernel):
            self.kernel.close()
        while self._on_close:
            self._on_close.pop()()

    # The critical section

    def command(self, act: Callable[[int], T]) -> T:
        """Run kernel commands under the lock, then dispatch and carry out what follows."""
        lock, work = self.lock, Work()
        if lock._is_owned():  # type: ignore[attr-defined]
            self.refuse_inside()
        try:
            take(lock)
            now = monotonic_ns()
            result = act(now)
            self.settle(now, work)
            lock.release()
            self.carry_out(work)
        except BaseException as error:
            self.broken_off(error, work)
            raise
        return result

    def refuse_inside(self) -> None:
        """Raise: this very thread holds the lock, so a finaliser has interrupted a command."""
        raise WhywaitError("called from inside the scheduler (a finaliser?): call it from another thread")

    def broken_off(self, error: BaseException, work: Work, handle: Handle[Any] | None = None) -> None:
        """Clean up after a command that raised: a refusal has changed nothing, anything else may have come anywhere.

        Who was to be submitted and has not started is not submitted; all else that was decided is carried out.
        """
        if self.lock._is_owned():  # type: ignore[attr-defined]
            try:
                if not isinstance(error, WhywaitError):
                    self._repair(work, handle)
            finally:
                self.lock.release()
        self.carry_out(work)
        for engine, count in work.offered.items():
            engine.look_again(count)

    def _repair(self, work: Work, handle: Handle[Any] | None) -> None:
        now = monotonic_ns()
        kernel = self.kernel
        kernel.repair(now, work.started)
        if handle is not None:
            for task in [task for scope in kernel.scopes.values() for task in scope.tasks.values()]:
                if task.job is handle:
                    handle._task = task
                    if task.pending:
                        kernel.cancel(now, task)
        self.settle(now, work)

    def admit(self, handle: Handle[Any], scope: KernelScope, request: Submission | None) -> None:
        """Submit the task of a handle: as the request says, or plainly; a refusal raises and leaves nothing behind."""
        lock, work = self.lock, None
        if lock._is_owned():  # type: ignore[attr-defined]
            self.refuse_inside()
        try:
            if not lock.acquire(False):  # noqa: FBT003 - by position it takes half the time
                wait_for(lock)
            now = monotonic_ns()
            if request is not None:
                handle._task = self._submit(now, *request)
            else:  # the shortest way first; what it does not take, the long one takes or refuses
                task = self._enter(now, scope, handle)
                handle._task = self._submit(now, scope, job=handle) if task is None else task
            if self._slots.free > 0 or self._settled or self._timers.heap or self._expiries.heap:
                work = Work()
                if self._slots.free > 0 or self._settled or not self._nothing_sooner():
                    self.settle(now, work)
            lock.release()
            if work is not None:
                self.carry_out(work)
        except BaseException as error:
            if isinstance(error, QueueFull):
                log.warning("dropped: %s", error)
            self.broken_off(error, work or Work(), handle)
            raise

    def _nothing_sooner(self) -> bool:
        """Return whether no timer of the kernel is due before the clock looks."""
        timers, expiries, at_ns = self._timers.heap, self._expiries.heap, self._clock.kernel_at_ns
        return (not timers or timers[0][0] >= at_ns) and (not expiries or expiries[0][0] >= at_ns)

    def succeeded(self, handle: Handle[Any], engine: Engine | None = None) -> Handle[Any] | None:
        """Report that a body has returned; return a task with which ``engine`` may go on in this thread."""
        lock, task = self.lock, handle._task
        if not lock.acquire(False):  # noqa: FBT003 - by position it takes half the time
            wait_for(lock)
        try:
            new = self._pass_on(monotonic_ns(), task)
            if new is not None:
                handle._done = True
                task.job = None
        finally:
            lock.release()
        if new is None:
            return self.ended(handle, SUCCEEDED, engine)
        handle._fn = handle._context = handle._kwargs = handle._signal = None
        handle._args = ()
        go_on: Handle[Any] | None = new.job
        assert go_on is not None, "a living task has its handle"
        if go_on._engine is not engine or handle._callbacks is not None:  # a slow callback must not hold it up
            go_on._engine.start(go_on)
            go_on = None
        if handle._bells is not None or handle._callbacks is not None:
            self._finished(handle)
        if self._journal.undelivered:
            self._journal.deliver()
        return go_on

    def ended(  # noqa: C901, PLR0912 - in one piece for speed
        self,
        handle: Handle[Any],
        outcome: Ended,
        engine: Engine | None = None,
        later: deque[Handle[Any]] | None = None,
    ) -> Handle[Any] | None:
        """Report that a body has really ended; return a task with which ``engine`` may go on in this thread.

        With ``later``, a handle that succeeded is put there, to be ``_finished`` by the engine when it has gone on.
        """
        task = handle._task
        kernel = self.kernel
        work = None
        lock = self.lock
        take(lock)
        try:
            now = monotonic_ns()
            retried, started = kernel.turn(now, task, *outcome)
            if retried is None:
                if task.outcome != Outcome.SUCCESS:
                    handle.note_failure()
                handle._done = True
                task.job = None
            else:
                handle.retried(retried)
            if (
                kernel.settled
                or kernel.requests
                or self._pause_waiters
                or (self._watchers and len(task.scope.tasks) <= task.scope.triggers)  # they ask if anything is left
                or not self._nothing_sooner()
            ):
                work = Work()
                self.take_in(work)
        finally:
            lock.release()
        go_on = None
        for new in started:
            job = new.job
            if go_on is None and job._engine is engine:
                go_on = job
            else:
                job._engine.start(job)
        if retried is None:
            if later is not None and handle._error is None:
                later.append(handle)
            else:
                if go_on is not None and handle._callbacks:
                    go_on._engine.start(go_on)  # a slow callback must not hold it up
                    go_on = None
                self._finished(handle)
        if work is not None:
            self.carry_out(work)
        elif self._journal.undelivered:
            self._journal.deliver()
        return go_on

    def following(self, handle: Handle[Any], most: int) -> list[Handle[Any]]:
        """Return whose turn it is after a running task if nothing changes: its like only, at most so many."""
        with self.lock:
            tasks = self.kernel.following(monotonic_ns(), handle._task, most)
            return [task.job for task in tasks if task.job is not None]

    def hand_on(self, handle: Handle[Any], outcome: Ended, heir: Handle[Any]) -> bool:
        """Report that a body has ended and another one gone on in its slot; return whether that one has started."""

        def act(now: int) -> bool:
            task = handle._task
            retried, has_started = self.kernel.hand_on(now, task, *outcome, heir._task)
            if retried is None:
                if task.outcome != Outcome.SUCCESS:
                    handle.note_failure()
                handle._done = True
                task.job = None
            else:
                handle.retried(retried)
            return has_started

        has_started = self.command(act)
        if handle._done:
            self._finished(handle)
        return has_started

    def _finished(self, handle: Handle[Any]) -> None:
        """Let a handle go whose task has its final outcome, and tell whoever waits."""
        handle._fn = handle._context = handle._kwargs = handle._signal = None
        handle._args = ()
        if handle._bells is not None:
            for waiter in tuple(handle._bells):  # who gives up waiting takes its bell out of the list
                with contextlib.suppress(RuntimeError):  # it was rung when this was broken off
                    waiter.release()
            handle._bells = None
        if handle._error is not None:
            is_periodic = handle._task.periodic is not None
            if is_periodic:
                log_failure(handle)
            for kernel_scope in () if is_periodic else handle._task.scope.chain:
                scope = self.scopes.get(kernel_scope.key)
                if scope is not None and scope.task_failed(handle._error):
                    handle._unseen.seen = True
        if handle._callbacks is not None:
            handle.run_callbacks()

    def parked(self, handle: Handle[Any]) -> None:
        """Report that a body has parked at a checkpoint."""
        self.command(lambda now: self.kernel.parked(now, handle._task))

    def forget_scopes(self) -> None:
        """Let go of scopes that are DISPOSED."""
        with self.lock:
            for key in [key for key, scope in self.scopes.items() if scope.state == ScopeState.DISPOSED]:
                del self.scopes[key]

    def call_later(self, delay_s: float, fn: Callable[[], None]) -> None:
        """Call ``fn`` on the clock's thread after so many seconds."""
        self._clock.call_at(monotonic_ns() + round(delay_s * NS), fn)

    def watch(self, condition: Callable[[], bool], tell: Callable[[], None]) -> None:
        """Call ``tell`` once, under the lock, as soon as ``condition`` holds."""
        with self.lock:
            if condition():
                tell()
            else:
                self._watchers.append((condition, tell))

    def unwatch(self, tell: Callable[[], None]) -> None:
        """Do not call ``tell`` any more."""
        with self.lock:
            self._watchers = [watcher for watcher in self._watchers if watcher[1] is not tell]

    def settle(self, now: int, work: Work) -> None:
        """Let the kernel dispatch, under the lock, and take what it has decided; it is carried out after."""
        self.kernel.dispatch(now, work.started)
        self.take_in(work)

    def take_in(self, work: Work) -> None:
        """Take what the kernel has decided but for what starts. Doing it twice does no harm."""
        kernel = self.kernel
        work.requests += kernel.requests
        kernel.requests.clear()
        handles = work.handles
        for task in kernel.settled:
            handle = task.job
            if handle is not None:
                handles.append(handle)
                handle._done = True
                task.job = None
        kernel.settled.clear()
        if self._watchers:
            waiting = []
            for condition, tell in self._watchers:
                if condition():
                    tell()
                else:
                    waiting.append((condition, tell))
            self._watchers = waiting
        if self._pause_waiters:
            self._release_pause_waiters()
        deadline = kernel.next_deadline()
        if deadline is not None and deadline < self._clock.kernel_at_ns:
            self._clock.tick_at(deadline)

    def carry_out(self, work: Work) -> None:
        """Start, ask, and tell, outside the lock; where it was broken off, it can be called again and goes on."""
        if work.started:
            work.begin()
        for engine, handles in work.by_engine.items():
            engine.start_all(handles)
        while work.requests:
            verb, task = work.requests[0]
            handle = task.job
            if handle is not None:
                self._ask(verb, task, handle)
            del work.requests[0]
        handles = work.handles
        if handles:
            warn_of_drops([handle._task for handle in handles if handle._task.outcome == Outcome.REJECTED])
            for handle in handles:
                self._finished(handle)
            handles.clear()
        if self._journal.undelivered:
            self._journal.deliver()

    def _ask(self, verb: str, task: Task, handle: Handle[Any]) -> None:
        """Let a body know what is wished of it.

        What is passed on is what the kernel wishes now, not what it wished when it asked: requests are carried out
        without the lock and may overtake each other.
        """
        with self.lock:
            if task.outcome is not None or handle._task is not task:
                return  # its body has ended meanwhile
            signal = signal_of(handle)
            is_paused = task.state == TaskState.PAUSED or task.pause_timer is not None
            signal.follow(pause=is_paused, reason=task.abort[1] if task.abort else None)
            handle.attention = True
        signal.notify()
        engine = handle._engine
        if verb == "abort":
            engine.abort(handle)
            grace_ns = round(self.grace_of(handle) * NS)
            if engine.can_kill or self.settings.inject:
                self._clock.call_at(monotonic_ns() + grace_ns, lambda: self._kill(task, handle))
        elif verb == "pause":
            engine.pause(handle)
        else:
            engine.resume(handle)

    def _kill(self, task: Task, handle: Handle[Any]) -> None:
        if task.outcome is None and task.job is handle:
            handle._engine.kill(handle)
            crew = take_crew(handle)
            if crew is not None and self.settings.inject:
                crew.inject()

    def _tick(self) -> None:
        self.command(self.kernel.fire)

    def _release_pause_waiters(self) -> None:
        for number in list(self._pause_waiters):
            task = self.kernel.running.get(number)
            if task is None or task.state != TaskState.RUNNING or task.pause_timer is None:
                for tell in self._pause_waiters.pop(number):
                    tell()

    def _find(self, ref: Ref | str) -> Task:
        with self.lock:
            if isinstance(ref, str):
                found = self.kernel.find(ref)
                if isinstance(found, str):
                    raise StaleRef(f"task {ref!r} has ended ({found}): only its handle knows more")
                return found
            if ref.authority != self.token:
                raise ForeignRef(f"{ref} belongs to another authority")
            scope = self.kernel.scopes.get(ref.scope)
            task = scope.tasks.get(ref.number) if scope else None
            if task is not None:
                return task
            if 0 < ref.number <= self.kernel.dispatcher.count:
                raise StaleRef(f"{ref} is no longer valid: its task has ended or was retried under a new ref")
            raise UnknownTask(f"{ref} was never given out")


def _jitter() -> float:
    """Return a number from -1 to 1, another one each time."""
    return uniform(-1.0, 1.0)  # noqa: S311 - chance, no cipher
