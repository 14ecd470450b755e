"""Devices: gates that decide not only how much a task gets, but which unit.

The units of one kind (``gpu``, ``rig``) have names and perhaps memory. A task asks either for whole units, which no
other task shares, or for a share of the memory of each of so many units. For each form of asking one free number says
what fits, so a :class:`Door` is a gate like any other, with benches ordered by need:

* whole units: how many units are empty, against how many are asked for;
* a share on each of n units: the n-th largest free memory among the units that are shared, against the share.

Only taking and giving back differ from other gates: :class:`Devices` picks the units (those with the least free memory
that fit, then the first by name), and then brings all doors of its kind up to date.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, NamedTuple, Protocol

from whywait.kernel.gates import SHUT, Gate
from whywait.kernel.limits import MEMORY, Demand, unit_order

DEVICE: Final = "device"  # the kind of gate that a door is
_MUST_BE_BYTES: Final = 1_000_000
_GB: Final = 1_000_000_000
_MB: Final = 1_000_000
WHOLE: Final = 0  # the form of asking for whole units; any other form is on how many units a share is asked for


class Holding(Protocol):
    """A task that holds units."""

    number: int
    scope: Any
    state: str
    since: int
    units: Assigned  # those that it has got
    blocked_on: Any  # the task for whose end its body waits
    is_stopped: bool  # the system has stopped its process

    @property
    def id(self) -> str:
        """The id of the task."""

    @property
    def function(self) -> str | None:
        """The name of the function by which it is shown, if it was given no id."""


Assigned = tuple[tuple[str, tuple[str, ...]], ...]  # kind and names of its units, by kind


class Unit:
    """One device: its memory, and the tasks on it."""

    __slots__ = ("holders", "is_lowered", "is_present", "is_whole", "name", "peak", "rank", "size", "use_ns", "used")

    def __init__(self, name: str) -> None:
        """Make a unit that is not there yet."""
        self.name = name
        self.size = 0  # its memory; 0: it has none that can be shared
        self.rank = 0  # its place among the units of its kind, by name
        self.is_present = False
        self.is_whole = False  # its one holder has all of it
        self.is_lowered = False  # its memory was made smaller than what is in use
        self.used = 0  # memory that is held
        self.holders: dict[int, tuple[Holding, int]] = {}  # task and amount by task number, in the order of starts
        self.peak = 0  # the most that was in use at once
        self.use_ns = 0  # amount times time of all that was held and has come back

    @property
    def in_use(self) -> int:
        """How much of its capacity is held now."""
        return self.capacity if self.is_whole else self.used

    @property
    def free(self) -> int:
        """How much memory may be shared still."""
        return self.size - self.used if self.is_present and not self.is_whole else 0

    def fits(self, share: int, ended: Collection[int] = ()) -> bool:
        """Return whether a task can have a share of the memory, or all of the unit if that is 0."""
        left = [amount for number, (_, amount) in self.holders.items() if number not in ended]
        if not share:
            return not left
        return not (left and self.is_whole) and self.size - sum(left) >= share

    @property
    def capacity(self) -> int:
        """What use is measured against: the memory, or 1 for a unit without."""
        return self.size or 1

    def used_ns(self, now: int) -> int:
        """Return amount times time of all that was held up to ``now``."""
        return self.use_ns + sum(amount * (now - task.since) for task, amount in self.holders.values())

    def occupy(self, task: Holding, share: int) -> None:
        """Let a task have a share of the memory, or all of the unit if that is 0."""
        self.holders[task.number] = (task, share or self.capacity)
        if share:
            self.used += share
        else:
            self.is_whole = True
        self.peak = max(self.peak, self.in_use)

    def vacate(self, task: Holding, ran_ns: int) -> None:
        """Take back what a task had for so long."""
        _, amount = self.holders.pop(task.number)
        self.use_ns += amount * ran_ns
        if self.is_whole:
            self.is_whole = False
        else:
            self.used -= amount
            self.is_lowered = self.used > self.size

    def __repr__(self) -> str:
        """Show name and what is free."""
        return f"<Unit {self.name}: {self.free} of {self.size} free, {len(self.holders)} holders>"


class Door(Gate):
    """One form of asking for units of a kind: the lanes that ask so wait here."""

    __slots__ = ("devices",)

    def __init__(self, devices: Devices) -> None:
        """Make a door whose numbers are yet to be set."""
        super().__init__(DEVICE, devices.name, scope_key=devices.scope_key, limit=0)
        self.devices = devices


class Ask(NamedTuple):
    """What the tasks of a lane ask of one kind."""

    devices: Devices
    door: Door
    units: int
    share: int  # memory on each of the units; 0: they are taken whole

    @property
    def need(self) -> int:
        """What the door has to have free."""
        return self.share or self.units


class Devices:
    """The units of one kind, and the doors to them."""

    __slots__ = ("_empty", "_shared", "by_name", "doors", "memory", "name", "scope_key", "units")

    def __init__(self, name: str, units: Mapping[str, int], scope_key: str | None = None) -> None:
        """Have these units, by name, with the memory of each; ``scope_key``: the scope that they belong to, if any."""
        self.name = name
        self.scope_key = scope_key
        self.memory = MEMORY.get(name)
        self.by_name: dict[str, Unit] = {}
        self.units: list[Unit] = []  # in the order of their names, those that are gone included
        self.doors: dict[int, Door] = {}  # by form
        self._shared: list[tuple[int, int]] = []  # (free, rank) of units on which shares can be had
        self._empty: list[tuple[int, int]] = []  # (size, rank) of units that no task is on
        self.set_units(units)

    # What a task asks for

    def wanted(self, demand: Demand) -> tuple[int, int] | None:
        """Return how many units a demand asks for and what share of each (0: whole); None: nothing of this kind."""
        units = share = 0
        for name, amount in demand:
            if name == self.name:
                units = amount
            elif name == self.memory:
                share = amount
        return (units or 1, share) if units or share else None

    def limit_of(self, name: str, demand: Demand) -> int | None:
        """Return how many units, or how much memory on each unit that a demand wants, there could be at most."""
        wanted = self.wanted(demand)
        if wanted is None or name not in (self.name, self.memory):
            return None
        sizes = sorted((unit.size for unit in self.units if unit.is_present), reverse=True)
        if name == self.name:
            return len(sizes)
        return sizes[wanted[0] - 1] if wanted[0] <= len(sizes) else 0

    def lack(self, demand: Demand) -> str | None:
        """Return what a demand asks for and no set of units could ever give it, in words; None: they could."""
        asked = self.wanted(demand)
        if asked is None:
            return None
        units, share = asked
        there = [unit for unit in self.units if unit.is_present]
        large = [unit for unit in there if unit.size >= share]
        if units <= len(large):
            return None
        wanted = f"{in_bytes(share)} {self.memory} on {units} {self.name}" if share else f"{units} {self.name}"
        if not there:
            return f"{wanted} and there is none"
        if units > len(there):
            names = ", ".join(unit.name for unit in there)
            return f"{wanted} and there {'is' if len(there) == 1 else 'are'} {len(there)} ({names})"
        sizes = ", ".join(f"{unit.name} has {in_bytes(unit.size) or 'no known memory'}" for unit in there)
        return f"{wanted} and {f'only {len(large)}' if large else 'none'} has so much ({sizes})"

    def ask(self, units: int, share: int) -> Ask:
        """Return what dispatch is asked for tasks that want so many units, whole or a share of each."""
        form = units if share else WHOLE
        door = self.doors.get(form)
        if door is None:
            door = self.doors[form] = Door(self)
            door.limit, door.free = self.most(form), self.room(form)
        return Ask(self, door, units, share)

    def most(self, form: int) -> int:
        """Return the largest need that a door of this form could ever let through."""
        sizes = sorted((unit.size for unit in self.units if unit.is_present), reverse=True)
        if form == WHOLE:
            return len(sizes)
        return sizes[form - 1] if form <= len(sizes) else 0

    def room(self, form: int) -> int:
        """Return the largest need that a door of this form lets through now."""
        if form == WHOLE:
            return len(self._empty)
        return self._shared[-form][0] if form <= len(self._shared) else SHUT

    def fitting(self, ask: Ask, ended: Collection[int] = ()) -> int:
        """Return how many units a task could get that asks so; ``ended``: numbers of tasks as if they had ended."""
        return sum(unit.is_present and unit.fits(ask.share, ended) for unit in self.units)

    # Taking and giving back

    def take(self, task: Holding, ask: Ask) -> tuple[str, ...]:
        """Give a task the units that it asks for; return their names."""
        units = self._pick(ask.units, ask.share)
        for unit in units:
            self._unlist(unit)
            unit.occupy(task, ask.share)
            self._list(unit)
        self._set_doors()
        return tuple(unit.name for unit in units)

    def give_back(self, task: Holding, ran_ns: int) -> list[Door]:
        """Take the units of a task back; return the doors at which lanes wait."""
        for name in dict(task.units)[self.name]:
            unit = self.by_name[name]
            self._unlist(unit)
            unit.vacate(task, ran_ns)
            self._list(unit)
        self._set_doors()
        return [door for door in self.doors.values() if door.benches]

    def set_units(self, units: Mapping[str, int]) -> None:
        """Have these units from now on; a task on one that is missing keeps it, and no other task gets it."""
        for name in units:
            if name not in self.by_name:
                self.by_name[name] = Unit(name)
        self.units = sorted(self.by_name.values(), key=lambda unit: unit_order(unit.name))
        for rank, unit in enumerate(self.units):
            unit.rank = rank
            unit.is_present = unit.name in units
            unit.size = units.get(unit.name, unit.size)
            unit.is_lowered = unit.used > unit.size
        self._list_all()

    # The sorted lists from which units are picked, and what the doors have free

    def _pick(self, count: int, share: int) -> list[Unit]:
        if share:
            first = bisect_left(self._shared, (share, -1))
            picked = self._shared[first : first + count]
        else:
            picked = self._empty[:count]
        assert len(picked) == count, f"the door of {count} {self.name} was open"
        return [self.units[rank] for rank in sorted(rank for _, rank in picked)]

    def _unlist(self, unit: Unit) -> None:
        for listed, place in ((self._shared, (unit.free, unit.rank)), (self._empty, (unit.size, unit.rank))):
            at = bisect_left(listed, place)
            if at < len(listed) and listed[at] == place:
                del listed[at]

    def _list(self, unit: Unit) -> None:
        if unit.is_present and not unit.is_whole:
            insort(self._shared, (unit.free, unit.rank))
            if not unit.holders:
                insort(self._empty, (unit.size, unit.rank))

    def _list_all(self) -> None:
        """Make the lists and the numbers of the doors anew."""
        self._shared.clear()
        self._empty.clear()
        for unit in self.units:
            self._list(unit)
        for form, door in self.doors.items():
            door.limit = self.most(form)
        self._set_doors()

    def _set_doors(self) -> None:
        for form, door in self.doors.items():
            door.free = self.room(form)

    def __repr__(self) -> str:
        """Show the kind and its units."""
        return f"<Devices {self.name}: {self.units}>"


def asks_of(kinds: Iterable[Devices], demand: Demand) -> tuple[Ask, ...]:
    """Return what a demand asks of each kind, in the order in which the kinds are given."""
    wanted = ((devices, devices.wanted(demand)) for devices in kinds)
    return tuple(devices.ask(*asked) for devices, asked in wanted if asked is not None)


def in_bytes(amount: int) -> int | str:
    """Return an amount as people say it, if it is so much that it must be bytes."""
    if amount < _MUST_BE_BYTES:
        return amount
    return f"{amount / _GB:g} GB" if amount >= _GB else f"{amount / _MB:g} MB"
