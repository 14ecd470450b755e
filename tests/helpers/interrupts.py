"""Interrupts at every place where a signal can come: a test does not have to wait for chance."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from inspect import CO_GENERATOR
from types import FrameType, TracebackType
from typing import Any, Final, Self

OURS: Final = ("whywait",)
_LOOKS: Final = ("call", "c_return")  # the interpreter looks for signals where a function begins and after calls


class Interrupt:
    """Raises KeyboardInterrupt at the n-th different place of this project's code within the block.

    ``again``: and once more, when the interpreter has looked for signals so many times after that. ``modules``: in the
    code of these, as their names begin.
    """

    def __init__(self, place: int, again: int = -1, modules: tuple[str, ...] = OURS) -> None:
        self.where: str | None = None  # None: it did not come to that
        self.came_again = False
        self._place, self._again, self._modules = place, again, modules
        self._seen: set[tuple[Any, int, str]] = set()

    def __enter__(self) -> Self:
        gc.disable()  # what comes in a finaliser is swallowed there
        sys.setprofile(self._look)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        sys.settrace(None)
        sys.setprofile(None)
        gc.enable()
        return kind is KeyboardInterrupt

    def _look(self, frame: FrameType, event: str, _: object) -> None:
        if event in _LOOKS and self._is_ours(frame):
            self._seen.add((frame.f_code, frame.f_lasti, event))
            if len(self._seen) > self._place:
                self.where = f"{frame.f_code.co_qualname}:{frame.f_lineno}"
                sys.setprofile(None)
                if self._again >= 0:
                    self._look_again_from(frame)
                raise KeyboardInterrupt

    def _look_again_from(self, frame: FrameType | None) -> None:
        """Go on as soon as the exception is raised: the interpreter profiles no more when a profiler has raised."""

        def go_on(*_: object) -> None:
            sys.settrace(None)
            sys.setprofile(self._look_again)

        sys.settrace(go_on)
        while frame is not None:
            frame.f_trace = go_on
            frame = frame.f_back

    def _look_again(self, frame: FrameType, event: str, _: object) -> None:
        if event in _LOOKS and self._is_ours(frame):
            self._again -= 1
            if self._again < 0:
                self.came_again = True
                sys.setprofile(None)
                raise KeyboardInterrupt

    def _is_ours(self, frame: FrameType) -> bool:
        """Return whether a frame is of these modules; what comes where a generator is let go is swallowed there."""
        is_generator = frame.f_code.co_flags & CO_GENERATOR
        return not is_generator and (frame.f_globals.get("__name__") or "").startswith(self._modules)


def at_every_place(attempt: Callable[[int], str | None], limit: int = 3000, least: int = 5) -> int:
    """Call ``attempt(place)`` with an interrupt at each place in turn until one runs through; return how many."""
    for place in range(limit):
        if attempt(place) is None:
            assert place > least, "there was nothing to interrupt"
            return place
    raise AssertionError(f"still not through after {limit} places")
