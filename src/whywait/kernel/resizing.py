"""Resizing: limits that change while tasks run, as those of a cluster do when machines leave, or when a GPU dies."""

from __future__ import annotations

from collections.abc import Mapping

from whywait.errors import ConfigError
from whywait.kernel import limits
from whywait.kernel.base import Base, no_slot_held, tell_of
from whywait.kernel.events import Details, Kind
from whywait.kernel.gates import Gate
from whywait.kernel.starting import leave_bench, would_hold_back
from whywait.kernel.state import RESERVED_NAMES, Wait


def resize(k: Base, now: int, name: str, limit: int, *, soft: bool = False) -> None:
    """Change how many slots (``slot``) or how much of a resource there is; what runs goes on.

    As long as it takes more than there is, nothing starts that needs any. A resource that the budget did not have is
    added, hard unless ``soft``.
    """
    check_limit(k, name, limit)
    gate = k.slots if name == Wait.SLOT else k.resources.get(name)
    if gate is None:
        gate = k.resources[name] = Gate("resource", name, limit=0, soft=soft)
        if soft:
            k.soft.append(gate)
    gate.resize(limit, gate.in_use)
    _note_feasible(k, now)
    k.trigger = tell_of(k, now, Kind.LIMIT_CHANGED, k.root, name, 0, (("limit", limit),))
    k.levels.opened(now, gate, no_slot_held(k))


def set_units(k: Base, now: int, kind: str, units: Mapping[str, int]) -> None:
    """Have these units of a kind of device, with the memory of each, from now on.

    A task on a unit that is gone goes on and keeps it; no other task gets it unless it comes back.
    """
    check_units(k, kind, units)
    devices = k.devices[kind]
    devices.set_units(units)
    _note_feasible(k, now)
    details: Details = (("units", tuple((unit.name, unit.size) for unit in devices.units if unit.is_present)),)
    k.trigger = tell_of(k, now, Kind.LIMIT_CHANGED, k.root, kind, 0, details)
    for door in devices.doors.values():
        k.levels.opened(now, door, no_slot_held(k))


def check_limit(k: Base, name: str, limit: int) -> None:
    """Refuse a limit that makes no sense."""
    is_slots = name == Wait.SLOT
    for kind, devices in k.devices.items():
        if name == kind:
            raise ConfigError(f"{name} has units: say which there are, not how many")
        if name == devices.memory:
            raise ConfigError(f"{name} is the memory of each {kind}: say it with the units")
    if limit < 0 or (name in RESERVED_NAMES and not is_slots):
        raise ConfigError(f"limit {name} {limit!r} is not allowed: use an int of 0 or more")
    limits.check_amount(f"limit {name}", limit)


def check_units(k: Base, kind: str, units: Mapping[str, int]) -> None:
    """Refuse units of a kind that the budget has not, and those that make no sense."""
    if kind not in k.devices:
        known = ", ".join(k.devices) or "none"
        raise ConfigError(f"there are no devices of the kind {kind!r}: the budget has {known}")
    limits.check_units(kind, units)


def _note_feasible(k: Base, now: int) -> None:
    """Note of each lane whether the budget could meet its demand; one that it can meet again may hold others back."""
    for lane in k.lanes:
        lane.note_feasible()
        if lane.parked_at is not None and would_hold_back(k, lane, lane.parked_at):
            leave_bench(k, now, lane)
