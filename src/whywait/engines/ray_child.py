"""What runs in a worker of a Ray cluster: the bodies of one shipment, one after the other.

A body that runs for a while, or that has something to say, is announced to the driver through the switchboard, and
from then on the worker listens for what is wished of it. What is over at once is never announced: it costs nothing.
When a body of a shipment takes its time, those behind it are handed back to the driver, which sends them elsewhere.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable
from time import monotonic, sleep
from types import FrameType
from typing import Any, Final

import ray
import ray.cloudpickle

from whywait.engines.frames import KIND_ERROR, KIND_VALUE
from whywait.engines.host import Body, Host, PartFailed, describe, flush
from whywait.engines.ray_switchboard import GONE_BACK, KIND_HANDED_BACK, KIND_PLACED, KIND_SMALL
from whywait.signals import in_thread

# What came of a body: kind, description of the error or a small result, how many messages it sent up, how many
# microseconds it took. A result that is not small stands beside it.
Status = tuple[int, Any, int, int]
Parcel = tuple[str, int, int, bytes, int, bytes, Any, tuple[str, ...]]
# switchboard, token, task number, label, function number, function, arguments (plain ones) or how many of those that
# come beside the parcels are for it, names of the last ones

ANNOUNCE_S: Final = 0.02
IDLE_S: Final = 30.0  # who has had nothing to say or to hear for so long listens no more
_KEPT_AT_MOST: Final = 512
_SMALL: Final = 1000  # characters or bytes that travel with the status
_SIZED: Final = frozenset({str, bytes})
_PLAIN: Final = frozenset({int, float, complex, bool, str, bytes, type(None)})


def is_small(value: Any) -> bool:  # noqa: ANN401 - any argument or result
    """Return whether a value travels as quickly as a reference to it."""
    return value.__class__ in _PLAIN and (value.__class__ not in _SIZED or len(value) <= _SMALL)


class Head:
    """The parcels of a shipment, before arguments whose modules a worker finds as soon as this is unpickled."""

    __slots__ = ("_data",)

    def __init__(self, data: bytes) -> None:
        self._data = data

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel as bytes; the arguments that follow are unpickled after this."""
        return open_head, (self._data,)


def make_head(paths: bytes, parcels: list[Parcel]) -> bytes:
    """Return parcels as bytes, which is what Ray brings to a worker most quickly."""
    return pickle.dumps((paths, parcels), pickle.HIGHEST_PROTOCOL)


_known_paths: set[bytes] = set()


def open_head(data: bytes) -> list[Parcel]:
    """Add the driver's module paths to ours; return the parcels."""
    paths, parcels = pickle.loads(data)  # noqa: S301 - from our own driver
    if paths not in _known_paths:
        _known_paths.add(paths)
        sys.path.extend(path for path in pickle.loads(paths) if path not in sys.path)  # noqa: S301 - from our own driver
    opened: list[Parcel] = parcels
    return opened


class RayBody(Body):
    """A body in a worker of a cluster."""

    __slots__ = ("began_s", "early", "heard", "is_placed", "rest", "sent", "token")

    def __init__(self, host: RayHost, token: int, number: int, label: bytes) -> None:
        super().__init__(host, number, label, is_hired=False)
        self.token = token
        self.began_s = monotonic()
        self.is_placed = False  # the driver knows of it
        self.sent = 0  # messages
        self.heard = 0  # lines
        self.early: dict[int, str] = {}  # lines that have overtaken others
        self.rest: Arrival | None = None  # who came with it


class Arrival:
    """A shipment as it arrives, bodies that came together: what has ended of them, and who has not begun."""

    def __init__(self, numbers: list[int]) -> None:
        self.waiting = numbers  # in order
        self.ended: list[tuple[int, Status, Any]] = []
        self.is_handed_back = False


class RayHost(Host):
    """The driver's authority as far as a body in this worker can tell."""

    inbox: RayBody | None

    def __init__(self) -> None:
        super().__init__()
        self._functions: dict[tuple[int, int], Callable[..., Any]] = {}
        self._boards: dict[str, Any] = {}
        self._board: Any = None
        self._worker = ray.get_runtime_context().get_worker_id()
        self._beat = threading.Event()
        self._sending = threading.Lock()
        self._listener: threading.Thread | None = None
        self._busy_s = 0.0  # when anybody was last placed
        self.ray_task: str | None = None  # that has begun
        os.register_at_fork(after_in_child=self._let_go)
        threading.Thread(target=self._announce, name="whywait-announce", daemon=True).start()

    def carry_out(self, parcels: list[Parcel], args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Run the bodies of a shipment; return their results, and then what came of each."""
        self.ray_task = ray.get_runtime_context().get_task_id()
        in_thread.worker = self  # type: ignore[assignment] # a body stands for a handle
        arrival = Arrival([number for _, _, number, *_ in parcels])
        self._board = self._board_called(parcels[0][0])
        at = 0
        for _, token, number, label, fn_number, fn, own, names in parcels:
            with self.lock:
                if arrival.is_handed_back:
                    break
                arrival.waiting.pop(0)
                body = RayBody(self, token, number, label)
                body.rest = arrival if len(parcels) > 1 else None
                self.begin(body)
            self._beat.set()
            if own.__class__ is int:
                at, own = at + own, args[at : at + own]  # noqa: PLW2901 - beside the parcel, not in it
            status, value = self._run(body, fn_number, fn, own, names)
            with self.lock:
                self.end()
                arrival.ended.append((number, status, value))
            del value
        flush()
        statuses = [status for _, status, _ in arrival.ended]
        values = [value for _, _, value in arrival.ended]
        missing = len(parcels) - len(statuses)
        arrival.ended.clear()
        # Ray stores them in this order: if a result cannot be pickled, what came of the bodies is not stored either.
        return *values, *[None] * missing, [*statuses, *[(GONE_BACK, None, 0, 0)] * missing]

    def _run(
        self, body: RayBody, fn_number: int, data: bytes, args: tuple[Any, ...], names: tuple[str, ...]
    ) -> tuple[Status, Any]:
        stage = "its function could not be unpickled"
        try:
            fn = self._function(body.token, fn_number, data)
            stage = ""
            cut = len(args) - len(names)
            value = self.run_body(body, fn, args[:cut], dict(zip(names, args[cut:], strict=True)))
            if body.rest is not None and value.__class__ not in _PLAIN:  # it must not take the others with it
                stage = "its result could not be pickled"
                ray.cloudpickle.dumps(value)
        except BaseException as error:  # noqa: BLE001 - whatever is raised is the task's outcome
            if self._forked:
                os._exit(1)
            part = isinstance(error, PartFailed)
            payload = describe("", error.error, error.cause) if part else describe(stage, error)  # type: ignore[attr-defined]
            return (KIND_ERROR, payload, body.sent, 0), None
        if self._forked:
            os._exit(0)
        took_us = int((monotonic() - body.began_s) * 1e6)
        if is_small(value):
            return (KIND_SMALL, value, body.sent, took_us), None
        return (KIND_VALUE, None, body.sent, took_us), value

    def _function(self, token: int, number: int, data: bytes) -> Callable[..., Any]:
        key = (token, number)
        fn = self._functions.get(key) if number else None
        if fn is None:
            fn = pickle.loads(data)  # noqa: S301 - from our own driver
            assert fn is not None, "a function travels"
            if number:
                if len(self._functions) >= _KEPT_AT_MOST:
                    self._functions.clear()
                self._functions[key] = fn
        return fn

    # Up

    def send(self, kind: int, payload: bytes) -> None:
        """Send a message of the body that runs to the driver."""
        body = self.inbox
        if body is not None:
            with self._sending:
                self._place(body)
                body.sent += 1
                self._board.up.remote((body.token, body.number, body.sent, kind, payload))

    def _place(self, body: RayBody) -> None:
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
        """Announce every body that runs for a while; hand back who waits behind it."""
        while True:
            self._beat.wait()
            self._beat.clear()
            sleep(ANNOUNCE_S)
            body = self.inbox
            while body is not None and body is self.inbox:
                if monotonic() - body.began_s < ANNOUNCE_S:
                    sleep(ANNOUNCE_S / 4)
                    continue
                with self._sending:
                    if body is self.inbox:
                        self._place(body)
                if body.rest is not None:
                    self._hand_back(body, body.rest)
                break

    def _hand_back(self, body: RayBody, arrival: Arrival) -> None:
        with self.lock:
            if body is not self.inbox or arrival.is_handed_back:
                return
            arrival.is_handed_back = True
            ended, waiting = arrival.ended[:], arrival.waiting[:]
        try:
            data = ray.cloudpickle.dumps(ended)
        except BaseException:  # noqa: BLE001 - checked before; should it change its mind, the results come with the rest
            data = ray.cloudpickle.dumps([])
        self._board.up.remote((body.token, body.number, 0, KIND_HANDED_BACK, (data, waiting)))

    # Down

    def _listen(self) -> None:
        """Pass on what the driver wishes, as long as anybody may have to hear it."""
        while True:
            try:
                lines = ray.get(self._board.listen.remote(self._worker))
            except Exception:  # noqa: BLE001 - the switchboard is gone, and the driver with it or about to act
                self._listener = None
                return
            for token, number, count, line in lines:
                body = self.inbox
                if body is not None and (body.token, body.number) == (token, number):
                    body.early[count] = line
                    while (line := body.early.pop(body.heard + 1, None)) is not None:
                        body.heard += 1
                        self.take_line(line)
            with self._sending:
                if self.inbox is None and monotonic() - self._busy_s > IDLE_S:
                    self._listener = None
                    return

    def _board_called(self, name: str) -> Any:  # noqa: ANN401 - an actor
        board = self._boards.get(name)
        if board is None:
            board = self._boards[name] = ray.get_actor(name)
        return board

    def _let_go(self) -> None:
        """In a process that a body forked: none of the threads is there."""
        self._forked = True
        self.lock = threading.RLock()


def _deaf_to_interrupts(host: RayHost) -> None:
    """Do not let Ray interrupt a shipment that has begun: an abort is a signal that a body may look at.

    So a task of Ray that was cancelled but not killed has not begun, see ``RayEngine._lost``. Other tasks of Ray in
    this worker are interrupted as ever. The handler is a function: what a body starts does not inherit it.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    before = signal.getsignal(signal.SIGINT)

    def interrupted(number: int, frame: FrameType | None) -> None:
        if ray.get_runtime_context().get_task_id() != host.ray_task and callable(before):
            before(number, frame)

    signal.signal(signal.SIGINT, interrupted)


_host: RayHost | None = None


def carry_out(head: bytes | list[Parcel], *args: Any) -> tuple[Any, ...]:  # noqa: ANN401 - the arguments of all bodies
    """Run the bodies of a shipment; the remote function of the Ray engine."""
    global _host  # noqa: PLW0603 - one for each worker process
    if _host is None:
        _host = RayHost()
        _deaf_to_interrupts(_host)
    return _host.carry_out(open_head(head) if isinstance(head, bytes) else head, args)
