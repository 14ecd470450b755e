"""The ``whywait`` program: one file for each verb, put together here.

Exit codes: 0 all went well, 1 the run had failures (where a command says so), 2 bad input or usage, 70 a bug in
whywait itself, 130 interrupted. What goes wrong is told on stderr in one plain line; a traceback only with ``--debug``.
"""

from __future__ import annotations

import os
import sys
from io import BufferedWriter, FileIO, TextIOWrapper

from whywait.cli.verbs import MACHINE, OWN, program_help, run_verb
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
            code = left.code if isinstance(left.code, int) else 0
        sys.stdout.flush()  # here, where it is known what to do if the reader has gone or the disk is full
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader has gone (`| head`): nothing is wrong, and the interpreter must not complain on its way out.
        _let_go_of_stdout()
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "rich" or "--debug" in args:
            raise
        return _fail("this needs the package 'rich'; install it with: pip install 'whywait[cli]'")
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
    """Run a verb, or say something about the program."""
    args = args[1:] if args[:1] == ["--debug"] else args
    verb = args[0] if args else ""
    if verb in OWN or verb in MACHINE:
        return run_verb(verb, args[1:])
    if verb == "--version":
        sys.stdout.write(_version())
        return 0
    if verb in {"", "-h", "--help"}:
        (sys.stdout if verb else sys.stderr).write(program_help())
        return 0 if verb else BAD_INPUT
    return _fail(f"there is no verb {verb!r}; see whywait --help")


def _version() -> str:
    import platform

    from whywait.support.core import why_interpreted
    from whywait.support.version import __version__

    core = "interpreted" if why_interpreted else "compiled"
    why = f"the core is interpreted: {why_interpreted}\n" if why_interpreted else ""
    return f"whywait {__version__} (core: {core}, Python {platform.python_version()})\n{why}"


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
