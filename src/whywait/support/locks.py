"""Taking the authority's lock in a way that suits the interpreter's own lock.

A thread that sleeps on a lock gets it the moment it is released, but then has to wait for the interpreter, which the
releasing thread keeps: that one soon wants the lock again, finds it taken, and sleeps in turn. From then on every
task costs two switches between threads. A thread that only tries, and lets others run when it has no luck, never
holds the lock without running; so a thread that runs finds it free. Where there is no such lock, the holder runs
meanwhile, and what it does takes less time than a switch between threads: trying is all there is to do.
"""

from __future__ import annotations

import sys
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


class LeftBehind:
    """Stands for the lock in a fork of the program: taking it raises, because the authority is not there."""

    def _refuse(self, *_: object) -> bool:
        raise WhywaitError("this authority belongs to the process that made it, not to its fork: make another one here")

    acquire = release = __enter__ = __exit__ = _refuse

    def _is_owned(self) -> bool:
        return False
