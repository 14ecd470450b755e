"""The clock: one thread per authority, started when first needed, that acts when something is due."""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable
from heapq import heappop, heappush
from time import monotonic_ns

log = logging.getLogger("whywait")

FAR_FUTURE_NS = 1 << 62


class Clock:
    """Calls functions at given times; sleeps otherwise."""

    def __init__(self) -> None:
        """Start without a thread."""
        self._condition = threading.Condition(threading.Lock())
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._thread: threading.Thread | None = None
        self._closed = False
        self.kernel_at_ns = FAR_FUTURE_NS  # when the kernel's next timer is set for

    def call_at(self, at_ns: int, fn: Callable[[], None]) -> None:
        """Call ``fn`` at a time of ``monotonic_ns``."""
        with self._condition:
            if self._closed:
                return
            heappush(self._heap, (at_ns, next(self._order), fn))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="whywait-clock", daemon=True)
                self._thread.start()
            elif self._heap[0][0] == at_ns:
                self._condition.notify()

    def close(self) -> None:
        """End the thread."""
        with self._condition:
            self._closed = True
            self._heap.clear()
            self._condition.notify()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        while True:
            with self._condition:
                while not self._closed:
                    if not self._heap:
                        self._condition.wait()
                        continue
                    left_ns = self._heap[0][0] - monotonic_ns()
                    if left_ns <= 0:
                        break
                    self._condition.wait(left_ns / 1e9)
                if self._closed:
                    return
                fn = heappop(self._heap)[2]
            try:
                fn()
            except Exception:
                log.exception("the clock could not act")
