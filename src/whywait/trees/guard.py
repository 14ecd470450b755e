"""What runs in a guard: start a child process, and look after it and all its descendants; see ``keeper.py``."""

from __future__ import annotations

import contextlib
import fcntl
import marshal
import os
import resource  # noqa: F401 - what os.wait4 returns is made by it: loaded once, not by each guard
import select
import signal
import socket
import sys
import time
from typing import Any, NoReturn

from whywait.trees.system import (
    SUBREAPER,
    cpu_of_cgroup,
    kill_cgroup,
    name_process,
    oom_kills,
    prctl,
    program_file,
    set_mark,
    signal_descendants,
)
from whywait.trees.wire import FDS_AT_MOST, PART_SIZE, SESSION, has_message, packed, take_message

ROUND_S = 0.01  # between two rounds of killing
ROUNDS_AT_MOST = 10  # before a tree that cannot be killed process by process is killed by its cgroup
TOGETHER_S = 0.002  # news waits for more so long: of a short command all is told at once, which wakes the program once
IDLE_S = 20.0  # without a tree, before a guard ends
_IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGTSTP, signal.SIGPIPE)
_RESET = ("SIGPIPE", "SIGXFZ", "SIGXFSZ")  # Python ignores them; as subprocess does
_ignored_before: set[int] = set()  # signals that the program ignored, which its child processes ignore too


def ignore_signals() -> None:
    """Let no terminal disturb this process."""
    for number in _IGNORED:
        if signal.signal(number, signal.SIG_IGN) == signal.SIG_IGN and number != signal.SIGPIPE:
            _ignored_before.add(number)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def become_subreaper() -> int:
    """Be the parent of all orphans below; return what becomes readable when a child has ended."""
    prctl(SUBREAPER, 1)
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    if before >= 0:  # of the keeper that has forked this guard
        os.close(before)
    return reading


def tell(line: socket.socket, *messages: Any) -> None:  # noqa: ANN401 - any message
    """Send messages to the program, should it still be there."""
    with contextlib.suppress(OSError):
        line.sendall(b"".join(map(packed, messages)))


def guard(line: socket.socket, group: str) -> None:
    """Start child processes, one after the other: report on each, and take the next when nothing lives of its tree."""
    wake = become_subreaper()
    name_process("tree-guard")
    while (got := _request(line)) is not None:
        request, fds = got
        _Guard(line, wake, group).run(request, fds)


def _request(line: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """Read what to run, and the file descriptors that come with it; None if nothing more comes."""
    poll = select.poll()
    poll.register(line, select.POLLIN)
    if not poll.poll(IDLE_S * 1000):
        return None
    buffer = bytearray()
    fds: list[int] = []
    while not has_message(buffer):
        try:
            data, more, _, _ = socket.recv_fds(line, 65536, FDS_AT_MOST)
        except OSError:
            return None
        if not data:
            return None  # the program is gone, or wants no more
        for fd in more:
            os.set_inheritable(fd, False)  # noqa: FBT003 - takes no keyword
        buffer += data
        fds += more
    return take_message(buffer), fds


class _Guard:
    """What a guard knows of one tree."""

    def __init__(self, line: socket.socket, wake: int, group: str) -> None:
        self.line = line
        self.wake = wake
        self.group = group
        self.child = 0
        self.peak = 0  # of one process, in bytes
        self.cpu_s = 0.0
        self.rounds = 0  # of killing; 0: the tree is to live
        self.stops = 0  # how often the tree was to be stopped
        self.news: list[Any] = []  # to be told before this process sleeps

    def run(self, request: dict[str, Any], fds: list[int]) -> None:
        counted_s, kills = self.counted_s(), oom_kills(self.group)
        refused = self.start(request, fds)
        placed = len(request["targets"])
        for fd in fds[:placed]:  # the rest is held to the end
            os.close(fd)
        if refused is not None:
            self.news.append(("refused", *refused))
        else:
            self.news.append(("started", self.child, os.getpid(), self.group))
            self.watch()
            self.cpu_s = max(self.cpu_s, self.counted_s() - counted_s)  # it misses none that was not waited for
            self.news.append(("gone", self.peak, self.cpu_s, oom_kills(self.group) > kills))
        for fd in fds[placed:]:
            os.close(fd)
        tell(self.line, *self.news)

    def counted_s(self) -> float:
        """Return the CPU time that the cgroup has counted, without that of this process; 0 without a cgroup."""
        return cpu_of_cgroup(self.group) - time.process_time() if self.group else 0.0

    def start(self, request: dict[str, Any], fds: list[int]) -> tuple[int, str] | None:
        """Start the child process; return the error that it met and where, if it could not become the program."""
        set_mark(request["mark"])
        try:
            if request["cwd"]:
                os.chdir(request["cwd"])
        except OSError as error:
            return error.errno or 0, "cwd"
        try:
            self.child = _spawn(request, fds)
        except OSError:
            return self.fork(request, fds)  # which tells more
        finally:
            os.chdir("/")  # and keep no folder in use
        return None

    def fork(self, request: dict[str, Any], fds: list[int]) -> tuple[int, str] | None:
        """Start the child process step by step; return the error that it met and where."""
        reading, writing = os.pipe()
        try:
            pid = os.fork()
        except OSError as error:  # the system gives no more processes
            os.close(reading)
            os.close(writing)
            return error.errno or 0, "fork"
        if not pid:
            _be_child(request, fds, writing)
        self.child = pid
        os.close(writing)
        with open(reading, "rb") as answer:  # noqa: PTH123 - a file descriptor
            refused = answer.read()
        if not refused:
            return None
        os.waitpid(pid, 0)
        found: tuple[int, str] = marshal.loads(refused)  # noqa: S302 - from our own fork
        return found

    def watch(self) -> None:
        """Look after the tree until nothing is left of it."""
        poll = select.poll()
        poll.register(self.line, select.POLLIN)
        poll.register(self.wake, select.POLLIN)
        buffer = bytearray()
        has_waited = False
        while self.reap():
            if self.news and has_waited:
                tell(self.line, *self.news)
                self.news.clear()
            has_waited = True
            for fd, _ in poll.poll(ROUND_S * 1000 if self.rounds else TOGETHER_S * 1000 if self.news else None):
                if fd == self.wake:
                    os.read(fd, PART_SIZE)
                elif not self.take(buffer):
                    poll.unregister(self.line)  # the program is gone
                    self.rounds = self.rounds or 1
            if self.rounds:
                self.kill()

    def take(self, buffer: bytearray) -> bool:
        """Do what the program wants; return whether it is still there."""
        try:
            data = self.line.recv(PART_SIZE)
        except OSError:
            return False
        buffer += data
        while has_message(buffer):
            number = take_message(buffer)
            if number == signal.SIGKILL:
                self.rounds = self.rounds or 1
                continue
            is_done = signal_descendants(number)
            if number == signal.SIGSTOP:
                self.stops += 1
                if is_done:
                    self.news.append(("stopped", self.stops))
        return bool(data)

    def kill(self) -> None:
        """Kill everything of the tree that is found now; called again until nothing is left."""
        self.rounds += 1
        signal_descendants(signal.SIGKILL)
        if self.group and self.rounds > ROUNDS_AT_MOST:
            kill_cgroup(self.group)  # it makes new processes as quickly: then this one ends too, and the keeper sees it

    def reap(self) -> bool:
        """Take in the processes that have ended; return whether any is left."""
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if not pid:
                return True
            self.peak = max(self.peak, usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024))
            self.cpu_s += usage.ru_utime + usage.ru_stime
            if pid == self.child:
                self.news.append(("ended", os.waitstatus_to_exitcode(status), self.peak, self.cpu_s))


def _spawn(request: dict[str, Any], fds: list[int]) -> int:
    """Start a child process without a copy of this one, which costs a fourth; OSError: it cannot be started so."""
    targets, group = request["targets"], request["group"]
    above = max(targets, default=2) + 1
    sources = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, above) for fd in fds[: len(targets)]]
    try:
        return os.posix_spawn(
            program_file(request["argv"][0], request["env"]),
            request["argv"],
            request["env"],
            file_actions=[
                (os.POSIX_SPAWN_DUP2, source, target) for source, target in zip(sources, targets, strict=True)
            ],
            setsigdef=_defaults(),
            **({"setsid": True} if group == SESSION else {"setpgroup": group}),
        )
    finally:
        for source in sources:
            os.close(source)


def _be_child(request: dict[str, Any], fds: list[int], answer: int) -> NoReturn:
    """Become the program that is to be run, or tell why not."""
    where = "exec"
    try:
        where = "group"
        if request["group"] == SESSION:
            os.setsid()
        else:
            os.setpgid(0, request["group"])
        where = "files"
        answer = _place(request["targets"], fds, answer)
        where = "exec"
        for number in _defaults():
            signal.signal(number, signal.SIG_DFL)
        _exec(request["argv"], request["env"])
    except OSError as error:
        with contextlib.suppress(OSError):
            os.write(answer, marshal.dumps((error.errno, where)))
    finally:
        os._exit(127)


def _place(targets: list[int], fds: list[int], answer: int) -> int:
    """Give each file descriptor its number; return the new number of the one for the answer."""
    above = max(targets, default=2) + 1
    sources = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, above) for fd in fds[: len(targets)]]
    answer = fcntl.fcntl(answer, fcntl.F_DUPFD_CLOEXEC, above)
    for source, target in zip(sources, targets, strict=True):
        os.dup2(source, target)
    return answer


def _defaults() -> list[int]:
    """Return the signals that a child process does not ignore, though this one does."""
    reset = [getattr(signal, name) for name in _RESET if hasattr(signal, name)]
    return [*(number for number in _IGNORED if number not in _ignored_before), signal.SIGCHLD, *reset]


def _exec(argv: list[str], env: dict[str, str]) -> NoReturn:
    """Replace this process by a program; look for it as a shell does, by the PATH of its own environment."""
    if "/" in argv[0]:
        os.execve(argv[0], argv, env)  # noqa: S606 - to run it is what the user wants
    failure: OSError = FileNotFoundError(2, "not found")
    for folder in env.get("PATH", os.defpath).split(":"):
        try:
            os.execve(os.path.join(folder, argv[0]), argv, env)  # noqa: S606, PTH118 - the same
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            failure = error
    raise failure
