"""The levels: which lane comes first in the order, without asking all levels.

Because a task's ready_since never decreases with its entry number, the oldest entry of a level is also its best
under any order in which waiting longer never hurts. So each level offers one lane, and the levels stand in a
:class:`LevelHeap` by the effective priority and the entry of that lane's head. Three facts keep it exact at little
cost:

1. A place in the heap may be too good, never too bad: a level whose head has left is looked at when it comes to the
   top, and moved down then. Whatever may make a level better (it was empty, a gate opens) gives it a new place.
2. Aging lifts a head at a known moment. Each level has one such moment noted, no later than that of its head; when
   it has come, the level gets a new place. Heads at the cap are lifted no more.
3. A level that stands alone is not compared with anything, so its place is kept, even while it has nothing to offer.
   If one open lane is all that it has, this lane is first until another one opens, while it is empty too:
   ``Levels.alone``.

Levels of tasks that take no slot stand in a heap of their own, ``beside``, so that they are found while all slots are
taken.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush

from whywait.kernel.accounts import Ceiling
from whywait.kernel.benches import Bench
from whywait.kernel.gates import UNLIMITED, Gate
from whywait.kernel.model import BESIDE, NEVER, Lane, Level, Task
from whywait.kernel.order import Order


class LevelHeap:
    """A heap of levels: the first is the one with the highest effective priority, then the lowest entry.

    A level knows its place, so that it is moved and taken out from anywhere.
    """

    __slots__ = ("levels",)

    def __init__(self) -> None:
        """Start empty."""
        self.levels: list[Level] = []

    def put(self, level: Level, effective: int, entry: int) -> None:
        """Put a level in, or give it another place."""
        level.effective = effective
        level.entry = entry
        if level.place < 0:
            level.place = len(self.levels)
            self.levels.append(level)
        self._settle(level)

    def drop(self, level: Level) -> None:
        """Take a level out, if it is in."""
        place = level.place
        if place >= 0:
            level.place = -1
            last: Level = self.levels.pop()
            if last is not level:
                last.place = place
                self.levels[place] = last
                self._settle(last)

    def _settle(self, level: Level) -> None:
        """Move a level up or down to where it belongs."""
        levels, place = self.levels, level.place
        while place:
            parent = levels[(place - 1) >> 1]
            if not _is_before(level, parent):
                break
            levels[place] = parent
            parent.place = place
            place = (place - 1) >> 1
        count = len(levels)
        while 2 * place + 1 < count:
            below = 2 * place + 1
            child = levels[below]
            if below + 1 < count and _is_before(levels[below + 1], child):
                below += 1
                child = levels[below]
            if not _is_before(child, level):
                break
            levels[place] = child
            child.place = place
            place = below
        levels[place] = level
        level.place = place


def _is_before(level: Level, other: Level) -> bool:
    if level.effective != other.effective:
        return level.effective > other.effective
    return level.entry < other.entry


class Levels:
    """The priority levels in use, in the order in which their lanes may start."""

    __slots__ = ("_by_rank", "_steps", "alone", "beside", "ceiling", "heap", "in_use", "opening", "order", "step_ns")

    def __init__(self, order: Order) -> None:
        """Start without any level."""
        self.order = order
        self.step_ns = order.next_step(0, 0) or UNLIMITED  # a shorter wait has gained nothing
        self.ceiling = Ceiling()
        self.in_use = 0  # how many levels there are of tasks that take a slot
        self._by_rank: list[Level | None] = [None] * (2 * BESIDE)
        self.heap = LevelHeap()
        self.beside = LevelHeap()  # of tasks that take no slot
        self._steps: list[tuple[int, int]] = []  # (when its head may be lifted, rank); see `Level.step_at`
        self.opening: dict[Level, None] = {}  # levels in which a gate opens for parked lanes
        self.alone: Lane | None = None  # the only lane that may be open, of tasks that take a slot; None: ask `first`

    def __iter__(self) -> Iterator[Level]:
        """Yield the levels in use, highest rank first."""
        return (level for level in reversed(self._by_rank) if level is not None)

    def level_of(self, rank: int) -> Level:
        """Return the level of a rank; it is made when it is first asked for."""
        level = self._by_rank[rank]
        if level is None:
            ceiling, among = self.ceiling, self.heap if rank < BESIDE else self.beside
            step = self.order.next_step(rank % BESIDE, 0)
            level = Level(rank, among, step, ceiling.segment(rank), ceiling.version)
            self._by_rank[rank] = level
            self.in_use += level.takes_slot
        return level

    def update(self, level: Level) -> None:
        """Bring the account of a level up to date with the ceiling."""
        ceiling = self.ceiling
        if level.version != ceiling.version:
            level.version = ceiling.version
            level.segment = ceiling.segment_after(level.segment, level.rank)

    def first(self, now: int, no_slot_held: bool, heap: LevelHeap) -> Lane | None:
        """Return the lane whose head comes first in the order, of those in a heap that face no closed gate."""
        steps = self._steps
        if steps and steps[0][0] <= now:
            self._lift(now)
        levels = heap.levels
        while levels:
            level = levels[0]
            lane = level.first(no_slot_held)
            if len(levels) == 1:
                if len(level.heap) == 1 and not level.opening and level.takes_slot:
                    self.alone = lane
                return lane
            if lane is None:
                heap.drop(level)
                continue
            self._put(now, level, lane)
            if level.place == 0:
                return lane
        return None

    def earlier(self, now: int, lane: Lane | None, other: Lane | None) -> Lane | None:
        """Return that one of two lanes whose head comes first in the order."""
        if lane is None or other is None:
            return lane if other is None else other
        key, other_key = self.sort_key(now, lane.front[-1]), self.sort_key(now, other.front[-1])
        return lane if key <= other_key else other

    def sort_key(self, now: int, task: Task) -> tuple[int, int]:
        """Return what READY tasks are sorted by: effective priority, highest first, then entry (P2)."""
        return -self.order.effective(task.priority, now - task.since), task.entry

    def offer(self, now: int, level: Level, lane: Lane) -> None:
        """Let a lane that has just opened, or has got its first task, count in the order."""
        self.alone = None
        if level.place < 0 or lane.head_entry() < level.entry:
            self._put(now, level, lane)

    def opened(self, now: int, gate: Gate, no_slot_held: bool) -> None:
        """Let the lanes count in the order that wait at a gate which has more free now and may fit."""
        room = gate.room(no_slot_held)
        bench: Bench
        for rank, bench in gate.benches.items():
            if not bench.opening and (room is None or bench.smallest_need() <= room):
                level = self._by_rank[rank]
                assert level is not None, "a lane waits here, so its level is in use"
                bench.opening = True
                level.opening.append(gate)
                self.opening[level] = None
                self.alone = None
                if level.place < 0 or bench.oldest_entry() < level.entry:
                    oldest = bench.first(None)
                    assert oldest is not None, "a bench that is kept has lanes"
                    self.offer(now, level, oldest)

    def _put(self, now: int, level: Level, lane: Lane) -> None:
        """Give a level the place of a lane that it offers; note when aging lifts the lane's head next."""
        head: Task = lane.front[-1]
        heap: LevelHeap = level.among
        waited, priority = now - head.since, level.priority
        if waited < self.step_ns:  # it has gained nothing yet
            effective, step = priority, level.first_step_ns
        else:
            effective, step = self.order.effective(priority, waited), self.order.next_step(priority, waited)
        if step is not None and head.since + step < level.step_at:
            level.step_at = at = head.since + step
            heappush(self._steps, (at, level.rank))
        heap.put(level, effective, head.entry)

    def _lift(self, now: int) -> None:
        """Give new places to the levels whose head may have been lifted since."""
        steps = self._steps
        while steps and steps[0][0] <= now:
            at, rank = heappop(steps)
            level = self.level_of(rank)
            if at == level.step_at:
                level.step_at = NEVER
                self.alone = None
                lane = level.first(True)
                if lane is not None:
                    self._put(now, level, lane)
                else:
                    level.among.drop(level)
