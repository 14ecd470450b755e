"""The feed: one reader of the authority's events for all viewers, on the server's own thread.

It never runs in a task's thread and never makes one wait for more than a short copy under the lock. It looks for news
five times a second, less often if it finds more than ``PER_S`` events a second: a run at full speed keeps its
processor. What falls out of the authority's ring meanwhile is counted, told to every viewer as "skipped N", and made
good by a fresh look at the living tasks. In between it lets go of the interpreter, so that no task waits for it longer
than a fraction of a millisecond.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import OrderedDict
from contextlib import suppress
from operator import attrgetter, itemgetter
from time import monotonic_ns
from typing import Final, NamedTuple

from whywait.devtools.encoding import frame, slices
from whywait.devtools.metrics import OBSERVED, Histograms
from whywait.devtools.table import TaskTable, picture
from whywait.kernel.events import Event, RawEvent
from whywait.observe.fold import Attempt
from whywait.runtime.services import CoreServices
from whywait.support.units import NS_PER_S as NS

PERIOD_S: Final = 0.2
MANY: Final = 10  # viewers, for which it looks half as often, so that twice as much goes out at once
LONGEST: Final = 3  # so many times as long it waits at most
AT_ONCE: Final = 1_000  # events that are taken in for each request
MOST: Final = 3_000  # and then it rests, as long as anything runs; as much as PER_S in the longest period
PER_S: Final = 5_000  # events; where there are more, some fall out of the authority's ring in time and are skipped
LIVING: Final = 20_000  # tasks that are looked at afresh
PICTURE: Final = 2  # events that one of them costs as much as
FRAMES: Final = 1_000  # events in one piece of a stream
KEPT_PIECES: Final = 16
WAKE_NS: Final = NS


class Piece(NamedTuple):
    """Some encoded events of a stream, and the seq after which to go on."""

    data: bytes
    seq: int


class Feed:
    """The latest events, the table of tasks, and what viewers are to be sent."""

    def __init__(self, core: CoreServices | None, kept: int) -> None:
        """Read from the core of an authority, or from nothing; remember up to ``kept`` events."""
        self._core = core
        self._kept = kept
        self._events: list[RawEvent] = []  # without gaps; as plain tuples, which no collection of garbage looks at
        self._pieces: OrderedDict[int, Piece] = OrderedDict()  # encoded once for all viewers, by the seq before
        self._news = asyncio.Event()
        self._rest_until_ns = 0
        self._told_ns = 0
        self.table = TaskTable()
        self.histograms = Histograms()
        self.seq = 0
        self.skipped = 0  # events that no viewer of this server will ever see
        self.finished = False
        self.viewers = 0
        self.rests = False  # while nothing happens and no viewer looks; then an event has to wake it
        self._awake = asyncio.Event()
        if core is not None:
            self._look_afresh(core)

    # In

    async def run(self) -> None:
        """Look for news until cancelled, and wake the viewers once a second even if there are none."""
        while True:
            told = self._news
            self.catch_up()
            if told is self._news and monotonic_ns() >= self._told_ns + WAKE_NS:
                self._tell()
            await asyncio.sleep(PERIOD_S * min(1 + self.viewers / MANY, LONGEST))
            if self.rests and not self.viewers:
                self._awake.clear()  # before the look: what happens after it wakes the feed
                if self._core is None or self._core.last_seq == self.seq:
                    await self._awake.wait()
                self._awake.set()

    def wake(self) -> None:
        """Look for news again, if the feed rests."""
        self._awake.set()

    def wake_from(self, loop: asyncio.AbstractEventLoop) -> None:
        """Do the same from any thread, and at the cost of a look if the feed does not rest."""
        if not self._awake.is_set():
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self._awake.set)

    def catch_up(self) -> None:
        """Take in what has happened since the last time, unless that was so much that a rest is due."""
        core = self._core
        while core is not None and monotonic_ns() >= self._rest_until_ns and core.last_seq != self.seq:
            events, _ = core.raw_events(self.seq, MOST)
            if events and events[0][0] == self.seq + 1:
                self.take(events)
            else:
                events = self._look_afresh(core)
            if core.kernel.running:
                if len(events) > AT_ONCE:
                    self._rest_until_ns = monotonic_ns() + len(events) * NS // PER_S
                return

    def take(self, events: list[RawEvent]) -> None:
        """Take events in, in order; those of a saved run may have gaps."""
        if not events:
            return
        if self._events and events[0][0] != self.seq + 1:
            self.skipped += events[0][0] - self.seq - 1
            self._events.clear()
        apply, observe = self.table.apply, self.histograms.observe
        for some in slices(events):
            for event in some:
                row = apply(event)
                if row is not None and event[2] in OBSERVED:
                    observe(event[2], row)
        self._events += events
        if len(self._events) > 2 * self._kept:
            del self._events[: -self._kept]
        self.seq = events[-1][0]
        self._tell()

    def _look_afresh(self, core: CoreServices) -> list[RawEvent]:
        """Take in the events there are and, because some were missed, the living tasks as they are now."""
        with core.lock:
            events, _ = core.raw_events(max(self.seq, core.last_seq - MOST), MOST)
            tasks = [task for scope in core.kernel.scopes.values() for task in scope.tasks.values()]
        self.take(events)
        # Pictured without the lock: what changes meanwhile comes as an event later than these.
        living = [picture(task, self.seq) for some in slices(tasks[:LIVING]) for task in some]
        self.table.resume_from(sorted(living, key=attrgetter("number")), {task.number for task in tasks})
        if core.kernel.running:
            self._rest_until_ns = monotonic_ns() + len(tasks) * PICTURE * NS // PER_S
        return events

    def finish(self) -> None:
        """Take in the last events and tell every viewer that there will be no more."""
        self._rest_until_ns = 0
        self.catch_up()
        self.finished = True
        self._tell()

    def _tell(self) -> None:
        self._told_ns = monotonic_ns()
        self._news.set()
        self._news = asyncio.Event()

    # Out

    @property
    def first(self) -> int:
        """The seq of the oldest event that is remembered."""
        return self._events[0][0] if self._events else self.seq + 1

    def since(self, seq: int, limit: int) -> list[RawEvent]:
        """Return up to ``limit`` remembered events after a seq, oldest first."""
        start = max(0, seq + 1 - self.first)
        return self._events[start : start + limit]

    def of_tasks(self, rows: list[Attempt]) -> list[RawEvent]:
        """Return the remembered events of some tasks."""
        numbers = {row.number for row in rows}
        start = bisect_left(self._events, min(row.submitted_ns for row in rows), key=itemgetter(1))
        events = self._events[start : max(row.seq for row in rows) + 1 - self.first]
        return [event for some in slices(events) for event in some if event[4] in numbers]

    def piece_after(self, seq: int) -> Piece | None:
        """Return the next piece of the stream for a viewer that has seen everything up to ``seq``."""
        seq = min(seq, self.seq)
        oldest = self.first
        if seq < oldest - 1 and seq < self.seq:
            data = {"skipped": oldest - 1 - seq, "from": seq + 1, "to": oldest - 1}
            return Piece(frame(oldest - 1, data, "skipped"), oldest - 1)
        known = self._pieces.get(seq)
        if known is not None:
            return known
        events = self.since(seq, FRAMES)
        if not events:
            return None
        frames = [frame(event[0], Event.of(event).to_dict()) for some in slices(events) for event in some]
        piece = Piece(b"".join(frames), events[-1][0])
        self._pieces[seq] = piece
        if len(self._pieces) > KEPT_PIECES:
            self._pieces.popitem(last=False)
        return piece

    async def news(self) -> None:
        """Wait until there is something new, or a second has passed."""
        await self._news.wait()
