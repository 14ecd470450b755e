"""Periodic tasks in real time: the handle of a periodic, and the handles of its iterations.

The kernel decides about ticks; here are only the things that user code sees of them.
"""

from __future__ import annotations

import logging
from time import monotonic_ns
from typing import TYPE_CHECKING, Any, Final

from whywait.errors import ConfigError
from whywait.handle import Handle
from whywait.kernel.model import Ref
from whywait.raised import shown_error, tell_log, with_message
from whywait.settings import Seconds, duration_ns
from whywait.submission import BodyOptions, prepare

if TYPE_CHECKING:
    from whywait.authority import Authority
    from whywait.kernel.model import Scope as KernelScope
    from whywait.kernel.model import Task
    from whywait.kernel.periodic import Periodic as KernelPeriodic
    from whywait.kernel.snapshot import PeriodicView


class Trigger(Handle[Any]):
    """The handle of one iteration."""

    __slots__ = ("_told",)

    _told: str

    def failed(self, error: BaseException) -> tuple[str, str | None, bool]:
        """Keep what the body raised, and its text: that is the user's to make, so it is not made under the lock."""
        self._told = with_message(error)
        return super().failed(error)

    def note_failure(self) -> None:
        """Settle the error, and say it in the status of the periodic."""
        super().note_failure()
        periodic = self._task.periodic
        if periodic is not None and self._error is not None:
            periodic.last_error = getattr(self, "_told", None) or type(self._error).__name__


def log_failure(handle: Handle[Any]) -> None:
    """Log what an iteration failed with: nobody has its handle, so nobody will look."""
    handle._unseen.seen = True
    error = handle._error
    assert error is not None, "it has failed"
    tell_log(logging.ERROR, "task %s of a periodic failed: %s", handle.id, shown_error(error), error=error)


class PeriodicOptions(BodyOptions, total=False):
    """What a periodic may set; what is left out of the options of its tasks is inherited from its scope.

    ``overlap`` says what happens to a tick while the last iteration is still there: ``"skip"`` it (default),
    ``"queue"`` one, or run up to ``max_parallel`` in ``"parallel"``. ``jitter`` (0 to 0.3 of the interval) moves
    single ticks, never the grid. After ``disable_after`` failures in a row the periodic switches itself off.
    """

    overlap: str
    max_parallel: int
    jitter: float
    enabled: bool
    immediately: bool
    disable_after: int | None


_OWN: Final = tuple(key for key in PeriodicOptions.__annotations__ if key not in BodyOptions.__annotations__)


def add_periodic(
    kernel_scope: KernelScope,
    prototype: Handle[Any],
    args: tuple[Any, ...],
    every: Seconds,
    name: str | None,
    options: PeriodicOptions,
) -> Periodic:
    """Add a periodic whose iterations are copies of a handle that is never submitted itself."""
    authority = prototype._authority
    own: dict[str, Any] = {key: value for key, value in options.items() if key in _OWN}
    of_tasks: Any = {key: value for key, value in options.items() if key not in _OWN}
    request = prepare(authority, kernel_scope, prototype, args, of_tasks, "a periodic", ("every", *_OWN))
    if request.after or request.after_ended:
        raise ConfigError(
            "a periodic has no dependencies and takes no handle as argument: its tasks start by the clock"
        )
    interval_ns = duration_ns("every", every)
    periodic = authority.command(
        lambda now: authority.kernel.add_periodic(
            now,
            kernel_scope,
            interval_ns,
            name,
            priority=request.priority,
            demand=request.demand,
            policy=request.policy,
            make_job=lambda task: _trigger(prototype, task),
            **own,
        )
    )
    return Periodic(authority, periodic)


def _trigger(prototype: Handle[Any], task: Task) -> Trigger:
    """Return the handle of a task that the kernel has just made of a tick."""
    context = prototype._context.copy()  # iterations may overlap, and do not see what others set there
    handle = Trigger(prototype._authority, prototype._fn, prototype._args, context, prototype._engine)
    handle._kwargs = prototype._kwargs
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
        from whywait.kernel.snapshot import PeriodicView

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
