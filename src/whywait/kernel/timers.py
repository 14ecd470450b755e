"""Timers in one heap, with lazy deletion."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Any, Final

from whywait.kernel.state import Cause

# The kinds of timers
RUN_TIMEOUT: Final = "run_timeout"
NOTICED_TIMEOUT: Final = "noticed_timeout"  # a run timeout that is due, while ends that were reported are taken in
PAUSE: Final = "pause"
BACKOFF: Final = "backoff"
MAX_WAIT: Final = Cause.MAX_WAIT
STARVE: Final = "starve"
TICK: Final = "tick"

# The attribute of its target that a timer of a kind stands in.
HELD_AS: Final = {
    RUN_TIMEOUT: "run_timer",
    NOTICED_TIMEOUT: "run_timer",
    PAUSE: "pause_timer",
    BACKOFF: "wait_timer",
    MAX_WAIT: "wait_timer",
    STARVE: "starve_timer",
    TICK: "timer",
}

_SLACK: Final = 64


class Timer:
    """One moment at which something is due, unless it is cancelled before."""

    __slots__ = ("at", "kind", "live", "target")

    def __init__(self, at: int, kind: str, target: Any) -> None:
        """Make a timer of a ``kind`` for a ``target``."""
        self.at = at
        self.kind = kind
        self.target = target
        self.live = True

    @property
    def is_held(self) -> bool:
        """Whether it is live and its target has it."""
        return self.live and getattr(self.target, HELD_AS[self.kind]) is self


class Timers:
    """Timers in (time, creation) order."""

    __slots__ = ("_created", "_dead", "heap")

    def __init__(self) -> None:
        """Make an empty heap."""
        self.heap: list[tuple[int, int, Timer]] = []  # with stale items
        self._created = 0
        self._dead = 0

    def add(self, at: int, kind: str, target: Any) -> Timer:
        """Set a timer."""
        timer = Timer(at, kind, target)
        self._created += 1
        heappush(self.heap, (at, self._created, timer))
        return timer

    def cancel(self, timer: Timer) -> None:
        """Call a timer off; a no-op if it has fired."""
        if timer.live:
            timer.live = False
            timer.target = None
            self._dead += 1
            if self._dead > _SLACK and self._dead * 2 > len(self.heap):
                self.heap[:] = [item for item in self.heap if item[2].live]
                heapify(self.heap)
                self._dead = 0

    def next_at(self) -> int | None:
        """Return when the next live timer is due."""
        heap = self.heap
        while heap:
            timer: Timer = heap[0][2]
            if timer.live:
                return timer.at
            heappop(heap)
            self._dead -= 1
        return None

    def pop_due(self, now: int) -> Timer | None:
        """Remove and return the next live timer that is due at ``now``."""
        at = self.next_at()
        if at is None or at > now:
            return None
        timer: Timer = heappop(self.heap)[2]
        timer.live = False
        return timer
