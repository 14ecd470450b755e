"""The service: one authority for a whole computer, with its jobs and leases; ``whywait up`` runs it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Final

from whywait.errors import MachineError
from whywait.kernel.order import Aging
from whywait.kernel.state import Wait
from whywait.machine import moments
from whywait.machine.beginning import Taken, outwait
from whywait.machine.client import Machine
from whywait.machine.home import Home
from whywait.machine.job_engine import JobEngine
from whywait.machine.jobs import Jobs
from whywait.machine.kept import token_of
from whywait.machine.leases import Leases
from whywait.machine.permissions import Permissions
from whywait.machine.store import Store
from whywait.runtime.authority import Authority, core_of
from whywait.runtime.scope import Scope, open_of
from whywait.runtime.settings import Settings
from whywait.trees.system import end_marked, family_of, marked

# What a machine has unless it is told otherwise: jobs last minutes, and memory that is not there is not given away.
DEFAULTS: Final[dict[str, Any]] = {
    "order": Aging(every=600.0, boost=10, cap=99),
    "starvation_timeout": 1800.0,
    "backfill": "greedy",
    "hard_ram": True,
}
KEEP: Final = 10_000  # ended jobs
DAY_S: Final = 86_400.0
KEEP_S: Final = 30 * DAY_S
GONE_S: Final = 5.0
BROKEN: Final = 70  # the exit status of a service whose authority is broken
GRACE_S: Final = 2.0  # for what runs when the service ends
LOOK_S: Final = 0.01


def _end_broken() -> None:
    """End at once, with an error: the next service goes on as after a kill (A2, M5)."""
    os._exit(BROKEN)


class Service:
    """What runs behind the socket of a home.

    It *drains* when it has been told to end: nothing more starts or is accepted, and it ends with what runs.
    """

    def __init__(
        self,
        home: Home,
        *,
        keep: int = KEEP,
        keep_for_s: float = KEEP_S,
        new_token: bool = False,
        **limits: Any,
    ) -> None:
        """Take the home, or refuse if another service has it; take up its jobs.

        It lists up to ``keep`` ended jobs, none longer than ``keep_for_s`` seconds. The environment says nothing about
        its limits: a service belongs to no terminal.
        """
        home.make()
        self.home = home
        self.began = moments.now()
        self.is_draining = False
        self._keep, self._keep_for_s = keep, keep_for_s
        self._aged: moments.Moment | None = None  # when jobs were last forgotten for their age
        self._taken = self._take()
        with ExitStack() as on_error:
            on_error.callback(os.close, self._taken)
            alive = self._outlast_former_life()
            on_error.callback(os.close, alive)
            self.store = Store(home.store)  # now: a service whose lock was removed writes to it until its end
            on_error.callback(self.store.close)
            settings = Settings.from_env({}, **{**DEFAULTS, "history": home.history, **limits})
            self.authority = Authority(settings=settings)
            on_error.callback(self.authority.dispose)
            self.core = core_of(self.authority)
            self.core.when_broken.append(_end_broken)
            self.jobs = Jobs(self.authority, self.store, home)
            permissions = Permissions(self.core, home)
            self.jobs.engine = JobEngine(self.jobs.scope, permissions, home, alive)
            self.leases = Leases(self.jobs, permissions)
            self.jobs.take_up()
            self.tidy()
            self._alive = alive
            if new_token:
                token_of(home, new=True)
            on_error.pop_all()

    def drain(self, when_done: Callable[[], None]) -> None:
        """Start and accept nothing more; call ``when_done`` when nothing runs any more."""
        self.is_draining = True
        self.core.resize({Wait.SLOT: 0}, {})
        for lease in self.leases.waiting():
            lease.handle.cancel()
        kernel = self.core.kernel

        def look(_: object) -> None:
            if not kernel.running:
                end_looking()
                when_done()

        with self.core.lock:
            end_looking = self.core.tap(look)
            look(None)

    def waiting_for_cpu(self, scope: Scope) -> int:
        """Return how many tasks wait for cpu of the budget that a scope has."""
        gate = open_of(scope).record.kernel_scope.pool.resources.get("cpu")
        with self.core.lock:
            benches = () if gate is None else gate.benches.values()
            return sum(len(lane) for bench in benches for lane in bench.lanes_in_order())

    def tidy(self) -> None:
        """Forget ended jobs if a tenth too many are there, and once a day those that are too old."""
        now = moments.now()
        is_due = self._aged is None or moments.seconds_between(self._aged, now) > DAY_S
        if is_due:
            self._aged = now
        if is_due or len(self.jobs.by_number) > self._keep * 1.1 + 1:
            self.jobs.keep(self._keep, self._keep_for_s)

    def refuse_if_draining(self) -> None:
        """Raise if nothing more is accepted."""
        if self.is_draining:
            raise MachineError("the service is ending: it takes nothing more; what waits is kept for the next one")

    def close(self) -> None:
        """End everything that runs, keep what waits, and leave the home."""
        self.is_draining = True
        self.jobs.close()  # what is ended from here on counts as lost: the next service takes it up
        self.store.close()
        self.authority.dispose(grace=GRACE_S)
        os.close(self._alive)
        os.close(self._taken)

    def _take(self) -> int:
        while (taken := self.home.take()) is None:
            if outwait(self.home, Machine(self.home).runs):
                raise Taken(self.home)
        return taken

    @property
    def has_its_home(self) -> bool:
        """Whether the folder is still there that this service has taken."""
        return self.home.is_ours(self._taken)

    def _outlast_former_life(self) -> int:
        """Wait until nothing of a former service lives; return a descriptor for what this one starts to hold."""
        deadline = time.monotonic() + GONE_S
        while (alive := self.home.take_remains()) is None:
            if time.monotonic() > deadline:
                raise MachineError(
                    f"jobs of a former service still run {GONE_S:g} s after its end, and cannot be ended; "
                    f"fuser {self.home.alive} names them"
                )
            time.sleep(LOOK_S)
        self._end_strays()
        return alive

    def _end_strays(self) -> None:
        """End what a former service has left and nothing guards any more; what is guarded is given the time to end."""
        family, deadline = self.home.family, time.monotonic() + GRACE_S
        while strays := marked(lambda mark: family_of(mark) == family):
            if time.monotonic() > deadline:
                if not end_marked(lambda mark: family_of(mark) == family, GONE_S):
                    raise MachineError(f"processes of a former service cannot be ended: {', '.join(map(str, strays))}")
                return
            time.sleep(LOOK_S)
