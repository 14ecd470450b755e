"""``whywait do``: a command in this terminal, when the machine permits it."""

from __future__ import annotations

import argparse
import os

from whywait.cli.machine.demands import add_command, add_demands, command_of, demands_of, say, time_of
from whywait.machine.client import Machine
from whywait.machine.terminal import do

HELP = """Run a command in this terminal as soon as the machine has what it needs; until then, say what it waits for.

  whywait do -- make test
  whywait do --ram 10GB -- pytest -n 8
  whywait do --jobserver -- make

The command has this terminal, directory and environment; Ctrl-C, Ctrl-Z and fg work as without whywait, and its exit
status is the one of whywait. If something else ends it, a line says what: 124 by --timeout, else 128 and the signal;
125 if it never ran. Ctrl-C while it waits withdraws the request."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the verb."""
    add_demands(parser)
    add = parser.add_argument
    add("--name", "--id", metavar="NAME", help="call it so, with a number behind; by default as the program is called")
    add("--scope", metavar="NAME", help="put it into this scope")
    add("--after", metavar="ID", action="append", default=[], help="start it when this job has succeeded; repeat")
    add("--timeout", metavar="TIME", type=time_of, help="end it after it has run this long: 90s, 2h")
    add("--jobserver", action="store_true", help="let make, ninja or cargo inside use all cpu that is free")
    add("--jobserver-by", choices=("fifo", "pipe"), help="how they are told of it; by default as the command wants it")
    add("--quiet", "-q", action="store_true", help="do not say that it waits")
    add_command(parser)


def run(options: argparse.Namespace) -> int:
    """Run a command; does not return if it was started."""
    command = command_of(options, "do")
    machine = Machine(start=not options.no_start, say=say)
    name = options.name or os.path.basename(command[0])
    asked = demands_of(options)
    for option in ("scope", "after", "timeout"):
        if value := getattr(options, option):
            asked[option] = value
    style = options.jobserver_by or ("auto" if options.jobserver else None)
    return do(machine, command, name, asked, jobserver=style, is_quiet=options.quiet)
