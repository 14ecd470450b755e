"""What the clients of ended leases have left behind, looked for by one thread for all of them at once.

A look reads every process of the computer. Where there are thousands, or the processors are busy, that takes long; one
look for each lease made ends wait behind each other for seconds when many came together. So leases that end while a
look is under way share the next one.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from threading import RLock
from typing import Final, NamedTuple

from whywait.machine.home import LEASE_VARIABLE
from whywait.support.logger import log
from whywait.trees.system import bearers

LOOK_S: Final = 0.02  # how often to look whether killed processes are gone
REST_S: Final = 0.25  # and processes that were left behind and live on


class Remain(NamedTuple):
    """What is left of one lease: the processes with its mark."""

    mark: int
    kill: bool  # what is found is killed
    gone: Callable[[], object]  # called once, when nothing is left
    looked: Callable[[], object]  # called once, after the first look


class Remains:
    """Looks until nothing is left of the leases that it was given."""

    def __init__(self) -> None:
        """Look for nothing yet."""
        self._lock = RLock()
        self._new: list[Remain] = []  # that the thread has not seen yet
        self._is_looking = False
        self._bell = threading.Event()

    def add(self, remain: Remain) -> None:
        """Look for what is left of a lease from now on."""
        with self._lock:
            self._new.append(remain)
            starts, self._is_looking = not self._is_looking, True
        self._bell.set()
        if starts:
            threading.Thread(target=self._run, name="whywait-remains", daemon=True).start()

    def _run(self) -> None:
        left: list[Remain] = []
        while True:
            self._bell.clear()
            with self._lock:
                new, self._new = self._new, []
                if not left and not new:
                    self._is_looking = False
                    return
            found = bearers(LEASE_VARIABLE, {each.mark for each in (*left, *new)})
            left = [each for each in (*left, *new) if self._stays(each, found.get(each.mark, ()))]
            for each in new:
                _call(each.looked)
            if left:
                self._bell.wait(LOOK_S if any(each.kill for each in left) else REST_S)

    def _stays(self, remain: Remain, pids: list[int] | tuple[()]) -> bool:
        """Kill what was found of a lease, if it is to be killed; tell if nothing was. Return whether something was."""
        if remain.kill:
            for pid in pids:
                with suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
        if not pids:
            _call(remain.gone)
        return bool(pids)


def _call(fn: Callable[[], object]) -> None:
    try:
        fn()
    except Exception:
        log.exception("the end of a permission could not be told")
