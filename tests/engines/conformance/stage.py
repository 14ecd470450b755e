"""How bodies and tests meet, also across processes: marks in a folder, waited for with a generous limit."""

import os
from dataclasses import dataclass
from pathlib import Path

from patience import until


@dataclass(frozen=True)
class Stage:
    """A folder of marks; each mark can be made many times, by bodies and tests, and is never taken back."""

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
