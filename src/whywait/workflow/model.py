"""What a workflow file means: tasks, periodics and scopes, checked and expanded, ready to be run or simulated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from whywait.engines.registry import EngineName
from whywait.kernel.limits import Demand, OnError, Priority
from whywait.kernel.periodic import Overlap
from whywait.support.learned import Learned


@dataclass(frozen=True, slots=True)
class Body:
    """What a task does: a command or a Python function."""

    run: str | tuple[str, ...] | None = None
    call: str | None = None
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str | None = None
    engine: EngineName | None = None


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """One task, after expansion; ``name`` is the table it came from."""

    id: str
    name: str
    body: Body
    after: tuple[str, ...] = ()
    after_ended: tuple[str, ...] = ()
    priority: int = Priority.NORMAL
    demand: Demand = ()
    learned: Learned | None = None  # its demand of memory, if the history says that
    scope: str | None = None
    policy: Mapping[str, Any] = field(default_factory=dict)  # timeout_ns, retry, max_wait_ns as far as set
    slot: bool = True
    duration_ms: int | None = None

    @property
    def needs(self) -> tuple[str, ...]:
        """All tasks that come before it, in either way."""
        return tuple(dict.fromkeys((*self.after, *self.after_ended)))


@dataclass(frozen=True, slots=True)
class PeriodicSpec:
    """Something that runs again and again beside the tasks."""

    id: str
    body: Body
    every_ns: int
    overlap: Overlap = "skip"
    max_parallel: int = 1
    jitter: float = 0.0
    enabled: bool = True
    immediately: bool = False
    disable_after: int | None = None
    priority: int = Priority.NORMAL
    demand: Demand = ()
    learned: Learned | None = None  # its demand of memory, if the history says that
    scope: str | None = None
    timeout_ns: int | None = None
    slot: bool = False
    duration_ms: int | None = None


@dataclass(frozen=True, slots=True)
class ScopeSpec:
    """A scope of the file."""

    key: str
    parent: str | None = None
    on_error: OnError = "continue"
    limits: Mapping[str, Any] = field(
        default_factory=dict
    )  # slots, max_spawn, queue_limit, overflow, when_busy, when_blocked
    policy: Mapping[str, Any] = field(default_factory=dict)
    grace_ns: int | None = None


@dataclass(frozen=True, slots=True)
class WorkflowSpec:
    """A whole file; tasks stand after everything they need, otherwise in file order."""

    name: str
    source: str
    folder: Path
    tasks: tuple[TaskSpec, ...]
    periodics: tuple[PeriodicSpec, ...] = ()
    scopes: tuple[ScopeSpec, ...] = ()  # parents before children
    on_error: OnError = "continue"
    has_slots: bool = False  # whether the file (or the command line) says how many
    slots: int | None = None
    budget: Mapping[str, Any] = field(default_factory=dict)
    scheduler: Mapping[str, Any] = field(default_factory=dict)
    history: str | None = None  # the path of its file, if the file (or the command line) names one
