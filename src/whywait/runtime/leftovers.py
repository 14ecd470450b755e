"""What is left of authorities when the program ends: it is told, not lost in silence.

The threads of an authority do not hold up the end of the program. An authority that is left by ``with``, or disposed
of, leaves nothing but bodies that ignore their signal on threads; for every one with living tasks there is a line in
the log that says what to do about them.
"""

from __future__ import annotations

import atexit
from typing import Any, Final
from weakref import WeakSet

from whywait.kernel.model import Task
from whywait.kernel.state import TaskState

_NAMED: Final = 5
_LOCK_S: Final = 1.0  # a thread that is stopped in the midst of a command keeps the lock for ever
_STUCK: Final = (
    '; a thread cannot be ended from outside: have the body call current().checkpoint(), or use engine="process"'
)
_cores: Final[WeakSet[Any]] = WeakSet()


def watch(core: Any) -> None:
    """Look at this one when the program ends."""
    _cores.add(core)


def forget(core: Any) -> None:
    """Do not: it belongs to another process."""
    _cores.discard(core)


def _tell() -> None:
    for core in list(_cores):
        if not core.lock.acquire(timeout=_LOCK_S):
            continue
        try:
            alive = [] if core.broken else core.kernel.living()
        finally:
            core.lock.release()
        _warn(core, alive)


def _warn(core: Any, alive: list[Task]) -> None:
    """Log which tasks are left: those that were asked to end, and those that were not."""
    stuck = [task for task in alive if task.state == TaskState.DISPOSING]
    others = [task for task in alive if task.state != TaskState.DISPOSING]
    if stuck:
        what = "the program ends while %d of its tasks still run, though they were asked to end (%s)%s"
        core.log.warning(what, len(stuck), _some(stuck), remedy(stuck))
    if others:
        what = "the program ends before %d of its tasks have (%s): leave the authority by `with`, or dispose of it"
        core.log.warning(what, len(others), _some(others))


def _some(tasks: list[Task]) -> str:
    return ", ".join(task.label for task in tasks[:_NAMED]) + (", ..." if len(tasks) > _NAMED else "")


def remedy(stuck: list[Task]) -> str:
    """Return what to do about bodies that run on after they were asked to end; empty if they can be killed."""
    executions: list[Any] = [*stuck]
    return "" if all(each.engine.can_kill for each in executions) else _STUCK


atexit.register(_tell)
