"""What the client of a lease uses: looked at from the service, as the trees of its own are."""

from __future__ import annotations

from collections.abc import Callable

from whywait.support.usage import Usage
from whywait.trees.meter import Watch, meter
from whywait.trees.system import descendants


class _Client:
    """A client, as far as it is measured."""

    cgroup = ""

    def __init__(self, pid: int) -> None:
        self.guard = pid


class ClientWatch(Watch):
    """What a client uses under its permission.

    Of a command: all its descendants, that is, what is below the guard that the client forks (``do_guard.py``). Of a
    block of Python: the process of the client and its descendants, whatever else that process does.
    """

    def __init__(self, pid: int, told: Callable[[int], object] | None, *, is_block: bool) -> None:
        """Watch a client; ``told`` is called with the bytes that it uses, whenever they have changed much."""
        super().__init__(_Client(pid), told)
        self._pid = pid
        self._is_block = is_block
        self._guard = 0  # once it is there
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
