"""Demands of memory that the history gives: put in their place before a workflow is run or simulated."""

from __future__ import annotations

from whywait.errors import ConfigError
from whywait.observe.history import History
from whywait.runtime.remember import learned_rams
from whywait.runtime.settings import UNSET, Settings
from whywait.support.learned import Learned
from whywait.workflow.model import PeriodicSpec, Spec, TaskSpec, WorkflowSpec


def with_learned(workflow: WorkflowSpec, history: History | None) -> WorkflowSpec:
    """Return the workflow with amounts for all that is learned; ConfigError, naming the task, where nothing is."""
    try:
        known = learned_rams(history, _learned(workflow))
    except ConfigError as error:
        raise ConfigError(f"{workflow.source}: {error}") from None

    def settled(spec: Spec) -> Spec:
        return spec if spec.learned is None else spec.with_options(ram=known[spec.id])

    return workflow.mapped(settled)


def with_own_history(workflow: WorkflowSpec) -> WorkflowSpec:
    """Do the same with the history that a run of the workflow would have."""
    if not _learned(workflow):
        return workflow
    path = Settings(history=UNSET if workflow.history is None else workflow.history).history
    return with_learned(workflow, None if path is None else History(path))


def _learned(workflow: WorkflowSpec) -> dict[str, Learned]:
    """Return what the tasks and periodics ask the history for, by their ids."""
    specs: tuple[TaskSpec | PeriodicSpec, ...] = (*workflow.tasks, *workflow.periodics)
    return {spec.id: spec.learned for spec in specs if spec.learned is not None}
