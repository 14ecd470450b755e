"""A call that is delayed and then made once, however often it was requested meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress


class Later:
    """Calls a function on a thread of its own some time after the first request; without a request no thread runs.

    The thread is no daemon, so a program that ends still gets done what it has asked for. No lock is needed:
    ``_thread`` is reset before the function is called, so a thread that finds it set has asked in time. Two that ask at
    once may each start one, and the second finds nothing to do.
    """

    def __init__(self, act: Callable[[], object], thread_name: str) -> None:
        """Begin without a request."""
        self._act = act
        self._name = thread_name
        self._thread: threading.Thread | None = None
        self._hurry = threading.Event()

    def ask(self, delay_s: float) -> bool:
        """Request the call in so many seconds, if none is due before; return False if the system gives no thread."""
        if self._thread is not None:
            return True
        thread = threading.Thread(target=self._run, args=(delay_s,), name=self._name, daemon=False)
        self._thread = thread
        try:
            thread.start()
        except RuntimeError:  # the system gives none, or the interpreter ends
            self._thread = None
            return False
        return True

    def close(self) -> None:
        """Run the pending call now and wait for it to finish."""
        self._hurry.set()
        thread = self._thread
        if thread is not None:
            with suppress(RuntimeError):  # it is just being started, and does not wait
                thread.join()

    def _run(self, delay_s: float) -> None:
        self._hurry.wait(delay_s)
        self._thread = None  # before it acts: what is asked from now on starts another
        self._act()
