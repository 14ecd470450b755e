"""A body that runs away from its authority: in a worker process or on a cluster.

:class:`Body` stands for the handle and :class:`Host` for the authority wherever ``whywait.current()`` looks. How
messages travel is up to the kind of host: frames (see :mod:`whywait.engines.frames`) go up, lines come down.
"""

from __future__ import annotations

import pickle
import sys
import threading
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from functools import partial
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Final

from whywait.engines.frames import KIND_NOTE, KIND_PARKED, PARK
from whywait.engines.remote import Calls, RemoteQueue, RemoteStream, dumps
from whywait.errors import InvalidTransition
from whywait.inside import inside_of, take_crew
from whywait.kernel.model import Ref, generated_id
from whywait.kernel.state import Cause, TaskState
from whywait.lazy import asyncio
from whywait.raised import cut_traceback, traceback_of
from whywait.signals import signal_of
from whywait.streams import LIMIT, check_name

if TYPE_CHECKING:
    from whywait.context import TaskContext
    from whywait.crew import Failure

Wish = tuple[int, int, bool, str]  # task number, turn, whether to pause, why to abort (or nothing)

_PROTOCOL: Final = pickle.HIGHEST_PROTOCOL


class Body:
    """The task that runs here; stands for its handle wherever ``whywait.current()`` looks."""

    __slots__ = (
        "_authority",
        "_inside",
        "_signal",
        "asyncio_task",
        "attention",
        "is_hired",
        "label",
        "loop",
        "number",
        "turn",
    )

    def __init__(self, host: Host, number: int, label: bytes, *, is_hired: bool) -> None:
        self._authority = host
        self.label = label
        self.is_hired = is_hired  # it is a worker of a task that runs elsewhere
        self._signal: Any = None
        self.number = number
        self.attention = False
        self.turn = 0
        self.loop: asyncio.AbstractEventLoop | None = None
        self.asyncio_task: asyncio.Task[Any] | None = None

    @property
    def id(self) -> str:
        """The task's id."""
        name = self._words()[3]
        return name or generated_id(self.number)

    @property
    def ref(self) -> Ref:
        """The task's identity, the same as in the parent."""
        authority, _, scope, _ = self._words()
        return Ref(self.number, scope, int(authority))

    @property
    def grace_s(self) -> float:
        """How many seconds what belongs to the task may take to end when it should."""
        return float(self._words()[1])

    def _words(self) -> list[str]:
        return self.label.decode(errors="surrogatepass").split("\0", 3)

    @property
    def is_running(self) -> bool:
        """Whether the body has not ended."""
        return self._authority.runs(self)

    @property
    def state(self) -> str:
        """Where the task stands, as far as this process knows."""
        return TaskState.RUNNING if self.is_running else TaskState.DISPOSED

    @property
    def remote_queue(self) -> Callable[[TaskContext, str, int], RemoteQueue] | None:
        """How to make a queue that lives in the process of the task; None: this is that process."""
        return partial(RemoteQueue, self._authority.calls) if self.is_hired else None

    async def run_coroutine(self, coroutine: Coroutine[Any, Any, Any]) -> Any:  # noqa: ANN401 - any result
        """Await the body such that an abort cancels it."""
        with self._authority.lock:
            self.loop, self.asyncio_task = asyncio.get_running_loop(), asyncio.current_task()
            if self._signal is not None and self._signal.aborted:
                self.cancel()
        error: BaseException | None = None
        value = None
        try:
            value = await coroutine
        except BaseException as raised:  # noqa: BLE001 - raised again when the crew has ended
            error = raised
        crew = take_crew(self)  # type: ignore[arg-type] # stands for a handle
        failure = await crew.finish_async(failed=error is not None) if crew is not None else None
        return _settled(failure, value, error)

    def cancel(self) -> None:
        """Cancel the body if it is a coroutine."""
        if self.loop is not None and self.asyncio_task is not None and not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self.asyncio_task.cancel)


class PartFailed(Exception):  # noqa: N818 - never leaves this process
    """A handler or a worker has failed, and the task with it."""

    def __init__(self, cause: str, error: BaseException) -> None:
        super().__init__(cause)
        self.cause = cause
        self.error = error


def _settled(failure: Failure | None, value: Any, error: BaseException | None) -> Any:  # noqa: ANN401 - any result
    """Return the result of a task whose parts have all ended, or raise what failed first."""
    if failure is not None:
        raise PartFailed(*failure)
    if error is not None:
        raise error
    return value


class Host(ABC):
    """The authority as far as a body can tell; at most one body runs at a time."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.inbox: Body | None = None  # of the task that runs
        self._early: Wish | None = None  # came before its task
        self._forked = False  # this is a process that a body forked
        self.calls = Calls(self)

    @abstractmethod
    def send(self, kind: int, payload: bytes) -> None:
        """Send a frame to the authority."""

    def parked(self, body: Body) -> None:
        """Tell the authority that the body has parked."""
        if body is self.inbox and not self._forked:
            self.send(KIND_PARKED, PARK.pack(body.turn))

    def runs(self, body: Body) -> bool:
        """Return whether a body is the one that runs."""
        return body is self.inbox

    def note(self, body: Body, kind: str, details: tuple[tuple[str, Any], ...]) -> None:
        """Let the authority record an event."""
        if body is self.inbox and not self._forked:
            self.send(KIND_NOTE, dumps((kind, details)))

    def grace_of(self, body: Body) -> float:
        """Return how many seconds what belongs to a task may take to end when it should."""
        return body.grace_s

    def interrupt(self, body: Body) -> None:
        """Let the body know at once that something of its task has failed."""
        body.cancel()

    def stream_of(self, body: Body, name: str) -> RemoteStream:
        """Return a stream that was opened."""
        return self.open_stream(body, name, LIMIT)

    def open_stream(self, body: Body, name: str, limit: int) -> RemoteStream:
        """Return a stream of the task, as far as it is here."""
        check_name(name)
        with self.lock:
            if body is not self.inbox:
                raise InvalidTransition(f"task {body.id} has ended: its stream {name!r} takes nothing more")
            streams = inside_of(body).streams  # type: ignore[arg-type] # stands for a handle
            if name not in streams:
                streams[name] = RemoteStream(self, name, limit)
            stream: RemoteStream = streams[name]
            return stream

    def run_body(self, body: Body, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:  # noqa: ANN401 - any result
        """Call the body, and wait for its handlers and workers if it has any."""
        try:
            value = copy_context().run(fn, *args, **kwargs)  # what it sets there, the next body does not see
            if value.__class__ is CoroutineType:
                return asyncio.run(body.run_coroutine(value))
        except BaseException as error:
            crew = take_crew(body)  # type: ignore[arg-type] # stands for a handle
            if crew is None or self._forked:
                raise
            return _settled(crew.finish(failed=True), None, error)
        if body.attention and (crew := take_crew(body)) is not None:  # type: ignore[arg-type] # stands for a handle
            return _settled(crew.finish(failed=False), value, None)
        return value

    def begin(self, body: Body) -> None:
        """Run a body from now on; what is wished of it already reaches it."""
        with self.lock:
            self.inbox = body
            if self._early is not None and self._early[0] == body.number:
                self._apply(body, self._early)
            self._early = None

    def end(self) -> None:
        """Run no body any more."""
        with self.lock:
            self.inbox = None

    def take_line(self, line: str) -> None:
        """Take in a line from the authority."""
        verb, number, *rest = line.split(" ")
        if verb == "wish":
            turn, pause, reason = rest
            self._hear((int(number), int(turn), pause == "1", reason))
        else:
            self._hear_more(verb, int(number), *rest)

    def _hear(self, wish: Wish) -> None:
        with self.lock:
            body = self.inbox
            if body is None or body.number != wish[0]:
                self._early = wish
                return
            notify = self._apply(body, wish)
        notify()

    def _hear_more(self, verb: str, number: int, *words: str) -> None:
        """Take in room in a stream, or a part of an answer."""
        with self.lock:
            body = self.inbox
            if body is None or body.number != number:
                return
            streams = inside_of(body).streams  # type: ignore[arg-type] # stands for a handle
        if verb == "room":
            name, count = words
            streams[bytes.fromhex(name).decode(errors="surrogatepass")].add_room(int(count))
        else:
            call, is_last, text = words
            self.calls.take_part(int(call), is_last=is_last == "1", text=text)

    def _apply(self, body: Body, wish: Wish) -> Callable[[], None]:
        """Let a body know what is wished of it, under the lock; return what is to be done without it."""
        _, body.turn, pause, reason = wish
        abort_signal = signal_of(body)  # type: ignore[arg-type] # stands for a handle
        abort_signal.follow(pause=pause, reason=reason or None)
        body.attention = True
        if reason:
            body.cancel()
        return abort_signal.notify


def describe(stage: str, error: BaseException, cause: str = Cause.EXCEPTION) -> bytes:
    """Return what the parent needs to raise the error again, or at least to tell about it."""
    frames = traceback_of(error)
    if frames is not None:
        cut_traceback(error, frames.tb_next)  # the first frame is this file
    try:
        text = "".join(traceback.format_exception(error))
        name = repr(error)
    except BaseException:  # noqa: BLE001 - an error whose text cannot be had
        text = name = type(error).__name__
    try:
        data = b"" if stage else dumps(error)
    except BaseException:  # noqa: BLE001 - it cannot be pickled
        data = b""
    return pickle.dumps((stage, name, text, data, cause), _PROTOCOL)


def flush() -> None:
    """Let what the body printed come out before its result does."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (AttributeError, OSError, ValueError):
            continue  # closed, or none at all
