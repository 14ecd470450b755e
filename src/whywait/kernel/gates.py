"""Gates: one condition each that a task needs open to start.

A gate answers one question, :meth:`Gate.closed`, and the same answer decides (dispatch parks the lane) and explains
(``why`` lists it). All gates share one form, a free amount against a need:

* authority slots and scope slots: a task needs 1, unless it takes no slot;
* a resource: a task needs what it demands;
* devices: see ``devices.py``; what is free depends on whether a task asks for whole units or for shares;
* scope state: free is 0 while the scope lets tasks start and -1 while it does not; a task needs 0.

Lanes that found a gate closed wait on its benches, one for each level.
"""

from __future__ import annotations

from typing import Final

from whywait.kernel.benches import Bench

UNLIMITED: Final = 1 << 62  # more than there can be of anything
SHUT: Final = -1  # what a state gate has free while its scope lets nothing start


class Gate:
    """A limit, what of it is free, and the lanes that wait for it."""

    __slots__ = ("benches", "free", "is_budget", "is_slots", "kind", "limit", "name", "scope_key", "soft", "use_ns")

    def __init__(
        self, kind: str, name: str, *, scope_key: str | None = None, limit: int | None = None, soft: bool = False
    ) -> None:
        """Make a gate of a ``kind`` (slot, scope_slots, scope_state, resource, device); ``name`` is its wait cause."""
        self.kind = kind
        self.name = name
        self.scope_key = scope_key
        self.limit = limit
        self.soft = soft
        self.is_budget = kind in ("resource", "device")
        self.is_slots = kind in ("slot", "scope_slots")
        self.benches: dict[int, Bench] = {}  # by the rank of the level
        self.free = 0 if kind == "scope_state" else self._all
        self.use_ns = 0  # amount times time of all that was held and has come back

    def resize(self, limit: int, in_use: int) -> None:
        """Have another limit; what is in use stays so, even if it is more than the limit."""
        self.free = limit - in_use
        self.limit = limit

    @property
    def _all(self) -> int:
        return UNLIMITED if self.limit is None else self.limit

    @property
    def in_use(self) -> int:
        """How much of it is held now."""
        return self._all - self.free

    def closed(self, need: int, no_slot_held: bool) -> bool:
        """Return whether a task that needs this much is stopped.

        A soft gate yields while no task holds a slot and none of the resource is in use (B2).
        """
        return self.free < need and not (self.soft and no_slot_held and self.free == self.limit)

    def can_never_pass(self, need: int) -> bool:
        """Return whether the limit itself stops a task that needs this much."""
        return self.is_budget and not self.soft and self.limit is not None and need > self.limit

    def room(self, no_slot_held: bool) -> int | None:
        """Return how much may be needed to pass; None: anything passes."""
        return None if self.soft and no_slot_held and self.free == self.limit else self.free

    def __repr__(self) -> str:
        """Show name, free and limit."""
        owner = f" of {self.scope_key!r}" if self.scope_key else ""
        return f"<Gate {self.name}{owner}: {self.free} of {self.limit} free>"
