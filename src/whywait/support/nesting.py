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


def parents_first(parents: Mapping[str, str | None]) -> list[str]:
    """Return all keys, each after its parent; raise NestingError for a circle, or for what is nested too deeply."""
    depths: dict[str | None, int] = {None: 0}
    for key in parents:
        chain: dict[str, None] = {}
        above: str | None = key
        while above is not None and above not in depths:
            if above in chain:
                names = list(chain)
                circle = [*names[names.index(above) :], above]
                left_out = [f"({len(circle) - _TOLD} more)"] if len(circle) > _TOLD else []
                told = " -> ".join([*circle[: _TOLD - 2], *left_out, *circle[max(_TOLD - 2, len(circle) - 2) :]])
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
