"""How far a run has come: what each task of the file is doing, from the events of its authority."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from threading import RLock
from typing import Final

from whywait.kernel.events import Event, Kind
from whywait.kernel.state import Cause, Outcome
from whywait.observe.fold import ENDS, Attempt, Fold
from whywait.workflow.specs import TaskSpec

Listener = Callable[[str, "TaskProgress"], object]  # what happened, and to which task

_NEVER_ACCEPTED: Final = 0  # the number of an attempt that no kernel has seen


class TaskProgress:
    """What one task of the file has done so far."""

    def __init__(self, spec: TaskSpec) -> None:
        """Begin with a task that waits."""
        self.spec = spec
        self.attempts = 0  # that have started
        self.first_started_ns: int | None = None
        self.latest = Attempt(_NEVER_ACCEPTED, spec.id, "", 0)

    @property
    def succeeded(self) -> bool:
        """Whether it has ended well."""
        return self.latest.outcome == Outcome.SUCCESS


class Progress:
    """Follows the tasks of a workflow; what periodics do is counted only."""

    def __init__(self, tasks: Iterable[TaskSpec]) -> None:
        """Begin with tasks that all wait."""
        self.tasks = {spec.id: TaskProgress(spec) for spec in tasks}
        self.iterations: Counter[str] = Counter()  # of periodics, by how they ended
        self.began_ns = 0
        self.ended = 0
        self._fold: Fold[Attempt] = Fold(Attempt)
        self._lock = RLock()
        self._listeners: list[Listener] = []
        self._busy_ns = 0
        self._ran: dict[str, tuple[int, int]] = {}  # name of the table -> how many have run, for how long in all

    def listen(self, listener: Listener) -> None:
        """Call ``listener`` with "start", "end" or "retry" as they happen, in order."""
        self._listeners.append(listener)

    def feed(self, event: Event) -> None:
        """Take the next event of the authority."""
        with self._lock:
            attempt = self._fold.feed(event)
            word = _WORDS.get(event.kind)
            if attempt is None or word is None:
                return
            task = self.tasks.get(attempt.id)
            if task is None:
                if attempt.outcome is not None and event.name is not None:
                    self.iterations[attempt.outcome] += 1
                return
            self._note(task, attempt, word)
        self._tell(word, task)

    def skip(self, ident: str, root: str) -> None:
        """Take note that a task was never submitted, because ``root``, which it needs, was refused."""
        task = self.tasks[ident]
        with self._lock:
            latest = task.latest
            latest.outcome, latest.cause, latest.root = Outcome.ABORTED, Cause.DEPENDENCY, root
            self.ended += 1
        self._tell("end", task)

    def _tell(self, word: str, task: TaskProgress) -> None:
        for listener in self._listeners:
            listener(word, task)

    def _note(self, task: TaskProgress, attempt: Attempt, word: str) -> None:
        task.latest = attempt
        if word == "start":
            task.first_started_ns = task.first_started_ns or attempt.started_ns
            task.attempts += 1
        elif word == "retry":
            self.ended -= 1
        else:
            self.ended += 1
            if attempt.ran_ns is not None:
                self._busy_ns += attempt.ran_ns
                count, total = self._ran.get(task.spec.name, (0, 0))
                self._ran[task.spec.name] = count + 1, total + attempt.ran_ns

    def estimate_ns(self, now_ns: int) -> int | None:
        """Return how long the rest may take, from what has finished; None while nothing has."""
        with self._lock:
            return self._estimate_ns(now_ns)

    def _estimate_ns(self, now_ns: int) -> int | None:
        count = sum(number for number, _ in self._ran.values())
        if not count or now_ns <= self.began_ns:
            return None
        mean = sum(total for _, total in self._ran.values()) / count
        busy, left = float(self._busy_ns), 0.0
        for task in self.tasks.values():
            if not task.latest.alive:
                continue
            number, total = self._ran.get(task.spec.name, (0, 0))
            known = None if task.spec.duration_ms is None else task.spec.duration_ms * 1e6
            expected = total / number if number else mean if known is None else known
            if task.latest.started_ns is not None:
                busy += now_ns - task.latest.started_ns
                expected = max(0.0, expected - (now_ns - task.latest.started_ns))
            left += expected
        side_by_side = max(1.0, busy / (now_ns - self.began_ns))
        return round(left / side_by_side)


_WORDS: Final = {Kind.TASK_STARTED: "start", Kind.TASK_RETRIED: "retry", **dict.fromkeys(ENDS, "end")}
