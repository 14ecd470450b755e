"""The simple engine: one thread that takes one task after another, in the order in which they were started."""

from __future__ import annotations

from collections import deque
from typing import ClassVar

from whywait.engines.thread import ThreadEngine


class SimpleEngine(ThreadEngine):
    """Runs plain functions on one thread, one at a time."""

    name: ClassVar[str] = "simple"
    goes_on: ClassVar[bool] = False  # what may start next goes to the end of the queue

    def __init__(self) -> None:
        """Start without the thread; it comes with the first task."""
        super().__init__()
        self._names_left: deque[str] = deque(["whywait-simple"])  # one while there is no thread

    def new_name(self) -> str | None:
        """Return a name if there is no thread."""
        try:
            return self._names_left.pop()
        except IndexError:
            return None

    def name_is_free(self, name: str) -> None:
        """Take the name back; a task may have come while the thread was ending and found none."""
        self._names_left.append(name)
        if not self._queue.empty() and not self._closed:
            self.come_for_queue()
