"""Workflow files: read, checked and expanded here, then run, planned or drawn."""

from whywait.support.problems import Problem, WorkflowError
from whywait.workflow.read import load
from whywait.workflow.specs import Body, PeriodicSpec, ScopeSpec, TaskSpec, WorkflowSpec

__all__ = ["Body", "PeriodicSpec", "Problem", "ScopeSpec", "TaskSpec", "WorkflowError", "WorkflowSpec", "load"]
