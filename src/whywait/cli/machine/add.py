"""``whywait add``: leave a command to the service."""

from __future__ import annotations

import argparse
import json
import os
import sys

from whywait.cli.machine.demands import add_command, add_demands, command_of, demands_of, time_of
from whywait.machine.client import Machine

HELP = """Leave a command to the service of this machine; print the id of the job.

  whywait add -- make test
  whywait add --ram 6GB --priority low -- python train.py
  whywait add --after 14 --retry 2 -- ./upload.sh

The job runs in this directory with this environment, when the machine has what it needs. Its output is kept
(whywait log ID). It survives the terminal. If the service or the machine goes down, a job that waits is kept for the
next service; one that was running has failed, unless it has a --retry left: then it is tried again.

A program that does not exist is refused, unless the job waits for another one (--after), which may make it."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the verb."""
    add_demands(parser)
    add = parser.add_argument
    add("--id", metavar="NAME", help="call it so, instead of by a number")
    add("--scope", metavar="NAME", help="put it into this scope")
    add("--after", metavar="ID", action="append", default=[], help="start it when this job has succeeded; repeat")
    add("--retry", metavar="N", type=int, help="try it again so many times if it fails")
    add("--timeout", metavar="TIME", type=time_of, help="end it after it has run this long: 90s, 2h")
    add("--json", action="store_true", help="print the answer as JSON, for programs")
    add_command(parser)


def run(options: argparse.Namespace) -> int:
    """Add a job."""
    asked = demands_of(options)
    for name in ("id", "scope", "after", "retry", "timeout"):
        value = getattr(options, name)
        if value is not None:
            asked[name] = value
    machine = Machine(start=not options.no_start)
    body = {"command": command_of(options, "add"), "directory": os.getcwd(), "environment": dict(os.environ), **asked}
    answer = machine.ask("POST", "/machine/jobs", body)
    sys.stdout.write(json.dumps(answer) + "\n" if options.json else f"{answer['id']}\n")
    return 0
