"""What the tests of a cluster share: waiting with a limit, and looking at processes."""

import time
from pathlib import Path

LIMIT_S = 40.0


def until(condition, what="the condition"):
    """Wait until the condition holds; return its value."""
    end = time.monotonic() + LIMIT_S
    while not (value := condition()):
        assert time.monotonic() < end, f"{what}: no end of waiting within {LIMIT_S:g} s"
        time.sleep(0.02)
    return value


def alive(pid):
    """Return whether a process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False
