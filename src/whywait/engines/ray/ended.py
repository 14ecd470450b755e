"""Notices that tasks of Ray have ended: Ray calls for a few, a thread asks for many at once.

A call costs a fifth of a millisecond, since a thread of Ray has to get hold of the interpreter; asking for many at
once costs next to nothing for each. So a thread asks about tasks that are sent while many are under way, in rounds of
some milliseconds; Ray calls at once for the others.

Tasks go by their numbers here. A thread of Ray that let go of an execution last would run what hangs on it, such as the
warning of an error that nothing has looked at.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Final

import ray

MANY: Final = 32  # from so many under way on, asking is cheaper than being called
WINDOW: Final = 64  # how many it asks about at once: the oldest, which are likely to end first
WIDE_WINDOW: Final = 1024  # how many if none of the oldest has ended
ROUND_S: Final = 0.02
REST_S: Final = 1.0  # the thread ends when there was nothing to ask for so long

Report = tuple[int, bytes | Exception]  # the number of a task and its status, or the error of Ray that it has none


class Collector:
    """Reports each task that has ended, once."""

    def __init__(self, report: Callable[[list[Report]], None]) -> None:
        self._report = report
        self._under_way: deque[tuple[Any, int]] = deque()  # references of statuses, and the tasks' numbers
        self._has_more = threading.Condition()
        self._window = WINDOW
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def watch(self, number: int, status: Any, in_flight: int) -> None:
        """Report a task when its status is there."""
        if in_flight < MANY:
            status._on_completed(lambda answer: self._report([(number, answer)]))  # noqa: SLF001 - `future()` costs more
            return
        with self._has_more:
            self._under_way.append((status, number))
            if self._thread is None:
                self._thread = threading.Thread(target=self._collect, name="whywait-ray-collect", daemon=True)
                self._thread.start()
            elif len(self._under_way) == 1:
                self._has_more.notify()

    def close(self) -> None:
        """Watch nothing any more."""
        with self._has_more:
            self._is_closed = True
            self._has_more.notify()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _collect(self) -> None:
        while window := self._next_window():
            numbers = dict(window)
            try:
                ready = _ready(list(numbers))
                reports = _statuses([(ref, numbers.pop(ref)) for ref in ready])
            except (Exception, SystemExit):
                return
            with self._has_more:
                if reports:
                    self._window = WINDOW
                    self._under_way.extendleft(reversed(numbers.items()))
                else:
                    self._window = WIDE_WINDOW
                    self._under_way.extend(numbers.items())  # at the back: the next round asks for others
            if reports:
                self._report(reports)
            del numbers, ready, reports, window  # nothing here keeps a status alive

    def _next_window(self) -> list[tuple[Any, int]]:
        with self._has_more:
            if not self._under_way and not self._is_closed:
                self._has_more.wait(REST_S)
            if self._is_closed or not self._under_way:
                self._thread = None
                return []
            return [self._under_way.popleft() for _ in range(min(self._window, len(self._under_way)))]


def _ready(refs: list[Any]) -> list[Any]:
    """Wait for a round; return those that are ready, as soon as there are many, or one of a wide window."""
    if len(refs) <= WINDOW:
        return ray.wait(refs, num_returns=min(len(refs), MANY), timeout=ROUND_S)[0]  # type: ignore[no-any-return]
    ready = ray.wait(refs, num_returns=1, timeout=ROUND_S)[0]
    return ray.wait(refs, num_returns=len(refs), timeout=0)[0] if ready else []


def _statuses(ended: list[tuple[Any, int]]) -> list[Report]:
    """Return the statuses of tasks that have ended."""
    if not ended:
        return []
    try:
        statuses = ray.get([ref for ref, _ in ended])
    except Exception as error:
        if len(ended) == 1:
            return [(ended[0][1], error)]
        return [report for each in ended for report in _statuses([each])]
    return [(number, status) for (_, number), status in zip(ended, statuses, strict=True)]
