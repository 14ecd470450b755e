"""Single keys from a terminal, without waiting for Enter."""

from __future__ import annotations

import os
import re
import select
import sys
from types import TracebackType
from typing import Any, Final, Self

_ARROWS: Final = {b"\x1b[A": "up", b"\x1b[B": "down", b"\x1bOA": "up", b"\x1bOB": "down"}
_KEY: Final = re.compile(rb"\x1b[\[O][0-9;]*[A-Za-z~]|.", re.DOTALL)


class Keys:
    """Reads keys for the time of a block; where that is not possible, nothing is ever pressed."""

    def __init__(self) -> None:
        """Remember how the terminal was."""
        self._before: Any = None
        self._pressed: list[bytes] = []

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
        if not self._pressed:
            ready, _, _ = select.select([sys.stdin], [], [], timeout_s)
            if not ready:
                return ""
            data = os.read(sys.stdin.fileno(), 1024)
            if not data:
                return "q"  # the terminal is gone
            self._pressed = _KEY.findall(data)
        key = self._pressed.pop(0)
        return _ARROWS.get(key, key.decode("latin-1"))
