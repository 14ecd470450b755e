"""The real program as a pipe: arguments in; exit code, stdout and stderr out."""

import os
import subprocess
import sys
from typing import NamedTuple

LONGEST_S = 60


class Done(NamedTuple):
    code: int
    out: str
    err: str


def clean_environment(*without):
    """Return the environment without what would change the program; compiled modules are kept, as users have them."""
    dropped = {"PYTHONDONTWRITEBYTECODE", *without}
    return {key: value for key, value in os.environ.items() if not key.startswith("WHYWAIT_") and key not in dropped}


def whywait(*args, stdin="", env=None, cwd=None):
    done = subprocess.run(
        [sys.executable, "-m", "whywait", *map(str, args)],
        input=stdin.encode(),
        capture_output=True,
        env={**clean_environment(), **(env or {})},
        cwd=cwd,
        check=False,
        timeout=LONGEST_S,
    )
    return Done(done.returncode, done.stdout.decode(), done.stderr.decode())
