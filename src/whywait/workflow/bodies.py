"""What the engines carry out for a task of a file: a command, a function here, or a function in a worker process."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import chdir, contextmanager
from dataclasses import dataclass, field
from io import TextIOWrapper
from pathlib import Path
from threading import Thread
from typing import Any, Final

from whywait.engines.command.engine import Command
from whywait.workflow.callables import call_here, find_function
from whywait.workflow.format import AWAY
from whywait.workflow.outputs import Sink
from whywait.workflow.specs import Body

_PIPE: Final = 65_536  # bytes
_LAST_OUTPUT_S: Final = 0.5
STDERR_KEPT: Final = 8192  # bytes, for the message of a failure; the output itself goes to the sink


def make_body(body: Body, folder: Path, sink: Sink) -> Callable[..., Any]:
    """Return what is submitted for a body; a function is imported now, so that a bad one is found before the run."""
    cwd = folder if body.cwd is None else folder / body.cwd
    if body.run is not None:
        return Command(body.run, cwd=cwd, env=body.env or None, limit=STDERR_KEPT, on_output=sink.write)
    assert body.call is not None, "a body is a command or a function"
    function = find_function(body.call, folder)
    if body.engine not in AWAY:
        return function
    return Remote(body.call, str(folder), str(sink.path), str(cwd), dict(body.env))


@dataclass(frozen=True, slots=True)
class Remote:
    """A function in another process, maybe on a cluster, with environment and folder of its own, and its own log."""

    call: str
    folder: str
    log: str
    cwd: str
    env: Mapping[str, str] = field(default_factory=dict)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401  the function's own
        """Run the function in the worker."""
        with chdir(self.cwd), _environment(self.env), _output_into(self.log):
            return call_here(self.call, Path(self.folder), args, kwargs)


@contextmanager
def _environment(more: Mapping[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(more)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@contextmanager
def _output_into(path: str) -> Iterator[None]:
    """Let both standard streams of this process, and of what it starts, end in a file.

    A thread stands between, so that a full disk costs the log: a body that printed into the file would fail.
    """
    if not Path(path).parent.is_dir():  # on another machine: its output stays there
        yield
        return
    sys.stdout.flush()
    sys.stderr.flush()
    kept = os.dup(1), os.dup(2)
    readable, writable = os.pipe()
    pump = Thread(target=_pump, args=(readable, Path(path)), name="whywait-log", daemon=True)
    pump.start()
    try:
        os.dup2(writable, 1)
        os.dup2(writable, 2)
        if isinstance(sys.stdout, TextIOWrapper):  # a printed line stands before what a program prints after it
            sys.stdout.reconfigure(line_buffering=True)
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for number, saved in enumerate(kept, 1):
            os.dup2(saved, number)
            os.close(saved)
        os.close(writable)
        pump.join(_LAST_OUTPUT_S)  # a program that the body left running may hold the pipe for long


def _pump(readable: int, path: Path) -> None:
    """Write what comes from a pipe to the end of a file, until the pipe ends; drop it once that fails."""
    with open(readable, "rb", buffering=0) as pipe:
        try:
            with path.open("ab", buffering=0) as log:
                while data := pipe.read(_PIPE):
                    while data:
                        data = data[log.write(data) :]
        except OSError:
            while pipe.read(_PIPE):
                pass
