"""The child processes of an engine: found for a task, kept while they are idle, replaced, buried.

A thread that takes a process out of the idle ones is its one user until it lets the process idle again.
``Crew._lock`` guards which processes there are and which are idle.

An initializer may be handed what processes share by inheriting it: locks, queues, pipes and shared values of
``multiprocessing``. They can be pickled only while ``multiprocessing`` starts a process, so it is made to believe that
it does. It asks for a number for each file descriptor that they need: the number which that one has in the new process.
"""

from __future__ import annotations

import io
import sys
from collections import ChainMap
from collections.abc import Callable
from operator import attrgetter
from threading import RLock
from typing import Any, ClassVar, Final, NamedTuple, Self

from whywait.engines.process.messages import forget_streams
from whywait.engines.process.pickling import PROTOCOL, dumps
from whywait.engines.process.process import FIRST_GIVEN_FD, GOODBYE_S, ChildProcess
from whywait.errors import ConfigError
from whywait.kernel.devices import Assigned
from whywait.support.units import parse_size


class CannotSetUp(Exception):
    """The initializer could not be pickled for a new process; the error is the argument."""


class Upkeep(NamedTuple):
    """How an engine keeps its child processes."""

    initializer: Callable[..., object] | None
    initargs: tuple[Any, ...]
    max_tasks: int | None  # after so many tasks a process is replaced
    max_ram: int | None  # and if it holds more bytes than this after a task, with all its descendants

    @classmethod
    def checked(
        cls,
        initializer: Callable[..., object] | None,
        initargs: tuple[Any, ...],
        max_tasks: int | None,
        max_ram: int | str | None,
    ) -> Self:
        """Check the settings of users."""
        if initializer is not None and not callable(initializer):
            raise ConfigError(f"initializer {initializer!r} is not allowed: use a function")
        if not isinstance(initargs, tuple):
            raise ConfigError(f"initargs {initargs!r} is not allowed: use a tuple of arguments")
        if max_tasks is not None and (isinstance(max_tasks, bool) or not isinstance(max_tasks, int) or max_tasks < 1):
            raise ConfigError(f"max_tasks_per_child {max_tasks!r} is not allowed: use an int of 1 or more, or None")
        try:
            ram = None if max_ram is None else parse_size(max_ram)
        except ConfigError as error:
            raise ConfigError(f"max_ram_per_child: {error}") from None
        return cls(initializer, initargs, max_tasks, ram)

    def pack(self, first_fd: int) -> tuple[bytes, list[int]]:
        """Return the initializer pickled for a new process, and our file descriptors that it needs.

        The process has them under the numbers from ``first_fd`` on.
        """
        if self.initializer is None:
            return b"", []
        call = self.initializer, self.initargs
        if "multiprocessing.context" not in sys.modules:  # then there is nothing of it among the arguments
            return dumps(call), []
        return _dumps_for_spawn(call, first_fd)


class Crew:
    """All child processes of one engine."""

    def __init__(self, upkeep: Upkeep) -> None:
        """Begin without any."""
        self._upkeep = upkeep
        self._lock = RLock()
        self.processes: set[ChildProcess] = set()
        self._idle: list[ChildProcess] = []  # the one that has been idle longest comes first
        self.grace_s = 0.0  # how long one that has something to do at its end may take

    def idle(self, devices: Assigned) -> ChildProcess | None:
        """Return an idle process that is bound to these units, if there is one."""
        with self._lock:
            for process in reversed(self._idle):
                if process.devices == devices:
                    self._idle.remove(process)
                    return process
        return None

    def start(self, devices: Assigned) -> ChildProcess:
        """Return a new process; these units are its own for life."""
        if devices:
            wanted = _units(devices)
            self._retire(lambda process: bool(wanted & _units(process.devices)))  # it may hold memory of them
        try:
            setup = self._upkeep.pack(FIRST_GIVEN_FD)
        except BaseException as error:
            raise CannotSetUp(error) from error
        process = ChildProcess(devices, *setup)
        with self._lock:
            self.processes.add(process)
        return process

    def let_idle(self, process: ChildProcess) -> None:
        """Keep a process for the tasks to come."""
        with self._lock:
            self._idle.append(process)
        if process.is_stale:  # since it was looked at
            self._retire(_is_stale)

    def has_served(self, process: ChildProcess) -> bool:
        """Return whether a process has done as many tasks as one may, holds more memory, or what is to be closed."""
        tasks, ram = self._upkeep.max_tasks, self._upkeep.max_ram
        return (
            process.is_stale
            or (tasks is not None and process.answers >= tasks)
            or (ram is not None and process.ram() > ram)
        )

    def see_off(self, process: ChildProcess) -> None:
        """Let a process end by itself, kill it after the grace, and bury it."""
        process.dismiss()
        process.wait_end(self.grace_s)
        self.lose(process)

    def lose(self, process: ChildProcess) -> str:
        """Bury a process; return how it ended."""
        process.end()
        forget_streams(process)
        with self._lock:
            self.processes.discard(process)
        return process.bury()

    def lose_all(self) -> None:
        """Bury all processes; those that were dismissed have the time to end by themselves."""
        self.retire_idle(0)
        for process in list(self.processes):
            if process.is_leaving:
                process.wait_end(self.grace_s)
            self.lose(process)

    def end_holders(self, number: int) -> None:
        """End the processes that may hold a lazy resource, so that they close it; one that is busy after its task."""
        for process in list(self.processes):
            if number in process.lent:
                process.is_stale = True
        self._retire(_is_stale)

    def retire_idle(self, keep: int) -> None:
        """End idle processes until only so many are left, the one that has been idle longest first."""
        with self._lock:
            surplus = self._idle[: max(0, len(self._idle) - keep)]
        self._retire(surplus.__contains__)

    def _retire(self, is_over: Callable[[ChildProcess], bool]) -> None:
        """End the idle processes for which that holds."""
        with self._lock:
            retiring = [process for process in self._idle if is_over(process)]
            for process in retiring:
                self._idle.remove(process)
                process.dismiss()
        for process in retiring:
            process.wait_end(max(GOODBYE_S, self.grace_s) if process.lent else GOODBYE_S)
            self.lose(process)


def _is_stale(process: ChildProcess) -> bool:
    return process.is_stale


def _units(devices: Assigned) -> set[tuple[str, str]]:
    return {(kind, name) for kind, names in devices for name in names}


_reducers: Final = attrgetter("_extra_reducers")  # where ``multiprocessing`` keeps how connections are pickled


class _Spawning:
    """What ``multiprocessing`` takes for the process that it starts."""

    def __init__(self, first_fd: int) -> None:
        from multiprocessing.popen_spawn_posix import Popen

        self.DupFd = Popen.DupFd
        self._first_fd = first_fd
        self.fds: list[int] = []

    def duplicate_for_child(self, fd: int) -> int:
        """Return the number under which the process will have a file descriptor."""
        self.fds.append(fd)
        return self._first_fd + len(self.fds) - 1


def _dumps_for_spawn(value: Any, first_fd: int) -> tuple[bytes, list[int]]:
    from multiprocessing.context import set_spawning_popen
    from multiprocessing.reduction import ForkingPickler

    import cloudpickle  # type: ignore[import-untyped]

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
        dispatch_table: ClassVar = ChainMap(_reducers(ForkingPickler), cloudpickle.Pickler.dispatch_table)

    file, spawning = io.BytesIO(), _Spawning(first_fd)
    set_spawning_popen(spawning)  # type: ignore[arg-type] # no more of it is used
    try:
        Pickler(file, PROTOCOL).dump(value)
    finally:
        set_spawning_popen(None)
    return file.getvalue(), spawning.fds
