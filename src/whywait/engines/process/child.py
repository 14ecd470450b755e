"""What runs in a child process: take a task, run its body, answer, until the pipe ends.

The main thread runs the bodies. One more thread reads the control socket: it brings aborts, pauses and resumes to
the body that runs. When the parent is gone, whatever guards this process ends it, with all that bodies have started.
A process that a body forks keeps none of the pipes and ends with the body.

``ChildServices.lock`` guards which task runs, its signal, its streams and a wish that came early. ``Link._writing``
guards the pipe to the parent; nothing is taken under it. The lock of a stream, or of the answers, guards what is in it,
and ``_writing`` is taken under it. All else belongs to the main thread; ``Calls._parts`` to the one that listens.
"""

from __future__ import annotations

import logging
import os
import pickle
import resource
import sys
import threading
from collections.abc import Callable
from threading import RLock
from time import monotonic_ns, process_time_ns
from typing import Any, Final, NoReturn

from whywait.engines.process.child_state import Globals, Lazies
from whywait.engines.process.child_streams import dumps
from whywait.engines.process.child_task import ChildServices, ChildTask, PartFailed, describe, flush
from whywait.engines.process.frames import (
    FORGET,
    HIRED,
    KIND_BROKEN,
    KIND_ERROR,
    KIND_KEY,
    KIND_REFUSED,
    KIND_SETUP,
    KIND_USE,
    KIND_VALUE,
    LENT,
    PATHS,
    RESULT_NOT_PICKLED,
    TASK,
    USE,
    Reader,
    write_frame,
)
from whywait.task.surroundings import in_thread

SHORTEST_NS: Final = 10_000_000  # a body that ran for less is not worth the look
_UNIT: Final = 1 if sys.platform == "darwin" else 1024
log = logging.getLogger("concurrent.futures")  # where users of executors look for what an initializer raises


class Link(ChildServices):
    """This process's side of the pipes, and the surroundings of its task."""

    def __init__(self, tasks: int, results: int, control: int) -> None:
        super().__init__()
        self._writing = RLock()
        self._reader = Reader(tasks)
        self._results = results
        self._control = control
        self._fds = (tasks, results, control)
        self._functions: dict[int, Callable[..., Any]] = {}
        self._globals: Globals | None = None  # with an initializer
        self._lazies = Lazies()
        for fd in self._fds:
            os.set_inheritable(fd, False)  # noqa: FBT003 - takes no keyword
        os.register_at_fork(after_in_child=self._let_go)
        threading.Thread(target=self._listen, name="whywait-control", daemon=True).start()

    def serve(self) -> None:
        """Run one task after the other until the parent closes the pipe."""
        in_thread.runner = self
        try:
            self._serve()
        finally:
            if not self._forked:
                self._lazies.close_all()

    def _serve(self) -> None:
        use = Use()
        while True:
            try:
                kind, task = self._reader.read()
            except EOFError:
                return
            if kind == KIND_KEY:
                _take_key(bytes(task))
                continue
            if kind == KIND_SETUP:
                if not self._set_up(task):
                    return
                continue
            use.begin()
            kind, answer = self._run(task)
            del task
            if self._forked:
                _leave(0)
            flush()
            used = use.end()
            self.end()
            try:
                if used is not None:
                    self.send(KIND_USE, USE.pack(*used))
                self.send(kind, answer)
            except BrokenPipeError:
                return
            del answer

    def _set_up(self, payload: bytes | bytearray) -> bool:
        """Call the initializer; return whether it succeeded."""
        try:
            initializer, args = pickle.loads(payload)
            initializer(*args)
            self._globals = Globals(initializer)
        except BaseException as error:
            log.critical("Exception in initializer:", exc_info=True)
            if self._forked:
                _leave(1)
            self.send(KIND_BROKEN, describe("", error))
            return False
        if self._forked:
            _leave(0)
        return True

    def _run(self, payload: bytes | bytearray) -> tuple[int, bytes]:
        """Run one task; return the answer."""
        number, label_end, function_number, function_length, flags = TASK.unpack_from(payload)
        label_end += TASK.size
        arguments_at = label_end + function_length
        task = ChildTask(self, number, bytes(payload[TASK.size : label_end]), is_hired=bool(flags & HIRED))
        self.begin(task)
        stage = "its function could not be unpickled"
        try:
            if flags & FORGET:
                self._functions.clear()
            fn = self._function(function_number, payload[label_end:arguments_at], flags)
            stage = "its arguments could not be unpickled"
            if arguments_at == len(payload):
                call: tuple[tuple[Any, ...], dict[str, Any]] = (), {}
            else:
                with memoryview(payload) as view:
                    call = pickle.loads(view[arguments_at:])
            del payload
            stage = ""
            if flags & LENT:
                call = self._lazies.fetch_all(*call)
            if self._globals is None:
                value = self.run_body(task, fn, *call)
            else:
                self._globals.lend(fn)
                try:
                    value = self.run_body(task, fn, *call)
                finally:
                    self._globals.take_back(fn)
            stage = RESULT_NOT_PICKLED
            return KIND_VALUE, b"" if value is None else dumps(value)
        except BaseException as error:
            if self._forked:
                _leave(error.code if isinstance(error, SystemExit) else 1)
            if isinstance(error, PartFailed):
                return KIND_ERROR, describe("", error.error, error.cause)
            return KIND_ERROR, describe(stage, error)

    def _function(self, number: int, data: bytes | bytearray, flags: int) -> Callable[..., Any]:
        if flags & PATHS:
            sys.path[:], data = pickle.loads(data)
        if number and not data:
            return self._functions[number]
        fn: Callable[..., Any] = pickle.loads(data)
        if number:
            self._functions[number] = fn
        return fn

    def send(self, kind: int, payload: bytes) -> None:
        """Send a frame to the parent."""
        with self._writing:
            write_frame(self._results, kind, payload)

    def _listen(self) -> None:
        """Pass on what the parent wishes; end the process when it is gone."""
        rest = b""
        while data := _read(self._control):
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                self.take_line(line.decode())
        os._exit(1)

    def _let_go(self) -> None:
        """In a process that a body forked: keep nothing by which the parent could mistake it for the child."""
        self._forked = True
        self.lock = RLock()
        for fd in self._fds:
            os.close(fd)


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


def main(tasks: int, results: int, control: int) -> None:
    """Be a child process."""
    try:
        link = Link(tasks, results, control)
    except RuntimeError as error:  # the system gives no thread
        write_frame(results, KIND_REFUSED, str(error).encode())
        return
    link.serve()


def _take_key(key: bytes) -> None:
    """Be known to the processes of the parent's ``multiprocessing``: its managers serve tasks here, too."""
    from multiprocessing.process import current_process

    current_process().authkey = key


def _read(fd: int) -> bytes:
    try:
        return os.read(fd, 4096)
    except OSError:
        return b""


def _leave(code: object) -> NoReturn:
    """End a process that a body forked, where its body ends."""
    flush()
    os._exit(code if isinstance(code, int) else int(code is not None))
