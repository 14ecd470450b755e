"""``whywait forget``: ended jobs are listed no longer."""

from __future__ import annotations

import argparse
import json
import sys

from whywait.cli.machine.choice import add_choice, answers

HELP = """List ended jobs no longer, and delete their logs.

  whywait forget 14
  whywait forget --ended"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the verb."""
    add_choice(parser, "--ended", "all that have ended")


def run(options: argparse.Namespace) -> int:
    """Forget jobs."""
    jobs = [job for answer in answers("forget", options.ids, everything=options.ended) for job in answer["jobs"]]
    if options.json:
        sys.stdout.write(json.dumps(jobs) + "\n")
    return 0
