"""A task on the cluster as the driver sees it: what it was told, where it runs, what it says."""

from __future__ import annotations

import copy
import itertools
import logging
import threading
from collections.abc import Iterator
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

import ray
from ray.exceptions import RayError

from whywait.elsewhere import Elsewhere
from whywait.engines.ray_child import Status
from whywait.errors import TaskFailed

if TYPE_CHECKING:
    from whywait.engines.ray_cluster import Cluster
    from whywait.handle import Handle

log = logging.getLogger("whywait")

_NOTHING: Final = ("", False)  # nobody wishes an abort or a pause


class Shipment:
    """Tasks that went to Ray as one task of Ray."""

    __slots__ = ("__weakref__", "is_cancelled", "is_killed", "outposts", "status", "values")

    def __init__(self, outposts: list[Outpost]) -> None:
        self.outposts = outposts
        self.status: Any = None  # the reference of what came of them
        self.values: list[Any] = []  # the references of their results
        self.is_cancelled = False
        self.is_killed = False
        for outpost in outposts:
            outpost.shipment = self


class Outpost:
    """One task that went to Ray; whoever talks to bodies in other processes uses it like a worker process."""

    def __init__(self, handle: Handle[Any], cluster: Cluster, token: int) -> None:
        self.handle = handle
        self.number = handle._task.number
        self.shipment: Shipment
        self.is_ahead = False  # it is next in line and goes along, but its turn has not come
        self._cluster = cluster
        self._token = token
        self.lock = threading.Lock()
        self._told = _NOTHING
        self.turn = 0  # of the last wish it was told
        self._said = itertools.count(1)
        self.outlets: dict[str, Any] = {}  # streams that it was promised room in
        self.place: tuple[str, str, str, int] | None = None  # worker, node, machine, process id; None: not known to run
        self.sent_s = monotonic()
        self.received = 0  # messages
        self._early: dict[int, tuple[int, Any]] = {}  # messages that have overtaken others
        self.ended: tuple[Status, Any] | None = None  # it has, but messages are still to come

    def tell(self) -> None:
        """Tell the worker what is wished of the task now, as soon as it is known where it runs."""
        with self.lock:
            signal = self.handle._signal
            wish = _NOTHING if signal is None else (signal.reason or "", signal.pause_asked)
            if self.place is None or wish == self._told:
                return
            self._told = wish
            self.turn += 1
            self.say(f"wish {{}} {self.turn} {wish[1]:d} {wish[0]}")

    def in_order(self, count: int, kind: int, payload: Any) -> Iterator[tuple[int, Any]]:  # noqa: ANN401 - as the kind has it
        """Yield the messages whose turn it is, now that one more has come."""
        self._early[count] = (kind, payload)
        while (message := self._early.pop(self.received + 1, None)) is not None:
            yield message  # whoever takes it counts it

    def say(self, line: str) -> None:
        """Tell the worker something about its task, whose number stands for ``{}``."""
        if self.place is not None:
            count = next(self._said)
            self._cluster.board.down.remote(self.place[0], (self._token, self.number, count, line.format(self.number)))

    def answer(self, number: int, data: bytes) -> None:
        """Send the answer to a question."""
        self.say(f"answer {{}} {number} 1 {data.hex()}")


class InStore(Elsewhere):
    """A result in the object store of the cluster."""

    __slots__ = ("_is_here", "_lock", "_task_id", "_value", "ref")

    def __init__(self, task_id: str, ref: Any) -> None:  # noqa: ANN401 - a reference of Ray
        self._task_id = task_id
        self._lock = threading.Lock()
        self.ref = ref  # None: the cluster is gone
        self._is_here = False
        self._value: Any = None

    def fetch(self) -> Any:  # noqa: ANN401 - any result
        """Return the result; it is brought here at the first call. Raise TaskFailed if it is lost."""
        with self._lock:
            if not self._is_here:
                if self.ref is None:
                    raise TaskFailed(f"task {self._task_id}: its result was lost with the cluster")
                try:
                    self._value = ray.get(self.ref)
                except RayError as error:
                    raise TaskFailed(f"task {self._task_id}: its result was lost on the cluster: {error}") from error
                self._is_here = True
            return self._value

    def detach(self) -> None:
        """Bring the result here: the cluster is about to end."""
        try:
            self._value = copy.deepcopy(self.fetch())  # what Ray gives may lie in its memory
        except Exception as error:  # noqa: BLE001 - whoever asks will be told
            log.debug("the result of task %s did not survive the cluster: %r", self._task_id, error)
        self.ref = None
