"""Who may start, in which order, and what stops the others."""

from __future__ import annotations

from .admission import Admission
from .base import HELD_BACK, SLOT
from .records import ATTACHED, RUNNING, SUSPENDED, Scope, Task

Gate = tuple[str, str]  # the cause it gives to a wait, and the key of the scope it belongs to

SCOPE_GATES = ("scope_state", "scope_slots")


class Dispatch(Admission):
    """P2 to P5, S1, S2, B1 to B5, D3, V7."""

    def dispatch(self, now: int) -> list[Task]:
        """C0: dispatch; `max_wait` expiry, in entry order; dispatch again."""
        self.advance(now)
        started = self.fill()
        expired = [task for task in self.ready if self.has_expired(task)]
        for task in sorted(expired, key=lambda task: task.entry):
            self.drop(task, "max_wait")
        started += self.fill()
        return started

    def turn(self, now: int, task: Task, outcome: str, cause: str | None = None) -> tuple[Task | None, list[Task]]:
        """T5: the body has ended, next dispatch. Returns the retry, if there is one, and what started."""
        self.ended(now, task, outcome, cause)
        return task.retried_as, self.dispatch(now)

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

        Returns it, or None and what kept the walk from going on.
        """
        for task in self.in_order():
            if self.is_full(self.root):  # S1
                return None, SLOT
            closed = self.closed_gates(task)
            if not closed:
                return task, None
            if not self.keeps_its_cause(task, closed):
                self.lane_causes[task.lane] = closed[0]
            if self.backfill == "none" and closed[0][0] not in SCOPE_GATES:  # B5
                return None, HELD_BACK
        return None, None

    def keeps_its_cause(self, task: Task, closed: list[Gate]) -> bool:
        """V7: a gate found closed is kept until it opens; one that would hold the rest back is asked anew each time."""
        cause = self.lane_causes[task.lane]
        return cause in closed and (self.backfill == "greedy" or cause[0] in SCOPE_GATES)

    def closed_gates(self, task: Task) -> list[Gate]:
        """V7: in the order scope state, scope slots, cpu, ram, vram, named by name."""
        scopes = [scope for scope in task.scope.path() if scope is not self.root]
        closed = [("scope_state", scope.key) for scope in task.scope.path() if scope.state == SUSPENDED]  # O2
        closed += [("scope_slots", scope.key) for scope in scopes if self.is_full(scope)]  # S2, S5
        named = sorted(set(task.demand) - {"cpu", "ram", "vram"})
        return closed + [(resource, "") for resource in ("cpu", "ram", "vram", *named) if self.lacks(resource, task)]

    def is_full(self, scope: Scope) -> bool:
        """S1, S2."""
        return scope.limits.slots is not None and len(self.holders(scope)) >= scope.limits.slots

    def lacks(self, resource: str, task: Task) -> bool:
        """B1 to B4: running + demand <= limit, for what it demands. Nobody holds a slot: soft gates count as open.

        The walk goes in order, so the first task whose other gates are open is the one that B2 lets through.
        """
        demand = task.demand.get(resource, 0)
        if demand == 0:  # B4
            return False
        if resource in self.hard:
            return self.in_use(resource) + demand > self.hard[resource]
        if resource in self.soft:
            return bool(self.holders()) and self.in_use(resource) + demand > self.soft[resource]
        return False

    def start(self, task: Task) -> None:
        """T4: slot and budget are reserved; O1: the first activation makes the scope RUNNING."""
        self.leave_ready(task)
        if task.lane in self.lane_causes:  # V7: its gate had opened; what is left of the lane is not got to yet
            self.lane_causes[task.lane] = SLOT
        task.state = RUNNING
        task.start_order = len(self.started)
        self.started.append(task)
        for scope in task.scope.path():
            if scope.state == ATTACHED:
                scope.state = RUNNING
                self.emit("SCOPE_RUNNING", scope)
        self.emit("TASK_STARTED", task.scope, task, waits=dict(task.waits) or None)
        if task.periodic is not None:
            task.periodic.run_count += 1
        if task.policy.timeout_ns is not None:  # T6
            self.arm(self.now + task.policy.timeout_ns, "timeout", task)

    def settle_causes(self, stopped_by: Gate | None) -> None:
        """V7: what lanes wait for that dispatch did not get to, now that it has come to rest."""
        first_stopped = next((task for task in self.in_order() if self.only_budget_stops(task)), None)
        for task in self.ready:
            cause = self.lane_causes[task.lane]
            still_closed = cause in self.closed_gates(task)
            if stopped_by == HELD_BACK:
                is_first = first_stopped is not None and task.lane == first_stopped.lane
                if not is_first and not (still_closed and cause[0] in SCOPE_GATES):
                    self.lane_causes[task.lane] = HELD_BACK
            elif not still_closed:
                self.lane_causes[task.lane] = SLOT

    def only_budget_stops(self, task: Task) -> bool:
        """B5: its first closed gate is a resource, so its scope would let it start."""
        closed = self.closed_gates(task)
        return bool(closed) and closed[0][0] not in SCOPE_GATES
