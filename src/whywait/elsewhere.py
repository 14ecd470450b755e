"""Results that are kept elsewhere, such as in the object store of a cluster, until somebody asks for them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any


class Elsewhere(ABC):
    """Stands for a result that has not come to this process."""

    __slots__ = ("__weakref__",)

    @abstractmethod
    def fetch(self) -> Any:  # noqa: ANN401 - any result
        """Return the result; it is brought here at the first call. Raise TaskFailed if it is lost."""


def fetched(value: Any) -> Any:  # noqa: ANN401 - any result
    """Return a result as its user wants it."""
    return value.fetch() if isinstance(value, Elsewhere) else value
