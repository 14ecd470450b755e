"""A file that gets lines while a run goes on, and that can be read at any moment, also after the program was killed.

1. :meth:`LineFile.add` puts a line into a queue. That is cheap, so it may be done under a lock.
2. The first line in an empty queue starts a thread that writes half a second later and ends; an idle file has no
   thread. It is no daemon, so a program that ends without closing the file still gets its last lines.
3. ``add(line, at_once=True)`` and :meth:`LineFile.close` write in the calling thread. Lines are taken from the queue
   under the lock of the file, so they are written in order and once.
4. A file that cannot be written (a full disk) is given up: that is logged once, by the thread or by ``close`` and never
   under a lock of the caller's, and costs nothing but the file.

``LineFile._lock`` guards the file, the order of what is written, and what was told; it may be taken under any lock, and
nothing is taken under it. ``_lines`` is a deque, filled without it; ``error`` is set once, and asked again under it.
"""

from __future__ import annotations

import errno
import os
import re
from collections import deque
from io import FileIO
from pathlib import Path
from threading import RLock
from typing import Final

from whywait.support.later import Later
from whywait.support.logger import Log, log

FLUSH_S: Final = 0.5
_MOST: Final = 10_000  # lines that wait; a run that makes more in half a second writes them itself
_STREAMS: Final = {"/dev/stdout": 1, "/dev/stderr": 2}
_DESCRIPTOR: Final = re.compile(r"/(?:dev|proc/self)/fd/([0-9]{1,9})")


class LineFile:
    """A new file for lines of text, each written at most half a second after it was added."""

    def __init__(self, path: str | os.PathLike[str], what: str, log: Log = log) -> None:
        """Open ``path`` anew, or the stream that ``/dev/stdout`` is; ``what`` is what the log calls its content.

        A path that cannot be opened raises OSError.
        """
        self.path = Path(path)
        self.error: OSError | None = None  # why it was given up
        self._what = what
        self._log = log.child("files")
        self._file = _open(os.fspath(path))
        self._lines: deque[str] = deque()
        self._lock = RLock()
        self._later = Later(self._write_and_tell, "whywait-file")
        self._is_told = False

    @property
    def closed(self) -> bool:
        """Whether nothing is written any more."""
        return self.error is not None or self._file.closed

    def add(self, line: str, *, at_once: bool = False) -> None:
        """Write a line within half a second, or now; after the end of the file it is dropped."""
        if self.closed:
            return
        self._lines.append(line + "\n")
        if at_once or len(self._lines) >= _MOST:
            self._write()
            if self.error is not None:
                self._write_in(0.0)  # it has nothing to write, but tells the log
        else:
            self._write_in(FLUSH_S)

    def give_up(self, error: OSError) -> None:
        """Write what was added up to now and no more; the log is told why."""
        if not self.closed:
            self._write()
            self.error = self.error or error
            self._write_in(0.0)

    def close(self) -> None:
        """Write everything and close the file; idempotent."""
        if not self.closed:
            self._write()
        self._later.close()
        self._tell()
        with self._lock:
            self._file.close()

    def _write_in(self, delay_s: float) -> None:
        """Let a thread write what there is after a while, unless one will; where there is none to be had, do it now."""
        if not self._later.ask(delay_s):
            self._write()

    def _write_and_tell(self) -> None:
        self._write()
        self._tell()

    def _write(self) -> None:
        """Write the lines that wait, in order."""
        with self._lock:
            data = self._take()
            if not data or self.closed:
                return
            try:
                self._write_all(data)
            except OSError as error:
                self.error = error

    def _take(self) -> bytes:
        """Take the lines that wait; under the lock."""
        taken: list[str] = []
        while self._lines:
            taken.append(self._lines.popleft())
        return "".join(taken).encode(errors="backslashreplace")

    def _write_all(self, data: bytes) -> None:
        left = memoryview(data)
        while left:
            written = self._file.write(left)
            if written is None:
                raise BlockingIOError(errno.EAGAIN, "its reader is too slow")
            left = left[written:]

    def _tell(self) -> None:
        with self._lock:
            error, self._is_told, was_told = self.error, self._is_told or self.error is not None, self._is_told
        if error is not None and not was_told:
            self._log.error(
                "%s no longer written to %s: %s; the run goes on", self._what, self.path, error.strerror or error
            )


def _open(path: str) -> FileIO:
    """Open a file anew; a stream of this process is shared, so that it goes on where it is."""
    number = _STREAMS.get(path)
    found = _DESCRIPTOR.fullmatch(path)
    if number is None and found is not None:
        number = int(found[1])
    return FileIO(path, "w") if number is None else FileIO(os.dup(number), "w")
