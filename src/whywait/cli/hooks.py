"""What ``whywait run`` attaches to a workflow run: files of its trace, events and record, and the DevTools page.

A file that cannot be opened is refused before anything runs. One that cannot be written later (a full disk) costs that
file alone: it is said once, on stderr, when the run is over.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import typer

from whywait.bridges.chrome import write_trace
from whywait.devtools import need_packages
from whywait.errors import ConfigError
from whywait.kernel.events import Event
from whywait.runtime.authority import Authority
from whywait.workflow.one_run import Hook

STDOUT: Final = Path("/dev/stdout")
_log = logging.getLogger("whywait.files")


class SideFiles(NamedTuple):
    """Where to write each file; None: it is not written."""

    trace: Path | None = None
    events: Path | None = None
    record: Path | None = None

    @property
    def take_stdout(self) -> bool:
        """Whether one of them is what the program prints."""
        return STDOUT in self

    def authority_options(self) -> dict[str, Any]:
        """Return what lets the authority write its events and its record."""
        return {"events_file": self.events, "record": self.record}

    def finish(self, events: Iterable[Event]) -> None:
        """Write what is written when the run is over."""
        if self.trace is not None:
            try:
                write_trace(self.trace, events)
            except OSError as error:
                _log.error("the trace is not written to %s: %s", self.trace, error.strerror or error)


def side_files(*, as_json: bool, **paths: str | None) -> SideFiles:
    """Return the files that were asked for (``-`` is standard output), each by the name of its option."""
    files = {name: None if text is None else _place(text) for name, text in paths.items()}
    taken = ["--json"] * as_json + [f"--{name}" for name, path in files.items() if path == STDOUT]
    if len(taken) > 1:
        raise typer.BadParameter(f"{' and '.join(taken)} cannot both be standard output")
    for name, path in files.items():
        if path is not None and path != STDOUT:
            try:
                path.open("ab").close()
            except OSError as error:
                raise ConfigError(f"--{name} {path}: cannot be written: {error.strerror or error}") from error
    return SideFiles(**files)


def _place(text: str) -> Path:
    return STDOUT if text in ("-", str(STDOUT), "/dev/fd/1") else Path(text).absolute()


@contextmanager
def told_files() -> Iterator[list[str]]:
    """Collect what is said about files for the time of the block: a live view would overwrite it."""
    told: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: told.append(record.getMessage())  # type: ignore[method-assign]
    propagate = _log.propagate
    _log.addHandler(handler)
    _log.propagate = False
    try:
        yield told
    finally:
        _log.propagate = propagate
        _log.removeHandler(handler)


def devtools_hook(name: str, file: str, *, port: int) -> Hook:
    """Return the hook that serves the run's page from before its first task until its end."""
    need_packages()

    def attach(authority: Authority) -> Callable[[], None]:
        return authority.devtools(port, name=name, file=file).close

    return attach
