"""What tasks write: one sink for each, with the last lines at hand and, if wanted, a log file.

Commands hand their bytes to their sink. Functions in this process print as usual: while a run is on, ``sys.stdout``
and ``sys.stderr`` pass what a task prints to its sink (found by the context the task runs in). Functions in worker
processes write into the sink's file themselves.

A log that cannot be written (a full disk) costs that log and no task; the first one is told, with the reason.
"""

from __future__ import annotations

import hashlib
import io
import logging
import re
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout, suppress
from contextvars import ContextVar
from pathlib import Path
from threading import RLock
from typing import IO, Final

from whywait.errors import ConfigError, WhywaitError
from whywait.support.units import printable

log = logging.getLogger("whywait.files")

_KEPT: Final = 8192  # bytes of the tail
_NAME: Final = 180  # bytes of a file name; file systems allow 255
_UNSAFE: Final = re.compile(r"[^\w.,:+-]")
_ESCAPES: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")

_sink: ContextVar[Sink | None] = ContextVar("whywait_sink", default=None)


class Sink:
    """Takes what one task writes."""

    def __init__(self, path: Path | None, lost: Callable[[OSError], object] = lambda _: None) -> None:
        """Keep the tail, and everything in the file if there is one; ``lost`` is told why it is written no more."""
        self.path = path
        self._lost = lost
        self._is_lost = False
        self._tail = bytearray()
        self._lock = RLock()
        self._file: IO[bytes] | None = None
        self.is_external = False  # another process writes into the file

    def write(self, data: bytes) -> None:
        """Take some bytes."""
        with self._lock:
            self._tail += data
            if len(self._tail) > 2 * _KEPT:
                del self._tail[:-_KEPT]
            self._log(data)

    def write_log_only(self, text: str) -> None:
        """Put a text into the file, if there is one, that is not the task's own output."""
        with self._lock:
            self._log(text.encode(errors="backslashreplace"))

    def _log(self, data: bytes) -> None:
        if self.path is not None and not self._is_lost:
            try:
                if self._file is None:
                    self._file = self.path.open("ab", buffering=0)
                self._file.write(data)
            except OSError as error:
                self._is_lost = True
                self._lost(error)

    def lines(self, most: int) -> list[str]:
        """Return the last lines that are not empty, without what a terminal would obey."""
        with self._lock:
            data = self._read() if self.is_external else bytes(self._tail[-_KEPT:])
        text = _ESCAPES.sub("", data.decode(errors="backslashreplace"))
        told = (
            printable(line.rpartition("\r")[2].rstrip().expandtabs(4))
            for line in text.replace("\r\n", "\n").split("\n")
        )
        return [line for line in told if line.strip()][-most:]

    def _read(self) -> bytes:
        try:
            with (self.path or Path()).open("rb") as file:
                file.seek(0, io.SEEK_END)
                file.seek(max(0, file.tell() - _KEPT))
                return file.read(_KEPT)
        except OSError:
            return b""

    def close(self) -> None:
        """Close the file; the last lines stay at hand."""
        with self._lock:
            if self.is_external:
                self._tail, self.is_external = bytearray(self._read()), False
            if self._file is not None:
                self._file.close()
                self._file = None


class Outputs:
    """The sinks of a run."""

    def __init__(self, folder: Path | None) -> None:
        """Write logs into the folder, which is made if need be; None keeps tails only."""
        self._folder = folder
        self._sinks: dict[str, Sink] = {}
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._is_told = False
        if folder is not None:
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise ConfigError(f"--logs {folder}: cannot be made: {error.strerror or error}") from error

    @property
    def are_kept(self) -> bool:
        """Whether all output stays in files after the run."""
        return self._folder is not None

    def open(self, ident: str, *, external: bool = False) -> Sink:
        """Return the new sink of a task; ``external``: it is to be a file that a worker process writes."""
        folder = self._folder
        if folder is None and external:
            if self._temporary is None:
                self._temporary = tempfile.TemporaryDirectory(prefix="whywait-")
            folder = Path(self._temporary.name)
        path = None if folder is None else folder / file_name(ident)
        if path is not None:
            try:
                path.write_bytes(b"")
            except OSError as error:
                raise ConfigError(f"--logs: {path} cannot be written: {error.strerror or error}") from error
        sink = self._sinks[ident] = Sink(path, self._lost)
        sink.is_external = external
        return sink

    def _lost(self, error: OSError) -> None:
        if not self._is_told:
            self._is_told = True
            log.error("logs in %s are not complete: %s; the run goes on", self._folder, error.strerror or error)

    def note_error(self, ident: str, error: BaseException) -> None:
        """Put the traceback of what a function raised into its log."""
        if not isinstance(error, WhywaitError) and self._folder is not None and ident in self._sinks:
            self._sinks[ident].write_log_only("".join(traceback.format_exception(error)))

    def path_of(self, ident: str) -> Path | None:
        """Return where the log of a task stays after the run."""
        sink = self._sinks.get(ident)
        return sink.path if sink is not None and self._folder is not None else None

    def lines(self, ident: str, most: int) -> list[str]:
        """Return the last lines that a task has written."""
        sink = self._sinks.get(ident)
        return [] if sink is None else sink.lines(most)

    def close(self) -> None:
        """Close all files; temporary ones go."""
        for sink in self._sinks.values():
            sink.close()
        if self._temporary is not None:
            self._temporary.cleanup()


def file_name(ident: str) -> str:
    """Return a safe name for the log of a task: no folders, no surprises, not too long, and that of no other task."""
    name = _UNSAFE.sub("_", ident)
    if name != ident or len(name.encode()) > _NAME:
        digest = hashlib.sha256(ident.encode(errors="surrogatepass")).hexdigest()[:8]
        name = f"{name.encode(errors='replace')[: _NAME - 9].decode(errors='ignore')}~{digest}"
    return f"{name}.log"


@contextmanager
def into(sink: Sink) -> Iterator[None]:
    """Let everything that takes its context from here write into the sink."""
    token = _sink.set(sink)
    try:
        yield
    finally:
        _sink.reset(token)


class _Router(io.TextIOBase):
    """Stands for a standard stream: passes on what a task prints to its sink, all else to the stream itself."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        sink = _sink.get()
        if sink is not None:
            sink.write(text.encode(errors="backslashreplace"))
        else:
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(ValueError, OSError):
            self._stream.flush()

    def fileno(self) -> int:
        return self._stream.fileno()

    def isatty(self) -> bool:
        return _sink.get() is None and self._stream.isatty()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return "utf-8"

    def writable(self) -> bool:
        return True


@contextmanager
def routed() -> Iterator[None]:
    """Route what tasks of this process print to their sinks for the time of the block."""
    with ExitStack() as stack:
        stack.enter_context(redirect_stdout(_Router(sys.stdout)))
        stack.enter_context(redirect_stderr(_Router(sys.stderr)))
        yield
