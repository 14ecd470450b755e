"""Leases as the service knows them: each stands for a client that waits, or runs something under its permission.

The protocol, over HTTP on the Unix socket of the home (``client.LeaseRequest`` is the other side):

1. The client sends ``POST /machine/leases`` with what it asks for (JSON: ``name``; ``command``: the program and its
   arguments, or true, or false for a block of Python; demands and options as in ``add``; ``inside``: the value of
   ``WHYWAIT_LEASE``, if the client runs under another permission). A refusal is a 4xx with ``{"error": ...}``.
2. The answer stays open as long as the lease lives: one JSON object a line. The first is ``{"id": ...}``.
3. ``{"waiting": line, "why": {...}}`` comes if the client has to wait, and again when the reason has changed.
4. ``{"granted": {"environment": {...}, "devices": {...}}}`` comes: the client may run if it takes the permission with
   ``POST /machine/leases/ID/taken`` and ``{"lease": the value of WHYWAIT_LEASE}``, and the answer is ``{"taken":
   true}``. A client that is stopped and has not taken it after 2 s has lost it: it waits again, paused, and is granted
   anew. What it runs gets the environment in addition to its own: by ``WHYWAIT_LEASE`` the service finds what the
   client leaves behind, and requests from inside are served out of this lease.
5. ``{"wish": "abort" | "kill" | "pause" | "resume" | "stop"}`` comes while it runs. The client ends, kills, stops or
   continues its command; ``stop``: the client itself is stopped, and its command should be. An abort has a ``cause``,
   and says ``by`` whom if that is known. The client answers a pause with ``POST /machine/leases/ID/parked``, and tells
   with ``POST /machine/leases/ID/stopped`` and ``{"stopped": true | false}`` that the terminal has stopped the command
   or lets it go on.
6. The client sends ``POST /machine/leases/ID/ended`` with ``{"exit_code": n, "peak_ram": bytes or null, "cpu_s":
   seconds or null, "out_of_memory": true | false}`` when its command has ended; the latter as far as the system told
   the client. The permission is given back when no process with the mark of the lease is left either.
7. A connection that closes without (6) is a client that is gone: one that waits has withdrawn its request; what one
   that ran has left behind is killed, and the permission is given back when nothing of it is left.
8. A lease may be part of another (``part_of``: its id), as the tokens of a jobserver are: it is given back when the
   client says so, and with the other lease at the latest. If the client of that one is gone, no part of it is given
   back before the whole. ``{"wish": "wanted"}`` and ``{"wish": "not wanted"}`` tell the client of a lease that has, or
   has had, parts whether other tasks wait for cpu.
9. ``{"ended": {"outcome": ..., "cause": ..., "by": ...}}`` is the last line: the request was cancelled or dropped while
   it waited, or the lease has ended. If the connection breaks without it, the service is gone, and the client ends its
   command. A service that is told to end says so before: the cause is ``down``.

A client that the system has stopped (Ctrl-Z) cannot say so. The service looks at the process of each client every half
second; of a command that runs, the guard beside it tells (see ``do_guard.py``).

``client_lease.py`` has one of them, and which thread does what.
"""

from __future__ import annotations

from typing import Any, Final

from whywait.engines.lease import LeaseEngine
from whywait.errors import ConfigError, Infeasible, UnknownTask
from whywait.machine.asked import OF_LEASES, check_command, check_name, check_options
from whywait.machine.client_lease import Around, ClientLease, Tell
from whywait.machine.jobs import Jobs
from whywait.machine.permissions import PLACES, Permission, Permissions
from whywait.machine.remains import Remains
from whywait.runtime.authority import DEFAULT_SCOPE
from whywait.support.units import printable
from whywait.trees.system import stat_of

GRANTS: Final = 1_000_000  # how often one request may be granted: each but the last was taken back
_PTYS: Final = (136, 143)  # the major numbers of pseudo-terminals


class Leases:
    """All leases of the service."""

    def __init__(self, jobs: Jobs, permissions: Permissions) -> None:
        """Start with none."""
        self._jobs = jobs
        self._by_id: dict[str, ClientLease] = {}  # its single steps, and its copy, are atomic
        self._numbers = 0
        self.engine = LeaseEngine()
        self._permissions = permissions
        self._around = Around(permissions, self.engine, Remains(), self._forget)
        self.ends_by = "a signal"  # what ends it, unless a client has asked for that

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
        **asked: Any,
    ) -> ClientLease:
        """Ask for a permission; ``tell`` hears what comes of it, on any thread. A refusal raises.

        ``pid`` is the client; one that a process started in a block of Python is inside the lease of the block.
        """
        check_options("a permission", asked, OF_LEASES)
        check_name("scope", scope or DEFAULT_SCOPE)
        if not isinstance(command, bool):
            check_command(command)
        options: Any = {key: value for key, value in asked.items() if value is not None}
        whole, around = None, None
        if part_of is not None:
            whole = self.get(part_of)
            if whole.permission is None:
                raise UnknownTask(f"permission {part_of!r} is not granted")
            served_in = whole.permission.scope_of_parts()
        elif (around := self._permissions.find(inside) or self._block_around(pid)) is not None:
            served_in = around.inner_scope()
            _serve_inside(around, options)
        else:
            served_in = self._jobs.scope(scope or DEFAULT_SCOPE)
            if "after" in options:
                options["after"] = self._jobs.awaited(options["after"])
        argv = command if isinstance(command, list) else [name] if command else None
        lease = ClientLease(self._around, self._new_id(name), served_in, argv, pid, tell, whole)
        self._by_id[lease.id] = lease
        tell({"id": lease.id})
        body: Any = lease  # the engine takes no function
        try:
            lease.handle = served_in.submit(body, id=lease.id, engine=self.engine, retry=GRANTS, **options)
        except BaseException as error:
            self._forget(lease)
            if isinstance(error, Infeasible) and around is not None:
                raise around.refusal(error) from None
            raise
        lease.handle.add_done_callback(lease.settled)
        return lease

    def _forget(self, lease: ClientLease) -> None:
        self._by_id.pop(lease.id, None)

    def look(self) -> None:
        """See which clients the system has stopped, and which go on."""
        for lease in self.all():
            lease.look()

    def say_down(self) -> None:
        """Tell all clients that the service ends."""
        for lease in self.all():
            lease.say_down(self.ends_by)

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

    def find(self, ref: str) -> ClientLease | None:
        """Return a living lease by its id, or by scope/id."""
        lease = self._by_id.get(ref.rpartition("/")[2])
        return lease if lease is not None and ref in (lease.id, f"{lease.scope}/{lease.id}") else None

    def get(self, id: str) -> ClientLease:
        """Return a living lease."""
        lease = self._by_id.get(id)
        if lease is None:
            raise UnknownTask(f"no permission has the id {id!r}, or it has ended")
        return lease

    def waiting(self) -> list[ClientLease]:
        """Return the leases whose clients wait."""
        return [lease for lease in self.all() if not lease.is_granted]

    def divided(self) -> dict[ClientLease, int]:
        """Return the leases that have, or have had, parts, with how many of these wait."""
        found = {lease: 0 for lease in self.all() if lease.permission is not None and lease.permission.has_parts}
        for lease in self.waiting():
            if lease.whole in found:
                found[lease.whole] += 1
        return found

    def all(self) -> list[ClientLease]:
        """Return all living leases."""
        return list(self._by_id.values())

    def _new_id(self, name: Any) -> str:
        if not isinstance(name, str) or not name.isprintable():
            raise ConfigError(f"name {name!r} is not allowed: use printable text")
        plain = name.replace("/", "_").lstrip("@#-") or "lease"
        while True:
            self._numbers += 1
            new = f"{plain}-{self._numbers}"
            if new not in self._by_id:
                return new


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


def parent_of(pid: int) -> int:
    """Return the parent of a process; 0 if there is no such process."""
    fields = stat_of(pid)
    return int(fields[1]) if fields else 0


def name_of_program(pid: int) -> str:
    """Return what the system calls the program of a process; empty if it has ended."""
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
            return printable(file.read().strip())  # a process may call itself anything
    except OSError:
        return ""


def name_of(pid: int) -> str:
    """Return what a person can tell a client by: its process, the one that has started it, and its terminal."""
    fields = stat_of(pid)
    if not fields:
        return f"process {pid}"
    parent, terminal = int(fields[1]), int(fields[4])
    called = name_of_program(parent)
    number = (terminal & 0xFF) | (terminal >> 12 & 0xFFF00)
    is_pty = _PTYS[0] <= terminal >> 8 & 0xFFF <= _PTYS[1]
    where = f" on pts/{number + ((terminal >> 8 & 0xFFF) - _PTYS[0]) * 256}" if is_pty else ""
    return f"process {pid}{f' of {called} {parent}' if called else ''}{where}"
