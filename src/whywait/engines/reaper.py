"""What runs in the reaper process: if the program dies, whatever way, kill the commands that it left running.

Reads lines ``+group`` and ``-group`` from its standard input; when that ends, kills the groups that are left. Run as
a script by its path, with nothing but the standard library: it starts in a few milliseconds.
"""

from __future__ import annotations

import os
import signal


def main() -> None:
    """Keep the list; act when the program is gone."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    groups: set[int] = set()
    rest = b""
    while data := _read():
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            (groups.add if line[:1] == b"+" else groups.discard)(int(line[1:]))
    for group in groups:
        try:
            os.killpg(group, signal.SIGKILL)
        except OSError:
            continue  # it has ended meanwhile


def _read() -> bytes:
    try:
        return os.read(0, 65536)
    except OSError:
        return b""


if __name__ == "__main__":
    main()
