"""Gates: one condition each that a task needs open to start.

A gate answers one question, :meth:`Gate.closed`, and the same answer decides (dispatch parks the lane) and explains
(``why`` lists it). All gates share one form, a free amount against a need:

* authority slots and scope slots: a task needs 1;
* a resource: a task needs what it demands;
* scope state: free is 0 while the scope lets tasks start and -1 while it does not; a task needs 0.

Lanes that found a gate closed wait on its benches, one for each priority level.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from whywait.kernel.benches import Bench
    from whywait.kernel.model import Scope

UNLIMITED: Final = 1 << 62  # more slots than anybody has


class Gate:
    """A limit, what of it is free, and the lanes that wait for it."""

    __slots__ = ("benches", "free", "is_budget", "kind", "limit", "name", "scope", "soft", "use_ns")

    def __init__(
        self, kind: str, name: str, *, scope: Scope | None = None, limit: int | None = None, soft: bool = False
    ) -> None:
        """Make a gate of a ``kind`` (slot, scope_slots, scope_state, resource); ``name`` is its wait cause."""
        self.kind = kind
        self.name = name
        self.scope = scope
        self.limit = limit
        self.soft = soft
        self.is_budget = kind == "resource"
        self.benches: dict[int, Bench] = {}
        self.free = 0 if kind == "scope_state" else self._all
        self.use_ns = 0  # each take subtracts amount times its time, each return adds it; passing on does neither

    def reset(self, now: int = 0) -> None:
        """Have all of the limit free from ``now`` on, and nobody waiting."""
        self.use_ns += self.in_use * now
        self.free = self._all
        self.benches.clear()

    @property
    def _all(self) -> int:
        return UNLIMITED if self.limit is None else self.limit

    @property
    def in_use(self) -> int:
        """How much of it is held now."""
        return self._all - self.free

    def used_ns(self, now: int) -> int:
        """Return amount times time of all that was held up to ``now``."""
        return self.use_ns + self.in_use * now

    def closed(self, need: int, nobody_runs: bool) -> bool:  # noqa: FBT001 - the hot path; a keyword costs
        """Return whether a task that needs this much is stopped; soft gates yield while nobody holds a slot."""
        return self.free < need and not (self.soft and nobody_runs)

    def room(self, nobody_runs: bool) -> int | None:  # noqa: FBT001 - see closed
        """Return how much may be needed to pass; None: anything passes."""
        return None if self.soft and nobody_runs else self.free

    def __repr__(self) -> str:
        """Show name, free and limit."""
        owner = f" of {self.scope.key!r}" if self.scope else ""
        return f"<Gate {self.name}{owner}: {self.free} of {self.limit} free>"
