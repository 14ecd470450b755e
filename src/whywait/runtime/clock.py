"""The clock: one thread per authority, started when first needed, that acts when something is due."""

from __future__ import annotations

import itertools
import threading
from _thread import start_new_thread
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

    __slots__ = (
        "_bell",
        "_closed",
        "_heap",
        "_joining",
        "_lock",
        "_log",
        "_order",
        "_thread",
        "_tick",
        "kernel_at_ns",
        "needs_thread",
    )

    def __init__(self, tick: Callable[[], None], log: Log) -> None:
        """Start without a thread; ``tick`` is called at the kernel's deadline."""
        self._lock = RLock()  # to be entered twice: by a finaliser in the midst of it
        self._joining = RLock()  # before Python 3.13 an assertion may fail where several threads join one
        self._bell = threading.Lock()  # is taken while the thread sleeps, and released to wake it
        self._bell.acquire()
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
            self.kernel_at_ns = at_ns
            self._wake()

    def call_at(self, at_ns: int, fn: Callable[[], None]) -> None:
        """Call ``fn`` at a time of ``monotonic_ns``."""
        with self._lock:
            if self._closed:
                return
            is_first = not self._heap or at_ns < self._heap[0][0]
            heappush(self._heap, (at_ns, next(self._order), fn))
            if is_first:
                self._wake()
        if self.needs_thread:
            self.start()

    def start(self) -> None:
        """Have a thread that waits for what is set; to be called without any lock.

        A thread that starts may run a finaliser before it says so, and the finaliser may want any lock there is. It is
        started by another one, which gets no signals.
        """
        start_new_thread(self._start, ())
        self.needs_thread = False

    def _start(self) -> None:
        try:
            lasting_thread(self._run, "whywait-clock").start()
        except RuntimeError as error:  # the system gives no more threads; the next command tries again
            self.needs_thread = True
            self._log.error("the clock could not be started", exc_info=loggable(error))

    def close(self) -> None:
        """End the thread."""
        with self._lock:
            self._closed = True
            self._heap.clear()
            self._wake()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            with suppress(RuntimeError), self._joining:  # it is being started, and will end at once
                thread.join()

    def _wake(self) -> None:
        """Have the thread look again, once the lock is free."""
        if self._thread is not None:
            if self._bell.locked():
                self._bell.release()
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
        while True:
            with self._lock:
                if self._closed:
                    return None
                heap, kernel_at_ns = self._heap, self.kernel_at_ns
                at_ns = min(kernel_at_ns, heap[0][0]) if heap else kernel_at_ns
                left_ns = at_ns - monotonic_ns()
                if left_ns <= 0:
                    if kernel_at_ns != at_ns:
                        return heappop(heap)[2]
                    self.kernel_at_ns = FAR_FUTURE_NS  # the next look at the kernel sets the next one
                    return self._tick
                is_idle = at_ns == FAR_FUTURE_NS
            is_rung = self._bell.acquire(timeout=IDLE_S if is_idle else min(left_ns / 1e9, threading.TIMEOUT_MAX))
            with self._lock:
                if is_idle and not is_rung and self._is_idle():
                    self._thread = None  # the next thing that is set starts another one
                    return None
