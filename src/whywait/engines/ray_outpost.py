"""A task on the cluster as the driver sees it: what it was told, where it runs, what it says."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from whywait.engines.ray_child import Status
    from whywait.engines.ray_cluster import Cluster
    from whywait.handle import Handle

_NOTHING: Final = ("", False)  # nobody wishes an abort or a pause


class Shipment:
    """Tasks that went to Ray as one task of Ray."""

    __slots__ = ("__weakref__", "is_batch", "is_killed", "kill_asked_s", "outposts", "status", "values")

    def __init__(self, outposts: list[Outpost], *, is_batch: bool) -> None:
        self.outposts = outposts
        self.is_batch = is_batch  # its tasks may go together, so it is soon over
        self.status: Any = None  # the reference of what came of them
        self.values: list[Any] = []  # the references of their results
        self.kill_asked_s: float | None = None
        self.is_killed = False  # whether or not it had begun
        for outpost in outposts:
            outpost.shipment = self

    def cancel(self, *, force: bool = False) -> None:
        """Have Ray not begin it; with ``force`` also end the worker that has begun."""
        import ray

        if self.status is not None:
            self.is_killed = self.is_killed or force
            ray.cancel(self.status, force=force)


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
        self._kept: list[tuple[int, int, Any]] = []  # messages that came before its turn
        self.ended: tuple[Status, Any] | None = None  # it has, but messages are still to come

    @property
    def whereabouts(self) -> str:
        """Where it runs, as far as is known."""
        if self.place is None:
            return "not placed"
        _, node, machine, pid = self.place
        return f"{machine}, node {node[:8]}, pid {pid}"

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

    def keeps(self, message: tuple[int, int, Any]) -> bool:
        """Keep a message (count, kind, payload) that comes before the turn of the task; return whether it is kept."""
        with self.lock:
            if self.is_ahead:
                self._kept.append(message)
            return self.is_ahead

    def take_turn(self) -> list[tuple[int, int, Any]]:
        """Let the turn of the task have come; return the messages that were kept for it."""
        with self.lock:
            self.is_ahead = False
            kept, self._kept = self._kept, []
            return kept

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
