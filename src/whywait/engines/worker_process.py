"""A worker process as the engine sees it: started, given one task after the other, told things, ended."""

from __future__ import annotations

import fcntl
import os
import select
import signal
import socket
import subprocess
import sys
import termios
import threading
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any, Final

from whywait.engines.forks import own
from whywait.engines.frames import FORGET, KIND_TASK, PATHS, TASK, TASK_FRAME, Reader, write_all
from whywait.engines.groups import send_signal
from whywait.engines.lifeline import die_with_parent
from whywait.engines.pickling import KEPT_AT_MOST, dumps

if TYPE_CHECKING:
    from whywait.handle import Handle

GOODBYE_S: Final = 0.8  # how long an idle worker may take to end by itself
_NO_SIGNAL: Final = getattr(socket, "MSG_NOSIGNAL", 0)
_SEND_FLAGS: Final = _NO_SIGNAL | getattr(socket, "MSG_DONTWAIT", 0)
_PART: Final = 8192  # of an answer
_ONE_WRITE: Final = 65536
_NOTHING: Final = ("", False)  # nobody wishes an abort or a pause


class NeverReceived(Exception):  # noqa: N818 - not an error yet: another worker gets the task
    """The worker was gone before any of the task reached it."""


class WorkerProcess:
    """One child process; whoever serves it calls everything but :meth:`tell` and :meth:`kill`, which anybody may."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards what tell and kill touch
        self.handle: Handle[Any] | None = None  # whose body it runs
        self._told: tuple[str, bool] = _NOTHING
        self._number = 0  # of the task
        self.turn = 0  # of the last wish it was told
        self.outlets: dict[str, Any] = {}  # streams that it was promised room in
        self._is_over = False  # it is being reaped: its pid may belong to somebody else
        self._known: set[int] = set()  # the functions it keeps
        self._paths = sys.path[:]  # what it has been told
        self._sent = -1  # bytes of the last task, if they were sent at once
        self.idle_since_s = 0.0
        self.is_fresh = True  # it has not answered any task yet
        with ExitStack() as on_error, ExitStack() as theirs:
            self._tasks, tasks = self._pipe(on_error, theirs, to_worker=True)
            self._results, results = self._pipe(on_error, theirs, to_worker=False)
            self._life, life = self._pipe(on_error, theirs, to_worker=True)
            self._control, control = socket.socketpair()
            on_error.callback(self._control.close)
            theirs.callback(control.close)
            self._process = self._start((tasks, results, control.fileno(), life))
            die_with_parent(life, self._process.pid)
            on_error.pop_all()
        self._reader = Reader(self._results)
        own(self)

    def _pipe(self, on_error: ExitStack, theirs: ExitStack, *, to_worker: bool) -> tuple[int, int]:
        """Return our end and theirs of a new pipe."""
        reading, writing = os.pipe()
        ours, other = (writing, reading) if to_worker else (reading, writing)
        on_error.callback(os.close, ours)
        theirs.callback(os.close, other)
        return ours, other

    def _start(self, fds: tuple[int, ...]) -> subprocess.Popen[bytes]:
        program = (
            f"import sys; sys.path[:] = {_importable(self._paths)!a}; import whywait.engines.child as c; c.main{fds}"
        )
        flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
        return subprocess.Popen(  # noqa: S603 - our own interpreter and program
            [sys.executable, *flags, "-c", program], stdin=subprocess.DEVNULL, pass_fds=fds, process_group=0
        )

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def begin(self, handle: Handle[Any], number: int) -> None:
        """Let wishes about a task reach this worker from now on; those that are there already are told."""
        with self._lock:
            self.handle = handle
            self._number = number
            self._told = _NOTHING
        if handle.attention:
            self.tell(handle)

    def end(self) -> None:
        """Let no wish reach this worker any more."""
        with self._lock:
            self.handle = None

    def send(self, number: int, label: bytes, function: tuple[int, bytes], arguments: bytes, flags: int = 0) -> None:
        """Send a task; raise NeverReceived if the worker was gone already, OSError if it went meanwhile."""
        function_number, code = function
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
        start = TASK_FRAME.pack(length, KIND_TASK, number, len(label), function_number, len(code), flags) + label + code
        is_short = length < _ONE_WRITE
        if is_short:
            start += arguments
        self._sent = len(start) if is_short else -1
        try:
            count = os.write(self._tasks, start)
        except BrokenPipeError:
            raise NeverReceived from None
        if count < len(start):
            write_all(self._tasks, start[count:])
        if not is_short:
            write_all(self._tasks, arguments)

    def forget_functions(self) -> None:
        """Send functions anew: one may not have arrived."""
        self._known.clear()

    def has_taken(self) -> bool:
        """Return whether the worker can have seen any of the task that it was sent last; to be asked after its end."""
        try:
            unread = fcntl.ioctl(self._tasks, termios.FIONREAD, b"\0" * 4)
        except OSError:
            return True  # no way to know
        return int.from_bytes(unread, sys.byteorder) != self._sent

    def receive(self) -> tuple[int, bytes | bytearray]:
        """Return the next frame that the worker sends; raise EOFError or OSError if it is gone."""
        return self._reader.read()

    def has_more(self) -> bool:
        """Return whether more has arrived from the worker already."""
        return self._reader.has_more()

    def fileno(self) -> int:
        """Return where its answers arrive."""
        return self._results

    def tell(self, handle: Handle[Any]) -> bool:
        """Tell the worker what is wished of the task now; return whether it runs here."""
        with self._lock:
            if self.handle is not handle:
                return False
            wished = handle._signal
            wish = _NOTHING if wished is None else (wished.reason or "", wished.pause_asked)
            if wish != self._told:
                self._told = wish
                self.turn += 1
                with suppress(OSError):  # it is gone, or listens to nothing: whoever serves it will notice
                    self._control.send(f"wish {self._number} {self.turn} {wish[1]:d} {wish[0]}\n".encode(), _SEND_FLAGS)
            return True

    def say(self, line: str) -> None:
        """Tell the worker something about its task, whose number stands for ``{}``; may wait for it to listen."""
        with suppress(OSError):  # it is gone: whoever serves it will notice
            self._control.sendall(line.format(self._number).encode() + b"\n", _NO_SIGNAL)

    def answer(self, number: int, data: bytes) -> None:
        """Send the answer to a question; in parts, each small enough that no other line comes between."""
        text = data.hex()
        for start in range(0, len(text), _PART):
            is_last = start + _PART >= len(text)
            self.say(f"answer {{}} {number} {is_last:d} {text[start : start + _PART]}")

    def kill(self, handle: Handle[Any]) -> bool:
        """Kill the process with whatever it started, if it runs the given task; return whether it does."""
        with self._lock:
            if self.handle is not handle:
                return False
            if not self._is_over:
                send_signal(self._process.pid, signal.SIGKILL)
            return True

    def dismiss(self) -> None:
        """Let an idle worker end by itself."""
        with self._lock:
            if self._tasks >= 0:
                os.close(self._tasks)
                self._tasks = -1

    def wait_end(self) -> None:
        """Give a worker that was dismissed the time to end by itself."""
        poll = select.poll()
        poll.register(self._results, 0)  # it hangs up when it ends
        poll.poll(GOODBYE_S * 1000)

    def bury(self) -> str:
        """Make sure that the process is gone, and release all it had; return how it ended."""
        with self._lock:
            if not self._is_over:
                send_signal(self._process.pid, signal.SIGKILL)
                self._is_over = True
                self._close()
        code = self._process.wait()
        if code >= 0:
            return f"it ended with exit code {code}"
        try:
            return f"it was killed by {signal.Signals(-code).name}"
        except ValueError:
            return f"it was killed by signal {-code}"

    def let_go(self) -> None:
        """In a fork of this program: close the pipes, so that the worker sees the original end."""
        self._is_over = True
        self._close()

    def _close(self) -> None:
        for fd in (self._tasks, self._results, self._life):
            if fd >= 0:
                os.close(fd)
        self._tasks = self._results = self._life = -1
        self._control.close()


def label_of(handle: Handle[Any]) -> bytes:
    """Return what a worker has to know of a task to say who it is."""
    label: bytes | None = getattr(handle, "label", None)  # the body of a worker has it from its own parent
    if label is not None:
        return label
    task, authority = handle._task, handle._authority
    text = f"{authority.token}\0{authority.grace_of(handle)}\0{task.scope.key}\0{task.name or ''}"
    return text.encode(errors="surrogatepass")


def number_of(handle: Handle[Any]) -> int:
    """Return the number of the task."""
    number: int | None = getattr(handle, "number", None)
    return handle._task.number if number is None else number


def _importable(paths: list[str]) -> list[str]:
    return [path for path in paths if isinstance(path, str)]  # others are ignored by imports
