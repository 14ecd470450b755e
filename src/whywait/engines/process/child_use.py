"""What a body uses of the process that runs it: CPU time, and the peak of memory."""

from __future__ import annotations

import resource
import sys
from time import monotonic_ns, process_time_ns

SHORTEST_NS = 10_000_000  # a body that ran for less is not worth the look
_UNIT = 1 if sys.platform == "darwin" else 1024


class Use:
    """Measures one body after the other."""

    __slots__ = ("_began_ns", "_children_ns", "_cpu_ns")

    def __init__(self) -> None:
        """Begin with the first body."""
        self._children_ns = 0  # CPU time of processes that were waited for, up to the last measure
        self.begin()

    def begin(self) -> None:
        """Take note that a body begins."""
        self._began_ns = monotonic_ns()
        self._cpu_ns = process_time_ns()

    def end(self) -> tuple[int, int] | None:
        """Return CPU time in ns and peak memory in bytes of the body that ends; None if it was too short."""
        if monotonic_ns() - self._began_ns < SHORTEST_NS:
            return None
        before = self._children_ns
        reaped = resource.getrusage(resource.RUSAGE_CHILDREN)
        self._children_ns = round((reaped.ru_utime + reaped.ru_stime) * 1e9)
        return process_time_ns() - self._cpu_ns + self._children_ns - before, _peak()


def _peak() -> int:
    """Return the peak of the memory of this process since the last time, where the system can forget it."""
    try:
        with open("/proc/self/status", "rb", buffering=0) as file:  # noqa: PTH123 - done for each body
            words = file.read(8192).partition(b"VmHWM:")[2].split(None, 1)
        with open("/proc/self/clear_refs", "wb", buffering=0) as file:  # noqa: PTH123 - the same
            file.write(b"5")  # begins a new peak
        return int(words[0]) * 1024
    except (OSError, IndexError):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _UNIT
