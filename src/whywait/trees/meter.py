"""The meter: how much memory process trees use, looked at by one thread of this program.

It takes at most one part in two hundred of a processor: the more there is to look at, the longer it rests between two
looks. Pages that processes share are counted once: where a tree has several processes, the plain sum of their resident
memory is put right from time to time by what the system knows of shared pages (Pss), which takes longer to ask for.

``Meter._lock`` guards which watches there are and the thread; it may be taken under the lock of a tree. ``Watch._lock``
guards ``ram``, ``peak`` and what was told of them, and which measure counts; nothing is taken under it. What a watch
found (``peak``, ``cpu_s``, ``how``) is read without: single values of which any that it had will do.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from threading import RLock
from time import thread_time
from typing import Final

from whywait.support.forks import own
from whywait.support.logger import log
from whywait.support.threads import lasting_thread
from whywait.trees.system import descendants, stat_of

SHARE: Final = 0.005  # of a processor
SHORTEST_S: Final = 0.1  # between two looks
LONGEST_S: Final = 1.0  # whatever its share then is: memory that grows quickly has to be seen
GOODBYE_S: Final = 1.0
IDLE_LOOKS: Final = 5  # looks without anything to look at before the thread ends
GROWTH: Final = 1.1  # of the plain sum, before the shared pages are asked for again
STEP: Final = 16_000_000  # bytes; smaller changes are told to nothing
STEP_SHARE: Final = 20  # nor is a change by less than one part in so many
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_TICK: Final = os.sysconf("SC_CLK_TCK")
_UTIME, _CSTIME, _RSS = 11, 14, 21  # among the fields of stat, without the first two


class Watch:
    """What one tree uses: what is in its cgroup, or the descendants of its guard."""

    def __init__(self, guard: int, cgroup: str = "", told: Callable[[int], object] | None = None) -> None:
        """Watch a tree; ``told`` is called with the bytes that it uses, whenever they have changed much.

        ``guard`` is the pid of the process below which all of it is, ``cgroup`` the folder of its cgroup, if any.
        """
        self._guard = guard
        self._cgroup = cgroup
        self.told = told
        self.ram = 0  # now
        self.peak = 0
        self.how = "sampled"  # or "cgroup": what measures the memory
        self.cpu_s = 0.0  # of the processes that live, and of those that they have reaped
        self.is_active = False
        self._lock = RLock()
        self._begun = 0  # so many times: a measure of before counts no more
        self._told = 0
        self._plain = self._count = 0  # the plain sum, and the processes, when shared pages were asked for last
        self._twice = 0  # bytes of it that were counted more than once

    def begin(self) -> None:
        """Measure anew from now on."""
        with self._lock:
            self._begun += 1
            self.peak = self._told = 0
        self.is_active = True
        meter.wake()

    def end(self) -> None:
        """Measure no more until it begins anew."""
        self.is_active = False

    def look(self) -> None:
        """Take a measure."""
        begun, told = self._begun, self.told
        ram = self._counted() if self._cgroup else None
        if ram is None:
            ram = self._sampled()
        with self._lock:
            if begun != self._begun:
                return
            self.ram = ram
            self.peak = max(self.peak, ram)
            is_news = abs(ram - self._told) > max(STEP, self._told // STEP_SHARE)
            if is_news:
                self._told = ram
        if is_news and told is not None:
            told(ram)

    def _counted(self) -> int | None:
        """Return the memory that the cgroup counts, less what is only a copy of files; None if it counts none."""
        counts = _controlled(self._cgroup)
        if not counts:
            return None
        self.how = "cgroup"
        copies = counts["inactive_file"] + counts["active_file"] + counts.get("slab_reclaimable", 0)
        return max(0, counts["current"] - copies)

    def _sampled(self) -> int:
        pids = self._pids()
        plain, largest, ticks = 0, 0, 0
        for pid in pids:
            fields = stat_of(pid)
            if fields:
                size = int(fields[_RSS]) * _PAGE
                plain += size
                largest = max(largest, size)
                ticks += sum(map(int, fields[_UTIME : _CSTIME + 1]))
        self.cpu_s = ticks / _TICK
        if len(pids) < 2:  # noqa: PLR2004 - one process shares with none of its tree
            return plain
        if plain > self._plain * GROWTH or len(pids) != self._count:
            own = sum(_proportional(pid) for pid in pids)
            self._plain, self._count, self._twice = plain, len(pids), max(0, plain - own) if own else 0
        return max(largest, plain - self._twice)

    def _pids(self) -> list[int]:
        if not self._cgroup:
            return descendants(self._guard)
        return [pid for folder in _folders(self._cgroup) for pid in _procs(folder)]


class Meter:
    """Looks at all trees that are watched, one after the other."""

    def __init__(self) -> None:
        """Begin without a thread."""
        self._lock = RLock()
        self._watches: list[Watch] = []
        self._thread: threading.Thread | None = None  # while something is looked at, and a moment longer
        self._bell = threading.Event()  # ends the rest of the thread
        self._is_dismissed = False  # the thread is to end with the last watch
        own(self)

    def add(self, watch: Watch) -> Watch:
        """Look at a tree from now on, while the watch is active."""
        with self._lock:
            self._watches.append(watch)
            self._is_dismissed = False
        self.wake()
        return watch

    def remove(self, watch: Watch) -> None:
        """Look at a tree no more."""
        with self._lock:
            self._watches = [each for each in self._watches if each is not watch]
            if self._is_dismissed:
                self._bell.set()

    def wake(self) -> None:
        """See that there is a thread if there is something to look at."""
        with self._lock:
            if self._thread is not None or not self._active():
                return
            self._bell.clear()
            self._thread = lasting_thread(self._run, "whywait-meter")
            try:
                self._thread.start()
            except RuntimeError as error:  # the system gives no more threads; the next tree tries again
                self._thread = None
                log.warning("the memory of process trees is not looked at: %s", error)

    def end(self) -> None:
        """Let the thread end, now or when there is nothing to look at any more."""
        with self._lock:
            thread, self._is_dismissed = self._thread, True
            self._bell.set()
        if thread is not None and not self._active():
            thread.join(GOODBYE_S)

    def let_go(self) -> None:
        """In a fork of this program there is no thread, and nothing to look at."""
        self.__init__()  # type: ignore[misc] # as it was made

    def _active(self) -> list[Watch]:
        return [watch for watch in self._watches if watch.is_active]

    def _run(self) -> None:
        idle = 0
        while True:
            began_s = thread_time()
            active = self._active()
            for watch in active:
                try:
                    watch.look()
                except Exception:
                    log.exception("the memory of a process tree could not be looked at")
            idle = 0 if active else idle + 1
            is_woken = self._bell.wait(min(max(SHORTEST_S, (thread_time() - began_s) / SHARE), LONGEST_S))
            with self._lock:
                if (is_woken or idle > IDLE_LOOKS) and not self._active():
                    self._thread = None
                    return
                self._bell.clear()


def _controlled(group: str) -> dict[str, int]:
    """Return what a cgroup counts of memory; empty if it does not."""
    try:
        with open(f"{group}/memory.current", "rb", buffering=0) as file:
            current = int(file.read())
        with open(f"{group}/memory.stat", "rb", buffering=0) as file:
            words = file.read(16384).split()
    except OSError:
        return {}
    return {"current": current, **dict(zip(map(bytes.decode, words[::2]), map(int, words[1::2]), strict=False))}


def _folders(group: str) -> list[str]:
    """Return a cgroup and those inside it."""
    try:
        if os.stat(group).st_nlink <= 2:  # noqa: PLR2004 - a folder without folders; asked for often
            return [group]
    except OSError:
        return []
    return [folder for folder, _, _ in os.walk(group)]


def _procs(group: str) -> list[int]:
    try:
        with open(f"{group}/cgroup.procs", "rb", buffering=0) as file:
            data = b""
            while part := file.read(65536):
                data += part
    except OSError:
        return []
    return [int(word) for word in data.split()]


def _proportional(pid: int) -> int:
    """Return the memory of a process in bytes, with its part only of what it shares; 0 if that cannot be told."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb", buffering=0) as file:
            words = file.read(4096).partition(b"\nPss:")[2].split(None, 1)
    except OSError:
        return 0
    return int(words[0]) * 1024 if words else 0


meter: Final = Meter()
