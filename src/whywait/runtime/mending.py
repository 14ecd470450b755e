"""Mending: what an exception out of nowhere broke off is brought back to order and carried out after all.

Such an exception (Ctrl-C, RecursionError, MemoryError) may come between any two steps of a command, and another one
while the first is handled. What holds nevertheless:

1. The lock is released in the very frame that has taken it: a call that succeeded at that depth of the stack succeeds
   there again, however full the stack is. It is the first call of the handler, so no other exception comes before it.
   Where it is taken by ``with``, support/locks.py sees to that.
2. ``begun`` is set before a command changes anything and reset when it has changed everything. A thread that takes the
   lock and finds it set repairs first. A repair that is broken off leaves it set, and is begun again.
3. What is left to do is handed to a thread of its own, which has an empty stack and gets no signals. It is started by a
   single call in the frame of the command. If the system gives no thread, the next thread that wants the lock does it.
"""

from __future__ import annotations

import threading
from _thread import start_new_thread
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Mapping
from time import monotonic_ns, sleep
from typing import Any

from whywait.engines.base import SUCCEEDED, Ended
from whywait.kernel.base import Decision
from whywait.kernel.kernel import Kernel
from whywait.kernel.model import Task
from whywait.kernel.state import Outcome
from whywait.runtime.execution import Execution
from whywait.runtime.work import Work
from whywait.support.locks import TRIES, LeftBehind, SafeLock
from whywait.support.logger import Log
from whywait.support.raised import loggable
from whywait.support.threads import PAUSES_S

# What is left of a report: the execution that has ended, the one that was to go on in its place, and all that starts.
Reported = tuple[Execution, Execution | None, Work | None, Decision]
Unreported = tuple[Execution, Task, Ended]  # a report that has not even begun
Admitted = tuple[Execution, Decision]  # what was submitted, and all that starts: it, maybe, and nothing else
Left = Work | Reported | Unreported | Admitted | None


class Mending(ABC):
    """The lock of a kernel, the command that has begun under it, and what was left by commands that were broken off."""

    kernel: Kernel
    log: Log
    scopes: Mapping[str, Any]  # the records of living ones, by key

    def __init__(self) -> None:
        """Begin with a free lock and nothing to mend."""
        self._lock = SafeLock()
        self.begun: Work | Execution | Admitted | None = None  # None: no command is in the midst of its changes
        self.ending: Task | None = None  # of a report that was broken off: the attempt that has ended
        self.ended_as: Ended = SUCCEEDED  # and how
        self.decided: Decision | None = None  # and what dispatch had decided so far
        self.left: deque[Left] = deque()
        self._mending = SafeLock()
        self._is_mended = False  # a thread sees to what is left

    @property
    def lock(self) -> threading.RLock:
        """The lock, for reading under it; what was broken off is repaired before."""
        if self.begun is not None or self.left:
            self.wait_turn()
        return self._lock

    def let_go(self) -> None:
        """Be of no use in a fork of this process: none of the threads is there, and locks may be held for ever."""
        self._lock = LeftBehind()  # type: ignore[assignment] # it only refuses

    def wait_turn(self) -> None:
        """Let a command that has begun come to its end, and repair one that never will."""
        if self._lock._is_owned():  # type: ignore[attr-defined] # noqa: SLF001 - a look from inside a command
            return
        if self.left and not self._is_mended and not self._call_mender():
            self.mend()
        for _ in range(TRIES):
            if self.begun is None:
                return
            sleep(0)
        self._make_whole()

    def mend(self, left: Left = None) -> None:
        """Repair the kernel and carry out what was left, until that is done; meant for a thread of its own."""
        if isinstance(self._lock, LeftBehind):
            return
        is_noted = False
        failure: BaseException | None = None
        for pause_s in PAUSES_S:
            try:
                sleep(pause_s)
                if not is_noted:
                    self.left.append(left)
                    is_noted = True
                while self.left:  # asked again when it is no longer said that a thread sees to it
                    self._mend_all()
            except BaseException as error:  # noqa: BLE001 - it is tried again
                failure = error
            else:
                return
        told = None if failure is None else loggable(failure)
        self.log.critical("what a broken-off command left could not be mended", exc_info=told)
        self.left.clear()
        self.begun = None  # nothing is to wait for what will not come

    def _mend_all(self) -> None:
        with self._mending:
            self._is_mended = True
            try:
                self._mend_each()
            finally:
                self._is_mended = False

    def _mend_each(self) -> None:
        while self.left:
            left = self.left[0]  # first: whatever stands here was broken off before the kernel is made whole
            self._make_whole()
            if left is not None:
                self.left[0] = work = self._work_of(left)
                self.carry_out(work)
                for engine, count in work.offered.items():
                    engine.look_again(count)
            self.left.popleft()

    def _work_of(self, left: Work | Reported | Unreported | Admitted) -> Work:
        """Return what is left to be carried out as work, the same however often it is asked for."""
        if isinstance(left, Work):
            return left
        if len(left) == 2:  # noqa: PLR2004 - an Admitted
            admitted = Work(left[1])
            admitted.offered = {left[0].engine: 1}  # it may have been taken over, and not yet been promised to anything
            return admitted
        if len(left) == 3:  # noqa: PLR2004 - an Unreported
            with self._lock:
                if left[1].outcome is None:  # else it has been reported meanwhile
                    self.begun, self.ending, self.ended_as = left  # as if it had been broken off at its very beginning
                    self.repair()
            return Work()
        ended, go_on, work, decision = left
        work = work or Work(decision)
        if ended.done:
            work.ended.append(ended)
        work.goes_on = None
        if go_on is not None and not work.decision:
            work.decision.append(go_on.task)  # all but this one have been handed over
        return work

    def _make_whole(self) -> None:
        with self._lock:
            if self.begun is not None:
                self.repair()

    def repair(self) -> None:
        """Bring the kernel back to order, under the lock, after a command that was broken off.

        What was to be submitted is not, unless a task of it has started; nor is a scope opened that was to be. A body
        whose end was to be reported has ended; all else that was decided is carried out.
        """
        work = self._begun_work()
        now, kernel = monotonic_ns(), self.kernel
        submitted = [execution for execution in work.submitted if execution.is_taken_in]
        kernel.repair(now, work.decision, work.ending, submitted)
        if work.ending is not None:
            self._end_again(now, work, work.ending)
        self._close_unknown_scopes(now)
        self.decide(now, work)
        if work not in self.left:
            self.left.append(work)
        self.begun = None
        if not self._is_mended:
            self._call_mender()

    def _close_unknown_scopes(self, now: int) -> None:
        """End scopes that were being opened: there is no way to reach them."""
        known = {record.kernel_scope for record in self.scopes.values()}
        for scope in [scope for scope in self.kernel.scopes.values() if scope.parent is not None]:
            if scope not in known:
                self.kernel.dispose(now, scope)

    def _call_mender(self) -> bool:
        """Have a thread that sees to what is left; return whether the system gave one."""
        try:
            start_new_thread(self.mend, ())
        except (RuntimeError, MemoryError):
            return False
        return True

    def _begun_work(self) -> Work:
        """Return what the command that was broken off had come to, the same however often it is asked for."""
        begun = self.begun
        if isinstance(begun, tuple):
            self.begun = begun = Work(begun[1], begun[:1])
        elif not isinstance(begun, Work):
            work = Work(self.decided)
            if self.ending is not None:
                work.reported, work.ending, work.ended_as = begun, self.ending, self.ended_as
            elif begun is not None:
                work.submitted = (begun,)
            self.begun = begun = work
        self.ending = self.decided = None
        return begun

    def _end_again(self, now: int, work: Work, task: Task) -> None:
        """Let a body have ended whose end was broken off; as far as that was done, it is not done again."""
        execution = work.reported
        assert execution is not None, "it came with the task"
        if task.outcome is None:
            self.kernel.ended(now, task, *work.ended_as, execution.facts, execution.opened_streams())
        if task.retried_as is not None:
            if execution.task is task:
                execution.retried(task.retried_as)
            return
        if task.outcome != Outcome.SUCCESS and not hasattr(execution, "unseen"):
            self.note_failure(execution)
        execution.done = True
        work.ended.append(execution)
        if task.outcome == Outcome.ERROR and task.periodic is None:
            for scope in task.scope.aborting:
                self.kernel.dispose(now, scope)

    @abstractmethod
    def decide(self, now: int, work: Work) -> None:
        """Let the kernel dispatch, under the lock, and take what it has decided."""

    @abstractmethod
    def carry_out(self, work: Work) -> None:
        """Start, ask, and tell, outside the lock; what was broken off goes on where it is called again."""

    @abstractmethod
    def note_failure(self, execution: Execution) -> None:
        """Make the error of a task final, under the lock."""
