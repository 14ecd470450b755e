"""Numbers in words of a command line or of an address, told from names."""

from __future__ import annotations

TYPE_CHECKING = False  # see the package itself
if TYPE_CHECKING:
    from typing import Final

_MOST: Final = 100  # digits; no amount has more, and Python refuses to read some thousands


def number_in(text: str) -> int | None:
    """Return the number that a text of plain digits stands for; None: it is some other text."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _MOST else None


def number_or_text(text: str) -> int | str:
    """Return the number that a text of plain digits stands for, else the text."""
    number = number_in(text)
    return text if number is None else number
