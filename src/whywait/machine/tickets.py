"""Tickets: what a change of the store is known by until it is on the disk."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, ClassVar, Protocol

from whywait.errors import MachineError

Then = Callable[[], object]
Change = Callable[[Any], object]  # called with a Transaction


class Writer(Protocol):
    """A store, as far as its tickets need it."""

    trouble: str | None

    def write_queued(self) -> bool:
        """Write what is queued, when no other thread writes; return whether nothing has to be tried again."""


class Ticket:
    """Says when a change is on the disk; ``failure`` is set if it never will be."""

    __slots__ = (
        "_callbacks",
        "_is_done",
        "_latch",
        "_store",
        "change",
        "failure",
        "is_new",
        "is_routine",
        "is_start",
        "job",
        "then",
    )
    _lock: ClassVar = threading.Lock()  # of all tickets: it is held for a moment only

    def __init__(
        self,
        store: Writer,
        change: Change,
        then: Then,
        job: object = None,
        *,
        is_new: bool = False,
        is_start: bool = False,
        is_routine: bool = False,
    ) -> None:
        """Wait for the writer; ``then`` is called first when the change, of one ``job`` or several, is on the disk."""
        self._store = store
        self.change = change
        self.then = then
        self.job = job
        self.is_new = is_new  # it can be refused; everything else has happened already
        self.is_start = is_start  # the job starts when this is on the disk, and not before
        self.is_routine = is_routine  # it answers no client
        self.failure: str | None = None
        self._is_done = False
        self._latch = threading.Lock()  # open when it is known: quicker than an Event
        self._latch.acquire()
        self._callbacks: list[Callable[[Ticket], object]] = []

    @property
    def is_done(self) -> bool:
        """Whether it is known that the change is on the disk, or never will be."""
        return self._is_done

    def wait(self) -> None:
        """Block until the change is on the disk; raise if it never will be."""
        if not self._is_done:
            self._store.write_queued()
        with self._latch:
            pass
        self.check()

    def write_now(self) -> None:
        """Have the change on the disk; raise if the disk does not take it at once: a service that begins hangs else."""
        if not self._store.write_queued() and (trouble := self._store.trouble) is not None:
            raise MachineError(trouble)
        self.wait()

    def check(self) -> None:
        """Raise if the change could not be written."""
        if self.failure is not None:
            raise MachineError(self.failure)

    def when_done(self, fn: Callable[[Ticket], object]) -> None:
        """Call ``fn`` on the thread that writes when it is known, or at once if it is."""
        with self._lock:
            if not self._is_done:
                self._callbacks.append(fn)
                return
        fn(self)

    def release(self, failure: str | None = None) -> None:
        """Let those that wait go on."""
        with self._lock:
            self.failure = failure
            self._is_done = True
            callbacks, self._callbacks = self._callbacks, []
        self._latch.release()
        for fn in callbacks:
            fn(self)
