"""The files that a run may leave: a trace, its events, and a record of it that can be simulated."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from whywait.authority import Authority
from whywait.bridges.chrome import write_trace
from whywait.bridges.jsonl import JsonLines
from whywait.errors import ConfigError
from whywait.units import NS_PER_MS
from whywait.workflow.plan import to_workload
from whywait.workflow.progress import TaskProgress
from whywait.workflow.run import Hook, Run


class Wanted(NamedTuple):
    """Where to write what; None: not at all."""

    trace: Path | None = None
    events: Path | None = None
    record: Path | None = None


def file_hooks(wanted: Wanted) -> list[Hook]:
    """Return what to attach to the authority; a file that cannot be written is refused before anything runs."""
    for option, path in (("--trace", wanted.trace), ("--record", wanted.record)):
        if path is not None:
            _writing(option, path, lambda path=path: path.write_bytes(b""))  # type: ignore[misc]
    if wanted.events is None:
        return []
    path = wanted.events

    def follow(authority: Authority) -> Callable[[], object]:
        writer = _writing("--events", path, lambda: JsonLines(authority, path))
        return writer.close  # type: ignore[no-any-return]

    return [follow]


def write_files(wanted: Wanted, run: Run) -> None:
    """Write what is written when the run is over."""
    if wanted.trace is not None:
        trace = wanted.trace
        _writing("--trace", trace, lambda: write_trace(trace, run.authority.events()))
    if wanted.record is not None:
        record = wanted.record
        _writing("--record", record, lambda: record.write_text(json.dumps(make_record(run), indent=1) + "\n"))


def make_record(run: Run) -> dict[str, Any]:
    """Return the run as a workload: its tasks with the durations and failures that they really had."""
    progress = run.progress.tasks
    ran = {ident: task for ident, task in progress.items() if task.ran_ns is not None}
    tasks = tuple(
        replace(spec, duration_ms=_duration_ms(ran[spec.id]) if spec.id in ran else spec.duration_ms or 1)
        for spec in run.workflow.tasks
    )
    workload = to_workload(replace(run.workflow, tasks=tasks))
    limits = run.authority.settings.limits
    workload["config"]["slots"] = limits.slots
    for row in workload["tasks"]:
        task = progress[row["id"]]
        if task.outcome == "ERROR":
            row["outcome"] = "error"
        elif task.attempts > 1:
            row["fails"] = task.attempts - 1
    return workload


def _duration_ms(task: TaskProgress) -> int:
    return max(1, round((task.ran_ns or 0) / NS_PER_MS))


def _writing(option: str, path: Path, write: Callable[[], Any]) -> Any:  # noqa: ANN401  what it opened
    try:
        return write()
    except OSError as error:
        raise ConfigError(f"{option} {path}: cannot be written: {error.strerror or error}") from error
