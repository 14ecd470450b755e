"""The journal: remembers the latest events and passes them on, in order, to whoever subscribed."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable

from whywait.kernel.events import Event, RawEvent

log = logging.getLogger("whywait")


class Journal:
    """A ring of the latest events; they come in under the authority's lock and go out without it."""

    def __init__(self, size: int, emit_to: Callable[[Callable[[RawEvent], None]], None]) -> None:
        """Remember up to ``size`` events; ``emit_to`` tells their source where to put them."""
        self._ring: deque[RawEvent] = deque(maxlen=size)
        self._subscribers: list[Callable[[Event], object]] = []
        self._delivering = threading.Lock()
        self.undelivered: deque[RawEvent] = deque()
        self._emit_to = emit_to
        emit_to(self._ring.append)  # as long as nobody listens, an event costs no more than this

    def since(self, seq: int) -> list[Event]:
        """Return the remembered events with a seq above this one, oldest first."""
        return [Event.of(raw) for raw in self._ring if raw[0] > seq]

    def subscribe(self, fn: Callable[[Event], object]) -> Callable[[], None]:
        """Pass every event from now on to ``fn``; return a function that ends it."""
        self._subscribers.append(fn)
        self._emit_to(self._remember)

        def unsubscribe() -> None:
            if fn in self._subscribers:
                self._subscribers.remove(fn)
                if not self._subscribers:
                    self._emit_to(self._ring.append)

        return unsubscribe

    def _remember(self, raw: RawEvent) -> None:
        self._ring.append(raw)
        self.undelivered.append(raw)

    def deliver(self) -> None:
        """Pass on what has come in, in order; one thread at a time, whoever comes second leaves it to the first."""
        while self.undelivered and self._delivering.acquire(blocking=False):
            try:
                while self.undelivered:
                    event = Event.of(self.undelivered.popleft())
                    for fn in list(self._subscribers):
                        try:
                            fn(event)
                        except Exception:
                            log.exception("an event subscriber failed")
            finally:
                self._delivering.release()
