"""What a run came to: as JSON-ready data, and as the text that ends ``whywait run``."""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any, Final

from whywait.errors import CommandFailed, TaskAborted, TaskDropped, TaskTimeout, WhywaitError
from whywait.kernel.state import Cause
from whywait.units import NS_PER_MS, format_ms, printable
from whywait.workflow.progress import TaskProgress
from whywait.workflow.run import Run

_TAIL: Final = 10  # lines of output that are shown of a failure
_FAILURES: Final = 20  # as many are told in full
_MESSAGE: Final = 300


def succeeded(run: Run) -> bool:
    """Return whether every task of the file has succeeded."""
    return all(task.succeeded for task in run.progress.tasks.values())


def to_dict(run: Run, *, interrupted: bool = False) -> dict[str, Any]:
    """Return the whole result as a JSON-ready dict."""
    errors = run.errors()
    tasks = {}
    for ident, task in run.progress.tasks.items():
        row: dict[str, Any] = {
            "outcome": _outcome(task),
            "cause": task.cause,
            "attempts": task.attempts,
            "started_ms": _since(run, task.first_started_ns),
            "ended_ms": _since(run, task.ended_ns),
        }
        if task.root is not None:
            row["root"] = task.root
        if ident in errors:
            row["error"] = _message(errors[ident])
            row["output"] = run.outputs.lines(ident, _TAIL)
        log = run.outputs.path_of(ident)
        if log is not None:
            row["log"] = str(log)
        tasks[ident] = row
    return {
        "workflow": run.workflow.name,
        "result": "interrupted" if interrupted else "success" if succeeded(run) else "failed",
        "wall_ms": round((run.ended_ns - run.began_ns) / NS_PER_MS, 3),
        "outcomes": dict(Counter(row["outcome"] for row in tasks.values())),
        "tasks": tasks,
        "iterations": {outcome.lower(): count for outcome, count in run.progress.iterations.items()},
        "survivors": list(run.survivors),
        "report": run.authority.report().to_dict(),
    }


def to_text(run: Run, *, interrupted: bool = False) -> str:
    """Return the report: what happened, where the waiting went, the failures with the tail of their output."""
    report = str(run.authority.report()).rstrip("\n")
    blocks = [f"{printable(run.workflow.name)}: {report}", *failures(run, interrupted=interrupted)]
    return "\n\n".join(blocks) + "\n"


def failures(run: Run, *, interrupted: bool = False) -> list[str]:
    """Return a block of text for what failed, one for what went down with it, one for what an interruption ended."""
    told: list[str] = []
    ended = [task for task in run.progress.tasks.values() if not task.succeeded]
    own = [task for task in ended if task.outcome is not None and task.cause not in _INDIRECT]
    errors = run.errors()
    if own:
        lines = [f"Failed: {_count(len(own))}"]
        for task in own[:_FAILURES]:
            lines += _failure(run, task, errors.get(task.spec.id))
        if len(own) > _FAILURES:
            lines.append(f"  and {len(own) - _FAILURES} more")
        told.append("\n".join(lines))
    brought_down = [task for task in ended if task.cause == Cause.DEPENDENCY]
    if brought_down:
        told.append(f"Not run because of these: {_names(brought_down)}")
    aborted = [task for task in ended if task.cause == Cause.SCOPE_DISPOSED]
    if aborted:
        running = [task for task in aborted if task.started_ns is not None]
        waiting = [task for task in aborted if task.started_ns is None]
        word = "Interrupted" if interrupted else "Aborted"
        if running:
            told.append(f"{word} while running: {_names(running)}")
        if waiting:
            told.append(f"{word} before it could start: {_names(waiting)}")
    if run.survivors:
        named = ", ".join(run.survivors)
        told.append(f"Still running, a thread cannot be ended by force: {named}. They end with this program.")
    return told


_INDIRECT: Final = (Cause.DEPENDENCY, Cause.SCOPE_DISPOSED)


def _failure(run: Run, task: TaskProgress, error: BaseException | None) -> Iterator[str]:
    tries = f" in {task.attempts} attempts" if task.attempts > 1 else ""
    ran = f" after {format_ms(task.ran_ns / NS_PER_MS)}" if task.ran_ns is not None else ""
    told = _message(error) if error is not None else ""
    why = f": {told}" if told else ""
    yield f"  {printable(task.spec.id)}  {_outcome(task)} ({task.cause}){tries}{ran}{why}"
    for line in run.outputs.lines(task.spec.id, _TAIL):
        yield f"    │ {line}"
    log = run.outputs.path_of(task.spec.id)
    if log is not None:
        yield f"    all of it: {log}"


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


def _outcome(task: TaskProgress) -> str:
    return (task.outcome or "pending").lower()


def _since(run: Run, time_ns: int | None) -> float | None:
    return None if time_ns is None else round((time_ns - run.began_ns) / NS_PER_MS, 3)


def _names(tasks: list[TaskProgress]) -> str:
    named = ", ".join(printable(task.spec.id) for task in tasks[:_TAIL])
    return named + (f" and {len(tasks) - _TAIL} more" if len(tasks) > _TAIL else "")


def _count(number: int) -> str:
    return "1 task" if number == 1 else f"{number} tasks"
