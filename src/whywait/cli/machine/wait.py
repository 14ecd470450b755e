"""``whywait wait``: until jobs have ended."""

from __future__ import annotations

import argparse

from whywait.cli.machine.demands import say
from whywait.machine.client import Machine, quoted
from whywait.support.words import called

HELP = """Wait until jobs have ended; leave with the status of the job, of several with the first that is not 0.
If something else than its command ended a job, that is said; without a status, because it never ran, it counts as 1.

  whywait wait 14 && echo done"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the verb."""
    parser.add_argument("ids", metavar="ID", nargs="+", help="the jobs")


def run(options: argparse.Namespace) -> int:
    """Wait for jobs."""
    machine = Machine()
    statuses = []
    for each in options.ids:
        job = machine.ask("GET", f"/machine/jobs/{quoted(each)}/wait")
        code, has_failed = job["exit_code"], job["outcome"] != "success"
        if has_failed and job["cause"] != "exit_code":
            say(f"{called(job['id'])} {job['why']}")
        statuses.append(code if code is not None else int(has_failed))
    return next((status for status in statuses if status), 0)
