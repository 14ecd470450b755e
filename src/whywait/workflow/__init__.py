"""Workflow files: read, checked and expanded here, then run, planned or drawn."""

from whywait.support.problems import Problem, WorkflowError
from whywait.workflow.model import Body, PeriodicSpec, ScopeSpec, TaskSpec, WorkflowSpec
from whywait.workflow.read import load

__all__ = ["Body", "PeriodicSpec", "Problem", "ScopeSpec", "TaskSpec", "WorkflowError", "WorkflowSpec", "load"]
