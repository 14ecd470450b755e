"""The feed: one reader of the authority's events for all viewers, on the server's own thread.

It never runs in a task's thread and never makes one wait for more than a short copy under the lock. It looks for news
five times a second, less often if it finds more than ``PER_S`` events a second: a run at full speed keeps its
processor. What falls out of the authority's ring meanwhile is counted, told to every viewer as "skipped N", and made
good by a fresh look at the living tasks. In between it lets go of the interpreter, so that no task waits for it longer
than a fraction of a millisecond.
"""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict
from functools import lru_cache
from itertools import islice
from operator import attrgetter
from time import monotonic_ns, sleep
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from whywait.devtools.histograms import Histograms
from whywait.devtools.table import TaskTable, picture
from whywait.kernel.events import Event
from whywait.units import NS_PER_S as NS

if TYPE_CHECKING:
    from whywait.authority import Authority

PERIOD_S: Final = 0.2
MANY: Final = 10  # viewers, for whom it looks half as often, so that twice as much goes out at once
AT_ONCE: Final = 1_000  # events that are taken in whenever somebody asks
MOST: Final = 5_000  # and then it rests, as long as anything runs
PER_S: Final = 5_000  # events; where there are more, some fall out of the authority's ring in time and are skipped
LIVING: Final = 20_000  # tasks that are looked at afresh
SLICE: Final = 32  # events, after which the tasks' threads get the interpreter if they want it
FRAMES: Final = 1_000  # events in one piece of a stream
KEPT_PIECES: Final = 16
KEEP_ALIVE_S: Final = 15.0

_encode: Final = json.JSONEncoder(separators=(",", ":")).encode


class Piece(NamedTuple):
    """Some encoded events of a stream, and the seq after which to go on."""

    data: bytes
    seq: int


class Feed:
    """The latest events, the table of tasks, and what viewers are to be sent."""

    def __init__(self, authority: Authority | None, kept: int) -> None:
        """Read from an authority, or from nothing; remember up to ``kept`` events."""
        self._authority = authority
        self._kept = kept
        self._events: list[Event] = []  # without gaps
        self._pieces: OrderedDict[int, Piece] = OrderedDict()  # encoded once for all viewers, by the seq before
        self._news = asyncio.Event()
        self._rest_until_ns = 0
        self.table = TaskTable()
        self.histograms = Histograms()
        self.seq = 0
        self.skipped = 0  # events that no viewer of this server will ever see
        self.finished = False
        self.viewers = 0
        if authority is not None:
            self._look_afresh(authority)

    # In

    async def run(self) -> None:
        """Look for news until cancelled."""
        while True:
            self.catch_up()
            await asyncio.sleep(PERIOD_S * (1 + self.viewers / MANY))

    def catch_up(self) -> None:
        """Take in what has happened since the last time, unless that was so much that a rest is due."""
        authority = self._authority
        while authority is not None and monotonic_ns() >= self._rest_until_ns and authority.last_seq != self.seq:
            events: list[Event] = authority.events(self.seq, limit=MOST)
            if events and events[0].seq == self.seq + 1:
                self.take(events)
            else:
                events = self._look_afresh(authority)
            if authority.kernel.running:
                if len(events) > AT_ONCE:
                    self._rest_until_ns = monotonic_ns() + len(events) * NS // PER_S
                return

    def take(self, events: list[Event]) -> None:
        """Take events in, in order; those of a saved run may have gaps."""
        if not events:
            return
        if self._events and events[0].seq != self.seq + 1:
            self.skipped += events[0].seq - self.seq - 1
            self._events.clear()
        table, observe = self.table, self.histograms.observe
        for index, event in enumerate(events, 1):
            table.apply(event)
            observe(event, table)
            if not index % SLICE:
                sleep(0)
        self._events += events
        if len(self._events) > 2 * self._kept:
            del self._events[: -self._kept]
        self.seq = events[-1].seq
        self._tell()

    def _look_afresh(self, authority: Authority) -> list[Event]:
        """Take in the events there are and, because some were missed, the living tasks as they are now."""
        with authority.lock:
            events = authority.events(max(self.seq, authority.last_seq - MOST))
            tasks = [task for scope in authority.kernel.scopes.values() for task in scope.tasks.values()]
        self.take(events)
        # Pictured without the lock: what changes meanwhile comes as an event later than these.
        living = []
        for task in islice(tasks, LIVING):
            living.append(picture(task, self.seq))
            if not len(living) % SLICE:
                sleep(0)
        self.table.resume_from(sorted(living, key=attrgetter("number")), {task.number for task in tasks})
        if authority.kernel.running:
            self._rest_until_ns = monotonic_ns() + len(tasks) * NS // PER_S
        return events

    def finish(self) -> None:
        """Take in the last events and tell every viewer that there will be no more."""
        self._rest_until_ns = 0
        self.catch_up()
        self.finished = True
        self._tell()

    def _tell(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    # Out

    @property
    def first(self) -> int:
        """The seq of the oldest event that is remembered."""
        return self._events[0].seq if self._events else self.seq + 1

    def since(self, seq: int, limit: int) -> list[Event]:
        """Return up to ``limit`` remembered events after a seq, oldest first."""
        start = max(0, seq + 1 - self.first)
        return self._events[start : start + limit]

    def of_task(self, number: int) -> list[Event]:
        """Return the remembered events of one task."""
        return [event for event in self._events if event.number == number]

    def piece_after(self, seq: int) -> Piece | None:
        """Return the next piece of the stream for a viewer who has seen everything up to ``seq``."""
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
        frames = []
        for event in events:
            frames.append(f"id: {event.seq}\ndata: {event_json(event)}\n\n")
            if not len(frames) % SLICE:
                sleep(0)
        piece = Piece("".join(frames).encode(), events[-1].seq)
        self._pieces[seq] = piece
        if len(self._pieces) > KEPT_PIECES:
            self._pieces.popitem(last=False)
        return piece

    async def news(self) -> bool:
        """Wait until there is something new; return False if a stream has stayed silent for too long."""
        news = self._news
        try:
            async with asyncio.timeout(KEEP_ALIVE_S):
                await news.wait()
        except TimeoutError:
            return False
        return True


def event_json(event: Event) -> str:
    """Return ``event.to_dict()`` as JSON, in half the time."""
    seq, time_ns, kind, scope, number, name, cause, details = event
    parts = f'{{"seq":{seq},"time_ns":{time_ns},"kind":"{kind}","scope":{_encode(scope)}'
    if number is not None:
        parts += f',"number":{number}'
    if name is not None:
        parts += f',"name":{_encode(name)}'
    if cause is not None:
        parts += f',"cause":{cause}'
    if details:
        parts += f',"details":{_details_json(details)}'
    return parts + "}"


def _details_json(details: tuple[tuple[str, Any], ...]) -> str:
    try:
        return _told_before(details)
    except TypeError:  # the waits in it are a dict of their own
        return _told_before.__wrapped__(details)


@lru_cache(maxsize=1_000)
def _told_before(details: tuple[tuple[str, Any], ...]) -> str:
    """Return details as JSON that many events share: an outcome, a lane."""
    return _encode(Event(0, 0, "", "", None, None, None, details).to_dict()["details"])


def frame(seq: int | None, data: dict[str, Any], kind: str | None = None) -> bytes:
    """Return one server-sent event."""
    head = (f"id: {seq}\n" if seq is not None else "") + (f"event: {kind}\n" if kind else "")
    return f"{head}data: {_encode(data)}\n\n".encode()
