"""Taking the authority's lock in a way that suits the interpreter's own lock.

A thread that sleeps on a lock gets it the moment it is released, but then has to wait for the interpreter, which the
releasing thread keeps: that one soon wants the lock again, finds it taken, and sleeps in turn. From then on every
task costs two switches between threads. A thread that only tries, and lets others run when it has no luck, never
holds the lock without running; so a thread that runs finds it free. Where there is no such lock, the holder runs
meanwhile, and what it does takes less time than a switch between threads: trying is all there is to do.

And taking locks so that an exception out of nowhere (Ctrl-C, a handler of signals that raises, a lack of memory) leaves
none taken:

- Until 3.13 no signal came between the step of ``with`` that takes a lock and the block that gives it back. Since 3.14
  the step is a call like any other, and 3.14 looks for signals after it: one in three of those that come to a thread
  that does little else leave the lock taken for ever. A method in Python can catch the exception, and no signal comes
  between its return and the block.
- The lock's own ``__exit__`` is a single step, which no signal divides. But its three arguments are put in a tuple, and
  where there is no memory for that, the lock stays taken. A method in Python needs none, but a signal may come with its
  first step. So threads that exceptions come to from outside call the former, and all others the latter.

From 3.12 to 3.14 a conditional jump back (a ``while``, a comprehension with a condition, a ``for`` that ends in an
``if``) is left out of the exception table: a signal that comes with it passes by every ``with``, ``except`` and
``finally`` around it in the same frame, and the lock stays taken. So no block that takes a lock has one; such a loop
stands in a function of its own, whose call is covered. tests/support/test_locks.py holds to it.
"""

from __future__ import annotations

import os
import sys
import threading
from _thread import RLock, get_ident
from collections.abc import Callable
from time import sleep
from typing import Any, Final, Protocol

from whywait.errors import WhywaitError

_HAS_GIL: Final = getattr(sys, "_is_gil_enabled", lambda: True)()
INTERRUPTIBLE: Final[set[int | None]] = set()  # the threads that exceptions come to from outside: signals, TaskAborted
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


class _Leaving:
    """What a block calls at its end, looked up when it begins: the way to give the lock back in this thread."""

    def __get__(self, lock: SafeLock, _: type) -> Callable[[Any, Any, Any], None]:
        return lock.leave_in_one_step if get_ident() in INTERRUPTIBLE else lock.leave_without_memory


class SafeLock(RLock):  # type: ignore[misc] # it is final in the stubs, not in Python
    """A lock that a thread may take again, and that no exception leaves taken; tests/support/test_locks.py."""

    __slots__ = ()

    __exit__ = _Leaving()
    leave_in_one_step = RLock.__exit__

    def leave_without_memory(self, kind: object, error: object, traceback: object, /) -> None:  # noqa: ARG002 - of a block
        """Give it back: a call in Python that builds nothing."""
        self.release()

    if sys.version_info >= (3, 14):

        def __enter__(self) -> bool:
            """Take it; a signal that comes with that leaves it free."""
            try:
                return self.acquire()
            except BaseException:
                try:  # noqa: SIM105 - the first call: no other exception comes before it
                    self.release()
                except BaseException:  # noqa: BLE001, S110 - it was not taken yet; or another one, and the first is raised
                    pass
                raise


def _note_main_thread() -> None:
    """Note which thread gets the signals: in a fork, the one that has forked."""
    INTERRUPTIBLE.clear()
    INTERRUPTIBLE.add(threading.main_thread().ident)


_note_main_thread()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_note_main_thread)


class LeftBehind:
    """Stands for the lock in a fork of the program: taking it raises, because the authority is not there."""

    def _refuse(self, *_: object) -> bool:
        raise WhywaitError("this authority belongs to the process that made it, not to its fork: make another one here")

    acquire = release = __enter__ = __exit__ = _refuse

    def _is_owned(self) -> bool:
        return False
