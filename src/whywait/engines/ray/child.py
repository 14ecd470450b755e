"""What runs in a worker of a Ray cluster: the body of one task at a time.

A body that runs for a while, or that has something to say, is announced to the driver through the switchboard, and
from then on the worker listens for what is wished of it. A body that is over at once is never announced, which would
cost more than the body.

``RayServices._sending`` guards what is sent up, whether a body is placed, and which thread listens; nothing is taken
under it. ``ChildServices.lock`` guards what it does in other child processes. The lines that a body has heard belong to
the thread that listens, all else to the one that runs bodies; ``_board`` is set before a body begins.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable
from threading import RLock
from time import monotonic, sleep
from types import FrameType
from typing import Any, Final, NamedTuple

import ray

from whywait.engines.process.child_task import ChildServices, ChildTask, PartFailed, describe, flush
from whywait.engines.process.frames import KIND_ERROR, KIND_VALUE, RESULT_NOT_PICKLED
from whywait.engines.process.pickling import dumps
from whywait.engines.ray.switchboard import KIND_PLACED, KIND_SMALL
from whywait.kernel.devices import Assigned
from whywait.task.surroundings import in_thread

# Kind, payload (a small result, a pickled one or the description of an error), how many messages the body sent up.
Status = tuple[int, Any, int]

ANNOUNCE_S: Final = 0.02
IDLE_S: Final = 30.0  # a worker that has run no announced body for so long stops listening
_KEPT_AT_MOST: Final = 512
_SMALL: Final = 1000  # characters or bytes that travel with the status
_SIZED: Final = frozenset({str, bytes})
_PLAIN: Final = frozenset({int, float, complex, bool, str, bytes, type(None)})


def is_small(value: Any) -> bool:
    """Return whether a value travels as quickly as a reference to it."""
    return value.__class__ in _PLAIN and (value.__class__ not in _SIZED or len(value) <= _SMALL)


class Packed(NamedTuple):
    """A task as it travels, but for arguments that Ray carries."""

    paths: bytes  # the driver's ``sys.path``
    board: str  # the name of the switchboard
    token: int  # of the authority
    number: int  # of the task
    label: bytes
    fn_number: int  # under which the function may be kept; 0: it may not
    fn: bytes
    args: tuple[Any, ...] | None  # all small; None: Ray carries them
    names: tuple[str, ...]  # of the last arguments, which go by keyword
    status_alone: bool  # the result stands in the status, whatever its size


class Head:
    """A packed task in front of arguments whose modules a worker finds only after this is unpickled."""

    __slots__ = ("_data",)

    def __init__(self, data: bytes) -> None:
        self._data = data

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel as bytes; the arguments that follow are unpickled after this."""
        return unpack, (self._data,)


_known_paths: set[bytes] = set()


def unpack(data: bytes) -> Packed:
    """Return a packed task; the driver's module paths are added to ours."""
    packed = Packed(*pickle.loads(data))
    if packed.paths not in _known_paths:
        _known_paths.add(packed.paths)
        sys.path.extend(path for path in pickle.loads(packed.paths) if path not in sys.path)
    return packed


class RayChildTask(ChildTask):
    """A body in a worker of a cluster."""

    __slots__ = ("began_s", "early", "heard", "is_placed", "sent", "token")

    def __init__(self, services: RayServices, packed: Packed) -> None:
        super().__init__(services, packed.number, packed.label, is_hired=False)
        self.token = packed.token
        self.began_s = monotonic()
        self.is_placed = False  # the driver knows of it
        self.sent = 0  # messages
        self.heard = 0  # lines
        self.early: dict[int, str] = {}  # lines that have overtaken others

    @property
    def units(self) -> Assigned:
        """The units that the authority has assigned, or else the GPUs that Ray has."""
        assigned = super().units
        gpus = () if assigned else tuple(map(str, ray.get_gpu_ids()))
        return (("gpu", gpus),) if gpus else assigned


class RayServices(ChildServices):
    """What a task in this worker asks its surroundings for."""

    execution: RayChildTask | None

    def __init__(self) -> None:
        super().__init__()
        self._functions: dict[tuple[int, int], Callable[..., Any]] = {}
        self._boards: dict[str, Any] = {}
        self._board: Any = None
        self._worker = ray.get_runtime_context().get_worker_id()
        self._beat = threading.Event()
        self._sending = RLock()
        self._listener: threading.Thread | None = None
        self._busy_s = 0.0  # when a body was last placed
        os.register_at_fork(after_in_child=self._let_go)
        threading.Thread(target=self._announce, name="whywait-announce", daemon=True).start()

    def carry_out(self, packed: Packed, args: tuple[Any, ...]) -> bytes | tuple[Any, bytes]:
        """Run the body of a task; return its status, after its result if the status shall not stand alone.

        The status is pickled here: Ray carries bytes as they are, and takes much longer over a tuple.
        """
        in_thread.runner = self
        self._board = self._board_called(packed.board)
        body = RayChildTask(self, packed)
        self.begin(body)
        if not self._beat.is_set():
            self._beat.set()
        value, status = self._run(body, packed, args)
        self.end()
        flush()
        # Ray stores them in this order: if a result cannot be pickled, the status is not stored either.
        data = pickle.dumps(status, pickle.HIGHEST_PROTOCOL)
        return data if packed.status_alone else (value, data)

    def _run(self, body: RayChildTask, packed: Packed, args: tuple[Any, ...]) -> tuple[Any, Status]:
        stage = "its function could not be unpickled"
        try:
            fn = self._function((packed.token, packed.fn_number), packed.fn)
            stage = ""
            names, cut = packed.names, len(args) - len(packed.names)
            value = self.run_body(body, fn, args[:cut], dict(zip(names, args[cut:], strict=True)))
            payload = None
            if packed.status_alone and not is_small(value):
                stage = RESULT_NOT_PICKLED
                payload = dumps(value)
        except BaseException as error:
            if self._forked:
                os._exit(1)
            part = isinstance(error, PartFailed)
            payload = describe("", error.error, error.cause) if part else describe(stage, error)  # type: ignore[attr-defined]
            return None, (KIND_ERROR, payload, body.sent)
        if self._forked:
            os._exit(0)
        if is_small(value):
            return None, (KIND_SMALL, value, body.sent)
        return value, (KIND_VALUE, payload, body.sent)

    def _function(self, key: tuple[int, int], data: bytes) -> Callable[..., Any]:
        """Return a function of an authority by both numbers; one that may be kept is unpickled once."""
        fn = self._functions.get(key)
        if fn is None:
            fn = pickle.loads(data)
            assert fn is not None, "a function travels"
            if key[1]:
                if len(self._functions) >= _KEPT_AT_MOST:
                    self._functions.clear()
                self._functions[key] = fn
        return fn

    # Up

    def send(self, kind: int, payload: bytes) -> None:
        """Send a message of the body that runs to the driver."""
        body = self.execution
        if body is not None:
            with self._sending:
                self._place(body)
                body.sent += 1
                self._board.up.remote((body.token, body.number, body.sent, kind, payload))

    def _place(self, body: RayChildTask) -> None:
        """Tell the driver where a body runs, and listen from now on."""
        if body.is_placed:
            return
        body.is_placed = True
        context = ray.get_runtime_context()
        place = self._worker, context.get_node_id(), os.uname().nodename, os.getpid()
        body.sent += 1
        self._board.up.remote((body.token, body.number, body.sent, KIND_PLACED, place))
        self._busy_s = monotonic()
        if self._listener is None:
            self._listener = threading.Thread(target=self._listen, name="whywait-listen", daemon=True)
            self._listener.start()

    def _announce(self) -> None:
        """Announce every body that runs for a while."""
        while True:
            self._beat.wait()
            self._beat.clear()
            sleep(ANNOUNCE_S)
            body = self.execution
            while body is not None and body is self.execution:
                if monotonic() - body.began_s < ANNOUNCE_S:
                    sleep(ANNOUNCE_S / 4)
                    continue
                with self._sending:
                    if body is self.execution:
                        self._place(body)
                break

    # Down

    def _listen(self) -> None:
        """Pass on what the driver wishes, as long as a body may have to hear it."""
        while True:
            board = self._board
            try:
                lines = ray.get(board.listen.remote(self._worker))
            except Exception:
                if self._is_deaf(board):
                    return
                continue
            for token, number, count, line in lines:
                body = self.execution
                if body is not None and (body.token, body.number) == (token, number):
                    body.early[count] = line
                    while (line := body.early.pop(body.heard + 1, None)) is not None:
                        body.heard += 1
                        self.take_line(line)
            with self._sending:
                if self.execution is None and monotonic() - self._busy_s > IDLE_S:
                    self._listener = None
                    return

    def _is_deaf(self, board: Any) -> bool:
        """Listen no more to a switchboard that is gone; return whether there is no other one yet."""
        with self._sending:
            is_last = self._board is board
            if is_last:
                self._listener = None
            return is_last

    def _board_called(self, name: str) -> Any:
        board = self._boards.get(name)
        if board is None:
            board = self._boards[name] = ray.get_actor(name)
        return board

    def _let_go(self) -> None:
        """In a process that a body forked: none of the threads is there."""
        self._forked = True
        self.lock = RLock()


def _deaf_to_interrupts(services: RayServices) -> None:
    """Do not let Ray interrupt a body: an abort is a signal that a body may look at.

    Other tasks of Ray in this worker are interrupted as ever. The handler is a function: programs that a body starts
    do not inherit it.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    before = signal.getsignal(signal.SIGINT)

    def interrupted(number: int, frame: FrameType | None) -> None:
        if services.execution is None and callable(before):
            before(number, frame)

    signal.signal(signal.SIGINT, interrupted)


_services: RayServices | None = None


def carry_out(head: bytes | Packed, *args: Any) -> bytes | tuple[Any, bytes]:
    """Run the body of one task; the remote function of the Ray engine."""
    global _services  # noqa: PLW0603 - one for each worker process
    if _services is None:
        _services = RayServices()
        _deaf_to_interrupts(_services)
    packed = unpack(head) if isinstance(head, bytes) else head
    return _services.carry_out(packed, args if packed.args is None else packed.args)
