"""What ``whywait retry`` and ``whywait forget`` have in common: some jobs by id, or all of a kind."""

from __future__ import annotations

import argparse

from whywait.errors import ConfigError
from whywait.machine.client import Machine, quoted

TYPE_CHECKING = False  # see the package itself
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any


def add_choice(parser: argparse.ArgumentParser, option: str, text: str) -> None:
    """Add the ids, and the option that means all of a kind."""
    parser.add_argument("ids", metavar="ID", nargs="*", help="the jobs")
    parser.add_argument(option, action="store_true", help=text)
    parser.add_argument("--json", action="store_true", help="print the answer as JSON, for programs")


def answers(verb: str, ids: list[str], *, everything: bool) -> Iterator[dict[str, Any]]:
    """Do a verb to the jobs that were chosen; yield the answers."""
    if everything == bool(ids):
        raise ConfigError(
            f"whywait {verb} needs ids of jobs, or an option for all of a kind: see whywait {verb} --help"
        )
    machine = Machine()
    if everything:
        yield machine.ask("POST", f"/machine/{verb}", {})
    for each in ids:
        yield machine.ask("POST", f"/machine/jobs/{quoted(each)}/{verb}", {})
