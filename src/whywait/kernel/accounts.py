"""Wait accounting by prefix sums: the exact division of every wait, whatever the queue length.

Nobody walks the queue to charge waiting time. Instead two kinds of shared, immutable records carry running totals:

* A :class:`Segment` belongs to a priority level. All lanes of the level that dispatch has not got to wait for the
  same thing (``slot``, ``slot_higher`` while a higher priority holds a slot, or ``held_back``), so the level counts
  it once for all. Whenever that changes, the level starts a new segment with the totals so far.
* An :class:`Epoch` belongs to a lane. Whenever dispatch parks the lane on a gate, or the gate opens for it, the lane
  starts a new epoch with its totals so far.

A task only remembers which segment and which epoch it entered READY in. When it leaves, the difference of the
totals is its wait, cause by cause; it costs O(causes). Records live as long as some task points to them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from whywait.kernel.state import Wait

if TYPE_CHECKING:
    from whywait.kernel.gates import Gate


class Segment:
    """A stretch of time in which the lanes of one level that wait for a slot all wait for the same cause."""

    __slots__ = ("held_back", "higher", "mode", "since", "slot", "slot_higher", "starved")

    def __init__(self, since: int, mode: str, *, higher: bool, before: Segment | None = None) -> None:
        """Start a segment at ``since``; ``higher``: a task of higher priority holds a slot."""
        self.since = since
        self.mode = mode
        self.higher = higher
        if before is None:
            self.slot = self.slot_higher = self.held_back = self.starved = 0
        else:
            self.slot, self.slot_higher, self.held_back = before.totals(since)
            self.starved = before.starved_at(since)

    def totals(self, at: int) -> tuple[int, int, int]:
        """Return the totals of slot, slot_higher and held_back time at a moment within this segment."""
        more = at - self.since
        if self.mode == Wait.SLOT:
            return self.slot + more, self.slot_higher, self.held_back
        if self.mode == Wait.SLOT_HIGHER:
            return self.slot, self.slot_higher + more, self.held_back
        return self.slot, self.slot_higher, self.held_back + more

    def starved_at(self, at: int) -> int:
        """Return for how long, in total, a higher priority has held a slot, at a moment within this segment."""
        return self.starved + at - self.since if self.higher else self.starved


class Epoch:
    """A stretch of time in which a lane was parked on one gate, or on none."""

    __slots__ = ("base", "gate", "segment", "since")

    def __init__(self, since: int, gate: Gate | None, segment: Segment, base: dict[str, int]) -> None:
        """Start an epoch with the lane's totals so far; ``segment`` is the level's at that moment."""
        self.since = since
        self.gate = gate
        self.segment = segment
        self.base = base

    def totals(self, at: int, segment: Segment) -> dict[str, int]:
        """Return the lane's totals by cause at a moment within this epoch and within the level's ``segment``."""
        totals = self.base.copy()
        if self.gate is not None:
            name = self.gate.name
            totals[name] = totals.get(name, 0) + at - self.since
            return totals
        for cause, end, begin in zip(_OPEN_CAUSES, segment.totals(at), self.segment.totals(self.since), strict=True):
            if end != begin:
                totals[cause] = totals.get(cause, 0) + end - begin
        return totals


_OPEN_CAUSES = (Wait.SLOT, Wait.SLOT_HIGHER, Wait.HELD_BACK)


def ready_wait(since: int, epoch: Epoch, segment: Segment, now: int, lane: Epoch, level: Segment) -> dict[str, int]:
    """Return how the wait of a READY task from ``since`` to ``now`` divides by cause.

    ``epoch`` and ``segment`` are what it entered in, ``lane`` and ``level`` what is current at ``now``.
    """
    if epoch is lane:  # the common cases, told apart first for speed
        if lane.gate is not None:
            return {lane.gate.name: now - since}
        if segment is level:
            return {level.mode: now - since}
    begin = epoch.totals(since, segment)
    return {
        cause: total - begin.get(cause, 0)
        for cause, total in lane.totals(now, level).items()
        if total != begin.get(cause, 0)
    }
