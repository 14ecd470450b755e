"""Limits that change while tasks run, as those of a cluster do when machines join and leave."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whywait.errors import ConfigError
from whywait.kernel.events import Kind
from whywait.kernel.gates import Gate
from whywait.kernel.state import RESERVED_NAMES, Wait

if TYPE_CHECKING:
    from whywait.kernel.life import Life


def resize(life: Life, now: int, name: str, limit: int, *, soft: bool) -> None:
    """Change a limit; what runs goes on, and as long as it takes more than there is, nothing starts that needs any."""
    is_slots = name == Wait.SLOT
    if limit < is_slots or (name in RESERVED_NAMES and not is_slots):
        raise ConfigError(f"limit {name} {limit!r} is not allowed: use an int of {int(is_slots)} or more")
    gate = life.root.slot_gate if is_slots else life.resources.get(name)
    if gate is None:
        gate = life.resources[name] = Gate("resource", name, limit=0, soft=soft)
        if soft:
            life.dispatcher.soft.append(gate)
    if gate.limit is None:
        gate.free = limit - len(life.running)
    else:
        gate.free += limit - gate.limit
    gate.limit = limit
    life.trigger = life.other_event(now, Kind.LIMIT_CHANGED, life.root, name, None, (("limit", limit),))
    life.dispatcher.gate_moved(gate)
