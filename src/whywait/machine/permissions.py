"""Requests from inside a permission: they are served out of it, never in addition to it (M4).

A permission, of a lease or of a running job, has a token, which what runs under it finds in its environment. The first
request that comes with the token opens a scope whose budget is what the permission holds:

1. Requests from inside are tasks of that scope. They take no slot of the machine and nothing of its budget, so the
   permission around them never has to wait for others to get what it holds already.
2. What could never fit is refused with the reason. What does not fit now waits for other requests of the same scope,
   and these end without anything from outside. So nested requests cannot wait for each other in a circle.
3. When the permission ends, what is left inside is ended first.
"""

from __future__ import annotations

from threading import RLock
from typing import Final

from whywait.engines.base import EngineTask
from whywait.errors import DisposeIncomplete, Infeasible, MachineError
from whywait.kernel.devices import Assigned
from whywait.kernel.limits import MEMORY, Budget, Demand
from whywait.kernel.model import Task
from whywait.machine.home import LEASE_VARIABLE, Home
from whywait.machine.home import VARIABLE as HOME_VARIABLE
from whywait.observe.explain import amount_in_words
from whywait.runtime.scope import Scope, open_of, open_scope
from whywait.runtime.services import CoreServices
from whywait.support.devices import environment_of
from whywait.support.logger import log
from whywait.trees.system import new_mark

PLACES: Final = "places"  # how many requests from inside may run at once: as many as the permission has cpu, at least 1
_WELL_KNOWN: Final = ("cpu", "ram", "vram")
_MB: Final = 1_000_000


class Permission:
    """What a lease or a running job holds, and the requests that are served out of it."""

    def __init__(self, core: CoreServices, home: Home, scope: Scope, id: str, task: Task, mark: int) -> None:
        """Stand for a task that runs in a scope; what runs under it has this mark, which it finds by its token."""
        self._home = home
        self.id = id
        self.mark = mark
        self.token = f"{mark:x}"
        self._demand: Demand = task.demand
        self._devices: Assigned = task.units
        self._core = core
        self._around = scope
        self._lock = RLock()
        self._scopes: dict[str, Scope] = {}  # opened when they are first asked for
        self._has_ended = False

    def inner_scope(self) -> Scope:
        """Return the scope of the requests from inside."""
        return self._scope("inside", self._budget())

    def scope_of_parts(self) -> Scope:
        """Return the scope of leases that are parts of this one: they take what the machine has, and end with it."""
        return self._scope("parts of", None)

    def _scope(self, kind: str, budget: Budget | None) -> Scope:
        with self._lock:
            if self._has_ended:
                raise MachineError(f"{self.id} has ended: nothing can be asked for out of it")
            if kind not in self._scopes:
                around = open_of(self._around).record
                self._scopes[kind] = open_scope(self._core, around, f"{kind} {self.id}", {}, budget)
            return self._scopes[kind]

    def refusal(self, error: Infeasible) -> MachineError:
        """Return the error for a request that could never be served out of this permission."""
        return MachineError(f"{error}; it was asked for inside {self.id}, which holds {self._in_words()}")

    @property
    def has_scopes(self) -> bool:
        """Whether anything was ever asked for from inside, or as a part."""
        return bool(self._scopes)

    @property
    def has_parts(self) -> bool:
        """Whether it has, or has had, parts."""
        return "parts of" in self._scopes

    def end(self, grace_s: float | None = None) -> None:
        """End what is left inside, and let nothing more in; return when it is gone."""
        with self._lock:
            self._has_ended, scopes = True, list(self._scopes.values())
        while scopes:
            try:
                scopes[-1].dispose(grace_s)
            except DisposeIncomplete as left:  # processes that cannot be killed yet: the permission is theirs
                log.warning("%s has ended, and what it let run has not: %s", self.id, left)
            else:
                scopes.pop()

    @property
    def environment(self) -> dict[str, str]:
        """What is added to the environment of what runs under this permission.

        An authority in there finds its limits in it, as far as the permission says anything of them.
        """
        held = dict(self._demand)
        variables = {LEASE_VARIABLE: self.token, HOME_VARIABLE: self._home.path, **environment_of(self._devices)}
        if "cpu" in held:
            variables["WHYWAIT_SLOTS"] = variables["WHYWAIT_CPU_SLOTS"] = str(held["cpu"])
        for name in ("ram", "vram"):
            if name in held:
                variables[f"WHYWAIT_{name.upper()}_MB_SOFT"] = str(max(1, held[name] // _MB))
        return variables

    @property
    def devices(self) -> dict[str, list[str]]:
        """The units that it holds, by kind."""
        return {kind: list(names) for kind, names in self._devices}

    def _budget(self) -> Budget:
        """Return what requests from inside may have in use at once: what the permission holds, and nothing else."""
        held = dict(self._demand)
        kinds = self._core.root.kernel_scope.pool.devices
        devices = {}
        for kind, names in self._devices:
            share = held.get(MEMORY.get(kind, ""), 0)
            devices[kind] = {name: share or kinds[kind].by_name[name].size for name in names}
        of_devices = {name for kind in kinds for name in (kind, MEMORY.get(kind))}
        names = (*_WELL_KNOWN, *self._core.root.kernel_scope.pool.resources)
        hard = {name: held.get(name, 0) for name in names if name not in of_devices}
        return Budget({**hard, PLACES: max(1, held.get("cpu", 0))}, {}, devices)

    def _in_words(self) -> str:
        told = [f"{amount_in_words(name, amount, amount)} {name}" for name, amount in self._demand]
        return " and ".join([", ".join(told[:-1]), told[-1]] if len(told) > 1 else told) or "a slot and nothing else"


class Permissions:
    """All permissions that hold, by their tokens."""

    def __init__(self, core: CoreServices, home: Home) -> None:
        """Start with none; the marks of all are of the family of the home."""
        self._core = core
        self._home = home
        self._family = home.family
        self._by_token: dict[str, Permission] = {}

    def grant(self, scope: Scope, id: str, execution: EngineTask) -> Permission:
        """Return what a task that starts is permitted; requests from inside are served out of it from now on."""
        assert isinstance(execution, Task), "what an engine is given is a task of the kernel"
        permission = Permission(self._core, self._home, scope, id, execution, new_mark(self._family))
        self._by_token[permission.token] = permission
        return permission

    def find(self, token: str | None) -> Permission | None:
        """Return the permission of a token; None if there is none, or it has ended."""
        return None if token is None else self._by_token.get(token)

    def remove(self, permission: Permission) -> None:
        """Forget a permission that has ended."""
        self._by_token.pop(permission.token, None)
