"""The lifeline of a worker process: a pipe that nothing is ever written to, and whose end is the parent's end."""

from __future__ import annotations

import fcntl
import signal


def die_with_parent(life: int, group: int) -> None:
    """Let the kernel kill a process group when the other end of this pipe closes; needs no thread to run.

    The setting belongs to the pipe and not to who makes it, so the parent makes it as soon as there is a worker: one
    that still starts, and has not run a line of ours, dies as well.
    """
    try:
        fcntl.fcntl(life, fcntl.F_SETOWN, -group)
        fcntl.fcntl(life, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(life, fcntl.F_SETFL, fcntl.fcntl(life, fcntl.F_GETFL) | fcntl.FASYNC)
    except (AttributeError, OSError):
        return  # elsewhere the control thread does it
