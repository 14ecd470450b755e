"""A child process with all its descendants, as the program that started it sees it.

How the tree is held together is told in ``tree_guard.py``. A tree may be used by several threads. ``ProcessTree._lock``
guards what comes and goes on its line, and its end; the lock of the meter is taken under it. Without it are read: the
exit code and ``is_over``, each set once, after what belongs to it.
"""

from __future__ import annotations

import errno
import os
import select
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from threading import RLock
from time import monotonic
from types import TracebackType
from typing import Final, Self

from whywait.support.forks import own
from whywait.support.usage import Usage
from whywait.trees.guards import guards
from whywait.trees.meter import Watch, meter
from whywait.trees.system import end_marked, kill_cgroup, kills_for_memory, new_mark, send_signal
from whywait.trees.tree_guard import GROUP, PART_SIZE, SESSION, has_message, packed, take_message

__all__ = ["AGAIN_S", "ALONE_S", "GROUP", "SESSION", "SHORTAGES", "ProcessTree", "StartFailed", "dismiss_guards"]

SHORTAGES: Final = {errno.EAGAIN, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS}  # may be over soon
AGAIN_S: Final = 0.05  # between two tries to start a process, while the system gives too little for it
ALONE_S: Final = 1.0  # a task fails for which none can be started for so long while there is no other one
LOST: Final = -signal.SIGKILL
LOST_S: Final = 2.0  # how long to look for what a guard that was killed has left
_KILLED: Final = (-signal.SIGKILL, 128 + signal.SIGKILL)  # it was; a shell says it of what it has run


class StartFailed(OSError):  # noqa: N818 - as the errors of whywait are named
    """A child process could not be started; ``where`` is ``fork``, ``cwd``, ``group``, ``files`` or ``exec``."""

    def __init__(self, number: int, where: str) -> None:
        """Say what the system said, and at which step."""
        super().__init__(number, os.strerror(number))
        self.where = where


class ProcessTree:
    """A child process with all its descendants, whatever group, session or environment they have given themselves.

    ``files`` gives the child process its file descriptors: its number of each, and this program's; of 0, 1 and 2 it
    has this program's own if they are not named. It leads a ``SESSION`` or a process ``GROUP`` of its own, or joins
    the group that is given. File descriptors in ``held`` stay open in another process until nothing of the tree is
    left, however this program ends. All processes of it inherit the ``mark`` (see ``system.set_mark``), a new one if
    none is given.

    When this program ends, even by SIGKILL, everything of the tree is killed.
    """

    def __init__(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        files: Mapping[int, int] | None = None,
        group: int = SESSION,
        held: Sequence[int] = (),
        mark: int | None = None,
    ) -> None:
        """Start it; raise StartFailed if the child process cannot be started."""
        self.pid = 0  # of the child process
        self.exit_code: int | None = None  # of the child process; a signal that ended it is negative
        self.is_over = False  # nothing of it lives
        self.is_lost = False  # what guarded it was killed, so that it was ended
        self.cgroup = ""  # the folder of its cgroup, if it has one
        self.peak = 0  # bytes of memory that one process of it had at most, as far as they have ended
        self.cpu_s = 0.0  # of the processes that have ended
        self.is_out_of_memory = False  # the system has killed a process of it for lack of memory
        self._kills = kills_for_memory()
        self._mark = new_mark() if mark is None else mark
        self._is_told_to_die = False
        self._stops = 0  # how often it was to be stopped
        self._when_stopped: Callable[[], object] | None = None
        self._is_stopped = False  # and this has yet to be told
        self._is_closed = False
        self._has_no_guard = False
        self._refused: tuple[int, str] | None = None
        self._lock = RLock()
        with ExitStack() as opened:
            placed = dict(files or ())
            for number in {0, 1, 2} - placed.keys():
                placed[number] = _own_file(number, opened)
            request = {
                "argv": list(argv),
                "env": dict(os.environ if env is None else env),
                "cwd": _folder(cwd),
                "group": group,
                "targets": list(placed),
                "mark": self._mark,
            }
            self._guard, self._news = guards.start(request, (*placed.values(), *held))
        self._watch = Watch(self.guard)
        self._take_all()
        if self._refused is not None:
            guards.take_back(self._guard)
            raise StartFailed(*self._refused)
        own(self)

    def __enter__(self) -> Self:
        """Return the tree."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Kill all that is left of it."""
        self.close()

    @property
    def guard(self) -> int:
        """The pid of its guard."""
        return self._guard.pid

    def fileno(self) -> int:
        """Return a file descriptor that is readable when there is news: then call :meth:`look`."""
        return self._guard.line.fileno()

    def look(self) -> None:
        """Take in the news: whether the child process has ended, and whether all of the tree has."""
        told = None
        with self._lock:
            self._look()
            if self._is_stopped:
                self._is_stopped = False
                told, self._when_stopped = self._when_stopped, None
        if told is not None:
            told()

    def _look(self) -> None:
        while not self.is_over:
            try:
                data = self._guard.line.recv(PART_SIZE)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self._lose()
                return
            self._news += data
            self._take_all()

    def wait(self, timeout_s: float | None = None) -> int | None:
        """Wait for the child process to end; return its exit code, None if it has not ended in time."""
        self._wait(timeout_s, for_all=False)
        return self.exit_code

    def wait_all(self, timeout_s: float | None = None) -> bool:
        """Wait until nothing of the tree lives any more; return whether that is so."""
        self._wait(timeout_s, for_all=True)
        return self.is_over

    def send_signal(self, number: int) -> None:
        """Send a signal to every process of the tree; nothing happens if none is left."""
        with self._lock:
            if self.is_over:
                return
            self._is_told_to_die = self._is_told_to_die or number == signal.SIGKILL
            send_signal(self.guard, signal.SIGCONT)  # should it have been stopped
            with suppress(OSError):  # there is no guard any more: the next look tells
                self._guard.line.sendall(packed(int(number)))

    def stop(self, told: Callable[[], object]) -> None:
        """Stop every process of the tree; the look that finds them stopped calls ``told``, without a lock."""
        with self._lock:
            self._stops += 1
            self._when_stopped = told
            self.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Let every process of the tree go on."""
        with self._lock:
            self._when_stopped = None
            self._is_stopped = False
            self.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """Kill every process of the tree; :meth:`wait_all` says when they are gone."""
        self.send_signal(signal.SIGKILL)

    def measure(self, told: Callable[[int], object] | None = None) -> Watch:
        """Have the memory looked at, while the watch that is returned is begun, until the tree is over.

        ``told`` is called with the bytes in use, on another thread, when they have changed much. Without
        this, :attr:`usage` knows of memory what one process had at most.
        """
        with self._lock:
            self._watch.told = told
            if not self.is_over:
                meter.add(self._watch)
        return self._watch

    @property
    def usage(self) -> Usage:
        """What the tree has used, so far or until its end."""
        watch = self._watch
        cpu_s = self.cpu_s if self.is_over else self.cpu_s + watch.cpu_s
        return Usage(cpu_s, max(self.peak, watch.peak), watch.how)

    def close(self) -> None:
        """Kill all that is left of the tree, wait until it is gone, and release what the tree has here."""
        if not self.is_over:
            self.kill()
            self.wait_all()
        with self._lock:
            is_closed, self._is_closed = self._is_closed, True
        if not is_closed:
            (guards.lose if self._has_no_guard else guards.take_back)(self._guard)

    def let_go(self) -> None:
        """In a fork of this program: leave the tree to the original."""
        self.is_over = True
        self._guard.let_go()

    def _wait(self, timeout_s: float | None, *, for_all: bool) -> None:
        deadline = None if timeout_s is None else monotonic() + timeout_s
        poll: select.poll | None = None
        while not self.is_over and (for_all or self.exit_code is None):
            if poll is None:
                poll = select.poll()
                poll.register(self._guard.line, select.POLLIN)
            else:
                left_s = None if deadline is None else deadline - monotonic()
                if left_s is not None and left_s <= 0:
                    return
                poll.poll(None if left_s is None else left_s * 1000)
            self.look()

    def _take_all(self) -> None:
        while has_message(self._news):
            kind, *fields = take_message(self._news)
            if kind == "started":
                self.pid, self.cgroup = fields
                self._watch = Watch(self.guard, self.cgroup)
            elif kind == "refused":
                self._refused = fields[0], fields[1]
                return
            elif kind == "ended":
                code, self.peak, self.cpu_s = fields
                self._look_for_memory(code)
                self.exit_code = code
            elif kind == "stopped":
                self._is_stopped = fields[0] == self._stops  # else it was to go on meanwhile, and to stop again
            elif kind == "gone":
                self.peak, self.cpu_s, met_oom = fields
                self.is_out_of_memory = self.is_out_of_memory or met_oom
                self._end()

    def _lose(self) -> None:
        """Kill the tree: what guarded it was killed."""
        self._has_no_guard = True
        self.is_lost = not self._is_told_to_die
        if self.exit_code is None:
            self.exit_code = LOST
        if self.cgroup:
            kill_cgroup(self.cgroup)
        end_marked(self._mark.__eq__, LOST_S)
        self._end()

    def _look_for_memory(self, code: int) -> None:
        """Tell from its end whether the system has killed the child process for lack of memory."""
        if code in _KILLED and not self._is_told_to_die:
            self.is_out_of_memory = kills_for_memory(now=True) > self._kills

    def _end(self) -> None:
        self.is_over = True
        meter.remove(self._watch)


def dismiss_guards() -> None:
    """Let the guards and the meter end, now or with the trees that run; the next start makes others."""
    guards.dismiss()
    meter.end()


def _own_file(number: int, opened: ExitStack) -> int:
    """Return a file descriptor of this program, or of nothing if it is closed."""
    try:
        os.fstat(number)
    except OSError as error:
        if error.errno != errno.EBADF:
            raise
        nothing = os.open(os.devnull, os.O_RDWR)
        opened.callback(os.close, nothing)
        return nothing
    return number


def _folder(cwd: str | os.PathLike[str] | None) -> bytes:
    """Return the folder to run in; empty if this program's own is no more."""
    try:
        return os.fsencode(os.getcwd() if cwd is None else os.path.abspath(cwd))
    except FileNotFoundError:
        return b""
