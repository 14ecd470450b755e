"""One task on the cluster as the driver sees it: its place, the last wish about it, which of its messages have come."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from threading import RLock
from time import monotonic
from typing import TYPE_CHECKING, Any

from whywait.engines.base import EngineTask
from whywait.engines.process.messages import NOTHING, wish_line, wish_of

if TYPE_CHECKING:
    from whywait.engines.ray.child import Status
    from whywait.engines.ray.cluster import Cluster


class RayTask:
    """A task that went to Ray. Code that exchanges messages with bodies uses it like a worker process."""

    def __init__(self, execution: EngineTask, cluster: Cluster, token: int) -> None:
        self.execution = execution
        self.number = execution.number
        self.fn_number = 0  # under which its function is known on the cluster; 0: under none
        self.value: Any = None  # the reference of its result; None: that stands in the status
        self.status: Any = None  # the reference of its status, which says how it has ended
        self.sent_s = monotonic()
        self.place: tuple[str, str, str, int] | None = None  # worker, node, machine, process id; None: not known to run
        self.lock = RLock()
        self.outlets: dict[str, Any] = {}  # streams that it was promised room in
        self.received = 0  # messages
        self.ended: Status | None = None  # its status, while messages are still to come
        self._cluster = cluster
        self._token = token
        self._told = NOTHING
        self._said = itertools.count(1)
        self._early: dict[int, tuple[int, Any]] = {}  # messages that have overtaken others

    @property
    def whereabouts(self) -> str:
        """Where it runs, as far as is known."""
        if self.place is None:
            return "not placed"
        _, node, machine, pid = self.place
        return f"{machine}, node {node[:8]}, pid {pid}"

    def cancel(self, *, force: bool = False) -> None:
        """Have Ray not begin it; with ``force`` also end the worker that runs it."""
        import ray

        if self.status is not None:
            ray.cancel(self.status, force=force)

    def tell(self) -> None:
        """Tell the worker what is wished of the task now, as soon as it is known where it runs."""
        with self.lock:
            wish = wish_of(self.execution)
            if self.place is None or wish == self._told:
                return
            self._told = wish
            self.say(wish_line(self.number, wish))

    def say(self, line: str) -> None:
        """Tell the worker something about its task."""
        if self.place is not None:
            self._cluster.board.down.remote(self.place[0], (self._token, self.number, next(self._said), line))

    def answer(self, number: int, question: int, data: bytes) -> None:
        """Send the answer to a question."""
        self.say(f"answer {number} {question} 1 {data.hex()}")

    def in_order(self, count: int, kind: int, payload: Any) -> Iterator[tuple[int, Any]]:
        """Yield the messages that are next in order, now that one more has come; the caller counts ``received``."""
        self._early[count] = (kind, payload)
        while (message := self._early.pop(self.received + 1, None)) is not None:
            yield message
