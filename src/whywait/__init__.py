"""whywait: a task runtime that runs what is allowed, exactly when allowed, and can always say why a task waits."""

from importlib import import_module

from whywait.support.core import compiled

TYPE_CHECKING = False  # as `typing` has it, which takes longer to load than all else that `whywait add` needs

if TYPE_CHECKING:
    from typing import Any

    from whywait.engines.base import Engine
    from whywait.engines.command.engine import Command, CommandResult
    from whywait.engines.process.engine import ProcessEngine
    from whywait.errors import (
        AuthorityBroken,
        CommandFailed,
        ConfigError,
        DisposeIncomplete,
        DuplicateTask,
        ForeignRef,
        Infeasible,
        InvalidTransition,
        MachineError,
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
    from whywait.kernel.limits import Priority, Retry
    from whywait.kernel.model import Ref
    from whywait.kernel.order import Aging, Strict
    from whywait.kernel.state import Outcome
    from whywait.observe.explain import Why
    from whywait.observe.history import History
    from whywait.observe.record import Record
    from whywait.observe.report import Report
    from whywait.runtime.authority import Authority
    from whywait.runtime.executor import Executor
    from whywait.runtime.handle import Handle
    from whywait.runtime.lazy import Lazy
    from whywait.runtime.periodic import Periodic
    from whywait.runtime.progress import progress
    from whywait.runtime.scope import Scope
    from whywait.runtime.settings import Settings
    from whywait.runtime.submission import Call
    from whywait.runtime.together import Waited, as_completed, gather, gather_async, wait, wait_async
    from whywait.simulation.simulation import Simulation, SimulationResult
    from whywait.support.problems import WorkflowError
    from whywait.support.usage import Usage
    from whywait.task.context import current
    from whywait.workflow.result import WorkflowResult
    from whywait.workflow.workflow import Workflow

# Each public name and its module, which is loaded when the name is first asked for: no program needs all of them.
_PLACES = {
    "Aging": "whywait.kernel.order",
    "Authority": "whywait.runtime.authority",
    "AuthorityBroken": "whywait.errors",
    "Call": "whywait.runtime.submission",
    "Command": "whywait.engines.command.engine",
    "CommandFailed": "whywait.errors",
    "CommandResult": "whywait.engines.command.engine",
    "ConfigError": "whywait.errors",
    "DisposeIncomplete": "whywait.errors",
    "DuplicateTask": "whywait.errors",
    "Engine": "whywait.engines.base",
    "Executor": "whywait.runtime.executor",
    "ForeignRef": "whywait.errors",
    "Handle": "whywait.runtime.handle",
    "History": "whywait.observe.history",
    "Infeasible": "whywait.errors",
    "InvalidTransition": "whywait.errors",
    "Lazy": "whywait.runtime.lazy",
    "MachineError": "whywait.errors",
    "Outcome": "whywait.kernel.state",
    "PauseTimeout": "whywait.errors",
    "Periodic": "whywait.runtime.periodic",
    "Priority": "whywait.kernel.limits",
    "ProcessEngine": "whywait.engines.process.engine",
    "QueueFull": "whywait.errors",
    "Record": "whywait.observe.record",
    "Ref": "whywait.kernel.model",
    "Rejected": "whywait.errors",
    "Report": "whywait.observe.report",
    "Retry": "whywait.kernel.limits",
    "Scope": "whywait.runtime.scope",
    "ScopeClosed": "whywait.errors",
    "ScopeExists": "whywait.errors",
    "Settings": "whywait.runtime.settings",
    "Simulation": "whywait.simulation.simulation",
    "SimulationResult": "whywait.simulation.simulation",
    "StaleRef": "whywait.errors",
    "Strict": "whywait.kernel.order",
    "TaskAborted": "whywait.errors",
    "TaskDropped": "whywait.errors",
    "TaskFailed": "whywait.errors",
    "TaskTimeout": "whywait.errors",
    "UnknownDependency": "whywait.errors",
    "UnknownScope": "whywait.errors",
    "UnknownTask": "whywait.errors",
    "Waited": "whywait.runtime.together",
    "Usage": "whywait.support.usage",
    "Why": "whywait.observe.explain",
    "WhywaitError": "whywait.errors",
    "as_completed": "whywait.runtime.together",
    "current": "whywait.task.context",
    "gather": "whywait.runtime.together",
    "gather_async": "whywait.runtime.together",
    "progress": "whywait.runtime.progress",
    "wait": "whywait.runtime.together",
    "wait_async": "whywait.runtime.together",
    "Workflow": "whywait.workflow.workflow",
    "WorkflowError": "whywait.support.problems",
    "WorkflowResult": "whywait.workflow.result",
}


def __getattr__(name: str) -> "Any":  # noqa: ANN401 - what the module has under the name
    if name not in _PLACES:
        raise AttributeError(f"module 'whywait' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_PLACES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_PLACES})


__all__ = [
    "Aging",
    "Authority",
    "AuthorityBroken",
    "Call",
    "Command",
    "CommandFailed",
    "CommandResult",
    "ConfigError",
    "DisposeIncomplete",
    "DuplicateTask",
    "Engine",
    "Executor",
    "ForeignRef",
    "Handle",
    "History",
    "Infeasible",
    "InvalidTransition",
    "Lazy",
    "MachineError",
    "Outcome",
    "PauseTimeout",
    "Periodic",
    "Priority",
    "ProcessEngine",
    "QueueFull",
    "Record",
    "Ref",
    "Rejected",
    "Report",
    "Retry",
    "Scope",
    "ScopeClosed",
    "ScopeExists",
    "Settings",
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
    "Usage",
    "Waited",
    "Why",
    "WhywaitError",
    "Workflow",
    "WorkflowError",
    "WorkflowResult",
    "as_completed",
    "compiled",
    "current",
    "gather",
    "gather_async",
    "progress",
    "wait",
    "wait_async",
]
