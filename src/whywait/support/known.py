"""What a task is called over many runs, where its body knows that better than its id or its function."""

from __future__ import annotations

from functools import partial
from typing import Any


class Known:
    """A body that says itself what the history calls it."""

    __slots__ = ()

    def known_as(self, id: str | None) -> str:
        """Return what the history calls it; ``id`` is the one that its task was given, if any."""
        raise NotImplementedError

    def shown_as(self) -> str:
        """Return what its task is shown as, with a number, if it was given no id; nothing of its arguments."""
        return type(self).__name__


def short_name(body: Any) -> str:
    """Return what a task is shown as whose body says no ``__name__``: what it calls in the end, or its class."""
    while type(body) is partial:
        body = body.func
    if issubclass(type(body), Known):
        shown: str = body.shown_as()
        return shown
    name = getattr(body, "__name__", None)
    return name if isinstance(name, str) else type(body).__name__


def function_name(body: Any) -> str:
    """Return the name of a function, or of the class of anything else that can be called, with its module."""
    while type(body) is partial:
        body = body.func
    try:
        module, name = (object.__getattribute__(body, each) for each in ("__module__", "__qualname__"))
    except AttributeError:
        module, name = type(body).__module__, type(body).__qualname__
    return name if module in (None, "__main__") else f"{module}.{name}"
