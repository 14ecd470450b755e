"""Things inside one another, such as scopes: in which order they can be made, and whether they can be at all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from whywait.errors import ConfigError

DEEPEST: Final = 100
_TOLD: Final = 12  # names of a circle


class NestingError(ConfigError):
    """Something is inside itself, or too deep; ``key`` says what."""

    def __init__(self, key: str, message: str) -> None:
        """Keep what it is about."""
        super().__init__(message)
        self.key = key


def show_circle(names: list[str]) -> str:
    """Write a circle as people read it, from a name back to it, without the middle of a long one: ``a -> b -> a``."""
    left_out = len(names) - _TOLD
    return " -> ".join(names if left_out <= 1 else [*names[: _TOLD - 2], f"({left_out} more)", *names[-2:]])


def parents_first(parents: Mapping[str, str | None]) -> list[str]:
    """Return all keys, each after its parent; raise NestingError for a circle, or for what is nested too deeply."""
    depths: dict[str | None, int] = {None: 0}
    for key in parents:
        chain: dict[str, None] = {}
        above: str | None = key
        while above is not None and above not in depths:
            if above in chain:
                names = list(chain)
                told = show_circle([*names[names.index(above) :], above])
                raise NestingError(key, f"the scopes form a circle: {told}")
            chain[above] = None
            above = parents[above]
        depth = depths[above]
        for link in reversed(chain):
            depth += 1
            if depth > DEEPEST:
                raise NestingError(key, f"is nested deeper than {DEEPEST} scopes: expected fewer")
            depths[link] = depth
    return [key for key in depths if key is not None]
