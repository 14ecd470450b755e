"""Dispatch: which task may start next, and what those that may not are waiting for.

Only this module moves lanes between heaps and benches and changes what gates have free.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from heapq import heapify, heappop, heappush, heapreplace
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from whywait.kernel.accounts import Epoch, ready_wait
from whywait.kernel.benches import Bench
from whywait.kernel.gates import UNLIMITED
from whywait.kernel.lanes import Lane, Level, Order, Strict
from whywait.kernel.model import HIGHEST
from whywait.kernel.state import TaskState

if TYPE_CHECKING:
    from whywait.kernel.gates import Gate
    from whywait.kernel.model import Demand, Scope, Task

WORST_STARVED: Final = 10

_SWEEP_EMPTY_LANES: Final = 64
_READY: Final = TaskState.READY  # a global is found faster than an attribute of a class, before Python 3.12


class Starved(NamedTuple):
    """How long a task was starved when it left READY; of equals, the earlier one counts as more."""

    starved_ns: int
    minus_number: int
    id: str
    attempt: int
    priority: int


class Dispatcher:
    """Keeps READY tasks in lanes and picks the next one that may start."""

    def __init__(self, slots: Gate, resources: dict[str, Gate], order: Order, *, greedy: bool) -> None:
        """Dispatch into ``slots`` and the budget's ``resources`` in the given ``order``."""
        self.slots = slots
        self.resources = resources
        self.order = order
        self.levels: list[Level] = []  # highest priority first
        self.busy = 0  # how many tasks hold a slot
        self.promotions = 0
        self.on_unwatched: Callable[[int, Lane, int], None] = _ignore  # starvation has to look at the lane again
        self._greedy = greedy
        self._strict = isinstance(order, Strict)
        self.step_ns = order.next_step(0, 0) or UNLIMITED  # a shorter wait has gained nothing
        self.soft = [gate for gate in resources.values() if gate.soft]
        self._level_of: list[Level | None] = [None] * (HIGHEST + 1)
        self.count = 0  # numbers tasks and entries alike, so that both grow together
        self._holders = [0] * (HIGHEST + 1)  # slot holders by priority
        self._top = -1  # the highest priority that holds a slot, as of the last settle
        self.top_moved = False  # `settle` has something to do
        self.blocker: Lane | None = None  # backfill="none": the first that only its budget gate stops
        self.held = False  # everybody behind the blocker waits for it
        self.changed: dict[Lane, None] = {}  # lanes whose cause may be another than the one last told
        self.starved_tasks = 0  # how many have been READY while a higher priority held a slot
        self.worst_starved: list[Starved] = []  # a heap of those that left READY most starved
        self._worst_floor = 0  # who was starved less is not among the worst
        self._lanes: list[Lane] = []
        self._empty_lanes = 0

    # Into and out of READY

    def lane_of(self, now: int, task: Task) -> Lane:
        """Return the lane of a task's priority, scope and demand; make it if there is none."""
        lane = task.scope.lanes.get((task.priority, task.demand))
        return self._make_lane(now, task) if lane is None else lane

    def enter(self, now: int, task: Task, lane: Lane, entry: int) -> None:
        """Make a task READY: it goes to the back of its lane. ``entry`` is newer than any before."""
        level = lane.level
        task.state = _READY
        task.since = now
        task.entry = entry
        task.lane = lane
        task.segment = level.segment
        task.epoch = lane.epoch
        items = lane.items
        if not items:
            self._empty_lanes -= 1
            if lane.queued is None:
                lane.queued = entry
                heappush(level.heap, (entry, lane))
        items.append(task)
        if not lane.watched:
            self.on_unwatched(now, lane, entry)

    def leave(self, now: int, task: Task) -> None:
        """Take a READY task out of its lane without starting it."""
        lane = task.lane
        assert lane is not None, "a READY task is in a lane"
        self.account(now, task, lane)
        was_head = lane.remove(task)
        task.lane = None
        bench = lane.bench
        if bench is not None and was_head:
            self._off_bench(lane, bench)
            if lane.items:
                self._on_bench(lane, bench.gate)
                self.gate_moved(bench.gate)  # the bench may be a new one and has missed that the gate opened
            else:
                lane.epoch = Epoch(now, None, lane.level.segment, {})
                self.changed[lane] = None
        if not lane.items:
            if lane is self.blocker:
                self._forget_blocker(now)
            self.lane_emptied()

    def clear(self, now: int, lane: Lane) -> None:
        """Take all tasks out of a lane at once; their waits are charged already."""
        if lane.items:
            if lane.bench is not None:
                self._off_bench(lane, lane.bench)
                lane.epoch = Epoch(now, None, lane.level.segment, {})
                self.changed[lane] = None
            lane.clear()
            if lane is self.blocker:
                self._forget_blocker(now)
            self.lane_emptied()

    # The decision

    def fill(self, now: int, started: list[Task]) -> None:
        """Start tasks in order until the slots are taken or nothing more may start; append them to ``started``."""
        slots = self.slots
        while slots.free > 0:
            lane = self.next_lane(now)
            if lane is None:
                if self.held or self.blocker is not None:
                    self._let_pass(now)
                return
            gate = self.closed_gate(lane)
            if lane.bench is not None:
                if gate is None:
                    started.append(self._start_parked(now, lane, lane.bench))
                    continue
                self._off_bench(lane, lane.bench)
                self._back_into_heap(now, lane)
            if gate is None:
                if lane is self.blocker:
                    self._forget_blocker(now)
                started.append(self._start(now, lane))
            elif self._greedy or not gate.is_budget:
                self._park(now, lane, gate)
            else:
                self._unpark_openings(now)
                self._hold_back(now, lane, gate)
                return
        self._unpark_openings(now)
        if self.held or self.blocker is not None:
            self._let_pass(now)

    def closed_gate(self, lane: Lane) -> Gate | None:
        """Return the first closed gate of a lane, in the order in which gates are asked."""
        nobody_runs = self.busy == 0
        for gate, need in lane.needs:
            # The first half spares a call for a gate that has enough.
            if gate.free < need and gate.closed(need, nobody_runs):
                return gate
        return None

    def start_given(self, now: int, task: Task) -> bool:
        """Start a certain READY task whose gates are open, whoever else is in line; return whether they are."""
        lane = task.lane
        assert lane is not None, "a READY task is in a lane"
        if self.slots.free <= 0 or self.closed_gate(lane) is not None:
            return False
        self.leave(now, task)
        task.lane = lane
        task.state = TaskState.RUNNING
        task.since = now
        self._take(now, task, lane)
        return True

    def following(self, now: int, task: Task, most: int) -> list[Task]:
        """Return who starts next in the lane of a running task if nothing changes, at most so many, in order."""
        lane = task.lane
        if lane is None or not lane.items or self.held or self.blocker is not None or self.next_lane(now) is not lane:
            return []
        return [
            item
            for item in lane.items[lane.first_index : lane.first_index + most]
            if getattr(item, "lane", None) is lane
        ]

    def _hand_over(self, now: int, lane: Lane) -> Task:
        """Mark the next task of a lane RUNNING that is on top of its level's heap; the caller takes slot and budget."""
        task = lane.shift()
        if lane.items:
            lane.queued = entry = lane.head_entry
            heapreplace(lane.level.heap, (entry, lane))
        else:
            lane.queued = None
            heappop(lane.level.heap)
            self.lane_emptied()
        self._mark_running(now, task, lane)
        return task

    def _mark_running(self, now: int, task: Task, lane: Lane) -> None:
        if now != task.since:
            self.account(now, task, lane)
        task.state = TaskState.RUNNING
        task.since = now

    def release(self, now: int, task: Task) -> None:
        """Give back the slot and the budget of a task whose body has ended."""
        lane = task.lane
        assert lane is not None, "a slot holder remembers its lane"
        for gate, need in lane.needs:
            gate.free += need
            gate.use_ns += need * now
            if gate.benches:
                self.gate_moved(gate)
        slots = self.slots
        slots.free += 1
        slots.use_ns += now
        self.busy -= 1
        priority = task.priority
        self._holders[priority] -= 1
        if priority == self._top and not self._holders[priority]:
            self.top_moved = True
        task.lane = None
        if self.busy == 0:
            for gate in self.soft:
                self.gate_moved(gate)

    def gate_moved(self, gate: Gate) -> None:
        """Tell the levels whose parked lanes may fit now that a gate has more free."""
        room = gate.room(self.busy == 0)
        for bench in gate.benches.values():
            if room is None or bench.smallest_need <= room:
                _announce(bench)

    def settle(self, now: int) -> list[Level]:
        """Bring the accounts up to date after slots changed hands; return the levels that are starved from now on."""
        self.top_moved = False
        top = -1
        for level in self.levels:
            if self._holders[level.priority]:
                top = level.priority
                break
        if top == self._top:
            return []
        self._top = top
        return self._switch_levels(now)

    def rebuild(self, now: int, scopes: Iterable[Scope], ready: list[Task], holders: list[Task]) -> None:
        """Make everything anew from the tasks there are: for a command that was broken off half-way."""
        for gate in self.resources.values():
            gate.reset(now)
        for scope in scopes:
            scope.slot_gate.reset(now)
            scope.state_gate.benches.clear()
        for level in self.levels:
            level.heap.clear()
            level.opening.clear()
        for lane in self._lanes:
            lane.epoch = self._next_epoch(now, lane, None)
            lane.bench = lane.queued = None
            lane.clear()
        self.blocker = None
        self._lanes = [lane for scope in scopes for lane in scope.lanes.values()]
        self._empty_lanes = len(self._lanes)
        for task in sorted(ready, key=attrgetter("entry")):
            was_in, epoch, segment = task.lane, task.epoch, task.segment
            if not task.entry:
                self.count += 1
            self.enter(task.since, task, self.lane_of(now, task), task.entry or self.count)
            if was_in is task.lane and epoch is not None and segment is not None:  # it was READY before
                task.epoch, task.segment = epoch, segment
        self.busy = 0
        self._holders = [0] * (HIGHEST + 1)
        for task in holders:
            assert task.lane is not None, "a slot holder remembers its lane"
            self._take(now, task, task.lane)
        self.held = False
        self._top = -1
        self.settle(now)
        self._switch_levels(now)

    # Looking

    def lanes(self) -> Iterator[Lane]:
        """Yield all lanes that hold tasks, in the order in which they were made."""
        return (lane for lane in self._lanes if lane.items)

    def ready_wait(self, now: int, task: Task) -> dict[str, int]:
        """Return how the present READY stay of a task divides by cause."""
        lane, epoch, segment = task.lane, task.epoch, task.segment
        assert lane is not None, "a READY task is in a lane"
        assert epoch is not None, "a READY task entered in an epoch"
        assert segment is not None, "a READY task entered in a segment"
        if now == task.since:
            return {}
        return ready_wait(task.since, epoch, segment, now, lane.epoch, lane.level.segment)

    def starved(self, now: int, task: Task) -> int:
        """Return for how long a task has been READY while a higher priority held a slot."""
        lane, segment = task.lane, task.segment
        if task.state != TaskState.READY or lane is None or segment is None:
            return task.starved_ns
        return task.starved_ns + lane.level.segment.starved_at(now) - segment.starved_at(task.since)

    # Steps of the decision

    def next_lane(self, now: int) -> Lane | None:
        """Return the lane whose head comes first in the order, of those that are not parked."""
        nobody_runs = self.busy == 0
        best = best_effective = None
        for level in self.levels:
            lane = level.first(nobody_runs) if level.heap or level.opening else None
            if lane is None:
                continue
            if best is None:
                if self._strict:
                    return lane
                best = lane
                continue
            if best_effective is None:
                best_effective = self._effective(now, best)
            effective = self._effective(now, lane)
            if effective > best_effective or (effective == best_effective and lane.head_entry < best.head_entry):
                best, best_effective = lane, effective
        return best

    def _effective(self, now: int, lane: Lane) -> int:
        head = lane.head
        assert head is not None, "a level offers only lanes with tasks"
        return self.order.effective(lane.level.priority, now - head.since)

    def _start_parked(self, now: int, lane: Lane, bench: Bench) -> Task:
        """Start the head of a lane right from its bench; what is left of the lane is open."""
        self._off_bench(lane, bench)
        task = lane.shift()
        self._mark_running(now, task, lane)
        if lane.items:
            self._back_into_heap(now, lane)
        else:
            lane.epoch = Epoch(now, None, lane.level.segment, {})
            self.changed[lane] = None
            self.lane_emptied()
        self._take(now, task, lane)
        return task

    def _start(self, now: int, lane: Lane) -> Task:
        task = self._hand_over(now, lane)
        self._take(now, task, lane)
        return task

    def _take(self, now: int, task: Task, lane: Lane) -> None:
        """Take slot and budget."""
        for gate, need in lane.needs:
            gate.free -= need
            gate.use_ns -= need * now
        slots = self.slots
        slots.free -= 1
        slots.use_ns -= now
        self.busy += 1
        priority = task.priority
        self._holders[priority] += 1
        if priority > self._top:
            self.top_moved = True

    def account(self, now: int, task: Task, lane: Lane) -> None:
        """Charge the READY stay that ends now."""
        since = task.since
        waited = now - since
        level = lane.level
        segment = level.segment
        if task.segment is segment and task.epoch is lane.epoch and task.waited is None:
            # The common case, spelled out for speed: nothing has changed since it entered, and it waited for one
            # cause all the time (guarded by test_kernel_against_model.py, which compares every wait).
            if waited:
                task.waited = waited
            if segment.higher and waited:
                self._note_starved(task, task.starved_ns + waited)
        elif waited:
            starved = self.starved(now, task)
            for cause, ns in self.ready_wait(now, task).items():
                task.add_wait(cause, ns)
            if starved:
                self._note_starved(task, starved)
        if waited >= self.step_ns:
            self.promotions += self.order.promotions(level.priority, waited)

    def _note_starved(self, task: Task, starved_ns: int) -> None:
        worst = self.worst_starved
        if not task.starved_ns:
            self.starved_tasks += 1
        elif starved_ns > self._worst_floor:  # it was READY before, and may be among them already
            worst[:] = [told for told in worst if told.minus_number != -task.number]
            heapify(worst)
        task.starved_ns = starved_ns
        if starved_ns > self._worst_floor:
            told = Starved(starved_ns, -task.number, task.id, task.attempt, task.priority)
            if len(worst) < WORST_STARVED:
                heappush(worst, told)
            else:
                heapreplace(worst, told)
                self._worst_floor = worst[0][0]

    def _park(self, now: int, lane: Lane, gate: Gate) -> None:
        heappop(lane.level.heap)
        lane.queued = None
        lane.epoch = self._next_epoch(now, lane, gate)
        self._on_bench(lane, gate)

    def _unpark_openings(self, now: int) -> None:
        """Dispatch stops before it got to lanes whose gate has opened: they wait like any it did not get to."""
        for level in self.levels:
            if not level.opening:
                continue
            for bench in level.opening:
                bench.opening = False
                for lane in bench.take(bench.gate.free):
                    lane.bench = None
                    self._back_into_heap(now, lane)
                if not bench:
                    del bench.gate.benches[level.priority]
            level.opening.clear()

    def _back_into_heap(self, now: int, lane: Lane) -> None:
        lane.epoch = self._next_epoch(now, lane, None)
        lane.queued = lane.head_entry
        heappush(lane.level.heap, (lane.queued, lane))

    def _on_bench(self, lane: Lane, gate: Gate) -> None:
        level, head = lane.level, lane.head
        assert head is not None, "a parked lane has tasks"
        bench = gate.benches.get(level.priority)
        if bench is None:
            bench = gate.benches[level.priority] = Bench(gate, level)
        bench.add(lane, lane.need(gate), head.entry)
        lane.bench = bench

    def _off_bench(self, lane: Lane, bench: Bench) -> None:
        bench.remove(lane)
        lane.bench = None
        if not bench:
            del bench.gate.benches[lane.level.priority]
            if bench.opening:
                bench.opening = False
                lane.level.opening.remove(bench)

    def _hold_back(self, now: int, lane: Lane, gate: Gate) -> None:
        """backfill="none": let everybody behind ``lane`` wait for it."""
        if self.blocker is not lane:
            self._forget_blocker(now)
        if lane.epoch.gate is not gate:
            lane.epoch = self._next_epoch(now, lane, gate)
        self.blocker = lane
        self.changed[lane] = None
        if not self.held:
            self.held = True
            self._switch_levels(now)

    def _let_pass(self, now: int) -> None:
        """Dispatch has come to rest without a blocker; the last one keeps its cause while its gate stays closed."""
        lane = self.blocker
        if lane is not None:
            gate = lane.epoch.gate
            if not len(lane) or lane.bench or gate is None or not gate.closed(lane.need(gate), self.busy == 0):
                self._forget_blocker(now)
        if self.held:
            self.held = False
            if lane is not None:
                self.changed[lane] = None
            self._switch_levels(now)

    def _forget_blocker(self, now: int) -> None:
        lane, self.blocker = self.blocker, None
        if lane is not None and lane.bench is None:
            lane.epoch = self._next_epoch(now, lane, None)

    def _switch_levels(self, now: int) -> list[Level]:
        starved = []
        held = self.held
        for level in self.levels:
            higher = level.priority < self._top
            if higher and not level.segment.higher:
                starved.append(level)
            level.switch(now, higher=higher, held=held)
        return starved

    def _next_epoch(self, now: int, lane: Lane, gate: Gate | None) -> Epoch:
        self.changed[lane] = None
        segment = lane.level.segment
        return Epoch(now, gate, segment, lane.epoch.totals(now, segment))

    def _make_lane(self, now: int, task: Task) -> Lane:
        level = self._level_of[task.priority]
        if level is None:
            level = Level(task.priority, now, higher=task.priority < self._top, held=self.held)
            self._level_of[task.priority] = level
            self.levels.append(level)
            self.levels.sort(key=_descending)
        lane = Lane(task.scope, level, task.demand, self._needs(task.scope, task.demand), now)
        task.scope.lanes[task.priority, task.demand] = lane
        self._lanes.append(lane)
        self._empty_lanes += 1
        return lane

    def lane_emptied(self) -> None:
        """Forget empty lanes once they are the majority, so that ever new demands leave nothing behind."""
        self._empty_lanes += 1
        if self._empty_lanes > _SWEEP_EMPTY_LANES and self._empty_lanes * 2 > len(self._lanes):
            kept = []
            for lane in self._lanes:
                if lane.items:
                    kept.append(lane)
                else:
                    lane.scope.lanes.pop((lane.level.priority, lane.demand), None)
            self._lanes = kept
            self._empty_lanes = 0

    def _needs(self, scope: Scope, demand: Demand) -> tuple[tuple[Gate, int], ...]:
        resources = self.resources
        return scope.gates + tuple((resources[name], amount) for name, amount in demand if name in resources)


def _announce(bench: Bench) -> None:
    if not bench.opening:
        bench.opening = True
        bench.level.opening.append(bench)


def _descending(level: Level) -> int:
    return -level.priority


def _ignore(now: int, lane: Lane, entry: int) -> None:
    """Take no notice."""
