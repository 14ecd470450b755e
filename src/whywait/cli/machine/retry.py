"""``whywait retry``: jobs that have ended, once more."""

from __future__ import annotations

import argparse
import json
import sys

from whywait.cli.machine.choice import add_choice, answers

HELP = """Run jobs again that have ended, with the same command, directory, environment and demands; print the new ids.

  whywait retry 14
  whywait retry --failed"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the verb."""
    add_choice(parser, "--failed", "all that have failed and were not retried yet")


def run(options: argparse.Namespace) -> int:
    """Retry jobs."""
    jobs = [job for answer in answers("retry", options.ids, everything=options.failed) for job in answer["jobs"]]
    sys.stdout.write(json.dumps(jobs) + "\n" if options.json else "".join(f"{job['id']}\n" for job in jobs))
    return 0
