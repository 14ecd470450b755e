"""A first-in-first-out queue that also removes from the middle, finds and counts, all by entry number.

The first items stand in ``front``, turned round, so that the next one is popped from the end of a short list. If there
are more than a few, the others stand in ``rest``, in order: an item in the middle is found there by bisection on its
entry number, so that removing one and telling its position stay fast at a million items. Whenever ``front`` is used up
it gets the next block of ``rest``; as long as there is an item at all, ``front`` has one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from operator import attrgetter
from typing import Any, Final

_BLOCK: Final = 256
_TRIM: Final = 64
_SHORT: Final = 16  # so few items are moved on faster than a block is taken from ``rest``
_since = attrgetter("since")


class Item:
    """What stands in a queue: a later one has a larger ``entry``, and no smaller ``since``."""

    __slots__ = ("entry", "since")

    entry: int
    since: int


class _Gone(Item):
    """Stands for an item that left from the middle of ``rest``, until its block moves to the front."""

    __slots__ = ()

    def __init__(self, item: Item) -> None:
        self.entry = item.entry
        self.since = item.since


class Fifo:
    """Items with growing ``entry`` and never shrinking ``since``, first in, first out."""

    __slots__ = ("_gone", "_gone_in", "_moved", "front", "rest")

    def __init__(self) -> None:
        """Make an empty queue."""
        self.front: list[Any] = []  # the first items, the very first one last; empty when nothing is left
        self.rest: list[Any] = []  # the items behind them, and _Gone; None for each one that moved to the front
        self._moved = 0  # how many of ``rest`` moved to the front, in whole blocks
        self._gone = 0  # how many of ``rest`` are _Gone
        self._gone_in: dict[int, int] = {}  # block of ``rest`` -> how many _Gone it has

    def __len__(self) -> int:
        """Return how many items wait."""
        return len(self.front) + len(self.rest) - self._moved - self._gone

    def head_entry(self) -> int:
        """Return the entry of the item at the front; the queue must not be empty."""
        head: Item = self.front[-1]
        return head.entry

    def append(self, item: Item) -> bool:
        """Add an item at the back; return whether it is the only one."""
        front = self.front
        if not front:
            front.append(item)
            return True
        if self.rest or len(front) >= _SHORT:
            self.rest.append(item)
        else:
            front.insert(0, item)
        return False

    def shift(self) -> Any:
        """Remove and return the item at the front."""
        front = self.front
        item = front.pop()
        if not front and self.rest:
            self._refill()
        return item

    def remove(self, item: Item) -> bool:
        """Remove an item from anywhere; return whether it was at the front."""
        front, rest = self.front, self.rest
        if front[-1] is item:
            self.shift()
            return True
        last: Item = front[0]
        if item.entry <= last.entry:
            front.remove(item)
            return False
        index = _place_of(rest, item.entry, self._moved)
        rest[index] = _Gone(item)
        self._gone += 1
        self._gone_in[index // _BLOCK] = self._gone_in.get(index // _BLOCK, 0) + 1
        if self._gone >= _TRIM and self._gone * 2 > len(rest) - self._moved:
            rest[:] = [each for each in rest[self._moved :] if type(each) is not _Gone]
            self._start_anew()
        return False

    def clear(self) -> None:
        """Remove all items."""
        self.front.clear()
        self.rest.clear()
        self._start_anew()

    def before(self, entry: int) -> int:
        """Return how many items entered before ``entry``."""
        front = self.front
        if front and entry <= front[0].entry:
            return sum([item.entry < entry for item in front])
        return len(front) + self._living_before(_place_of(self.rest, entry, self._moved))

    def count_ahead(self, since: int, since_too: int, entry: int) -> int:
        """Return how many items entered by ``since``, or by ``since_too`` and before ``entry``; from the front."""
        front, rest, first = self.front, self.rest, self._moved
        if not _is_ahead(front[0], since, since_too, entry):
            return sum([_is_ahead(item, since, since_too, entry) for item in front])
        if not rest or _is_ahead(rest[len(rest) - 1], since, since_too, entry):
            return len(self)
        index = bisect_right(rest, since, first, key=_since)
        too = _place_of(rest, entry, first)
        if too > index and rest[too - 1].since > since_too:
            too = bisect_right(rest, since_too, first, key=_since)
        return len(front) + self._living_before(max(index, too))

    def since_entry(self, entry: int) -> Iterator[Any]:
        """Yield the items whose entry is at least ``entry``, in order."""
        for item in reversed(self.front):
            if item.entry >= entry:
                yield item
        for index in range(_place_of(self.rest, entry, self._moved), len(self.rest)):
            item = self.rest[index]
            if type(item) is not _Gone:
                yield item

    def __iter__(self) -> Iterator[Any]:
        """Yield all items in order."""
        return self.since_entry(0)

    def _living_before(self, index: int) -> int:
        """Return how many items of ``rest`` stand before an index."""
        living = index - self._moved
        if self._gone:
            block = index // _BLOCK
            living -= sum([count for number, count in self._gone_in.items() if number < block])
            living -= sum([type(item) is _Gone for item in self.rest[max(block * _BLOCK, self._moved) : index]])
        return living

    def _refill(self) -> None:
        """Move the next block that has items to the front."""
        front, rest = self.front, self.rest
        while not front and self._moved < len(rest):
            start, stop = self._moved, self._moved + _BLOCK
            block = rest[start:stop]
            rest[start:stop] = [None] * len(block)
            gone = self._gone_in.pop(start // _BLOCK, 0)
            front.extend([item for item in block if type(item) is not _Gone] if gone else block)
            self._gone -= gone
            self._moved = stop
        front.reverse()
        if self._moved >= len(rest):
            rest.clear()
            self._start_anew()
        elif self._moved * 2 > len(rest):
            blocks = self._moved // _BLOCK
            self._gone_in = {number - blocks: count for number, count in self._gone_in.items()}
            del rest[: self._moved]
            self._moved = 0

    def _start_anew(self) -> None:
        """Have ``rest`` begin at its first item, with none gone."""
        self._moved = self._gone = 0
        self._gone_in.clear()


def _is_ahead(item: Item, since: int, since_too: int, entry: int) -> bool:
    return item.since <= since or (item.since <= since_too and item.entry < entry)


def _place_of(items: list[Any], entry: int, first: int) -> int:
    """Return the place, from ``first`` on, of the item with this entry, or of the next one; by bisection."""
    last = len(items)
    while first < last:
        middle = (first + last) // 2
        item: Item = items[middle]
        if item.entry < entry:
            first = middle + 1
        else:
            last = middle
    return first
