"""The clock: one thread per authority, started when first needed, that acts when something is due."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from contextlib import suppress
from heapq import heappop, heappush
from threading import RLock
from time import monotonic_ns
from typing import Final

from whywait.support.logger import Log
from whywait.support.raised import loggable
from whywait.support.threads import lasting_thread

FAR_FUTURE_NS: Final = 1 << 62
AGAIN_NS: Final = 50_000_000  # when a look at the kernel has failed
IDLE_S: Final = 30.0  # after this long without anything to wait for the thread ends: it keeps its authority alive


class Clock:
    """Calls the kernel at its next deadline, and other functions at given times; sleeps otherwise."""

    def __init__(self, tick: Callable[[], None], log: Log) -> None:
        """Start without a thread; ``tick`` is called at the kernel's deadline."""
        # To be entered twice: by a finaliser in the midst of it. The lock itself is taken, not the condition: no signal
        # comes between the step that takes a lock and the block that gives it back.
        self._lock = RLock()
        self._condition = threading.Condition(self._lock)
        self._tick = tick
        self._log = log
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._thread: threading.Thread | None = None
        self._closed = False
        self.needs_thread = False  # something is set and no thread waits for it: `start` is to be called
        self.kernel_at_ns = FAR_FUTURE_NS  # the deadline that is set; one at a time, however often it moves

    def tick_at(self, at_ns: int) -> None:
        """Call the kernel at ``at_ns``, and not before; the one deadline that was set is forgotten.

        It may be called under a lock: if ``needs_thread`` is set after it, :meth:`start` is to be called without.
        """
        with self._lock:
            self._wake()
            self.kernel_at_ns = at_ns  # last: if this is broken off, it is done again

    def call_at(self, at_ns: int, fn: Callable[[], None]) -> None:
        """Call ``fn`` at a time of ``monotonic_ns``."""
        with self._lock:
            if self._closed:
                return
            if not self._heap or at_ns < self._heap[0][0]:
                self._wake()
            heappush(self._heap, (at_ns, next(self._order), fn))  # last, as above
        if self.needs_thread:
            self.start()

    def start(self) -> None:
        """Have a thread that waits for what is set; to be called without any lock.

        A thread that starts may run a finaliser before it says so, and the finaliser may want any lock there is.
        """
        try:
            self.needs_thread = False
            lasting_thread(self._run, "whywait-clock").start()
        except BaseException:
            self.needs_thread = True  # if it was started after all, it is one too many and ends at once
            raise

    def close(self) -> None:
        """End the thread."""
        with self._lock:
            self._closed = True
            self._heap.clear()
            self._condition.notify_all()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            with suppress(RuntimeError):  # it is being started, and will end at once
                thread.join()

    def _wake(self) -> None:
        """Have the thread look again, once the lock is free."""
        if self._thread is not None:
            self._condition.notify_all()  # all: a signal may have left a place there in which no thread sleeps any more
        elif not self._closed:
            self.needs_thread = True

    def _is_idle(self) -> bool:
        return not self._heap and self.kernel_at_ns == FAR_FUTURE_NS and not self._closed

    def _run(self) -> None:
        thread = threading.current_thread()
        with self._lock:
            if self._thread is not None:
                return
            self._thread = thread
        while (fn := self._next()) is not None:
            try:
                fn()
            except Exception as error:  # noqa: BLE001 - one that cannot act does not stop the others
                self._log.error("the clock could not act", exc_info=loggable(error))
                if fn == self._tick:
                    with self._lock:
                        self.kernel_at_ns = min(self.kernel_at_ns, monotonic_ns() + AGAIN_NS)

    def _next(self) -> Callable[[], None] | None:
        """Wait until something is due and return it; None: end."""
        with self._lock:
            while not self._closed:
                heap, kernel_at_ns = self._heap, self.kernel_at_ns
                at_ns = min(kernel_at_ns, heap[0][0]) if heap else kernel_at_ns
                left_ns = at_ns - monotonic_ns()
                if at_ns == FAR_FUTURE_NS:
                    if not self._condition.wait(IDLE_S) and self._is_idle():
                        self._thread = None  # the next thing that is set starts another one
                        return None
                elif left_ns > 0:
                    self._condition.wait(min(left_ns / 1e9, threading.TIMEOUT_MAX))
                elif kernel_at_ns == at_ns:
                    self.kernel_at_ns = FAR_FUTURE_NS  # the next look at the kernel sets the next one
                    return self._tick
                else:
                    return heappop(heap)[2]
            return None
