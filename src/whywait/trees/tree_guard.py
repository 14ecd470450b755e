"""The guard: a process that starts a child process and stays until nothing of it and of its descendants lives.

``Guard`` is what all guards do, ``LineGuard`` the guard of a program's child processes (commands, jobs, workers), and
``machine/do_guard.py`` the guard of ``whywait do``. What a guard does, and for which promise:

1. The guard is a subreaper: a descendant whose parent has ended becomes its child, whatever session, group or
   environment it has given itself. So "the guard has no child" and "nothing of the tree lives" are the same (M3, O5),
   and the guard knows what all of the tree has used (U1).
2. The line to the program ends when the program is gone, even by SIGKILL: the guard then kills the tree (O5, M3, M5).
   The death of its parent continues a guard that was stopped, which could not see that end.
3. A guard that is killed: the program sees the end of the line, and kills what has the mark of the tree, a resource
   limit that all descendants inherit (``system.set_mark``), and the cgroup. If both are killed at once, nothing but the
   next service of a machine, which knows its marks, ends the tree (M5).
4. Where a cgroup can be made the tree is in one: it counts the CPU time and the memory of all that was in it (U1), and
   kills in one step a tree that makes processes as quickly as they are killed (O5). The guard itself is outside.
5. The guard of a program takes one tree after the other: a new interpreter costs more than a short command does.

A guard has one thread, so that it may fork, and imports little of the standard library and nothing else of whywait.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import marshal
import os
import resource  # noqa: F401 - what os.wait4 returns is made by it
import select
import signal
import socket
import struct
import sys
import time

from whywait.trees.system import (
    DEATH_SIGNAL,
    SUBREAPER,
    cpu_of_cgroup,
    fork_into,
    kill_cgroup,
    name_process,
    oom_kills,
    prctl,
    program_file,
    remove_cgroup,
    set_mark,
    signal_descendants,
)

TYPE_CHECKING = False  # see the package itself
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any

    Refusal = tuple[int, str]  # the number of an error, and the step at which a child process has met it

HEAD = struct.Struct("!I")  # the length of a message on a line
PART_SIZE = 4096
FDS_AT_MOST = 250

SESSION, GROUP = -1, 0  # a child process leads a session or a process group of its own; above 0: a group to join
AGAIN_S = 0.01  # between two rounds of signals that have had no effect yet
ROUNDS_AT_MOST = 10  # before a tree that cannot be killed process by process is killed by its cgroup
TOGETHER_S = 0.002  # messages are batched for so long: a short command wakes the program once
IDLE_S = 20.0  # without a tree, before the guard of a program ends
_RESET = tuple(getattr(signal, name) for name in ("SIGPIPE", "SIGXFZ", "SIGXFSZ") if hasattr(signal, name))
_IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGTSTP)


class Sources:
    """Descriptors that are waited for together."""

    def __init__(self) -> None:
        """Wait for none yet."""
        self._poll = select.poll()
        self._readers: dict[int, Callable[[], object]] = {}

    def add(self, fd: int, read: Callable[[], object]) -> None:
        """Call ``read`` whenever there is something to read; when it raises EOFError, never again."""
        self._readers[fd] = read
        self._poll.register(fd, select.POLLIN)

    def remove(self, fd: int) -> None:
        """Wait for a descriptor no longer."""
        if self._readers.pop(fd, None) is not None:
            self._poll.unregister(fd)

    def wait(self, timeout_s: float | None) -> None:
        """Wait until there is something to read, for so long at most, and have it read."""
        for fd, _ in self._poll.poll(None if timeout_s is None else timeout_s * 1000):
            read = self._readers.get(fd)
            if read is None:
                continue  # removed by the reader before it
            try:
                read()
            except EOFError:
                self.remove(fd)


def become_guard(sources: Sources) -> None:
    """Make this process the parent of all orphans below it, wake it when a child changes or its own parent ends."""
    prctl(SUBREAPER, 1)
    prctl(DEATH_SIGNAL, signal.SIGCONT)
    woken, wake = os.pipe()
    for end in (woken, wake):
        os.set_blocking(end, False)
    signal.signal(signal.SIGCHLD, _nothing)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
    sources.add(woken, lambda: _drain(woken))


class Guard:
    """Starts one child process, and looks after it and all its descendants."""

    def __init__(self, sources: Sources, cgroup: str = "") -> None:
        """Guard nothing yet; ``cgroup`` is the folder of the one for the tree, empty without one."""
        self.sources = sources
        self.cgroup = cgroup
        self.child = 0
        self.peak = 0  # bytes of memory that one process had at most
        self.cpu_s = 0.0
        self._kills_at: float | None = None
        self._rounds = 0  # of killing

    def fork(
        self,
        argv: list[str],
        env: Mapping[str, str],
        *,
        group: int,
        mark: int,
        files: Iterable[tuple[int, int]] = (),
        reset: Iterable[int] = _RESET,
        mask: Iterable[int] = (),
    ) -> Refusal | None:
        """Fork the child process; return the error that it met, and where, if it could not become the program.

        ``files`` are its file descriptors and what they are copies of. It does not ignore the signals in ``reset``,
        blocks those in ``mask``, and is killed by the system if this guard is.
        """
        reading, writing = os.pipe()
        guard = os.getpid()
        try:
            pid = self._fork()
        except OSError as error:  # the system gives no more processes
            os.close(reading)
            os.close(writing)
            return error.errno or 0, "fork"
        if pid:
            self.child = pid
            os.close(writing)
            with open(reading, "rb") as answer:
                refused = answer.read()
            if not refused:
                return None
            os.waitpid(pid, 0)
            found: Refusal = marshal.loads(refused)  # noqa: S302 - from our own fork
            return found
        where = "fork"
        try:
            prctl(DEATH_SIGNAL, signal.SIGKILL)
            if os.getppid() != guard:  # it was killed before the system knew
                os._exit(127)
            set_mark(mark)
            where = "group"
            if group == SESSION:
                os.setsid()
            else:
                os.setpgid(0, group)
            where = "files"
            writing = _place(files, writing)
            where = "exec"
            for number in reset:
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            os.execvpe(argv[0], argv, env)  # noqa: S606 - to run it is what the user wants
        except OSError as error:
            with contextlib.suppress(OSError):
                os.write(writing, marshal.dumps((error.errno, where)))
        finally:
            os._exit(127)

    def _fork(self) -> int:
        """Fork into the cgroup, or without one if that cannot be."""
        if self.cgroup:
            try:
                return fork_into(self.cgroup)
            except OSError:
                remove_cgroup(self.cgroup)
                self.cgroup = ""
        return os.fork()

    def watch(self) -> None:
        """Stay until nothing of the tree lives."""
        while self.reap():
            self.sources.wait(self.rest_s())
            self.act()

    def rest_s(self) -> float | None:
        """Return after how long something is to be done if nothing happens before; called before each wait."""
        return None if self._kills_at is None else max(0.0, self._kills_at - time.monotonic())

    def act(self) -> None:
        """Do what is due, after each wait."""
        if self._kills_at is not None and time.monotonic() >= self._kills_at:
            self._kills_at = time.monotonic() + AGAIN_S
            self._rounds += 1
            signal_descendants(signal.SIGKILL)
            if self.cgroup and self._rounds > ROUNDS_AT_MOST:
                kill_cgroup(self.cgroup)

    def kill(self, after_s: float = 0.0) -> None:
        """Kill all of the tree, again and again until nothing of it lives."""
        if self._kills_at is None or after_s == 0.0:
            self._kills_at = time.monotonic() + after_s

    def reap(self) -> bool:
        """Take in what has changed among the children; return whether there are any."""
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG | os.WUNTRACED | os.WCONTINUED)
            except ChildProcessError:
                return False
            if not pid:
                return True
            if not os.WIFSTOPPED(status) and not os.WIFCONTINUED(status):
                self.peak = max(self.peak, usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024))
                self.cpu_s += usage.ru_utime + usage.ru_stime
            if pid == self.child:
                self.changed(status)

    def changed(self, status: int) -> None:
        """Take the news that the child process has stopped, goes on or has ended: its wait status."""
        raise NotImplementedError


class LineGuard(Guard):
    """The guard of one tree of a program, which says on the line what to run and which signals to send."""

    def __init__(self, line: socket.socket, sources: Sources, cgroup: str) -> None:
        """Tell the program on ``line`` what becomes of the tree."""
        super().__init__(sources, cgroup)
        self._line = line
        self._buffer = bytearray()
        self._stops = 0  # how often the tree was to be stopped
        self._news: list[Any] = []  # to be told before this process sleeps
        self._has_waited = False

    def run(self, request: dict[str, Any], fds: list[int], ignored: set[int]) -> None:
        """Start what the program asks for, and tell how it goes until nothing of it lives."""
        counted_s, kills = cpu_of_cgroup(self.cgroup), oom_kills(self.cgroup)
        refused = self._start(request, fds, ignored)
        placed = len(request["targets"])
        for fd in fds[:placed]:  # the rest is held to the end
            os.close(fd)
        if refused is not None:
            self._news.append(("refused", *refused))
        else:
            self._news.append(("started", self.child, self.cgroup))
            self.sources.add(self._line.fileno(), self._read)
            self.watch()
            self.sources.remove(self._line.fileno())
            self.cpu_s = max(self.cpu_s, cpu_of_cgroup(self.cgroup) - counted_s)  # it misses none that was not reaped
            self._news.append(("gone", self.peak, self.cpu_s, oom_kills(self.cgroup) > kills))
        for fd in fds[placed:]:
            os.close(fd)
        self._tell()

    def _start(self, request: dict[str, Any], fds: list[int], ignored: set[int]) -> Refusal | None:
        """Start the child process, by a copy of this one only if it has to be: that takes four times as long."""
        try:
            if request["cwd"]:
                os.chdir(request["cwd"])
        except OSError as error:
            return error.errno or 0, "cwd"
        reset = [*(number for number in _IGNORED if number not in ignored), signal.SIGCHLD, *_RESET]
        files = list(zip(request["targets"], fds, strict=False))
        try:
            if not self.cgroup:
                with contextlib.suppress(OSError):  # a fork tells more
                    self.child = _spawn(request, files, reset)
                    return None
            argv, env, group, mark = (request[each] for each in ("argv", "env", "group", "mark"))
            return self.fork(argv, env, group=group, mark=mark, files=files, reset=reset)
        finally:
            os.chdir("/")  # and keep no folder in use

    def rest_s(self) -> float | None:
        """Tell the program the news, the first of a tree after a moment."""
        if self._news and not self._has_waited:
            self._has_waited = True
            return TOGETHER_S
        self._tell()
        return super().rest_s()

    def changed(self, status: int) -> None:
        """Note that the child process has ended."""
        if os.WIFEXITED(status) or os.WIFSIGNALED(status):
            self._news.append(("ended", os.waitstatus_to_exitcode(status), self.peak, self.cpu_s))

    def _read(self) -> None:
        """Send the signals that the program asks for; kill the tree if the program is gone."""
        try:
            data = self._line.recv(PART_SIZE)
        except OSError:
            data = b""
        if not data:
            self.kill()
            raise EOFError
        self._buffer += data
        while has_message(self._buffer):
            number = take_message(self._buffer)
            if number == signal.SIGKILL:
                self.kill()
                continue
            is_done = signal_descendants(number)
            if number == signal.SIGSTOP:
                self._stops += 1
                if is_done:
                    self._news.append(("stopped", self._stops))

    def _tell(self) -> None:
        """Send the news to the program, should it still be there."""
        if self._news:
            with contextlib.suppress(OSError):
                self._line.sendall(b"".join(map(packed, self._news)))
            self._news.clear()


def main(cgroup: str) -> None:
    """Be the guard of one tree after the other, in a cgroup if one can be made, until the program is gone."""
    ignored: set[int] = {number for number in _IGNORED if signal.signal(number, signal.SIG_IGN) == signal.SIG_IGN}
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    name_process("tree-guard")
    gc.disable()
    line = socket.socket(fileno=os.dup(0))
    os.dup2(1, 0)  # nothing: what this process starts has the line no more
    sources = Sources()
    become_guard(sources)
    if cgroup:
        try:
            os.mkdir(cgroup)
        except OSError:
            cgroup = ""
    while (got := _request(line)) is not None:
        guard = LineGuard(line, sources, cgroup)
        guard.run(*got, ignored)
        cgroup = guard.cgroup
    if cgroup:
        remove_cgroup(cgroup)


def _request(line: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """Read what to run, and the file descriptors that come with it; None if nothing more comes."""
    poll = select.poll()
    poll.register(line, select.POLLIN)
    if not poll.poll(IDLE_S * 1000):
        return None
    buffer = bytearray()
    fds: list[int] = []
    while True:
        try:
            data, more, _, _ = socket.recv_fds(line, 65536, FDS_AT_MOST)
        except OSError:
            return None
        if not data:
            return None  # the program is gone, or wants no more
        for fd in more:
            os.set_inheritable(fd, False)
        buffer += data
        fds += more
        while has_message(buffer):
            request = take_message(buffer)
            if isinstance(request, dict):  # else it is a signal for the tree before, of which nothing lives
                return request, fds


def _spawn(request: dict[str, Any], files: list[tuple[int, int]], reset: list[int]) -> int:
    """Start a child process without a copy of this one; OSError: it cannot be started so."""
    set_mark(request["mark"])
    group = request["group"]
    copies = _copies(files)
    try:
        return os.posix_spawn(
            program_file(request["argv"][0], request["env"]),
            request["argv"],
            request["env"],
            file_actions=[(os.POSIX_SPAWN_DUP2, copy, target) for target, copy in copies],
            setsigdef=reset,
            **({"setsid": True} if group == SESSION else {"setpgroup": group}),
        )
    finally:
        for _, copy in copies:
            os.close(copy)


def _place(files: Iterable[tuple[int, int]], answer: int) -> int:
    """Give each file descriptor its number; return the new number of the one for the answer."""
    *copies, (_, answer) = _copies([*files, (-1, answer)])
    for target, copy in copies:
        os.dup2(copy, target)
    return answer


def _copies(files: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return copies of file descriptors that are in the way of none of their targets."""
    above = max((target for target, _ in files), default=2) + 1
    return [(target, fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, max(3, above))) for target, fd in files]


def _nothing(_number: int, _frame: object) -> None:
    """Be there, so that the wake-up pipe is written to."""


def _drain(fd: int) -> None:
    with contextlib.suppress(BlockingIOError):
        while os.read(fd, 4096):
            pass


# Messages between a program and its guards.


def packed(message: Any) -> bytes:  # noqa: ANN401 - any message
    """Return a message as it travels."""
    data = marshal.dumps(message)
    return HEAD.pack(len(data)) + data


def has_message(buffer: bytearray) -> bool:
    """Return whether the first message in a buffer has come as a whole."""
    return len(buffer) >= HEAD.size and len(buffer) >= HEAD.size + HEAD.unpack_from(buffer)[0]


def take_message(buffer: bytearray) -> Any:  # noqa: ANN401 - any message
    """Remove the first message from a buffer and return it."""
    end = HEAD.size + HEAD.unpack_from(buffer)[0]
    message = marshal.loads(buffer[HEAD.size : end])  # noqa: S302 - from our own program
    del buffer[:end]
    return message
