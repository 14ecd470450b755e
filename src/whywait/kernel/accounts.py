"""Wait accounting by prefix sums: the exact division of every wait, whatever the queue length.

Nothing walks the queue to charge waiting time. Instead two kinds of shared, immutable records carry running totals:

* A :class:`Segment` belongs to a priority level. All lanes of the level that dispatch has not got to wait for the
  same thing (``slot``, ``slot_higher`` while a higher priority holds a slot, or ``held_back``), so the level counts
  it once for all. The :class:`Ceiling` keeps the time spent under each highest running priority; a level gets a new
  segment from it when a task looks at the level after a change, so that a change costs the same for any number of
  levels.
* An :class:`Epoch` belongs to a lane. Whenever dispatch parks the lane on a gate, or the gate opens for it, the lane
  starts a new epoch with its totals so far.

A task only remembers which segment and which epoch it entered READY in. When it leaves, the difference of the
totals is its wait, cause by cause; it costs O(causes). Records live as long as some task points to them.
"""

from __future__ import annotations

from typing import Final

from whywait.kernel.gates import Gate
from whywait.kernel.limits import HIGHEST
from whywait.kernel.state import Wait

# Globals are found faster than attributes of a class, before Python 3.12.
_SLOT: Final = Wait.SLOT
_SLOT_HIGHER: Final = Wait.SLOT_HIGHER
_HELD_BACK: Final = Wait.HELD_BACK
_OF_LEVELS: Final = (_SLOT, _SLOT_HIGHER, _HELD_BACK)


class Waited:
    """How long something has waited, by cause: what a level waits for is counted apart, because it is asked often."""

    __slots__ = ("gates", "held_back", "slot", "slot_higher")

    def __init__(self, slot: int, slot_higher: int, held_back: int) -> None:
        """Start with what a level waits for."""
        self.slot = slot
        self.slot_higher = slot_higher
        self.held_back = held_back
        self.gates: dict[str, int] | None = None  # every other cause

    def add(self, cause: str, ns: int) -> None:
        """Add time under a cause."""
        if cause is _SLOT:
            self.slot += ns
        elif cause is _SLOT_HIGHER:
            self.slot_higher += ns
        elif cause is _HELD_BACK:
            self.held_back += ns
        else:
            gates = self.gates
            if gates is None:
                gates = self.gates = {}
            gates[cause] = gates.get(cause, 0) + ns

    def add_all(self, other: Waited, sign: int) -> None:
        """Add all that another one has, or with the sign -1 take it away."""
        self.slot += sign * other.slot
        self.slot_higher += sign * other.slot_higher
        self.held_back += sign * other.held_back
        if other.gates is not None:
            for cause, ns in other.gates.items():
                self.add(cause, sign * ns)

    def only_cause(self) -> str | None:
        """Return the one cause that there is; None if there are several."""
        if self.gates is not None:
            return None  # it may be one all the same: nothing is lost but a little room
        if self.slot and not self.slot_higher and not self.held_back:
            return _SLOT
        if self.slot_higher and not self.slot and not self.held_back:
            return _SLOT_HIGHER
        return _HELD_BACK if self.held_back and not self.slot and not self.slot_higher else None

    def total(self) -> int:
        """Return the whole time."""
        total = self.slot + self.slot_higher + self.held_back
        if self.gates is not None:
            total += sum(self.gates.values())
        return total

    def by_cause(self) -> dict[str, int]:
        """Return cause -> ns, without causes of no time."""
        waits = {_SLOT: self.slot, _SLOT_HIGHER: self.slot_higher, _HELD_BACK: self.held_back, **(self.gates or {})}
        return {cause: ns for cause, ns in waits.items() if ns}


def waited_of(by_cause: dict[str, int]) -> Waited:
    """Return waits that were told by cause."""
    waited = Waited(0, 0, 0)
    for cause, ns in by_cause.items():
        waited.add(Wait(cause) if cause in _OF_LEVELS else cause, ns)
    return waited


class Segment:
    """A stretch of time in which the lanes of one level that wait for a slot all wait for the same cause."""

    __slots__ = ("held_back", "higher", "mode", "since", "slot", "slot_higher", "starved")

    def __init__(
        self,
        since: int,
        mode: str,
        higher: bool,
        slot: int,
        slot_higher: int,
        held_back: int,
        starved: int,
    ) -> None:
        """Start a segment at ``since`` with the totals up to then; ``higher``: a higher priority holds a slot."""
        self.since = since
        self.mode = mode
        self.higher = higher
        self.slot = slot
        self.slot_higher = slot_higher
        self.held_back = held_back
        self.starved = starved

    def waited(self, at: int, begin: Segment, since: int) -> Waited:
        """Return what lanes of the level waited for from ``since``, within an earlier segment, to ``at`` in this."""
        waited = Waited(self.slot - begin.slot, self.slot_higher - begin.slot_higher, self.held_back - begin.held_back)
        waited.add(self.mode, at - self.since)
        waited.add(begin.mode, begin.since - since)
        return waited

    def starved_at(self, at: int) -> int:
        """Return for how long, in total, a higher priority has held a slot, at a moment within this segment."""
        return self.starved + at - self.since if self.higher else self.starved


class Ceiling:
    """The highest priority that holds a slot, over time, and whether lanes are held back.

    A change is O(1). What the lanes of a level have waited for follows from the times spent under each ceiling.
    """

    __slots__ = ("_free_ns", "_held_ns", "_whole_free_ns", "_whole_held_ns", "held", "since", "top", "version")

    def __init__(self) -> None:
        """Start at time 0 with no slot held."""
        self.top = -1  # the highest priority that holds a slot; -1: none does
        self.held = False  # backfill="none": a lane holds the others back
        self.since = 0
        self.version = 0  # grows with each change: a level's segment of an older version is out of date
        self._free_ns = [0] * (HIGHEST + 2)  # time under each ceiling while no lane was held back; -1 comes first
        self._held_ns = [0] * (HIGHEST + 2)  # the same while lanes were held back
        self._whole_free_ns = self._whole_held_ns = 0  # their sums

    def change(self, now: int, top: int, held: bool) -> None:
        """Have another ceiling from ``now`` on."""
        more = now - self.since
        if self.held:
            self._held_ns[self.top + 1] += more
            self._whole_held_ns += more
        else:
            self._free_ns[self.top + 1] += more
            self._whole_free_ns += more
        self.since = now
        self.top = top
        self.held = held
        self.version += 1

    def segment(self, priority: int) -> Segment:
        """Return the stretch of time that a level is in since the last change."""
        free_ns, held_ns, at = self._whole_free_ns, self._whole_held_ns, priority + 2
        starved = slot_higher = _above(self._free_ns, free_ns, at)
        if held_ns:
            starved += _above(self._held_ns, held_ns, at)
        higher = self.top > priority
        mode = wait_mode(higher, self.held)
        return Segment(self.since, mode, higher, free_ns - slot_higher, slot_higher, held_ns, starved)

    def segment_after(self, before: Segment, priority: int) -> Segment:
        """Return the stretch of time that a level is in; the one before if nothing has changed for the level since."""
        new = self.segment(priority)
        at = self.since
        same = new.mode is before.mode and new.higher == before.higher and new.starved == before.starved_at(at)
        if not same:
            return new
        since = new.waited(at, before, at)
        return new if since.slot or since.slot_higher or since.held_back else before


def _above(spent_ns: list[int], whole_ns: int, at: int) -> int:
    """Return the sum of a list from ``at`` on; ``whole_ns`` is all of it, so that the shorter part is added up."""
    return sum(spent_ns[at:]) if at > HIGHEST // 2 else whole_ns - sum(spent_ns[:at])


def wait_mode(higher: bool, held: bool) -> str:
    """Return what lanes of a level wait for that dispatch has not got to."""
    if held:
        return _HELD_BACK
    return _SLOT_HIGHER if higher else _SLOT


class Epoch:
    """A stretch of time in which a lane was parked on one gate, or on none."""

    __slots__ = ("base", "gate", "segment", "since")

    def __init__(self, since: int, gate: Gate | None, segment: Segment, base: Waited) -> None:
        """Start an epoch with the lane's totals so far; ``segment`` is the level's at that moment."""
        self.since = since
        self.gate = gate
        self.segment = segment
        self.base = base

    def totals(self, at: int, segment: Segment) -> Waited:
        """Return the lane's totals by cause at a moment within this epoch and within the level's ``segment``."""
        if self.gate is None:
            totals = segment.waited(at, self.segment, self.since)
        else:
            totals = Waited(0, 0, 0)
            totals.add(self.gate.name, at - self.since)
        totals.add_all(self.base, 1)
        return totals


def ready_wait(since: int, epoch: Epoch | None, segment: Segment, now: int, lane: Epoch, level: Segment) -> Waited:
    """Return how the wait of a READY task from ``since`` to ``now`` divides by cause.

    ``epoch`` and ``segment`` are what it entered in, ``lane`` and ``level`` what is current at ``now``.
    """
    if epoch is lane:
        if lane.gate is None:
            return level.waited(now, segment, since)
        waits = Waited(0, 0, 0)
        waits.add(lane.gate.name, now - since)
        return waits
    assert epoch is not None, "a READY task entered in an epoch"
    waits = lane.totals(now, level)
    waits.add_all(epoch.totals(since, segment), -1)
    return waits
