"""The contract of an engine.

An engine is told to ``start`` a handle whose task holds its slot already, and reports its real end once, through
``Authority.ended``. Until then it may be asked to ``abort`` (let the body know), to ``kill`` (end it by force, where
that is possible), to ``pause`` and to ``resume``. Engines know nothing of priorities, budgets, retries or
dependencies. Every method returns quickly and is called without the authority's lock.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Final

from whywait.kernel.state import Cause, Outcome

if TYPE_CHECKING:
    import asyncio

    from whywait.authority import Authority
    from whywait.handle import Handle
    from whywait.kernel.reasons import Placement


Ended = tuple[str, str | None, bool]  # outcome, cause, may be retried
SUCCEEDED: Final[Ended] = (Outcome.SUCCESS, None, True)
NEVER_RAN: Final[Ended] = (Outcome.ERROR, Cause.EXCEPTION, False)  # it was aborted first; the kernel knows better


class Engine(ABC):
    """Carries out tasks."""

    name: ClassVar[str]
    can_kill: ClassVar[bool]  # a body that ignores the signal can be ended by force

    runs_coroutines: ClassVar[bool] = False  # takes coroutine functions itself

    authority: Authority

    def attach(self, authority: Authority) -> None:
        """Belong to an authority from now on."""
        self.authority = authority

    @abstractmethod
    def start(self, handle: Handle[Any]) -> None:
        """Begin to carry out a task."""

    def start_all(self, handles: list[Handle[Any]]) -> None:
        """Begin to carry out tasks; a handle leaves the list when it is taken over."""
        while handles:
            self.start(handles.pop(0))

    def look_again(self, count: int) -> None:
        """See to it that so many tasks, which may have been taken over by a start that was broken off, are begun."""

    @abstractmethod
    def abort(self, handle: Handle[Any]) -> None:
        """Let the body know that it should end; the handle's signal is set already."""

    def kill(self, handle: Handle[Any]) -> None:
        """End the body by force."""

    def pause(self, handle: Handle[Any]) -> None:
        """Let the body know that it should park at its next checkpoint."""

    def resume(self, handle: Handle[Any]) -> None:
        """Let a parked body go on."""

    def placement(self, handle: Handle[Any]) -> Placement | None:  # noqa: ARG002 - for those that know
        """Return where a task is that this engine was told to start; None: in this process, or as good as."""
        return None

    def use_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        """Run coroutines, if any, on this loop."""

    @abstractmethod
    def close(self) -> None:
        """Release threads, processes and whatever else; nothing runs any more."""
