"""Taking the authority's lock in a way that suits the interpreter's own lock.

A thread that sleeps on a lock gets it the moment it is released, but then has to wait for the interpreter, which the
releasing thread keeps: that one soon wants the lock again, finds it taken, and sleeps in turn. From then on every
task costs two switches between threads. A thread that only tries, and lets others run when it has no luck, never
holds the lock without running; so a thread that runs finds it free. Where there is no such lock, the holder runs
meanwhile, and what it does takes less time than a switch between threads: trying is all there is to do.

And taking locks so that an exception out of nowhere (Ctrl-C, a handler of signals that raises) leaves none taken. Until
3.13 no signal came between the step of ``with`` that takes a lock and the block that gives it back. Since 3.14 the step
is a call like any other, and 3.14 looks for signals after it: one in three of those that come to a thread that does
little else leave the lock taken for ever. A method in Python can catch the exception, and no signal comes between its
return and the block.

From 3.12 to 3.14 a conditional jump back (a ``while``, a comprehension with a condition, a ``for`` that ends in an
``if``) is left out of the exception table: a signal that comes with it passes by every ``with``, ``except`` and
``finally`` around it in the same frame, and the lock stays taken. So no block that takes a lock has one; such a loop
stands in a function of its own, whose call is covered. tests/support/test_locks.py holds to it.
"""

from __future__ import annotations

import sys
from threading import RLock
from time import sleep
from typing import Final, Protocol

from whywait.errors import WhywaitError

_HAS_GIL: Final = getattr(sys, "_is_gil_enabled", lambda: True)()
TRIES: Final = 200 if _HAS_GIL else 500  # then it sleeps after all: the holder may itself be waiting for a processor


class Lock(Protocol):
    """What is needed of a lock."""

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:  # noqa: FBT001, FBT002 - the standard library's
        """Take it."""
        ...


def wait_for(lock: Lock) -> None:
    """Take a lock that has just been found taken."""
    for _ in range(TRIES):
        if _HAS_GIL:
            sleep(0)
        if lock.acquire(False):  # noqa: FBT003 - by position it takes half the time
            return
    lock.acquire()


if sys.version_info < (3, 14):
    SafeLock = RLock
else:
    from _thread import RLock as _RLock

    class SafeLock(_RLock):
        """A lock that a thread may take again, and that no signal leaves taken; tests/support/test_locks.py."""

        def __enter__(self) -> bool:
            try:
                return self.acquire()
            except BaseException:
                try:  # noqa: SIM105 - the first call: no other exception comes before it
                    self.release()
                except BaseException:  # noqa: BLE001, S110 - it was not taken yet; or another one, and the first is raised
                    pass
                raise


class LeftBehind:
    """Stands for the lock in a fork of the program: taking it raises, because the authority is not there."""

    def _refuse(self, *_: object) -> bool:
        raise WhywaitError("this authority belongs to the process that made it, not to its fork: make another one here")

    acquire = release = __enter__ = __exit__ = _refuse

    def _is_owned(self) -> bool:
        return False
