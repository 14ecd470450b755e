"""Honest demands: what the tasks of a file should ask for, by what they used, and what that would have saved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil
from typing import Final

from whywait.errors import ConfigError
from whywait.kernel.limits import MEASURED
from whywait.simulation.simulation import Simulation
from whywait.support.units import format_ms, format_size, printable
from whywait.support.words import counted
from whywait.workflow.plan import to_workload
from whywait.workflow.specs import TaskSpec, WorkflowSpec

MARGIN: Final = 1.1  # on top of the highest peak
_WORTH_TELLING: Final = 0.95  # of the time that the run would have taken as it was asked for
_STEPS: Final = 20  # a demand is rounded up to so many steps of a power of ten
_TASKS_AT_MOST: Final = 20_000  # more are not simulated just for a sentence


@dataclass(frozen=True, slots=True)
class Used:
    """What one task of a run took."""

    ran_ms: float
    peak_ram: int | None
    succeeded: bool


@dataclass(frozen=True, slots=True)
class Suggestion:
    """What the tasks of one table of the file should ask for."""

    name: str
    tasks: int
    asked: int  # bytes; 0: nothing
    peak: int  # the highest that one of them used
    ram: int  # what they should ask for


def suggestions(workflow: WorkflowSpec, used: Mapping[str, Used]) -> list[Suggestion]:
    """Return a demand of memory for each table of the file of which a task was measured, in the order of the file."""
    rows: dict[str, list[tuple[int, int]]] = {}
    for task in workflow.tasks:
        use = used.get(task.id)
        if use is not None and use.peak_ram:
            rows.setdefault(task.name, []).append((task.options.get(MEASURED, 0), use.peak_ram))
    return [
        Suggestion(name, len(each), max(asked for asked, _ in each), peak, rounded_up(peak * MARGIN))
        for name, each in rows.items()
        for peak in [max(peak for _, peak in each)]
    ]


def rounded_up(size: float) -> int:
    """Return a size that is a little larger and reads well: 2,310,000,000 becomes 2,400,000,000."""
    step = 1_000_000
    while step * _STEPS * 10 < size:
        step *= 10
    while step * _STEPS < size:
        step *= 2
    return ceil(size / step) * step


def suggestion_lines(found: list[Suggestion]) -> list[str]:
    """Return the demands as lines of a workflow file, each with its reason."""
    if not found:
        return ['# nothing was measured: only commands and tasks with engine = "process" are']
    lines = []
    for each in found:
        asked = f"asked for {format_size(each.asked)}" if each.asked else "asked for none"
        tasks = f" of {each.tasks} tasks" if each.tasks > 1 else ""
        lines += [
            f"[task.{_key(each.name)}]",
            f'ram = "{_size(each.ram)}"  # peak{tasks}: {format_size(each.peak)}; {asked}',
            "",
        ]
    return lines[:-1]


def waste(workflow: WorkflowSpec, used: Mapping[str, Used]) -> str | None:
    """Return a sentence on what honest demands would have saved, by running both in virtual time; None: nothing."""
    asking = [task for task in workflow.tasks if task.options.get(MEASURED)]
    measured = [task for task in asking if used.get(task.id) is not None and used[task.id].peak_ram]
    if not measured or workflow.budget.get(MEASURED) is None or len(workflow.tasks) > _TASKS_AT_MOST:
        return None
    asked = sum(task.options[MEASURED] for task in measured)
    peaks = sum(used[task.id].peak_ram or 0 for task in measured)
    if peaks >= asked:
        return None
    try:
        as_it_was = _makespan_ms(workflow, used, honest=False)
        honest = _makespan_ms(workflow, used, honest=True)
    except ConfigError:
        return None  # a file that cannot be simulated
    if honest > as_it_was * _WORTH_TELLING:
        return None
    who = counted(len(measured), "task")
    return (
        f"{who} asked for {format_size(asked)} of memory and used {format_size(peaks)} at most: with honest demands "
        f"the run takes {format_ms(honest)} instead of {format_ms(as_it_was)} (simulated; --suggest prints them)"
    )


def _makespan_ms(workflow: WorkflowSpec, used: Mapping[str, Used], *, honest: bool) -> float:
    tasks = tuple(_as_it_ran(task, used.get(task.id), honest=honest) for task in workflow.tasks)
    known = {task.id for task in tasks if task.duration_ms is not None}
    kept = tuple(task for task in tasks if task.id in known and known.issuperset(task.needs))
    result = Simulation(to_workload(replace(workflow, tasks=kept, periodics=()))).run()
    makespan: float = result.summary["makespan_ms"]
    return makespan


def _as_it_ran(task: TaskSpec, use: Used | None, *, honest: bool) -> TaskSpec:
    duration_ms = None if use is None else max(1, round(use.ran_ms))
    options = {key: value for key, value in task.options.items() if key not in ("timeout_ns", "retry")}
    if honest and use is not None and use.peak_ram and options.get(MEASURED):
        options[MEASURED] = rounded_up(use.peak_ram * MARGIN)
    return replace(task, duration_ms=duration_ms, options=options)


def _size(size: int) -> str:
    for unit, name in ((10**9, "GB"), (10**6, "MB")):
        if size >= unit:
            return f"{size / unit:g}{name}"
    return str(size)


def _key(name: str) -> str:
    plain = name.replace("-", "").replace("_", "")
    return name if plain.isascii() and plain.isalnum() else '"' + printable(name).replace('"', '\\"') + '"'
