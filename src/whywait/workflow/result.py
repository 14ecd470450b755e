"""What a run of a workflow came to: for Python, as JSON-ready data, and as the text that ends ``whywait run``."""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path, PurePath
from textwrap import wrap
from typing import TYPE_CHECKING, Any, Final

from whywait.errors import CommandFailed, TaskAborted, TaskDropped, TaskTimeout, WhywaitError
from whywait.kernel.events import Event
from whywait.kernel.state import Cause, Outcome
from whywait.observe.report_text import WIDTH
from whywait.runtime.handle import Handle
from whywait.support.units import NS_PER_MS, format_ms, in_ms, printable
from whywait.support.usage import Usage
from whywait.support.words import counted
from whywait.workflow.honest import Suggestion, Used, suggestions, waste
from whywait.workflow.one_run import Run
from whywait.workflow.task_progress import TaskProgress

if TYPE_CHECKING:
    from whywait.observe.report import Report

_TAIL: Final = 10  # lines of output that are shown of a failure
_FAILURES: Final = 20  # as many are told in full
_MESSAGE: Final = 300


_INDIRECT: Final = (Cause.DEPENDENCY, Cause.SCOPE_DISPOSED)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskResult:
    """How one task of a workflow ended."""

    id: str
    outcome: str | None  # None: it was still running when the run was given up
    cause: str | None  # the code beside the outcome
    root: str | None  # id of the task whose failure ended this one
    attempts: int  # that have started
    started_ms: float | None  # since the run began, of the first attempt
    ended_ms: float | None
    ran_ms: float | None  # how long the last attempt took
    exit_code: int | None  # of a command, as a shell has it: 137 for one that SIGKILL ended
    exit_signal: str | None  # the name of the signal that ended a command
    usage: Usage | None  # what a command or a process task used in its last attempt
    error: BaseException | None  # why it has no value
    output: tuple[str, ...]  # the last lines that it wrote, as far as they were caught
    log: Path | None  # all that it wrote, if logs are kept
    handle: Handle[Any] | None  # None: it was never submitted

    @property
    def value(self) -> Any:  # noqa: ANN401 - the function's own
        """What its function returned, or the CommandResult of its command; raises its error if it has none."""
        if self.error is not None:
            raise self.error
        return None if self.handle is None else self.handle.result(0)

    @property
    def devices(self) -> dict[str, list[str]]:
        """The units of devices that its last attempt had, by kind."""
        return {} if self.handle is None else self.handle.devices

    @property
    def succeeded(self) -> bool:
        """Whether it has ended well."""
        return self.outcome == Outcome.SUCCESS

    def to_dict(self) -> dict[str, Any]:
        """Return it as a JSON-ready dict, without its value."""
        row: dict[str, Any] = {
            "outcome": self._outcome,
            "cause": self.cause,
            "attempts": self.attempts,
            "started_ms": self.started_ms,
            "ended_ms": self.ended_ms,
        }
        if self.devices:
            row["devices"] = self.devices
        if self.exit_code is not None:
            row |= {"exit_code": self.exit_code, "exit_signal": self.exit_signal}
        if self.usage is not None:
            row |= {"peak_ram": self.usage.peak_ram, "cpu_s": self.usage.cpu_s, "measured": self.usage.how}
        if self.root is not None:
            row["root"] = self.root
        if self.error is not None:
            row["error"] = _message(self.error)
            row["output"] = list(self.output)
        if self.log is not None:
            row["log"] = str(self.log)
        return row

    @property
    def _outcome(self) -> str:
        return self.outcome or "pending"

    def lines(self) -> Iterator[str]:
        """Yield the lines that tell of it as a failure."""
        tries = f" in {self.attempts} attempts" if self.attempts > 1 else ""
        ran = f" after {format_ms(self.ran_ms)}" if self.ran_ms is not None else ""
        told = _message(self.error) if self.error is not None else ""
        yield f"  {printable(self.id)}  {self._outcome} ({self.cause}){tries}{ran}{f': {told}' if told else ''}"
        for line in self.output:
            yield f"    │ {line}"
        if self.log is not None:
            yield f"    all of it: {self.log}"


class WorkflowResult:
    """What a run came to: ``tasks`` by id, ``succeeded``, the ``report``, the ``events``; its text tells all of it."""

    def __init__(self, run: Run, *, interrupted: bool = False) -> None:
        """Look at a run that is over; ``interrupted``: it was asked to stop."""
        errors = run.errors()
        self.name = run.workflow.name
        self.interrupted = interrupted
        self.wall_ms = _ms(run.ended_ns - run.began_ns)
        self.tasks = {ident: _task(run, task, errors) for ident, task in run.progress.tasks.items()}
        self.iterations = dict(run.progress.iterations)
        self._workflow = run.workflow
        self.survivors = run.survivors  # ids of tasks on threads that could not be ended
        self.report: Report = run.authority.report()
        self.events: list[Event] = run.authority.events()

    @property
    def succeeded(self) -> bool:
        """Whether every task has succeeded."""
        return all(task.succeeded for task in self.tasks.values())

    def raise_if_failed(self) -> None:
        """Raise the errors of the tasks that failed by themselves, as an ExceptionGroup; do nothing if none did."""
        failed = [task for task in self.tasks.values() if task.error is not None and task.cause not in _INDIRECT]
        if failed:
            named = _names(failed)
            raise BaseExceptionGroup(f"{self.name}: {named} failed", [task.error for task in failed if task.error])

    @property
    def used(self) -> dict[str, Used]:
        """What the tasks took that have run, by id."""
        return {
            task.id: Used(task.ran_ms, None if task.usage is None else task.usage.peak_ram, task.succeeded)
            for task in self.tasks.values()
            if task.ran_ms is not None
        }

    def suggestions(self) -> list[Suggestion]:
        """Return what the tables of the file should ask for, by the memory that their tasks have used."""
        return suggestions(self._workflow, self.used)

    @property
    def waste(self) -> str | None:
        """A sentence on what honest demands of memory would have saved, if that is worth a sentence."""
        return waste(self._workflow, self.used)

    def to_dict(self) -> dict[str, Any]:
        """Return the whole result as a JSON-ready dict: what ``whywait run --json`` prints."""
        tasks = {ident: task.to_dict() for ident, task in self.tasks.items()}
        return {
            "workflow": self.name,
            "result": "interrupted" if self.interrupted else "success" if self.succeeded else "failed",
            "wall_ms": self.wall_ms,
            "outcomes": dict(Counter(row["outcome"] for row in tasks.values())),
            "tasks": tasks,
            "iterations": self.iterations,
            "survivors": list(self.survivors),
            "suggestions": [asdict(each) for each in self.suggestions()],
            "report": self.report.to_dict(),
        }

    def __str__(self) -> str:
        """Tell what happened, where the waiting went, and the failures with the tail of their output."""
        report = str(self.report).rstrip("\n")
        told = [f"{printable(self.name)}: {report}"]
        waste = self.waste
        if waste is not None:
            told.append("\n".join(wrap(waste, WIDTH)))
        return "\n\n".join([*told, *self.failures()]) + "\n"

    def __repr__(self) -> str:
        """Show how many tasks ended in which way."""
        counts = Counter(task.outcome or "pending" for task in self.tasks.values())
        return f"<WorkflowResult {self.name}: {', '.join(f'{count} {word}' for word, count in counts.items())}>"

    def failures(self) -> list[str]:
        """Return a text for what failed, one for what went down with it, one for what an interruption ended."""
        told: list[str] = []
        ended = [task for task in self.tasks.values() if task.outcome is not None and not task.succeeded]
        own = [task for task in ended if task.cause not in _INDIRECT]
        if own:
            lines = [f"Failed: {counted(len(own), 'task')}"]
            for task in own[:_FAILURES]:
                lines += task.lines()
            if len(own) > _FAILURES:
                lines.append(f"  and {len(own) - _FAILURES} more")
            told.append("\n".join(lines))
        brought_down = [task for task in ended if task.cause == Cause.DEPENDENCY]
        if brought_down:
            told.append(f"Not run because of these: {_names(brought_down)}")
        aborted = [task for task in ended if task.cause == Cause.SCOPE_DISPOSED]
        word = "Interrupted" if self.interrupted else "Aborted"
        for group, when in (
            ([task for task in aborted if task.started_ms is not None], "while running"),
            ([task for task in aborted if task.started_ms is None], "before it could start"),
        ):
            if group:
                told.append(f"{word} {when}: {_names(group)}")
        if self.survivors:
            named = ", ".join(map(printable, self.survivors))
            told.append(f"Still running, a thread cannot be ended by force: {named}. They end with this program.")
        return told


def _task(run: Run, task: TaskProgress, errors: dict[str, BaseException]) -> TaskResult:
    latest, ident = task.latest, task.spec.id
    return TaskResult(
        id=ident,
        outcome=latest.outcome,
        cause=None if latest.alive else latest.cause,
        root=latest.root,
        attempts=task.attempts,
        started_ms=_since(run, task.first_started_ns),
        ended_ms=_since(run, latest.ended_ns),
        ran_ms=None if latest.ran_ns is None else in_ms(latest.ran_ns),
        exit_code=latest.exit_code,
        exit_signal=latest.exit_signal,
        usage=None if latest.measured is None else Usage((latest.cpu_ms or 0) / 1000, latest.peak_ram, latest.measured),
        error=errors.get(ident),
        output=tuple(run.outputs.lines(ident, _TAIL)),
        log=run.outputs.path_of(ident),
        handle=run.handles.get(ident),
    )


def _message(error: BaseException) -> str:
    if isinstance(error, CommandFailed):
        text = str(error).removesuffix(f": {error.stderr}")  # its output is shown below
    elif isinstance(error, TaskTimeout | TaskDropped | TaskAborted):
        text = str(error).partition("): ")[2]  # outcome and cause have been told
    else:
        text = str(error) if isinstance(error, WhywaitError) else f"{type(error).__name__}: {error}{_place(error)}"
    text = printable(text.strip().replace("\n", " "))
    return text if len(text) <= _MESSAGE else f"{text[:_MESSAGE]}…"


def _place(error: BaseException) -> str:
    """Return where the error was raised: file and line of the innermost frame."""
    frames = traceback.extract_tb(error.__traceback__)
    return f" ({PurePath(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""


def _since(run: Run, time_ns: int | None) -> float | None:
    return None if time_ns is None else _ms(time_ns - run.began_ns)


def _ms(ns: int) -> float:
    return round(ns / NS_PER_MS, 3)


def _names(tasks: list[TaskResult]) -> str:
    named = ", ".join(printable(task.id) for task in tasks[:_TAIL])
    return named + (f" and {len(tasks) - _TAIL} more" if len(tasks) > _TAIL else "")
