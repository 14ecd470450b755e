"""What happened in a simulation: the tally kept while it runs, and the result made of it.

The tally is fed by the kernel's raw events and by the engine, a few times for every task, so it keeps plain columns
and counts. What the kernel accounts for (use, waits, starvation, drops) is read from it when the run is over.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from typing import Any, Final

from whywait.kernel.devices import Assigned
from whywait.kernel.events import Kind, RawEvent, details_of
from whywait.kernel.gates import Gate
from whywait.kernel.kernel import Kernel
from whywait.kernel.model import Task
from whywait.kernel.state import Cause, Outcome, Wait
from whywait.observe.summary import summary_of
from whywait.simulation.workload import Workload
from whywait.support.units import NS_PER_MS, in_ms

Details = dict[str, Any]

OUTCOMES: Final = (*Outcome, "pending")

_FIRST: Final = 10
_STARTED: Final = Kind.TASK_STARTED
_FINISHED: Final = Kind.TASK_FINISHED
_SUCCESS: Final = Outcome.SUCCESS
# Waiting that comes before READY: no slot, budget or priority has a part in it.
_BEFORE_READY: Final = frozenset({Wait.DEPENDENCY, Wait.BACKOFF, Wait.OVERLAP, Wait.PAUSED})
_QUANTILES: Final = (("p50", 50), ("p90", 90), ("p99", 99), ("max", 100))


class Tally:
    """The record of one run while it happens; ``ms`` is the present instant as events show it."""

    __slots__ = (
        "_asked",
        "attempts",
        "causes",
        "devices",
        "final",
        "log",
        "ms",
        "past_timeout",
        "peaks",
        "ready_ns",
        "roots",
        "running_peak",
        "skips",
        "starvation_timeout_ns",
    )

    def __init__(self, workload: Workload, starvation_timeout_ns: int) -> None:
        """Start with every task pending; those starved longer than the timeout are counted apart."""
        self.log: list[Any] = []  # ms, word, id, ms, word, id, ...: no object for each event
        self.final: dict[str, str] = dict.fromkeys(workload.ids, "pending")
        self.ms: float = 0
        self.running_peak = 0
        self.peaks: dict[Gate, int] = {}
        self.ready_ns: defaultdict[int, list[int]] = defaultdict(list)  # by priority, for each start
        self.starvation_timeout_ns = starvation_timeout_ns
        self.past_timeout = 0
        self.skips: Counter[str] = Counter()
        self.devices: dict[str, Assigned] = {}  # the units of each task
        self.causes: dict[str, str | None] = {}  # of what did not end in success
        self.roots: Counter[str] = Counter()  # how many others each failure brought down
        self.attempts: dict[str, int] = {}  # of retried tasks
        self._asked: set[int] = set()  # asked to end: their end is in the log already

    def emit(self, event: RawEvent) -> None:
        """Take in one event of the kernel."""
        kind = event[2]
        if kind is _STARTED:
            self.log += (self.ms, "start", event[5])
        elif kind is _FINISHED and not self._asked:
            name, details = event[5], event[7]
            assert name is not None, "a simulated task has a name"
            self.log += (self.ms, "finish", name)
            if details is None:  # in short: a success
                self.final[name] = _SUCCESS
            else:
                self.final[name], self.causes[name] = details[0][1], details[1][1]
        else:
            handler = _HANDLERS.get(kind)
            if handler is not None:
                assert event[5] is not None, "simulated tasks and periodics have names"
                handler(self, event[4] or 0, event[5], dict(details_of(event) or ()))

    def _on_skipped(self, _number: int, _name: str, details: Details) -> None:
        self.skips[details["code"]] += 1

    def _on_abort_asked(self, number: int, name: str, details: Details) -> None:
        self._asked.add(number)
        timed_out = details["cause"] == Cause.RUN_TIMEOUT
        self._end(name, *(("finish", "timeout") if timed_out else ("cancel", "aborted")), details["cause"])

    def _on_finished(self, number: int, name: str, details: Details) -> None:
        if number in self._asked:
            self._asked.discard(number)
        else:
            self._end(name, "finish", details["outcome"], details.get("cause"))

    def _on_cancelled(self, number: int, name: str, details: Details) -> None:
        if number in self._asked:
            self._asked.discard(number)
            return
        self._end(name, "cancel", "aborted", details["cause"])
        if "root" in details:
            self.roots[details["root"]] += 1

    def _on_dropped(self, _number: int, name: str, details: Details) -> None:
        self._end(name, "drop", "rejected", details["cause"])

    def _on_rejected(self, _number: int, name: str, details: Details) -> None:
        self._end(name, "reject", "rejected", details["cause"])

    def _on_retried(self, _number: int, name: str, details: Details) -> None:
        self.final[name] = "pending"
        self.attempts[name] = details["attempt"]

    def reject(self, name: str, cause: str) -> None:
        """Take in a submission that the engine has refused."""
        if cause == Cause.DUPLICATE:  # the outcome under this id is that of the task that has it
            self.log += (self.ms, "reject", name)
        else:
            self._end(name, "reject", "rejected", cause)

    def _end(self, name: str, word: str, final: str, cause: str | None) -> None:
        self.log += (self.ms, word, name)
        self.final[name] = final
        if cause is not None:
            self.causes[name] = cause

    def start(self, tasks: list[Task], kernel: Kernel) -> None:
        """Take in what dispatch has started."""
        ready_ns = self.ready_ns
        for task in tasks:
            if task.more_waits is not None:
                before = task.more_waits.gates or {}
                ready = task.more_waits.total() - sum([before.get(cause, 0) for cause in _BEFORE_READY])
            else:
                ready = 0 if task.wait_cause in _BEFORE_READY else task.wait_ns
            ready_ns[task.priority].append(ready)
            if task.starved_ns:
                self.settle([task])
            if task.units:
                self.devices[task.id] = task.units
        self.running_peak = max(self.running_peak, len(kernel.running))
        for gate in (kernel.slots, *kernel.resources.values()):
            if gate.in_use > self.peaks.get(gate, 0):
                self.peaks[gate] = gate.in_use

    def settle(self, tasks: Sequence[Task]) -> None:
        """Take in tasks that have left READY for good."""
        for task in tasks:
            if task.starved_ns:
                before = task.starved_before
                self.past_timeout += before <= self.starvation_timeout_ns < before + task.starved_ns

    @property
    def last_ns(self) -> int:
        """When anything happened last."""
        return round(self.log[-3] * NS_PER_MS) if self.log else 0


# Of the kinds that are not worth a branch of their own in `emit`; all others leave no trace in the record.
_HANDLERS: Final[dict[str, Callable[[Tally, int, str, Details], None]]] = {
    Kind.TASK_FINISHED: Tally._on_finished,  # noqa: SLF001  this table is a part of the class
    Kind.TASK_ABORT_ASKED: Tally._on_abort_asked,  # noqa: SLF001
    Kind.TASK_CANCELLED: Tally._on_cancelled,  # noqa: SLF001
    Kind.TASK_DROPPED: Tally._on_dropped,  # noqa: SLF001
    Kind.TASK_REJECTED: Tally._on_rejected,  # noqa: SLF001
    Kind.TASK_RETRIED: Tally._on_retried,  # noqa: SLF001
    Kind.PERIODIC_SKIPPED: Tally._on_skipped,  # noqa: SLF001
}


class SimulationResult:
    """What a simulation gave: events in exact order, the final outcome of every task, and a summary."""

    def __init__(
        self, tally: Tally, run: Mapping[str, Any], unlimited: frozenset[str], tasks: int, kernel: Kernel
    ) -> None:
        """Keep what is left of a run: its settings, what it had no limit of, and what its kernel has counted."""
        self._tally = tally
        self.run = run
        began, last = round(run["from_ms"] * NS_PER_MS), tally.last_ns
        now = max(round(tally.ms * NS_PER_MS), kernel.levels.ceiling.since)
        self._account = account = summary_of(kernel, last, began if tally.log else last, now, tally.peaks)
        for name, use in account["utilisation"].items():
            del use["now"]
            if name in unlimited:
                use |= {"limit": None, "share": None}
        account["starved"] |= {
            "timeout_ms": in_ms(tally.starvation_timeout_ns),
            "past_timeout": tally.past_timeout,
        }
        self._has_units = bool(kernel.devices)
        self._tasks = tasks

    @property
    def events(self) -> Iterator[tuple[float, str, str]]:
        """What happened, as (ms, word, id), in exact order."""
        log = iter(self._tally.log)
        return zip(log, log, log, strict=True)

    @property
    def final(self) -> dict[str, str]:
        """The final outcome of every task by id, in file order."""
        return self._tally.final

    def to_dict(self) -> dict[str, Any]:
        """Return what ``whywait simulate --json`` prints: events, final and summary; the devices, if there are any."""
        told = {"events": list(map(list, self.events)), "final": dict(self.final), "summary": self.summary}
        return {**told, "devices": self.devices} if self._has_units else told

    @property
    def devices(self) -> dict[str, dict[str, list[str]]]:
        """The units that each task got, by kind; those of its last attempt."""
        given = self._tally.devices
        return {name: {kind: list(units) for kind, units in assigned} for name, assigned in given.items()}

    @cached_property
    def summary(self) -> dict[str, Any]:
        """The run in numbers, JSON-ready.

        ``ready_wait_ms`` is about the time from READY to the start, for each start: what slots, budget and priority
        have to answer for. ``waited_for_ms`` adds up all waiting, by cause, dependencies included.
        """
        tally, account = self._tally, self._account
        outcomes = Counter(tally.final.values())
        return {
            "run": dict(self.run),
            "makespan_ms": account["makespan_ms"],
            "tasks": self._tasks,
            "iterations": account["iterations"],
            "attempts": sum(map(len, tally.ready_ns.values())),
            "outcomes": {outcome: outcomes[outcome] for outcome in OUTCOMES},
            "peak_running": tally.running_peak,
            "utilisation": account["utilisation"],
            "ready_wait_ms": self._ready_wait_ms(),
            **{name: account[name] for name in ("waited_for_ms", "starved", "promotions", "drops", "rejects")},
            "skips": dict(tally.skips),
            "lost": [{"id": name, "cause": cause} for name, cause in islice(self._lost(), _FIRST)],
            "failures": self._failures(),
        }

    def _ready_wait_ms(self) -> dict[str, Any]:
        levels = self._tally.ready_ns
        every_level = sorted(ns for level in levels.values() for ns in level)
        by_priority = {str(key): _quantiles(sorted(levels[key])) for key in sorted(levels, reverse=True)}
        return {"all": _quantiles(every_level), "by_priority": by_priority}

    def _lost(self) -> Iterator[tuple[str, str | None]]:
        causes = self._tally.causes
        return ((name, causes[name]) for name, outcome in self.final.items() if outcome == "rejected")

    def _failures(self) -> dict[str, Any]:
        tally = self._tally
        failed = [
            name for name, outcome in tally.final.items() if outcome in {"error", "timeout"} or name in tally.roots
        ]
        first = [
            {
                "id": name,
                "outcome": tally.final[name],
                "cause": tally.causes.get(name),
                "attempts": tally.attempts.get(name, 1),
                "brought_down": tally.roots[name],
            }
            for name in failed[:_FIRST]
        ]
        return {"tasks": len(failed), "first": first}


def _quantiles(ordered_ns: list[int]) -> dict[str, float]:
    """Return exact quantiles of sorted times: the smallest value that at least so many percent do not exceed."""
    count = len(ordered_ns)
    row: dict[str, float] = {"tasks": count}
    for name, percent in _QUANTILES:
        row[name] = in_ms(ordered_ns[max(0, -(-count * percent // 100) - 1)]) if count else 0
    return row
