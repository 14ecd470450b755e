"""Taking the authority's lock in a way that suits the interpreter's own lock.

A thread that sleeps on a lock gets it the moment it is released, but then has to wait for the interpreter, which the
releasing thread keeps: that one soon wants the lock again, finds it taken, and sleeps in turn. From then on every
task costs two switches between threads. A thread that only tries, and lets others run when it has no luck, never
holds the lock without running; so a thread that runs finds it free. Where there is no such lock, the holder runs
meanwhile, and what it does takes less time than a switch between threads: trying is all there is to do.

And taking locks so that an exception out of nowhere leaves none taken. ``with`` alone does not see to that:

- Since 3.14 the step that takes the lock is a call like any other, and a signal (Ctrl-C, an alarm whose handler raises)
  that comes right after it finds no block yet to give the lock back.
- From 3.12 to 3.14 a conditional jump back (a ``while``, a comprehension with a condition, a ``for`` that ends in an
  ``if``) is left out of the exception table: a signal that comes with it passes by every ``with``, ``except`` and
  ``finally`` around it in the same frame. Code that takes a lock without ``with`` has none there.
- The step that gives the lock back is one that no signal divides, but its three arguments are put in a tuple: where
  there is no memory for that, the lock stays taken. A method in Python would need none, but a signal may come with its
  first step.
- A tracer or profiler that raises may do so after the step that takes the lock, on every Python; 3.15 mends the others.

So a block that takes a :class:`SafeLock` calls the lock's own way of leaving through an object that goes with the
block, however that ends, and whose finaliser gives back what is still taken: without memory, and without a step in
Python that a signal could come with, and be lost.
"""

from __future__ import annotations

import sys
from _thread import RLock
from collections.abc import Callable
from functools import partial
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


class _Leave(partial[None]):
    """What a block calls at its end. It has a finaliser of its own."""

    __slots__ = ("__del__",)


class _Leaving:
    """What ``with`` looks up before it takes the lock: the way to leave it."""

    def __get__(self, lock: SafeLock | None, _: type) -> Callable[..., None]:
        if lock is None:
            return RLock.__exit__
        is_taken = lock._is_owned  # type: ignore[attr-defined] # noqa: SLF001 - no public way to ask
        if is_taken():  # inside another block, which sees to what is left
            return lock.leave
        taken, release = iter(is_taken, False), iter(lock.release, True)  # noqa: FBT003 - values to end at
        leave = _Leave(lock.leave)
        leave.__del__ = partial(all, zip(taken, release))  # type: ignore[attr-defined] # noqa: B905 - while taken, release
        try:
            return leave
        finally:
            del leave  # a profiler or debugger may keep this frame: the object is to go with the block all the same


class SafeLock(RLock):  # type: ignore[misc] # final in the stubs, not in Python
    """A lock that a thread may take again, and that no exception leaves taken; tests/support/test_locks.py."""

    __slots__ = ()

    __exit__ = _Leaving()
    leave = RLock.__exit__


class LeftBehind:
    """Stands for the lock in a fork of the program: taking it raises, because the authority is not there."""

    def _refuse(self, *_: object) -> bool:
        raise WhywaitError("this authority belongs to the process that made it, not to its fork: make another one here")

    acquire = release = __enter__ = __exit__ = _refuse

    def _is_owned(self) -> bool:
        return False
