"""What runs in the reaper process: if the program dies, whatever way, kill the commands that it left running.

Reads lines ``+group`` and ``-group`` from its standard input, and ``q`` if all is well. When the input ends without
that, it kills the groups that are left, and then, where there is a ``/proc``, whoever carries the program's mark in its
environment: a command that was started in the very moment in which the program died, or that has left its group.
Run as a script by its path, with nothing but the standard library: it starts in a few milliseconds.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

ROUNDS = 10  # a command between fork and exec does not carry the mark yet
PAUSE_S = 0.05


def main(mark: bytes) -> None:
    """Keep the list; act when the program is gone."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    groups: set[int] = set()
    is_well = False
    rest = b""
    while data := _read():
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            if line == b"q":
                is_well = True
            else:
                (groups.add if line[:1] == b"+" else groups.discard)(int(line[1:]))
    for group in groups:
        _kill(os.killpg, group)
    if not is_well:
        for _ in range(ROUNDS):
            for process in marked(mark):
                _kill(os.kill, process)
            time.sleep(PAUSE_S)


def marked(mark: bytes) -> list[int]:
    """Return the processes that carry a mark in their environment."""
    found = []
    for entry in os.listdir("/proc") if os.path.isdir("/proc") else ():  # noqa: PTH112, PTH208 - quicker to start
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/environ", "rb") as environ:  # noqa: PTH123 - the same
                    if mark in environ.read().split(b"\0"):
                        found.append(int(entry))
            except OSError:
                continue  # it has ended, or is somebody else's
    return found


def _kill(kill: Callable[[int, int], None], target: int) -> None:
    try:
        kill(target, signal.SIGKILL)
    except OSError:
        return  # it has ended meanwhile


def _read() -> bytes:
    try:
        return os.read(0, 65536)
    except OSError:
        return b""


if __name__ == "__main__":
    main(sys.argv[1].encode())
