"""``whywait wait``: until jobs have ended."""

from __future__ import annotations

import argparse

from whywait.machine.client import Machine, quoted

HELP = """Wait until jobs have ended; leave with the status of the job, of several with the first that is not 0.

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
        code = job["exit_code"]
        statuses.append(code if code is not None else 0 if job["outcome"] == "success" else 1)
    return next((status for status in statuses if status), 0)
