"""The files that a run may leave: a trace, and its events; the authority itself writes a record."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from whywait.authority import Authority
from whywait.bridges.chrome import write_trace
from whywait.bridges.jsonl import JsonLines
from whywait.errors import ConfigError
from whywait.workflow.run import Hook, Run


class Wanted(NamedTuple):
    """Where to write what; None: not at all."""

    trace: Path | None = None
    events: Path | None = None
    record: Path | None = None


def file_hooks(wanted: Wanted) -> list[Hook]:
    """Return what to attach to the authority; a file that cannot be written is refused before anything runs."""
    for option, path in (("--trace", wanted.trace), ("--record", wanted.record)):
        if path is not None:
            _writing(option, path, partial(path.write_bytes, b""))
    if wanted.events is None:
        return []
    path = wanted.events

    def follow(authority: Authority) -> Callable[[], object]:
        writer = _writing("--events", path, lambda: JsonLines(authority, path))
        return writer.close  # type: ignore[no-any-return]

    return [follow]


def write_files(wanted: Wanted, run: Run) -> None:
    """Write what is written when the run is over."""
    if wanted.trace is not None:
        trace = wanted.trace
        _writing("--trace", trace, lambda: write_trace(trace, run.authority.events()))


def _writing(option: str, path: Path, write: Callable[[], Any]) -> Any:  # noqa: ANN401  what it opened
    try:
        return write()
    except OSError as error:
        raise ConfigError(f"{option} {path}: cannot be written: {error.strerror or error}") from error
