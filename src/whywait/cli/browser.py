"""The browser: led to a page by a private file, so that no token is on a command line, which other users can see."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # see the package itself
if TYPE_CHECKING:
    from pathlib import Path
    from typing import Final

NO_BROWSER: Final = "No browser was found here: open the address above in one."


def open_page(door: Path | None) -> bool:
    """Open the file that leads to a page where there is a screen: a browser of text would take this very terminal.

    Return whether that was possible.
    """
    has_screen = sys.platform in {"darwin", "win32"} or any(
        os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
    )
    if door is None or not has_screen:
        return False
    import webbrowser

    return webbrowser.open(door.as_uri())
