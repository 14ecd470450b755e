"""The journal: remembers the latest events and passes them on, in order, to subscribers."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from threading import RLock
from typing import Final, TypeVar

from whywait.kernel.events import Event, RawEvent
from whywait.kernel.kernel import Kernel
from whywait.kernel.ring import Ring
from whywait.support.logger import Log
from whywait.support.raised import loggable

Listener = TypeVar("Listener", bound=Callable[..., object])

_WAITING: Final = 100_000


class Events(list[Event]):
    """Events in order, and how many before them were forgotten: ``skipped`` is 0 if nothing is missing."""

    def __init__(self, raw: Iterable[RawEvent] = (), skipped: int = 0) -> None:
        """Give names to raw events before which ``skipped`` others are missing."""
        super().__init__(map(Event.of, raw))
        self.skipped = skipped


class Journal:
    """A ring of the latest events; they come in under the authority's lock and go out without it."""

    def __init__(self, size: int, kernel: Kernel, log: Log) -> None:
        """Remember up to ``size`` events of a kernel."""
        self._ring = kernel.ring = Ring(size)  # as long as nothing listens, an event is only written there
        self._kernel = kernel
        self._subscribers: list[Callable[[Event], object]] = []
        self._taps: list[Callable[[RawEvent], object]] = []
        self._log = log
        self._guard = RLock()
        self._deliverer: object = None  # what stands for the call that passes events on
        self._last_delivered = 0
        # A subscriber that is too slow costs neither memory nor time: what it missed shows in the seq, and in the log.
        self.undelivered: deque[RawEvent] = deque(maxlen=max(size, _WAITING))

    def since(self, seq: int, limit: int | None = None) -> tuple[list[RawEvent], int]:
        """Return up to ``limit`` remembered events after this seq, oldest first, and how many are forgotten."""
        last_seq = self._kernel.seq
        newer = max(0, last_seq - seq)
        known = min(newer, len(self._ring))
        count = known if limit is None else min(known, limit)
        return self._ring.events(known, count, last_seq), newer - known

    def subscribe(self, fn: Callable[[Event], object]) -> Callable[[], None]:
        """Pass every event from now on to ``fn``; return a function that ends it."""
        if not self._subscribers:
            self._last_delivered = self._kernel.seq
        return self._add(self._subscribers, fn)

    def tap(self, fn: Callable[[RawEvent], object]) -> Callable[[], None]:
        """Pass every raw event to ``fn`` the moment it comes, in the thread and context that caused it.

        ``fn`` runs under the authority's lock: it has to be quick and must not raise.
        """
        return self._add(self._taps, fn)

    def _add(self, to: list[Listener], fn: Listener) -> Callable[[], None]:
        to.append(fn)
        self._kernel.emit_to(self._pass)

        def end() -> None:
            if fn in to:
                to.remove(fn)
                if not self._subscribers and not self._taps:
                    self._kernel.emit_to(None)

        return end

    def _pass(self, raw: RawEvent) -> None:
        for fn in self._taps:
            fn(raw)
        if self._subscribers:
            self.undelivered.append(raw)

    def deliver(self) -> None:
        """Pass on what has come in, in order; one thread at a time, a second one leaves it to the first."""
        me = object()
        while self.undelivered:
            try:
                with self._guard:
                    if self._deliverer is not None:
                        return
                    self._deliverer = me
                self._pass_on_all()
            finally:
                if self._deliverer is me:  # no call stands before this: no signal comes between
                    self._deliverer = None

    def _pass_on_all(self) -> None:
        while self.undelivered:
            self._pass_on(Event.of(self.undelivered.popleft()))

    def _pass_on(self, event: Event) -> None:
        missed = event.seq - self._last_delivered - 1
        self._last_delivered = event.seq
        if missed > 0:
            told = "%d events before %d were not delivered: a subscriber was too slow, or broken off by an interrupt"
            self._log.warning(told, missed, event.seq)
        for fn in list(self._subscribers):
            try:
                fn(event)
            except Exception as error:  # noqa: BLE001 - a subscriber has no say in scheduling
                self._log.error("an event subscriber failed", exc_info=loggable(error))
