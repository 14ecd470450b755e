"""The ``whywait`` program: one file for each verb, put together here.

Exit codes: 0 all went well, 1 the run had failures (where a command says so), 2 bad input or usage, 70 a bug in
whywait itself, 130 interrupted. What goes wrong is told on stderr in one plain line; a traceback only with ``--debug``.
"""

from __future__ import annotations

import os
import sys
from io import TextIOWrapper
from typing import Final

from whywait.errors import WhywaitError

BAD_INPUT: Final = 2
BUG: Final = 70
INTERRUPTED: Final = 130


def main() -> None:
    """Run the ``whywait`` program and leave with its exit code."""
    try:
        code = execute(sys.argv[1:])
    except KeyboardInterrupt:  # before the command has begun, or after it
        code = INTERRUPTED
    sys.exit(code)


def execute(args: list[str]) -> int:
    """Run the program with these arguments; return the exit code."""
    try:
        from whywait.cli.app import make_app
    except ModuleNotFoundError as error:
        if error.name not in {"typer", "rich", "click"}:
            raise
        return _fail(f"the command line needs the package {error.name!r}; install it with: pip install 'whywait[cli]'")
    _tolerate_plain_streams()
    try:
        make_app()(args, prog_name="whywait")
        sys.stdout.flush()
    except SystemExit as left:
        return left.code if isinstance(left.code, int) else 0
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader has gone (`| head`): nothing is wrong, and the interpreter must not complain on its way out.
        _let_go_of_stdout()
    except (WhywaitError, OSError) as error:
        if "--debug" in args:
            raise
        return _fail(str(error) if isinstance(error, WhywaitError) else _fault(error))
    except Exception as error:
        if "--debug" in args:
            raise
        _fail(f"this is a bug in whywait ({type(error).__name__}: {error}); run again with --debug for the traceback")
        return BUG
    return 0


def _tolerate_plain_streams() -> None:
    """Let a stream that knows no bars still get the figures."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")


def _let_go_of_stdout() -> None:
    """Leave nothing to be written that cannot be: the interpreter would try again on its way out, and complain."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fault(error: OSError) -> str:
    """Tell what the machine refused: a full disk, say."""
    _let_go_of_stdout()
    return f"{error.filename}: {error.strerror}" if error.filename else error.strerror or str(error)


def _fail(message: str) -> int:
    sys.stderr.write(f"whywait: {message}\n")
    return BAD_INPUT
