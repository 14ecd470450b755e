"""Notebooks: whether this is one, HTML that is shown and changed in place, and small pieces of it.

The pieces have neither scripts nor a style sheet. Colours and sizes follow the notebook's own theme. Texts are escaped.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING, Any, Final

from whywait.support.lazy import running_loop

if TYPE_CHECKING:
    import asyncio

_COLOURS: Final = {
    "success": "#2e8b57",
    "RUNNING": "#2a6fdb",
    "error": "#c0392b",
    "timeout": "#c0392b",
    "aborted": "#8e6c00",
    "rejected": "#8e6c00",
}
_BAR_WIDTH_EM: Final = 14


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


def badge(state: str) -> str:
    """Return a state or an outcome as a small coloured word."""
    colour = _COLOURS.get(state, "#777")
    return (
        f'<span style="border:1px solid {colour};color:{colour};border-radius:.6em;padding:0 .5em;font-size:85%">'
        f"{escape(state)}</span>"
    )


def bar(part: float, *, label: str = "") -> str:
    """Return a bar that is full to ``part`` of its width."""
    percent = 100 * min(1.0, max(0.0, part))
    return (
        f'<span title="{escape(label, quote=True)}" style="display:inline-block;width:{_BAR_WIDTH_EM}em;height:.7em;'
        f'border:1px solid #888;border-radius:.2em;vertical-align:middle">'
        f'<span style="display:block;height:100%;width:{percent:.0f}%;background:#2a6fdb"></span></span>'
    )


def link(url: str, text: str) -> str:
    """Return a link that opens a page of its own."""
    return f'<a href="{escape(url, quote=True)}" target="_blank">{escape(text)}</a>'


def table(rows: Iterable[Sequence[str]]) -> str:
    """Return a table of cells that are HTML already."""
    body = "".join(f"<tr>{''.join(f'<td style=text-align:left>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table>{body}</table>" if body else ""


def lines(text: str) -> str:
    """Return several lines of text, as they are."""
    return f'<pre style="margin:0;line-height:1.3">{escape(text)}</pre>'
