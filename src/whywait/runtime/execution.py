"""Execution: a task of the kernel with its body and what came of it, as the runtime and the engines know it.

``value`` and ``error`` are set by the engine before it reports. ``is_done``, ``waiters`` and ``callbacks`` are guarded
by the core's lock. How a waiter is told:

1. A waiter adds its lock to ``waiters`` unless ``is_done`` is set, under the core's lock.
2. The core sets ``is_done`` under its lock, and releases the waiters' locks after it: no waiter is added between, so
   none is missed.
3. A waiter that times out removes its lock; it may have been released this moment, which does no harm.

What is done under the lock here takes no memory: compiled, the C code of a ``with``, and of a handler that looks at its
exception, crashes where there is none for a traceback.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import Context
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, Protocol

from whywait.engines.base import NEVER_RAN, SUCCEEDED, Ended, Engine, Runtime, call
from whywait.errors import AuthorityBroken, CommandFailed, TaskAborted, TaskDropped, TaskFailed, TaskTimeout
from whywait.kernel.collector import show
from whywait.kernel.durations import Seconds, patience_s
from whywait.kernel.events import Streams
from whywait.kernel.limits import MEASURED, Retry
from whywait.kernel.model import Ref, Task
from whywait.kernel.state import STATE_WORDS, Cause, Outcome
from whywait.runtime.blocking import Blocking
from whywait.runtime.breaking import broken_error
from whywait.runtime.lazy import Lazy
from whywait.support.elsewhere import Elsewhere, Fetchable, fetched
from whywait.support.known import short_name
from whywait.support.logger import Log
from whywait.support.mutex import is_taken_here
from whywait.support.nested import PLAIN, Nest
from whywait.support.raised import cut_traceback, is_one_of, loggable, shown_error, traceback_of
from whywait.support.units import format_size
from whywait.support.usage import Facts, Usage, exit_facts
from whywait.support.waiters import refuse_on_loop
from whywait.task.parts import finish_parts
from whywait.task.signals import AbortSignal
from whywait.task.surroundings import Inside

if TYPE_CHECKING:
    from types import TracebackType

    from whywait.engines.thread import EngineThread, ThreadEngine
    from whywait.observe.explain import Why

_OURS: Final = ("whywait", "whywait.engines", "whywait.runtime")
_SUCCESS: Final = Outcome.SUCCESS
_KILLED: Final = 137  # the exit code of what the system kills for memory


class Waiter(Protocol):
    """A thread or a coroutine that waits for the end of a task: a lock, or what is awaited on an event loop."""

    def release(self) -> None:
        """Let it go on."""


class Owner(Runtime, Protocol):
    """What an execution and its handle ask of the core."""

    def cancel(self, execution: Execution, /) -> None:
        """End a pending task at once, ask a running one to abort."""

    def cancel_pending(self, executions: list[Execution], /) -> None:
        """End those tasks at once that are cancellable."""

    def pause(self, execution: Execution, tell: Callable[[], object], /) -> bool:
        """Pause a task; if it runs, return True and call ``tell`` when it has parked or will not."""

    def resume(self, execution: Execution, /) -> None:
        """Bring a paused task back to where it was."""

    def blocks(self, execution: Execution, wait: Blocking, /) -> None:
        """Record that the body of a task waits for the ends of others."""

    def unblocks(self, execution: Execution, wait: Blocking, waiter: Waiter | None, /) -> bool:
        """Record that it does no more; if it has to wait for its slot, return True and release ``waiter`` then."""

    def why(self, execution: Execution, /) -> Why:
        """Return why a task waits, what it does, or how its wait divided."""

    @property
    def pause_timeout_s(self) -> float:
        """How long a running task may take to its next checkpoint when it is paused."""

    @property
    def broken(self) -> BaseException | None:
        """What has broken the authority, if it is broken."""


class Execution(Task):
    """One task: what the kernel knows of it, its body, and what came of it, through all its attempts.

    It is a kernel's task with more to it, and users hold it as a ``Handle``, the class below it: a task is one object.
    Attributes that few tasks need have class-level defaults and cost nothing where they are not set.
    """

    __slots__ = (
        "args",
        "attention",
        "callbacks",
        "context",
        "core",
        "engine",
        "facts",
        "fn",
        "is_done",
        "kwargs",
        "value",
        "waiters",
    )

    core: Owner
    fn: Any  # this, the arguments and the context are let go at the end
    args: tuple[Any, ...]  # handles among them are executions here, inside containers too (Nest)
    context: Context | None
    engine: Engine
    is_done: bool  # outcome, value and error are final
    callbacks: list[tuple[Callable[[Any], object], Any]] | None  # called with that at the end, after the waiters
    waiters: list[Waiter] | None  # released at the end
    value: Any

    facts: Facts  # what the engine tells with the end of the present attempt
    attention: bool  # an abort or a pause is asked for, or the task has parts
    kwargs: dict[str, Any] | None  # None: the arguments are as they were given

    blocked_for: tuple[Blocking, ...] = ()  # its waits for the ends of others
    returning: tuple[Waiter, ...] = ()  # released when its body may go on after such a wait
    cancel_with_awaiter: bool = False
    error: BaseException | None = None
    signal: AbortSignal | None = None
    usage_now: Callable[[], Usage] | None = None  # gives what was used so far, while the body runs
    inside: Inside | None = None  # set with the first stream, handler or worker
    unseen: Unseen | None = None  # set with a final error

    # What it is

    @property
    def ref(self) -> Ref:
        """The identity of the present (or last) attempt."""
        return Ref(self.number, self.scope.key, self.core.token)

    @property
    def given_name(self) -> str | None:
        """The id that it was given; None: it has a generated one."""
        return self.name

    @property
    def aborted(self) -> bool:
        """Whether the body has been asked to end."""
        return self.signal is not None and self.signal.aborted

    @property
    def is_cancellable(self) -> bool:
        """Whether the task can be ended at once, without asking a body."""
        return not self.is_done and self.pending

    # Its body

    def body(self) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
        """Return the function and its arguments, handles among them replaced by results."""
        kwargs = self.kwargs
        if kwargs is None:
            return self.fn, self.args, {}
        return self.fn, tuple(self.resolved_args()), {key: self._resolved(kwargs[key]) for key in kwargs}

    def resolved_args(self) -> list[Any]:
        """Return the arguments by position, handles among them replaced by results."""
        return [arg if arg.__class__ in PLAIN else self._resolved(arg) for arg in self.args]

    def kept_arguments(self) -> list[Any]:
        """Return all arguments, handles among them replaced by their results wherever those are kept."""
        values = (*self.args, *(self.kwargs or {}).values())
        return [value.value if isinstance(value, Execution) else self._resolved(value) for value in values]

    def _resolved(self, value: Any) -> Any:
        """Return an argument as the body gets it: results in the place of handles, what is lent in that of lazies."""
        if isinstance(value, Execution):
            result = value.value
            return result if result.__class__ in PLAIN else fetched(result)
        if isinstance(value, Lazy):
            return self.engine.lend(value)
        return value.filled(self._resolved) if isinstance(value, Nest) else value

    def to_fetch(self) -> list[Fetchable]:
        """Return what among the arguments takes its time: results that have yet to come here, lazy resources."""
        values = (*self.args, *(self.kwargs or {}).values())
        inside = (each for value in values for each in (value.things if isinstance(value, Nest) else (value,)))
        results = (each.value if isinstance(each, Execution) else each for each in inside)
        return [each for each in results if isinstance(each, Elsewhere | Lazy)]

    # Its end

    def failed(self, error: BaseException) -> Ended:
        """Keep what the body raised; return outcome, cause and whether it may be retried."""
        self.error = error
        retry = self.policy.retry
        return Outcome.ERROR, Cause.EXCEPTION, retry is not None and _is_retried(error, retry, self, self.core.log)

    def note_failure(self) -> None:
        """Make the error of a task that ended otherwise than in success final, before ``is_done`` is set."""
        if self.outcome is Outcome.ERROR:
            if self.abort is not None:  # for the memory that it used
                error = TaskFailed(f"task {self.label} ended as {self.outcome} ({self.cause}): {_overdrawn(self)}")
                error.__cause__ = self.error
                self.error = error
            elif self.error is None:
                self.error = TaskFailed(f"task {self.label} ended as {self.outcome} ({self.cause})")
            self.unseen = Unseen(self.label, self.error, self.core.log)
        else:
            self.error = None

    def begin_again(self) -> None:
        """Forget what belonged to the attempt before this one."""
        self.error = self.signal = None
        self.attention = False
        if self.inside is not None:
            self.inside.parts = None
        if self.facts or self.usage_now is not None:
            self.facts, self.usage_now = (), None

    def opened_streams(self) -> Streams:
        """Return the streams that producers have opened, with the number of their chunks so far."""
        streams = {} if self.inside is None else self.inside.streams
        return tuple((name, stream.count) for name, stream in streams.items() if stream.is_open)

    def mark_seen(self) -> None:
        """Note that the error, if there is one, need not be logged."""
        if self.unseen is not None:
            self.unseen.seen = True

    def failure(self) -> BaseException:
        """Return the error that a handle raises for a task without a result."""
        self.mark_seen()
        if self.cause == Cause.AUTHORITY_BROKEN:
            return AuthorityBroken(f"task {self.label} has not ended: {broken_error(self.core)}")
        if self.error is not None:
            return self.error
        policy = self.policy
        ended = f"task {self.label} ended as {self.outcome} ({self.cause})"
        if self.outcome is Outcome.TIMEOUT:
            return TaskTimeout(f"{ended}: it ran longer than its timeout of {(policy.timeout_ns or 0) / 1e9:g} s")
        if self.outcome is Outcome.REJECTED:
            limit = f" (max_wait {(policy.max_wait_ns or 0) / 1e9:g} s)" if self.cause == Cause.MAX_WAIT else ""
            return TaskDropped(f"{ended}: it was dropped before it could start{limit}")
        root = f" of {self.root!r}" if self.cause == Cause.DEPENDENCY else ""
        return TaskAborted(f"{ended}{': the end' + root + ' took it down' if root else ''}")

    # Waiting for its end

    def wait(self, timeout: float | None) -> None:
        """Block until the final outcome is there; TimeoutError after the timeout."""
        refuse_on_loop("result()", "await handle")
        waiter = Lock()
        waiter.acquire()
        if not self.add_waiter(waiter):
            return
        blocking = None
        try:
            blocking = Blocking((self,))
            if waiter.acquire(timeout=-1 if timeout is None else max(0.0, timeout)):
                return
        finally:
            if blocking is not None:
                blocking.end()
            self.remove_waiter(waiter)
        raise TimeoutError(f"task {self.label} is {STATE_WORDS[self.state]} after {timeout} s of waiting; it goes on")

    def add_waiter(self, waiter: Waiter) -> bool:
        """Release ``waiter`` when the final outcome is there; return False if it is."""
        alone, lock = [waiter], self.core.lock
        try:  # no `with`: to leave it, interpreted, takes memory
            lock.acquire()
            if self.is_done:
                return False
            if self.waiters is None:
                self.waiters = alone
            else:
                self.waiters.append(waiter)
            return True
        finally:
            if is_taken_here(lock):
                lock.release()

    def remove_waiter(self, waiter: Waiter) -> None:
        """Release ``waiter`` no more."""
        lock = self.core.lock
        try:
            lock.acquire()
            waiters = self.waiters  # looked up once: the end sets it to None, without the lock
            if waiters is not None and waiter in waiters:
                waiters.remove(waiter)
        finally:
            if is_taken_here(lock):
                lock.release()

    def when_done(self, fn: Callable[[Any], object], handle: Any) -> None:
        """Call ``fn`` with the handle when the final outcome is there; at once if it is. An error in it is logged."""
        alone = [(fn, handle)]
        with self.core.lock:
            if not self.is_done:
                if self.callbacks is None:
                    self.callbacks = alone
                else:
                    self.callbacks += alone
                return
        self._call(fn, handle)

    def ends_with(self, end: Callable[[], object]) -> None:
        """Call ``end`` when the final outcome is there, before the callbacks of users; at once if it is."""
        with self.core.lock:
            if not self.is_done:
                self.callbacks = [(_end, end), *(self.callbacks or ())]
                return
        end()

    def forget_callback(self, fn: Callable[[Any], object]) -> int:
        """Take back all that :meth:`when_done` was told to call ``fn`` for; return how many those were."""
        with self.core.lock:
            before = self.callbacks
            if before is None or self.is_done:  # they are called without the lock: it is too late
                return 0
            kept = list(filter(lambda each: each[0] != fn, before))
            self.callbacks = kept or None
            return len(before) - len(kept)

    def run_callbacks(self) -> None:
        """Call the callbacks, once."""
        callbacks, self.callbacks = self.callbacks, None
        for fn, handle in callbacks or ():
            self._call(fn, handle)

    def _call(self, fn: Callable[[Any], object], handle: Any) -> None:
        try:
            fn(handle)
        except BaseException as error:  # noqa: BLE001 - as above
            self._callback_failed(error)

    def _callback_failed(self, error: BaseException) -> None:
        self.core.log.error("a done callback of task %s failed", self.label, exc_info=loggable(error))


def set_up(
    execution: Execution,
    core: Owner,
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    context: Context | None,
    engine: Engine,
) -> None:
    """Give a new execution its call; it is no ``__init__``, which takes twice the time before Python 3.13."""
    execution.core = core
    execution.fn = fn
    try:
        execution.called = fn.__name__
    except AttributeError:
        execution.called = short_name(fn)
    execution.args = args
    execution.context = context
    execution.engine = engine
    execution.attention = execution.is_done = False
    execution.kwargs = execution.callbacks = execution.waiters = execution.value = None
    execution.facts = ()


def run_body(
    execution: Execution, runner: EngineThread, engine: ThreadEngine, caller: Callable[[Execution], object] | None
) -> Ended:
    """Run a body in this thread and wait for the parts of its task; return how the task has ended.

    ``caller`` calls it if there is one, else it is called here: between it and an error's traceback is nothing of ours.
    """
    if execution.attention and execution.aborted:
        return NEVER_RAN
    context = execution.context
    try:
        if caller is not None:
            caller(execution)
        elif execution.kwargs is not None or context is None:
            execution.value = call(context, *execution.body())
        else:
            if not context:
                if runner.empty:
                    runner.empty = Context()
                context = runner.empty
            if execution.args:
                execution.value = context.run(execution.fn, *execution.args)
            else:  # a star costs as much as the rest of the call
                execution.value = context.run(execution.fn)
        outcome = SUCCEEDED
    except BaseException as error:  # noqa: BLE001 - whatever the body raises is its outcome
        cut_traceback(error, _within_body(traceback_of(error)))
        outcome = engine.failed(execution, error)
    try:
        return finish_parts(execution, outcome) if execution.attention else outcome  # there may be more than the body
    finally:
        del execution, runner, engine  # an error's traceback leads to this frame, and an execution to its error


def result_of(execution: Execution, timeout: Seconds | None) -> Any:
    """Wait for the result of a task and return it; raise what the task raised, or why it has none."""
    if not execution.is_done:
        execution.wait(patience_s(timeout))
    if execution.outcome is _SUCCESS:
        value = execution.value
        return value if value is None else fetched(value)
    raise execution.failure()


def drop_body(execution: Execution) -> None:
    """Keep nothing of a body alive: it has ended, or will never run."""
    execution.fn = execution.context = execution.kwargs = None
    execution.args = ()
    show(execution)


def release_waiters(execution: Execution) -> None:
    """Let everything go on that waits for a final outcome, then call the callbacks; outside the lock."""
    waiters = execution.waiters
    if waiters is not None:
        for waiter in tuple(waiters):  # a waiter that times out removes its lock
            waiter.release()
        execution.waiters = None
    if execution.callbacks is not None:
        execution.run_callbacks()


class Unseen:
    """Logs an error that was never looked at, when the last reference to its handle goes."""

    __slots__ = ("error", "label", "log", "seen")

    def __init__(self, label: str, error: BaseException, log: Log) -> None:
        """Watch over the error of a task."""
        self.label = label
        self.error = error
        self.log = log
        self.seen = False

    def __del__(self) -> None:
        """Log the error, and where it was raised, if it was never seen.

        No traceback is formatted: that parses source code, which a finaliser must not do in the midst of a parse.
        """
        if not self.seen:
            told = shown_error(self.error)
            self.log.error("task %s failed and nobody looked: %s, raised %s", self.label, told, _place(self.error))


def _within_body(traceback: TracebackType | None) -> TracebackType | None:
    """Return the part of a traceback that begins with the body."""
    while traceback is not None and traceback.tb_frame.f_globals.get("__package__") in _OURS:
        traceback = traceback.tb_next
    return traceback


def _end(end: Callable[[], object]) -> None:
    """Be the callback of an ending of the runtime's own."""
    end()


def _place(error: BaseException) -> str:
    traceback = traceback_of(error)
    if traceback is None:
        return "elsewhere"
    while traceback.tb_next is not None:
        traceback = traceback.tb_next
    return f"at {traceback.tb_frame.f_code.co_filename}:{traceback.tb_lineno}"


def _is_retried(error: BaseException, retry: Retry, task: Task, log: Log) -> bool:
    """Return whether a retry is meant for an error."""
    if not retry.on_exit:
        return is_one_of(error, retry.on, log)
    if task.abort is not None and task.abort[1] == Cause.OUT_OF_MEMORY:
        return _KILLED in retry.on_exit  # as if the system had done it, whatever signal it heeded
    return isinstance(error, CommandFailed) and dict(exit_facts(error.returncode))["exit_code"] in retry.on_exit


def _overdrawn(task: Task) -> str:
    asked = dict(task.demand).get(MEASURED, 0)
    return f'it used more memory than the {format_size(asked)} that it had asked for, and overdraft is "kill"'
