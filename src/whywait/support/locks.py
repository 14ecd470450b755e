"""Taking the authority's lock in a way that suits the interpreter's own lock.

A thread that sleeps on a lock gets it the moment it is released, but then has to wait for the interpreter, which the
releasing thread keeps: that one soon wants the lock again, finds it taken, and sleeps in turn. From then on every
task costs two switches between threads. A thread that only tries, and lets others run when it has no luck, never
holds the lock without running; so a thread that runs finds it free.

And taking locks so that an exception out of nowhere (Ctrl-C, a handler of signals that raises) leaves none taken. Until
3.13 no signal came between the step of ``with`` that takes a lock and the block that gives it back. Since 3.14 the step
is a call like any other, and 3.14 looks for signals after it: one in three of those that come to a thread that does
little else leave the lock taken for ever. A method in Python can catch the exception, and no signal comes between its
return and the block.
"""

from __future__ import annotations

import sys
from threading import RLock
from time import sleep
from typing import Final, Protocol

from whywait.errors import WhywaitError

TRIES: Final = 200  # then it sleeps after all: the holder may itself be waiting for a processor


class Lock(Protocol):
    """What is needed of a lock."""

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:  # noqa: FBT001, FBT002 - the standard library's
        """Take it."""
        ...


def wait_for(lock: Lock) -> None:
    """Take a lock that has just been found taken."""
    for _ in range(TRIES):
        sleep(0)
        if lock.acquire(blocking=False):
            return
    lock.acquire()


if sys.version_info < (3, 14):
    SafeLock = RLock
else:
    from _thread import RLock as _RLock

    class SafeLock(_RLock):
        """A lock that a thread may take again, and that no signal leaves taken; tests/support/test_locks.py."""

        def __enter__(self) -> bool:
            depth = self._recursion_count()
            try:
                return self.acquire()
            except BaseException:
                is_taken = True
                while is_taken:  # however many exceptions come: the first one is raised
                    try:
                        if self._recursion_count() > depth:
                            self.release()
                        is_taken = False
                    except BaseException:  # noqa: BLE001, S110
                        pass
                raise


class LeftBehind:
    """Stands for the lock in a fork of the program: taking it raises, because the authority is not there."""

    def _refuse(self, *_: object) -> bool:
        raise WhywaitError("this authority belongs to the process that made it, not to its fork: make another one here")

    acquire = release = __enter__ = __exit__ = _refuse

    def _is_owned(self) -> bool:
        return False
