"""Two small files beside the store: how far it had come when a client was last answered, and space for a full disk.

SQLite drops the rest of its log without a word from the first damaged byte on. The seal is outside of that log: it is
written after a commit is on the disk and before anything of that commit is told. So the store may be ahead of its seal,
by what was never told, and a store that is behind its seal has lost something.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Final, NamedTuple

from whywait.machine.rows import digest

PLACE: Final = 512  # bytes: a sector of any disk, so that a write that is broken off leaves the other place as it was
RESERVE_BYTES: Final = 1_000_000


class Sealed(NamedTuple):
    """How far a store has come: its commits, the jobs in it, and the highest number that a job was ever given."""

    commits: int = 0
    jobs: int = 0
    last: int = 0


class Seal:
    """The file that says how far the store had come, in two places that are written in turn."""

    def __init__(self, path: str) -> None:
        """Open the file; make an empty one if it is missing."""
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def read(self) -> Sealed | None:
        """Return what was written last; None if that is missing or damaged."""
        found = (_sealed(os.pread(self._fd, PLACE, place)) for place in (0, PLACE))
        return max((each for each in found if each is not None), default=None)

    def write(self, sealed: Sealed, *, sync: bool = True) -> None:
        """Write how far the store has come; return when that is on the disk, or at once without ``sync``."""
        os.pwrite(self._fd, _line(sealed), sealed.commits % 2 * PLACE)
        if sync:
            os.fdatasync(self._fd)

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)


def _line(sealed: Sealed) -> bytes:
    return f"{' '.join(map(str, sealed))} {digest(*sealed)}\n".encode("ascii")


def _sealed(data: bytes) -> Sealed | None:
    """Return what stands in one place; None if nothing does, or it is damaged."""
    line = data.partition(b"\n")[0]
    try:
        sealed = Sealed(*map(int, line.split()[:3]))
    except (ValueError, TypeError):
        return None
    return sealed if _line(sealed) == line + b"\n" else None


class Reserve:
    """A file that only takes up space, which is given up when the disk is full and something has to be written."""

    def __init__(self, path: str) -> None:
        """Take up the space, if the disk has it."""
        self._path = path
        self.make()

    def make(self) -> None:
        """Take up the space again after it was given up, as soon as the disk has it."""
        if os.path.exists(self._path):
            return
        with suppress(OSError):
            fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.posix_fallocate(fd, 0, RESERVE_BYTES)
            except OSError:
                os.unlink(self._path)
            finally:
                os.close(fd)

    def give_up(self) -> bool:
        """Give the space back to the disk; return whether there was any."""
        try:
            os.unlink(self._path)
        except OSError:
            return False
        return True
