"""Results that are kept elsewhere, such as in the object store of a cluster, until they are asked for."""

from __future__ import annotations

from typing import Any, Protocol


class Fetchable(Protocol):
    """Something that takes its time before a body can have it."""

    def fetch(self) -> Any:
        """Return the value; it is brought here, or made, at the first call."""


class Elsewhere:
    """Stands for a result that has not come to this process.

    No abstract class: every result is asked whether it is one of these, and those take long to ask.
    """

    __slots__ = ("__weakref__",)

    def fetch(self) -> Any:
        """Return the result; it is brought here at the first call. Raise TaskFailed if it is lost."""
        raise NotImplementedError


def fetched(value: Any) -> Any:
    """Return a result as its user wants it."""
    return value.fetch() if isinstance(value, Elsewhere) else value
