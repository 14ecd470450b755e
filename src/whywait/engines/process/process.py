"""A child process as this program sees it: started, given one task after the other, signalled, ended.

``ChildProcess._lock`` guards which task it runs, the last wish that was sent about it, and the closing of its pipes;
the lock of its tree is taken under it, and it is never taken under that. All else belongs to its one user (see
``crew.py``), but for ``is_stale``, which any thread sets, and ``lent``, in which any looks a number up. Lines that are
sent without the lock have at most some kilobytes, so that the socket takes each in one piece.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import socket
import subprocess
import sys
import termios
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from threading import RLock
from typing import TYPE_CHECKING, Any, Final

from whywait.engines.process.frames import (
    FORGET,
    KIND_BROKEN,
    KIND_KEY,
    KIND_PARKED,
    KIND_REFUSED,
    KIND_SETUP,
    KIND_TASK,
    KIND_USE,
    LENT,
    ONE_WRITE,
    PATHS,
    TASK,
    TASK_FRAME,
    USE,
    Reader,
    frame,
    write_all,
)
from whywait.engines.process.messages import NOTHING, Wish, take_message, wish_line, wish_of
from whywait.engines.process.pickling import KEPT_AT_MOST, dumps
from whywait.kernel.devices import Assigned
from whywait.support.devices import environment_of
from whywait.support.forks import own
from whywait.support.usage import Facts, Usage, exit_facts, signal_name
from whywait.task.surroundings import RunningTask
from whywait.trees.tree import GROUP, ProcessTree

if TYPE_CHECKING:
    from whywait.engines.base import EngineTask

Identity = tuple[int, bytes]  # the number of a task, and what its ref, its id and its label are made of
Parcel = tuple[int, bytes, tuple[int, bytes], bytes, Sequence[int]]  # identity, function, arguments, what is lent

GOODBYE_S: Final = 0.8  # how long an idle process may take to end by itself
_NO_SIGNAL: Final = getattr(socket, "MSG_NOSIGNAL", 0)
_SEND_FLAGS: Final = _NO_SIGNAL | getattr(socket, "MSG_DONTWAIT", 0)
_FIRST_FD: Final = 3  # the first of the process's own file descriptors, after the standard ones
FIRST_GIVEN_FD: Final = _FIRST_FD + 3  # the first of those that its initializer needs
_PART: Final = 8192  # of an answer


class NeverReceived(Exception):
    """The process was gone, or could not begin, before it had seen any of the task."""


class ChildProcess:
    """One child process; its one user calls everything but :meth:`tell` and :meth:`kill`, which any thread may."""

    def __init__(self, devices: Assigned = (), setup: bytes = b"", fds: Sequence[int] = ()) -> None:
        """Start it; ``setup`` is sent before its first task, ``fds`` are what that needs from FIRST_GIVEN_FD on."""
        self.devices = devices  # the units that it is bound to, for life
        self._lock = RLock()  # guards what tell and kill touch
        self.execution: Any = None  # the task that it runs
        self._told: Wish = NOTHING
        self.number = 0  # of the task
        self.outlets: dict[str, Any] = {}  # streams that it was promised room in
        self._use: tuple[int, int] | None = None  # what the body has used: CPU time in ns, peak of memory
        self._known: set[int] = set()  # the functions it keeps
        self._paths = sys.path[:]  # the `sys.path` that it has
        self.answers = 0  # how many tasks it has answered
        self.is_leaving = False  # it was dismissed and gets no task any more
        self._setup = setup
        self._has_key = False
        self.lent: set[int] = set()  # numbers of the lazy resources that it has been handed
        self.is_stale = False  # it gets no other task: it holds a resource to close, or is being killed
        with ExitStack() as on_error, ExitStack() as theirs:
            self._tasks, tasks = self._pipe(on_error, theirs, to_child=True)
            self._results, results = self._pipe(on_error, theirs, to_child=False)
            self._control, control = socket.socketpair()
            on_error.callback(self._control.close)
            theirs.callback(control.close)
            nothing = os.open(os.devnull, os.O_RDONLY)
            theirs.callback(os.close, nothing)
            self._tree = self._start(nothing, (tasks, results, control.fileno()), fds)
            on_error.callback(self._tree.close)
            self._watch = self._tree.measure()
            on_error.pop_all()
        self._reader = Reader(self._results)
        own(self)

    def _pipe(self, on_error: ExitStack, theirs: ExitStack, *, to_child: bool) -> tuple[int, int]:
        """Return our end and theirs of a new pipe."""
        reading, writing = os.pipe()
        ours, other = (writing, reading) if to_child else (reading, writing)
        on_error.callback(os.close, ours)
        theirs.callback(os.close, other)
        return ours, other

    def _start(self, nothing: int, pipes: Sequence[int], fds: Sequence[int]) -> ProcessTree:
        placed = dict(enumerate((*pipes, *fds), _FIRST_FD))
        paths = f"import sys; sys.path[:] = {_importable(self._paths)!a}"
        program = f"{paths}; import whywait.engines.process.child as child; child.main{tuple(placed)[: len(pipes)]}"
        flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined] # noqa: SLF001 - as multiprocessing
        env = {**os.environ, **environment_of(self.devices)} if self.devices else None
        argv = [sys.executable, *flags, "-c", program]
        return ProcessTree(argv, env=env, files={0: nothing, **placed}, group=GROUP)

    @property
    def pid(self) -> int:
        """The process id."""
        return self._tree.pid

    def begin(self, task: RunningTask, number: int) -> None:
        """Let wishes about a task reach this process from now on; a wish that is there already is sent."""
        with self._lock:
            self.execution = task
            self.number = number
            self._told = NOTHING
        if task.attention:
            self.tell(task)

    def measure(self, told: Callable[[int], object] | None) -> None:
        """Measure anew what the process uses, for the task that it begins; ``told`` is called with its memory."""
        self._use = None
        self._watch.told = told
        self._watch.begin()

    def used(self) -> Usage | None:
        """Return what the task that ends has used, if it ran long enough to tell."""
        self._watch.end()
        if self._use is None:
            return None
        return Usage(self._use[0] / 1e9, max(self._use[1], self._watch.peak), self._watch.how)

    def ram(self) -> int:
        """Return how many bytes of memory it holds now, with all its descendants; to be asked between two tasks."""
        self._watch.told = None
        self._watch.look()
        return self._watch.ram

    def used_so_far(self) -> Usage:
        """Return what its present task uses: the peak of memory, and the CPU time of the process in its whole life."""
        return Usage(self._watch.cpu_s, self._watch.peak, self._watch.how)

    def end(self) -> None:
        """Let no wish reach this process any more."""
        with self._lock:
            self.execution = None

    def run(self, parcel: Parcel, *, flags: int = 0) -> tuple[int, bytes | bytearray]:
        """Have the process run the task that it has begun; return its answer, acting on all that it says before.

        Raise NeverReceived if it has seen nothing of the task, EOFError or OSError if it has died over it.
        """
        sent = self._send(*parcel, flags)
        while True:
            try:
                kind, payload = self._reader.read()
            except (EOFError, OSError):
                if self.answers and self._unread() == sent:
                    raise NeverReceived(f"process {self.pid} was gone") from None
                raise
            if kind == KIND_REFUSED:
                raise NeverReceived(payload.decode())
            if kind == KIND_USE:
                self._use = USE.unpack(payload)
            elif kind < KIND_PARKED or kind == KIND_BROKEN:
                return kind, payload
            else:
                take_message(self.execution, self, kind, payload)

    def _send(
        self, number: int, label: bytes, function: tuple[int, bytes], arguments: bytes, lent: Sequence[int], flags: int
    ) -> int:
        """Send a task; return how many bytes. If the process dies meanwhile, to read its answer shows that."""
        function_number, code = function
        if lent:
            flags |= LENT
            self.lent.update(lent)
        if function_number in self._known:
            code = b""
        elif function_number:
            if len(self._known) >= KEPT_AT_MOST:
                self._known.clear()
                flags |= FORGET
            self._known.add(function_number)
        if sys.path != self._paths:
            self._paths = sys.path[:]
            flags |= PATHS
            code = dumps((_importable(self._paths), code))
        length = TASK.size + len(label) + len(code) + len(arguments)
        head = TASK_FRAME.pack(length, KIND_TASK, number, len(label), function_number, len(code), flags)
        start = self._before_task() + head + label + code
        if len(arguments) < ONE_WRITE:
            start, arguments = start + arguments, b""
        sent = 0
        with suppress(BrokenPipeError):
            for data in filter(None, (start, arguments)):
                write_all(self._tasks, data)
                sent += len(data)
        return sent

    def _unread(self) -> int:
        """Return how many bytes that were sent the process has left unread."""
        return int.from_bytes(fcntl.ioctl(self._tasks, termios.FIONREAD, bytes(4)), sys.byteorder)

    def _before_task(self) -> bytes:
        """Return the frames that have to come before a task."""
        frames = b""
        if not self._has_key and "multiprocessing.managers" in sys.modules:
            self._has_key = True
            frames += frame(KIND_KEY, sys.modules["multiprocessing.process"].current_process().authkey)
        if self._setup:
            frames += frame(KIND_SETUP, self._setup)
            self._setup = b""
        return frames

    def forget_functions(self) -> None:
        """Send functions anew: one may not have arrived."""
        self._known.clear()

    def tell(self, task: RunningTask) -> bool:
        """Tell the process what is wished of the task now; return whether it runs here."""
        with self._lock:
            if self.execution is not task:
                return False
            wish = wish_of(task)
            if wish != self._told:
                self._told = wish
                with suppress(OSError):  # it is gone, or listens to nothing: the thread that serves it will notice
                    self._control.send(wish_line(self.number, wish).encode() + b"\n", _SEND_FLAGS)
            return True

    def say(self, line: str) -> None:
        """Tell the process something about a task; may wait for it to listen."""
        with suppress(OSError):  # it is gone: the thread that serves it will notice
            self._control.sendall(line.encode() + b"\n", _NO_SIGNAL)

    def answer(self, number: int, question: int, data: bytes) -> None:
        """Send the answer to a question of a task; in parts, each small enough that no other line comes between."""
        text = data.hex()
        for start in range(0, len(text), _PART):
            is_last = start + _PART >= len(text)
            self.say(f"answer {number} {question} {is_last:d} {text[start : start + _PART]}")

    def kill(self, task: RunningTask) -> bool:
        """Kill the process with all its descendants, if it runs the given task; return whether it does."""
        with self._lock:
            if self.execution is not task:
                return False
            self.is_stale = True  # should its answer come first all the same, it gets no other task
            self._tree.kill()
            return True

    def dismiss(self) -> None:
        """Let an idle process end by itself."""
        self.is_leaving = True
        with self._lock:
            if self._tasks >= 0:
                os.close(self._tasks)
                self._tasks = -1

    def wait_end(self, limit_s: float) -> None:
        """Give a process that was dismissed so long to end by itself."""
        poll = select.poll()
        poll.register(self._results, 0)  # it hangs up when it ends
        poll.poll(limit_s * 1000)

    @property
    def is_out_of_memory(self) -> bool:
        """Whether the system has killed it for lack of memory; to be asked after its end."""
        return self._tree.is_out_of_memory

    def last_facts(self) -> Facts:
        """Return how it ended, and the peak of memory of its last task; to be asked after its end."""
        code = self._tree.exit_code or 0
        return (*exit_facts(code), *Usage(self._tree.cpu_s, self._watch.peak or None, self._watch.how).facts())

    def bury(self) -> str:
        """Make sure that the process is gone with all its descendants, and release all it had; return how it ended."""
        with self._lock:
            self._close()
        self._tree.close()
        code = self._tree.exit_code or 0
        if code >= 0:
            return f"it ended with exit code {code}"
        why = " because the system had no more memory" if self._tree.is_out_of_memory else ""
        return f"it was killed by {signal_name(-code)}{why}"

    def let_go(self) -> None:
        """In a fork of this program: close the pipes, so that the process sees the original end."""
        self._close()

    def _close(self) -> None:
        for fd in (self._tasks, self._results):
            if fd >= 0:
                os.close(fd)
        self._tasks = self._results = -1
        self._control.close()


def identity_of(execution: EngineTask) -> Identity:
    """Return what a child process has to know of a task to give its ref, its id and its label."""
    ref = execution.ref
    devices = json.dumps(execution.units) if execution.units else ""
    function = (execution.function or "").replace("\0", "")
    grace_s = execution.core.grace_of(execution)
    text = f"{ref.authority}\0{grace_s}\0{devices}\0{ref.scope}\0{function}\0{execution.name or ''}"
    return ref.number, text.encode(errors="surrogatepass")


def _importable(paths: list[str]) -> list[str]:
    return [path for path in paths if isinstance(path, str)]  # others are ignored by imports
