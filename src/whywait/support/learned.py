"""``ram="learned"`` as users write it: the memory that a task asks for is what the history of its name says."""

from __future__ import annotations

from typing import Final, NamedTuple

from whywait.support.units import parse_written_size

LEARNED: Final = "learned"


class Learned(NamedTuple):
    """A demand that the history knows; ``first`` is what is asked for as long as it does not."""

    first: int | None = None

    def __str__(self) -> str:
        """Show it as it is written."""
        return LEARNED if self.first is None else f"{LEARNED}:{self.first}B"


def as_learned(value: object) -> Learned | None:
    """Return what ``"learned"`` or ``"learned:2GB"`` stands for; None for anything else. A bad size raises."""
    if not isinstance(value, str):
        return None
    word, colon, first = value.strip().partition(":")
    if word.strip().lower() != LEARNED:
        return None
    return Learned(parse_written_size(first) if colon else None)
