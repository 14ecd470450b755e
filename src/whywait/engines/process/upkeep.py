"""Upkeep: what each new child process calls first, and when one has served long enough.

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
from typing import Any, ClassVar, Final, NamedTuple, Self

from whywait.engines.process.pickling import PROTOCOL, dumps
from whywait.errors import ConfigError
from whywait.support.units import parse_size

try:
    import cloudpickle  # type: ignore[import-untyped]
except ImportError:
    cloudpickle = None  # the engine has said so


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

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
        dispatch_table: ClassVar = ChainMap(_reducers(ForkingPickler), cloudpickle.Pickler.dispatch_table)

    file, spawning = io.BytesIO(), _Spawning(first_fd)
    set_spawning_popen(spawning)  # type: ignore[arg-type] # no more of it is used
    try:
        Pickler(file, PROTOCOL).dump(value)
    finally:
        set_spawning_popen(None)
    return file.getvalue(), spawning.fds
