"""How bodies and tests meet, also across processes: marks in a folder, waited for with a generous limit."""

import asyncio
import os
import time
from dataclasses import dataclass
from pathlib import Path

LIMIT_S = 15.0  # a condition that does not come true within this is taken never to
TICK_S = 0.003


def until(condition, what="the condition"):
    """Wait until the condition holds; return its value. ``what`` is it in words, or a function that tells."""
    end = time.monotonic() + LIMIT_S
    while not (value := condition()):
        assert time.monotonic() < end, f"{what() if callable(what) else what} : no end of waiting within {LIMIT_S:g} s"
        time.sleep(TICK_S)
    return value


async def until_async(condition):
    """Wait until the condition holds, in a coroutine; whoever calls has a limit of its own."""
    while not condition():  # noqa: ASYNC110 - the condition is a mark in a folder: there is no event to wait for
        await asyncio.sleep(TICK_S)


@dataclass(frozen=True)
class Stage:
    """A folder of marks; each mark can be made many times, by anybody, and is never taken back."""

    folder: str

    def mark(self, name, line="."):
        """Make a mark; what is appended in one write stays in one piece."""
        fd = os.open(Path(self.folder, name), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(fd, f"{line}\n".encode())
        finally:
            os.close(fd)

    def lines(self, name):
        """Return what was marked, in order."""
        try:
            return Path(self.folder, name).read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return []

    def count(self, name):
        """Return how often the mark was made."""
        return len(self.lines(name))

    def has(self, name):
        """Return whether the mark was made."""
        return Path(self.folder, name).exists()

    def wait(self, name, count=1):
        """Wait, in a test, until the mark was made so often."""
        until(lambda: self.count(name) >= count, f"mark {name!r}")

    def peak(self, name):
        """Return the highest sum that amounts, marked on entering and taken back on leaving, ever reached."""
        total = highest = 0
        for line in self.lines(name):
            total += int(line)
            highest = max(highest, total)
        return highest
