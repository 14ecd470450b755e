"""One client's request and permission, as the service knows it; ``leases.py`` has the protocol.

Requests come on the thread of the server; permissions, ends and wishes on any. ``ClientLease._lock`` guards what a
lease has: its permission, whether the client has taken it, and whether the client has ended; ``Core.lock`` is never
taken under it. What is told to its client last, ``_told`` and ``_told_wanted``, belongs to the thread of the server.
Without a lock are read: the permission and ``granted_at``, each set at a grant; ``_is_gone``, set before what it is
for. ``_watch`` is set before the lease can end.
"""

from __future__ import annotations

import os
import shlex
import threading
import time
from collections.abc import Callable
from functools import partial
from threading import RLock
from typing import Any, Final, NamedTuple

from whywait.engines.base import SUCCEEDED, Ended, EngineTask
from whywait.engines.lease import LeaseEngine, Wish
from whywait.kernel.state import Cause, Outcome, TaskState
from whywait.machine import moments
from whywait.machine.moments import Moment
from whywait.machine.permissions import Permission, Permissions
from whywait.machine.remains import Remain, Remains
from whywait.runtime.handle import Handle
from whywait.runtime.scope import Scope
from whywait.support.known import Known
from whywait.support.usage import Usage, exit_facts
from whywait.trees.meter import Watch, meter
from whywait.trees.system import descendants, is_stopped

TAKE_S: Final = 2.0  # how long a stopped client may leave a grant untaken
LOST: Final[Ended] = (Outcome.ERROR, Cause.WORKER_LOST, False)
NOT_TAKEN: Final[Ended] = (Outcome.ERROR, Cause.WORKER_LOST, True)  # the only end of a lease that is retried
DOWN: Final = "down"  # the cause where the service ends
Tell = Callable[[dict[str, Any]], object]


def _nothing() -> None:
    """Be called."""


class Around(NamedTuple):
    """What all leases of a service share."""

    permissions: Permissions
    engine: LeaseEngine
    remains: Remains
    forget: Callable[[ClientLease], object]  # called when one has ended


class ClientLease(Known):
    """One client's request and permission; a ``Holder`` of the lease engine."""

    handle: Handle[Any]

    def __init__(
        self,
        around: Around,
        id: str,
        scope: Scope,
        command: list[str] | None,
        pid: int | None,
        tell: Tell,
        whole: ClientLease | None,
    ) -> None:
        """Stand for a client that is told what happens by ``tell``; ``command`` is None for a block of Python.

        ``whole`` is the lease that it is part of.
        """
        self.id = id
        self.inside = scope
        self.command = command
        self.pid = pid
        self.whole = whole
        self.permission: Permission | None = None  # once it is granted
        self.asked_at = moments.now()
        self.granted_at: Moment | None = None
        self.ended_by: str | None = None  # what has asked for its end, as far as that is known
        self._around = around
        self._tell = tell
        self._execution: EngineTask | None = None
        self._lock = RLock()
        self._is_taken = False  # the client knows of the grant
        self._take_by = 0.0  # until then, if it is stopped
        self._is_over = False  # the client has ended, one way or another
        self._is_gone = False  # without saying so
        self._told: object = ()  # the reason that the client knows
        self._told_wanted = False
        self._watch: ClientWatch | None = None  # while it is granted; those of parts have none

    @property
    def scope(self) -> str:
        """The key of its scope."""
        return self.inside.key

    def known_as(self, id: str | None) -> str:
        """Return what the history calls it: its command, unless it was given another name than the program's."""
        name, _, _ = (id or self.id).rpartition("-")
        is_plain = self.command is not None and os.path.basename(self.command[0]) == name
        return shlex.join(self.command or ()) if is_plain else name

    @property
    def is_granted(self) -> bool:
        """Whether the client may run."""
        return self.granted_at is not None

    @property
    def usage(self) -> Usage | None:
        """What the client has used under the permission so far."""
        return None if self._watch is None else self._watch.usage

    # For the lease engine

    def granted(self, execution: EngineTask) -> None:
        """Tell the client that it may run, and then what was wished before it knew: until then it heeds nothing."""
        permission = self._around.permissions.grant(self.inside, self.id, execution)
        if self.pid is not None and self.whole is None:
            told = self._around.engine.teller(execution) if self.command else None  # a block shares its process
            self._watch = watch = ClientWatch(self.pid, told, is_block=self.command is None)
            execution.usage_now = lambda: watch.usage
            watch.begin_with_client()
        with self._lock:  # from here on it may end, which ends the measuring
            self._execution, self.permission, self.granted_at = execution, permission, moments.now()
            self._take_by = time.monotonic() + TAKE_S
            gone = self._is_over
        if gone:
            self._finish(LOST, kill=True)
            return
        self._tell({"granted": {"environment": permission.environment, "devices": permission.devices}})
        wished = execution.signal
        if wished is not None and (wished.aborted or wished.pause_asked):
            self.asked("abort" if wished.aborted else "pause")

    def asked(self, wish: Wish) -> None:
        """Pass a wish on to the client, with the cause of an end; the kill of a command does not depend on it.

        A block of Python shares its process with what is none of the service's business, so that is not killed: the
        permission stays taken until the block has ended. A part ends with its whole.
        """
        execution = self._execution
        if execution is None:  # it is just being granted, which passes the wish on, or has ended
            return
        abort = None if wish in ("pause", "resume") else execution.abort
        self._tell({"wish": wish} if abort is None else {"wish": wish, **self._because(abort[1])})
        if self.whole is not None and abort is not None:
            self._report(SUCCEEDED)
        elif wish == "kill" and self.command is not None:
            self._end()
            self._finish(LOST, kill=True)

    # For the routes

    def say_why(self) -> None:
        """Tell the client why it waits, if that is news."""
        if self.is_granted or self.handle.done():
            return
        why = self.handle.why()
        if why.running_ns is not None or why.outcome is not None:
            return
        first = why.primary_reason
        news = None if first is None else (first.kind, first.name, first.free, [holder.id for holder in first.holders])
        if news != self._told:
            self._told = news
            self._tell({"waiting": why.in_short, "why": why.to_dict()})

    def take(self, token: object) -> bool:
        """Note that the client takes the permission with this token; return whether that is the one it has."""
        with self._lock:
            self._is_taken = self.permission is not None and token == self.permission.token
            return self._is_taken

    def stopped(self, *, is_stopped: bool) -> None:
        """Take the news that the client, or its command, is stopped or goes on."""
        if self.handle.is_stopped != is_stopped:
            self._around.engine.stopped(self.handle, is_stopped=is_stopped)

    def look(self) -> None:
        """See whether the client is stopped; take back a permission that a stopped client has not taken in time."""
        if self.pid is None or self.whole is not None or self._is_over:
            return
        client_is_stopped = is_stopped(self.pid)
        if self._is_taken and self.command is not None:  # of the command the client's guard tells
            if client_is_stopped and self.handle.state == TaskState.RUNNING:
                self._tell({"wish": "stop"})
            return
        self.stopped(is_stopped=client_is_stopped)
        if client_is_stopped and self.is_granted and time.monotonic() >= self._take_by:
            self._withdraw()

    def _withdraw(self) -> None:
        """Take back a permission that the client does not know of; the request waits for another, paused."""
        with self._lock:
            execution, permission = self._execution, self.permission
            if self._is_taken or self._is_over or execution is None or permission is None:
                return
            self._execution = self.permission = self.granted_at = None
            self._told = ()
        self._around.permissions.remove(permission)
        if self._watch is not None:
            self._watch.end()
        self._around.engine.ended(execution, NOT_TAKEN)

    def say_down(self, by: str) -> None:
        """Tell the client that the service ends, and its request or command with it."""
        self.ended_by = by
        if self.is_granted:
            self._tell({"wish": "abort", **self._because(DOWN)})
        else:
            self._tell({"ended": {"outcome": Outcome.ABORTED, **self._because(DOWN)}})

    def _because(self, cause: str | None) -> dict[str, Any]:
        return {"cause": cause} if self.ended_by is None else {"cause": cause, "by": self.ended_by}

    def say_wanted(self, *, is_wanted: bool) -> None:
        """Tell the client of a lease with parts whether others wait for cpu, if that is news."""
        if is_wanted != self._told_wanted:
            self._told_wanted = is_wanted
            self._tell({"wish": "wanted" if is_wanted else "not wanted"})

    def parked(self) -> None:
        """Report that the command of the client has stopped."""
        if self._execution is not None:
            self._around.engine.parked(self._execution)

    def ended(
        self,
        exit_code: int,
        peak_ram: int = 0,
        cpu_s: float = 0.0,
        *,
        out_of_memory: bool = False,
        looked: Callable[[], object] = _nothing,
    ) -> None:
        """Take the news that the command of the client has ended, with what the system told the client of it.

        ``looked`` is called when the permission is back, or something is known to be left that has it.
        """
        if not self._end():
            looked()
            return
        if self._watch is not None:
            self._watch.add(peak_ram, cpu_s)
        if self._execution is not None:
            self._execution.facts = exit_facts(exit_code)
        cause = Cause.OUT_OF_MEMORY if out_of_memory else Cause.EXIT_CODE
        self._finish((Outcome.ERROR, cause, False) if exit_code else SUCCEEDED, kill=False, looked=looked)

    def client_gone(self) -> None:
        """Take back the request or the permission of a client whose connection has closed."""
        if self.whole is not None and self.is_granted:
            return  # the client of the whole is gone, and what used this part may still run: it ends with the whole
        if not self._end():
            return
        self._is_gone = True
        if self.is_granted:
            self._finish(LOST, kill=True)
        else:
            self.handle.cancel()

    def settled(self, handle: Handle[Any]) -> None:
        """Tell the client how it has ended; the last that it hears."""
        handle.exception()  # seen
        self._around.forget(self)
        if self.permission is not None:
            self._around.permissions.remove(self.permission)
        self._tell({"ended": {"outcome": handle.outcome, **self._because(handle.cause)}})

    # Its end

    def _end(self) -> bool:
        """Note that the client has ended; return whether that is news."""
        with self._lock:
            news, self._is_over = not self._is_over, True
            return news

    def _finish(self, outcome: Ended, *, kill: bool, looked: Callable[[], object] = _nothing) -> None:
        """Give the permission back when nothing is left that runs under it; call ``looked`` after the first look.

        A block of Python is over when its client says so.
        """
        permission = self.permission
        assert permission is not None, "it was granted"
        gone = partial(self._nothing_left, permission, outcome, kill=kill)
        if self.command or self._is_gone:
            self._around.remains.add(Remain(permission.mark, kill, gone, looked))
        else:
            gone()
            looked()

    def _nothing_left(self, permission: Permission, outcome: Ended, *, kill: bool) -> None:
        """Give the permission back; what was asked for inside it may take its time to end."""

        def end_inside() -> None:
            permission.end(0.0 if kill else None)  # a block inside ends with its process
            self._report(outcome)

        if permission.has_scopes:
            threading.Thread(target=end_inside, name="whywait-lease", daemon=True).start()
        else:
            end_inside()

    def _report(self, outcome: Ended) -> None:
        with self._lock:
            execution, self._execution = self._execution, None
            self._is_over = True
        if execution is not None:
            if self._watch is not None:
                self._watch.end()
                execution.facts = (*execution.facts, *self._watch.usage.facts())
                execution.usage_now = None
            self._around.engine.ended(execution, outcome)


class ClientWatch(Watch):
    """What a client uses under its permission.

    Of a command: all its descendants, that is, what is below the guard that the client forks (``do_guard.py``). Of a
    block of Python: the process of the client and its descendants, whatever else that process does.
    """

    def __init__(self, pid: int, told: Callable[[int], object] | None, *, is_block: bool) -> None:
        """Watch a client; ``told`` is called with the bytes that it uses, whenever they have changed much."""
        super().__init__(0, told=told)  # the guard is not there yet
        self._pid = pid
        self._is_block = is_block
        self._used_before_s = 0.0
        self._told_peak, self._told_cpu_s = 0, 0.0  # what the system has told the client

    def begin_with_client(self) -> None:
        """Measure from now on."""
        if self._is_block:
            self.look()
            self._used_before_s = self.cpu_s
        meter.add(self)
        self.begin()

    def add(self, peak: int, cpu_s: float) -> None:
        """Take in what the client knows at the end: the peak of one process, and the CPU time of all."""
        if self._is_block:
            self.look()
        self._told_peak, self._told_cpu_s = peak, cpu_s

    def end(self) -> None:
        """Measure no more."""
        super().end()
        meter.remove(self)

    @property
    def usage(self) -> Usage:
        """What was used so far."""
        cpu_s = max(self._told_cpu_s, self.cpu_s - self._used_before_s)
        return Usage(max(0.0, cpu_s), max(self._told_peak, self.peak), self.how)

    def _pids(self) -> list[int]:
        if self._is_block:
            return [self._pid, *descendants(self._pid)]
        if not self._guard:
            below = descendants(self._pid)
            self._guard = below[0] if below else 0
        return descendants(self._guard) if self._guard else []
