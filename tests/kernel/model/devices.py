"""Devices: which units a task may have, and which it gets."""

from __future__ import annotations

from .base import Base
from .records import Illegal, Scope, Task

MEMORY = {"gpu": "vram"}  # by what name a demand asks for the memory of a kind


class Devices(Base):
    """N1 to N3, N5: `devices` are the units that are there, by kind, with the memory of each."""

    def asked(self, kind: str, task: Task) -> tuple[int, int]:
        """N2: how many units, and the share on each; 0 units: none of this kind, share 0: whole units."""
        share = task.demand.get(MEMORY.get(kind, ""), 0)
        return task.demand.get(kind, 1 if share else 0), share

    def on_unit(self, payer: Scope, kind: str, unit: str) -> list[Task]:
        """T4: from the start of its task to the end of the body, whether the unit is still there or not."""
        mine = [task for task in self.active() if task.scope.payer is payer]
        return [task for task in mine if unit in task.devices.get(kind, ())]

    def free_memory(self, payer: Scope, kind: str, unit: str) -> int:
        taken = sum(self.asked(kind, task)[1] for task in self.on_unit(payer, kind, unit))
        return payer.budget.devices[kind][unit] - taken

    def fits(self, payer: Scope, kind: str, unit: str, share: int) -> bool:
        """N2: a whole unit has no other task on it; a share needs that much memory, and no task that has the whole."""
        others = self.on_unit(payer, kind, unit)
        if share == 0:
            return not others
        return all(self.asked(kind, other)[1] for other in others) and self.free_memory(payer, kind, unit) >= share

    def fitting(self, kind: str, task: Task) -> list[str]:
        payer, share = task.scope.payer, self.asked(kind, task)[1]
        return [unit for unit in payer.budget.devices[kind] if self.fits(payer, kind, unit, share)]

    def lacks_units(self, kind: str, task: Task) -> bool:
        return len(self.fitting(kind, task)) < self.asked(kind, task)[0]

    def chosen(self, kind: str, task: Task) -> tuple[str, ...]:
        """N3: those with the least free memory that fit, then the first by name; told in the order of names."""
        payer = task.scope.payer
        fitting = self.fitting(kind, task)
        best_first = sorted(fitting, key=lambda unit: (self.free_memory(payer, kind, unit), by_name(unit)))
        return tuple(sorted(best_first[: self.asked(kind, task)[0]], key=by_name))

    def could_ever_have(self, kind: str, task: Task) -> bool:
        """N2: enough units are large enough."""
        units, share = self.asked(kind, task)
        return units <= sum(memory >= share for memory in task.scope.payer.budget.devices[kind].values())

    def is_of_devices(self, payer: Scope, resource: str) -> bool:
        """N2: it names a kind, or the memory of one."""
        return any(resource in (kind, MEMORY.get(kind)) for kind in payer.budget.devices)

    def set_units(self, now: int, kind: str, units: dict[str, int]) -> None:
        """N1: what is there from now on; tasks on a unit that is gone go on."""
        self.advance(now)
        if kind not in self.devices:
            raise Illegal(f"there are no devices of the kind {kind}")
        self.devices[kind] = dict(units)
        self.emit(
            "LIMIT_CHANGED", self.root, name=kind, units={name: units[name] for name in sorted(units, key=by_name)}
        )


def by_name(unit: str) -> tuple[bool, int, str]:
    """N3: numbers by value, then other names."""
    return (not unit.isdecimal(), int(unit) if unit.isdecimal() else 0, unit)
