"""Threads that outlive what started them."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextvars import Context
from typing import Any, Final

# Between attempts at what must be done, and for which there was no memory: it may come back, at once or in a while.
PAUSES_S: Final = (*(0.0,) * 40, 0.01, 0.1, 1.0)
NO_MEMORY: Final = (MemoryError, SystemError)  # of a call: without memory for its frame Python 3.11 raises the latter


def lasting_thread(target: Callable[..., object], name: str, args: tuple[Any, ...] = ()) -> threading.Thread:
    """Return a daemon thread, to be started, that keeps nothing of its starter alive.

    From Python 3.14 on a thread may inherit the context of its starter, and would hold it for as long as it lives.
    """
    if sys.version_info >= (3, 14):
        return threading.Thread(target=target, name=name, args=args, daemon=True, context=Context())
    return threading.Thread(target=target, name=name, args=args, daemon=True)
