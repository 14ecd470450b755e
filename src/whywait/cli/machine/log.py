"""``whywait log``: the output of a job."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time

from whywait.errors import MachineError
from whywait.machine.client import NO_JOB, Machine, NoService, quoted
from whywait.support.digits import number_in

TYPE_CHECKING = False  # see the package itself
if TYPE_CHECKING:
    from typing import Final

HELP = """Show the output of a job: a header for each attempt, what the command wrote, how it ended.

  whywait log 14
  whywait log 14 -f

By its number a job's output can be shown without a service, too."""

LOOK_S: Final = 0.2  # how often to look for more


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the verb."""
    parser.add_argument("id", metavar="ID", help="the job")
    parser.add_argument("-f", "--follow", action="store_true", help="go on until the job has ended")


def run(options: argparse.Namespace) -> int:
    """Show a log."""
    sys.stdout.flush()
    machine, position = Machine(), 0
    while True:
        path, is_over = _look(machine, options.id)
        position = _show(path, position)
        if not options.follow or is_over:
            return 0
        time.sleep(LOOK_S)


def _look(machine: Machine, ref: str) -> tuple[str, bool]:
    """Return the file of a job's output, and whether no more will come."""
    try:
        job = machine.ask("GET", f"/machine/jobs/{quoted(ref)}")
    except NoService:
        number = number_in(ref)
        if number is None or not os.path.exists(path := machine.home.log_of(number)):
            raise
        return path, True
    if job["log"] is None:
        raise MachineError(NO_JOB.format(job["id"]))
    return job["log"], job["outcome"] is not None


def _show(path: str, position: int) -> int:
    """Print a file from a position on; return how far it goes."""
    try:
        with open(path, "rb") as log:
            log.seek(position)
            shutil.copyfileobj(log, sys.stdout.buffer)
            position = log.tell()
    except FileNotFoundError:
        pass  # the job has not started
    sys.stdout.buffer.flush()
    return position
