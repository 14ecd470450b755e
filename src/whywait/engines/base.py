"""The border between the runtime and its engines.

The runtime calls ``start`` with an execution that holds its slot already. The engine carries out its body and reports
the real end of the body once, by ``self.runtime.report``. Until then the runtime may call ``abort`` (let the body
know), ``kill`` (end it by force, where that is possible), ``pause`` and ``resume``. Engines know nothing of priorities,
budgets, retries or dependencies. Every method returns quickly and is called without the lock of the authority.

An engine needs nothing of the runtime but what the two protocols here say: :class:`EngineTask` is what an engine is
given, :class:`Runtime` what it reports to.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping
from contextvars import Context
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

from whywait.kernel.limits import MEASURED
from whywait.support.elsewhere import Fetchable
from whywait.support.usage import Facts, Usage
from whywait.task.parts import finish_parts
from whywait.task.surroundings import NEVER_RAN, SUCCEEDED, Ended, EndingTask, Services, in_thread

if TYPE_CHECKING:
    import asyncio

    from whywait.kernel.reasons import Placement

T = TypeVar("T")

__all__ = ["NEVER_RAN", "SUCCEEDED", "Ended", "Engine", "EngineTask", "Runtime", "call", "run_here"]


class Lendable(Protocol):
    """A lazy resource of a scope: made by the first body that is handed it."""

    def fetch(self) -> Any:
        """Return the value, for bodies in this process; it is made at the first call."""

    def lend_to(self, engine: Engine, /) -> tuple[Callable[[], Any], Callable[[Any], object] | None]:
        """Return what makes it and what closes it elsewhere; with its scope, ``engine.take_back`` is called."""


class EngineTask(EndingTask, Protocol):
    """An execution: one task as an engine is given it."""

    fn: Any  # with the arguments, the body as it was submitted; :meth:`body` has it ready to call
    args: tuple[Any, ...]
    kwargs: dict[str, Any] | None
    context: Context | None  # the context variables of the submitter; None: those of the thread
    value: Any  # to be set by the engine before it reports success
    error: BaseException | None  # kept by :meth:`failed`
    facts: Facts  # what was used, the exit code: set before the report, and part of the end event
    usage_now: Callable[[], Usage] | None  # gives what was used so far, while the body runs
    number: int  # of the present attempt
    attempt: int  # 1, and one more for each retry
    name: str | None  # the id that it was given
    scope: Any  # the kernel's record of its scope
    abort: Any  # why it should end; None while it should not

    @property
    def function(self) -> str | None:
        """The name of its function, if it was given no id."""

    @property
    def demand(self) -> tuple[tuple[str, int], ...]:
        """What it uses of the budget while it runs."""

    @property
    def aborted(self) -> bool:
        """Whether the body has been asked to end; to be looked at if ``attention`` is set."""

    def body(self) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
        """Return the function and its arguments, handles among them replaced by results."""

    def resolved_args(self) -> list[Any]:
        """Return the arguments by position, handles among them replaced by results."""

    def kept_arguments(self) -> list[Any]:
        """Return all arguments, handles among them replaced by their results wherever those are kept."""

    def to_fetch(self) -> list[Fetchable]:
        """Return what among the arguments takes its time: results that have yet to come here, lazy resources."""


class Runtime(Services, Protocol):
    """What an engine reports to."""

    @property
    def settings(self) -> Any:
        """What the authority runs under; engines read its ``limits``, ``budget``, ``grace`` and the like."""

    @property
    def token(self) -> int:
        """The number of the authority in this process; a part of every ref."""

    def report(
        self,
        execution: Any,
        outcome: Ended = SUCCEEDED,
        engine: Engine | None = None,
        later: deque[Any] | None = None,
        /,
    ) -> Any:
        """Report, once, that a body has really ended; its value or error is set.

        With ``engine``, return an execution of this engine that starts in its place, if there is one, for the calling
        thread to go on with. With ``later``, an execution that succeeded is put there: its waiters go on, and its
        callbacks are called, when the engine calls :meth:`tell`.
        """

    def carry_out(self, runner: Any, engine: Any, /) -> None:
        """Run the body of the thread's task and report it, and then the tasks that start in its place."""

    def tell(self, execution: Any, /) -> None:
        """Wake the waiters of an execution that has ended, and call its callbacks."""

    def thread_lost(self, execution: Any, /) -> None:
        """Let the authority fail as a whole (A2): this thread ends by an exception, and with it this task's body."""

    def loop_closed(self, engine: Engine, /) -> None:
        """End the pending tasks of an engine whose event loop has ended."""

    def measured(self, execution: Any, ram: int, /) -> None:
        """Report how many bytes of memory a body uses now."""

    def stopped(self, execution: Any, is_stopped: bool, /) -> None:  # noqa: FBT001 - an EngineTask; the fact
        """Report that the system has stopped the process of a body, or of its client, or that it goes on."""

    def call_later(self, delay_s: float, fn: Callable[[], None], /) -> None:
        """Call ``fn`` on the clock's thread after so many seconds."""

    def resize(self, hard: Mapping[str, int], soft: Mapping[str, int], /) -> None:
        """Set limits that have changed: ``slot``, or the name of a resource."""


class Engine(ABC):
    """Carries out tasks; to write one, see the page "Write an engine" of the documentation."""

    name: ClassVar[str]
    can_kill: ClassVar[bool]  # a body that ignores the signal can be ended by force

    runs_coroutines: ClassVar[bool] = False  # takes coroutine functions itself
    shares_memory: ClassVar[bool] = True  # bodies run in this process: they can be handed what cannot be sent
    makes_lazies: ClassVar[bool] = False  # they do not, and yet can be handed lazy resources: see `lend`
    has_quick_callbacks: ClassVar[bool] = False  # what is called when a task ends keeps no thread from the next one

    runtime: Runtime

    def attach(self, runtime: Runtime) -> None:
        """Belong to an authority from now on."""
        self.runtime = runtime

    def here(self) -> Engine:
        """Return the engine for tasks that this thread submits: this one, unless each event loop has one of its own."""
        return self

    @abstractmethod
    def start(self, execution: EngineTask) -> None:
        """Begin to carry out a task."""

    def start_all(self, executions: list[EngineTask]) -> None:
        """Begin to carry out tasks, in their order."""
        for execution in executions:
            self.start(execution)

    @abstractmethod
    def abort(self, execution: EngineTask) -> None:
        """Let the body know that it should end; its signal is set already."""

    def kill(self, execution: EngineTask) -> None:
        """End the body by force."""

    def withdraw(self, executions: list[EngineTask]) -> list[EngineTask]:  # noqa: ARG002 - for those that can tell
        """Return those of these tasks, which are asked to end, whose bodies have not begun and never will."""
        return []

    def pause(self, execution: EngineTask) -> None:
        """Let the body know that it should park at its next checkpoint; its signal is set already."""

    def resume(self, execution: EngineTask) -> None:
        """Let a parked body go on."""

    def placement(self, execution: EngineTask) -> Placement | None:  # noqa: ARG002 - for those that know
        """Return where a started task is; None: in this process, or on its way."""
        return None

    def teller(self, execution: EngineTask) -> Callable[[int], None] | None:
        """Return a function that reports the memory which a body uses; None if no budget counts it."""
        if MEASURED not in execution.scope.pool.resources:
            return None
        return lambda ram: self.runtime.measured(execution, ram)

    def lend(self, resource: Lendable) -> Any:
        """Return what a body is handed for a lazy resource."""
        return resource.fetch()

    def take_back(self, resource: Lendable) -> None:
        """Close a resource wherever bodies have made it: its scope is DISPOSED."""

    def use_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        """Run coroutines on this loop that threads without a loop submit."""

    @abstractmethod
    def close(self) -> None:
        """Release threads, processes and the like; nothing runs any more."""


def call(context: Context | None, fn: Callable[..., T], args: tuple[Any, ...], kwargs: dict[str, Any]) -> T:
    """Call a function in a context, or in the thread's own."""
    return fn(*args, **kwargs) if context is None else (context or Context()).run(fn, *args, **kwargs)


class _HereRunner:
    """A thread of an engine while it runs one body by :func:`run_here`."""

    __slots__ = ("execution",)

    def __init__(self, execution: EngineTask) -> None:
        self.execution: EngineTask | None = execution


def run_here(execution: EngineTask) -> Ended:
    """Run a body in this thread, then wait for the handlers and workers of its task; return how it has ended.

    ``whywait.current()`` finds the task meanwhile. Whatever the body raises is its outcome.
    """
    if execution.attention and execution.aborted:
        return NEVER_RAN
    before, in_thread.runner = in_thread.runner, _HereRunner(execution)
    try:
        fn, args, kwargs = execution.body()
        execution.value = (execution.context or Context()).run(fn, *args, **kwargs)
        outcome = SUCCEEDED
    except BaseException as error:
        outcome = execution.failed(error)
    try:
        return finish_parts(execution, outcome) if execution.attention else outcome
    finally:
        in_thread.runner = before
