"""The present instant, as the core asks for it twice for each task."""

from __future__ import annotations

import sys
from time import monotonic_ns
from typing import Final

_HAS_C_CLOCK: Final = not __file__.endswith(".py") and sys.platform == "linux"


def now_ns() -> int:
    """Return what ``time.monotonic_ns`` returns; compiled, on Linux, without a call of Python."""
    if _HAS_C_CLOCK:
        return c_clock_ns()  # type: ignore[name-defined,no-any-return]
    return monotonic_ns()
