"""whywait: a task runtime that runs what is allowed, exactly when allowed, and can always say why a task waits."""

from importlib import import_module

from whywait.support.core import compiled

TYPE_CHECKING = False  # as `typing` has it, which takes longer to load than all else that `whywait add` needs

# isort: off
# fmt: off
if TYPE_CHECKING:
    from typing import Any

    from whywait.engines.base import Engine
    from whywait.engines.command.engine import Command, CommandResult
    from whywait.engines.process.engine import ProcessEngine
    from whywait.errors import (
        AuthorityBroken, CommandFailed, ConfigError, DisposeIncomplete, DuplicateTask, ForeignRef, Infeasible,
        InvalidTransition, MachineError, PauseTimeout, QueueFull, Rejected, ScopeClosed, ScopeExists, StaleRef,
        TaskAborted, TaskDropped, TaskFailed, TaskTimeout, UnknownDependency, UnknownScope, UnknownTask, WhywaitError,
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

__all__ = [
    "Aging", "Authority", "AuthorityBroken", "Call", "Command", "CommandFailed", "CommandResult", "ConfigError",
    "DisposeIncomplete", "DuplicateTask", "Engine", "Executor", "ForeignRef", "Handle", "History", "Infeasible",
    "InvalidTransition", "Lazy", "MachineError", "Outcome", "PauseTimeout", "Periodic", "Priority", "ProcessEngine",
    "QueueFull", "Record", "Ref", "Rejected", "Report", "Retry", "Scope", "ScopeClosed", "ScopeExists", "Settings",
    "Simulation", "SimulationResult", "StaleRef", "Strict", "TaskAborted", "TaskDropped", "TaskFailed", "TaskTimeout",
    "UnknownDependency", "UnknownScope", "UnknownTask", "Usage", "Waited", "Why", "WhywaitError", "Workflow",
    "WorkflowError", "WorkflowResult", "as_completed", "compiled", "current", "gather", "gather_async", "progress",
    "wait", "wait_async",
]

# Each module and its public names; it is loaded when one of them is first asked for: no program needs all of them.
_NAMES = {
    "whywait.engines.base": "Engine",
    "whywait.engines.command.engine": "Command CommandResult",
    "whywait.engines.process.engine": "ProcessEngine",
    "whywait.errors": (
        "AuthorityBroken CommandFailed ConfigError DisposeIncomplete DuplicateTask ForeignRef Infeasible "
        "InvalidTransition MachineError PauseTimeout QueueFull Rejected ScopeClosed ScopeExists StaleRef "
        "TaskAborted TaskDropped TaskFailed TaskTimeout UnknownDependency UnknownScope UnknownTask "
        "WhywaitError"
    ),
    "whywait.kernel.limits": "Priority Retry",
    "whywait.kernel.model": "Ref",
    "whywait.kernel.order": "Aging Strict",
    "whywait.kernel.state": "Outcome",
    "whywait.observe.explain": "Why",
    "whywait.observe.history": "History",
    "whywait.observe.record": "Record",
    "whywait.observe.report": "Report",
    "whywait.runtime.authority": "Authority",
    "whywait.runtime.executor": "Executor",
    "whywait.runtime.handle": "Handle",
    "whywait.runtime.lazy": "Lazy",
    "whywait.runtime.periodic": "Periodic",
    "whywait.runtime.progress": "progress",
    "whywait.runtime.scope": "Scope",
    "whywait.runtime.settings": "Settings",
    "whywait.runtime.submission": "Call",
    "whywait.runtime.together": "Waited as_completed gather gather_async wait wait_async",
    "whywait.simulation.simulation": "Simulation SimulationResult",
    "whywait.support.problems": "WorkflowError",
    "whywait.support.usage": "Usage",
    "whywait.task.context": "current",
    "whywait.workflow.result": "WorkflowResult",
    "whywait.workflow.workflow": "Workflow",
}
# fmt: on
_PLACES = {name: module for module, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> "Any":  # noqa: ANN401 - what the module has under the name
    if name not in _PLACES:
        raise AttributeError(f"module 'whywait' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_PLACES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_PLACES})
