"""Notebooks: whether this is one, and a piece of HTML that can be shown and changed in place."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Any

from whywait.support.lazy import running_loop

if TYPE_CHECKING:
    import asyncio


def in_notebook() -> bool:
    """Return whether this program is the kernel of a notebook; nothing is imported to find out."""
    ipython: Any = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None and hasattr(ipython, "get_ipython") else None
    return getattr(shell, "kernel", None) is not None


def callers_loop() -> asyncio.AbstractEventLoop | None:
    """Return the event loop that this thread runs for its caller.

    A notebook runs its cells, plain code as well, in the main thread on an event loop of its own. Its user did not
    start that loop and may block it, as any long cell does: it is not the caller's.
    """
    loop = running_loop()
    if loop is not None and threading.current_thread() is threading.main_thread() and in_notebook():
        return None
    return loop


class Cell:
    """A piece of HTML below a notebook's cell that can be replaced."""

    def __init__(self, html: str) -> None:
        """Show it."""
        from IPython.display import HTML, display  # noqa: PLC0415 - a notebook has it

        self._html: Any = HTML
        self._shown: Any = display(HTML(html), display_id=True)

    def replace(self, html: str) -> None:
        """Show this instead."""
        self._shown.update(self._html(html))
