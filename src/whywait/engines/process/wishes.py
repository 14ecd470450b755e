"""What is wished of a body in another process: one line down, which :class:`ChildServices` takes there."""

from __future__ import annotations

from typing import Final

from whywait.task.running import RunningTask

Wish = tuple[int, bool, str]  # the number of the pause (0: none), whether the task counts as parked, why to end (or "")
NOTHING: Final[Wish] = (0, False, "")


def wish_of(task: RunningTask) -> Wish:
    """Return what is wished of a task now."""
    signal = task.signal
    return NOTHING if signal is None else (signal.pause, signal.parked, signal.reason or "")


def wish_line(number: int, wish: Wish) -> str:
    """Return the line that tells a wish about the task of a number."""
    pause, parked, reason = wish
    return f"wish {number} {pause} {parked:d} {reason}"
