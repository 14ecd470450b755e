"""whywait: a task runtime that runs what is allowed, exactly when allowed, and can always say why a task waits."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from whywait.authority import Authority
from whywait.context import current
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
from whywait.handle import Handle
from whywait.kernel.lanes import Aging, Strict
from whywait.kernel.model import Priority, Ref, Retry
from whywait.periodic import Periodic
from whywait.scope import Scope
from whywait.submission import Call

if TYPE_CHECKING:
    from whywait.engines.command import Command, CommandResult
    from whywait.executor import Executor
    from whywait.explain import Why
    from whywait.record import Record
    from whywait.run_report import Report
    from whywait.simulation import Simulation, SimulationResult

# Loaded when first asked for: not every program needs them, and each takes a while.
_LATER = {
    "Command": "whywait.engines.command",
    "CommandResult": "whywait.engines.command",
    "Executor": "whywait.executor",
    "Record": "whywait.record",
    "Report": "whywait.run_report",
    "Simulation": "whywait.simulation",
    "SimulationResult": "whywait.simulation",
    "Why": "whywait.explain",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401 - what the module has under the name
    if name not in _LATER:
        raise AttributeError(f"module 'whywait' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_LATER[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER})


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
