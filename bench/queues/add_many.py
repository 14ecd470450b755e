"""Add the jobs that are read, one a line, to the machine of ``WHYWAIT_HOME``; several at once, as a program would."""

import os
import shlex
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from whywait.machine.client import Machine


def main() -> None:
    """Add them, eight requests at once."""
    machine, surroundings = Machine(), {"directory": str(Path.cwd()), "environment": dict(os.environ)}
    with ThreadPoolExecutor(8) as pool:
        for _ in pool.map(
            lambda line: machine.ask("POST", "/machine/jobs", {"command": shlex.split(line), **surroundings}), sys.stdin
        ):
            pass


if __name__ == "__main__":
    main()
