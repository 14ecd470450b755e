"""whywait: a task runtime that runs what is allowed, exactly when allowed, and can always say why a task waits."""

from whywait.authority import Authority
from whywait.context import current
from whywait.engines.command import Command, CommandResult
from whywait.errors import (
    CommandFailed,
    ConfigError,
    DisposeIncomplete,
    DuplicateTask,
    ForeignRef,
    Infeasible,
    InvalidTransition,
    PauseTimeout,
    QueueFull,
    Rejected,
    ScopeClosed,
    ScopeExists,
    StaleRef,
    TaskAborted,
    TaskDropped,
    TaskFailed,
    TaskTimeout,
    UnknownDependency,
    UnknownScope,
    UnknownTask,
    WhywaitError,
)
from whywait.executor import Executor
from whywait.explain import Why
from whywait.handle import Handle
from whywait.kernel.lanes import Aging, Strict
from whywait.kernel.model import Priority, Ref, Retry
from whywait.periodic import Periodic
from whywait.record import Record
from whywait.run_report import Report
from whywait.scope import Scope
from whywait.simulation import Simulation, SimulationResult
from whywait.submission import Call

__all__ = [
    "Aging",
    "Authority",
    "Call",
    "Command",
    "CommandFailed",
    "CommandResult",
    "ConfigError",
    "DisposeIncomplete",
    "DuplicateTask",
    "Executor",
    "ForeignRef",
    "Handle",
    "Infeasible",
    "InvalidTransition",
    "PauseTimeout",
    "Periodic",
    "Priority",
    "QueueFull",
    "Record",
    "Ref",
    "Rejected",
    "Report",
    "Retry",
    "Scope",
    "ScopeClosed",
    "ScopeExists",
    "Simulation",
    "SimulationResult",
    "StaleRef",
    "Strict",
    "TaskAborted",
    "TaskDropped",
    "TaskFailed",
    "TaskTimeout",
    "UnknownDependency",
    "UnknownScope",
    "UnknownTask",
    "Why",
    "WhywaitError",
    "current",
]
