"""Small pieces of HTML for notebooks, without scripts and without a style sheet.

Colours and sizes follow the notebook's own theme. Texts are escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

_COLOURS: Final = {
    "success": "#2e8b57",
    "RUNNING": "#2a6fdb",
    "error": "#c0392b",
    "timeout": "#c0392b",
    "aborted": "#8e6c00",
    "rejected": "#8e6c00",
}
_BAR_WIDTH_EM: Final = 14


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
