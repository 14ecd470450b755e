"""Periodic tasks in real time: the handle of a periodic, and the executions of its iterations.

The kernel decides about ticks; here are only the things that user code sees of them.
"""

from __future__ import annotations

import os
from time import monotonic_ns
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from whywait.engines.base import Ended
from whywait.errors import ConfigError, printable
from whywait.kernel.durations import NS, Seconds, in_seconds
from whywait.kernel.model import Ref
from whywait.kernel.periodic import Overlap
from whywait.kernel.periodic import Periodic as KernelPeriodic
from whywait.options import REPEAT, SUBMIT, table
from whywait.runtime.execution import Execution, set_up
from whywait.runtime.handle import Handle
from whywait.runtime.option_types import PeriodicOptions
from whywait.runtime.services import CoreServices
from whywait.runtime.submission import prepare
from whywait.runtime.terms import ScopeRecord
from whywait.support.raised import with_message

if TYPE_CHECKING:
    from datetime import datetime


class Iteration(Handle[Any]):
    """One iteration of a periodic."""

    periodic_id: str | None  # as it was given
    told: str | None = None  # the text of its error

    @property
    def given_name(self) -> str | None:
        """The id that its periodic was given."""
        return self.periodic_id

    def failed(self, error: BaseException) -> Ended:
        """Keep what the body raised, and its text: that is the user's to make, so it is not made under the lock."""
        self.told = with_message(error)
        return super().failed(error)

    def note_failure(self) -> None:
        """Make the error final, and say it in the status of the periodic."""
        super().note_failure()
        if self.periodic is not None and self.error is not None:
            self.periodic.last_error = self.told or type(self.error).__name__


_OWN: Final = tuple(key for key in table(REPEAT) if key not in table(SUBMIT))


def add_periodic(
    core: CoreServices,
    record: ScopeRecord,
    prototype: Execution,
    every: Seconds,
    name: str | None,
    options: PeriodicOptions,
) -> Periodic:
    """Add a periodic; its iterations are copies of an execution that is never submitted itself."""
    own: dict[str, Any] = {key: value for key, value in options.items() if key in _OWN}
    of_tasks: Any = {"slot": False, **{key: value for key, value in options.items() if key not in _OWN}}
    if isinstance(name, str):
        of_tasks["id"] = name
    terms, _, after, after_ended = prepare(core, record, prototype, of_tasks, "a periodic", ("every", *_OWN))
    if after or after_ended:
        raise ConfigError(
            "a periodic has no dependencies and takes no handle as argument: its tasks start by the clock"
        )
    interval_ns = round(in_seconds("every", every) * NS)
    periodic = core.command(
        lambda now: core.kernel.add_periodic(
            now,
            record.kernel_scope,
            interval_ns,
            name,
            priority=terms.priority,
            demand=terms.demand,
            policy=terms.policy,
            slot=terms.slot,
            make_task=lambda: _iteration(prototype, name),
            **own,
        )
    )
    return Periodic(core, periodic)


def _iteration(prototype: Execution, name: str | None) -> Iteration:
    """Return the task that the kernel makes of a tick."""
    assert prototype.context is not None, "it was copied from the caller"
    context = prototype.context.copy()  # iterations may overlap, and do not see what others set there
    iteration = Iteration()
    set_up(iteration, prototype.core, prototype.fn, prototype.args, context, prototype.engine)
    iteration.periodic_id = name
    if prototype.kwargs is not None:
        iteration.kwargs = prototype.kwargs
    return iteration


class PeriodicStatus(NamedTuple):
    """Where a periodic stands: the state of this run, which is never stored."""

    runtime_id: str  # another one in every run
    id: str  # scope/id, as ``authority.set_periodic_enabled`` takes it
    task_ref: Ref | None  # of the iteration that started last
    enabled: bool
    interval_ms: float
    last_run_at: datetime | None  # by the wall clock, in local time
    running_since: datetime | None  # when the oldest iteration that runs has started; None: none runs
    next_run_at: datetime | None
    run_count: int
    skipped: int  # ticks that were dropped
    missed: int  # ticks that a stall swallowed
    consecutive_failures: int
    last_error: str | None
    overlap: Overlap
    priority: int
    slot: bool


class Periodic:
    """A periodic task of a scope, for the life of that scope."""

    __slots__ = ("_core", "_periodic", "runtime_id")

    runtime_id: str  # another one in every run

    def __init__(self, core: CoreServices, periodic: KernelPeriodic) -> None:
        """Made by ``Scope.periodic`` only."""
        self._core = core
        self._periodic = periodic
        self.runtime_id = os.urandom(8).hex()

    @property
    def id(self) -> str:
        """The id it was given, or a generated one; unique in its scope."""
        return self._periodic.name

    @property
    def enabled(self) -> bool:
        """Whether ticks come."""
        return self._periodic.enabled

    @property
    def ref(self) -> Ref | None:
        """The identity of the iteration that started last."""
        periodic = self._periodic
        if periodic.last_number is None:
            return None
        return Ref(periodic.last_number, periodic.scope.key, self._core.token)

    def status(self) -> PeriodicStatus:
        """Return where it stands now."""
        from datetime import datetime, timedelta

        from whywait.kernel.snapshot import periodic_view

        with self._core.lock:
            told = periodic_view(self._periodic)._asdict()
            now_ns, now = monotonic_ns(), datetime.now().astimezone()
        for name in ("last_run_at", "running_since", "next_run_at"):
            at_ns = told[name]
            told[name] = None if at_ns is None else now + timedelta(microseconds=(at_ns - now_ns) / 1000)
        return PeriodicStatus(**{**told, "runtime_id": self.runtime_id, "task_ref": self.ref})

    def set_enabled(self, enabled: bool, *, immediately: bool = False) -> None:
        """Switch it on (from its next tick, or now if ``immediately``) or off; from any thread."""
        core = self._core
        core.command(
            lambda now: core.kernel.set_periodic_enabled(now, self._periodic, enabled, immediately=immediately)
        )

    def __repr__(self) -> str:
        """Show what it is and when it ticks next."""
        with self._core.lock:
            name = printable(f"{self._periodic.scope.key}/{self.id}")
            at_ns = self._periodic.status()["next_run_at"]
        told = "off" if at_ns is None else f"next in {(at_ns - monotonic_ns()) / 1e9:.3f} s"
        return f"<Periodic {name} {told}>"
