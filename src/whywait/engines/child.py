"""What runs in a worker process: take a task, run its body, answer, until the pipe ends.

The main thread runs the bodies. One more thread reads the control socket: it brings aborts, pauses and resumes to
the body that runs, and ends the process when the parent is gone. On Linux the kernel itself does the latter, also
when a body never lets another thread run. A process that a body forks keeps none of the pipes and ends with the body.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import pickle
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Coroutine
from types import CoroutineType
from typing import Any, Final, NoReturn

from whywait.context import in_thread, signal_of
from whywait.engines.frames import (
    FORGET,
    KIND_ERROR,
    KIND_PARKED,
    KIND_VALUE,
    PARK,
    PATHS,
    TASK,
    Reader,
    write_frame,
)
from whywait.kernel.model import Ref, generated_id

Wish = tuple[int, int, bool, str]  # task number, turn, whether to pause, why to abort (or nothing)

_PROTOCOL: Final = pickle.HIGHEST_PROTOCOL


class Body:
    """The task that runs here; stands for its handle wherever ``whywait.current()`` looks."""

    __slots__ = ("_authority", "_label", "_signal", "asyncio_task", "attention", "loop", "number", "turn")

    def __init__(self, link: Link, number: int, label: bytes) -> None:
        self._authority = link
        self._label = label
        self._signal: Any = None
        self.number = number
        self.attention = False
        self.turn = 0
        self.loop: asyncio.AbstractEventLoop | None = None
        self.asyncio_task: asyncio.Task[Any] | None = None

    @property
    def id(self) -> str:
        """The task's id."""
        name = self._label.decode(errors="surrogatepass").split("\0", 2)[2]
        return name or generated_id(self.number)

    @property
    def ref(self) -> Ref:
        """The task's identity, the same as in the parent."""
        authority, scope, _ = self._label.decode(errors="surrogatepass").split("\0", 2)
        return Ref(self.number, scope, int(authority))

    async def run_coroutine(self, coroutine: Coroutine[Any, Any, Any]) -> Any:  # noqa: ANN401 - any result
        """Await the body such that an abort cancels it."""
        with self._authority.lock:
            self.loop, self.asyncio_task = asyncio.get_running_loop(), asyncio.current_task()
            if self._signal is not None and self._signal.aborted:
                self.cancel()
        return await coroutine

    def cancel(self) -> None:
        """Cancel the body if it is a coroutine."""
        if self.loop is not None and self.asyncio_task is not None and not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self.asyncio_task.cancel)


class Link:
    """This process's side of the pipes, and the authority as far as a body can tell."""

    def __init__(self, tasks: int, results: int, control: int, life: int) -> None:
        self.lock = threading.RLock()
        self._writing = threading.Lock()
        self._reader = Reader(tasks)
        self._results = results
        self._control = control
        self._fds = (tasks, results, control, life)
        self.inbox: Body | None = None  # of the task that runs
        self._early: Wish | None = None  # came before its task
        self._functions: dict[int, Callable[..., Any]] = {}
        self._forked = False
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
            _flush()
            self._end()
            try:
                self._send(kind, answer)
            except BrokenPipeError:
                return
            del answer

    def parked(self, body: Body) -> None:
        """Tell the parent that the body has parked."""
        if body is self.inbox and not self._forked:
            self._send(KIND_PARKED, PARK.pack(body.turn))

    def _run(self, payload: bytes | bytearray) -> tuple[int, bytes]:
        """Run one task; return the answer."""
        number, label_end, function_number, function_length, flags = TASK.unpack_from(payload)
        label_end += TASK.size
        arguments_at = label_end + function_length
        self._begin(Body(self, number, bytes(payload[TASK.size : label_end])))
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
            value = fn(*call[0], **call[1])
            if value.__class__ is CoroutineType:
                body = self.inbox
                assert body is not None, "the task that runs has its body"
                value = asyncio.run(body.run_coroutine(value))
            stage = "its result could not be pickled"
            return KIND_VALUE, b"" if value is None else _dumps(value)
        except BaseException as error:  # noqa: BLE001 - whatever is raised is the task's outcome
            if self._forked:
                _leave(error.code if isinstance(error, SystemExit) else 1)
            return KIND_ERROR, _describe(stage, error)

    def _function(self, number: int, data: bytes | bytearray, flags: int) -> Callable[..., Any]:
        if flags & PATHS:
            sys.path[:], data = pickle.loads(data)  # noqa: S301 - from our own parent
        if number and not data:
            return self._functions[number]
        fn: Callable[..., Any] = pickle.loads(data)  # noqa: S301 - from our own parent
        if number:
            self._functions[number] = fn
        return fn

    def _begin(self, body: Body) -> None:
        with self.lock:
            self.inbox = body
            if self._early is not None and self._early[0] == body.number:
                self._apply(body, self._early)
            self._early = None

    def _end(self) -> None:
        with self.lock:
            self.inbox = None

    def _send(self, kind: int, payload: bytes) -> None:
        with self._writing:
            write_frame(self._results, kind, payload)

    def _listen(self) -> None:
        """Pass on what the parent wishes; end the process when it is gone."""
        rest = b""
        while data := _read(self._control):
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                number, turn, pause, reason = line.decode().split(" ")
                self._hear((int(number), int(turn), pause == "1", reason))
        _end_group()

    def _hear(self, wish: Wish) -> None:
        with self.lock:
            body = self.inbox
            if body is not None and body.number == wish[0]:
                self._apply(body, wish)
            else:
                self._early = wish

    def _apply(self, body: Body, wish: Wish) -> None:
        _, body.turn, pause, reason = wish
        abort_signal = signal_of(body)  # type: ignore[arg-type] # stands for a handle
        if pause:
            abort_signal.ask_pause()
        elif abort_signal.pause_asked:
            abort_signal.let_go()
        if reason:
            abort_signal.fire(reason)
            body.cancel()
        body.attention = True

    def _let_go(self) -> None:
        """In a process that a body forked: keep nothing by which the parent could mistake it for the worker."""
        self._forked = True
        self.lock = threading.RLock()
        for fd in self._fds:
            os.close(fd)


def die_with_parent(life: int) -> None:
    """Let the kernel kill this process and its group when the other end of this pipe closes; needs no thread to run."""
    try:
        fcntl.fcntl(life, fcntl.F_SETOWN, -os.getpgrp())
        fcntl.fcntl(life, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(life, fcntl.F_SETFL, fcntl.fcntl(life, fcntl.F_GETFL) | fcntl.FASYNC)
    except (AttributeError, OSError):
        return  # elsewhere the control thread does it


def main(tasks: int, results: int, control: int, life: int) -> None:
    """Be a worker process."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGPIPE})  # who started us may block it
    die_with_parent(life)
    Link(tasks, results, control, life).serve()


def _dumps(value: Any) -> bytes:  # noqa: ANN401 - any value
    try:
        return pickle.dumps(value, _PROTOCOL)
    except Exception:  # noqa: BLE001 - whatever it is, the other pickler may do better
        import cloudpickle  # type: ignore[import-untyped]

        data: bytes = cloudpickle.dumps(value, _PROTOCOL)
        return data


def _describe(stage: str, error: BaseException) -> bytes:
    """Return what the parent needs to raise the error again, or at least to tell about it."""
    if error.__traceback__ is not None:
        error.__traceback__ = error.__traceback__.tb_next  # the first frame is this file
    try:
        text = "".join(traceback.format_exception(error))
        name = repr(error)
    except BaseException:  # noqa: BLE001 - an error whose text cannot be had
        text = name = type(error).__name__
    try:
        data = b"" if stage else _dumps(error)
    except BaseException:  # noqa: BLE001 - it cannot be pickled
        data = b""
    return pickle.dumps((stage, name, text, data), _PROTOCOL)


def _read(fd: int) -> bytes:
    try:
        return os.read(fd, 4096)
    except OSError:
        return b""


def _flush() -> None:
    """Let what the body printed come out before its result does."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (AttributeError, OSError, ValueError):
            continue  # closed, or none at all


def _leave(code: object) -> NoReturn:
    """End a process that a body forked, where its body ends."""
    _flush()
    os._exit(code if isinstance(code, int) else int(code is not None))


def _end_group() -> NoReturn:
    """The parent is gone: end at once, and with us whatever a body has started."""
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(1)
