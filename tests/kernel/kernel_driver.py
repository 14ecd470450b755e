"""A virtual engine that drives a real kernel: bodies that last so long, and a clock that jumps.

Times are milliseconds. The clock moves from instant to instant, and at each one things happen in the order of rule
C0: bodies end in start order, timers fire, then come the commands of the test, then dispatch. A body obeys at once
unless it is told not to. What must always hold is checked after every command.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest

from whywait.kernel import invariants
from whywait.kernel.events import Event
from whywait.kernel.ids import generated_id
from whywait.kernel.kernel import Kernel
from whywait.kernel.limits import Budget, Limits, Policy, Retry, make_demand
from whywait.kernel.model import Scope, Submission, Task
from whywait.kernel.periodic import Periodic
from whywait.kernel.reasons import Why

MS = 1_000_000
SECOND = 1_000  # in milliseconds
HARD = ("cpu", "licence")
COMMANDS = {
    "blocked", "cancel", "dispose", "measured", "mount", "parked", "pause", "resize", "resume", "resume_scope",
    "set_units", "stopped", "suspend",
}  # fmt: skip


class Body(NamedTuple):
    """What a task does: opaque to the kernel."""

    lasts: float | None = 10  # None: until the test ends it
    outcome: str = "success"
    fails: int = 0  # so many attempts end in an error first
    obeys: bool = True  # ends when it is asked to abort, parks when it is asked to pause


def kernel(
    slots: int | None = None,
    order: Any = None,
    backfill: str = "greedy",
    policy: Policy | None = None,
    devices: dict[str, dict[str, int]] | None = None,
    **settings: Any,
) -> Kernel:
    """Make a kernel; budget and limits are given by name, for example ``cpu=2, ram=8, queue_limit=1``."""
    names = {name: settings.pop(name) for name in ("cpu", "ram", "vram", "licence", "disk") if name in settings}
    budget = Budget(
        {name: amount for name, amount in names.items() if name in HARD},
        {name: amount for name, amount in names.items() if name not in HARD},
        devices or {},
    )
    limits = {name: settings.pop(name) for name in list(settings) if name in Limits.__dataclass_fields__}
    return Kernel(Limits(slots, **limits), budget, order, policy or Policy(), backfill=backfill, **settings)


def policy(timeout: float | None = None, retry: int | Retry | None = None, max_wait: float | None = None) -> Policy:
    """Make a policy from milliseconds."""
    return Policy(ns(timeout), Retry(retry) if isinstance(retry, int) else retry, ns(max_wait))


def ns(time_ms: float | None) -> int | None:
    return None if time_ms is None else round(time_ms * MS)


def ms(time_ns: int) -> float:
    return time_ns // MS if time_ns % MS == 0 else time_ns / MS


class Driver:
    """Commands in, starts and events out."""

    def __init__(self, kernel: Kernel, *, check: bool = True) -> None:
        self.kernel = kernel
        self.raw: list[tuple] = []
        self.asked: list[tuple[str, str]] = []  # what the kernel has asked the bodies to do
        self.settled: list[Task] = []  # tasks that ended without a body, as the owner is told
        self.skips: list[tuple] = []  # when periodics began to drop ticks
        self.now = 0.0
        self._check = check
        self._ends: dict[int, tuple[int, Task]] = {}  # task number -> when its body ends
        self._left: dict[int, int] = {}  # task number -> what a parked body still has to do
        kernel.emit_to(self.raw.append)

    # Commands

    def scope(
        self,
        key: str,
        parent: Scope | None = None,
        policy: Policy | None = None,
        *,
        mount: bool = True,
        **limits: Any,
    ) -> Scope:
        return self._did(self.kernel.open_scope(self.now_ns, key, parent, Limits(**limits), policy, mount=mount))

    def submit(self, name: str | None = None, priority: int = 50, lasts: float | None = 10, **rest: Any) -> Task:
        """Submit a task to the authority's own scope, unless ``scope`` is given; see :meth:`submission`."""
        return self._did(self.kernel.submit(self.now_ns, *self.submission(name, priority, lasts, **rest)))

    def submission(
        self,
        name: str | None = None,
        priority: int = 50,
        lasts: float | None = 10,
        *,
        scope: Scope | None = None,
        after: Sequence[Task | str] = (),
        after_ended: Sequence[Task | str] = (),
        policy: Policy | None = None,
        slot: bool = True,
        outcome: str = "success",
        fails: int = 0,
        obeys: bool = True,
        **demand: int,
    ) -> Submission:
        known = {name: demand.pop(name) for name in ("cpu", "ram", "vram") if name in demand}
        body = Body(lasts, outcome, fails, obeys)
        needs = make_demand(**known, resources=demand)
        return Submission(
            scope or self.kernel.root, name, priority, needs, tuple(after), tuple(after_ended), policy, slot, body
        )

    def submit_many(self, *submissions: Submission, kept: bool = False) -> list[Task]:
        return self._did(self.kernel.submit_many(self.now_ns, submissions, kept=kept))

    def end(self, task: Task, outcome: str = "success", cause: str | None = None, *, retryable: bool = True) -> None:
        """The body of a task ends now."""
        if outcome == "error" and cause is None:
            cause = "exception"
        self._ends.pop(task.number, None)
        self._did(self.kernel.ended(self.now_ns, task, outcome, cause, retryable))

    def note(self, task: Task, kind: str) -> None:
        """Something happens to a handler, a worker or a stream of a task."""
        self._did(self.kernel.note(self.now_ns, task, kind, (("name", "step"),)))

    def __getattr__(self, name: str) -> Any:
        """Return a command of the kernel, to be given now: ``pause``, ``parked``, ``resize``, ``suspend`` and so on."""
        if name not in COMMANDS:
            raise AttributeError(name)
        command = getattr(self.kernel, name)
        return lambda *what: self._did(command(self.now_ns, *what))

    def periodic(
        self,
        name: str | None = "tick",
        every: float = 100,
        lasts: float | None = 10,
        *,
        scope: Scope | None = None,
        outcome: str = "success",
        **settings: Any,
    ) -> Periodic:
        body = Body(lasts, outcome)
        where = scope or self.kernel.root
        return self._did(self.kernel.add_periodic(self.now_ns, where, round(every * MS), name, job=body, **settings))

    def switch(self, periodic: Periodic, enabled: bool, *, immediately: bool = False) -> None:
        self._did(self.kernel.set_periodic_enabled(self.now_ns, periodic, enabled, immediately=immediately))

    # Time

    @property
    def now_ns(self) -> int:
        return round(self.now * MS)

    def at(self, time_ms: float) -> None:
        """Go to an instant: all before it happen whole, of this one the ends of bodies and the timers."""
        assert time_ms >= self.now, "time does not go back"
        if time_ms == self.now:
            return
        self.dispatch()
        while (soonest := self._next_instant()) is not None and soonest < time_ms:
            self._arrive(soonest)
            self.dispatch()
        self._arrive(time_ms)

    def until(self, time_ms: float) -> None:
        """Go to the end of an instant: like :meth:`at`, and what may start then has started."""
        self.at(time_ms)
        self.dispatch()

    def stall_until(self, time_ms: float, breath_ms: float = 0) -> None:
        """Let time pass without a look at the kernel, as on a machine that was asleep."""
        self.dispatch()
        self._arrive(time_ms, breath_ms)
        self.dispatch()

    def dispatch(self) -> list[str]:
        """Let start what may start now; return the ids."""
        decision = self.kernel.dispatch(self.now_ns)
        started = decision.started
        self.kernel.requests += decision.requests  # looked at below, as after any command
        self.settled += decision.settled
        self.skips += [(self.now, *skip) for skip in decision.skipped]
        for task in started:
            if task.job is not None and task.job.lasts is not None:
                self._ends[task.number] = (self.now_ns + round(task.job.lasts * MS), task)
        self._did(None, rested=True)
        return [task.id for task in started]

    def _next_instant(self) -> float | None:
        times = [end for end, _ in self._ends.values()]
        deadline = self.kernel.next_deadline()
        if deadline is not None:
            times.append(deadline)
        return ms(min(times)) if times else None

    def _arrive(self, time_ms: float, breath_ms: float = 0) -> None:
        """Let bodies end, in start order, and timers fire."""
        self.now = time_ms
        now_ns = self.now_ns
        for task in sorted(
            [task for end, task in self._ends.values() if end <= now_ns], key=lambda task: task.started_seq
        ):
            if task.number in self._ends:  # not aborted by the one before
                outcome = "error" if task.attempt <= task.job.fails else task.job.outcome
                self.end(task, outcome)
        self._did(self.kernel.fire(now_ns, round(breath_ms * MS)))

    def _did(self, result: Any, *, rested: bool = False) -> Any:
        """Obey what the kernel asks for, take note of who has settled, and check what must always hold."""
        requests = self.kernel.requests
        while requests:
            verb, task = requests.pop(0)
            self.asked.append((verb, task.id))
            self._obey(verb, task)
        self.settled += self.kernel.settled
        self.kernel.settled.clear()
        if self._check:
            invariants.check(self.kernel, self.now_ns, rested=rested)
        return result

    def _obey(self, verb: str, task: Task) -> None:
        if verb == "resume":
            if task.number in self._left:
                self._ends[task.number] = (self.now_ns + self._left.pop(task.number), task)
        elif task.job.obeys and task.active:
            end, _ = self._ends.pop(task.number, (None, task))
            if verb == "abort":
                self.end(task, "error")
            else:
                if end is not None:
                    self._left[task.number] = end - self.now_ns
                self.parked(task)

    # What can be seen

    @property
    def events(self) -> list[Event]:
        return [Event.of(raw) for raw in self.raw]

    @property
    def starts(self) -> list[tuple[float, str]]:
        """When each task started, in order."""
        return [(ms(event.time_ns), id_of(event)) for event in self.events if event.kind == "TASK_STARTED"]

    @property
    def order(self) -> list[str]:
        """The ids of what has started, in order."""
        return [name for _, name in self.starts]

    def story(self, *words: str) -> list[str]:
        """Return what happened, one line each, such as ``10 finished a SUCCESS``; with ``words`` only those kinds."""
        lines = []
        for event in self.events:
            word = event.kind.removeprefix("TASK_").lower()
            if word not in words if words else event.kind == "LANE_WAITS":
                continue
            untold = {"priority", "demand", "after", "after_ended", "waits", "parent"}
            if word == "cancelled":
                untold.add("outcome")
            if word != "starved":
                untold.add("starved_ns")
            details = [str(value) for key, value in event.details or () if key not in untold]
            lines.append(" ".join([f"{ms(event.time_ns):g}", word, id_of(event) or event.scope, *details]))
        return lines

    def why(self, task: Task) -> Why:
        return self.kernel.why(self.now_ns, task)

    def waits(self, task: Task) -> dict[str, float]:
        """How the wait of a task divides so far, in milliseconds."""
        return {cause: ms(time_ns) for cause, time_ns in self.why(task).breakdown.items()}

    def stats(self) -> dict[str, Any]:
        return self.kernel.stats.to_dict()

    def picture(self) -> dict[str, Any]:
        """All that can be seen of the kernel, in a form that can be compared."""
        kernel = self.kernel
        return {
            "snapshot": kernel.snapshot(self.now_ns).to_dict(),
            "deadline": kernel.next_deadline(),
            "counters": {name: count for name, count in self.stats().items() if name not in {"dropped", "rejected"}},
            "why": [self.why(task).to_dict() for task in kernel.living()],
            "asked": list(self.asked),
        }

    @contextmanager
    def refuses(self, error: type[Exception], match: str) -> Iterator[pytest.ExceptionInfo]:
        """Expect an error with this text, and that the state is exactly as it was before."""
        before = self.picture()
        with pytest.raises(error, match=match) as caught:
            yield caught
        self._did(None)
        assert changes(before, self.picture()) == {}, "a refused command changed something"

    @contextmanager
    def changes_nothing(self) -> Iterator[None]:
        """Expect neither a change nor an event."""
        before, told = self.picture(), len(self.raw)
        yield
        assert changes(before, self.picture()) == {}, "a command changed something"
        assert self.raw[told:] == [], "a command told of something"


def changes(before: dict[str, Any], after: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    return {key: (before[key], after[key]) for key in before if before[key] != after[key]}


def end_of(task: Task) -> tuple[str, str | None, str | None]:
    return task.state, task.outcome, task.cause


def id_of(event: Event) -> str | None:
    if event.name is None and event.number is not None:
        return generated_id(event.number)
    return event.name
