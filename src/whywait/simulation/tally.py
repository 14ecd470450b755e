"""What happened in a simulation: the tally kept while it runs, and the result made of it.

The tally is fed by the kernel's raw events and by the engine, a few times for every task, so it keeps plain columns
and counts; whatever can be worked out afterwards is worked out when the summary is asked for.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from heapq import heapify, heappush, heapreplace
from itertools import islice
from typing import Any, Final

from whywait.errors import QueueFull, Rejected
from whywait.kernel.devices import Assigned
from whywait.kernel.events import SUCCESS_DETAILS, Kind, RawEvent, details_of
from whywait.kernel.kernel import Kernel
from whywait.kernel.limits import Demand
from whywait.kernel.model import Task
from whywait.kernel.state import Cause, Outcome
from whywait.observe.measures import BEFORE_READY, quantiles, starvation, unit_name, use_of_limit, waited_for_ms
from whywait.simulation.workload import Workload
from whywait.support.units import NS_PER_MS

Details = dict[str, Any]

OUTCOMES: Final = (*Outcome, "pending")

_WORST: Final = 10
_FIRST: Final = 10
_STARTED: Final = Kind.TASK_STARTED
_FINISHED: Final = Kind.TASK_FINISHED


class Tally:
    """The record of one run while it happens; times are ns, but for ``ms``, the present instant as events show it."""

    def __init__(self, workload: Workload, starvation_timeout_ns: int) -> None:
        """Start with every task pending; those starved longer than the timeout are counted apart."""
        self.tasks = len(workload.ids)
        self.log: list[Any] = []  # ms, word, id, ms, word, id, ...: no object for each event
        self.final: dict[str, str] = dict.fromkeys(workload.ids, "pending")
        self.ms: float = 0
        self.iterations = 0  # of periodics
        self.starts = 0
        self.running = 0
        self.peak = 0
        self.slots = 0  # how many of the running ones have a slot
        self.slots_peak = 0
        self.slot_ns = 0  # so many ns of slot time were used
        self.used: dict[str, int] = {}  # amount of each resource in use
        self.peaks: dict[str, int] = {}
        self.used_ns: dict[str, int] = {}
        self.ready_ns: defaultdict[int, list[int]] = defaultdict(list)  # by priority, for each start
        self.starvation_timeout_ns = starvation_timeout_ns
        self.starved = 0
        self.starved_long = 0
        self.worst: list[tuple[int, int, str, int, int]] = []  # a heap: ns, tie-break, id, attempt, priority
        self.drops: Counter[str] = Counter()
        self.rejects: Counter[str] = Counter()
        self.skips: Counter[str] = Counter()
        self.devices: dict[str, Assigned] = {}  # the units of each task
        self.causes: dict[str, str | None] = {}  # of what did not end in success
        self.roots: Counter[str] = Counter()  # how many others each failure brought down
        self.attempts: dict[str, int] = {}  # of retried tasks
        self._noted = 0
        self._asked: set[int] = set()  # told to end: their end is in the log already
        self._add = self.log.extend

    def emit(self, event: RawEvent) -> None:
        """Take in one event of the kernel."""
        kind = event[2]
        if kind == _STARTED:
            self._add((self.ms, "start", event[5]))
        elif kind == _FINISHED and not self._asked:
            name, details = event[5], event[7] or SUCCESS_DETAILS
            assert name is not None, "a simulated task has a name"
            self._add((self.ms, "finish", name))
            outcome = details[0][1]
            self.final[name] = outcome
            if outcome is not Outcome.SUCCESS:
                self.causes[name] = details[1][1]
        else:
            handler = _HANDLERS.get(kind)
            if handler is not None:
                assert event[5] is not None, "simulated tasks and periodics have names"
                handler(self, event[4] or 0, event[5], dict(details_of(event) or ()))

    def _on_tick(self, _number: int, _name: str, _details: Details) -> None:
        self.iterations += 1

    def _on_skipped(self, _number: int, _name: str, details: Details) -> None:
        self.skips[details["code"]] += 1

    def _on_abort_asked(self, number: int, name: str, details: Details) -> None:
        self._asked.add(number)
        if details["cause"] == Cause.RUN_TIMEOUT:
            self._end(name, "finish", "timeout", details["cause"])
        else:
            self._end(name, "cancel", "aborted", details["cause"])

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
        self._drop(name, details["cause"])

    def _on_rejected(self, _number: int, name: str, details: Details) -> None:
        self.reject(name, details["cause"])

    def _on_retried(self, _number: int, name: str, details: Details) -> None:
        self.final[name] = "pending"
        self.attempts[name] = details["attempt"]

    def refuse(self, name: str, refusal: Rejected) -> None:
        """Take in a submission that the kernel has refused: its event has told already."""

    def reject(self, name: str, cause: str) -> None:
        """Take in a submission that was refused."""
        self.rejects[cause] += 1
        self._add((self.ms, "reject", name))
        if cause != Cause.DUPLICATE:  # then the outcome under this id is that of the task that has it
            self.final[name] = "rejected"
            self.causes[name] = cause

    def _drop(self, name: str, cause: str) -> None:
        self.drops[cause] += 1
        self._end(name, "drop", "rejected", cause)

    def _end(self, name: str, word: str, final: str, cause: str | None) -> None:
        self._add((self.ms, word, name))
        self.final[name] = final
        if final == "success":
            self.causes.pop(name, None)
        else:
            self.causes[name] = cause

    def start(self, now: int, tasks: list[Task]) -> None:
        """Take in what dispatch has started."""
        self._hold(now, tasks)
        ready_ns = self.ready_ns
        for task in tasks:
            waits, ready = task.waits, 0
            if waits:
                for cause, ns in waits.items():
                    if cause not in BEFORE_READY:
                        ready += ns
                if task.starved_ns:
                    self._note_starved(task)
            ready_ns[task.priority].append(ready)
            if task.demand:
                self._use(now, task.demand)
                if task.units:
                    self.devices[self._id(task)] = task.units

    def settle(self, tasks: Sequence[Task]) -> None:
        """Take in tasks that ended while they were pending."""
        for task in tasks:
            if task.starved_ns:
                self._note_starved(task)

    def end(self, now: int, tasks: list[Task]) -> None:
        """Take in that these bodies have ended."""
        slots = sum(task.takes_slot for task in tasks)
        self.slots -= slots
        self.slot_ns += now * slots
        self.running -= len(tasks)
        self._give_back(now, tasks)

    def _hold(self, now: int, tasks: list[Task]) -> None:
        slots = sum(task.takes_slot for task in tasks)
        self.slots += slots
        self.slots_peak = max(self.slots_peak, self.slots)
        self.slot_ns -= now * slots  # and every end adds its time: the sum is what was held
        self.starts += len(tasks)
        self.running += len(tasks)
        self.peak = max(self.peak, self.running)

    def _give_back(self, now: int, tasks: list[Task]) -> None:
        for task in tasks:
            for name, amount in task.demand:
                self.used[name] -= amount
                self.used_ns[name] += amount * now

    def _use(self, now: int, demand: Demand) -> None:
        for name, amount in demand:
            used = self.used[name] = self.used.get(name, 0) + amount
            if used > self.peaks.get(name, 0):
                self.peaks[name] = used
            self.used_ns[name] = self.used_ns.get(name, 0) - amount * now

    def close(self) -> None:
        """Take in that nothing more happens; a task that is still parked has held what it holds until now."""
        self.slot_ns += self.last_ns * self.slots
        for name, amount in self.used.items():
            self.used_ns[name] += self.last_ns * amount

    @property
    def last_ns(self) -> int:
        """When anything happened last."""
        return round(self.log[-3] * NS_PER_MS) if self.log else 0

    def _id(self, task: Task) -> str:
        return task.id

    def _note_starved(self, task: Task) -> None:
        in_all_ns, name = task.starved_before + task.starved_ns, self._id(task)
        if task.starved_before:  # an earlier attempt may be among the worst
            self.worst = [entry for entry in self.worst if entry[2] != name]
            heapify(self.worst)
        else:
            self.starved += 1
        self.starved_long += task.starved_before <= self.starvation_timeout_ns < in_all_ns
        self._noted += 1
        entry = (in_all_ns, -self._noted, name, task.attempt, task.priority)  # of equals, the earlier ones are kept
        if len(self.worst) < _WORST:
            heappush(self.worst, entry)
        elif entry > self.worst[0]:
            heapreplace(self.worst, entry)


# Of the kinds that are not worth a branch of their own in `emit`; all others leave no trace in the record.
_HANDLERS: Final[dict[str, Callable[[Tally, int, str, Details], None]]] = {
    Kind.TASK_FINISHED: Tally._on_finished,  # noqa: SLF001  this table is a part of the class
    Kind.TASK_ABORT_ASKED: Tally._on_abort_asked,  # noqa: SLF001
    Kind.TASK_CANCELLED: Tally._on_cancelled,  # noqa: SLF001
    Kind.TASK_DROPPED: Tally._on_dropped,  # noqa: SLF001
    Kind.TASK_REJECTED: Tally._on_rejected,  # noqa: SLF001
    Kind.TASK_RETRIED: Tally._on_retried,  # noqa: SLF001
    Kind.PERIODIC_TICK: Tally._on_tick,  # noqa: SLF001
    Kind.PERIODIC_SKIPPED: Tally._on_skipped,  # noqa: SLF001
}


class PlainTally(Tally):
    """The record of a run in which tasks can only be refused, start and succeed.

    The engine sees all that happens there, so the kernel need not tell, and what is to be known about a task follows
    from its line in the file (the results are the same: ``test_plain_runs_are_recorded_like_others``).
    """

    def __init__(self, workload: Workload, starvation_timeout_ns: int) -> None:
        """Start with every task pending."""
        super().__init__(workload, starvation_timeout_ns)
        self._workload = workload
        self._starving = len({kind.priority for kind in workload.kinds}) > 1
        self._demanding = any(kind.demand for kind in workload.kinds)

    def refuse(self, name: str, refusal: Rejected) -> None:
        """Take in a submission that the kernel has refused."""
        if isinstance(refusal, QueueFull):
            self._drop(name, refusal.cause)
        else:
            self.reject(name, refusal.cause)

    def start(self, now: int, tasks: list[Task]) -> None:
        """Take in what dispatch has started."""
        ms, add, ready_ns = self.ms, self._add, self.ready_ns
        ids, at_ms, unit_ns = self._workload.ids, self._workload.at_ms, self._workload.unit_ns
        for task in tasks:
            job = task.job
            add((ms, "start", ids[job]))
            ready_ns[task.priority].append(now - at_ms[job] * unit_ns)
        self.starts += len(tasks)
        self.running += len(tasks)
        self.peak = max(self.peak, self.running)
        if self._starving:
            for task in tasks:
                if task.starved_ns:
                    self._note_starved(task)
        if self._demanding:
            for task in tasks:
                self._use(now, task.demand)
                if task.units:
                    self.devices[self._id(task)] = task.units

    def end(self, now: int, tasks: list[Task]) -> None:
        """Take in that these bodies have ended."""
        ms, add, ids = self.ms, self._add, self._workload.ids
        for task in tasks:
            add((ms, "finish", ids[task.job]))
        self.running -= len(tasks)
        if self._demanding:
            self._give_back(now, tasks)

    def close(self) -> None:
        """Take in that nothing more happens: every task that was let in has run its time and succeeded."""
        assert not self.running, "every simulated body ends"
        workload, refused = self._workload, self.causes
        self.final = dict.fromkeys(self.final, "success") | dict.fromkeys(refused, "rejected")
        lost = (
            [ms for ident, ms in zip(workload.ids, workload.duration_ms, strict=True) if ident in refused]
            if refused
            else []
        )
        self.slot_ns = (sum(workload.duration_ms) - sum(lost)) * workload.unit_ns
        self.slots_peak = self.peak

    def _id(self, task: Task) -> str:
        name: str = self._workload.ids[task.job]
        return name


class SimulationResult:
    """What a simulation gave: events in exact order, the final outcome of every task, and a summary."""

    def __init__(
        self,
        tally: Tally,
        run: Mapping[str, Any],
        limits: Mapping[str, int | None],
        kernel: Kernel,
    ) -> None:
        """Keep what is left of a run: its settings, the limits it had, and what its kernel has counted."""
        self._tally = tally
        self.run = run
        self._limits = limits
        self._waits = kernel.stats.waited_for_ns()
        self._promotions = kernel.stats.promotions
        end_ns = max(round(tally.ms * NS_PER_MS), kernel.levels.ceiling.since)
        self._starvation = kernel.starvation.signals(end_ns, kernel.lanes_in_use())
        self._units = {
            unit_name(devices, unit): (unit.used_ns(tally.last_ns), unit.peak, unit.capacity)
            for devices in kernel.devices.values()
            for unit in devices.units
        }

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
        return {**told, "devices": self.devices} if self._units else told

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
        tally = self._tally
        outcomes = Counter(tally.final.values())
        return {
            "run": dict(self.run),
            "makespan_ms": self._span_ms,
            "tasks": tally.tasks,
            "iterations": tally.iterations,
            "attempts": tally.starts,
            "outcomes": {outcome: outcomes[outcome] for outcome in OUTCOMES},
            "peak_running": tally.peak,
            "utilisation": self._utilisation(),
            "ready_wait_ms": self._ready_wait_ms(),
            "waited_for_ms": waited_for_ms(self._waits),
            "starved": starvation(
                self._starvation,
                tally.starved,
                tally.starved_long,
                tally.starvation_timeout_ns,
                tally.worst,
            ),
            "promotions": self._promotions,
            "drops": dict(tally.drops),
            "rejects": dict(tally.rejects),
            "skips": dict(tally.skips),
            "lost": [{"id": name, "cause": cause} for name, cause in islice(self._lost(), _FIRST)],
            "failures": self._failures(),
        }

    @property
    def _span_ms(self) -> float:
        """From the first submission to the last event."""
        log = self._tally.log
        return log[-3] - self.run["from_ms"] if log else 0

    def _utilisation(self) -> dict[str, Any]:
        tally = self._tally
        used = {"slots": (tally.slot_ns, tally.slots_peak)}
        used |= {
            name: (tally.used_ns.get(name, 0), tally.peaks.get(name, 0)) for name in self._limits if name != "slots"
        }
        span_ns = self._span_ms * NS_PER_MS
        shown = {name: (*use, self._limits[name]) for name, use in used.items()} | self._units
        return {name: use_of_limit(total, span_ns, peak, limit) for name, (total, peak, limit) in shown.items()}

    def _ready_wait_ms(self) -> dict[str, Any]:
        levels = self._tally.ready_ns
        every_level = sorted(ns for level in levels.values() for ns in level)
        by_priority = {str(key): quantiles(sorted(levels[key])) for key in sorted(levels, reverse=True)}
        return {"all": quantiles(every_level), "by_priority": by_priority}

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
