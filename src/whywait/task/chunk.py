"""A chunk: several calls of one function as the body of one task.

It is what makes calls worthwhile that take less time than a task costs, most of all in other processes and on clusters.
Those load this file to run one, so it needs little.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

from whywait.support.known import Known, function_name, short_name

T = TypeVar("T")


class Awaited:
    """Stands in a chunk for an argument that another task returns."""


class Chunk(Known, Generic[T]):
    """Several calls as the body of one task; ``results`` are those of the calls that have returned."""

    def __init__(self, fn: Callable[..., Any], calls: list[tuple[Any, ...]]) -> None:
        self.fn = fn
        self.calls = calls
        self.results: list[T] = []

    def known_as(self, id: str | None) -> str:
        """Return what the history calls it: the same as a single call."""
        return id or function_name(self.fn)

    def shown_as(self) -> str:
        """Return what its task is shown as: its function."""
        return short_name(self.fn)

    def __call__(self, *awaited: Any, **kwargs: Any) -> list[T]:
        """Call the function with each call's arguments; return the results. The first error ends the chunk."""
        self.results = []  # of an earlier attempt
        for args in self._each_args(awaited):
            self.results.append(self.fn(*args, **kwargs))
        return self.results

    def _each_args(self, awaited: tuple[Any, ...]) -> Iterable[Iterable[Any]]:
        if not awaited:
            return self.calls
        given = iter(awaited)
        return ([next(given) if each is Awaited else each for each in call] for call in self.calls)


class CoroutineChunk(Chunk[T]):
    """The same for a coroutine function: each call is awaited before the next begins."""

    async def __call__(self, *awaited: Any, **kwargs: Any) -> list[T]:  # type: ignore[override]
        """Await the function with each call's arguments; return the results. The first error ends the chunk."""
        self.results = []  # of an earlier attempt
        for args in self._each_args(awaited):
            self.results.append(await self.fn(*args, **kwargs))
        return self.results
