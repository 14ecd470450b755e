"""What DevTools needs of a run in this process, as protocols: the authority as users know it, and its core."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Protocol

from whywait.kernel.events import RawEvent
from whywait.kernel.kernel import Kernel
from whywait.kernel.limits import Limits
from whywait.kernel.model import Ref
from whywait.kernel.order import Order
from whywait.observe.explain import Why
from whywait.observe.report import Report
from whywait.support.logger import Log
from whywait.task.running import RunningTask


class LiveTask(Protocol):
    """The handle of a task that has not ended."""

    @property
    def state(self) -> str:
        """Where the task stands."""

    @property
    def outcome(self) -> str | None:
        """How the task ended, or None."""

    def cancel(self) -> object:
        """End the task, or ask its body to end."""

    def pause(self) -> object:
        """Pause the task."""

    def resume(self) -> object:
        """Let a paused task go on."""


class LiveScope(Protocol):
    """A scope that is not disposed of."""

    @property
    def state(self) -> str:
        """Where the scope stands."""

    def suspend(self) -> object:
        """Start no more tasks of the scope."""

    def resume(self) -> object:
        """Start its tasks again."""

    def dispose(self) -> object:
        """End its tasks and the scope."""


class RunSettings(Protocol):
    """What the run keeps to."""

    @property
    def limits(self) -> Limits:
        """Slots and the length of the queue."""

    @property
    def order(self) -> Order:
        """The order among priorities."""

    @property
    def backfill(self) -> str:
        """What may start while the first in line waits for the budget."""


class LiveAuthority(Protocol):
    """An authority: what users see of the run, and what may change it."""

    def stats(self) -> dict[str, Any]:
        """Return the counters."""

    def report(self) -> Report:
        """Return where the waiting went so far."""

    def why(self, ref: Ref, /) -> Why:
        """Return why a task waits, or what it does."""

    def get(self, ref: Ref, /) -> LiveTask:
        """Return the handle of a task; StaleRef if the task has ended."""

    def get_scope(self, key: str, /) -> LiveScope:
        """Return the scope of a key; UnknownScope if there is none."""

    def set_periodic_enabled(self, id: str, enabled: bool, /, *, immediately: bool = False) -> object:  # noqa: FBT001 - as the authority has it
        """Switch a periodic on or off."""


class LiveCore(Protocol):
    """The core of an authority, which is read only."""

    @property
    def kernel(self) -> Kernel:
        """The kernel, which is read under the lock."""

    @property
    def lock(self) -> AbstractContextManager[Any]:
        """The lock that guards the kernel."""

    @property
    def log(self) -> Log:
        """The log of the run."""

    @property
    def last_seq(self) -> int:
        """The seq of the latest event; it can be read without the lock."""

    @property
    def token(self) -> int:
        """The number that refs of this run carry."""

    @property
    def settings(self) -> RunSettings:
        """What the run keeps to."""

    def raw_events(self, since: int, limit: int, /) -> tuple[list[RawEvent], int]:
        """Return up to ``limit`` remembered events after ``since``, and how many before them are forgotten."""

    def find(self, ref: Ref, /) -> RunningTask:
        """Return a living task; StaleRef if it has ended."""
