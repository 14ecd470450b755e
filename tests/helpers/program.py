"""The program: as a real process behind pipes, or, where nothing depends on that, in this process and much quicker."""

import io
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from typing import NamedTuple
from unittest.mock import patch

from whywait.cli import execute

LONGEST_S = 60


class Done(NamedTuple):
    code: int
    out: str
    err: str


def clean_environment(*without):
    """Return the environment without what would change the program, but for the core, which is that of the tests."""
    dropped = {"PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED", *without}
    dropped |= {key for key in os.environ if key.startswith("WHYWAIT_") and key != "WHYWAIT_CORE"}
    return {key: value for key, value in os.environ.items() if key not in dropped}


def whywait(*args, stdin="", env=None, cwd=None, program=("-m", "whywait")):
    done = subprocess.run(
        [sys.executable, *program, *map(str, args)],
        input=stdin.encode(),
        capture_output=True,
        env={**clean_environment(), **(env or {})},
        cwd=cwd,
        check=False,
        timeout=LONGEST_S,
    )
    return Done(done.returncode, done.stdout.decode(), done.stderr.decode())


def whywait_here(*args, stdin=""):
    """Run the same program in this process."""
    out, err = io.StringIO(), io.StringIO()
    given = io.TextIOWrapper(io.BytesIO(stdin.encode()))
    with redirect_stdout(out), redirect_stderr(err), patch.object(sys, "stdin", given):
        code = execute([str(arg) for arg in args])
    return Done(code, out.getvalue(), err.getvalue())
