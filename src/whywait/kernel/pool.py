"""A pool: the gates of one budget, by the names of resources, and its devices, by kind.

The authority has one. A scope that was opened with a budget of its own has another: its tasks, and those of scopes
inside it, are served out of that and take nothing from the authority's (M4).
"""

from __future__ import annotations

from whywait.kernel.devices import Devices
from whywait.kernel.gates import Gate
from whywait.kernel.limits import WELL_KNOWN, Budget, Demand, gate_order


class Pool:
    """What the demands of tasks are met from."""

    __slots__ = ("_scope_key", "devices", "resources", "soft")

    def __init__(self, budget: Budget, scope_key: str) -> None:
        """Have all of a budget free; ``scope_key`` is the scope that it belongs to, empty for the authority."""
        self._scope_key = scope_key or None
        limit_of = {**budget.hard, **budget.soft}
        self.resources = {
            name: Gate("resource", name, scope_key=self._scope_key, limit=limit_of[name], soft=name in budget.soft)
            for name in sorted(limit_of, key=gate_order)
        }
        self.soft = [gate for gate in self.resources.values() if gate.soft]
        self.devices = {kind: Devices(kind, budget.devices[kind], self._scope_key) for kind in sorted(budget.devices)}

    def knows(self, name: str) -> bool:
        """Return whether a task may demand this; of cpu, ram and vram without a limit there is any amount."""
        return name in WELL_KNOWN or name in self.resources or name in self.devices

    def add_missing(self, demand: Demand) -> None:
        """Have a limit of 0 for what a demand names and the budget does not: a kept task waits at that gate (M13)."""
        for name, _ in demand:
            if not self.knows(name):
                self.resources[name] = Gate("resource", name, scope_key=self._scope_key, limit=0)
