"""Calls that an engine makes on a thread of its own, one after the other.

A call may run code of users (pickling, callbacks), which may take its time or even wait for what a later call brings.
So while one takes long and others wait, another thread makes those.

``Posts._lock`` guards which thread makes the calls, how many it has made, and whether the clock looks at it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from threading import RLock
from typing import Final

from whywait.engines.base import Runtime

PATIENCE_S: Final = 0.05  # a call that takes longer than once to twice this holds up others no more


class Posts:
    """Makes posted calls in their order."""

    def __init__(self, runtime: Runtime) -> None:
        """Start without a thread: it comes with a call, and goes when there is none left."""
        self._runtime = runtime
        self._lock = RLock()
        self._calls: deque[Callable[[], object]] = deque()
        self._thread: threading.Thread | None = None  # the one that makes the calls
        self._made = 0
        self._will_look = False

    def post(self, call: Callable[[], object]) -> None:
        """Make a call soon."""
        with self._lock:
            self._calls.append(call)
            if self._thread is None:
                self._start()
            else:
                self._look_later()

    def _start(self) -> None:
        self._thread = threading.Thread(target=self._make_all, name="whywait-ray", daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:  # the system gives no thread; the next post tries again
            self._thread = None
            self._runtime.log.warning("the Ray engine has no thread: %s", error)
            self._look_later()

    def _make_all(self) -> None:
        while True:
            with self._lock:
                if self._thread is not threading.current_thread():
                    return
                if not self._calls:
                    self._thread = None
                    return
                call = self._calls.popleft()
                self._made += 1
            try:
                call()
            except BaseException:
                self._runtime.log.exception("the Ray engine could not carry out a step")
            del call  # nothing here keeps a task alive

    def _look_later(self) -> None:
        if not self._will_look:
            self._will_look = True
            made = self._made
            self._runtime.call_later(PATIENCE_S, lambda: self._look(made))

    def _look(self, made: int) -> None:
        """Start another thread if the present one has made no call since."""
        with self._lock:
            self._will_look = False
            if self._calls:
                if self._thread is None or self._made == made:
                    self._start()
                else:
                    self._look_later()
