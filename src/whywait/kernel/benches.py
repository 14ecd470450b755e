"""Benches: where lanes wait for a gate, ordered by how much they need.

A bench belongs to one gate and one level. It answers "which lane whose need fits into this room has waited
longest?" without looking at the lanes that do not fit and without moving those that fit but are not chosen. So a
release costs the same whether all tasks demand the same amount or every one another.

The lanes are kept sorted by (need, entry of the head task) in blocks of a few hundred; each block remembers its
oldest entry. A question is a ``min`` over the blocks that fit whole and one over the fitting part of the block at
the border: both run at C speed over plain ints (guarded by ``bench/kernel.py``, *distinct demands*).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import Any, Final

_BLOCK: Final = 512
_ENTRY_BITS: Final = 64
_ENTRY_MASK: Final = (1 << _ENTRY_BITS) - 1


class _Block:
    """A run of lanes in key order, as three parallel lists."""

    __slots__ = ("entries", "keys", "lanes")

    def __init__(self, keys: list[int], entries: list[int], lanes: list[Any]) -> None:
        self.keys = keys
        self.entries = entries
        self.lanes = lanes


class Bench:
    """The lanes of one level that wait for one gate."""

    __slots__ = ("_blocks", "_oldest", "_tops", "opening")

    def __init__(self) -> None:
        """Make an empty bench."""
        self.opening = False  # its level lists the gate as opening: some lane may fit now
        self._blocks: list[_Block] = []
        self._tops: list[int] = []  # the largest key of each block
        self._oldest: list[int] = []  # the smallest entry of each block

    def __bool__(self) -> bool:
        """Return whether any lane waits here."""
        return bool(self._blocks)

    def smallest_need(self) -> int:
        """Return the least that any lane here needs."""
        block = self._blocks[0]
        return block.keys[0] >> _ENTRY_BITS

    def oldest_entry(self) -> int:
        """Return the entry of the head that has waited longest, whether its lane fits or not; some lane must wait."""
        return min(self._oldest)

    def add(self, lane: Any, need: int, entry: int) -> int:
        """Let a lane wait here that needs this much and whose head has this entry; return the key to remove it by."""
        key = need << _ENTRY_BITS | entry  # of any size, so that no need is too large
        blocks = self._blocks
        if not blocks:
            blocks.append(_Block([key], [entry], [lane]))
            self._tops.append(key)
            self._oldest.append(entry)
            return key
        at = min(bisect_left(self._tops, key), len(blocks) - 1)
        block = blocks[at]
        index = bisect_left(block.keys, key)
        block.keys.insert(index, key)
        block.entries.insert(index, entry)
        block.lanes.insert(index, lane)
        self._tops[at] = block.keys[-1]
        self._oldest[at] = min(self._oldest[at], entry)
        if len(block.keys) > _BLOCK:
            self._split(at)
        return key

    def remove(self, key: int) -> None:
        """Take a lane off the bench."""
        at = bisect_left(self._tops, key)
        block = self._blocks[at]
        index = bisect_left(block.keys, key)
        entry = block.entries[index]
        del block.keys[index], block.entries[index], block.lanes[index]
        if not block.keys:
            del self._blocks[at], self._tops[at], self._oldest[at]
            return
        self._tops[at] = block.keys[-1]
        if entry == self._oldest[at]:
            self._oldest[at] = min(block.entries)

    def first(self, room: int | None) -> Any:
        """Return the lane that has waited longest among those whose need fits into ``room`` (None: any)."""
        blocks = self._blocks
        if not blocks:
            return None
        bound = self._bound(room)
        block = blocks[0]
        if block.keys[0] >= bound:
            return None
        if len(block.keys) == 1 and len(blocks) == 1:
            return block.lanes[0]
        whole = bisect_left(self._tops, bound)
        best = min(self._oldest[:whole]) if whole else _ENTRY_MASK
        if whole < len(blocks):
            block = blocks[whole]
            part = bisect_left(block.keys, bound)
            if part:
                oldest = min(block.entries[:part])
                if oldest < best:
                    return block.lanes[block.entries.index(oldest)]
        if not whole:
            return None
        block = blocks[self._oldest.index(best)]
        return block.lanes[block.entries.index(best)]

    def take(self, room: int) -> list[Any]:
        """Remove and return all lanes whose need fits into ``room``."""
        taken: list[Any] = []
        bound = self._bound(room)
        whole = bisect_left(self._tops, bound)
        for block in self._blocks[:whole]:
            taken.extend(block.lanes)
        del self._blocks[:whole], self._tops[:whole], self._oldest[:whole]
        if self._blocks:
            block = self._blocks[0]
            part = bisect_left(block.keys, bound)
            if part:
                taken.extend(block.lanes[:part])
                del block.keys[:part], block.entries[:part], block.lanes[:part]
                self._oldest[0] = min(block.entries)
        return taken

    def lanes(self) -> list[Any]:
        """Return all lanes that wait here, least need first."""
        return list(self.lanes_in_order())

    def lanes_in_order(self) -> Iterator[Any]:
        """Yield the lanes that wait here, least need first."""
        return (lane for block in self._blocks for lane in block.lanes)

    def _bound(self, room: int | None) -> int:
        return self._tops[-1] + 1 if room is None else room + 1 << _ENTRY_BITS

    def _split(self, at: int) -> None:
        block = self._blocks[at]
        half = len(block.keys) // 2
        upper = _Block(block.keys[half:], block.entries[half:], block.lanes[half:])
        lower = _Block(block.keys[:half], block.entries[:half], block.lanes[:half])
        self._blocks[at : at + 1] = [lower, upper]
        self._tops[at : at + 1] = [lower.keys[-1], upper.keys[-1]]
        self._oldest[at : at + 1] = [min(lower.entries), min(upper.entries)]
