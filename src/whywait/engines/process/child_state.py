"""What a child process keeps from one task to the next: the globals of its initializer, and lazy resources."""

from __future__ import annotations

import logging
import pickle
import sys
from collections.abc import Callable, Iterator
from types import FunctionType, ModuleType
from typing import Any, Final

from whywait.support.nested import replaced

log = logging.getLogger("whywait")

_INNER: Final = ("__func__", "func", "fn", "__wrapped__")  # where methods, partials and chunks have their function


class Globals:
    """The global variables of ``__main__`` that an initializer mentions, as it and the tasks after it left them.

    Functions of the parent's ``__main__`` travel by value, each with globals of its own. So that a task reads what the
    initializer has set, its functions are lent these variables for the time that it runs.
    """

    def __init__(self, initializer: Callable[..., object]) -> None:
        self._kept = {
            name: value
            for names in _namespaces(initializer)
            for name, value in names.items()
            if not name.startswith("__") and not isinstance(value, FunctionType | ModuleType | type)
        }

    def lend(self, fn: Callable[..., Any]) -> None:
        """Let a function, and what came with it, see the variables."""
        if self._kept:
            for names in _namespaces(fn):
                names.update(self._kept)

    def take_back(self, fn: Callable[..., Any]) -> None:
        """Keep the variables as the function has left them."""
        if self._kept:
            for names in _namespaces(fn):
                self._kept = {name: names[name] for name in self._kept if name in names}


def _namespaces(fn: Any) -> Iterator[dict[str, Any]]:
    """Yield the globals of a function that came from the parent's ``__main__``, and those of the functions in it."""
    names = getattr(fn, "__globals__", None)
    if names is None and not isinstance(fn, type):
        names = getattr(getattr(type(fn), "__call__", None), "__globals__", None)  # noqa: B004 - it is read, not asked for
    if isinstance(names, dict) and names.get("__name__") == "__main__" and names is not vars(sys.modules["__main__"]):
        yield names
    for inner in _INNER:
        found = getattr(fn, inner, None)
        if callable(found):
            yield from _namespaces(found)


class Lent:
    """Stands for a lazy resource among the arguments of a task on its way to a child process."""

    __slots__ = ("data", "name", "number")

    def __init__(self, number: int, name: str, data: bytes) -> None:
        self.number = number
        self.name = name
        self.data = data  # what makes it and what closes it, pickled


class Lazies:
    """The lazy resources that this process has made."""

    def __init__(self) -> None:
        self._made: dict[int, tuple[Any, Callable[[Any], object] | None, str]] = {}  # by number: value, close, name

    def fetch_all(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments of a body, lazy resources replaced by their values; what is not there is made."""
        values = tuple([replaced(value, Lent, self._fetch) for value in args])
        return values, {key: replaced(kwargs[key], Lent, self._fetch) for key in kwargs}

    def _fetch(self, value: Lent) -> Any:
        if value.number not in self._made:
            make, close = pickle.loads(value.data)
            self._made[value.number] = make(), close, value.name
        return self._made[value.number][0]

    def close_all(self) -> None:
        """Close all of them, the one that was made last first; errors are logged."""
        while self._made:
            value, close, name = self._made.popitem()[1]
            if close is not None:
                try:
                    close(value)
                except BaseException:
                    log.exception("closing %s failed", name)
            del value
