"""The parts of a running task: its handlers, which form a graph, and its workers, which serve it.

All of them belong to one attempt of the task, run on threads of their own (coroutine functions of a coroutine task:
on its event loop; workers also in processes) and take no slot. How a task with parts ends:

1. The first part that fails fails the task: the task's signal fires, parts that have not begun never do, and the
   error is the task's. The signal fires before the part counts as ended, so the body cannot end in success between.
2. When the body has ended, the task waits for its handlers; then the signal fires for the workers.
3. A part leaves ``_alive`` last of all, after its successors have started: an empty ``_alive`` is the end of the task,
   and no part can be added after it. The queues end with it.
4. A thread that the body has started by itself may add a part between the end of the body and its report, where the
   engine waits for parts no more. Such a part is asked to end when the task has ended.

``Parts.waiters.lock`` guards all of ``Parts`` and its parts; ``Core.lock`` is never taken under it. Without it are
read: the state of a part, which becomes final in one step, after the value and the error; ``_failure``, when all parts
have ended; ``_on_loop``, which only the thread of the loop changes. ``_interrupt`` is set before the signal is looked
at, and the signal before ``_interrupt`` is: one of the two sees the other.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable
from contextvars import copy_context
from inspect import isawaitable, iscoroutinefunction
from time import sleep
from typing import Any, Final

from whywait.errors import ConfigError, InvalidTransition, TaskAborted
from whywait.kernel.durations import Seconds, patience_s
from whywait.kernel.events import Kind
from whywait.kernel.state import STATE_WORDS, Outcome, TaskState
from whywait.support.coroutines import begun, close, primed
from whywait.support.lazy import asyncio, running_loop
from whywait.support.raised import shown_error
from whywait.support.waiters import Waiters, refuse_on_loop
from whywait.task.queues import Mailbox, queue_has_ended
from whywait.task.signals import AbortSignal, raise_in_thread
from whywait.task.surroundings import (
    Ended,
    EndingTask,
    RunningTask,
    ask_end,
    in_coroutine,
    in_thread,
    inside_of,
    signal_of,
)

HANDLER: Final = "handler"
WORKER: Final = "worker"
ENDED: Final = "ended"  # the reason that workers see when all else of the task has ended
FAILED: Final = "exception"  # the reason that the parts see when the body has failed
HANDLER_THREADS: Final = 32  # of one task at a time; a handler that waits for another one does not count
_STARTED: Final[dict[str, str]] = {HANDLER: Kind.HANDLER_STARTED, WORKER: Kind.WORKER_STARTED}
_ENDED: Final[dict[str, str]] = {HANDLER: Kind.HANDLER_ENDED, WORKER: Kind.WORKER_ENDED}

_ACTIVE: Final = (TaskState.RUNNING, TaskState.PAUSED, TaskState.DISPOSING)

Run = Callable[["Part"], Any]
Failure = tuple[str, BaseException]  # the cause code, the error


class Part:
    """A handler or a worker of a running task, to be waited for."""

    def __init__(
        self, parts: Parts, kind: str, fn: Callable[..., Any], args: tuple[Any, ...], *, can_kill: bool = False
    ) -> None:
        """Made by ``ctx.handler`` and ``ctx.spawn`` only."""
        if not callable(fn):
            raise ConfigError(f"a {kind} is a function, not {fn!r}")
        self._parts = parts
        self.can_kill = can_kill  # it is ended by force if it ignores its signal
        self.execution: RunningTask | None = parts.task  # what `current()` finds on its thread
        self.kind = kind
        self.number = 0  # counted within the task, from 1
        self.name: str = getattr(fn, "__qualname__", type(fn).__name__)
        self.state = "waiting"  # then running, then succeeded, failed or cancelled
        self._fn: Any = fn
        self._args = args
        self._value: Any = None
        self._error: BaseException | None = None
        self._unmet = 0
        self._is_on_loop = False  # it runs on the event loop of the body
        self._has_thread = False  # it counts among the threads of handlers
        self._successors: list[Part] = []
        self._context = copy_context()
        self._interrupt: Callable[[], object] | None = None  # ends it from outside, if that is possible
        self._thread_id: int | None = None  # of the thread that runs it

    def done(self) -> bool:
        """Return whether it has ended."""
        return self.state in {"succeeded", "failed", "cancelled"}

    def result(self, timeout: Seconds | None = None) -> Any:
        """Wait for its result and return it; raise what it raised, or TaskAborted if it was cancelled."""
        if not self.done():
            refuse_on_loop("result() of a handler or worker", "await it")
            self._parts.wait_for(self, patience_s(timeout))
        return self._outcome()

    def __await__(self) -> Generator[Any, None, Any]:
        """Wait on the running event loop."""
        yield from self._parts.waiters.wait_async(self.done).__await__()
        return self._outcome()

    def __repr__(self) -> str:
        """Show what it is and how it stands."""
        return f"<{self.kind} {self.number} {self.name} {self.state}>"

    def call(self) -> Any:
        """Call the function; parts among its arguments are replaced by their results."""
        return self._fn(*self.arguments())

    def arguments(self) -> tuple[Any, ...]:
        """Return the arguments, parts among them replaced by their results."""
        return tuple(value._value if isinstance(value, Part) else value for value in self._args)

    def _outcome(self) -> Any:
        if self.state == "succeeded":
            return self._value
        if self._error is not None:
            raise self._error
        raise TaskAborted(f"{self.kind} {self.number} ({self.name}) was cancelled")


class Parts:
    """The handlers and workers of one attempt of one task."""

    def __init__(self, task: RunningTask, signal: AbortSignal) -> None:
        """Start with none; made at the first use."""
        self.task = task
        self._signal = signal
        self.waiters = Waiters()
        self._loop = _loop_of_body(task)
        self._alive: dict[Part, None] = {}
        self._threads = 0  # of handlers
        self._ready: deque[Part] = deque()  # handlers that wait for a thread
        self._numbers = itertools.count(1)
        self._mailboxes: dict[str, Mailbox] = {}
        self._on_loop: set[asyncio.Task[None]] = set()  # a loop itself keeps its tasks only weakly
        self._failure: Failure | None = None
        self._is_over = False
        self._is_injected = False  # the time to end by themselves is up
        signal.listen(self._follow_signal)

    # In

    def add_handler(self, fn: Callable[..., Any], args: tuple[Any, ...], after: Iterable[Any]) -> Part:
        """Add a handler that runs after others of this task."""
        before = [*after, *(value for value in args if isinstance(value, Part))]
        for each in before:
            if not isinstance(each, Part) or each._parts is not self:
                raise ConfigError(f"a handler comes after handlers of the same task, not after {each!r}")
        return self._add(Part(self, HANDLER, fn, args), dict.fromkeys(before), Part.call)

    def add_worker(
        self, fn: Callable[..., Any], args: tuple[Any, ...], run: Run = Part.call, *, can_kill: bool = False
    ) -> Part:
        """Start a worker; ``run`` calls the function, or has it called elsewhere, where it can be killed."""
        return self._add(Part(self, WORKER, fn, args, can_kill=can_kill), (), run)

    def mailbox(self, name: str, limit: int) -> Mailbox:
        """Return the queue of a name, made at its first use."""
        with self.waiters.lock:
            mailbox = self._mailboxes.get(name)
            if mailbox is None:
                if self._is_over:
                    raise queue_has_ended(self.task.label, name)
                mailbox = self._mailboxes[name] = Mailbox(self.task.label, name, limit)
            return mailbox

    def _add(self, part: Part, before: Iterable[Part], run: Run) -> Part:
        with self.waiters.lock:
            self._refuse_if_ending(part)
            part.number = next(self._numbers)
            self._alive[part] = None
            for each in before:
                if not each.done():
                    each._successors.append(part)
                    part._unmet += 1
            is_ready = not part._unmet
        if is_ready:
            self._start(part, run)
        return part

    def _refuse_if_ending(self, part: Part) -> None:
        self._signal.raise_if_aborted()
        if self._failure is not None:  # a moment before the signal says so
            raise TaskAborted(f"task {self.task.label} is asked to end: {self._failure[0]}")
        if self._is_over:
            raise InvalidTransition(f"task {self.task.label} has ended: it takes no {part.kind} any more")

    # Running

    def _start(self, part: Part, run: Run = Part.call) -> None:
        on_loop = self._loop is not None and iscoroutinefunction(part._fn) and run is Part.call
        part._is_on_loop = on_loop
        takes_thread = part.kind == HANDLER and not on_loop
        starts = False
        with self.waiters.lock:
            if self._signal.aborted or self._failure is not None:
                self._drop(part)
            elif takes_thread and self._threads >= HANDLER_THREADS:
                self._ready.append(part)
            else:
                self._threads += takes_thread
                part._has_thread = takes_thread
                part.state = "running"
                starts = True
        if not starts:
            self.waiters.ring()
            return
        self._note(_STARTED, part)
        if on_loop:
            assert self._loop is not None, "asked above"
            self._loop.call_soon_threadsafe(self._begin_on_loop, part, context=part._context)
            return
        name = f"whywait-{part.kind}-{self.task.label}-{part.number}"
        target = part._context.run
        try:
            threading.Thread(target=target, args=(self._run, part, run), name=name, daemon=True).start()
        except RuntimeError as error:  # the system gives no more threads
            self._ended(part, None, error)

    def _run(self, part: Part, run: Run) -> None:
        """Be the thread of a part."""
        in_thread.runner = part
        value, error = None, None
        try:
            try:
                part._thread_id = threading.get_ident()
                if self._is_injected:  # a moment before there was a thread to raise it in
                    raise TaskAborted(f"task {self.task.label} is asked to end: {self._signal.reason}")
                value = run(part)
                if isawaitable(value):
                    value = asyncio.run(self._run_own_loop(part, value))
            finally:
                self._end_interruptions(part)
        except BaseException as raised:
            error = raised
        in_thread.runner = None
        self._ended(part, value, error)

    async def _run_own_loop(self, part: Part, value: Any) -> Any:
        """Await a coroutine in the part's own thread, such that an abort cancels it."""
        self._let_cancel(part)
        try:
            return await value
        finally:
            part._interrupt = None

    def _begin_on_loop(self, part: Part) -> None:
        assert self._loop is not None, "only coroutine tasks come here"
        running = self._loop.create_task(primed(self._run_on_loop(part)))
        self._on_loop.add(running)
        running.add_done_callback(self._on_loop.discard)

    async def _run_on_loop(self, part: Part) -> None:
        value, error = None, None
        try:
            await begun  # cancelled before its first step, it would never report otherwise
            self._let_cancel(part)
            value = await part.call()
        except BaseException as raised:
            error = raised
        self._ended(part, value, error)

    def _let_cancel(self, part: Part) -> None:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None, "a coroutine runs in a task"
        self.let_interrupt(part, lambda: loop.call_soon_threadsafe(task.cancel))

    def let_interrupt(self, part: Part, interrupt: Callable[[], object]) -> None:
        """Call ``interrupt`` when the task should end, at once if it should already."""
        part._interrupt = interrupt
        if self._signal.aborted:
            interrupt()

    def _ended(self, part: Part, value: Any, error: BaseException | None) -> None:
        """Take note of the end of a part, and of what follows from it."""
        is_first = False
        with self.waiters.lock:
            obeyed = self._signal.aborted and isinstance(error, TaskAborted | asyncio.CancelledError)
            part._value, part._error = value, error
            part.state = "succeeded" if error is None else "cancelled" if obeyed else "failed"  # then the rest is there
            part._fn = part._interrupt = None
            part._args = ()
            if part.state == "failed" and self._failure is None:
                assert error is not None, "a failure has its error"
                self._failure = (part.kind, error)
                is_first = True
            ready = self._successors_ready(part) if error is None else []
            if part._has_thread:
                part._has_thread = False
                self._threads -= 1
                if self._ready:
                    ready.append(self._ready.popleft())
        try:
            if is_first:  # at once: the body may see the failure, too
                ask_end(self.task, part.kind)
            self._note(_ENDED, part)
            if is_first:
                self.task.core.interrupt(self.task)
            elif error is not None and part.state == "failed":
                told = shown_error(error)
                self.task.core.log.error("%s %s of task %s failed too: %s", part.kind, part.name, self.task.label, told)
            for each in ready:
                self._start(each)
        finally:
            with self.waiters.lock:  # last of all: until here the task has not ended
                self._alive.pop(part, None)
            self.waiters.ring()

    def _successors_ready(self, part: Part) -> list[Part]:
        for each in part._successors:
            each._unmet -= 1
        ready = [each for each in part._successors if not each._unmet and each.state == "waiting"]
        part._successors = []
        return ready

    def _drop(self, part: Part) -> None:
        """Cancel a part that has not begun; under the lock."""
        self._threads -= part._has_thread
        part._has_thread = False
        part.state = "cancelled"
        part._fn = None
        part._args = ()
        self._alive.pop(part, None)

    def _follow_signal(self) -> None:
        """Once the task should end, cancel the parts that have not begun and interrupt the others where possible."""
        if not self._signal.aborted:
            return
        with self.waiters.lock:
            for part in tuple(each for each in self._alive if each.state == "waiting"):
                self._drop(part)
            self._ready.clear()
            interrupts = tuple(each._interrupt for each in self._alive if each._interrupt is not None)
        for interrupt in interrupts:
            try:
                interrupt()
            except RuntimeError:
                self.task.core.log.debug("a loop of task %s was closed before it could be interrupted", self.task.label)
        self.waiters.ring()

    @property
    def can_kill(self) -> bool:
        """Whether a part runs that is killed if it does not end in time: a worker process."""
        with self.waiters.lock:
            return any(part.can_kill for part in self._alive)

    def close_on_loop(self) -> None:
        """End the parts that are coroutines on an event loop which runs no more; what has not begun never does."""
        self._ask_end()  # first: no part is added any more
        for running in tuple(self._on_loop):
            close(running)
        with self.waiters.lock:  # the loop may have been closed before it came to begin a part
            for part in tuple(part for part in self._alive if part._is_on_loop):
                self._drop(part)
        self.waiters.ring()

    def inject(self) -> None:
        """Raise TaskAborted in every thread of the parts; only where the authority allows that."""
        with self.waiters.lock:
            self._is_injected = True  # first: a part that begins notes its thread, then looks here
            for thread_id in tuple(part._thread_id for part in self._alive if part._thread_id is not None):
                raise_in_thread(thread_id, TaskAborted)

    def _end_interruptions(self, part: Part) -> None:
        """Let no exception come any more, and take one that has come a moment too late for the function."""
        while part._thread_id is not None:
            with contextlib.suppress(TaskAborted):
                with self.waiters.lock:  # from here on none is sent
                    part._thread_id = None
                sleep(0)  # one that was sent comes now at the latest

    # Waiting

    def wait_for(self, part: Part, timeout: float | None) -> None:
        """Block until a part has ended; a handler that waits so takes no thread from the other handlers."""
        waiting = in_thread.runner
        gives_way = isinstance(waiting, Part) and waiting.kind == HANDLER and waiting._parts is self
        if gives_way:
            with self.waiters.lock:
                self._threads -= 1
                ready = self._ready.popleft() if self._ready else None
            if ready is not None:
                self._start(ready)
        try:
            if not self.waiters.wait(part.done, timeout):
                raise TimeoutError(f"{part!r} after {timeout} s of waiting; it goes on")
        finally:
            if gives_way:
                with self.waiters.lock:
                    self._threads += 1

    def finish(self, *, failed: bool) -> Failure | None:
        """Wait in the body's thread until all have ended; return what failed, if anything did."""
        if failed:
            self._ask_end()
        self._patiently(self._handlers_ended)
        self._stop_workers()
        self._patiently(self._all_ended)
        self.close()
        return self._failure

    async def finish_async(self, *, failed: bool) -> Failure | None:
        """Do the same in a coroutine; being cancelled again interrupts the parts again."""
        if failed:
            self._ask_end()
        await self._patiently_async(self._handlers_ended)
        self._stop_workers()
        await self._patiently_async(self._all_ended)
        self.close()
        return self._failure

    def _ask_end(self) -> None:
        """Ask all parts to end, because the body has failed: by the failure of a part, if there is one."""
        failure = self._failure
        ask_end(self.task, FAILED if failure is None else failure[0])

    def close(self) -> None:
        """End the queues, and let nothing be added; parts that still run are asked to end."""
        self._stop_workers()
        with self.waiters.lock:
            self._is_over = True
            mailboxes = tuple(self._mailboxes.values())
        self._signal.unlisten(self._follow_signal)
        for mailbox in mailboxes:
            mailbox.close()

    def _patiently(self, look: Callable[[], bool]) -> None:
        while True:
            try:
                self.waiters.wait(look)
            except TaskAborted:  # injected into the thread: the parts have their signal already
                continue
            return

    async def _patiently_async(self, look: Callable[[], bool]) -> None:
        while True:
            try:
                await self.waiters.wait_async(look)
            except asyncio.CancelledError:
                self._follow_signal()
                continue
            return

    def _handlers_ended(self) -> bool:
        return not any(part.kind == HANDLER for part in self._alive)

    def _all_ended(self) -> bool:
        self._is_over = not self._alive
        return self._is_over

    def _stop_workers(self) -> None:
        with self.waiters.lock:
            wanted = bool(self._alive)
        if wanted:
            ask_end(self.task, ENDED)

    def _note(self, kinds: dict[str, str], part: Part) -> None:
        details: tuple[tuple[str, Any], ...] = ((part.kind, part.number), ("name", part.name))
        if kinds is _ENDED:
            details = (*details, ("state", part.state))
        self.task.core.note(self.task, kinds[part.kind], details)


def parts_of(task: RunningTask) -> Parts:
    """Return the parts of the present attempt, made when they are first needed; raise if its body has ended."""
    signal = signal_of(task)
    with task.core.lock:
        inside = inside_of(task)
        if inside.parts is None:
            state = task.state
            if state not in _ACTIVE:
                raise InvalidTransition(
                    f"task {task.label} is {STATE_WORDS[state]}: no body of it runs that could have queues"
                )
            inside.parts = Parts(task, signal)
            task.attention = True  # so that the engine waits for the parts when the body has ended
        parts: Parts = inside.parts
        return parts


def parts_if_any(task: RunningTask) -> Parts | None:
    """Return the parts that have to end before the task does; None: there are none."""
    inside = task.inside
    return None if inside is None else inside.parts


def finish_parts(task: EndingTask, outcome: Ended) -> Ended:
    """Wait, after the end of a body, for the handlers and workers of its task; return how the task ends."""
    parts = parts_if_any(task)
    if parts is None:
        return outcome
    return _after(task, outcome, parts.finish(failed=outcome[0] != Outcome.SUCCESS))


async def finish_parts_async(task: EndingTask, outcome: Ended) -> Ended:
    """Do the same without blocking the event loop."""
    parts = parts_if_any(task)
    if parts is None:
        return outcome
    return _after(task, outcome, await parts.finish_async(failed=outcome[0] != Outcome.SUCCESS))


def end_parts(task: RunningTask) -> None:
    """Let go of the parts of a task that has ended; what came too late for its engine to wait for is asked to end."""
    inside = task.inside
    if inside is not None and inside.parts is not None:
        parts, inside.parts = inside.parts, None
        parts.close()


def _after(task: EndingTask, outcome: Ended, failure: Failure | None) -> Ended:
    if failure is None or outcome[0] == Outcome.ABORTED:
        return outcome
    cause, error = failure
    return Outcome.ERROR, cause, task.failed(error)[2]


def _loop_of_body(task: RunningTask) -> asyncio.AbstractEventLoop | None:
    """Return the event loop that the body runs on, if it is a coroutine."""
    loop = running_loop()
    if loop is not None and (in_coroutine.get() is task or getattr(task, "loop", None) is loop):
        return loop
    return None
