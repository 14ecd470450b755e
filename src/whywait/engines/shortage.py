"""Starting processes while the system gives too few of them: tasks wait, in their order, until others end.

``Shortage._waiters.lock`` guards the order of those that wait, and is held while the first of them tries again.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import TypeVar

from whywait.engines.base import EngineTask
from whywait.kernel.reasons import Placement
from whywait.support.waiters import Waiters
from whywait.task.surroundings import signal_of
from whywait.trees.tree import AGAIN_S, ALONE_S, SHORTAGES

T = TypeVar("T")


class Shortage:
    """The tasks of an engine for which the system gives no process now."""

    def __init__(self, has_others: Callable[[], object]) -> None:
        """Start without any; ``has_others`` says whether processes run that may make room when they end."""
        self._has_others = has_others
        self._waiters = Waiters()
        self._waiting: dict[EngineTask, str] = {}  # in order; with what the system said
        self._alone_since_s: float | None = None  # the first one is refused, and nothing runs that could make room
        self._is_full = False  # to start another one is of no use until one of the others has ended

    def start(self, execution: EngineTask, make: Callable[[bool], T | None]) -> T:
        """Return what ``make(may_start)`` makes for a task; while the system refuses that, wait until it can be made.

        ``make(False)`` returns a process that is free, or None.

        Raise what the system said if nothing runs that could make room, TaskAborted if the task is to end.
        """
        if not self._waiting:
            try:
                found = make(True)  # noqa: FBT003 - it has one argument
            except OSError as error:
                self._refused(execution, error)
            else:
                assert found is not None, "it may start one"
                return found
        signal = signal_of(execution)
        made: list[T] = []
        try:
            with signal.heard_by(self._waiters.ring):
                while not self._waiters.wait(
                    lambda: self._try(execution, make, made), AGAIN_S, signal.raise_if_aborted
                ):
                    pass
        finally:
            self._waiting.pop(execution, None)
            self._waiters.ring()
        return made[0]

    def wait_for_room(self, execution: EngineTask, said: str) -> None:
        """Have a task wait at its next start until a process is free or has ended: a new one would not get all."""
        with self._waiters.lock:
            self._waiting[execution] = said
            self._is_full = True

    def make_room(self) -> None:
        """Let the first task try again: a process is free, or has ended."""
        self._is_full = False
        if self._waiting:
            self._waiters.ring()

    def placement(self, engine: str, execution: EngineTask) -> Placement | None:
        """Return why a task has no process yet; None if it does not wait for one."""
        said = self._waiting.get(execution)
        return None if said is None else Placement(engine, lacks=said)

    def _try(self, execution: EngineTask, make: Callable[[bool], T | None], made: list[T]) -> bool:
        """Make it if it is this task's turn; return whether it was made. Under the lock."""
        self._waiting.setdefault(execution, next(iter(self._waiting.values()), ""))
        if next(iter(self._waiting)) is not execution:
            return False
        try:
            found = make(not (self._is_full and self._has_others()))
        except OSError as error:
            self._refused(execution, error)
            now = monotonic()
            self._alone_since_s = None if self._has_others() else self._alone_since_s or now
            if self._alone_since_s is not None and now > self._alone_since_s + ALONE_S:
                raise
            return False
        self._alone_since_s = None
        if found is not None:
            made.append(found)
        return found is not None

    def _refused(self, execution: EngineTask, error: OSError) -> None:
        """Let a task wait from now on; raise the error if it means something else than a shortage."""
        if error.errno not in SHORTAGES:
            raise error
        with self._waiters.lock:
            self._waiting[execution] = error.strerror or str(error)
