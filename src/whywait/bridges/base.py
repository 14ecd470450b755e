"""What all bridges share: following an authority, in order, each event once, to the moment they are closed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from threading import RLock
from types import TracebackType
from typing import Any, Protocol, Self

from whywait.kernel.events import Event


class EventSource(Protocol):
    """What a bridge needs of an authority: its events, those to come and those it remembers."""

    @property
    def settings(self) -> Any:  # noqa: ANN401 - of a room above
        """What the authority runs under: limits, budget."""

    @property
    def _core(self) -> Any:  # noqa: ANN401 - of a room above
        """Has the log, and `tap`, which calls a function with every raw event in the thread that caused it."""

    def subscribe(self, fn: Callable[[Event], object]) -> Callable[[], None]:
        """Call ``fn`` with every event from now on, in order; return a function that ends it."""

    def events(self, since: int = 0) -> Sequence[Event]:
        """Return the remembered events after ``since``, oldest first."""


class Bridge(ABC):
    """Takes the events of an authority until it is closed; usable as a block."""

    def __init__(self, authority: EventSource, *, from_the_beginning: bool = False) -> None:
        """Follow ``authority`` from now on, or from the first event that it remembers."""
        self._authority = authority
        self._lock = RLock()
        self._last_seq = 0
        with self._lock:
            self._stop = authority.subscribe(self._deliver)
            past = authority.events()
            for event in past if from_the_beginning else ():
                self._take(event)
            if past:
                self._last_seq = past[-1].seq

    @abstractmethod
    def take(self, event: Event, skipped: int) -> None:
        """Carry one event; ``skipped`` others before it are lost."""

    def close(self) -> None:
        """Take what has happened up to now, and no more."""
        self._stop()
        with self._lock:
            for event in self._authority.events(since=self._last_seq):
                self._take(event)

    def __enter__(self) -> Self:
        """Use as a block."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close."""
        self.close()

    def _deliver(self, event: Event) -> None:
        with self._lock:
            self._take(event)

    def _take(self, event: Event) -> None:
        if event.seq > self._last_seq:
            skipped = event.seq - self._last_seq - 1
            self._last_seq = event.seq
            self.take(event, skipped)
