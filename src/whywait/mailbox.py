"""Mailbox: a queue between the body, the handlers and the workers of one task."""

from __future__ import annotations

from collections import deque
from typing import Any, Final

from whywait.waiters import Waiters

EMPTY: Final = object()


class Mailbox:
    """The items of one queue; who may wait for them is not its business."""

    def __init__(self, name: str, limit: int) -> None:
        """Start empty; ``limit`` items at most, 0 for any number."""
        self.name = name
        self.limit = limit
        self.waiters = Waiters()
        self._items: deque[Any] = deque()

    def __len__(self) -> int:
        """Return how many items wait."""
        return len(self._items)

    def offer(self, item: Any) -> bool:  # noqa: ANN401 - any item
        """Take an item if there is room for it; return whether there was. Under the lock."""
        if self.limit and len(self._items) >= self.limit:
            return False
        self._items.append(item)
        return True

    def take(self) -> Any:  # noqa: ANN401 - any item
        """Return the oldest item, or EMPTY. Under the lock."""
        return self._items.popleft() if self._items else EMPTY
