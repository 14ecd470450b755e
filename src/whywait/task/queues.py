"""Mailbox: a queue between the body, the handlers and the workers of one task; it ends with the task."""

from __future__ import annotations

from collections import deque
from typing import Any, Final, NoReturn

from whywait.errors import ConfigError, InvalidTransition
from whywait.support.waiters import Waiters

EMPTY: Final = object()


class Mailbox:
    """The items of one queue; waiting for them is left to the caller."""

    def __init__(self, label: str, name: str, limit: int) -> None:
        """Start empty; ``limit`` items at most, 0 for any number."""
        check_queue_limit(limit)
        self._label = label
        self._is_over = False
        self.name = name
        self.limit = limit
        self.waiters = Waiters()
        self._items: deque[Any] = deque()

    def __len__(self) -> int:
        """Return how many items wait."""
        return len(self._items)

    def offer(self, item: Any) -> bool:
        """Take an item if there is room for it; return whether there was. Under the lock."""
        if self._is_over:
            raise queue_has_ended(self._label, self.name)
        if self.limit and len(self._items) >= self.limit:
            return False
        self._items.append(item)
        return True

    def take(self) -> Any:
        """Return the oldest item, or EMPTY. Under the lock."""
        if self._is_over:
            raise queue_has_ended(self._label, self.name)
        return self._items.popleft() if self._items else EMPTY

    def close(self) -> None:
        """Take and give nothing more; all that wait for the queue wake, and raise."""
        with self.waiters.lock:
            self._is_over = True
            self._items.clear()
        self.waiters.ring()


class QueueElsewhere:
    """A queue that was taken to where its task does not run: there is nothing to be put or got."""

    def __init__(self, label: str, name: str) -> None:
        """Made where a pickled queue is read."""
        self._label = label
        self._name = name

    def put(self, *_: object, **__: object) -> NoReturn:
        """Raise: the queue is out of reach."""
        raise queue_of_another(self._label, self._name)

    get = put_async = get_async = __len__ = put


def queue_of_another(label: str, name: str) -> InvalidTransition:
    """Return the error of a queue that belongs to another task."""
    return InvalidTransition(f"queue {name!r} belongs to task {label}: it can be used by that task only, while it runs")


def queue_has_ended(label: str, name: str) -> InvalidTransition:
    """Return the error of a queue whose task has ended."""
    return InvalidTransition(f"task {label} has ended: its queue {name!r} takes and gives nothing more")


def check_queue_limit(limit: object) -> None:
    """Refuse what is no limit of a queue."""
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 0:
        raise ConfigError(f"queue limit {limit!r} is not allowed: use an int, 0 for no limit")
