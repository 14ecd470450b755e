"""``whywait do`` and ``whywait add``: a command, what it needs, and when it may run."""

from __future__ import annotations

import argparse
import json
import os
import sys

from whywait.errors import ConfigError
from whywait.support.digits import number_or_text

TYPE_CHECKING = False  # see the package itself
if TYPE_CHECKING:
    from typing import Any, Final

DO: Final = """\
Run a command in this terminal as soon as the machine has what it needs; until then, say what it waits for.

  whywait do -- make test
  whywait do --ram 10GB -- pytest -n 8
  whywait do --jobserver -- make

The command has this terminal, directory and environment; Ctrl-C, Ctrl-Z and fg work as without whywait, and its exit
status is the one of whywait. If something else ends it, a line says what: 124 by --timeout, else 128 and the signal;
125 if it never ran. Ctrl-C while it waits withdraws the request."""

ADD: Final = """Leave a command to the service of this machine; print the id of the job.

  whywait add -- make test
  whywait add --ram 6GB --priority low -- python train.py
  whywait add --after 14 --retry 2 -- ./upload.sh

The job runs in this directory with this environment, when the machine has what it needs. Its output is kept
(whywait log ID). It survives the terminal. If the service or the machine goes down, a job that waits is kept for the
next service; one that was running has failed, unless it has a --retry left: then it is tried again.

A program that does not exist is refused, unless the job waits for another one (--after), which may make it."""


def say(text: str) -> None:
    """Say something beside the output of the program."""
    sys.stderr.write(f"whywait: {text}\n")


def time_of(text: str) -> float | str:
    """Return a duration as the service takes it: a number of seconds, or text with a unit."""
    return float(text) if text.replace(".", "", 1).isdecimal() else text


def named(text: str) -> tuple[str, int | str]:
    """Return a name and an amount."""
    name, _, amount = text.partition("=")
    if not name or not amount:
        raise argparse.ArgumentTypeError(f"{text!r} is not allowed: write NAME=AMOUNT, as in licence=1")
    return name, number_or_text(amount)


def _size(text: str) -> str:
    """Refuse what is no size with its unit, nor one that the history knows."""
    from whywait.support.learned import as_learned
    from whywait.support.units import parse_written_size

    try:
        if as_learned(text) is None:
            parse_written_size(text)
    except ConfigError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


# What a request may say: each option, its value and its help. The service takes it under the name of the option, or
# the one that is given here, and says what is wrong with it.
DEMANDS: Final[dict[str, dict[str, Any]]] = {
    "--cpu": {"metavar": "N", "type": int, "help": "so many cores"},
    "--ram": {
        "metavar": "SIZE", "type": _size,
        "help": "so much memory: 6GB, 512MiB; learned, or learned:2GB: as much as it used before",
    },
    "--gpu": {"metavar": "N", "type": int, "help": "so many GPUs, whole; with --vram, that share of each of so many"},
    "--vram": {"metavar": "SIZE", "type": _size, "help": "so much memory of a GPU, which others may share"},
    "--device": {
        "metavar": "KIND=N", "type": named, "action": "append", "dest": "devices",
        "help": "so many devices of another kind, as in rig=1; repeat",
    },
    "--resource": {
        "metavar": "NAME=AMOUNT", "type": named, "action": "append", "dest": "resources",
        "help": "so much of a resource that up names; repeat",
    },
    "--priority": {
        "metavar": "P", "type": number_or_text, "help": "critical, high, normal, low, background, or 0 to 100",
    },
    "--max-wait": {"metavar": "TIME", "type": time_of, "help": "give up if it has not started so soon: 30s, 1h"},
    "--scope": {"metavar": "NAME", "help": "put it into this scope"},
    "--after": {"metavar": "ID", "action": "append", "help": "start it when this job has succeeded; repeat"},
    "--timeout": {"metavar": "TIME", "type": time_of, "help": "end it after it has run this long: 90s, 2h"},
}  # fmt: skip
OF_JOBS: Final[dict[str, dict[str, Any]]] = {
    "--id": {"metavar": "NAME", "help": "call it so, instead of by a number"},
    "--retry": {"metavar": "N", "type": int, "help": "try it again so many times if it fails"},
}


def _add_demands(parser: argparse.ArgumentParser, rows: dict[str, dict[str, Any]]) -> None:
    for option, row in rows.items():
        parser.add_argument(option, **row)
    parser.add_argument("--no-start", action="store_true", help="refuse if no service runs, instead of starting one")


def _demands_of(options: argparse.Namespace, rows: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return what was given of the options in a table, as the service takes it."""
    names = (row.get("dest", option.removeprefix("--").replace("-", "_")) for option, row in rows.items())
    asked = {name: value for name in names if (value := getattr(options, name)) is not None}
    return {name: dict(value) if name in ("devices", "resources") else value for name, value in asked.items()}


def _add_command(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("command", metavar="-- CMD", nargs=argparse.REMAINDER, help="the program and its arguments")


def _command_of(options: argparse.Namespace, verb: str) -> list[str]:
    """Return the command that was given."""
    command: list[str] = options.command
    if command and command[0] == "--":
        command = command[1:]
    elif "--" in command:
        raise ConfigError(
            f"{command[0]!r} stands before -- and is no option: write the whole command behind it, as in: "
            f"whywait {verb} -- make test"
        )
    if not command:
        raise ConfigError(f"there is no command: write it at the end, as in: whywait {verb} -- make test")
    return command


def do_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``do``."""
    add = parser.add_argument
    _add_demands(parser, DEMANDS)
    add("--name", "--id", metavar="NAME", help="call it so, with a number behind; by default as the program is called")
    add("--jobserver", action="store_true", help="let make, ninja or cargo inside use all cpu that is free")
    add("--jobserver-by", choices=("fifo", "pipe"), help="how they are told of it; by default as the command wants it")
    add("--quiet", "-q", action="store_true", help="do not say that it waits")
    _add_command(parser)


def do(options: argparse.Namespace) -> int:
    """Run a command; does not return if it was started."""
    from whywait.machine import terminal
    from whywait.machine.client import Machine

    command = _command_of(options, "do")
    machine = Machine(start=not options.no_start, say=say)
    name = options.name or os.path.basename(command[0])
    style = options.jobserver_by or ("auto" if options.jobserver else None)
    asked = _demands_of(options, DEMANDS)
    return terminal.do(machine, command, name, asked, jobserver=style, is_quiet=options.quiet)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``add``."""
    _add_demands(parser, DEMANDS | OF_JOBS)
    parser.add_argument("--json", action="store_true", help="print the answer as JSON, for programs")
    _add_command(parser)


def add(options: argparse.Namespace) -> int:
    """Add a job."""
    from whywait.machine.client import Machine

    machine = Machine(start=not options.no_start)
    command = _command_of(options, "add")
    body = {"command": command, "directory": os.getcwd(), "environment": dict(os.environ)}
    answer = machine.ask("POST", "/machine/jobs", {**body, **_demands_of(options, DEMANDS | OF_JOBS)})
    sys.stdout.write(json.dumps(answer) + "\n" if options.json else f"{answer['id']}\n")
    return 0
