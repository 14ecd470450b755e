"""How far a run has come: what each task of the file is doing, from the events of its authority."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from whywait.kernel.events import Event, Kind
from whywait.kernel.state import Cause, Outcome
from whywait.workflow.model import TaskSpec

WAITING: Final = "WAITING"
RUNNING: Final = "RUNNING"
ENDED: Final = "ENDED"
Listener = Callable[[str, "TaskProgress"], object]  # what happened, to whom

_ENDS: Final = {
    Kind.TASK_FINISHED: Outcome.SUCCESS,
    Kind.TASK_CANCELLED: Outcome.ABORTED,
    Kind.TASK_DROPPED: Outcome.REJECTED,
    Kind.TASK_REJECTED: Outcome.REJECTED,
}


@dataclass(slots=True)
class TaskProgress:
    """What one task has done so far; times are those of the events, in nanoseconds."""

    spec: TaskSpec
    phase: str = WAITING
    attempts: int = 0
    first_started_ns: int | None = None
    started_ns: int | None = None
    ended_ns: int | None = None
    outcome: str | None = None
    cause: str | None = None
    root: str | None = None

    @property
    def ran_ns(self) -> int | None:
        """How long its last attempt ran; None if it has not ended or never started."""
        if self.started_ns is None or self.ended_ns is None:
            return None
        return self.ended_ns - self.started_ns

    @property
    def succeeded(self) -> bool:
        """Whether it has ended well."""
        return self.outcome == Outcome.SUCCESS


class Progress:
    """Follows the tasks of a workflow; what periodics do is counted only."""

    def __init__(self, tasks: Iterable[TaskSpec]) -> None:
        """Begin with everybody waiting."""
        self.tasks = {spec.id: TaskProgress(spec) for spec in tasks}
        self.iterations: Counter[str] = Counter()  # of periodics, by how they ended
        self.began_ns = 0
        self._lock = threading.Lock()
        self._listeners: list[Listener] = []
        self._busy_ns = 0
        self._ran: dict[str, tuple[int, int]] = {}  # name of the table -> how many have run, for how long in all
        self.ended = 0

    def listen(self, listener: Listener) -> None:
        """Call ``listener`` with "start", "end" or "retry" as they happen, in order."""
        self._listeners.append(listener)

    def feed(self, event: Event) -> None:
        """Take the next event of the authority."""
        task = self.tasks.get(event.name or "")
        if task is None:
            if event.kind in _ENDS and event.name is not None:
                self.iterations[dict(event.details or ()).get("outcome") or _ENDS[event.kind]] += 1
            return
        with self._lock:
            word = self._note(task, event)
        self._tell(word, task)

    def skip(self, ident: str, root: str) -> None:
        """Take note that a task was never submitted, because ``root``, which it needs, was refused."""
        task = self.tasks[ident]
        with self._lock:
            task.phase, task.outcome, task.cause, task.root = ENDED, Outcome.ABORTED, Cause.DEPENDENCY, root
            self.ended += 1
        self._tell("end", task)

    def _tell(self, word: str | None, task: TaskProgress) -> None:
        if word is not None:
            for listener in self._listeners:
                listener(word, task)

    def _note(self, task: TaskProgress, event: Event) -> str | None:
        if event.kind == Kind.TASK_STARTED:
            task.phase, task.started_ns, task.ended_ns = RUNNING, event.time_ns, None
            task.first_started_ns = task.first_started_ns or event.time_ns
            task.attempts += 1
            return "start"
        if event.kind == Kind.TASK_RETRIED:
            task.phase, task.outcome = WAITING, None
            self.ended -= 1
            return "retry"
        if event.kind in _ENDS:
            details: dict[str, Any] = dict(event.details or ())
            task.phase, task.ended_ns = ENDED, event.time_ns
            task.outcome = details.get("outcome") or _ENDS[event.kind]
            task.cause, task.root = details.get("cause"), details.get("root")
            self.ended += 1
            ran = task.ran_ns
            if ran is not None:
                self._busy_ns += ran
                count, total = self._ran.get(task.spec.name, (0, 0))
                self._ran[task.spec.name] = count + 1, total + ran
            return "end"
        return None

    def estimate_ns(self, now_ns: int) -> int | None:
        """Return how long the rest may take, from what has finished; None while nothing has."""
        with self._lock:
            count = sum(number for number, _ in self._ran.values())
            if not count or now_ns <= self.began_ns:
                return None
            mean = sum(total for _, total in self._ran.values()) / count
            busy, left = float(self._busy_ns), 0.0
            for task in self.tasks.values():
                if task.phase == ENDED:
                    continue
                number, total = self._ran.get(task.spec.name, (0, 0))
                known = None if task.spec.duration_ms is None else task.spec.duration_ms * 1e6
                expected = total / number if number else mean if known is None else known
                if task.phase == RUNNING and task.started_ns is not None:
                    busy += now_ns - task.started_ns
                    expected = max(0.0, expected - (now_ns - task.started_ns))
                left += expected
            side_by_side = max(1.0, busy / (now_ns - self.began_ns))
            return round(left / side_by_side)
