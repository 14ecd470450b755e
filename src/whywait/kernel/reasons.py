"""What an answer to "why?" is made of: reasons, holders, conditions. Data only, no prose and no decisions."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Final, NamedTuple

from whywait.kernel.devices import Assigned
from whywait.kernel.ids import label_of
from whywait.kernel.limits import Demand
from whywait.kernel.state import Wait


class ReasonKind:
    """The closed set of reasons for which a task is not running."""

    PAUSED: Final = "paused"
    BACKOFF: Final = "backoff"
    OVERLAP: Final = "overlap"
    DEPENDENCY: Final = "dependency"
    SCOPE_STATE: Final = "scope_state"
    SCOPE_SLOTS: Final = "scope_slots"
    RESOURCE: Final = "resource"
    DEVICE: Final = "device"
    SLOT: Final = "slot"
    HELD_BACK: Final = "held_back"
    DISPATCH: Final = "dispatch"  # every gate is open: dispatch has not run since


class ConditionKind:
    """The closed set of things that may have to happen before a task starts."""

    FREE: Final = "free"  # so much more of a gate has to be given back
    UNITS: Final = "units"  # units of a device have to be free, or that much memory on them
    ALONE: Final = "alone"  # it is larger than a soft limit: no other task may hold a slot
    RAISE: Final = "raise"  # it is larger than a hard limit, or than the devices: more has to come
    RESUME_SCOPE: Final = "resume_scope"
    RESUME_TASK: Final = "resume_task"
    SUCCEED: Final = "succeed"  # another task has to succeed
    END: Final = "end"  # another task has to end, however
    START: Final = "start"  # another task has to start, or leave
    TIME: Final = "time"  # a moment has to come
    TURN: Final = "turn"  # those ahead in order have to start or leave, as far as they fit
    DISPATCH: Final = "dispatch"  # nothing: it starts with the next dispatch


class Holder(NamedTuple):
    """A task that holds some of what is missing."""

    id: str
    scope: str
    number: int
    amount: int
    state: str
    running_ns: int
    blocked_on: str | None = None  # the task for whose end its body blocks
    blocked_number: int | None = None  # of that task
    function: str | None = None  # by which it is shown, if it was given no id
    asked: int | None = None  # what it asked for, if it uses more than that
    stopped: bool = False  # the system has stopped its process (M15)

    @property
    def label(self) -> str:
        """How it is shown."""
        return label_of(self.id, self.number, self.function)


class UnitStanding(NamedTuple):
    """One unit of a device: what of it is free, and the tasks on it."""

    name: str
    size: int  # its memory; 0: none that can be shared
    free: int
    whole: bool  # its holder has all of it
    present: bool  # False: it is gone, and only those on it still hold it
    holders: tuple[Holder, ...]
    holders_total: int


class Blocking(NamedTuple):
    """Another task that has to do something first, and where it stands itself.

    ``chain`` follows it down to the root: the task it waits for, the one that one waits for, and so on. Of a long
    chain the first steps and the last are given, and ``left_out`` says how many are missing before the last.
    """

    id: str
    scope: str
    number: int
    state: str
    running_ns: int | None = None  # since when it holds its slot
    waits_for: str | None = None  # its own wait cause
    held_by: tuple[str, ...] = ()  # the first holders of the gate that it waits for
    end_suffices: bool = False  # any end of it will do
    never: bool = False  # it cannot start any more
    chain: tuple[Blocking, ...] = ()
    left_out: int = 0
    function: str | None = None  # by which it is shown, if it was given no id

    @property
    def label(self) -> str:
        """How it is shown."""
        return label_of(self.id, self.number, self.function)


@dataclass(frozen=True, slots=True)
class Reason:
    """One thing that keeps the task from starting, with numbers and names."""

    kind: str
    name: str  # the wait cause: slot, ram, licence, dependency...
    scope: str | None = None
    need: int | None = None
    free: int | None = None
    limit: int | None = None
    soft: bool = False
    never: bool = False  # it cannot open by itself any more
    until_ns: int | None = None
    since_ns: int | None = None
    holders: tuple[Holder, ...] = ()
    held_by_others: int = 0  # what the holders have that are too many to be listed
    tasks: tuple[Blocking, ...] = ()  # the first of ``need``
    share: int = 0  # memory that it needs on each of ``need`` units of a device; 0: whole units
    units: tuple[UnitStanding, ...] = ()  # of that device
    units_left_out: int = 0  # how many more there are


class Condition(NamedTuple):
    """One thing that has to happen for the task to start."""

    kind: str
    name: str | None = None  # of the gate
    scope: str | None = None
    amount: int | None = None
    task: str | None = None
    number: int | None = None  # of that task
    until_ns: int | None = None
    share: int = 0  # memory on each of ``amount`` units of a device


class Ahead(NamedTuple):
    """Tasks of one level that would start before this one and keep it waiting: how many, and the first of them."""

    priority: int
    tasks: int
    first: tuple[str, ...]


class Blocked(NamedTuple):
    """Tasks that wait for a gate of which the task in question holds some."""

    name: str
    scope: str | None
    tasks: int
    first: tuple[str, ...]
    at_least: bool = False  # there may be more: not all lanes were looked at


class Shortage(NamedTuple):
    """What of a demand a cluster has too little of."""

    name: str
    need: int
    largest: int  # that of the machine that has most
    free: int  # on the machine that comes closest


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a permitted task is, if its engine leaves that to others, such as a cluster."""

    engine: str
    node: str | None = None  # None: it waits for a place
    pid: int | None = None
    missing: tuple[Shortage, ...] = ()
    lacks: str | None = None  # what the system says why there is no place; it gets the next one that is free


@dataclass(frozen=True, slots=True)
class Why:
    """The answer for one task at one moment."""

    id: str
    scope: str
    number: int
    state: str
    priority: int
    demand: Demand
    now_ns: int
    waited_ns: int  # all waiting so far, of all attempts
    breakdown: dict[str, int]  # wait cause -> ns; adds up to waited_ns
    starved_ns: int  # READY while a higher priority held a slot, of all attempts
    paused_from: str | None = None  # PAUSED: the state that it goes back to
    stopped: bool = False  # PAUSED: the system has stopped its process, or that of its client (M15)
    pause_wished: bool = False  # PAUSED: a pause was asked for and not taken back
    slot: bool = True  # whether it takes a slot while it runs
    starved: bool = False
    starved_by: tuple[Holder, ...] = ()  # slot holders of higher priority, the first of them
    outcome: str | None = None
    cause: str | None = None
    root: str | None = None
    attempt: int = 1
    primary: str | None = None  # the wait cause that is charged now
    lane: tuple[int, str, Demand] | None = None  # and `slot`
    position: int | None = None  # rank in the lane, 0 is next
    effective_priority: int | None = None
    lifted_in_ns: int | None = None  # until aging lifts it next
    reasons: tuple[Reason, ...] = ()
    conditions: tuple[Condition, ...] = ()  # what has to happen for it to start
    ahead: tuple[Ahead, ...] = ()
    ahead_at_least: bool = False  # there may be more ahead: not all lanes were looked at
    running_ns: int | None = None
    parked_ns: int | None = None
    ending_ns: int | None = None  # since it was asked to end
    ending_cause: str | None = None
    holds: Demand = field(default=())
    devices: Assigned = ()  # the units that it has, or had
    blocks: tuple[Blocked, ...] = ()  # the tasks that wait for what it holds
    awaited_by: int = 0  # how many tasks depend on it directly
    awaiting: tuple[str, ...] = ()  # the first of them
    blocked_on: Blocking | None = None  # the task for whose end its body blocks
    lends: bool = False  # it has given its slot back, since its body blocks or has blocked
    wants_slot: bool = False  # its body blocks no more and waits for the slot to go on
    placement: Placement | None = None  # told by its engine
    function: str | None = None  # by which it is shown, if it was given no id

    @property
    def label(self) -> str:
        """How it is shown."""
        return label_of(self.id, self.number, self.function)

    @property
    def never(self) -> bool:
        """Whether the task cannot start any more unless a limit is changed."""
        return any(reason.never for reason in self.reasons)

    @property
    def primary_reason(self) -> Reason | None:
        """The reason that is charged now.

        READY: what dispatch last found, that is the first closed gate in the order scope state, scope slots, cpu, ram,
        vram, others by name, devices by kind, kept until it opens; else held back; else the authority's slots. Not
        READY: paused, then backoff or overlap, then dependencies.
        """
        name = Wait.SLOT if self.primary == Wait.SLOT_HIGHER else self.primary
        named = (reason for reason in self.reasons if reason.name == name)
        return next(named, self.reasons[0] if self.reasons else None)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dict."""
        data = asdict(self)
        data["demand"] = dict(self.demand)
        data["holds"] = dict(self.holds)
        data["devices"] = dict(self.devices)
        data["lane"] = None if self.lane is None else [self.lane[0], self.lane[1], dict(self.lane[2])]
        if self.blocked_on is not None:
            data["blocked_on"] = _blocking_dict(self.blocked_on)
        if self.placement is not None:
            data["placement"]["missing"] = [row._asdict() for row in self.placement.missing]
        for name in ("ahead", "blocks", "conditions", "starved_by"):
            data[name] = [row._asdict() for row in getattr(self, name)]
        for reason, entry in zip(self.reasons, data["reasons"], strict=True):
            entry["holders"] = [holder._asdict() for holder in reason.holders]
            entry["units"] = [
                {**unit._asdict(), "holders": [holder._asdict() for holder in unit.holders]} for unit in reason.units
            ]
            entry["tasks"] = [_blocking_dict(task) for task in reason.tasks]
        return data


def _blocking_dict(task: Blocking) -> dict[str, Any]:
    return {**task._asdict(), "chain": [link._asdict() for link in task.chain]}
