"""The run as a whole: where the waiting went, who caused it, what the run could not have been shorter than.

Totals (waiting by cause, utilisation, outcomes, drops, starvation) are the kernel's own accounts of the whole run.
What needs the course of events (waiting by holder, the critical path, peaks) is read from the events that the authority
remembers, when somebody asks; ``events`` in the report says whether these are all.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final

from whywait import report
from whywait.kernel.events import Event
from whywait.kernel.state import Wait
from whywait.story import SLOT, GateKey, Story, TaskStory
from whywait.tally import use_row
from whywait.units import in_ms

if TYPE_CHECKING:
    from whywait.kernel.gates import Gate
    from whywait.kernel.kernel import Kernel

_NO_HOLDER: Final = frozenset({Wait.SCOPE_STATE})  # somebody's decision, not somebody's work


class Report:
    """A run in numbers: ``str()`` is a page of text with small bars, :meth:`to_dict` is JSON-ready."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        """Keep the numbers."""
        self._data = data

    def to_dict(self) -> dict[str, Any]:
        """Return everything as a JSON-ready dict; times are milliseconds."""
        return dict(self._data)

    def __str__(self) -> str:
        """Tell the run on a page of text."""
        return report.render_run(self._data)

    def __getitem__(self, key: str) -> Any:  # noqa: ANN401 - any part of the report
        """Return one part of :meth:`to_dict`."""
        return self._data[key]


class Account(Story):
    """Follows a run and keeps who made others wait, the critical path, and peaks.

    A wait behind a gate is charged to those who hold of it, in proportion to what they hold, at every moment: for each
    gate a running total of waiting time per unit held, and a holder's part is what it held times what the total grew
    by meanwhile. A wait for dependencies is charged to the one that ended last.
    """

    keeps_stretches: ClassVar[bool] = False

    def __init__(self, events: Iterable[Event] = ()) -> None:
        """Follow ``events``."""
        self.caused_ns: defaultdict[tuple[GateKey, str, str], float] = defaultdict(float)  # gate, scope, task id
        self.held: defaultdict[GateKey, int] = defaultdict(int)
        self.peaks: defaultdict[GateKey, int] = defaultdict(int)
        self.last: TaskStory | None = None  # of those that ran, the one that ended last
        self._per_unit: defaultdict[GateKey, float] = defaultdict(float)
        self._at_start: dict[int, dict[GateKey, float]] = {}  # task number -> the totals when it started
        super().__init__(events)

    def time_passes(self, before: int, now: int) -> None:
        """Charge the waiting of this time to the gates."""
        held_back_by = self.held_by.gate if self.held_by is not None else None
        for gate, tasks in self.waiting.items():
            if tasks:
                charged = held_back_by or gate if gate == SLOT else gate
                if charged.name not in _NO_HOLDER and self.held[charged]:
                    self._per_unit[charged] += tasks * (now - before) / self.held[charged]

    def task_started(self, task: TaskStory) -> None:
        """Note what it takes, and at which totals."""
        gates = self.gates_of(task)
        for gate, amount in gates:
            self.held[gate] += amount
            self.peaks[gate] = max(self.peaks[gate], self.held[gate])
        self._at_start[task.number] = {gate: self._per_unit[gate] for gate, _ in gates}
        waited_ns = task.waits.get(Wait.DEPENDENCY, 0)
        if task.before is not None and waited_ns:
            self.caused_ns[GateKey(Wait.DEPENDENCY), task.before.scope, task.before.id] += waited_ns

    def task_ended(self, task: TaskStory) -> None:
        """Charge it with the waiting that it caused."""
        if task.started_ns is None:
            return
        at_start = self._at_start.pop(task.number, {})
        for gate, amount in self.gates_of(task):
            self.held[gate] -= amount
            self._charge(task, gate, amount, at_start.get(gate, 0.0))
        if self.last is None or (task.ended_ns or 0) >= (self.last.ended_ns or 0):
            self.last = task

    def _charge(self, task: TaskStory, gate: GateKey, amount: int, at_start: float) -> None:
        caused = amount * (self._per_unit[gate] - at_start)
        if caused > 0:
            self.caused_ns[gate, task.scope, task.id] += caused

    def by_holder(self) -> list[dict[str, Any]]:
        """Return who made others wait, by what they held, the worst first."""
        caused = self.caused_ns.copy()
        for task in self.running.values():
            at_start = self._at_start.get(task.number, {})
            for gate, amount in self.gates_of(task):
                more = amount * (self._per_unit[gate] - at_start.get(gate, 0.0))
                if more > 0:
                    caused[gate, task.scope, task.id] += more
        rows = [
            {"id": name, "scope": scope, "held": gate.name, "of": gate.scope or None, "cost_ms": in_ms(round(ns))}
            for (gate, scope, name), ns in caused.items()
            if round(ns)
        ]
        return sorted(rows, key=lambda row: (-row["cost_ms"], row["held"], row["id"]))

    def critical_path(self) -> list[dict[str, Any]]:
        """Return the chain of dependencies and attempts that ended last, its first task first."""
        steps = []
        task = self.last
        while task is not None:
            ready_ns = sum(ns for cause, ns in task.waits.items() if cause not in _BEFORE_READY)
            step = {
                "id": task.id,
                "scope": task.scope,
                "attempt": task.attempt,
                "outcome": task.outcome,
                "waited_ms": in_ms(task.waited_ns if task.before is None else ready_ns),
                "ran_ms": in_ms(task.ran_ns),
            }
            steps.append(step)
            task = task.before
        return steps[::-1]


# What a task waits for while the step before it on the path still runs.
_BEFORE_READY: Final = frozenset({Wait.DEPENDENCY, Wait.BACKOFF})


def kernel_account(kernel: Kernel, now: int, began_ns: int, last_ns: int | None = None) -> dict[str, Any]:
    """Return the part of the report that the kernel has accounted for itself; to be called under the lock.

    ``last_ns`` is when anything happened last: a run in which nothing is alive ended then.
    """
    stats, dispatcher = kernel.stats, kernel.dispatcher
    alive = sum(len(scope.tasks) for scope in kernel.scopes.values())
    if not alive and last_ns is not None:
        now = last_ns
    outcomes = {outcome.lower(): count for outcome, count in stats.by_outcome.items()}
    rows = [
        {"id": told.id, "attempt": told.attempt, "priority": told.priority, "ms": in_ms(told.starved_ns)}
        for told in sorted(dispatcher.worst_starved, reverse=True)
    ]
    return {
        "makespan_ms": in_ms(now - began_ns),
        "tasks": stats.submitted - stats.iterations,
        "iterations": stats.iterations,
        "attempts": stats.submitted + stats.retried,
        "outcomes": {**outcomes, "pending": alive},
        "running": len(kernel.running),
        "utilisation": {
            "slots": _use(dispatcher.slots, now, began_ns),
            **{name: _use(gate, now, began_ns) for name, gate in kernel.resources.items()},
        },
        "waited_for_ms": {cause: in_ms(ns) for cause, ns in stats.waited_for_ns().items() if ns},
        "starved": {
            "tasks": dispatcher.starved_tasks,
            "timeout_ms": in_ms(kernel.starvation_timeout_ns),
            "past_timeout": stats.starved,
            "worst": rows,
        },
        "promotions": dispatcher.promotions,
        "drops": dict(stats.dropped),
        "rejects": dict(stats.rejected),
    }


def _use(gate: Gate, now: int, began_ns: int) -> dict[str, Any]:
    in_use = gate.in_use
    return {**use_row(gate.used_ns(now), now - began_ns, in_use, gate.limit), "now": in_use}


def make_report(totals: dict[str, Any], events: Iterable[Event], skipped: int) -> Report:
    """Put the kernel's account and what the events tell together."""
    account = Account(events)
    for name, use in totals["utilisation"].items():
        key = SLOT if name == "slots" else GateKey(name)
        use["peak"] = max(use["peak"], account.peaks[key])
    path = account.critical_path()
    seen = 0 if account.first_seq is None else account.last_seq - account.first_seq + 1 - account.skipped
    return Report(
        {
            **totals,
            "by_holder": account.by_holder(),
            "critical_path": {
                "ms": sum(step["waited_ms"] + step["ran_ms"] for step in path),
                "steps": path,
            },
            "events": {"seen": seen, "skipped": skipped + account.skipped},
        }
    )
