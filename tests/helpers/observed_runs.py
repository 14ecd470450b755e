"""Random runs of the kernel beside the model, with an observer that looks at every moment."""

from __future__ import annotations

from collections import defaultdict

from commands import Commands, add_devices, make_settings
from pair import Pair
from strategies import Seeded
from whywait.kernel.events import Event

STEPS = 80


class Observer:
    """Looks at the model at every moment and notes who holds what others wait for."""

    def __init__(self, pair: Pair) -> None:
        self.caused: defaultdict[tuple[str, str, str, str], float] = defaultdict(float)
        self.plain = pair.model
        self.advance = pair.model.advance
        pair.model.advance = self.look

    def look(self, now: int) -> None:
        elapsed = now - self.plain.now
        if elapsed:
            for task in self.plain.ready:
                self.charge(self.plain.lane_causes[task.lane], elapsed)
        self.advance(now)

    def charge(self, gate: tuple[str, str], elapsed: int) -> None:
        name, scope = gate
        if name == "held_back":  # at the bottom of it is what the first in line waits for
            in_order = (task for task in self.plain.in_order() if task.slot)
            first = next(task for task in in_order if self.plain.only_budget_stops(task))
            name, scope = self.plain.lane_causes[first.lane]
        if name == "scope_state":
            return
        shares = {}
        for holder in self.plain.active():
            in_scope = scope in [each.key for each in holder.scope.path()]
            inside = {"slot": holder.slot, "scope_slots": holder.slot and in_scope}
            amount = inside.get(name, len(holder.devices.get(name, ())) or self.plain.counted(holder, name))
            if amount and (name in inside or holder.scope.payer.key == scope):
                shares[holder] = amount
        for holder, amount in shares.items():
            self.caused[name, scope, holder.scope.key, holder.id] += amount * elapsed / sum(shares.values())


def observed(seed: int, *, devices: bool = False) -> tuple[Pair, Observer, list[Event]]:
    choose = Seeded(seed)
    settings = make_settings(choose)
    pair = Pair(add_devices(choose, settings) if devices else settings)
    observer = Observer(pair)
    commands = Commands(choose, pair)
    commands.open_scope()
    for _ in range(STEPS):
        commands.step()
    pair.pass_time(pair.now)
    pair.model.advance(pair.now)
    return pair, observer, [Event.of(raw) for raw in pair.raw_events]
