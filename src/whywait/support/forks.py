"""What belongs to this process alone is let go in any fork of it.

A worker process knows that its parent is gone by the end of a pipe. If the program forks, the copy would hold the
other end too and keep the worker alive; so a copy closes all such ends at once.
"""

from __future__ import annotations

import os
from typing import Final, Protocol
from weakref import WeakSet


class Owned(Protocol):
    """Something that a fork must not keep."""

    def let_go(self) -> None:
        """Close what a fork shares with the original, without a word to the other side."""


_owned: Final[WeakSet[Owned]] = WeakSet()


def own(thing: Owned) -> None:
    """Have ``thing.let_go()`` called in any fork of this process from now on."""
    _owned.add(thing)


def _let_go_all() -> None:
    owned = list(_owned)
    _owned.clear()  # first: what is of use in the fork too may be owned anew
    for thing in owned:
        thing.let_go()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go_all)
