"""Core: the kernel under its lock, and what its decisions lead to.

Every command and every report of a body goes the same way: take the lock, let the kernel decide, release the lock,
carry out what it decided (start, ask, tell). Nothing of the user's ever runs under the lock.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections import deque
from collections.abc import Callable
from time import monotonic_ns
from typing import TYPE_CHECKING, Any, Final, TypeVar

from whywait import leftovers
from whywait.clock import Clock
from whywait.engines.base import SUCCEEDED, Ended, Engine
from whywait.engines.forks import own
from whywait.errors import QueueFull, WhywaitError
from whywait.handle import Handle
from whywait.inside import take_crew
from whywait.journal import Journal
from whywait.kernel.kernel import Kernel
from whywait.kernel.model import Scope as KernelScope
from whywait.kernel.model import Submission, Task
from whywait.kernel.state import Outcome, TaskState
from whywait.locks import LeftBehind, take, wait_for
from whywait.periodic import log_failure
from whywait.services import Services
from whywait.settings import NS, Settings
from whywait.signals import signal_of
from whywait.work import Work, warn_of_drops

if TYPE_CHECKING:
    from pathlib import Path

    from whywait.scope import Scope

T = TypeVar("T")
log = logging.getLogger("whywait")

QUEUED: Final = TaskState.QUEUED  # a global is found faster than an attribute of a class, before Python 3.12


class Core(Services):
    """The kernel, its lock, its clock and its journal; the engines report here."""

    def __init__(self, settings: Settings, record: str | Path | None = None) -> None:
        """Start with an empty kernel; ``record`` is a file for all its commands."""
        self.settings = settings
        self.lock = threading.RLock()
        self.scopes: dict[str, Scope] = {}  # living ones by key
        self.kernel = kernel = _make_kernel(settings, record)
        self._began_ns = monotonic_ns()
        self._journal = Journal(settings.events, kernel.emit_to)
        self._clock = Clock(self._tick)
        self._slots = kernel.root.slot_gate
        self._settled = kernel.settled
        self._enter, self._queue, self._pass_on = kernel.enter, kernel.queue, kernel.pass_on
        self._submit = kernel.submit
        self._timers, self._expiries = kernel.timers, kernel.expiries
        self._watchers: list[tuple[Callable[[], bool], Callable[[], None]]] = []
        self._pause_waiters: dict[int, list[Callable[[], object]]] = {}
        own(self)
        leftovers.watch(self)

    def let_go(self) -> None:
        """Be of no use in a fork of this process: none of the threads is there, and locks may be held for ever."""
        self.lock = LeftBehind()  # type: ignore[assignment] # it only refuses
        leftovers.forget(self)

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

    def admit(
        self,
        handle: Handle[Any],
        scope: KernelScope,
        request: Submission | None,
        after: list[Task | str] | None = None,
    ) -> None:
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
            elif after is not None:
                task = self._queue(now, scope, handle, after)
                handle._task = self._submit(now, scope, after=after, job=handle) if task is None else task
            else:  # the shortest way first; what it does not take, the long one takes or refuses
                task = self._enter(now, scope, handle)
                handle._task = self._submit(now, scope, job=handle) if task is None else task
            may_start = self._slots.free > 0 and handle._task.state != QUEUED
            if may_start or self._settled or self._timers.heap or self._expiries.heap:
                work = Work()
                if may_start or self._settled or not self._nothing_sooner():
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

    def succeeded(  # noqa: C901 - in one piece for speed
        self, handle: Handle[Any], engine: Engine | None = None
    ) -> Handle[Any] | None:
        """Report that a body has returned; return a task with which ``engine`` may go on in this thread."""
        lock, task = self.lock, handle._task
        more: list[Task] = []
        if not lock.acquire(False):  # noqa: FBT003 - by position it takes half the time
            wait_for(lock)
        try:
            now = monotonic_ns()
            new = self._pass_on(now, task)
            if new is not None:
                handle._done = True
                task.job = None
                if self._slots.free > 0 and new.lane.items:  # type: ignore[union-attr] # it has its lane
                    self.kernel.dispatch(now, more)
                if self._timers.heap and not self._nothing_sooner():
                    self._clock.tick_at(self._timers.heap[0][0])
        finally:
            lock.release()
        if self._timers.heap and self._clock.needs_thread:
            self._clock.start()
        if new is None:
            return self.ended(handle, SUCCEEDED, engine)
        handle._fn = handle._context = handle._kwargs = handle._signal = None
        handle._args = ()
        go_on: Handle[Any] | None = new.job
        assert go_on is not None, "a living task has its handle"
        if go_on._engine is not engine or handle._callbacks is not None:  # a slow callback must not hold it up
            go_on._engine.start(go_on)
            go_on = None
        for task in more:
            task.job._engine.start(task.job)
        if handle._bells is not None or handle._callbacks is not None:
            self._finished(handle)
        if self._journal.undelivered:
            self._journal.deliver()
        return go_on

    def ended(  # noqa: PLR0912 - in one piece for speed
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
            if later is None or outcome[0] != Outcome.SUCCESS:  # a success without ``later`` has tried the short way
                retried = kernel.ended(now, task, *outcome)
                self._abort_rest(now, task)
                started = kernel.dispatch(now)
            else:
                retried, started = kernel.turn(now, task, *outcome)
            _follow(handle, task, retried)
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

    def _abort_rest(self, now: int, task: Task) -> None:
        """Dispose of the scopes that a task takes down if it has failed for good; nobody of them starts any more."""
        if task.outcome != Outcome.ERROR or task.retried_as is not None or task.periodic is not None:
            return
        for kernel_scope in task.scope.chain:
            scope = self.scopes.get(kernel_scope.key)
            if scope is not None and scope.aborts_on_error:
                self.kernel.dispose(now, kernel_scope)

    def following(self, handle: Handle[Any], most: int) -> list[Handle[Any]]:
        """Return whose turn it is after a running task if nothing changes: its like only, at most so many."""
        with self.lock:
            tasks = self.kernel.following(monotonic_ns(), handle._task, most)
            return [task.job for task in tasks if task.job is not None]

    def hand_on(self, handle: Handle[Any], outcome: Ended, heir: Handle[Any], *, heir_runs: bool) -> bool:
        """Report that a body has ended and another one gone on in its slot; return whether that one has started."""

        def act(now: int) -> bool:
            task = handle._task
            retried, has_started = self.kernel.hand_on(now, task, *outcome, heir._task, heir_runs=heir_runs)
            self._abort_rest(now, task)
            _follow(handle, task, retried)
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
        if kernel.requests:
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
        if not self._nothing_sooner():
            deadline = kernel.next_deadline()
            if deadline is not None and deadline < self._clock.kernel_at_ns:
                self._clock.tick_at(deadline)

    def carry_out(self, work: Work) -> None:
        """Start, ask, and tell, outside the lock; where it was broken off, it can be called again and goes on."""
        if self._clock.needs_thread:
            self._clock.start()
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
            dropped = [handle._task for handle in handles if handle._task.outcome == Outcome.REJECTED]
            if dropped:
                warn_of_drops(dropped)
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


def _follow(handle: Handle[Any], task: Task, retried: Task | None) -> None:
    """Let a handle know that its task has ended: for good, or to be tried again as another."""
    if retried is None:
        if task.outcome != Outcome.SUCCESS:
            handle.note_failure()
        handle._done = True
        task.job = None
    else:
        handle.retried(retried)


def _make_kernel(settings: Settings, record: str | Path | None) -> Kernel:
    """Return a kernel with an authority's settings, one that records if there is a path to record to."""
    options: dict[str, Any] = {
        "limits": settings.limits,
        "budget": settings.budget,
        "order": settings.order,
        "policy": settings.policy,
        "backfill": settings.backfill,
        "pause_timeout_ns": round(settings.pause_timeout_s * NS),
        "starvation_timeout_ns": round(settings.starvation_timeout_s * NS),
        "jitter": _jitter,
    }
    if record is None:
        return Kernel(**options)
    from whywait.record import RecordingKernel

    return RecordingKernel(record, **options)


def _jitter() -> float:
    """Return a number from -1 to 1, another one each time."""
    from random import uniform

    return uniform(-1.0, 1.0)  # noqa: S311 - chance, no cipher
