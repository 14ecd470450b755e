"""The crew of a running task: its handlers, which form a graph, and its workers, which serve it.

All of them belong to one attempt of the task, run on threads of their own (coroutine functions of a coroutine task:
on its event loop; workers, if asked for: in processes) and take no slot. The first that fails fails the task: the
task's signal fires, who has not begun never does, and the error is the task's. When the body has ended the task waits
for its handlers; then the signal fires for the workers, and the task ends when the last of them has.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable
from contextvars import copy_context
from inspect import isawaitable, iscoroutinefunction
from time import sleep
from typing import TYPE_CHECKING, Any, Final

from whywait.errors import ConfigError, InvalidTransition, TaskAborted
from whywait.kernel.events import Kind
from whywait.lazy import asyncio, running_loop
from whywait.mailbox import Mailbox
from whywait.raised import shown_error
from whywait.signals import AbortSignal, ask_end, in_coroutine, in_thread, raise_in_thread
from whywait.waiters import Waiters, refuse_on_loop

if TYPE_CHECKING:
    from whywait.handle import Handle

log = logging.getLogger("whywait")

HANDLER: Final = "handler"
WORKER: Final = "worker"
ENDED: Final = "ended"  # the reason that workers see when all else of the task has ended
FAILED: Final = "exception"  # the reason that the crew sees when the body has failed
HANDLER_THREADS: Final = 32  # of one task at a time; who waits for another handler does not count
_STARTED: Final = {HANDLER: Kind.HANDLER_STARTED, WORKER: Kind.WORKER_STARTED}
_ENDED: Final = {HANDLER: Kind.HANDLER_ENDED, WORKER: Kind.WORKER_ENDED}

Run = Callable[["Member"], Any]
Failure = tuple[str, BaseException]  # the cause code, the error


class Member:
    """A handler or a worker of a running task, to be waited for."""

    def __init__(self, crew: Crew, kind: str, number: int, fn: Callable[..., Any], args: tuple[Any, ...]) -> None:
        """Made by ``ctx.handler`` and ``ctx.spawn`` only."""
        self._crew = crew
        self.inbox: Handle[Any] | None = crew.handle  # what `current()` finds on its thread
        self.kind = kind
        self.number = number  # counted within the task
        self.name: str = getattr(fn, "__qualname__", type(fn).__name__)
        self.state = "waiting"  # then running, then succeeded, failed or cancelled
        self._fn: Any = fn
        self._args = args
        self._value: Any = None
        self._error: BaseException | None = None
        self._unmet = 0
        self._successors: list[Member] = []
        self._context = copy_context()
        self._interrupt: Callable[[], object] | None = None  # ends it from outside, if that is possible
        self._thread_id: int | None = None  # of the thread that runs it

    def done(self) -> bool:
        """Return whether it has ended."""
        return self.state in {"succeeded", "failed", "cancelled"}

    def result(self, timeout: float | None = None) -> Any:  # noqa: ANN401 - what the function returned
        """Wait for its result and return it; raise what it raised, or TaskAborted if it was cancelled."""
        if not self.done():
            refuse_on_loop("result() of a handler or worker", "await it")
            self._crew.wait_for(self, timeout)
        return self._outcome()

    def __await__(self) -> Generator[Any, None, Any]:
        """Wait on the running event loop."""
        yield from self._crew.waiters.wait_async(self.done).__await__()
        return self._outcome()

    def __repr__(self) -> str:
        """Show what it is and how it stands."""
        return f"<{self.kind} {self.number} {self.name} {self.state}>"

    def call(self) -> Any:  # noqa: ANN401 - what the function returns
        """Call the function; members among its arguments are replaced by their results."""
        return self._fn(*self.arguments())

    def arguments(self) -> tuple[Any, ...]:
        """Return the arguments, members among them replaced by their results."""
        return tuple(value._value if isinstance(value, Member) else value for value in self._args)

    def _outcome(self) -> Any:  # noqa: ANN401 - what the function returned
        if self.state == "succeeded":
            return self._value
        if self._error is not None:
            raise self._error
        raise TaskAborted(f"{self.kind} {self.number} ({self.name}) was cancelled")


class Crew:
    """The handlers and workers of one attempt of one task."""

    def __init__(self, handle: Handle[Any], signal: AbortSignal) -> None:
        """Start with nobody; made at the first use."""
        self.handle = handle
        self._signal = signal
        self.waiters = Waiters()
        self._loop = _loop_of_body(handle)
        self._alive: dict[Member, None] = {}
        self._threads = 0  # of handlers
        self._ready: deque[Member] = deque()  # handlers that wait for a thread
        self._numbers = itertools.count(1)
        self._mailboxes: dict[str, Mailbox] = {}
        self._on_loop: set[asyncio.Task[None]] = set()  # a loop itself keeps its tasks only weakly
        self._failure: Failure | None = None
        self._is_over = False
        signal.listen(self._follow_signal)

    # In

    def add_handler(self, fn: Callable[..., Any], args: tuple[Any, ...], after: Iterable[Any]) -> Member:
        """Add a handler that runs after others of this task."""
        before = [*after, *(value for value in args if isinstance(value, Member))]
        for each in before:
            if not isinstance(each, Member) or each._crew is not self:
                raise ConfigError(f"a handler comes after handlers of the same task, not after {each!r}")
        return self._add(HANDLER, fn, args, dict.fromkeys(before), Member.call)

    def add_worker(self, fn: Callable[..., Any], args: tuple[Any, ...], run: Run = Member.call) -> Member:
        """Start a worker."""
        return self._add(WORKER, fn, args, (), run)

    def mailbox(self, name: str, limit: int) -> Mailbox:
        """Return the queue of a name, made at its first use."""
        with self.waiters.lock:
            mailbox = self._mailboxes.get(name)
            if mailbox is None:
                mailbox = self._mailboxes[name] = Mailbox(name, limit)
            return mailbox

    def _add(
        self, kind: str, fn: Callable[..., Any], args: tuple[Any, ...], before: Iterable[Member], run: Run
    ) -> Member:
        if not callable(fn):
            raise ConfigError(f"a {kind} is a function, not {fn!r}")
        with self.waiters.lock:
            self._signal.raise_if_aborted()
            if self._failure is not None:  # a moment before the signal says so
                raise TaskAborted(f"task {self.handle.id} is asked to end: {self._failure[0]}")
            if self._is_over:
                raise InvalidTransition(f"task {self.handle.id} has ended: it takes no {kind} any more")
            member = Member(self, kind, next(self._numbers), fn, args)
            self._alive[member] = None
            for each in before:
                if not each.done():
                    each._successors.append(member)
                    member._unmet += 1
            is_ready = not member._unmet
        if is_ready:
            self._start(member, run)
        return member

    # Running

    def _start(self, member: Member, run: Run = Member.call) -> None:
        on_loop = self._loop is not None and iscoroutinefunction(member._fn) and run is Member.call
        takes_thread = member.kind == HANDLER and not on_loop
        starts = False
        with self.waiters.lock:
            if self._signal.aborted or self._failure is not None:
                self._drop(member)
            elif takes_thread and self._threads >= HANDLER_THREADS:
                self._ready.append(member)
            else:
                self._threads += takes_thread
                member.state = "running"
                starts = True
        if not starts:
            self.waiters.ring()
            return
        self._note(_STARTED, member)
        if on_loop:
            assert self._loop is not None, "asked above"
            self._loop.call_soon_threadsafe(self._begin_on_loop, member, context=member._context)
            return
        name = f"whywait-{member.kind}-{self.handle.id}-{member.number}"
        target = member._context.run
        try:
            threading.Thread(target=target, args=(self._run, member, run), name=name, daemon=True).start()
        except RuntimeError as error:  # the system gives no more threads
            self._ended(member, None, error, had_thread=takes_thread)

    def _run(self, member: Member, run: Run) -> None:
        """Be the thread of a member."""
        in_thread.worker = member
        value, error = None, None
        try:
            try:
                member._thread_id = threading.get_ident()
                value = run(member)
                if isawaitable(value):
                    value = asyncio.run(self._run_own_loop(member, value))
            finally:
                self._end_interruptions(member)
        except BaseException as raised:  # noqa: BLE001 - whatever it raises is its outcome
            error = raised
        in_thread.worker = None
        self._ended(member, value, error, had_thread=member.kind == HANDLER)

    async def _run_own_loop(self, member: Member, value: Any) -> Any:  # noqa: ANN401 - an awaitable, its result
        """Await a coroutine in the member's own thread, such that an abort cancels it."""
        self._let_cancel(member)
        try:
            return await value
        finally:
            member._interrupt = None

    def _begin_on_loop(self, member: Member) -> None:
        assert self._loop is not None, "only coroutine tasks come here"
        task = self._loop.create_task(self._run_on_loop(member))
        self._on_loop.add(task)
        task.add_done_callback(self._on_loop.discard)

    async def _run_on_loop(self, member: Member) -> None:
        value, error = None, None
        self._let_cancel(member)  # from its first step on: cancelled before, it would never report
        try:
            value = await member.call()
        except BaseException as raised:  # noqa: BLE001 - whatever it raises is its outcome
            error = raised
        self._ended(member, value, error, had_thread=False)

    def _let_cancel(self, member: Member) -> None:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None, "a coroutine runs in a task"
        self.let_interrupt(member, lambda: loop.call_soon_threadsafe(task.cancel))

    def let_interrupt(self, member: Member, interrupt: Callable[[], object]) -> None:
        """Call ``interrupt`` when the task should end, at once if it should already."""
        member._interrupt = interrupt
        if self._signal.aborted:
            interrupt()

    def _ended(self, member: Member, value: Any, error: BaseException | None, *, had_thread: bool) -> None:  # noqa: ANN401 - any result
        """Take note of the end of a member, and of what follows from it."""
        is_first = False
        with self.waiters.lock:
            obeyed = self._signal.aborted and isinstance(error, TaskAborted | asyncio.CancelledError)
            member.state = "succeeded" if error is None else "cancelled" if obeyed else "failed"
            member._value, member._error = value, error
            member._fn = member._interrupt = None
            member._args = ()
            if member.state == "failed" and self._failure is None:
                assert error is not None, "a failure has its error"
                self._failure = (member.kind, error)
                is_first = True
            ready = self._successors_ready(member) if error is None else []
            if had_thread:
                self._threads -= 1
                if self._ready:
                    ready.append(self._ready.popleft())
        self._note(_ENDED, member)
        if is_first:
            ask_end(self.handle, member.kind)
            self.handle._authority.interrupt(self.handle)
        elif error is not None and member.state == "failed":
            log.error("%s %s of task %s failed too: %s", member.kind, member.name, self.handle.id, shown_error(error))
        for each in ready:
            self._start(each)
        with self.waiters.lock:  # last of all: until here the task has not ended
            self._alive.pop(member, None)
        self.waiters.ring()

    def _successors_ready(self, member: Member) -> list[Member]:
        for each in member._successors:
            each._unmet -= 1
        ready = [each for each in member._successors if not each._unmet and each.state == "waiting"]
        member._successors = []
        return ready

    def _drop(self, member: Member) -> None:
        """Cancel who has not begun; under the lock."""
        member.state = "cancelled"
        member._fn = None
        member._args = ()
        self._alive.pop(member, None)

    def _follow_signal(self) -> None:
        """Cancel who has not begun and interrupt who can be, once the task should end."""
        if not self._signal.aborted:
            return
        with self.waiters.lock:
            for member in [each for each in self._alive if each.state == "waiting"]:
                self._drop(member)
            self._ready.clear()
            interrupts = [each._interrupt for each in self._alive if each._interrupt is not None]
        for interrupt in interrupts:
            try:
                interrupt()
            except RuntimeError:
                log.debug("a loop of task %s was closed before it could be interrupted", self.handle.id)
        self.waiters.ring()
        for mailbox in tuple(self._mailboxes.values()):
            mailbox.waiters.ring()

    def inject(self) -> None:
        """Raise TaskAborted in every thread of the crew, where the authority allows that."""
        with self.waiters.lock:
            for member in self._alive:
                if member._thread_id is not None:
                    raise_in_thread(member._thread_id, TaskAborted)

    def _end_interruptions(self, member: Member) -> None:
        """Let no exception come any more, and take one that has come a moment too late for the function."""
        while member._thread_id is not None:
            with contextlib.suppress(TaskAborted):
                with self.waiters.lock:  # from here on none is sent
                    member._thread_id = None
                sleep(0)  # one that was sent comes now at the latest

    # Waiting

    def wait_for(self, member: Member, timeout: float | None) -> None:
        """Block until a member has ended; who waits so in a handler takes no thread from the others."""
        waiting = in_thread.worker
        gives_way = isinstance(waiting, Member) and waiting.kind == HANDLER and waiting._crew is self
        if gives_way:
            with self.waiters.lock:
                self._threads -= 1
                ready = self._ready.popleft() if self._ready else None
            if ready is not None:
                self._start(ready)
        try:
            if not self.waiters.wait(member.done, timeout):
                raise TimeoutError(f"{member!r} after {timeout} s of waiting; it goes on")
        finally:
            if gives_way:
                with self.waiters.lock:
                    self._threads += 1

    def finish(self, *, failed: bool) -> Failure | None:
        """Wait in the body's thread until all have ended; return what failed, if anything did."""
        if failed:
            ask_end(self.handle, FAILED)
        self._patiently(self._handlers_ended)
        self._stop_workers()
        self._patiently(self._all_ended)
        self._signal.unlisten(self._follow_signal)
        return self._failure

    async def finish_async(self, *, failed: bool) -> Failure | None:
        """Do the same in a coroutine; being cancelled again interrupts the members again."""
        if failed:
            ask_end(self.handle, FAILED)
        await self._patiently_async(self._handlers_ended)
        self._stop_workers()
        await self._patiently_async(self._all_ended)
        self._signal.unlisten(self._follow_signal)
        return self._failure

    def _patiently(self, look: Callable[[], bool]) -> None:
        while True:
            try:
                self.waiters.wait(look)
            except TaskAborted:  # injected into the thread: the members have their signal already
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
        return not any(member.kind == HANDLER for member in self._alive)

    def _all_ended(self) -> bool:
        self._is_over = not self._alive
        return self._is_over

    def _stop_workers(self) -> None:
        with self.waiters.lock:
            wanted = bool(self._alive)
        if wanted:
            ask_end(self.handle, ENDED)

    def _note(self, kinds: dict[str, str], member: Member) -> None:
        details: tuple[tuple[str, Any], ...] = ((member.kind, member.number), ("name", member.name))
        if kinds is _ENDED:
            details = (*details, ("state", member.state))
        self.handle._authority.note(self.handle, kinds[member.kind], details)


def _loop_of_body(handle: Handle[Any]) -> asyncio.AbstractEventLoop | None:
    """Return the event loop that the body runs on, if it is a coroutine."""
    loop = running_loop()
    if loop is not None and (in_coroutine.get() is handle or getattr(handle, "loop", None) is loop):
        return loop
    return None
