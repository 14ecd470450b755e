"""What is asked of the system about processes and groups of them; guards import it, so it imports little."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import struct
import sys
import time

TYPE_CHECKING = False  # see the package itself
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

SUBREAPER, DEATH_SIGNAL, _NAME = 36, 1, 15  # PR_SET_CHILD_SUBREAPER, PR_SET_PDEATHSIG, PR_SET_NAME of <sys/prctl.h>
FAMILIES = 1 << 30
_OWN_BITS = 32
_MARKS = 1 << 62  # the least mark: no limit that anything else would set
_KILLS_S = 0.1  # the system takes a tenth of a millisecond to tell: too long for each start of a command
_ROUND_S = 0.01  # between two rounds of killing
_ROUNDS_S = 0.2  # of signals to a tree that grows as quickly
_STOPS_S = 1.0  # the same for stops; a busy machine takes its time
_STOPPING_S = 0.001  # what a process needs to stop
_REPLACED_WITHIN_S = 1.0  # a program takes the place of another in this time
_IS_EXITING = 0x4  # in the flags of a process: it gives its memory back, and runs nothing any more
_IS_OF_KERNEL = 0x200000  # in the flags of a process: it is a thread of the system itself
_SYS_CLONE3, _CLONE_INTO_CGROUP = 435, 0x200000000  # of <sys/syscall.h>, on all machines, and <linux/sched.h>
_CLONE = struct.Struct("11Q")  # struct clone_args
_ENDED = (b"Z", b"X")  # and not reaped yet
_libc = ctypes.PyDLL(None, use_errno=True)  # holds the interpreter's lock: a fork comes back with it


def program_file(name: str, env: Mapping[str, str], directory: str = "") -> str:
    """Return the file of a program, found as a shell finds it: by the PATH of its own environment, from a directory."""
    if "/" in name:
        return os.path.join(directory, name)
    for folder in env.get("PATH", os.defpath).split(":"):
        path = os.path.join(directory, folder, name)
        if os.access(path, os.X_OK) and os.path.isfile(path):
            return path
    raise FileNotFoundError(2, "not found")


def stat_of(pid: int | str) -> list[bytes]:
    """Return the fields of ``/proc/PID/stat`` from the third on, also of ``PID/task/TID``; none if it is not there."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            return file.read(4096).rpartition(b")")[2].split()  # the name before it may contain anything
    except OSError:
        return []


def is_stopped(pid: int) -> bool:
    """Return whether the system has stopped a process, as Ctrl-Z does."""
    fields = stat_of(pid)
    return bool(fields) and fields[0] == b"T"


def started_at(pid: int) -> int:
    """Return when a process was started, in ticks since boot: with its pid this is unique; 0 if it has ended."""
    fields = stat_of(pid)
    return 0 if _has_ended(fields) else int(fields[19])


def _has_ended(fields: list[bytes]) -> bool:
    """Return whether a process has ended: all its threads have, of which the first may do so long before the others."""
    return not fields or (fields[0] in _ENDED and int(fields[17]) <= 1)


def descendants(pid: int) -> list[int]:
    """Return the children of a process, their children and so on, as far as they can be seen; those that ended too."""
    found: list[int] = []
    todo = [pid]
    table: dict[int, list[int]] | None = None
    while todo:
        parent = todo.pop()
        children = _children(parent) if table is None else table.get(parent, [])
        if children is None:  # this system does not tell the children of a process
            table = _table()
            children = table.get(parent, [])
        found += children
        todo += children
    return found


def _children(pid: int) -> list[int] | None:
    """Return the children of all threads of a process; None where the system does not tell."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []  # it has ended
    found: list[int] = []
    for thread in threads:
        try:
            with open(f"/proc/{pid}/task/{thread}/children", "rb", buffering=0) as file:
                while data := file.read(65536):
                    found += map(int, data.split())
        except FileNotFoundError:
            if not os.path.exists(f"/proc/self/task/{os.getpid()}/children"):
                return None
        except OSError:
            continue  # it has ended
    return found


def _table() -> dict[int, list[int]]:
    """Return the children of every process, from the parent that each one names."""
    table: dict[int, list[int]] = {}
    for pid in _all_pids():
        fields = stat_of(pid)
        if fields:
            table.setdefault(int(fields[1]), []).append(pid)
    return table


def _all_pids() -> list[int]:
    if not os.path.isdir("/proc"):
        return []
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]


def send_signal(pid: int, number: int) -> None:
    """Send a signal to a process, should it still be there and ours."""
    with contextlib.suppress(OSError):
        os.kill(pid, number)


def signal_descendants(number: int) -> bool:
    """Send a signal to all descendants of this process, in rounds, until nothing new is found or there is no end to it.

    A process may start another while it is being stopped: so those rounds go on until none is found that runs. Return
    whether it has come to that.
    """
    told: set[int] = set()
    stops = number == signal.SIGSTOP
    deadline = time.monotonic() + (_STOPS_S if stops else _ROUNDS_S)
    while due := [pid for pid in descendants(os.getpid()) if pid not in told or (stops and _runs(pid))]:
        for pid in due:
            send_signal(pid, number)
        if time.monotonic() > deadline:
            return False
        if told.issuperset(due):
            time.sleep(_STOPPING_S)
        told.update(due)
    return True


def _runs(pid: int) -> bool:
    """Return whether a thread of a process has not stopped, though the system could stop it."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return False  # it has ended
    return any(stat_of(f"{pid}/task/{thread}")[:1] in ([b"R"], [b"S"]) for thread in threads)


def kill_cgroup(path: str) -> bool:
    """Kill all processes of a cgroup and of those inside it; return whether the system has done so."""
    try:
        with open(f"{path}/cgroup.kill", "wb", buffering=0) as file:
            file.write(b"1")
    except OSError:
        return False
    return True


def cpu_of_cgroup(path: str) -> float:
    """Return the seconds of CPU time that all processes of a cgroup have used, those that ended included."""
    return _number_in(f"{path}/cpu.stat", b"usage_usec") / 1e6


def oom_kills(path: str) -> int:
    """Return how many processes of a cgroup the system has killed for lack of memory, as far as the cgroup tells."""
    return _number_in(f"{path}/memory.events", b"oom_kill") if path else 0


class _KillsForMemory:
    """How many processes of this machine the system has killed for lack of memory, as it was told last."""

    def __init__(self) -> None:
        self._count, self._asked_s = 0, -_KILLS_S

    def __call__(self, *, now: bool = False) -> int:
        """Return the number, a moment old unless it is asked for ``now``; 0 if the system does not tell."""
        if now or time.monotonic() > self._asked_s + _KILLS_S:
            self._count, self._asked_s = _number_in("/proc/vmstat", b"oom_kill"), time.monotonic()
        return self._count


kills_for_memory = _KillsForMemory()


def _number_in(path: str, name: bytes) -> int:
    """Return the number behind a name in a file of names and numbers; 0 if there is none."""
    try:
        with open(path, "rb", buffering=0) as file:
            words = file.read(65536).split()
        return int(words[words.index(name) + 1])
    except (OSError, ValueError):
        return 0


def remove_cgroup(path: str) -> None:
    """Remove a cgroup in which no process is left, with those inside it."""
    for inside, _, _ in os.walk(path, topdown=False):
        with contextlib.suppress(OSError):
            os.rmdir(inside)


def fork_into(group: str) -> int:
    """Fork into a cgroup, of a program with one thread; to enter one later would take the system milliseconds."""
    folder = os.open(group, os.O_RDONLY | os.O_DIRECTORY)
    arguments = _CLONE.pack(_CLONE_INTO_CGROUP, 0, 0, 0, signal.SIGCHLD, 0, 0, 0, 0, 0, folder)
    ctypes.pythonapi.PyOS_BeforeFork()  # takes locks that the child gives back: since Python 3.13 it has to hold them
    pid: int = _libc.syscall(_SYS_CLONE3, arguments, _CLONE.size)
    if pid:
        ctypes.pythonapi.PyOS_AfterFork_Parent()
    else:
        ctypes.pythonapi.PyOS_AfterFork_Child()
    os.close(folder)
    if pid < 0:
        raise OSError(ctypes.get_errno(), "clone3")
    return pid


def prctl(option: int, value: int) -> None:
    """Ask the system for something about this process; other systems than Linux do not have it."""
    if sys.platform == "linux":
        _libc.prctl(option, value, 0, 0, 0)


def name_process(name: str) -> None:
    """Have this process listed under a name of at most 15 letters: what ends all of a name should not hit it too."""
    if sys.platform == "linux":
        _libc.prctl(_NAME, name.encode(), 0, 0, 0)


def new_mark(family: int = 0) -> int:
    """Return a mark for a tree, which no other has; families, numbers below ``FAMILIES``, can be told apart."""
    return _MARKS + (family << _OWN_BITS) + int.from_bytes(os.urandom(_OWN_BITS // 8), "big")


def family_of(mark: int) -> int:
    """Return the family of a mark."""
    return (mark - _MARKS) >> _OWN_BITS


def mark_of(pid: int) -> int:
    """Return the mark of a process; 0 if it has none, has ended, or belongs to another user."""
    try:
        with open(f"/proc/{pid}/limits", "rb", buffering=0) as file:
            soft = file.read(4096).partition(b"Max realtime timeout")[2].split(None, 1)[0]
    except (OSError, IndexError):
        return 0
    return int(soft) if soft.isdigit() and int(soft) >= _MARKS else 0


def marked(is_ours: Callable[[int], bool]) -> list[int]:
    """Return the other processes that have such marks and have not ended."""
    found = (pid for pid in _all_pids() if (mark := mark_of(pid)) and is_ours(mark))
    return [pid for pid in found if pid != os.getpid() and started_at(pid)]


def bearers(variable: str, marks: Collection[int]) -> dict[int, list[int]]:
    """Return by mark the processes that have it, or were started with it, in hex, as a variable of their environment.

    A process that another program is just taking the place of has no environment for a moment: all such are looked at
    again together, for one second in all.
    """
    found: dict[int, list[int]] = {}
    told = {f"{variable}={mark:x}".encode(): mark for mark in marks}
    start = f"{variable}=".encode()
    deadline = time.monotonic() + _REPLACED_WITHIN_S
    looked_at = _all_pids()
    while True:
        undecided = []
        for pid in looked_at:
            mark: int | None = mark_of(pid)
            if mark in marks:
                if pid == os.getpid() or not started_at(pid):
                    continue
            elif (environment := _environment(pid)) is None:
                undecided.append(pid)
                continue
            else:
                words = environment.split(b"\0") if start in environment else ()
                mark = next((told[each] for each in words if each in told), None)
            if mark is not None:
                found.setdefault(mark, []).append(pid)
        if not undecided or time.monotonic() >= deadline:
            return found
        time.sleep(_ROUND_S)
        looked_at = undecided


def _environment(pid: int) -> bytes | None:
    """Return the environment of a process, empty if it has none or cannot be read; None if it is not known yet."""
    try:
        for is_last in (False, True):  # it may become known between the two looks
            with open(f"/proc/{pid}/environ", "rb") as environ:
                text = environ.read()
            if text or is_last:
                return text
            if _is_replaced(pid):
                return None
    except OSError:
        pass  # it has ended, or belongs to another user
    return b""


def _is_replaced(pid: int) -> bool:
    """Return whether a process has begun another program so far that the system does not know its environment yet.

    Its starter goes on before the environment is known: on a busy machine it is often seen so.
    """
    fields = stat_of(pid)
    lacks_memory = bool(fields) and fields[0] not in _ENDED and fields[48] == b"0"
    return lacks_memory and not int(fields[6]) & (_IS_OF_KERNEL | _IS_EXITING)


def end_marked(is_ours: Callable[[int], bool], within_s: float) -> bool:
    """Kill all processes with such marks until none lives; return whether that is so in time."""
    deadline = time.monotonic() + within_s
    while left := marked(is_ours):
        for pid in left:
            send_signal(pid, signal.SIGKILL)
        if time.monotonic() > deadline:  # not before: on a busy machine the first look may take as long
            return False
        time.sleep(_ROUND_S)
    return True


def set_mark(mark: int) -> None:
    """Mark this process and all that it will start, whatever environment, session or parent they give themselves.

    The mark is a limit that all descendants inherit and no program minds: the time that a process of realtime priority
    may run without a rest, of some ten thousand years and more.
    """
    kind = getattr(resource, "RLIMIT_RTTIME", None)
    if kind is not None and (most := resource.getrlimit(kind)[1]) == resource.RLIM_INFINITY:
        resource.setrlimit(kind, (mark, most))
