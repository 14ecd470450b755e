"""What a workflow file means: tasks, periodics and scopes, checked and expanded, ready to be run or simulated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, Self, TypeVar

from whywait.engines.registry import EngineName
from whywait.kernel.limits import MEASURED, Demand, OnError, Priority, make_demand
from whywait.options import DEMAND
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
class _Spec:
    """What tasks and periodics have in common; ``options`` are those of the runtime that the file sets."""

    id: str
    body: Body
    options: Mapping[str, Any] = field(default_factory=dict)  # by the names that whywait.options keeps them by
    scope: str | None = None
    duration_ms: int | None = None

    @property
    def demand(self) -> Demand:
        """What it uses while it runs; without what the history has to say."""
        asked = {key: self.options[key] for key in DEMAND if key in self.options}
        if isinstance(asked.get(MEASURED), Learned):
            del asked[MEASURED]
        return make_demand(**asked)

    @property
    def learned(self) -> Learned | None:
        """Its demand of memory, if the history says that."""
        ram = self.options.get(MEASURED)
        return ram if isinstance(ram, Learned) else None

    def with_options(self, **options: Any) -> Self:  # noqa: ANN401 - those of the runtime
        """Return the same with other values of some options."""
        return replace(self, options={**self.options, **options})


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSpec(_Spec):
    """One task, after expansion; ``name`` is the table it came from."""

    name: str
    after: tuple[str, ...] = ()
    after_ended: tuple[str, ...] = ()

    @property
    def priority(self) -> int:
        """Its priority."""
        priority: int = self.options.get("priority", Priority.NORMAL)
        return priority

    @property
    def needs(self) -> tuple[str, ...]:
        """All tasks that come before it, in either way."""
        return tuple(dict.fromkeys((*self.after, *self.after_ended)))


@dataclass(frozen=True, slots=True, kw_only=True)
class PeriodicSpec(_Spec):
    """Something that runs again and again beside the tasks."""

    @property
    def every_ns(self) -> int:
        """The time from tick to tick."""
        every_ns: int = self.options["every_ns"]
        return every_ns


Spec = TypeVar("Spec", bound=_Spec)


class Change(Protocol):
    """Makes another task of a task, and another periodic of a periodic."""

    def __call__(self, spec: Spec, /) -> Spec:
        """Return the changed one."""


@dataclass(frozen=True, slots=True)
class ScopeSpec:
    """A scope of the file; ``options`` as above."""

    key: str
    parent: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


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

    def mapped(self, change: Change) -> Self:
        """Return the workflow with each task and each periodic changed."""
        return replace(self, tasks=tuple(map(change, self.tasks)), periodics=tuple(map(change, self.periodics)))
