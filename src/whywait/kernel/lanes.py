"""Lanes, priority levels, and the order among them.

A **lane** holds the READY tasks of one priority, scope and demand in FIFO order. All of them pass or fail the same
gates, so only the head matters. A **level** holds the lanes of one priority: the open ones in a heap by the entry of
their head, the parked ones on benches. Because a task's ready_since never decreases with its entry number, the
oldest entry of a level is also its best under any order in which waiting longer never hurts. So the next task is
the best of at most 101 level heads, exact at every instant, however many tasks are pending.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heappop, heapreplace
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from whywait.errors import ConfigError
from whywait.kernel.accounts import Epoch, Segment
from whywait.kernel.events import submitted_details
from whywait.kernel.state import TaskState, Wait

if TYPE_CHECKING:
    from whywait.kernel.benches import Bench
    from whywait.kernel.gates import Gate
    from whywait.kernel.model import Demand, Scope, Task
    from whywait.kernel.timers import Timer

Needs = tuple[tuple["Gate", int], ...]

_BLOCK_BITS: Final = 9
TRIM: Final = 64
_entry = attrgetter("entry")
_since = attrgetter("since")


@dataclass(frozen=True, slots=True)
class Strict:
    """Order by base priority alone; starvation is visible and intended."""

    def effective(self, base: int, waited_ns: int) -> int:  # noqa: ARG002 - the signature of an order
        """Return the base priority."""
        return base

    def promotions(self, base: int, waited_ns: int) -> int:  # noqa: ARG002 - the signature of an order
        """Return 0: nothing is ever lifted."""
        return 0

    def next_step(self, base: int, waited_ns: int) -> int | None:  # noqa: ARG002 - the signature of an order
        """Return None: nothing is ever lifted."""
        return None

    def waited_for(self, base: int, effective: int) -> int | None:
        """Return the waiting time from which on the priority is at least ``effective``, or None if it never is."""
        return 0 if base >= effective else None


@dataclass(frozen=True, slots=True)
class Aging:
    """Order by base priority plus ``boost`` for every ``every`` seconds waited, lifted up to ``cap`` at most."""

    every: float = 5.0
    boost: int = 10
    cap: int | None = 100
    every_ns: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Refuse values that make no sense."""
        if isinstance(self.every, bool) or not isinstance(self.every, int | float) or not 0 < self.every < float("inf"):
            raise ConfigError(f"aging every={self.every!r} is not allowed: use a number of seconds above 0")
        if isinstance(self.boost, bool) or not isinstance(self.boost, int) or self.boost < 0:
            raise ConfigError(f"aging boost={self.boost!r} is not allowed: use an int of 0 or more")
        if self.cap is not None and (isinstance(self.cap, bool) or not isinstance(self.cap, int)):
            raise ConfigError(f"aging cap={self.cap!r} is not allowed: use an int or None")
        object.__setattr__(self, "every_ns", max(1, round(self.every * 1_000_000_000)))

    def effective(self, base: int, waited_ns: int) -> int:
        """Return the priority after so much waiting: never above ``cap`` by the gain, never below ``base``."""
        lifted = base + waited_ns // self.every_ns * self.boost
        if self.cap is not None and lifted > self.cap:
            return max(self.cap, base)
        return lifted

    def promotions(self, base: int, waited_ns: int) -> int:
        """Return how many steps have lifted a task that waited so long."""
        steps = waited_ns // self.every_ns
        if self.boost == 0:
            return 0
        if self.cap is None:
            return steps
        return min(steps, max(0, -(-(self.cap - base) // self.boost)))

    def next_step(self, base: int, waited_ns: int) -> int | None:
        """Return the waiting time at which the next step lifts the task, or None if none will."""
        step = waited_ns // self.every_ns + 1
        at = step * self.every_ns
        return at if self.promotions(base, at) == step else None

    def waited_for(self, base: int, effective: int) -> int | None:
        """Return the waiting time from which on the priority is at least ``effective``, or None if it never is."""
        if base >= effective:
            return 0
        if self.boost == 0 or (self.cap is not None and effective > self.cap):
            return None
        return -(-(effective - base) // self.boost) * self.every_ns


Order = Strict | Aging


class _Gone:
    """Stands in a lane for a task that left from the middle, until the head has passed it."""

    __slots__ = ("entry", "since")

    def __init__(self, task: Task) -> None:
        self.entry = task.entry
        self.since = task.since


class Lane:
    """READY tasks of one priority, scope and demand, first in, first out.

    A list with a moving head rather than a deque: a task in the middle is found by bisection on its entry number, so
    that removing one and telling its position stay fast at a million tasks.
    """

    __slots__ = (
        "_base",
        "_gone_in",
        "bench",
        "bench_key",
        "demand",
        "details",
        "epoch",
        "first_index",
        "gone",
        "items",
        "level",
        "needs",
        "queued",
        "queued_details",
        "scope",
        "told",
        "told_cause",
        "watched",
    )

    def __init__(
        self, scope: Scope, level: Level, demand: Demand, needs: tuple[tuple[Gate, int], ...], now: int
    ) -> None:
        """Make an empty, open lane; ``needs`` lists its gates in the order in which they are asked."""
        self.scope = scope
        self.level = level
        self.demand = demand
        self.needs = needs
        self.queued: int | None = None  # the key under which the lane stands in its level's heap, None: not there
        self.bench: Bench | None = None
        self.bench_key = 0
        self.epoch = Epoch(now, None, level.segment, {})
        self.details = submitted_details(TaskState.READY, level.priority, demand)  # of those who are READY at once
        self.queued_details = submitted_details(TaskState.QUEUED, level.priority, demand)
        self.told_cause: tuple[Gate | None, bool] = (None, False)  # what the latest LANE_WAITS has said
        self.told = 0  # starvation has been looked at up to this entry
        self.watched = False  # stands in the level's starvation watch
        self.items: list[Any] = []  # tasks and _Gone; None before the head
        self.first_index = 0
        self._base = 0  # how many items were cut off in front of _items[0]
        self.gone = 0
        self._gone_in: dict[int, int] = {}  # block of absolute positions -> how many _Gone it has

    def __len__(self) -> int:
        """Return how many tasks wait in the lane."""
        return len(self.items) - self.first_index - self.gone

    @property
    def head(self) -> Task | None:
        """The task at the front."""
        items = self.items
        return items[self.first_index] if self.first_index < len(items) else None

    @property
    def head_entry(self) -> int:
        """The entry of the task at the front; the lane must not be empty."""
        entry: int = self.items[self.first_index].entry
        return entry

    @property
    def waits_for(self) -> str:
        """The wait cause that is charged to its tasks now: what dispatch last found."""
        gate = self.epoch.gate
        return gate.name if gate is not None else self.level.segment.mode

    def need(self, gate: Gate) -> int:
        """Return how much a task of this lane needs of a gate; 0 if it does not pass it."""
        return next((need for other, need in self.needs if other is gate), 0)

    def shift(self) -> Task:
        """Remove and return the task at the front; ``items`` is empty when nothing is left."""
        items = self.items
        index = self.first_index
        task: Task = items[index]
        items[index] = None
        index += 1
        self.first_index = index
        if self.gone:
            self._skip_gone()
            index = self.first_index
        if index >= len(items) or (index > TRIM and index * 2 > len(items)):
            self.trim()
        return task

    def remove(self, task: Task) -> bool:
        """Remove a task from anywhere in the lane; return whether it was at the front."""
        items = self.items
        if items[self.first_index] is task:
            self.shift()
            return True
        index = bisect_left(items, task.entry, self.first_index, key=_entry)
        items[index] = _Gone(task)
        block = self._base + index >> _BLOCK_BITS
        self.gone += 1
        self._gone_in[block] = self._gone_in.get(block, 0) + 1
        if self.gone >= TRIM and self.gone * 2 > len(items) - self.first_index:
            self.items = [item for item in items[self.first_index :] if type(item) is not _Gone]
            self.first_index = self._base = self.gone = 0
            self._gone_in.clear()
        return False

    def clear(self) -> None:
        """Remove all tasks."""
        self.items = []
        self.first_index = self._base = self.gone = 0
        self._gone_in.clear()

    def before(self, entry: int) -> int:
        """Return how many tasks of the lane entered before ``entry``."""
        return self._living_before(bisect_left(self.items, entry, self.first_index, key=_entry))

    def count_ahead(self, since: int, since_too: int, entry: int) -> int:
        """Return how many tasks entered by ``since``, or by ``since_too`` and before ``entry``; from the front."""
        items, first = self.items, self.first_index
        last = items[-1]
        if last.since <= since or (last.since <= since_too and last.entry < entry):
            return len(self)
        index = bisect_right(items, since, first, key=_since) if items[first].since <= since else first
        too = bisect_left(items, entry, first, key=_entry)
        if too > index and items[too - 1].since > since_too:
            too = bisect_right(items, since_too, first, key=_since)
        return self._living_before(max(index, too))

    def since_entry(self, entry: int) -> Iterator[Task]:
        """Yield the tasks whose entry is at least ``entry``, in order."""
        start = bisect_left(self.items, entry, self.first_index, key=_entry)
        for index in range(start, len(self.items)):
            item = self.items[index]
            if type(item) is not _Gone:
                yield item

    def __iter__(self) -> Iterator[Task]:
        """Yield all tasks in order."""
        return self.since_entry(0)

    def _living_before(self, index: int) -> int:
        living = index - self.first_index
        if self.gone:
            block = self._base + index >> _BLOCK_BITS
            living -= sum(count for number, count in self._gone_in.items() if number < block)
            start = max((block << _BLOCK_BITS) - self._base, self.first_index)
            living -= sum(type(item) is _Gone for item in self.items[start:index])
        return living

    def _skip_gone(self) -> None:
        items = self.items
        while self.first_index < len(items) and type(items[self.first_index]) is _Gone:
            block = self._base + self.first_index >> _BLOCK_BITS
            left = self._gone_in[block] - 1
            if left:
                self._gone_in[block] = left
            else:
                del self._gone_in[block]
            items[self.first_index] = None
            self.first_index += 1
            self.gone -= 1

    def trim(self) -> None:
        """Cut off what lies before the head."""
        del self.items[: self.first_index]
        self._base += self.first_index
        self.first_index = 0


class Level:
    """All lanes of one priority."""

    __slots__ = ("heap", "opening", "priority", "segment", "starve_timer", "watch")

    def __init__(self, priority: int, now: int, *, higher: bool, held: bool) -> None:
        """Make an empty level; ``higher``: a higher priority holds a slot, ``held``: backfill="none" holds back."""
        self.priority = priority
        # Open lanes by the entry of their head. A key may be too small, never too large: its lane's head has left.
        self.heap: list[tuple[int, Lane]] = []
        self.opening: list[Bench] = []  # benches on which a lane may fit since the last dispatch
        self.segment = Segment(now, wait_mode(higher=higher, held=held), higher=higher)
        self.watch: list[tuple[int, int, Lane | Task]] = []  # by the starved total at which to report
        self.starve_timer: Timer | None = None

    def first(self, nobody_runs: bool) -> Lane | None:  # noqa: FBT001 - the hot path
        """Return the lane whose head has waited longest among the open and the opening ones."""
        heap = self.heap
        lane = None
        while heap:
            key, lane = heap[0]
            if lane.items:
                entry = lane.head_entry
                if entry == key:
                    break
                lane.queued = entry
                heapreplace(heap, (entry, lane))
            else:
                heappop(heap)
                lane.queued = None
            lane = None
        if self.opening:
            for bench in self.opening[:]:
                candidate = bench.first(bench.gate.room(nobody_runs))
                if candidate is None:
                    bench.opening = False
                    self.opening.remove(bench)
                elif lane is None or candidate.head_entry < lane.head_entry:
                    lane = candidate
        return lane

    def switch(self, now: int, *, higher: bool, held: bool) -> None:
        """Start a new segment if what open lanes wait for has changed."""
        mode = wait_mode(higher=higher, held=held)
        if mode != self.segment.mode or higher != self.segment.higher:
            self.segment = Segment(now, mode, higher=higher, before=self.segment)


def wait_mode(*, higher: bool, held: bool) -> str:
    """Return what lanes of a level wait for that dispatch has not got to."""
    if held:
        return Wait.HELD_BACK
    return Wait.SLOT_HIGHER if higher else Wait.SLOT
