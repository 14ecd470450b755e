"""What a scope takes tasks by: its record in the core, and the terms that combinations of options mean there."""

from __future__ import annotations

from typing import Any

from whywait.engines.base import Engine
from whywait.kernel.limits import Demand, Policy, Priority
from whywait.kernel.model import Lane
from whywait.kernel.model import Scope as KernelScope


class Terms:
    """What a combination of options means: the same for every task that a scope takes with it."""

    __slots__ = ("demand", "engine", "kinds", "lane", "policy", "priority", "slot")

    def __init__(
        self,
        priority: int = Priority.NORMAL,
        demand: Demand = (),
        policy: Policy | None = None,
        engine: Engine | None = None,
        slot: bool = True,
    ) -> None:
        """Keep options that were checked."""
        self.priority = int(priority)
        self.demand = demand
        self.policy = policy
        self.engine = engine
        self.slot = slot
        self.kinds: tuple[type, ...] = ()  # the types of the options, in their order
        self.lane: Lane | None = None  # of the task that was taken last, so that it need not be looked for


class ScopeRecord:
    """What the core keeps of a living scope."""

    __slots__ = (
        "coroutine_engine",
        "engine",
        "errors",
        "grace_s",
        "kernel_scope",
        "last",
        "plain_engine",
        "plain_terms",
        "scope",
        "terms",
    )

    kernel_scope: KernelScope  # set as soon as the kernel knows the scope

    def __init__(self, engine: Engine, grace_s: float) -> None:
        """Keep the settings of a scope."""
        self.engine = engine  # for tasks that name none
        self.plain_engine = engine if type(engine).here is Engine.here else None  # for functions, from any thread
        self.coroutine_engine: Engine | None = None  # for coroutine functions, looked up once
        self.grace_s = grace_s
        self.errors: list[BaseException] = []  # those that leaving the block raises
        self.scope: Any = None  # what `get_scope` returns
        self.plain_terms = Terms()  # of tasks without options
        self.terms: dict[Any, Terms] = {}  # what combinations of options mean, see submission.py
        self.last: tuple[dict[str, Any], Terms] | None = None  # the one that was asked for last
