"""``whywait ls``: the jobs of the service."""

from __future__ import annotations

import argparse
import sys

from whywait.machine.client import Machine

TYPE_CHECKING = False  # see the package itself
if TYPE_CHECKING:
    from typing import Any, Final

HELP = """List jobs: what has ended and how, what runs, what waits and why. Commands under `whywait do` are listed too.

  whywait ls
  whywait ls --json"""

HEAD: Final = ("id", "state", "for", "command", "")
KINDS: Final = {"ended": "have ended", "running": "run", "waiting": "wait"}
PAUSED: Final = "somebody has to resume it"
SHOWN: Final = 100  # of each kind
MOST: Final = 100_000


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the verb."""
    parser.add_argument("--all", "-a", action="store_true", help=f"list all, not only {SHOWN} of each kind")
    parser.add_argument("--json", action="store_true", help="print the list as JSON, for programs")


def run(options: argparse.Namespace) -> int:
    """List the jobs."""
    machine = Machine()
    if options.json:
        with machine.open("GET", "/machine/jobs") as answer:
            sys.stdout.write(answer.text() + "\n")
        return 0
    found = machine.ask("GET", f"/machine/status?most={MOST if options.all else SHOWN}")
    listed = [task for kind in KINDS for task in found[kind]]
    rows = [HEAD, *((name, *_row(task)) for name, task in zip(_names(listed), listed, strict=True))]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEAD) - 1)]
    for row in rows:
        cells = [text.ljust(width) for text, width in zip(row[:-1], widths, strict=True)]
        sys.stdout.write("  ".join([*cells, row[-1]]).rstrip() + "\n")
    for kind, text in KINDS.items():
        more = found[f"{kind}_total"] - len(found[kind])
        if more:
            sys.stdout.write(f"{more} more {text}: whywait ls --all\n")
    return 0


def _names(tasks: list[dict[str, Any]]) -> list[str]:
    """Return what each is called by the other verbs: the id, with its scope if another has the same id."""
    of_id: dict[str, set[str]] = {}
    for task in tasks:
        of_id.setdefault(task["id"], set()).add(task["scope"])
    return [task["id"] if len(of_id[task["id"]]) == 1 else f"{task['scope']}/{task['id']}" for task in tasks]


def _row(task: dict[str, Any]) -> tuple[str, ...]:
    """Return all but the name."""
    from whywait.cli.machine.words import command_line, paused, since

    outcome, ran_s = task["outcome"], task["ran_s"]
    if outcome is not None:
        return outcome, since(ran_s) if ran_s is not None else "", command_line(task), task["why"] or ""
    if ran_s is not None:
        state = {"PAUSED": paused(task), "DISPOSING": "ending"}.get(task["state"], "running")
        return state, since(ran_s), command_line(task), PAUSED if state == "paused" else ""
    state = paused(task) if task["state"] == "PAUSED" else "waiting"
    return state, since(task["waited_s"]), command_line(task), task["why"] or ""
