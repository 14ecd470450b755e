"""The run as a whole: where the waiting went, which tasks caused it, what the run could not have been shorter than.

Totals (waiting by cause, utilisation, outcomes, drops, starvation) are the kernel's own accounts of the whole run.
What needs the course of events (waiting by holder, the critical path, peaks) is read from the events that the authority
remembers, when a report is asked for; ``events`` in the report says whether these are all.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from whywait.kernel.events import Event
from whywait.kernel.ids import family_of
from whywait.kernel.limits import MEASURED
from whywait.kernel.state import Wait
from whywait.observe.report_text import render_run
from whywait.observe.story import SLOT, GateKey, Story, TaskStory
from whywait.observe.summary import summary_of, waited_for_ms
from whywait.support.notebooks import lines
from whywait.support.units import in_ms

if TYPE_CHECKING:
    from whywait.kernel.kernel import Kernel

_NO_HOLDER: Final = frozenset({Wait.SCOPE_STATE})  # a decision, not the work of a task


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
        return render_run(self._data)

    def _repr_html_(self) -> str:
        """Return the page for a notebook."""
        return lines(str(self))

    def __getitem__(self, key: str) -> Any:  # noqa: ANN401 - any part of the report
        """Return one part of :meth:`to_dict`."""
        return self._data[key]


class MemoryUse(NamedTuple):
    """What tasks of one name asked for and used, each at most, in bytes."""

    tasks: int = 0
    asked: int = 0
    peak: int = 0
    overdrawn: int = 0  # how many used more than they had asked for

    def with_task(self, asked: int, task: TaskStory) -> MemoryUse:
        """Return it with one more task."""
        peak = task.peak_ram or 0
        over = self.overdrawn + (0 < asked < peak)
        return MemoryUse(self.tasks + 1, max(self.asked, asked), max(self.peak, peak), over)


class Account(Story):
    """Follows a run and keeps which tasks made others wait, the critical path, and peaks.

    A wait behind a gate is charged to the tasks that hold of it, in proportion to what they hold, at every moment: for
    each gate a running total of waiting time per unit held, and a holder's part is what it held times what the total
    grew by meanwhile. A wait for dependencies is charged to the one that ended last.
    """

    keeps_stretches: ClassVar[bool] = False

    def __init__(self, events: Iterable[Event] = ()) -> None:
        """Follow ``events``."""
        self.caused_ns: defaultdict[tuple[GateKey, str, str], float] = defaultdict(float)  # gate, scope, task id
        self.held: defaultdict[GateKey, int] = defaultdict(int)
        self.peaks: defaultdict[GateKey, int] = defaultdict(int)
        self.memory: dict[tuple[str, str], MemoryUse] = {}  # by scope and the name that similar tasks share
        self.last: TaskStory | None = None  # of those that ran, the one that ended last
        self.waits: Counter[str] = Counter()  # ns of tasks that wait no more, by cause
        self.outcomes: Counter[str] = Counter()  # of tasks, each counted once however often it was retried
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

    def begun(self, attempt: TaskStory) -> None:
        """Count a task that is tried again as not ended yet."""
        before = self.attempts.get(attempt.of or 0)
        if before is not None and before.outcome is not None:
            self.outcomes[before.outcome] -= 1

    def task_started(self, task: TaskStory) -> None:
        """Note what it takes, and what it has waited for."""
        self.takes(task)
        self.waits.update(task.waits)
        waited_ns = task.waits.get(Wait.DEPENDENCY, 0)
        if task.before is not None and waited_ns:
            self.caused_ns[GateKey(Wait.DEPENDENCY), task.before.scope, task.before.label] += waited_ns

    def takes(self, task: TaskStory) -> None:
        """Note what it holds from now on, and at which totals."""
        gates = self.gates_of(task)
        for gate, amount in gates:
            self.held[gate] += amount
            self.peaks[gate] = max(self.peaks[gate], self.held[gate])
        self._at_start[task.number] = {gate: self._per_unit[gate] for gate, _ in gates}

    def gives_back(self, task: TaskStory) -> None:
        """Charge it with the waiting that what it held has caused."""
        for gate, amount in self.gates_of(task):
            self.held[gate] -= amount
        self._charge(self.caused_ns, task)
        del self._at_start[task.number]

    def task_ended(self, task: TaskStory) -> None:
        """Count its outcome, and charge it with the waiting that it caused."""
        self.outcomes[task.outcome or ""] += 1
        if task.started_ns is None:
            self.waits.update(task.waits)
            return
        if task.peak_ram is not None:
            key = task.scope, family_of(task.label)
            self.memory[key] = self.memory.get(key, MemoryUse()).with_task(dict(task.demand).get(MEASURED, 0), task)
        self.gives_back(task)
        if self.last is None or (task.ended_ns or 0) >= (self.last.ended_ns or 0):
            self.last = task

    def _charge(self, caused_ns: dict[tuple[GateKey, str, str], float], task: TaskStory) -> None:
        at_start = self._at_start[task.number]
        for gate, amount in self.gates_of(task):
            caused = amount * (self._per_unit[gate] - at_start.get(gate, 0.0))
            if caused > 0:
                caused_ns[gate, task.scope, task.label] += caused

    def by_holder(self) -> list[dict[str, Any]]:
        """Return the tasks that made others wait, by what they held, the worst first."""
        caused = self.caused_ns.copy()
        for task in self.running.values():
            self._charge(caused, task)
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
            after_ns = sum(ns for cause, ns in task.waits.items() if cause not in _WHILE_THE_STEP_BEFORE_RAN)
            step = {
                "id": task.label,
                "scope": task.scope,
                "attempt": task.attempt,
                "outcome": task.outcome,
                "waited_ms": in_ms(task.waited_ns if task.before is None else after_ns),
                "ran_ms": in_ms(task.ran_ns or 0),
            }
            steps.append(step)
            task = task.before
        return steps[::-1]

    def to_dict(self, skipped: int = 0) -> dict[str, Any]:
        """Return the part of the report that the events tell; ``skipped`` more are missing before the first."""
        path = self.critical_path()
        seen = 0 if self.first_seq is None else self.last_seq - self.first_seq + 1 - self.skipped
        return {
            "makespan_ms": in_ms((self.now or 0) - (self.began_ns or 0)),
            "outcomes": dict(+self.outcomes),
            "waited_for_ms": waited_for_ms(dict(self.waits.most_common())),
            "by_holder": self.by_holder(),
            "critical_path": {"ms": sum(step["waited_ms"] + step["ran_ms"] for step in path), "steps": path},
            "memory": [
                {"id": name, "scope": scope, **use._asdict()}
                for (scope, name), use in sorted(self.memory.items(), key=lambda item: (-item[1].peak, item[0]))
            ],
            "events": {"seen": seen, "skipped": skipped + self.skipped},
        }


_WHILE_THE_STEP_BEFORE_RAN: Final = frozenset({Wait.DEPENDENCY, Wait.BACKOFF})


def kernel_account(kernel: Kernel, now: int, began_ns: int, last_ns: int | None = None) -> dict[str, Any]:
    """Return the part of the report that the kernel has accounted for itself; to be called under the lock.

    ``last_ns`` is when anything happened to a task last: a run in which nothing is alive ended then.
    """
    if last_ns is not None and not any(scope.tasks for scope in kernel.scopes.values()):
        now = last_ns
    return summary_of(kernel, now, began_ns, now, {})


def make_report(totals: dict[str, Any], events: Iterable[Event], skipped: int) -> Report:
    """Put the kernel's account and what the events tell together."""
    account = Account(events)
    for name, use in totals["utilisation"].items():
        key = SLOT if name == "slots" else GateKey(name)
        use["peak"] = max(use["peak"], account.peaks[key])
    return Report(totals | account.to_dict(skipped) | totals)
