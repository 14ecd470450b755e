"""One event loop as an engine: coroutines that were submitted from it are tasks of it.

A task that ends on the loop starts the next one right there; from other threads the loop is woken once for a batch.
Since Python 3.12 the first step of a coroutine is made at once, where it is begun: so one that never waits costs no
turn of the loop. One that is begun in the midst of such a step comes after it, and after a number of them the loop has
its turn.

When the loop ends, what it has is ended as ``loop_closed`` (T2). How that is noticed, step by step:

1. ``asyncio.run`` cancels all tasks of its loop before it closes the loop. A body that is cancelled, and not by
   whywait, looks for a task of the loop that is not. If there is none, the loop is about to end: what has not started
   is ended before the body is reported, else it would begin on a loop that will not run for long. The loop looks as
   well before it begins what other threads have posted.
2. Every coroutine that does not begin at once is primed: cancelled before its first step it would never report.
3. A loop that is closed forgets its timers. One of them is the only reference to a guard. The guard's finaliser ends
   all that the loop still has, bodies in the midst of an ``await`` too: they could never go on.
4. Posting to a closed loop raises; whatever is posted after step 3 is ended by that.

A loop that was stopped may be run again, so its tasks stay as they are until it is run or closed.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from asyncio import _get_running_loop as running_loop
from asyncio import current_task
from collections import deque
from collections.abc import Callable
from contextvars import Context
from inspect import isawaitable
from types import CoroutineType
from typing import Any, ClassVar, Final
from weakref import ref

from whywait.engines.base import NEVER_RAN, SUCCEEDED, Ended, Engine, EngineTask
from whywait.errors import WhywaitError
from whywait.kernel.state import Cause, Outcome
from whywait.support.coroutines import begun, close, is_cancelled, primed
from whywait.support.waiters import call_on
from whywait.task.parts import finish_parts, finish_parts_async, parts_if_any
from whywait.task.surroundings import in_coroutine

LOOP_CLOSED: Final[Ended] = (Outcome.ABORTED, Cause.LOOP_CLOSED, False)
CANCELLED: Final[Ended] = (Outcome.ABORTED, Cause.CANCELLED, False)
FAR_S: Final = 10 * 365 * 24 * 3600.0
IS_EAGER: Final = sys.version_info >= (3, 12)  # the first step of a coroutine can be made at once
AT_ONCE: Final = 100  # so many, before other tasks of the loop have their turn


class LoopEngine(Engine):
    """Runs coroutine functions on one event loop; plain functions too, but those block it."""

    name: ClassVar[str] = "asyncio"
    can_kill: ClassVar[bool] = True
    runs_coroutines: ClassVar[bool] = True

    def __init__(self) -> None:
        """Start without a loop."""
        self.loop: Callable[[], asyncio.AbstractEventLoop | None] = _no_loop  # a weak reference: see step 3
        self._guard: Callable[[], asyncio.TimerHandle | None] = _no_loop
        self._posted: deque[EngineTask] = deque()
        self._woken = False  # the loop will look at what is posted
        self._due: deque[EngineTask] = deque()  # to be begun by the call that begins one just now
        self._is_beginning = False
        self._tasks: dict[EngineTask, asyncio.Task[None]] = {}  # those that have begun
        self._closing: set[EngineTask] = set()  # those whose coroutine is being closed
        self._witness: Callable[[], asyncio.Task[Any] | None] = _no_loop  # a task of the loop that was not cancelled
        self._is_ending = False  # all were, and what had not begun is ended; nothing has begun since

    def watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Belong to a loop, and learn when it is closed."""
        self.loop = ref(loop)
        call_on(loop, self._set_guard, _Guard(self))

    def start(self, execution: EngineTask) -> None:
        """Make a task of the coroutine, on the loop."""
        loop = running_loop()
        if loop is not None and loop is self.loop():
            self._begin(loop, execution)
            return
        self._posted.append(execution)
        if not self._woken:
            self.wake_loop()

    def wake_loop(self) -> None:
        """Have the loop begin what is posted; once too often does no harm."""
        self._woken = True
        loop = self.loop()
        try:
            if loop is None:
                self.end()
            else:
                loop.call_soon_threadsafe(self._begin_all)
        except RuntimeError:  # it is closed
            self.end()

    def abort(self, execution: EngineTask) -> None:
        """Cancel the asyncio task."""
        loop = self.loop()
        if loop is not None:
            call_on(loop, self._cancel, execution, execution.number)

    def kill(self, execution: EngineTask) -> None:
        """Cancel again, in case the body has swallowed it; if the loop does not run, close the coroutine."""
        loop, task = self.loop(), self._tasks.get(execution)
        if loop is not None and task is not None and not loop.is_running():
            self._close(execution, task)
            return
        self.abort(execution)
        self.runtime.call_later(self.runtime.settings.grace, lambda: self._kill_again(execution))

    def close(self) -> None:
        """Watch the loop no longer."""
        loop, timer = self.loop(), self._guard()
        if loop is not None and timer is not None:
            call_on(loop, timer.cancel)

    def end(self) -> None:
        """End all that the loop has: it is closed."""
        self._woken = self._is_ending = False
        try:
            self._end_waiting()
        except WhywaitError:  # a finaliser, in the midst of a command
            self.runtime.call_later(0.0, self.end)
            return
        for execution, task in list(self._tasks.items()):
            self._close(execution, task)

    def _set_guard(self, guard: _Guard) -> None:
        self._guard = ref(asyncio.get_running_loop().call_later(FAR_S, guard))

    def _end_waiting(self) -> None:
        """End what has not begun, once."""
        posted = self._posted
        if not self._is_ending:
            self._is_ending = True
            self.runtime.loop_closed(self)
        while posted:
            self.runtime.report(posted.popleft(), LOOP_CLOSED)

    def _kill_again(self, execution: EngineTask) -> None:
        if execution in self._tasks:
            self.kill(execution)

    def _cancel(self, execution: EngineTask, number: int) -> None:
        """Cancel an attempt; it may have ended, and the next one begun, before the loop came to this."""
        task = self._tasks.get(execution)
        if task is not None and execution.number == number:
            task.cancel()

    def _close(self, execution: EngineTask, task: asyncio.Task[None]) -> None:
        """End a body that cannot go on, because its loop does not run."""
        self._closing.add(execution)
        close(task)
        self._closing.discard(execution)
        if self._tasks.pop(execution, None) is None:
            return  # the loop has run it to its end meanwhile
        parts = parts_if_any(execution)
        if parts is None:
            self.runtime.report(execution, LOOP_CLOSED)
            return
        parts.close_on_loop()
        threading.Thread(target=self._finish, args=(execution,), name="whywait-closing", daemon=True).start()

    def _finish(self, execution: EngineTask) -> None:
        """Report a body that was closed, after the workers and handlers that are left of its task."""
        self.runtime.report(execution, finish_parts(execution, LOOP_CLOSED))

    def _begin_all(self) -> None:
        self._woken = False
        if self._ends():
            self._end_waiting()
        posted, loop = self._posted, asyncio.get_running_loop()
        while posted and not self._woken:  # else the loop will look again
            self._begin(loop, posted.popleft())

    def _begin(self, loop: asyncio.AbstractEventLoop, execution: EngineTask) -> None:
        self._is_ending = False
        due = self._due
        due.append(execution)
        if self._is_beginning:  # further down this stack
            return
        self._is_beginning = True
        try:
            for _ in range(AT_ONCE):
                self._make_task(loop, due.popleft())
                if not due:
                    return
        finally:
            self._is_beginning = False
            if due:
                self._posted.extendleft(reversed(due))
                due.clear()
                self.wake_loop()

    def _make_task(self, loop: asyncio.AbstractEventLoop, execution: EngineTask) -> None:
        context = execution.context or Context()
        # The attempt before may be just ending, further down this stack, in the very context.
        if IS_EAGER and execution.attempt == 1 and loop.get_task_factory() is None:
            eagerly: Any = asyncio.Task  # the oldest Python's has no such argument
            eagerly(self._run(execution, is_eager=True), loop=loop, context=context, eager_start=True)
            return
        task = loop.create_task(primed(self._run(execution, is_eager=False)), context=context)
        if not task.done():  # the factory of a loop may begin its tasks at once
            self._tasks[execution] = task

    async def _run(self, execution: EngineTask, *, is_eager: bool) -> None:
        outcome = SUCCEEDED
        try:
            if is_eager:
                self._tasks[execution] = current_task()  # type: ignore[assignment] # it runs in one
            else:
                await begun
            in_coroutine.set(execution)
            if execution.attention and execution.aborted:
                outcome = NEVER_RAN
            else:
                if execution.kwargs is None:
                    value = execution.fn(*execution.args)
                else:
                    for each in execution.to_fetch():
                        await asyncio.to_thread(each.fetch)  # the loop need not wait for it
                    fn, args, kwargs = execution.body()
                    value = fn(*args, **kwargs)
                is_awaitable = value.__class__ is CoroutineType or isawaitable(value)
                execution.value = await value if is_awaitable else value
        except BaseException as error:
            if execution in self._closing:
                raise
            outcome = execution.failed(error)
        if execution.attention:
            outcome = await finish_parts_async(execution, outcome)
        if outcome is not SUCCEEDED and isinstance(execution.error, asyncio.CancelledError):
            outcome = self._cancelled(execution, outcome)
        self._tasks.pop(execution, None)
        go_on = self.runtime.report(execution, outcome, self)
        if go_on is not None:
            loop = self.loop()
            assert loop is not None, "it runs this very task"
            self._begin(loop, go_on)

    def _cancelled(self, execution: EngineTask, outcome: Ended) -> Ended:
        """Return how a body has ended that raised a CancelledError: as it says, unless its task was cancelled."""
        task = current_task()
        if task is None or not is_cancelled(task) or execution.abort is not None:
            return outcome
        if not self._ends():
            return CANCELLED
        self._end_waiting()
        return LOOP_CLOSED

    def _ends(self) -> bool:
        """Return whether every task of the loop has been cancelled, as `asyncio.run` does before it closes the loop."""
        witness = self._witness()
        if self._is_ending or (witness is not None and not witness.done() and not is_cancelled(witness)):
            return self._is_ending
        tasks = asyncio.all_tasks()
        found = next((task for task in tasks if not is_cancelled(task)), None)
        self._witness = _no_loop if found is None else ref(found)
        return found is None and bool(tasks)


class _Guard:
    """Is referred to by a timer of a loop only, and so goes when the loop is closed."""

    __slots__ = ("_engine", "_pid")

    def __init__(self, engine: LoopEngine) -> None:
        self._engine = engine
        self._pid = os.getpid()

    def __call__(self) -> None:
        """Do nothing, after many years."""

    def __del__(self) -> None:
        loop = self._engine.loop()
        if (loop is None or loop.is_closed()) and not sys.is_finalizing() and os.getpid() == self._pid:
            self._engine.end()


def _no_loop() -> None:
    """Return None, as a weak reference does whose object has gone."""
