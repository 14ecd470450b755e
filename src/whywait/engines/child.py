"""What runs in a worker process: take a task, run its body, answer, until the pipe ends.

The main thread runs the bodies. One more thread reads the control socket: it brings aborts, pauses and resumes to
the body that runs, and ends the process when the parent is gone. On Linux the kernel itself does the latter, also
when a body never lets another thread run. A process that a body forks keeps none of the pipes and ends with the body.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any, NoReturn

from whywait.engines.frames import FORGET, HIRED, KIND_ERROR, KIND_VALUE, PATHS, TASK, Reader, write_frame
from whywait.engines.host import Body, Host, PartFailed, describe, flush
from whywait.engines.lifeline import die_with_parent
from whywait.engines.remote import dumps
from whywait.signals import in_thread


class Link(Host):
    """This process's side of the pipes, and the authority as far as a body can tell."""

    def __init__(self, tasks: int, results: int, control: int, life: int) -> None:
        super().__init__()
        self._writing = threading.Lock()
        self._reader = Reader(tasks)
        self._results = results
        self._control = control
        self._fds = (tasks, results, control, life)
        self._functions: dict[int, Callable[..., Any]] = {}
        for fd in self._fds:
            os.set_inheritable(fd, False)  # noqa: FBT003 - takes no keyword
        os.register_at_fork(after_in_child=self._let_go)
        threading.Thread(target=self._listen, name="whywait-control", daemon=True).start()

    def serve(self) -> None:
        """Run one task after the other until the parent closes the pipe."""
        in_thread.worker = self  # type: ignore[assignment] # a body stands for a handle
        while True:
            try:
                kind, answer = self._run(self._reader.read()[1])
            except EOFError:
                return
            if self._forked:
                _leave(0)
            flush()
            self.end()
            try:
                self.send(kind, answer)
            except BrokenPipeError:
                return
            del answer

    def _run(self, payload: bytes | bytearray) -> tuple[int, bytes]:
        """Run one task; return the answer."""
        number, label_end, function_number, function_length, flags = TASK.unpack_from(payload)
        label_end += TASK.size
        arguments_at = label_end + function_length
        body = Body(self, number, bytes(payload[TASK.size : label_end]), is_hired=bool(flags & HIRED))
        self.begin(body)
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
                    call = pickle.loads(view[arguments_at:])  # noqa: S301 - from our own parent
            del payload
            stage = ""
            value = self.run_body(body, fn, *call)
            stage = "its result could not be pickled"
            return KIND_VALUE, b"" if value is None else dumps(value)
        except BaseException as error:  # noqa: BLE001 - whatever is raised is the task's outcome
            if self._forked:
                _leave(error.code if isinstance(error, SystemExit) else 1)
            if isinstance(error, PartFailed):
                return KIND_ERROR, describe("", error.error, error.cause)
            return KIND_ERROR, describe(stage, error)

    def _function(self, number: int, data: bytes | bytearray, flags: int) -> Callable[..., Any]:
        if flags & PATHS:
            sys.path[:], data = pickle.loads(data)  # noqa: S301 - from our own parent
        if number and not data:
            return self._functions[number]
        fn: Callable[..., Any] = pickle.loads(data)  # noqa: S301 - from our own parent
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
        _end_group()

    def _let_go(self) -> None:
        """In a process that a body forked: keep nothing by which the parent could mistake it for the worker."""
        self._forked = True
        self.lock = threading.RLock()
        for fd in self._fds:
            os.close(fd)


def main(tasks: int, results: int, control: int, life: int) -> None:
    """Be a worker process."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGPIPE})  # who started us may block it
    die_with_parent(life, os.getpgrp())  # again: the parent may have died before it could
    Link(tasks, results, control, life).serve()


def _read(fd: int) -> bytes:
    try:
        return os.read(fd, 4096)
    except OSError:
        return b""


def _leave(code: object) -> NoReturn:
    """End a process that a body forked, where its body ends."""
    flush()
    os._exit(code if isinstance(code, int) else int(code is not None))


def _end_group() -> NoReturn:
    """The parent is gone: end at once, and with us whatever a body has started."""
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(1)
