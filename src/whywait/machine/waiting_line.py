"""The one line that a client shows while it waits for permission: on a terminal it is rewritten, elsewhere it stays."""

from __future__ import annotations

import os
from contextlib import suppress
from time import monotonic

TYPE_CHECKING = False  # see the package itself
if TYPE_CHECKING:
    from typing import Final

_STDERR: Final = 2
_CLEAR: Final = "\r\x1b[K"


class WaitingLine:
    """Shows on stderr what a request waits for.

    In the foreground of a terminal the line is rewritten when the reason changes and cleared in the end. Elsewhere (a
    pipe, a file, a job in the background) one line is written when the waiting begins and one when it is over.
    """

    def __init__(self, *, is_quiet: bool) -> None:
        """Show nothing yet; never anything if ``is_quiet``."""
        self._is_quiet = is_quiet
        self._since: float | None = None
        self._shown = ""  # what stands on the terminal now and is to be cleared

    @property
    def may_be_rewritten(self) -> bool:
        """Whether there is a terminal where the line is, or will be after ``fg``, brought up to date."""
        return self._since is not None and not self._is_quiet and os.isatty(_STDERR)

    @property
    def is_seen(self) -> bool:
        """Whether the user looks at it now."""
        return _is_in_foreground()

    def show(self, reason: str) -> None:
        """Say what the request waits for; leave the line as it is if there is nothing to say."""
        if not reason:
            return
        is_first = self._since is None
        if self._since is None:
            self._since = monotonic()
        if self._is_quiet:
            return
        text = f"waits: {reason}"
        if _is_in_foreground():
            self._shown = text
            _write(_CLEAR + _cut(text))
        elif is_first:
            _write(f"whywait: {text}\n")

    @property
    def _is_there(self) -> bool:
        """Whether it stands on the terminal; in the background the line there is the user's."""
        return bool(self._shown) and _is_in_foreground()

    def hide(self) -> None:
        """Clear the line, to draw it again or not at all."""
        if self._is_there:
            _write(_CLEAR)

    def again(self) -> None:
        """Draw the line anew after the terminal was used by others."""
        if self._is_there:
            _write(_CLEAR + _cut(self._shown))

    def runs(self) -> None:
        """Say that the waiting is over."""
        if self._since is None or self._is_quiet:
            return
        if self._is_there:
            self.hide()
        else:
            from whywait.support.units import format_ms

            _write(f"whywait: runs after {format_ms((monotonic() - self._since) * 1000)} of waiting\n")


def _is_in_foreground() -> bool:
    """Return whether stderr is a terminal, and this program the one that its user looks at."""
    try:
        return os.environ.get("TERM") != "dumb" and os.tcgetpgrp(_STDERR) == os.getpgrp()
    except OSError:
        return False


def _cut(text: str) -> str:
    """Make a text fit on one line of the terminal, with ``^C`` behind it: a longer one could not be cleared."""
    try:
        width = os.get_terminal_size(_STDERR).columns - len("^C") - 1
    except OSError:
        return text
    return text if width <= 0 or len(text) <= width else f"{text[: width - 1]}…"


def _write(text: str) -> None:
    with suppress(OSError):  # the terminal or the reader has gone; the command may not need them
        os.write(_STDERR, text.encode(errors="replace"))
