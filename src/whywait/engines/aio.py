"""The asyncio engine: coroutine functions as tasks of event loops.

A coroutine belongs to the loop that runs where it is submitted; each loop has a :class:`LoopEngine`. One that is
submitted from a thread without a loop belongs to the loop on which the authority was entered by ``async with``, else to
a loop of the engine's own in a thread, which is what this engine itself runs.
"""

from __future__ import annotations

import asyncio
import threading
from asyncio import _get_running_loop as running_loop
from threading import RLock
from weakref import WeakKeyDictionary, ref

from whywait.engines.base import NEVER_RAN, EngineTask
from whywait.engines.loop import LoopEngine
from whywait.support.notebooks import callers_loop
from whywait.support.waiters import call_on


class AsyncioEngine(LoopEngine):
    """Runs coroutines on a loop of its own, and has an engine for each loop that others are submitted from."""

    def __init__(self) -> None:
        """Start without a loop; it is made with the first task."""
        super().__init__()
        self._own: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._lock = RLock()  # a finaliser may submit while the loop is made
        self._joining = RLock()  # before Python 3.13 an assertion may fail where several threads join one
        self._is_making = self._is_closing = False
        self._engines: WeakKeyDictionary[asyncio.AbstractEventLoop, LoopEngine] = WeakKeyDictionary()
        self._home: LoopEngine | None = None  # of the loop of an `async with`
        self._latest: LoopEngine | None = None  # the one that `here` returned last

    def here(self) -> LoopEngine:
        """Return the engine of the loop to which a coroutine belongs that this thread submits."""
        loop, latest = running_loop(), self._latest
        if loop is not None and latest is not None and latest.loop() is loop:
            return latest
        loop = callers_loop()
        if loop is not None:
            self._latest = engine = self._engine_of(loop)
            return engine
        home = self._home
        at_home = None if home is None else home.loop()
        return self if home is None or at_home is None or at_home.is_closed() else home

    def use_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        """Take this loop for what threads without a loop submit."""
        self._home = self._engine_of(loop)

    def start(self, execution: EngineTask) -> None:
        """Make a task of the coroutine, on the engine's own loop."""
        if self._own is not None or self._has_loop(execution):
            super().start(execution)

    def wake_loop(self) -> None:
        """Have the loop begin what is posted, if it is there already."""
        if self._own is not None:
            super().wake_loop()

    def close(self) -> None:
        """Stop the engine's own loop, if it has one, and watch the others no longer."""
        with self._lock:
            others = list(self._engines.values())
        for engine in others:
            engine.close()
        if self._thread is not None and self._own is not None:
            call_on(self._own, self._stop_own)
            if self._thread is not threading.current_thread():
                with self._joining:
                    self._thread.join()

    def _stop_own(self) -> None:
        """Stop the engine's own loop, on its thread, once: several threads may close the engine."""
        if not self._is_closing and self._own is not None:
            self._is_closing = True
            self._own.stop()

    def _ends(self) -> bool:
        return False  # the engine itself ends its own loop, when nothing runs any more

    def _engine_of(self, loop: asyncio.AbstractEventLoop) -> LoopEngine:
        with self._lock:
            engine = self._engines.get(loop)
            if engine is None:
                engine = self._engines[loop] = LoopEngine()
                engine.attach(self.runtime)
                engine.watch(loop)
            return engine

    def _has_loop(self, execution: EngineTask) -> bool:
        """See to it that there is a loop; if there can be none, the task fails."""
        if self._own is None:
            try:
                self._find_loop()
            except (OSError, RuntimeError) as error:  # the system gives no thread, or no files for the loop
                execution.error = error
                self.runtime.report(execution, NEVER_RAN)
                return False
        return True

    def _find_loop(self) -> None:
        with self._lock:
            if self._is_making:  # it is made by this very thread, further down: what is posted is seen
                return
            self._is_making = True
            try:
                if self._own is None:
                    self._make_loop()
            finally:
                self._is_making = False
        if self._posted:
            self.wake_loop()

    def _make_loop(self) -> None:
        self._own = loop = asyncio.new_event_loop()  # before its thread runs: a finaliser there needs no other one
        self.loop = ref(loop)
        thread = threading.Thread(target=self._run_own, args=(loop,), name="whywait-loop", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            self._own = None
            loop.close()
            raise
        self._thread = thread

    def _run_own(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            while not self._is_closing:  # a body that stops the loop stops no other
                loop.run_forever()
        finally:
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.close()
