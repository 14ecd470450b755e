"""The lock of an authority, as the core takes it twice for each task.

Interpreted it is an ``RLock``. The compiled core has one of its own, of which taking and giving are no calls of Python:
an ``RLock`` parses arguments each time, which took an eighth of all that a task costs.
"""

from __future__ import annotations

from threading import RLock
from typing import Any, Final

_IS_COMPILED: Final = not __file__.endswith(".py")


class Mutex:
    """A lock that its thread may take again; made by the compiled core alone. What it does is in the ``.pxd``."""

    __slots__ = ("lock",)

    def __init__(self) -> None:
        """Be free."""
        self.lock = make_lock()  # type: ignore[name-defined]
        if not self.lock:
            raise MemoryError

    def __dealloc__(self) -> None:
        """Give the memory back."""
        if self.lock:
            free_lock(self.lock)  # type: ignore[name-defined]

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:  # noqa: FBT001, FBT002 - the standard library's
        """Take the lock, at once or within so many seconds; return whether it was taken."""
        if take_lock(self.lock):  # type: ignore[name-defined]
            return True
        return blocking and wait_for_lock(self.lock, timeout)  # type: ignore[name-defined]

    def release(self) -> None:
        """Give the lock back."""
        if not is_locked_here(self.lock):  # type: ignore[name-defined]
            raise RuntimeError("cannot release un-acquired lock")
        give_lock(self.lock)  # type: ignore[name-defined]

    def __enter__(self) -> bool:
        """Take the lock."""
        return self.acquire()

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        """Give the lock back; with three names no tuple is made, for which there may be no memory."""
        self.release()

    def _is_owned(self) -> bool:
        """Return whether this thread has it."""
        return is_locked_here(self.lock)  # type: ignore[name-defined,no-any-return]


def new_lock() -> Any:
    """Return a free lock."""
    return Mutex() if _IS_COMPILED else RLock()


def take(lock: Any) -> bool:
    """Take a lock if it is free, or this thread's; return whether it was."""
    if _IS_COMPILED and type(lock) is Mutex:
        mutex: Any = lock
        return take_lock(mutex.lock)  # type: ignore[name-defined,no-any-return]
    return lock.acquire(False)  # type: ignore[no-any-return] # noqa: FBT003 - by position it takes half the time


def give(lock: Any) -> None:
    """Give a lock back that this thread has."""
    if _IS_COMPILED and type(lock) is Mutex:
        mutex: Any = lock
        give_lock(mutex.lock)  # type: ignore[name-defined]
    else:
        lock.release()


def is_taken_here(lock: Any) -> bool:
    """Return whether this thread has a lock."""
    return lock._is_owned()  # type: ignore[no-any-return] # noqa: SLF001 - there is no public way to ask
