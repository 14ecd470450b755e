"""Who learns that tasks of Ray have ended: Ray itself calls for a few, a thread looks after many at once.

To be called costs a fifth of a millisecond each time, since a thread of Ray has to get hold of the interpreter; to ask
for many at once costs next to nothing. So what is sent while much is under way is asked for, in rounds of some
milliseconds, and everything else is called for at once.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import ray

if TYPE_CHECKING:
    from concurrent.futures import Future

    from whywait.engines.ray_outpost import Shipment

MANY: Final = 32  # from so many under way on, asking is cheaper than being called
WINDOW: Final = 256  # how many are asked for at once
ROUND_S: Final = 0.01
REST_S: Final = 1.0

Report = tuple["Shipment", Any, BaseException | None]  # what has ended, what came of it or why nothing did


class Collector:
    """Reports each shipment that has ended, once."""

    def __init__(self, report: Callable[[list[Report]], None]) -> None:
        self._report = report
        self._under_way: deque[Shipment] = deque()
        self._lock = threading.Lock()
        self._has_more = threading.Condition(self._lock)
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def watch(self, shipment: Shipment, in_flight: int) -> None:
        """Report a shipment when it has ended."""
        if in_flight < MANY:
            shipment.status.future().add_done_callback(partial(self._called, shipment))
            return
        with self._lock:
            self._under_way.append(shipment)
            if self._thread is None:
                self._thread = threading.Thread(target=self._collect, name="whywait-ray-collect", daemon=True)
                self._thread.start()
            else:
                self._has_more.notify()

    def close(self) -> None:
        """Watch nothing any more."""
        with self._lock:
            self._is_closed = True
            self._has_more.notify()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _called(self, shipment: Shipment, future: Future[Any]) -> None:
        error = future.exception()
        self._report([(shipment, None if error else future.result(), error)])

    def _collect(self) -> None:
        while window := self._next_window():
            by_ref = {shipment.status: shipment for shipment in window}
            try:
                ready, _ = ray.wait(list(by_ref), num_returns=min(len(window), MANY), timeout=ROUND_S)
            except Exception:  # noqa: BLE001 - Ray is shut down: nothing will ever be ready
                return
            reports = _outcomes([by_ref.pop(ref) for ref in ready])
            with self._lock:
                self._under_way.extend(by_ref.values())  # at the back: everybody gets a turn
            if reports:
                self._report(reports)
            del by_ref, reports, window

    def _next_window(self) -> list[Shipment]:
        with self._lock:
            while not self._under_way and not self._is_closed:
                if not self._has_more.wait(REST_S) and not self._under_way:
                    break
            if self._is_closed or not self._under_way:
                self._thread = None
                return []
            return [self._under_way.popleft() for _ in range(min(WINDOW, len(self._under_way)))]


def _outcomes(shipments: list[Shipment]) -> list[Report]:
    """Return what came of shipments that have ended."""
    if not shipments:
        return []
    try:
        statuses = ray.get([shipment.status for shipment in shipments])
    except Exception as error:  # noqa: BLE001 - one of them, whatever it is
        if len(shipments) == 1:
            return [(shipments[0], None, error)]
        return [report for shipment in shipments for report in _outcomes([shipment])]
    return [(shipment, status, None) for shipment, status in zip(shipments, statuses, strict=True)]
