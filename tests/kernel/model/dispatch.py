"""Who may start, in which order, and what stops the others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from .admission import Admission
from .base import HELD_BACK, SLOT
from .records import Scope, Task

Gate = tuple[str, str]  # the cause it gives to a wait, and the key of the scope it belongs to

SCOPE_GATES = ("scope_state", "scope_slots")


class Dispatch(Admission):
    """P2 to P5, S1, S2, B1 to B5, D3, V7."""

    def dispatch(self, now: int) -> list[Task]:
        """C0: dispatch; `max_wait` expiry, in entry order; dispatch again."""
        self.advance(now)
        self.return_slots()
        started = self.fill()
        expired = [task for task in self.ready if self.has_expired(task)]
        for task in sorted(expired, key=lambda task: task.entry):
            self.drop(task, "max_wait")
        started += self.fill()
        return started

    def return_slots(self) -> None:
        """S7: before anything starts, each that wants its slots again and finds all free, in the order of asking."""
        for task in list(self.wanting):
            if not any(self.is_full(scope) for scope in task.scope.path()):
                task.lends = False
                self.emit("TASK_REGAINED", task.scope, task)
                self.want_no_more(task)

    def has_expired(self, task: Task) -> bool:
        """D3: still READY when now >= ready_since + max_wait."""
        return task.policy.max_wait_ns is not None and self.now >= task.ready_since + task.policy.max_wait_ns

    def fill(self) -> list[Task]:
        """Start the first in order that may start, until there is none; then say what each lane waits for."""
        started = []
        while True:
            startable, stopped_by = self.walk()
            if startable is None:
                break
            self.start(startable)
            started.append(startable)
        self.settle_causes(stopped_by)
        return started

    def in_order(self) -> list[Task]:
        """P2: higher effective priority (P3, P4), then earlier entry. Entry order refines `ready_since`."""
        return sorted(self.ready, key=lambda task: (-self.effective(task), task.entry))

    def effective(self, task: Task) -> int:
        return self.order.effective(task.priority, self.now - task.ready_since)

    def walk(self) -> tuple[Task | None, Gate | None]:
        """Go through READY tasks in order up to the first that may start.

        Returns it, or None and what kept the walk from going on: for tasks with a slot, the others go beside (S6).
        """
        stopped_by = SLOT if self.is_full(self.root) else None  # S1
        for task in self.in_order():
            if task.slot and stopped_by is not None:
                continue
            closed = self.closed_gates(task)
            if not closed:
                return task, None
            if not self.keeps_its_cause(task, closed):
                self.lane_causes[task.lane] = closed[0]
            if self.backfill == "none" and task.slot and closed[0][0] not in SCOPE_GATES:  # B5
                if self.feasible(task):
                    stopped_by = HELD_BACK
                else:  # M13
                    self.aside.add(task.lane)
        return None, stopped_by

    def keeps_its_cause(self, task: Task, closed: list[Gate]) -> bool:
        """V7: a gate found closed is kept until it opens; one that would hold the rest back is asked anew each time."""
        cause = self.lane_causes[task.lane]
        is_passed_over = cause[0] in SCOPE_GATES or not task.slot or task.lane in self.aside
        return cause in closed and (self.backfill == "greedy" or is_passed_over)

    def set_units(self, now: int, kind: str, units: dict[str, int]) -> None:
        """M13: what can fit again is asked anew: it may hold the rest back."""
        super().set_units(now, kind, units)
        for task in self.ready:
            if task.lane in self.aside and self.feasible(task):
                self.aside.remove(task.lane)
                self.lane_causes[task.lane] = SLOT

    def closed_gates(self, task: Task) -> list[Gate]:
        """V7: in the order scope state, scope slots, cpu, ram, vram, named by name, devices by kind."""
        scopes = [scope for scope in task.scope.path() if scope is not self.root]
        closed = [("scope_state", scope.key) for scope in task.scope.path() if scope.state == "SUSPENDED"]  # O2
        closed += [("scope_slots", scope.key) for scope in scopes if task.slot and self.is_full(scope)]  # S2, S5, S6
        named = sorted(set(task.demand) - {"cpu", "ram", "vram"})
        payer = task.scope.payer
        closed += [(resource, payer.key) for resource in ("cpu", "ram", "vram", *named) if self.lacks(resource, task)]
        return closed + [(kind, payer.key) for kind in sorted(payer.budget.devices) if self.lacks_units(kind, task)]

    def is_full(self, scope: Scope) -> bool:
        """S1, S2."""
        return scope.limits.slots is not None and len(self.holders(scope)) >= scope.limits.slots

    def lacks(self, resource: str, task: Task) -> bool:
        """B1 to B4: running + demand <= limit, for what it demands.

        Nobody holds a slot, nobody uses any of it: a soft gate counts as open.
        The walk goes in order, so the first task whose other gates are open is the one that B2 lets through.
        """
        demand = task.demand.get(resource, 0)
        if demand == 0:  # B4
            return False
        payer = task.scope.payer
        in_use, budget = self.in_use(resource, payer), payer.budget
        if resource in budget.hard:
            return in_use + demand > budget.hard[resource]
        if resource in budget.soft:
            alone = not self.holders() and not in_use
            return not alone and in_use + demand > budget.soft[resource]
        return False

    def start(self, task: Task) -> None:
        """T4: slot and budget are reserved; N3: units are chosen; O1: the first activation makes the scope RUNNING."""
        wanted = [kind for kind in sorted(task.scope.payer.budget.devices) if self.asked(kind, task)[0]]
        task.devices = {kind: self.chosen(kind, task) for kind in wanted}
        self.leave_ready(task)
        if task.lane in self.lane_causes:  # V7: its gate had opened; what is left of the lane is not got to yet
            self.lane_causes[task.lane] = SLOT
        task.state = "RUNNING"
        task.start_order = len(self.started)
        self.started.append(task)
        for scope in task.scope.path():
            if scope.state == "ATTACHED":
                scope.state = "RUNNING"
                self.emit("SCOPE_RUNNING", scope)
        told = {"waits": dict(task.waits), "devices": task.devices, "starved_ns": task.starved_ns}
        self.emit("TASK_STARTED", task.scope, task, **{name: value or None for name, value in told.items()})
        if task.periodic is not None:
            task.periodic.run_count += 1
        if task.policy.timeout_ns is not None:  # T6
            task.run_timer = self.arm(self.now + task.policy.timeout_ns, "timeout", task)

    def settle_causes(self, stopped_by: Gate | None) -> None:
        """V7: what lanes wait for that dispatch did not get to, now that it has come to rest."""
        with_slot = [task for task in self.in_order() if task.slot]
        first_stopped = next((task for task in with_slot if self.only_budget_stops(task)), None)
        for task in with_slot:
            cause = self.lane_causes[task.lane]
            still_closed = cause in self.closed_gates(task)
            if stopped_by == HELD_BACK:
                is_first = first_stopped is not None and task.lane == first_stopped.lane
                if not is_first and not (still_closed and (cause[0] in SCOPE_GATES or task.lane in self.aside)):
                    self.lane_causes[task.lane] = HELD_BACK
            elif not still_closed:
                self.lane_causes[task.lane] = SLOT
            if not still_closed:
                self.aside.discard(task.lane)

    def ahead_of(self, task: Task) -> list[Task]:
        """V1: who comes first in order and would keep this one waiting, in order.

        Suppose that all have ended who hold what it waits for, that the scopes that stop it are resumed, and limits
        raised that it exceeds. Whoever may start then is ahead if both take of something that stops this one now, or
        that all of them together leave too little of. So is (B5) whoever needs some of the budget and is not stopped by
        its scope: if it does not fit when its turn comes, it holds this one back.
        """
        order = self.in_order()
        before = order[: order.index(task)]
        stops = self.stops(task)
        with self.supposing(self.holding_up(task, stops), [key for name, key in stops if name == "scope_state"]):
            payer = task.scope.payer
            raised = [(kind, payer.key) for kind in payer.budget.devices if not self.could_ever_have(kind, task)]
            hard = payer.budget.hard
            raised += [(name, payer.key) for name in hard if task.demand.get(name, 0) > hard[name]]
            first = [other for other in before if set(self.stops(other)) <= set(raised)]
            in_line = [other for other in before if self.may_hold_back(other, task)]
            scarce = [gate for gate in self.takes(task) if gate in stops or self.is_short(gate, task, first)]
            alone = [gate for gate in self.takes(task) if self.exceeds(gate[0], task)]
        return [
            other
            for other in before
            if (other in first and any(gate in scarce for gate in self.takes(other)))
            or (other in first and alone and (other.slot or any(gate in alone for gate in self.takes(other))))
            or other in in_line
        ]

    def may_hold_back(self, other: Task, task: Task) -> bool:
        """B5: its scope lets it start, the budget may not."""
        demands = any(name not in {"slot", "scope_slots"} for name, _ in self.takes(other))
        passes = not any(name in SCOPE_GATES for name, _ in self.stops(other))
        return self.backfill == "none" and task.slot and other.slot and demands and passes and self.feasible(other)

    def holding_up(self, task: Task, stops: list[Gate]) -> list[Task]:
        """Who holds what it waits for; B2: if it is too large for a limit it waits for every slot."""
        soft = task.scope.payer.budget.soft
        too_large = any(task.demand.get(name, 0) > soft[name] for name, _ in stops if name in soft)
        return [
            other
            for other in self.active()
            if any(gate in stops for gate in self.takes(other)) or (too_large and other.slot and not other.lends)
        ]

    @contextmanager
    def supposing(self, ended: list[Task], resumed: list[str]) -> Iterator[None]:
        """What if these had ended, and these scopes were resumed?"""
        states = [(task, task.state) for task in ended]
        states += [(scope, scope.state) for scope in self.scopes if scope.key in resumed]
        for thing, _ in states:
            thing.state = "DISPOSED" if isinstance(thing, Task) else "RUNNING"
        yield
        for thing, state in states:
            thing.state = state

    def exceeds(self, resource: str, task: Task) -> bool:
        """B2: it passes a soft limit only alone."""
        soft, in_use = task.scope.payer.budget.soft, self.in_use(resource, task.scope.payer)
        return resource in soft and in_use + task.demand.get(resource, 0) > soft[resource]

    def stops(self, task: Task) -> list[Gate]:
        """Every closed gate, the authority's slots too."""
        return self.closed_gates(task) + ([SLOT] if task.slot and self.is_full(self.root) else [])

    def takes(self, task: Task) -> list[Gate]:
        """T4: of which gates with a limit it takes something."""
        payer = task.scope.payer
        limited = {**payer.budget.hard, **payer.budget.soft}
        holds = task.slot and not task.lends
        slots = [scope for scope in task.scope.path() if holds and scope.limits.slots is not None]
        gates = [("scope_slots", scope.key) if scope is not self.root else SLOT for scope in slots]
        gates += [(name, payer.key) for name in task.demand if name in limited]
        if "ram" not in task.demand and self.counted(task, "ram"):  # U2
            gates.append(("ram", payer.key))
        return gates + [(kind, payer.key) for kind in payer.budget.devices if self.asked(kind, task)[0]]

    def is_short(self, gate: Gate, task: Task, first: list[Task]) -> bool:
        """Whether too little would be left for the task if all these started; of devices, in the worst case."""
        name, key = gate
        takers = [other for other in first if gate in self.takes(other)]
        payer = task.scope.payer
        if name in payer.budget.devices:
            lost = sum(self.asked(name, other)[0] for other in takers)
            return len(self.fitting(name, task)) - lost < self.asked(name, task)[0]
        if name in {"slot", "scope_slots"}:
            (scope,) = [scope for scope in self.scopes if scope.key == key]
            return scope.limits.slots - len(self.holders(scope)) < len(takers) + 1
        free = {**payer.budget.hard, **payer.budget.soft}[name] - self.in_use(name, payer)
        return free < sum(other.demand[name] for other in takers) + task.demand[name]

    def only_budget_stops(self, task: Task) -> bool:
        """B5: its first closed gate is a resource, so its scope would let it start; M13: it could fit."""
        closed = self.closed_gates(task)
        return bool(closed) and closed[0][0] not in SCOPE_GATES and self.feasible(task)
