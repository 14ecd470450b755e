"""Single keys from a terminal, without waiting for Enter."""

from __future__ import annotations

import os
import select
import sys
from types import TracebackType
from typing import Any, Final, Self

_ARROWS: Final = {b"\x1b[A": "up", b"\x1b[B": "down", b"\x1bOA": "up", b"\x1bOB": "down"}


class Keys:
    """Reads keys for the time of a block; where that is not possible, nothing is ever pressed."""

    def __init__(self) -> None:
        """Remember how the terminal was."""
        self._before: Any = None

    def __enter__(self) -> Self:
        """Let single keys through; Ctrl-C stays what it is."""
        try:
            import termios
            import tty

            self._before = termios.tcgetattr(sys.stdin)
            tty.setcbreak(sys.stdin.fileno())
        except (ImportError, OSError, ValueError):
            self._before = None
        except Exception as error:  # termios.error is an Exception of its own
            if type(error).__name__ != "error":
                raise
            self._before = None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Leave the terminal as it was."""
        if self._before is not None:
            import termios

            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, self._before)

    def read(self, timeout_s: float) -> str:
        """Return the key that was pressed, or an empty text after so many seconds."""
        if self._before is None:
            select.select([], [], [], timeout_s)
            return ""
        ready, _, _ = select.select([sys.stdin], [], [], timeout_s)
        if not ready:
            return ""
        data = os.read(sys.stdin.fileno(), 32)
        if not data:
            return "q"  # nobody types any more
        return _ARROWS.get(data, data[:1].decode("latin-1"))
