"""The asyncio engine: coroutine functions as tasks of an event loop.

They run on the loop that ``async with`` was entered on, else on the one that runs where they are submitted, else on
a loop of the engine's own in a thread. A task that ends on the loop starts the next one right there; from other
threads the loop is woken once for a batch.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from contextvars import Context
from inspect import CORO_CREATED, getcoroutinestate, isawaitable
from types import CoroutineType
from typing import TYPE_CHECKING, Any, ClassVar

from whywait.engines.base import NEVER_RAN, SUCCEEDED, Ended, Engine
from whywait.inside import wrap_up_async
from whywait.lazy import running_loop
from whywait.signals import in_coroutine

if TYPE_CHECKING:
    from whywait.handle import Handle


class AsyncioEngine(Engine):
    """Runs coroutine functions on an event loop; plain functions too, but those block it."""

    name: ClassVar[str] = "asyncio"
    can_kill: ClassVar[bool] = True
    runs_coroutines: ClassVar[bool] = True

    def __init__(self) -> None:
        """Start without a loop; it is found with the first task."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._loop_thread = 0
        self._own_thread: threading.Thread | None = None
        self._inbox: deque[Handle[Any]] = deque()
        self._woken = False  # the loop will look into the inbox
        self._tasks: dict[Handle[Any], asyncio.Task[None]] = {}  # those that have begun
        self._lock = threading.RLock()  # a finaliser may submit while the loop is found
        self._is_finding = False

    def use_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        """Run coroutines on this loop from now on; its thread is the caller's."""
        self._loop = loop
        self._loop_thread = threading.get_ident()

    def start(self, handle: Handle[Any]) -> None:
        """Make a task of the coroutine, on the loop."""
        if (self._loop is None or self._loop.is_closed()) and not self._has_loop([handle]):
            return
        if threading.get_ident() == self._loop_thread:
            self._begin(handle)
            return
        self._inbox.append(handle)
        if not self._woken:
            self.look_again(1)

    def start_all(self, handles: list[Handle[Any]]) -> None:
        """Make tasks of the coroutines; from another thread, the inbox takes them over in one undivided step."""
        if not self._has_loop(handles):
            return
        if threading.get_ident() == self._loop_thread:
            super().start_all(handles)
            return
        count = len(handles)
        handles[:] = filter(self._inbox.append, handles)  # `append` returns None: nothing is left
        self.look_again(count)

    def look_again(self, count: int) -> None:  # noqa: ARG002 - it looks for all
        """Have the loop look into the inbox; once too often does no harm."""
        self._woken = True
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._begin_all)

    def abort(self, handle: Handle[Any]) -> None:
        """Cancel the asyncio task."""
        self._on_loop(self._cancel, handle)

    def kill(self, handle: Handle[Any]) -> None:
        """Cancel again: a coroutine that swallowed the first cancellation gets another."""
        self._on_loop(self._cancel, handle)
        self.authority.call_later(self.authority.settings.grace_s, lambda: self._kill_again(handle))

    def close(self) -> None:
        """Stop the engine's own loop, if it has one."""
        if self._own_thread is not None and self._loop is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            if self._own_thread is not threading.current_thread():
                self._own_thread.join()
            self._own_thread = None

    def _kill_again(self, handle: Handle[Any]) -> None:
        if handle in self._tasks:
            self.kill(handle)

    def _has_loop(self, handles: list[Handle[Any]]) -> bool:
        """See to it that there is a loop; if there can be none, the tasks fail."""
        if self._loop is None or self._loop.is_closed():
            try:
                self._find_loop()
            except (OSError, RuntimeError) as error:  # the system gives no thread, or no files for the loop
                while handles:
                    handle = handles.pop(0)
                    handle._error = error
                    self.authority.ended(handle, NEVER_RAN)
                return False
        return True

    def _find_loop(self) -> None:
        with self._lock:
            if self._is_finding:  # it is found by this very thread, further down: what is put into the inbox is seen
                return
            self._is_finding = True
            try:
                if self._loop is None or self._loop.is_closed():
                    self._loop, self._loop_thread = None, 0
                    self._use_loop_here()
            finally:
                self._is_finding = False
        if self._inbox:
            self.look_again(len(self._inbox))

    def _use_loop_here(self) -> None:
        """Use the loop that runs here, or a new one."""
        running = running_loop()
        if running is not None:
            self.use_loop(running)
            return
        self._loop = loop = asyncio.new_event_loop()  # before its thread runs: a finaliser there needs no other one
        thread = threading.Thread(target=self._run_own, args=(loop,), name="whywait-loop", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            self._loop = None
            loop.close()
            raise
        self._own_thread = thread
        self._loop_thread = thread.ident or 0

    def _run_own(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
        finally:
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.close()

    def _on_loop(self, fn: Any, handle: Handle[Any]) -> None:  # noqa: ANN401 - a method of this class
        if threading.get_ident() == self._loop_thread:
            fn(handle)
        elif self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed, and the body with it
                self._loop.call_soon_threadsafe(fn, handle)

    def _begin_all(self) -> None:
        self._woken = False
        inbox = self._inbox
        while inbox:
            self._begin(inbox.popleft())

    def _begin(self, handle: Handle[Any]) -> None:
        loop = self._loop
        assert loop is not None, "the loop has been found"
        self._tasks[handle] = loop.create_task(self._run(handle), context=handle._context or Context())

    async def _run(self, handle: Handle[Any]) -> None:
        in_coroutine.set(handle)
        try:
            if handle.attention and handle.aborted:
                outcome: Ended | None = NEVER_RAN
            else:
                if handle._kwargs is not None:
                    for result in handle.arguments_elsewhere():
                        await asyncio.to_thread(result.fetch)  # the loop need not wait for it to come
                value = handle.call_here()
                is_awaitable = value.__class__ is CoroutineType or isawaitable(value)
                handle._value = await value if is_awaitable else value
                outcome = None
        except BaseException as error:  # noqa: BLE001 - whatever the body raises is its outcome
            outcome = handle.failed(error)
        if handle.attention:
            outcome = await wrap_up_async(handle, outcome or SUCCEEDED)
        del self._tasks[handle]
        authority = self.authority
        go_on = authority.succeeded(handle, self) if outcome is None else authority.ended(handle, outcome, self)
        if go_on is not None:
            self._begin(go_on)

    def _cancel(self, handle: Handle[Any]) -> None:
        task = self._tasks.get(handle)
        # One that has not taken its first step is left to see its signal: cancelled now, it would never report.
        if task is not None and getcoroutinestate(task.get_coro()) != CORO_CREATED:  # type: ignore[arg-type]
            task.cancel()
