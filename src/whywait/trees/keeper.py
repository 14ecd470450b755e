"""What runs in the keeper process: start child processes for a program, and see that nothing of them outlives it.

It runs in one thread, so that it may fork, and imports little of the standard library and nothing else of whywait.

1. The program (``keepers.py``) sends a socket, the *line*, when it wants a child process and has no guard to spare. The
   keeper forks a *guard*, which reads from the line what to run and starts it. A guard whose tree is gone takes the
   next from the same line: a fork costs more than a short command does.
2. A guard is the subreaper of its child process: a descendant whose parent has ended becomes a child of the guard,
   whatever session, group or environment it has given itself. So the guard has children as long as anything lives of
   the tree, it can find all of it, and it knows what all of it used.
3. A guard kills everything of its tree when it is told to, and when the other end of its line closes, that is, when
   the program is gone. Where a cgroup can be made the guard is in one, and all that it starts.
4. The keeper is the subreaper of its guards. If a guard is killed, what it had becomes children of the keeper and is
   killed, by its cgroup in a single step. When the program is gone, the keeper wakes guards that were stopped, and
   kills what is left.
5. If the keeper is killed or stopped, guards and trees go on. The program notices before it starts the next child
   process, makes another keeper, and tells it of the guards that there are. If a guard is killed then, the program
   kills what it had: by the cgroup, and by a mark that all processes of a tree inherit (``system.set_mark``).
"""

from __future__ import annotations

import contextlib
import gc
import os
import select
import signal
import socket
import time

from whywait.trees import guard
from whywait.trees.system import (
    descendants,
    fork_into,
    kill_cgroup,
    name_process,
    remove_cgroup,
    send_signal,
    started_at,
    stat_of,
)
from whywait.trees.wire import ADOPT, CALL, HANDSHAKE, LOST, PART_SIZE, RETIRE

ROUND_S = 0.01  # between two rounds of killing
GUARDS_S = 2.0  # how long guards may take to end their trees before the keeper kills them too


def main(base: str, token: str) -> None:
    """Fork a guard for each line that comes, until the program is gone or wants no more."""
    guard.ignore_signals()
    name_process("tree-keeper")
    gc.disable()
    gc.freeze()
    Keeper(socket.socket(fileno=0), f"{base}/whywait-{token}" if base else "").serve()


class Keeper:
    """The one process that forks guards."""

    def __init__(self, program: socket.socket, prefix: str) -> None:
        """Serve a program; ``prefix`` begins the names of cgroups."""
        self.program = program
        self.prefix = prefix  # of the names of cgroups; empty: no cgroup can be made
        self.wake = guard.become_subreaper()
        self.lines: dict[int, socket.socket] = {}  # by the pid of the guard
        self.groups: dict[int, str] = {}  # their cgroups, if they have any
        self.count = 0  # of the cgroups that were made
        self.adopted: set[tuple[int, int]] = set()  # pid and start time of guards of an earlier keeper
        self.is_retired = False

    def serve(self) -> None:
        """Do what the program asks until it is gone or wants no more."""
        poll = select.poll()
        poll.register(self.program, select.POLLIN)
        poll.register(self.wake, select.POLLIN)
        while not (self.is_retired and not self.lines):
            for fd, _ in poll.poll():
                if fd == self.wake:
                    os.read(fd, PART_SIZE)
                    self.reap()
                elif not self.take():
                    self.end_all()
                    return

    def take(self) -> bool:
        """Do what the program asks; return whether it is still there."""
        try:
            data, fds, _, _ = socket.recv_fds(self.program, CALL.size, 1)
        except OSError:
            return False
        if len(data) < CALL.size:
            return False
        kind, pid, started = CALL.unpack(data)
        if kind == HANDSHAKE and fds:
            os.set_inheritable(fds[0], False)  # noqa: FBT003 - takes no keyword
            self.fork(socket.socket(fileno=fds[0]))
        elif kind == RETIRE:
            self.is_retired = True
        elif kind == ADOPT:
            self.adopted.add((pid, started))
        return True

    def fork(self, line: socket.socket) -> None:
        """Fork a guard for a line."""
        group = self.new_group()
        try:
            pid, group = fork_to(group)
        except OSError as error:  # the system gives no more processes
            guard.tell(line, ("refused", error.errno, "fork"))
            line.close()
            return
        if pid:
            self.lines[pid], self.groups[pid] = line, group
            return
        code = 1
        try:
            os.close(self.wake)
            self.program.close()
            for other in self.lines.values():
                other.close()
            guard.guard(line, group)
            code = 0
        finally:
            os._exit(code)

    def new_group(self) -> str:
        """Make a cgroup; return its folder, empty if none can be made."""
        if not self.prefix:
            return ""
        self.count += 1
        group = f"{self.prefix}-{self.count}"
        try:
            os.mkdir(group)  # noqa: PTH102 - the quicker way
        except OSError:
            return ""
        return group

    def reap(self) -> bool:
        """Take in the processes that have ended; return whether any child is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if not pid:
                return True
            line, group = self.lines.pop(pid, None), self.groups.pop(pid, "")
            if line is not None:
                if status:
                    self.end_orphans(group)
                    guard.tell(line, LOST)
                line.close()
            if group:
                remove_cgroup(group)

    def end_orphans(self, group: str) -> None:
        """Kill what is left of a guard that did not end by itself: its cgroup, and all children that are no guards."""
        if group:
            kill_cgroup(group)
        deadline = time.monotonic() + GUARDS_S
        while orphans := [pid for pid in descendants(os.getpid()) if not self.is_of_guard(pid)]:
            for pid in orphans:
                send_signal(pid, signal.SIGKILL)
            if time.monotonic() > deadline:
                break  # the system cannot end them now; the keeper must not wait for that
            time.sleep(ROUND_S)
            for pid in orphans:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)

    def is_of_guard(self, pid: int) -> bool:
        """Return whether a process is a living guard, or in the tree of one."""
        me = os.getpid()
        while pid and pid != me:
            if pid in self.lines:
                return True
            fields = stat_of(pid)
            pid = int(fields[1]) if fields else 0
        return False

    def end_all(self) -> None:
        """Kill all that the program has left; guards do so by themselves, if they can."""
        deadline = time.monotonic() + GUARDS_S
        while True:
            is_late = time.monotonic() > deadline
            guards = [*self.lines, *(pid for pid, started in self.adopted if started_at(pid) == started)]
            for guard_pid in guards:
                send_signal(guard_pid, signal.SIGCONT)
                for pid in descendants(guard_pid):
                    send_signal(pid, signal.SIGKILL)
                if is_late:
                    send_signal(guard_pid, signal.SIGKILL)
            for pid in descendants(os.getpid()):
                if is_late or not self.is_of_guard(pid):
                    send_signal(pid, signal.SIGKILL)
            if not self.reap() and not guards:
                return
            time.sleep(ROUND_S)


def fork_to(group: str) -> tuple[int, str]:
    """Fork into a cgroup, or without one if that cannot be; return the pid, and the cgroup that it is in."""
    if group:
        try:
            return fork_into(group), group
        except OSError:
            remove_cgroup(group)
    return os.fork(), ""
