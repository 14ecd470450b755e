"""The clock: one thread per authority, started when first needed, that acts when something is due."""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from heapq import heappop, heappush
from time import monotonic_ns
from typing import Final

log = logging.getLogger("whywait")

FAR_FUTURE_NS: Final = 1 << 62
IDLE_S: Final = 30.0  # after this long without anything to wait for the thread ends: it keeps its authority alive


class Clock:
    """Calls the kernel at its next deadline, and other functions at given times; sleeps otherwise."""

    def __init__(self, tick: Callable[[], None]) -> None:
        """Start without a thread; ``tick`` is called at the kernel's deadline."""
        self._condition = threading.Condition()  # to be entered twice: by a finaliser in the midst of it
        self._tick = tick
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._thread: threading.Thread | None = None
        self._closed = False
        self.needs_thread = False  # something is set and nobody waits for it: `start` is to be called
        self.kernel_at_ns = FAR_FUTURE_NS  # the deadline that is set; one at a time, however often it moves

    def tick_at(self, at_ns: int) -> None:
        """Call the kernel at ``at_ns``, and not before; the one deadline that was set is forgotten.

        It may be called under a lock: if ``needs_thread`` is set after it, :meth:`start` is to be called without.
        """
        with self._condition:
            self.kernel_at_ns = at_ns
            self._wake()

    def call_at(self, at_ns: int, fn: Callable[[], None]) -> None:
        """Call ``fn`` at a time of ``monotonic_ns``."""
        with self._condition:
            if self._closed:
                return
            heappush(self._heap, (at_ns, next(self._order), fn))
            if self._heap[0][0] == at_ns:
                self._wake()
        if self.needs_thread:
            self.start()

    def start(self) -> None:
        """Have a thread that waits for what is set; to be called without any lock.

        A thread that starts may run a finaliser before it says so, and the finaliser may want any lock there is.
        """
        thread = threading.Thread(target=self._run, name="whywait-clock", daemon=True)
        with self._condition:
            self.needs_thread = False
            if self._thread is not None or self._closed:
                return
            self._thread = thread
        try:
            thread.start()
        except BaseException:
            if not thread.is_alive():
                self._thread = None
                self.needs_thread = True
            raise

    def close(self) -> None:
        """End the thread."""
        with self._condition:
            self._closed = True
            self._heap.clear()
            self._condition.notify()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            with suppress(RuntimeError):  # it is being started, and will end at once
                thread.join()

    def _wake(self) -> None:
        if self._thread is not None:
            self._condition.notify()
        elif not self._closed:
            self.needs_thread = True

    def _is_idle(self) -> bool:
        return not self._heap and self.kernel_at_ns == FAR_FUTURE_NS and not self._closed

    def _run(self) -> None:
        while (fn := self._next()) is not None:
            try:
                fn()
            except Exception:
                log.exception("the clock could not act")

    def _next(self) -> Callable[[], None] | None:
        """Wait until something is due and return it; None: end."""
        with self._condition:
            while not self._closed:
                heap = self._heap
                at_ns = min(self.kernel_at_ns, heap[0][0]) if heap else self.kernel_at_ns
                left_ns = at_ns - monotonic_ns()
                if at_ns == FAR_FUTURE_NS:
                    if not self._condition.wait(IDLE_S) and self._is_idle():
                        self._thread = None  # whoever sets something starts another one
                        return None
                elif left_ns > 0:
                    self._condition.wait(min(left_ns / 1e9, threading.TIMEOUT_MAX))
                elif self.kernel_at_ns == at_ns:
                    self.kernel_at_ns = FAR_FUTURE_NS  # whoever looks from now on sets the next one
                    return self._tick
                else:
                    return heappop(heap)[2]
            return None
