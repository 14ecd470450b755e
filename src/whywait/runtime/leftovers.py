"""What is left of authorities when the program ends: it is told, not lost in silence.

The threads of an authority do not hold up the end of the program. An authority that is left by ``with``, or disposed
of, leaves nothing; for every other one with living tasks there is a line in the log.
"""

from __future__ import annotations

import atexit
from typing import Any, Final
from weakref import WeakSet

_NAMED: Final = 5
_LOCK_S: Final = 1.0  # a thread that is stopped in the midst of a command keeps the lock for ever
_cores: Final[WeakSet[Any]] = WeakSet()


def watch(core: Any) -> None:  # noqa: ANN401 - a core, which stands after this
    """Look at this one when the program ends."""
    _cores.add(core)


def forget(core: Any) -> None:  # noqa: ANN401 - as above
    """Do not: it belongs to another process."""
    _cores.discard(core)


def _tell() -> None:
    for core in list(_cores):
        if not core.lock.acquire(timeout=_LOCK_S):
            continue
        try:
            alive = [task.label for scope in core.kernel.scopes.values() for task in scope.tasks.values()]
        finally:
            core.lock.release()
        if alive:
            named = ", ".join(alive[:_NAMED]) + (", ..." if len(alive) > _NAMED else "")
            core.log.warning(
                "the program ends before %d of its tasks have (%s): leave the authority by `with`, or dispose of it",
                len(alive),
                named,
            )


atexit.register(_tell)
