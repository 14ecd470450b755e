"""``whywait down``: the end of the service."""

from __future__ import annotations

import argparse

from whywait.cli.machine.demands import say
from whywait.machine.client import Machine

HELP = """End the service of this machine. Jobs that wait are kept, and the next service takes them up.

  whywait down
  whywait down --now

It takes nothing more and ends with the last that runs. With --now it ends what runs: such a job counts as failed, or
has its next attempt with the next service."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the verb."""
    parser.add_argument("--now", action="store_true", help="end what runs, instead of waiting for it")


def run(options: argparse.Namespace) -> int:
    """End the service."""
    machine = Machine()
    running = machine.ask("POST", "/machine/down", {"now": options.now})["running"]
    if running and not options.now:
        still_run = "1 still runs: the service ends with it"
        if running > 1:
            still_run = f"{running} still run: the service ends with the last of them"
        say(f"{still_run}; to end it now: whywait down --now")
    machine.home.wait_until_left()
    return 0
