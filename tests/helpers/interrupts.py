"""Interrupts at every place where a signal can come: a test does not have to wait for chance."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from inspect import CO_GENERATOR
from types import FrameType, TracebackType
from typing import Any, Final, Self

_LOOKS: Final = ("call", "c_return")  # the interpreter looks for signals where a function begins and after calls


class Interrupt:
    """Raises KeyboardInterrupt at the n-th different place of this project's code within the block."""

    def __init__(self, place: int) -> None:
        self.where: str | None = None  # None: it did not come to that
        self._place = place
        self._seen: set[tuple[Any, int, str]] = set()

    def __enter__(self) -> Self:
        gc.disable()  # what comes in a finaliser is swallowed there
        sys.setprofile(self._look)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        sys.setprofile(None)
        gc.enable()
        return kind is KeyboardInterrupt

    def _look(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        # What comes where a generator is let go is swallowed there.
        is_ours = (frame.f_globals.get("__name__") or "").startswith("whywait") and not code.co_flags & CO_GENERATOR
        if event in _LOOKS and is_ours:
            self._seen.add((code, frame.f_lasti, event))
            if len(self._seen) > self._place:
                self.where = f"{code.co_qualname}:{frame.f_lineno}"
                sys.setprofile(None)
                raise KeyboardInterrupt


def at_every_place(attempt: Callable[[int], str | None], least: int = 5) -> int:
    """Call ``attempt(place)`` with an interrupt at each place in turn until one runs through; return how many."""
    for place in range(3000):
        if attempt(place) is None:
            assert place > least, "there was nothing to interrupt"
            return place
    raise AssertionError("still not through")
