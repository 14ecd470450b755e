"""Core: the kernel under its lock, and what its decisions lead to.

Every command and every report of an end goes the same way: take the lock, let the kernel decide, release the lock,
carry out what it decided (start, ask, tell). Nothing of the user's ever runs under the lock.

Which lock guards what:

=======================  ========================================================================================
``Core.lock``            the kernel; ``midst``; of a broken authority ``survivors`` and ``gone``; ``scopes`` and the
                         errors of their records; watchers and pause waiters; ``lazies``; of an execution what
                         the kernel has of it, signal, attention and inside, ``blocked_for`` and ``returning``,
                         ``is_done``, and its waiters and callbacks until then; the ring, taps and subscribers
``Clock._lock``          what is due and the clock's thread; may be taken under ``Core.lock``
``Journal._guard``       which thread calls subscribers; held for an instant, nothing is taken under it
``ThreadEngine._guard``  which bodies may be interrupted; nothing is taken under it
the lock of a stream, a  what is in it; ``Core.lock`` is never taken under it
mailbox or parts
``future._attaching``    the notes of futures; nothing is taken under it
``_numbering`` of pools  the numbers of an executor's threads; nothing is taken under it
``Engines._lock``,       which engines there are, and which one an event loop has; ``Core.lock`` is never taken under
``AsyncioEngine._lock``  them, nor they under it
``Lazy._lock``           the value of a lazy resource; held while code of the user's makes it. ``Core.lock`` may be
                         taken under it, it is never taken under ``Core.lock``
=======================  ========================================================================================

What is read or changed without a lock, and why that is sound without a global interpreter lock too:

- ``is_done``, then ``value``, ``error`` and the outcome: ``is_done`` is set last, once, under the lock, never reset.
- ``broken``: it is set once, by the thread whose command was broken off, and never reset.
- waiters and callbacks of an execution that is done: only the thread that tells of the end touches them; a waiter that
  times out looks the list up once.
- ``Journal.undelivered``, the queues of engines: deques and simple queues, whose single steps are atomic.
- ``Clock.kernel_at_ns``: a command compares it with the kernel's timers under ``Core.lock``, and ``tick_at`` is called
  under that alone. The clock's thread only raises it, before it looks at the kernel itself, which sets it anew.
- ``Clock.needs_thread``: a thread of the clock too many ends at once.
- ``kernel.seq`` by ``last_seq``: a single number, and any number it has had will do.
- the state of a task, by its handle and by its own body: a single attribute, and any state it has had will do. What
  the body begins a moment too late is refused under the lock, or asked to end: see task/parts.py.
- ``value``, ``error``, ``facts`` of an execution that runs: only the thread that carries it out sets them, before it
  reports. ``attention``, by that thread: before the body, where an abort that comes later is seen at a checkpoint,
  and after it, when the parts that the body has made are there.
- an ``AbortSignal``, by the threads of its task: ``reason`` is set once, ``go`` before the ``pause`` it stands for,
  each in one step. The listeners are a list whose single steps, and whose copy, are atomic.
- ``ScopeRecord``: what ``terms`` has for a key, and ``coroutine_engine``, come out the same in every thread;
  ``grace_s`` is a single number. ``last`` is one tuple, and ``Terms.lane`` is asked under the lock if it still serves.
- ``LoopEngine``: what is posted is there before ``_woken`` is looked at, and the loop resets that before it takes
  what is posted. ``_tasks`` is changed on the thread of the loop, and when that is closed by the thread that ends it;
  others look one task up, in one step.
- ``itertools.count``, of tokens, functions, questions and lines: a step of it is atomic, unlike that of a range.
- ``ThreadEngine._threads``: a set whose single steps, and whose copy, are atomic.
"""

from __future__ import annotations

from _thread import start_new_thread
from collections import deque
from collections.abc import Callable, Sequence
from sys import exc_info
from typing import TYPE_CHECKING, Any, Final, TypeVar

from whywait.engines.base import SUCCEEDED, Ended, Engine
from whywait.errors import (
    ConfigError,
    ForeignRef,
    InvalidTransition,
    Rejected,
    ScopeExists,
    StaleRef,
    UnknownScope,
    UnknownTask,
    WhywaitError,
)
from whywait.kernel import ending, entering, starting
from whywait.kernel.base import Decision
from whywait.kernel.collector import hide
from whywait.kernel.durations import NS
from whywait.kernel.kernel import Kernel
from whywait.kernel.model import Scope as KernelScope
from whywait.kernel.model import Task
from whywait.kernel.state import Outcome, TaskState
from whywait.runtime import acts, breaking, leftovers
from whywait.runtime.clock import Clock
from whywait.runtime.drop_log import warn_of_drops, warn_of_skips
from whywait.runtime.execution import Execution, drop_body, release_waiters, run_body
from whywait.runtime.journal import Journal
from whywait.runtime.settings import Settings
from whywait.runtime.terms import ScopeRecord, Terms
from whywait.runtime.watching import Watching
from whywait.support import logger
from whywait.support.forks import own
from whywait.support.instant import now_ns
from whywait.support.locks import wait_for
from whywait.support.logger import Log
from whywait.support.mutex import give, is_taken_here, take
from whywait.support.raised import loggable, shown_error
from whywait.support.threads import NO_MEMORY
from whywait.task.parts import end_parts, parts_if_any
from whywait.task.surroundings import signal_of

if TYPE_CHECKING:
    from pathlib import Path

    from whywait.engines.thread import EngineThread, ThreadEngine

T = TypeVar("T")
_REJECTED: Final = Outcome.REJECTED
_SUCCESS: Final = Outcome.SUCCESS  # a global is found faster than an attribute of a class, before Python 3.12

# How far a command has come: an exception breaks the authority, but for a refusal of what has begun, or at the end.
_UNTOUCHED: Final = 0
_BEGUN: Final = 1
_CHANGED: Final = 2
_OVER: Final = 3
_NOTHING: Final = Decision()  # stays empty

# What a command raises before it has changed anything.
REFUSALS: Final = (
    ConfigError, Rejected, ScopeExists, InvalidTransition, UnknownTask, UnknownScope, StaleRef, ForeignRef,
)  # fmt: skip


def admit_task(  # noqa: C901, PLR0912, PLR0915 - in one piece for speed, and to release the lock where it was taken
    core: Core,
    execution: Execution,
    scope: KernelScope,
    terms: Terms,
    name: str | None = None,
    after: Sequence[Task | str] = (),
    after_ended: Sequence[Task | str] = (),
) -> None:
    """Submit a task; a refusal raises and leaves nothing behind."""
    lock, kernel, stage = core.lock, core.kernel, _UNTOUCHED
    decision, ended, lane = _NOTHING, None, terms.lane
    try:
        if not take(lock):
            wait_for(lock)
        if core.midst or core.broken is not None:
            core.refuse()
        stage, core.midst = _BEGUN, True
        now = now_ns()
        is_plain = name is None and not after and not after_ended and not kernel.is_recorded
        if is_plain and lane is not None and entering.is_free(lane):
            entering.enter(kernel, now, execution, lane, terms.policy)
        else:
            _submit(kernel, now, scope, terms, name, after, after_ended, execution)
            terms.lane = execution.lane
        stage = _CHANGED
        if core.slots.free > 0 or not terms.slot or kernel.settled or core.is_sooner():
            decision = Decision()
            _dispatch(kernel, now, decision)
            if decision.settled or decision.requests or core.is_sooner():
                ended = core.settle(decision)
        hide(execution)  # the kernel keeps it alive to its end, which comes under the lock
        core.midst = False
        give(lock)
        if decision.first is not None:
            if decision.first is execution and decision.others is None:
                execution.engine.start(execution)
            else:
                core.start_bodies(decision.started, None)
        if ended is not None:
            core.ask_and_tell(decision, ended)
        stage = _OVER
        if kernel.emit is not None:
            core.deliver_events()
    finally:
        if stage != _OVER:
            error = _current_error()
            if stage == _BEGUN and isinstance(error, REFUSALS):
                stage, core.midst = _UNTOUCHED, False
            if is_taken_here(lock):
                lock.release()  # in the frame that has taken it: where the stack ends, a call to do it would fail
            if stage == _UNTOUCHED:
                core.deliver_events()
            else:
                core.broken = error
                try:
                    _fail(core, error, decision)
                except RecursionError:  # to start a thread takes no more of the stack than to take a lock
                    start_new_thread(breaking.fail, (core, error, decision))


def report_end(  # noqa: C901, PLR0912, PLR0915 - in one piece, as above
    core: Core,
    execution: Execution,
    outcome: Ended = SUCCEEDED,
    engine: Engine | None = None,
    later: deque[Execution] | None = None,
) -> Execution | None:
    """Report that a body has really ended; return a task with which ``engine`` may go on in this thread.

    With ``later``, an execution that succeeded is put there, and the engine calls :meth:`tell` when it has gone on.
    """
    lock, kernel, stage, decision = core.lock, core.kernel, _UNTOUCHED, Decision()
    go_on = ended = None
    how, cause, retryable = outcome
    try:
        if not take(lock):
            wait_for(lock)
        if core.midst or core.broken is not None:
            stage = _OVER
            lock.release()
            core.take_late_report(execution)
            return None
        stage, core.midst = _BEGUN, True
        now = now_ns()
        streams = execution.opened_streams() if execution.callbacks is not None else ()  # each has one
        if kernel.is_recorded:
            retried = kernel.ended(now, execution, how, cause, retryable, execution.facts, streams)
        else:
            retried = ending.end_running(kernel, now, execution, how, cause, retryable, execution.facts, streams)
        stage = _CHANGED
        if retried is None:
            if outcome is not SUCCEEDED:
                core.note_failure(execution)
            execution.is_done = True
        else:
            execution.begin_again()
        _dispatch(kernel, now, decision)
        if (
            decision.settled
            or decision.requests
            or core.pause_waiters
            or (core.watchers and len(execution.scope.tasks) <= execution.scope.triggers)  # is anything left?
            or core.is_sooner()
        ):
            ended = core.settle(decision)
        core.midst = False
        give(lock)
        first: Any = decision.first
        if first is not None:
            if (
                later is not None
                or retried is not None
                or not execution.callbacks  # one may be slow
                or (engine is not None and engine.has_quick_callbacks)
            ):
                if first.engine is engine:
                    go_on = first
                elif decision.others is not None:
                    go_on = _first_of(engine, decision.started)
            if go_on is None or decision.others is not None:
                core.start_bodies(decision.started, go_on)
        if retried is None:
            if later is not None and (outcome is SUCCEEDED or execution.error is None):
                later.append(execution)
            else:
                tell_end(core, execution)
        if ended is not None:
            core.ask_and_tell(decision, ended)
        stage = _OVER
        if kernel.emit is not None:
            core.deliver_events()
    finally:
        if stage != _OVER:
            error = _current_error()
            if stage == _BEGUN and isinstance(error, REFUSALS):
                stage, core.midst = _UNTOUCHED, False
            if is_taken_here(lock):
                lock.release()  # in the frame that has taken it: where the stack ends, a call to do it would fail
            if stage == _UNTOUCHED:
                core.deliver_events()
            else:
                core.broken = error
                try:
                    _fail(core, error, decision, execution)
                except RecursionError:  # to start a thread takes no more of the stack than to take a lock
                    start_new_thread(breaking.fail, (core, error, decision, execution))
    return go_on


def carry_out_tasks(core: Core, runner: EngineThread, engine: ThreadEngine) -> None:
    """Run the body of a thread's task and report its end; go on with what the engine starts in its place."""
    caller: Any = engine.call
    goes_on = engine if engine.goes_on else None
    execution: Any = runner.execution
    while execution is not None:
        execution = report_end(core, execution, run_body(execution, runner, engine, caller), goes_on)
        runner.execution = execution


def tell_end(core: Core, execution: Execution) -> None:
    """Let go of a body whose task has its final outcome, and tell its waiters and callbacks."""
    drop_body(execution)
    if execution.attention or (
        execution.outcome is not _SUCCESS and (execution.started_seq or execution.error is not None)
    ):
        core.wind_up(execution)
    if execution.waiters is not None or execution.callbacks is not None:
        release_waiters(execution)


def cancel_task(core: Core, execution: Execution) -> None:
    """End a pending task at once, ask a running one to abort; idempotent."""
    core.command(core.kernel.cancel, execution)


class Core(Watching):
    """The kernel, its lock, its clock and its journal; the engines report here."""

    __slots__ = (
        "_expiries",
        "_timers",
        "began_ns",
        "broken",
        "clock",
        "gone",
        "has_failed",
        "is_failing",
        "journal",
        "kernel",
        "log",
        "midst",
        "pause_waiters",
        "scopes",
        "settings",
        "slots",
        "survivors",
        "when_broken",
    )

    def __init__(self, settings: Settings, record: str | Path | None = None, log: Log = logger.log) -> None:
        """Start with an empty kernel; ``record`` is a file for all its commands."""
        super().__init__()
        self.settings = settings
        self.log = log
        self.scopes: dict[str, ScopeRecord] = {}  # living ones by key
        self.kernel = kernel = _make_kernel(settings, record, log)
        self.began_ns = now_ns()
        self.journal = Journal(settings.events, kernel, log)
        self.clock = Clock(self._tick, log)
        self.midst = False  # a command is in the midst of its changes, or was broken off there
        self.broken: BaseException | None = None  # what has broken a command off
        self.is_failing = self.has_failed = False  # the tasks of a broken authority end, or all have been told
        self.survivors: dict[Execution, None] = {}  # of a broken authority, those whose bodies still run
        self.gone: set[Execution] = set()  # of a broken authority, those whose bodies have ended since
        self.when_broken: list[Callable[[], object]] = []  # called once, when the authority has broken
        self.slots = kernel.root.slot_gate
        self._timers, self._expiries = kernel.timers, kernel.expiries
        self.pause_waiters: dict[int, list[Callable[[], object]]] = {}  # by task number
        own(self)
        leftovers.watch(self)

    def let_go(self) -> None:
        """Be of no use in a fork of this process."""
        super().let_go()
        leftovers.forget(self)

    # Commands. What every task goes through are functions above, which the compiled core calls directly.

    admit = admit_task
    report = report_end
    carry_out = carry_out_tasks
    tell = tell_end
    cancel = cancel_task

    def command(self, act: Callable[..., T], *args: Any) -> T:
        """Run ``act(now, *args)`` under the lock, then dispatch; return its result when all that follows is done.

        A refusal is raised and has changed nothing. Any other exception breaks the authority (A2).
        """
        lock, kernel, stage, decision = self.lock, self.kernel, _UNTOUCHED, Decision()
        try:
            if not take(lock):
                wait_for(lock)
            if self.midst or self.broken is not None:
                self.refuse()
            stage, self.midst = _BEGUN, True
            now = now_ns()
            result = act(now, *args)
            stage = _CHANGED
            _dispatch(kernel, now, decision)
            ended = self.settle(decision)
            self.midst = False
            lock.release()
            if decision.first is not None:
                self.start_bodies(decision.started, None)
            self.ask_and_tell(decision, ended)
            stage = _OVER
            if kernel.emit is not None:
                self.deliver_events()
        finally:
            if stage != _OVER:
                error = _current_error()
                if stage == _BEGUN and isinstance(error, REFUSALS):
                    stage, self.midst = _UNTOUCHED, False
                if is_taken_here(lock):
                    lock.release()  # in the frame that has taken it: where the stack ends, a call to do it would fail
                if stage == _UNTOUCHED:
                    self.deliver_events()
                else:
                    self.broken = error
                    try:
                        _fail(self, error, decision)
                    except RecursionError:  # to start a thread takes no more of the stack than to take a lock
                        start_new_thread(breaking.fail, (self, error, decision))
        return result

    def release(self, execution: Execution) -> None:
        """Let the waiters of a task go on whose body may still run."""
        release_waiters(execution)

    def wind_up(self, execution: Execution) -> None:
        """End what is left of a task beside its body, and log an error that no handle tells."""
        if execution.attention or execution.started_seq:
            end_parts(execution)
            execution.signal = None
        if execution.error is not None and execution.periodic is not None:
            told = shown_error(execution.error)
            self.log.error(
                "task %s of a periodic failed: %s", execution.label, told, exc_info=loggable(execution.error)
            )

    def parked(self, execution: Execution) -> None:
        """Report that a body has parked at a checkpoint."""
        signal = signal_of(execution)
        self.command(acts.parked, self, execution, signal)
        signal.notify()  # worker processes of the task are told

    def measured(self, execution: Execution, ram: int) -> None:
        """Report how many bytes of memory a body uses now."""
        self.command(self.kernel.measured, execution, ram)

    def stopped(self, execution: Execution, is_stopped: bool) -> None:
        """Report that the system has stopped the process of a body, or of its client, or that it goes on."""
        self.command(self.kernel.stopped, execution, is_stopped)

    def call_later(self, delay_s: float, fn: Callable[[], None]) -> None:
        """Call ``fn`` on the clock's thread after so many seconds."""
        self.clock.call_at(now_ns() + round(delay_s * NS), fn)

    def grace_of(self, execution: Execution) -> float:
        """Return how many seconds a body and the parts of its task have to end after they are asked to."""
        record = self.scopes.get(execution.scope.key)
        return self.settings.grace if record is None else record.grace_s

    # From a decision to its effects

    def ask_and_tell(self, decision: Decision, ended: list[Execution]) -> None:
        """Carry out, outside the lock, what was decided beside starts."""
        if self.clock.needs_thread:
            self.clock.start()
        for verb, task in decision.requests:
            self._ask(verb, task)
        dropped = [each for each in ended if each.outcome is _REJECTED]
        if dropped:  # before their handles raise
            warn_of_drops(dropped, self.log)
        if decision.skipped:
            warn_of_skips(decision.skipped, self.log)
        for each in ended:
            tell_end(self, each)

    def start_bodies(self, started: list[Any], go_on: Execution | None) -> None:
        """Hand the tasks that start to their engines, but for one that goes on in this thread."""
        by_engine: dict[Engine, list[Any]] = {}
        for execution in started:
            if execution is not go_on:
                by_engine.setdefault(execution.engine, []).append(execution)
        for engine, executions in by_engine.items():
            engine.start_all(executions)

    def settle(self, decision: Decision) -> list[Execution]:
        """Take in, under the lock, what was decided beside starts; return the executions that have ended by it."""
        ended: list[Any] = list(decision.settled)
        for execution in ended:
            execution.is_done = True
        if self.watchers:
            self.tell_watchers()
        if self.pause_waiters:
            self._release_pause_waiters()
        if self.is_sooner():
            deadline = self.kernel.next_deadline()
            if deadline is not None and deadline < self.clock.kernel_at_ns:
                self.clock.tick_at(deadline)
        return ended

    def is_sooner(self) -> bool:
        """Return whether a timer of the kernel may be due before the clock looks."""
        timers, expiries, at_ns = self._timers.heap, self._expiries.heap, self.clock.kernel_at_ns
        return bool(timers and timers[0][0] < at_ns) or bool(expiries and expiries[0][0] < at_ns)

    def _ask(self, verb: str, execution: Any) -> None:
        """Let a body know what is wished of it.

        What is passed on is what the kernel wishes now, not what it wished when it asked: requests are carried out
        without the lock and may overtake each other.
        """
        if verb == "go_on":
            self._let_go_on(execution)
            return
        with self.lock:
            if not execution.active or (verb == "abort" and execution.abort is None):
                return  # its body has ended meanwhile
            number, signal = execution.number, signal_of(execution)
            is_parked = execution.state == TaskState.PAUSED
            is_paused = is_parked or execution.pause_timer is not None
            pause = signal.pause_number(parked=is_parked) if is_paused else 0
            signal.follow(pause=pause, reason=execution.abort[1] if execution.abort else None)
            execution.attention = True
        signal.notify()
        engine = execution.engine
        if verb == "abort":
            engine.abort(execution)
            if engine.can_kill or self.settings.inject:
                self.call_later(self.grace_of(execution), lambda: self._kill(execution, number))
        elif verb == "pause":
            engine.pause(execution)
        else:
            engine.resume(execution)

    def _let_go_on(self, execution: Execution) -> None:
        """Let a body go on that has waited for its slot."""
        with self.lock:
            if execution.number in self.kernel.wanting:
                return  # it waits again
            waiters = execution.returning
            execution.returning = ()
        for waiter in waiters:
            waiter.release()

    def _kill(self, execution: Execution, number: int) -> None:
        """End the body of an attempt by force, unless it has ended."""
        if execution.outcome is None and execution.number == number:
            execution.engine.kill(execution)
            parts = parts_if_any(execution)
            if parts is not None and self.settings.inject:
                parts.inject()

    def note_failure(self, execution: Execution) -> None:
        """Make the error of a task final, under the lock, and keep it for the scopes whose block raises it."""
        execution.note_failure()
        error = execution.error
        if error is None:
            return
        if execution.periodic is not None:
            execution.mark_seen()  # its handle is rarely held: it is logged when it is told
        elif execution.outcome is Outcome.ERROR:
            for kernel_scope in execution.scope.aborting:
                record = self.scopes.get(kernel_scope.key)
                if record is not None:
                    record.errors.append(error)
                    execution.mark_seen()

    def _tick(self) -> None:
        """Act on the timers of the kernel that are due."""
        self.command(acts.tick, self)

    def _release_pause_waiters(self) -> None:
        for number in list(self.pause_waiters):
            task = self.kernel.running.get(number)
            if task is None or task.state != TaskState.RUNNING or task.pause_timer is None:
                for tell in self.pause_waiters.pop(number):
                    tell()

    # Refusals, and the end of a broken authority (see breaking.py)

    def check_whole(self) -> None:
        """Raise AuthorityBroken if the authority is broken; under the lock."""
        if self.midst or self.broken is not None:
            if not self.is_failing and self.broken is not None:  # there was no memory to begin with that
                breaking.fail(self, self.broken)
            raise breaking.broken_error(self)

    def refuse(self) -> None:
        """Raise, under the lock: another command is in the midst, or the authority is broken.

        If this very thread has taken the lock twice, a finaliser has interrupted its command.
        """
        lock = self.lock
        lock.release()
        is_inside = is_taken_here(lock)
        lock.acquire()
        if is_inside:
            raise WhywaitError("called from inside the scheduler (a finaliser?): call it from another thread")
        self.check_whole()

    def thread_lost(self, execution: Execution | None) -> None:
        """Let the authority fail as a whole, since a thread of an engine ends by an error, and a body with it."""
        self.broken = error = _current_error()
        _fail(self, error, None, execution)

    def release_waits(self) -> None:
        """Let everything go on that waits for the kernel of a broken authority; under the lock."""
        for tells in self.pause_waiters.values():
            for tell in tells:
                tell()
        self.pause_waiters.clear()
        for execution in self.survivors:
            for waiter in execution.returning:
                waiter.release()
            execution.returning = ()
        self.tell_watchers()

    def take_late_report(self, execution: Execution) -> None:
        """Take the report of a body that has ended after its authority broke."""
        with self.lock:
            self.gone.add(execution)
            self.survivors.pop(execution, None)
            self.tell_watchers()
        end_parts(execution)
        drop_body(execution)

    def deliver_events(self) -> None:
        """Pass events on that subscribers have not got yet; without the lock."""
        if self.journal.undelivered and not is_taken_here(self.lock):
            self.journal.deliver()


def _current_error() -> BaseException:
    """Return the exception that is being handled. To call this takes no memory."""
    error: BaseException | None = None
    while error is None:
        try:  # noqa: SIM105 - it would take memory
            error = exc_info()[1]
        except NO_MEMORY:  # it may come back
            pass
    return error


def _fail(core: Core, error: BaseException, decision: Decision | None, reported: Execution | None = None) -> None:
    """Let an authority fail as a whole; see :func:`whywait.runtime.breaking.fail`. To call this takes no memory."""
    is_begun = False
    while not is_begun:
        try:
            breaking.begin(core, error, decision, reported)
            is_begun = True
        except NO_MEMORY:  # it may come back
            pass


def _dispatch(kernel: Kernel, now: int, decision: Decision) -> None:
    if kernel.is_recorded:
        kernel.dispatch(now, decision)
    else:
        starting.dispatch(kernel, now, decision)


def _submit(
    kernel: Kernel,
    now: int,
    scope: KernelScope,
    terms: Terms,
    name: str | None,
    after: Sequence[Task | str],
    after_ended: Sequence[Task | str],
    execution: Execution,
) -> None:
    priority, demand, policy, slot = terms.priority, terms.demand, terms.policy, terms.slot
    if kernel.is_recorded:
        kernel.submit(now, scope, name, priority, demand, after, after_ended, policy, slot, execution)
    else:
        entering.submit(kernel, now, scope, name, priority, demand, after, after_ended, policy, slot, execution)


def _first_of(engine: Engine | None, started: list[Any]) -> Execution | None:
    """Return the first of the tasks that start which an engine is to carry out."""
    return next((each for each in started if each.engine is engine), None)


def _make_kernel(settings: Settings, record: str | Path | None, log: Log) -> Kernel:
    """Return a kernel with an authority's settings, one that records if there is a path to record to."""
    options: dict[str, Any] = {
        "limits": settings.limits,
        "budget": settings.budget,
        "order": settings.order,
        "policy": settings.policy,
        "backfill": settings.backfill,
        "overdraft": settings.overdraft,
        "pause_timeout_ns": round(settings.pause_timeout * NS),
        "starvation_timeout_ns": round(settings.starvation_timeout * NS),
        "jitter": _jitter,
    }
    if record is None:
        return Kernel(**options)
    from whywait.observe.record import RecordingKernel

    return RecordingKernel(record, log=log, **options)


def _jitter() -> float:
    """Return a number from -1 to 1, another one each time."""
    from random import uniform

    return uniform(-1.0, 1.0)  # noqa: S311 - chance, no cipher
