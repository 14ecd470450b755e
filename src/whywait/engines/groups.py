"""Process groups: send them signals, and tell whether anybody in them is alive."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc")
_DEAD: Final = (b"Z", b"X")


def send_signal(group: int, number: int) -> None:
    """Send a signal to everybody in a group; nothing happens if nobody is left."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def has_living(group: int) -> bool:
    """Return whether anybody in a group is alive; who has ended and was not reaped by its parent yet is not."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    if not _PROC.joinpath("self", "stat").exists():
        return True  # no way to look closer
    return any(_is_living_in(group, entry) for entry in _PROC.iterdir() if entry.name.isdecimal())


def _is_living_in(group: int, entry: Path) -> bool:
    try:
        stat = entry.joinpath("stat").read_bytes()
    except OSError:
        return False
    state, _, its_group = stat.rpartition(b")")[2].split()[:3]  # the name before it may contain anything
    return int(its_group) == group and state not in _DEAD
