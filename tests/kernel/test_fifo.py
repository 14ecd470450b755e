"""A lane's queue, against a plain list."""

from __future__ import annotations

from random import Random

import pytest

from whywait.kernel.fifo import Fifo, Item


def item_of(entry: int, since: int) -> Item:
    """Return something that a queue takes."""
    item = Item()
    item.entry = entry
    item.since = since
    return item


class Pair:
    """A queue and a list that are to hold the same."""

    def __init__(self, seed: int) -> None:
        """Begin empty."""
        self.random = Random(seed)
        self.fifo, self.plain = Fifo(), []
        self.entry = self.now = 0

    def add(self, count: int) -> None:
        """Add items at the back."""
        for _ in range(count):
            self.entry += self.random.randint(1, 3)
            self.now += self.random.choice((0, 0, 1))
            item = item_of(self.entry, self.now)
            assert self.fifo.append(item) is (not self.plain)
            self.plain.append(item)

    def shift(self, count: int) -> None:
        """Take items from the front."""
        for _ in range(min(count, len(self.plain))):
            assert self.fifo.shift() is self.plain.pop(0)

    def remove(self, count: int) -> None:
        """Take items from anywhere."""
        for _ in range(min(count, len(self.plain))):
            index = self.random.randrange(len(self.plain))
            item = self.plain.pop(index)
            assert self.fifo.remove(item) is (index == 0)

    def compare(self) -> None:
        """Ask both the same."""
        assert list(self.fifo) == self.plain
        assert len(self.fifo) == len(self.plain)
        assert bool(self.fifo.front) is bool(self.plain)
        entry = self.random.randint(0, self.entry + 1)
        assert self.fifo.before(entry) == sum(item.entry < entry for item in self.plain)
        assert list(self.fifo.since_entry(entry)) == [item for item in self.plain if item.entry >= entry]
        if self.plain:
            assert self.fifo.head_entry() == self.plain[0].entry
            since = self.random.randint(0, self.now + 1)
            since_too = since + self.random.randint(0, 40)
            ahead = [each.since <= since or (each.since <= since_too and each.entry < entry) for each in self.plain]
            assert self.fifo.count_ahead(since, since_too, entry) == sum(ahead)


@pytest.mark.parametrize("seed", range(20))
def test_the_queue_of_a_lane_is_a_list(seed):
    """P6: a lane is first in, first out, and tells positions exactly, whatever leaves from the middle."""
    pair = Pair(seed)
    for _ in range(120):
        step = pair.random.choice((pair.add, pair.add, pair.shift, pair.remove))
        step(pair.random.choice((1, 3, 40, 300)))
        pair.compare()
    pair.fifo.clear()
    pair.plain.clear()
    pair.compare()
