"""The ``whywait`` program: one file for each verb, put together here.

Exit codes: 0 all went well, 1 the run had failures (where a command says so), 2 bad input or usage, 70 a bug in
whywait itself, 130 interrupted. What goes wrong is told on stderr in one plain line; a traceback only with ``--debug``.
"""

from __future__ import annotations

import os
import sys
from io import BufferedWriter, FileIO, TextIOWrapper

from whywait.cli.machine import SHARED, VERBS, run_verb
from whywait.errors import WhywaitError

TYPE_CHECKING = False  # see the package itself
if TYPE_CHECKING:
    from typing import Any, Final

BAD_INPUT: Final = 2
BUG: Final = 70
INTERRUPTED: Final = 130


def main() -> None:
    """Run the ``whywait`` program and leave with its exit code."""
    _settle_streams()
    try:
        code = execute(sys.argv[1:])
    except KeyboardInterrupt:  # before the command has begun, or after it
        code = INTERRUPTED
    sys.exit(code)


def execute(args: list[str]) -> int:
    """Run the program with these arguments; return the exit code."""
    _tolerate_plain_streams()
    code = 0
    try:
        try:
            code = _run(args)
        except SystemExit as left:
            if isinstance(left.__context__, BrokenPipeError):  # of which click makes the code of a failure
                raise left.__context__ from None
            code = left.code if isinstance(left.code, int) else 0
        sys.stdout.flush()  # here, where it is known what to do if the reader has gone or the disk is full
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
    return code


def _run(args: list[str]) -> int:
    """Run a verb."""
    if args and args[0] in VERBS:
        return run_verb(args[0], args[1:])
    if args and args[0] in SHARED:
        from whywait.cli.machine.acting import run_shared

        return run_shared(args[0], args[1:], lambda: _run_app(args))
    return _run_app(args)


def _run_app(args: list[str]) -> int:
    """Run a verb that typer reads the arguments of."""
    try:
        from whywait.cli.app import make_app
    except ModuleNotFoundError as error:
        if error.name not in {"typer", "rich", "click"}:
            raise
        return _fail(f"the command line needs the package {error.name!r}; install it with: pip install 'whywait[cli]'")
    make_app()(args, prog_name="whywait")
    return 0


class _Lossy(FileIO):
    """A file that drops what it cannot take: its disk is full, or its reader has gone."""

    def write(self, data: Any, /) -> int:  # noqa: ANN401 - bytes in any form
        """Write, or drop."""
        try:
            return super().write(data)
        except OSError:
            return len(data)


def _settle_streams() -> None:
    """Have all three standard streams, and none that makes the program fail for what it could only say there.

    One that was closed is the null device, or the next file that is opened would get its number. What stderr cannot
    take is lost, and changes neither the exit code nor what is printed.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the lowest that is free: this one
    sys.stdin = sys.stdin or TextIOWrapper(FileIO(0, closefd=False))
    sys.stdout = sys.stdout or TextIOWrapper(FileIO(1, "w", closefd=False))
    encoding = sys.stderr.encoding if sys.stderr else None
    sys.stderr = TextIOWrapper(BufferedWriter(_Lossy(2, "w", closefd=False)), encoding, line_buffering=True)


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
    from whywait.support.units import printable

    told = "\n".join(map(printable, message.splitlines()))
    sys.stderr.write(f"whywait: {told}\n")
    return BAD_INPUT
