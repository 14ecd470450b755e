"""Periodic tasks in real time: the handle of a periodic, and the handles of its iterations.

The kernel decides about ticks; here are only the things that user code sees of them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextvars import copy_context
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

from whywait.errors import ConfigError
from whywait.handle import Handle
from whywait.kernel.model import Ref
from whywait.kernel.snapshot import PeriodicView

if TYPE_CHECKING:
    from whywait.authority import Authority
    from whywait.engines.base import Engine
    from whywait.kernel.model import Task
    from whywait.kernel.periodic import Periodic as KernelPeriodic


log = logging.getLogger("whywait")


class Trigger(Handle[Any]):
    """The handle of one iteration."""

    __slots__ = ()

    def note_failure(self) -> None:
        """Settle the error, and say it in the status of the periodic."""
        super().note_failure()
        periodic = self._task.periodic
        if periodic is not None and self._error is not None:
            periodic.last_error = f"{type(self._error).__name__}: {self._error}"


def log_failure(handle: Handle[Any]) -> None:
    """Log what an iteration failed with: nobody has its handle, so nobody will look."""
    handle._unseen.seen = True
    log.error("task %s of a periodic failed: %r", handle.id, handle._error, exc_info=handle._error)


class Triggers:
    """Makes the handle of each iteration when the kernel ticks."""

    def __init__(
        self,
        authority: Authority,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any] | None,
        engine: Engine,
    ) -> None:
        """Note what to call, and the context it is called in: the present one."""
        if any(isinstance(value, Handle) for value in (*args, *(kwargs or {}).values())):
            raise ConfigError("a periodic takes no handle as argument: submit a task that depends on it instead")
        self._authority = authority
        self._fn = fn
        self._args = args
        self._kwargs = dict(kwargs) if kwargs else None
        self._engine = engine
        self._context = copy_context()

    def make(self, task: Task) -> Trigger:
        """Return the handle of a task that the kernel has just made of a tick."""
        handle = Trigger(self._authority, self._fn, self._args, self._context.copy(), self._engine)
        handle._kwargs = self._kwargs
        handle._task = task
        return handle


class Periodic:
    """A periodic task of a scope, for the life of that scope."""

    __slots__ = ("_authority", "_periodic")

    def __init__(self, authority: Authority, periodic: KernelPeriodic) -> None:
        """Made by ``Scope.periodic`` only."""
        self._authority = authority
        self._periodic = periodic

    @property
    def id(self) -> str:
        """The id it was given, or a generated one; unique in its scope."""
        return self._periodic.name

    @property
    def runtime_id(self) -> str:
        """Scope and id; what ``authority.set_periodic_enabled`` takes wherever the id alone is ambiguous."""
        return f"{self._periodic.scope.key}/{self._periodic.name}"

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
        return Ref(periodic.last_number, periodic.scope.key, self._authority.token)

    def status(self) -> PeriodicView:
        """Return where it stands now; times are those of ``time.monotonic_ns``, as in events."""
        with self._authority.lock:
            return PeriodicView(**self._periodic.status())

    def set_enabled(self, enabled: bool, *, immediately: bool = False) -> None:  # noqa: FBT001 - the setting itself
        """Switch it on (from its next tick, or now if ``immediately``) or off; from any thread."""
        authority = self._authority
        authority.command(
            lambda now: authority.kernel.set_periodic_enabled(now, self._periodic, enabled, immediately=immediately)
        )

    def __repr__(self) -> str:
        """Show what it is and when it ticks next."""
        status = self.status()
        if status.next_run_at is None:
            return f"<Periodic {status.runtime_id} off>"
        return f"<Periodic {status.runtime_id} next in {(status.next_run_at - monotonic_ns()) / 1e9:.3f} s>"
