"""``whywait log``: the output of a job."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time

from whywait.cli.machine.demands import say
from whywait.errors import MachineError
from whywait.machine.client import NO_JOB, Machine, NoService, quoted
from whywait.support.digits import number_in
from whywait.support.words import called

TYPE_CHECKING = False  # see the package itself
if TYPE_CHECKING:
    from typing import Any, Final

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
    machine, position, has_said = Machine(), 0, False
    while True:
        job = _look(machine, options.id)
        position = _show(job["log"], position)
        is_over = job["outcome"] is not None
        if job["started"] is None and (is_over or not has_said):
            say(_not_run(job))
            has_said = True
        if not options.follow or is_over:
            return 0
        time.sleep(LOOK_S)


def _look(machine: Machine, ref: str) -> dict[str, Any]:
    """Return what is known of a job; without a service the file of its output alone."""
    try:
        job: dict[str, Any] = machine.ask("GET", f"/machine/jobs/{quoted(ref)}")
    except NoService:
        number = number_in(ref)
        if number is None or not os.path.exists(path := machine.home.log_of(number)):
            raise
        return {"log": path, "started": True, "outcome": "unknown"}
    if job["log"] is None:
        raise MachineError(NO_JOB.format(job["id"]))
    return job


def _not_run(job: dict[str, Any]) -> str:
    """Return that a job has no output because it has not run, and why."""
    if job["outcome"] is None:
        return f"{called(job['id'])} has not run yet: {job['why']}"
    return f"{called(job['id'])} has not run: it {job['why']}"


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
