"""The lease engine: the body of a task runs elsewhere, in the process of a client that has the permission.

The body of such a task is a :class:`Holder`, which stands for the client. How a lease goes:

1. ``start`` tells the holder that the permission is granted. From here on the slot and the budget are taken.
2. An abort, a kill, a pause or a resume is passed on to the holder as a wish.
3. The holder calls :meth:`LeaseEngine.ended` once, when everything that ran under the permission has really ended, and
   :meth:`LeaseEngine.parked` when it has stopped because of a pause.
"""

from __future__ import annotations

from typing import ClassVar, Literal, Protocol

from whywait.engines.base import NEVER_RAN, Ended, Engine, EngineTask

Wish = Literal["abort", "kill", "pause", "resume"]


class Holder(Protocol):
    """What stands for the client of a lease. Each method returns at once."""

    def granted(self, execution: EngineTask, /) -> None:
        """Take the permission."""

    def asked(self, wish: Wish, /) -> None:
        """Pass on what is wished of what runs."""


class LeaseEngine(Engine):
    """Permits, and waits for the news that the permission is given back."""

    name: ClassVar[str] = "lease"
    can_kill: ClassVar[bool] = True
    shares_memory: ClassVar[bool] = False

    def start(self, execution: EngineTask) -> None:
        """Tell the holder that it has the permission."""
        if execution.attention and execution.aborted:
            self.runtime.report(execution, NEVER_RAN)
        else:
            execution.fn.granted(execution)

    def abort(self, execution: EngineTask) -> None:
        """Ask the holder to end."""
        self._ask(execution, "abort")

    def kill(self, execution: EngineTask) -> None:
        """Ask the holder to end everything by force."""
        self._ask(execution, "kill")

    def pause(self, execution: EngineTask) -> None:
        """Ask the holder to stop."""
        self._ask(execution, "pause")

    def resume(self, execution: EngineTask) -> None:
        """Let the holder go on."""
        self._ask(execution, "resume")

    def parked(self, execution: EngineTask) -> None:
        """Report that what runs under the permission has stopped."""
        self.runtime.parked(execution)

    def stopped(self, execution: EngineTask, *, is_stopped: bool) -> None:
        """Report that the system has stopped the holder's process, or that it goes on; the task may wait or run."""
        self.runtime.stopped(execution, is_stopped)

    def ended(self, execution: EngineTask, outcome: Ended) -> None:
        """Report that the permission is given back: nothing runs under it any more, or it was never taken."""
        self.runtime.report(execution, outcome)

    def close(self) -> None:
        """Release nothing: the engine has neither threads nor processes."""

    def _ask(self, execution: EngineTask, wish: Wish) -> None:
        holder: Holder | None = execution.fn  # None: it has ended this moment
        if holder is not None:
            holder.asked(wish)
