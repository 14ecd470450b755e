"""What a kernel keeps, and how it tells of what happens. The phases of a task's life act on it, each in its file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from whywait.kernel.accounts import Waited
from whywait.kernel.events import Details, RawEvent, Started, Streams
from whywait.kernel.gates import Gate
from whywait.kernel.levels import Levels
from whywait.kernel.limits import HIGHEST, MEASURED, Budget, Limits, Policy
from whywait.kernel.model import Lane, Scope, Task
from whywait.kernel.order import Order
from whywait.kernel.ring import Ring, raw_event
from whywait.kernel.starvation import Starvation
from whywait.kernel.state import ScopeState
from whywait.kernel.stats import Stats
from whywait.kernel.timers import Timers

_BITS: Final = tuple([1 << priority for priority in range(HIGHEST + 1)])  # too many for a machine's integer


class Skip(NamedTuple):
    """The first of a streak of ticks that a periodic drops."""

    scope: str
    periodic: str
    code: str  # SRS-E-RUN-002, SRS-E-RUN-003, or the limit that refused it
    running_ns: int | None  # for how long the oldest iteration runs; None: none does


class Decision:
    """What the owner of a kernel has to carry out: the tasks that start now, in order, and what there is besides."""

    __slots__ = ("first", "others", "requests", "settled", "skipped")

    def __init__(self) -> None:
        """Decide nothing yet."""
        self.first: Task | None = None  # the task that starts, most often the only one
        self.others: list[Task] | None = None  # those that start after it
        self.requests: Sequence[tuple[str, Task]] = ()  # (abort, pause, resume or go_on, task): ask their bodies
        self.settled: Sequence[Task] = ()  # tasks that have ended otherwise than by a report of their body
        self.skipped: Sequence[Skip] = ()  # ticks of periodics dropped after one that was not: a warning each

    @property
    def started(self) -> list[Task]:
        """The tasks whose bodies are to run now, in order."""
        return [] if self.first is None else [self.first, *(self.others or ())]

    def start(self, task: Task) -> None:
        """Let the body of one more task run."""
        if self.first is None:
            self.first = task
        elif self.others is None:
            self.others = [task]
        else:
            self.others.append(task)


class Base:
    """The state of a kernel."""

    __slots__ = (
        "blocker",
        "changed",
        "counts_holders",
        "devices",
        "emit",
        "empty_lanes",
        "entries",
        "expiries",
        "freed",
        "greedy",
        "highest",
        "holders",
        "holding",
        "is_recorded",
        "jitter",
        "lanes",
        "levels",
        "order",
        "overdraft",
        "pause_timeout_ns",
        "periodics_added",
        "requests",
        "resources",
        "ring",
        "root",
        "running",
        "scopes",
        "seq",
        "settled",
        "skipped",
        "slotless",
        "slots",
        "soft",
        "starvation",
        "starvation_timeout_ns",
        "stats",
        "streams",
        "suspended",
        "timers",
        "trigger",
        "wanting",
    )

    def __init__(
        self,
        limits: Limits,
        budget: Budget,
        order: Order,
        policy: Policy,
        *,
        greedy: bool,
        overdraft: str,
        pause_timeout_ns: int,
        starvation_timeout_ns: int,
        jitter: Callable[[], float],
        emit: Callable[[RawEvent], None] | None,
    ) -> None:
        """Start with nothing but the authority's own scope."""
        self.order = order
        self.greedy = greedy
        self.overdraft = overdraft
        self.pause_timeout_ns = pause_timeout_ns
        self.starvation_timeout_ns = starvation_timeout_ns
        self.jitter = jitter
        self.emit = emit
        self.ring: Ring | None = None  # remembers the latest events, if the owner wants that
        self.is_recorded = False  # commands are given by the kernel's methods, which write them down, and not past them
        self.seq = 0  # of the latest event
        self.trigger = 0  # seq of the latest event that may let something start
        self.entries = 0  # the rank of the task that became READY last

        self.root = Scope("", None, limits, policy, budget)
        self.root.state = ScopeState.RUNNING
        self.root.note_state()
        self.scopes: dict[str, Scope] = {"": self.root}  # living ones by key
        self.suspended = 0  # how many scopes are SUSPENDED
        self.running: dict[int, Task] = {}  # active tasks in start order, by number
        self.slotless = 0  # how many of them hold no slot
        self.wanting: dict[int, Task] = {}  # those that have lent their slots and want them again, by number
        self.streams: dict[int, Streams] = {}  # of tasks whose body has ended, by number: to be closed with the task
        self.freed: list[Task] = []  # triggers that the overlap gate lets through, to be woken with the others
        self.requests: list[tuple[str, Task]] = []  # of the next Decision
        self.settled: list[Task] = []  # of the next Decision
        self.skipped: list[Skip] = []  # of the next Decision

        self.slots = self.root.slot_gate
        pool = self.root.pool
        self.resources, self.soft, self.devices = pool.resources, pool.soft, pool.devices
        self.counts_holders = False  # there is more than one level, so that a task can be starved
        self.holders = [0] * (HIGHEST + 1)  # slot holders by priority
        self.holding = 0  # a bit for each priority that holds a slot
        self.highest = -1  # the highest of them, -1: none
        self.levels = Levels(order)
        self.lanes: list[Lane] = []  # those with tasks, and some without, in the order in which they were made
        self.empty_lanes = 0
        self.changed: dict[Lane, None] = {}  # lanes whose cause may be another than the one last told
        self.blocker: Lane | None = None  # backfill="none": the first that only its budget gate stops

        self.timers = Timers()  # timeouts, backoffs, ticks, pause timeouts, starvation
        self.expiries = Timers()  # ends of waits that are limited (D3), looked at between the two halves of dispatch
        self.stats = Stats()
        self.starvation = Starvation(starvation_timeout_ns, self.timers, self.levels, self.stats, partial(tell, self))
        self.periodics_added = 0

    def lanes_in_use(self) -> Iterator[Lane]:
        """Yield all lanes that hold tasks, in the order in which they were made."""
        return (lane for lane in self.lanes if lane.front)

    def used_ns(self, now: int, gate: Gate) -> int:
        """Return amount times time of all that was held of a gate up to ``now``."""
        used = gate.use_ns + sum(task.takes(gate) * (now - task.since) for task in self.running.values())
        if gate.name == MEASURED:
            overdrawn = (task for task in self.running.values() if task.scope.pool.resources.get(MEASURED) is gate)
            used += sum(task.overdraft * (now - task.overdrawn_since) for task in overdrawn)
        return used

    def living(self) -> list[Task]:
        """Return all tasks that have not ended, scope by scope."""
        return [task for scope in self.scopes.values() for task in scope.tasks.values()]


def tell(
    k: Base,
    now: int,
    kind: str,
    task: Task,
    cause: int = 0,
    details: Details | Started | Waited | None = None,
    word: str | None = None,
    ns: int = 0,
    starved_ns: int = 0,
) -> int:
    """Emit an event of a task; return its seq. ``cause`` is the seq of the event that led to it, if there is one.

    ``word``, ``ns`` and ``starved_ns`` are what :class:`~whywait.kernel.ring.Row` has of submissions and starts.
    """
    return _add(k, now, kind, task.scope.key, task.number, task.name, cause, details, word, ns, starved_ns)


def tell_of(
    k: Base,
    now: int,
    kind: str,
    scope: Scope,
    name: str | None = None,
    cause: int = 0,
    details: Details | None = None,
) -> int:
    """Emit an event of a scope, of a periodic, or of a submission that got no number; return its seq."""
    return _add(k, now, kind, scope.key, 0, name, cause, details, None, 0, 0)


def _add(
    k: Base,
    now: int,
    kind: str,
    scope: str,
    number: int,
    name: str | None,
    cause: int,
    details: Any,
    word: str | None,
    ns: int,
    starved_ns: int,
) -> int:
    """Write an event into the ring, pass it on to what listens, and return its seq."""
    k.seq = seq = k.seq + 1
    if k.ring is not None:
        k.ring.add(now, kind, scope, number, name, cause, details, word, ns, starved_ns)
    if k.emit is not None:
        k.emit(raw_event(seq, now, kind, scope, number, name, cause, details, word, ns, starved_ns))
    return seq


def count_holder(k: Base, priority: int, more: int) -> None:
    """Count one more holder of a slot by its priority, or one less."""
    holders = k.holders
    before = holders[priority]
    holders[priority] = now = before + more
    if not before or not now:
        k.holding ^= _BITS[priority]
        k.highest = k.holding.bit_length() - 1


def no_slot_held(k: Base) -> bool:
    """Return whether no task holds a slot; then soft gates yield, as far as nothing of them is in use (B2)."""
    return len(k.running) == k.slotless
