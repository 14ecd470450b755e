"""The child processes of an engine: found for a task, kept while they are idle, replaced, buried.

Whatever thread takes a process out of the idle ones is its one user until it lets the process idle again.

There is no lock: ``processes`` is a set, ``_idle`` a dict that only grows, its values and ``_making`` are deques, and
each is used in single steps, or copied in one. ``is_stale`` of a process is set once, for good.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from time import monotonic

from whywait.engines.process.messages import forget_streams
from whywait.engines.process.process import FIRST_GIVEN_FD, ChildProcess
from whywait.engines.process.upkeep import Upkeep
from whywait.kernel.devices import Assigned


class CannotSetUp(Exception):  # noqa: N818 - never leaves the engine
    """The initializer could not be pickled for a new process; the error is the argument."""


class Crew:
    """All child processes of one engine."""

    def __init__(self, upkeep: Upkeep, when_free: Callable[[], None]) -> None:
        """Begin without any; ``when_free`` is called when a process is idle, or gone so that there may be another."""
        self._upkeep = upkeep
        self._when_free = when_free
        self.processes: set[ChildProcess] = set()
        self._making: deque[None] = deque()  # one for each that is being started: several threads of the pump may do so
        self.grace_s = 0.0  # how long one that has resources to close may take to its end
        self._idle: dict[Assigned, deque[ChildProcess]] = {}  # by the units they are bound to

    def find(self, devices: Assigned) -> ChildProcess:
        """Return an idle process that is bound to these units, or a new one; it is theirs for life."""
        try:
            return self._idle_of(devices).pop()
        except IndexError:
            self._retire_from(devices)
            try:
                setup = self._upkeep.pack(FIRST_GIVEN_FD)
            except BaseException as error:
                raise CannotSetUp(error) from error
            self._making.append(None)
            try:
                process = ChildProcess(devices, *setup)
                self.processes.add(process)
            finally:
                self._making.pop()
            return process

    def _idle_of(self, devices: Assigned) -> deque[ChildProcess]:
        return self._idle.setdefault(devices, deque())

    def has_any(self) -> bool:
        """Return whether there is a process, or one is being started."""
        return bool(self._making or self.processes)  # in this order: it is one of the processes before it is made

    def has_idle(self, devices: Assigned) -> bool:
        """Return whether :meth:`find` would find a process."""
        return bool(self._idle.get(devices))

    def let_idle(self, process: ChildProcess) -> None:
        """Keep a process for the tasks to come."""
        process.idle_since_s = monotonic()
        self._idle_of(process.devices).append(process)
        if process.is_stale:  # since it was looked at
            self._retire(process.devices, 0.0, stale_only=True)
        self._when_free()

    def has_served(self, process: ChildProcess) -> bool:
        """Return whether a process has done as many tasks as one may, holds more memory, or what is to be closed."""
        if process.is_stale:
            return True
        tasks, ram = self._upkeep.max_tasks, self._upkeep.max_ram
        return (tasks is not None and process.answers >= tasks) or (ram is not None and process.ram() > ram)

    def lose(self, process: ChildProcess) -> str:
        """Bury a process; return how it ended. One that could not begin makes no room: another one could not either."""
        process.end()
        forget_streams(process)
        self.processes.discard(process)
        how = process.bury()
        if process.refusal is None:
            self._when_free()
        return how

    def lose_all(self) -> None:
        """Bury all processes; those that were dismissed have the time to end by themselves."""
        self.retire_idle(0.0)
        for process in list(self.processes):
            if process.is_leaving:
                process.wait_end(self.grace_s)
            self.lose(process)

    def end_holders(self, number: int) -> None:
        """End the processes that may hold a lazy resource, so that they close it; one that is busy after its task."""
        for process in list(self.processes):
            if number in process.lent:
                process.is_stale = True
        for devices in list(self._idle):
            self._retire(devices, 0.0, stale_only=True)

    def retire_idle(self, idle_s: float) -> None:
        """End the processes that had nothing to do for so long."""
        for devices in list(self._idle):
            self._retire(devices, idle_s)

    def _retire_from(self, devices: Assigned) -> None:
        """End idle processes that are bound to any of these units and others: they may hold memory of them."""
        if devices:
            wanted = _units(devices)
            for bound in list(self._idle):
                if bound != devices and wanted & _units(bound):
                    self._retire(bound, 0.0)

    def _retire(self, devices: Assigned, idle_s: float, *, stale_only: bool = False) -> None:
        """End those of them that are bound to these units."""
        retiring = []
        before, idle = monotonic() - idle_s, self._idle_of(devices)
        for process in list(idle):
            if process.idle_since_s <= before and (process.is_stale or not stale_only):
                with suppress(ValueError):  # another thread has taken it
                    idle.remove(process)
                    process.dismiss()
                    retiring.append(process)
        for process in retiring:
            process.wait_end(self.grace_s)
            self.lose(process)


def _units(devices: Assigned) -> set[tuple[str, str]]:
    return {(kind, name) for kind, names in devices for name in names}
