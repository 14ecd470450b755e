"""Leases as the service knows them: each stands for a client that waits, or runs something under its permission.

The protocol, over HTTP on the Unix socket of the home (``client.LeaseRequest`` is the other side):

1. The client sends ``POST /machine/leases`` with what it asks for (JSON: ``name``; ``command``: the program and its
   arguments, or true, or false for a block of Python; demands and options as in ``add``; ``inside``: the value of
   ``WHYWAIT_LEASE``, if the client runs under another permission). A refusal is a 4xx with ``{"error": ...}``.
2. The answer stays open as long as the lease lives: one JSON object a line. The first is ``{"id": ...}``.
3. ``{"waiting": line, "why": {...}}`` comes if the client has to wait, and again when the reason has changed.
4. ``{"granted": {"environment": {...}, "devices": {...}}}`` comes once: the client may run. What it runs gets the
   environment in addition to its own: by ``WHYWAIT_LEASE`` the service finds what the client leaves behind, and
   requests from inside are served out of this lease.
5. ``{"wish": "abort" | "kill" | "pause" | "resume"}`` comes while it runs. The client ends, kills, stops or continues
   its command. It answers a pause with ``POST /machine/leases/ID/parked``. If its user continues the command by other
   means, it sends ``POST /machine/jobs/ID/resume``, as any client may.
6. The client sends ``POST /machine/leases/ID/ended`` with ``{"exit_code": n, "peak_ram": bytes or null, "cpu_s":
   seconds or null}`` when its command has ended; the latter as far as the system told the client. The permission is
   given back when no process with the mark of the lease is left either.
7. A connection that closes without (6) is a client that is gone: one that waits has withdrawn its request; what one
   that ran has left behind is killed, and the permission is given back when nothing of it is left.
8. A lease may be part of another (``part_of``: its id), as the tokens of a jobserver are: it is given back when the
   client says so, and with the other lease at the latest. If the client of that one is gone, no part of it is given
   back before the whole. While a lease has parts, ``{"wish": "wanted"}`` and ``{"wish": "not wanted"}`` tell its client
   whether other tasks wait for cpu.
9. ``{"ended": {"outcome": ..., "cause": ...}}`` is the last line: the request was cancelled or dropped while it waited,
   or the lease has ended. If the connection breaks without it, the service is gone, and the client ends its command.

Requests come on the thread of the server; permissions, ends and wishes on any. ``Lease._lock`` guards what a lease has:
its handle, permission and parts, and whether it is over; ``Core.lock`` is never taken under it. What is told to its
client last, ``_told`` and ``_told_wanted``, belongs to the thread of the server. Without a lock are read: the
permission and ``granted_at``, each set once; ``_is_gone``, set before what it is for; ``Leases._by_id``, a dict whose
single steps, and whose copy, are atomic. ``_watch`` is set before the lease can end.
"""

from __future__ import annotations

import os
import shlex
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from whywait.engines.base import SUCCEEDED, Ended, EngineTask
from whywait.engines.lease import LeaseEngine, Wish
from whywait.errors import ConfigError, Infeasible, UnknownTask
from whywait.kernel.state import Cause, Outcome
from whywait.machine.home import Home
from whywait.machine.inside import PLACES, Permission, Permissions
from whywait.machine.jobs import DEMANDS, Jobs, check_command, check_name
from whywait.machine.measured import ClientWatch
from whywait.runtime.authority import DEFAULT_SCOPE
from whywait.runtime.handle import Handle
from whywait.runtime.scope import Scope
from whywait.support.known import Known
from whywait.support.locks import SafeLock
from whywait.support.usage import Usage, exit_facts
from whywait.trees.system import stat_of

LOOK_S: Final = 0.02  # how often to look whether killed processes are gone
REST_S: Final = 0.25  # and processes that were left behind and live on
OPTIONS: Final = frozenset((*DEMANDS, "priority", "timeout", "max_wait", "after", "slot"))
Tell = Callable[[dict[str, Any]], object]


class Lease(Known):
    """One client's request and permission; a ``Holder`` of the lease engine."""

    handle: Handle[Any]

    def __init__(
        self, leases: Leases, id: str, scope: Scope, command: list[str] | None, pid: int | None, tell: Tell
    ) -> None:
        """Stand for a client that is told what happens by ``tell``; ``command`` is None for a block of Python."""
        self.id = id
        self.around = scope
        self.command = command
        self.pid = pid
        self.permission: Permission | None = None  # once it is granted
        self.asked_at = time.time()
        self.granted_at: float | None = None
        self.whole: Lease | None = None  # the lease that it is part of
        self._parts: dict[Lease, None] = {}
        self._told_wanted = False
        self._leases = leases
        self._tell = tell
        self._execution: EngineTask | None = None
        self._lock = SafeLock()
        self._is_over = False  # the client has ended, one way or another
        self._is_gone = False  # without saying so
        self._told: object = ()  # the reason that the client knows
        self._watch: ClientWatch | None = None  # while it is granted; those of parts have none

    @property
    def scope(self) -> str:
        """The key of its scope."""
        return self.around.key

    def known_as(self, id: str | None) -> str:
        """Return what the history calls it: its command, unless it was given another name than the program's."""
        name, _, _ = (id or self.id).rpartition("-")
        is_plain = self.command is not None and os.path.basename(self.command[0]) == name
        return shlex.join(self.command or ()) if is_plain else name

    @property
    def is_granted(self) -> bool:
        """Whether the client may run."""
        return self.granted_at is not None

    # For the lease engine

    def granted(self, execution: EngineTask) -> None:
        """Tell the client that it may run."""
        permission = self._leases.permit(self, execution)
        if self.pid is not None and self.whole is None:
            self._measure(self.pid, execution)
        with self._lock:  # from here on it may end, which ends the measuring
            self._execution = execution
            self.permission = permission
            self.granted_at = time.time()
            gone = self._is_over
        if gone:
            self._finish((Outcome.ERROR, Cause.WORKER_LOST, False), kill=True)
        else:
            environment = self._leases.environment(permission)
            self._tell({"granted": {"environment": environment, "devices": permission.devices}})

    def _measure(self, pid: int, execution: EngineTask) -> None:
        """Have the client's process tree looked at until the permission is back."""
        told = self._leases.engine.teller(execution) if self.command else None  # a block shares its process with others
        self._watch = watch = ClientWatch(pid, told, is_block=self.command is None)
        execution.usage_now = lambda: watch.usage
        watch.begin_with_client()

    @property
    def usage(self) -> Usage | None:
        """What the client has used under the permission so far."""
        return None if self._watch is None else self._watch.usage

    def asked(self, wish: Wish) -> None:
        """Pass a wish on to the client; the kill of a command does not depend on it.

        A block of Python shares its process with what is none of the service's business, so that is not killed: the
        permission stays taken until the block has ended.
        """
        self._tell({"wish": wish})
        if wish == "kill" and self.command is not None:
            with self._lock:
                self._is_over = True
            self._finish((Outcome.ERROR, Cause.WORKER_LOST, False), kill=True)

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

    def say_wanted(self, waiting: int) -> None:
        """Tell the client of a lease with parts whether others are among so many that wait for cpu, if that is news."""
        is_wanted = waiting > sum(not part.is_granted for part in list(self._parts))
        if is_wanted != self._told_wanted:
            self._told_wanted = is_wanted
            self._tell({"wish": "wanted" if is_wanted else "not wanted"})

    def parked(self) -> None:
        """Report that the command of the client has stopped."""
        if self._execution is not None:
            self._leases.engine.parked(self._execution)

    def ended(self, exit_code: int, peak_ram: int = 0, cpu_s: float = 0.0) -> None:
        """Take the news that the command of the client has ended, with what the system told the client of it."""
        if self._end():
            if self._watch is not None:
                self._watch.add(peak_ram, cpu_s)
            if self._execution is not None:
                self._execution.facts = exit_facts(exit_code)
            self._finish((Outcome.ERROR, Cause.EXIT_CODE, False) if exit_code else SUCCEEDED, kill=False)

    def client_gone(self) -> None:
        """Take back the request or the permission of a client whose connection has closed."""
        if self.whole is not None and self.is_granted:
            return  # the client of the whole is gone, and what used this part may still run: it ends with the whole
        if not self._end():
            return
        self._is_gone = True
        if self.is_granted:
            self._finish((Outcome.ERROR, Cause.WORKER_LOST, False), kill=True)
        else:
            self.handle.cancel()

    def settled(self, handle: Handle[Any]) -> None:
        """Tell the client how it has ended; the last that it hears."""
        handle.exception()  # seen
        if self.whole is not None:
            self.whole.drop_part(self)
        self._leases.forget(self)
        self._tell({"ended": {"outcome": handle.outcome, "cause": handle.cause}})

    # Its parts

    def add_part(self, part: Lease) -> None:
        """Have another lease end with this one at the latest."""
        with self._lock:
            if self._is_over:
                raise UnknownTask(f"lease {self.id} has ended")
            part.whole = self
            self._parts[part] = None

    def drop_part(self, part: Lease) -> None:
        """Forget a part that has ended."""
        with self._lock:
            self._parts.pop(part, None)

    # Its end

    def _end(self) -> bool:
        """Note that the client has ended; return whether that is news."""
        with self._lock:
            news, self._is_over = not self._is_over, True
            return news

    def _finish(self, outcome: Ended, *, kill: bool) -> None:
        """Give the permission back when nothing is left that runs under it."""
        permission = self.permission
        assert permission is not None, "it was granted"
        if permission.has_inside or self._left(permission):
            args = (permission, outcome, kill)
            threading.Thread(target=self._outlast, args=args, name="whywait-lease", daemon=True).start()
        else:
            self._report(permission, outcome)

    def _outlast(self, permission: Permission, outcome: Ended, kill: bool) -> None:  # noqa: FBT001 - of a thread
        while left := self._left(permission):
            if kill:
                for process in left:
                    with suppress(OSError):
                        os.kill(process, signal.SIGKILL)
            time.sleep(LOOK_S if kill else REST_S)
        if kill:
            permission.end(0.0)  # last: a block inside ends with its process
        self._report(permission, outcome)

    def _left(self, permission: Permission) -> list[int]:
        """Return the processes that run under the permission; a block of Python is over when its client says so."""
        return permission.bearers() if self.command or self._is_gone else []

    def _report(self, permission: Permission, outcome: Ended) -> None:
        with self._lock:
            execution, self._execution = self._execution, None
            parts, self._parts = self._parts, {}
        for part in parts:
            part.end_with_whole()
        if execution is not None:
            permission.end()
            if self._watch is not None:
                self._watch.end()
                execution.facts = (*execution.facts, *self._watch.usage.facts())
                execution.usage_now = None
            self._leases.engine.ended(execution, outcome)

    def end_with_whole(self) -> None:
        """End a part because the whole has ended; one that is just being submitted ends by :meth:`submitted`."""
        with self._lock:
            self._is_over = True
            permission, handle = self.permission, getattr(self, "handle", None)
        if permission is not None:
            self._report(permission, SUCCEEDED)
        elif handle is not None:
            handle.cancel()

    def submitted(self, handle: Handle[Any]) -> None:
        """Take the handle of the task that it is the body of; what has ended meanwhile is cancelled."""
        with self._lock:
            self.handle, is_over = handle, self._is_over
        if is_over:
            handle.cancel()
        handle.add_done_callback(self.settled)


class Leases:
    """All leases of the service."""

    def __init__(self, jobs: Jobs, permissions: Permissions, home: Home) -> None:
        """Start with none."""
        self._jobs = jobs
        self._permissions = permissions
        self._home = home
        self._by_id: dict[str, Lease] = {}
        self._numbers = 0
        self.engine = LeaseEngine()

    def request(
        self,
        name: str,
        tell: Tell,
        *,
        command: list[str] | bool = True,
        scope: str | None = None,
        inside: str | None = None,
        pid: int | None = None,
        part_of: str | None = None,
        **asked: Any,  # noqa: ANN401 - demands
    ) -> Lease:
        """Ask for a permission; ``tell`` hears what comes of it, on any thread. A refusal raises.

        ``pid`` is the client; one that a process started in a block of Python is inside the lease of the block.
        """
        if unknown := asked.keys() - OPTIONS:
            raise ConfigError(f"a lease has no option {', '.join(sorted(unknown))}: use {', '.join(sorted(OPTIONS))}")
        check_name("scope", scope or DEFAULT_SCOPE)
        if not isinstance(command, bool):
            check_command(command)
        options: Any = {key: value for key, value in asked.items() if value is not None}
        around = self._permissions.find(inside) or self._block_around(pid)
        if around is not None:
            served_in = around.inner_scope()
            _serve_inside(around, options)
        else:
            served_in = self._jobs.scope(scope or DEFAULT_SCOPE)
            if "after" in options:
                options["after"] = self._jobs.awaited(options["after"])
        argv = command if isinstance(command, list) else [name] if command else None
        lease = Lease(self, self._new_id(name), served_in, argv, pid, tell)
        if part_of is not None:
            self.get(part_of).add_part(lease)
        self._by_id[lease.id] = lease
        tell({"id": lease.id})
        body: Any = lease  # the engine takes no function
        try:
            handle = served_in.submit(body, id=lease.id, engine=self.engine, **options)
        except BaseException as error:
            del self._by_id[lease.id]
            if lease.whole is not None:
                lease.whole.drop_part(lease)
            if isinstance(error, Infeasible) and around is not None:
                raise around.refusal(error) from None
            raise
        lease.submitted(handle)
        return lease

    def permit(self, lease: Lease, execution: EngineTask) -> Permission:
        """Return the permission of a lease that is granted."""
        return self._permissions.add(self._jobs.permission(lease.around, lease.id, execution))

    def _block_around(self, pid: int | None) -> Permission | None:
        """Return the permission of the block of Python in which an ancestor of a process has started it, if any."""
        blocks = {
            lease.pid: lease.permission  # the latest of a process comes last
            for lease in self.all()
            if lease.command is None and lease.permission is not None
        }
        parent = parent_of(pid) if pid is not None and blocks else 0
        while parent > 1:
            if parent in blocks:
                return blocks[parent]
            parent = parent_of(parent)
        return None

    def find(self, ref: str) -> Lease | None:
        """Return a living lease by its id, or by scope/id."""
        lease = self._by_id.get(ref.rpartition("/")[2])
        return lease if lease is not None and ref in (lease.id, f"{lease.scope}/{lease.id}") else None

    def get(self, id: str) -> Lease:
        """Return a living lease."""
        lease = self._by_id.get(id)
        if lease is None:
            raise UnknownTask(f"no lease has the id {id!r}, or it has ended")
        return lease

    def waiting(self) -> list[Lease]:
        """Return the leases whose clients wait."""
        return [lease for lease in list(self._by_id.values()) if not lease.is_granted]

    def divided(self) -> list[Lease]:
        """Return the leases that have parts."""
        return list({lease.whole: None for lease in list(self._by_id.values()) if lease.whole is not None})

    def all(self) -> list[Lease]:
        """Return all living leases."""
        return list(self._by_id.values())

    def forget(self, lease: Lease) -> None:
        """Let go of a lease that has ended."""
        self._by_id.pop(lease.id, None)
        if lease.permission is not None:
            self._permissions.remove(lease.permission)

    def environment(self, permission: Permission) -> dict[str, str]:
        """Return what a client adds to the environment of what it runs under a permission."""
        return permission.environment(self._home)

    def _new_id(self, name: Any) -> str:  # noqa: ANN401 - checked here
        if not isinstance(name, str) or not name.isprintable():
            raise ConfigError(f"name {name!r} is not allowed: use printable text")
        plain = name.replace("/", "_").lstrip("@#-") or "lease"
        while True:
            self._numbers += 1
            new = f"{plain}-{self._numbers}"
            if new not in self._by_id:
                return new


def parent_of(pid: int) -> int:
    """Return the parent of a process; 0 if there is no such process."""
    fields = stat_of(pid)
    return int(fields[1]) if fields else 0


def _serve_inside(around: Permission, options: dict[str, Any]) -> None:
    """Turn what is asked for into what is served out of the permission around it."""
    if "after" in options:
        raise ConfigError(
            f"after {options['after']!r} is not allowed inside {around.id}: that job may wait for what it holds"
        )
    resources = options.get("resources") or {}
    if not isinstance(resources, dict):
        raise ConfigError(f"resources {resources!r} is not allowed: use an object of names and amounts")
    options["resources"] = {**resources, PLACES: 1}
    options["slot"] = False
