"""A function of a workflow file as a program of its own: ``python -m whywait.workflow.called MODULE:FUNCTION ...``.

The machine carries out functions this way. The arguments are the function's name, the folder of the file, and the
arguments by position and by name, as JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from whywait.workflow.callables import call_here


def command_of(call: str, folder: Path, args: tuple[object, ...], kwargs: dict[str, object]) -> list[str]:
    """Return the command that calls a function."""
    given = [call, str(folder), json.dumps(args), json.dumps(kwargs)]
    return [sys.executable, "-m", "whywait.workflow.called", *given]


def main(call: str, folder: str, args: str, kwargs: str) -> None:
    """Call the function; what it raises ends the program."""
    call_here(call, Path(folder), json.loads(args), json.loads(kwargs))


if __name__ == "__main__":
    main(*sys.argv[1:])
