"""Plans: a part of a workflow, one with the demands that the history gives, and one as a workload to simulate."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from whywait.engines.registry import EngineName
from whywait.errors import ConfigError
from whywait.observe.history import History
from whywait.options import CONFIG, LOAD_PERIODIC, LOAD_SCOPE, LOAD_TASK, in_milliseconds
from whywait.options import kept as options_of
from whywait.runtime.remember import learned_rams
from whywait.runtime.settings import Settings
from whywait.simulation.simulation import Simulation
from whywait.support.devices import AUTO
from whywait.support.gpus import find_gpus
from whywait.support.learned import Learned
from whywait.support.problems import nearest, unknown_name
from whywait.support.units import shown
from whywait.workflow.format import ENGINES
from whywait.workflow.specs import PeriodicSpec, Spec, TaskSpec, WorkflowSpec


def changed(
    workflow: WorkflowSpec, *, only: Iterable[str] = (), engine: str | None = None, keep_going: bool = False
) -> WorkflowSpec:
    """Return the workflow as a run has it: just the tasks of ``only`` and what they need, with these two options.

    ``engine`` is for all functions that name none; commands stay commands. ``keep_going``: a failure ends nothing but
    what needs the task.
    """
    if engine is not None:
        workflow = _with_engine(workflow, engine)
    wanted = list(only)
    if wanted:
        workflow = _select(workflow, wanted)
    if keep_going:
        scopes = tuple(replace(scope, options={**scope.options, "on_error": "continue"}) for scope in workflow.scopes)
        workflow = replace(workflow, on_error="continue", scopes=scopes)
    return workflow


def _select(workflow: WorkflowSpec, only: list[str]) -> WorkflowSpec:
    by_id = {task.id: task for task in workflow.tasks}
    by_name: dict[str, list[str]] = {}
    for task in workflow.tasks:
        by_name.setdefault(task.name, []).append(task.id)
    todo: list[str] = []
    for wanted in only:
        if wanted not in by_name and wanted not in by_id:
            known = dict.fromkeys([*by_name, *by_id])
            raise ConfigError(unknown_name(wanted, f"a task of {workflow.source}", known))
        todo += by_name.get(wanted, [wanted])
    chosen: set[str] = set()
    while todo:
        ident = todo.pop()
        if ident not in chosen:
            chosen.add(ident)
            todo += by_id[ident].needs
    return replace(workflow, tasks=tuple(task for task in workflow.tasks if task.id in chosen))


def _with_engine(workflow: WorkflowSpec, engine: str) -> WorkflowSpec:
    functions: dict[str, EngineName] = {name: name for name in ENGINES if name != "command"}
    if engine not in functions:
        hint = nearest(engine, functions) or f"; there are {', '.join(functions)}"
        raise ConfigError(f"{shown(engine)} is not an engine for functions{hint}")

    def settled(spec: Spec) -> Spec:
        body = spec.body
        if body.call is None or body.engine is not None:
            return spec
        return replace(spec, body=replace(body, engine=functions[engine]))

    return workflow.mapped(settled)


def without_duration(workflow: WorkflowSpec) -> list[str]:
    """Return the ids of tasks that do not say how long they take."""
    return [task.id for task in workflow.tasks if task.duration_ms is None]


def to_workload(workflow: WorkflowSpec) -> dict[str, Any]:
    """Return the workload that stands for the workflow, all tasks submitted at 0; durations must be known."""
    missing = without_duration(workflow)
    if missing:
        some = ", ".join(missing[:5]) + (", …" if len(missing) > 5 else "")  # noqa: PLR2004  enough to begin with
        raise ConfigError(
            f"{workflow.source}: cannot be simulated: no duration is given for {some}; "
            'add duration = "2s" to each task, or once under [defaults]'
        )
    workflow = _with_own_history(workflow)
    workload = {
        "name": workflow.name,
        "config": _config(workflow),
        "tasks": [_task(task) for task in workflow.tasks],
    }
    periodics = [spec for spec in workflow.periodics if spec.duration_ms is not None]
    if periodics:  # they tick until the tasks are done; that they delay these a little is let pass
        until_ms = Simulation(workload).run().summary["makespan_ms"]
        workload["periodics"] = [_periodic(spec, round(until_ms)) for spec in periodics]
    return workload


def with_learned(workflow: WorkflowSpec, history: History | None) -> WorkflowSpec:
    """Return the workflow with amounts for all that is learned; ConfigError, naming the task, where nothing is."""
    try:
        known = learned_rams(history, _learned(workflow))
    except ConfigError as error:
        raise ConfigError(f"{workflow.source}: {error}") from None

    def settled(spec: Spec) -> Spec:
        return spec if spec.learned is None else spec.with_options(ram=known[spec.id])

    return workflow.mapped(settled)


def _with_own_history(workflow: WorkflowSpec) -> WorkflowSpec:
    """Do the same with the history that a run of the workflow would have."""
    if not _learned(workflow):
        return workflow
    path = (Settings() if workflow.history is None else Settings(history=workflow.history)).history
    return with_learned(workflow, None if path is None else History(path))


def _learned(workflow: WorkflowSpec) -> dict[str, Learned]:
    """Return what the tasks and periodics ask the history for, by their ids."""
    specs: tuple[TaskSpec | PeriodicSpec, ...] = (*workflow.tasks, *workflow.periodics)
    return {spec.id: spec.learned for spec in specs if spec.learned is not None}


def levels(workflow: WorkflowSpec) -> list[list[TaskSpec]]:
    """Return the tasks by depth: those that need nothing, those that need only these, and so on."""
    depth: dict[str, int] = {}
    rows: list[list[TaskSpec]] = []
    for task in workflow.tasks:  # everything a task needs stands before it
        level = depth[task.id] = max((depth[each] + 1 for each in task.needs if each in depth), default=0)
        if level == len(rows):
            rows.append([])
        rows[level].append(task)
    return rows


def _config(workflow: WorkflowSpec) -> dict[str, Any]:
    config: dict[str, Any] = {
        "slots": workflow.slots if workflow.has_slots else os.cpu_count() or 1,
        **{key: value for key, value in workflow.budget.items() if value is not None},
        **_known(workflow.scheduler, CONFIG),
        "scopes": {},
    }
    if config.get("gpus") == AUTO:
        config["gpus"] = find_gpus().units
    for scope in workflow.scopes:
        parent = {} if scope.parent is None else {"parent": scope.parent}
        config["scopes"][scope.key] = {**_known(scope.options, LOAD_SCOPE), **parent}
    return config


def _known(options: Mapping[str, Any], place: str) -> dict[str, Any]:
    """Return the options that a workload has at a place, as it writes them; the others change nothing there."""
    kept = options_of(place)
    return in_milliseconds({key: value for key, value in options.items() if key in kept})


def _task(task: TaskSpec) -> dict[str, Any]:
    told = {"id": task.id, "at_ms": 0, "duration_ms": task.duration_ms, **_known(task.options, LOAD_TASK)}
    for key in ("after", "after_ended", "scope"):
        value = getattr(task, key)
        if value:
            told[key] = list(value) if isinstance(value, tuple) else value
    return told


def _periodic(spec: PeriodicSpec, until_ms: int) -> dict[str, Any]:
    own = {"id": spec.id, "duration_ms": spec.duration_ms, "until_ms": until_ms}
    told = {**own, **_known(spec.options, LOAD_PERIODIC)}
    return told if spec.scope is None else {**told, "scope": spec.scope}
