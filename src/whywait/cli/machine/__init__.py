"""The verbs of the machine: each a module with ``HELP``, ``add_options(parser)`` and ``run(options)``.

They do without typer and rich, which take longer to load than the rest of ``whywait add`` takes.
"""

from __future__ import annotations

import argparse
import sys
from importlib import import_module

from whywait.errors import ConfigError

TYPE_CHECKING = False  # see the package itself
if TYPE_CHECKING:
    from typing import Final, NoReturn

WIDTH: Final = 100  # of help texts
# Each verb and what it does in a line.
VERBS: Final = {
    "up": "Run the service of this machine.",
    "down": "End the service of this machine.",
    "status": "Show what the machine has, what runs and what waits.",
    "do": "Run a command in this terminal when the machine permits it.",
    "add": "Leave a command to the service; print its id.",
    "ls": "List the jobs of the service.",
    "log": "Show the output of a job.",
    "wait": "Wait for jobs; leave with their status.",
    "retry": "Run jobs again that have ended.",
    "forget": "List ended jobs no longer.",
}
# These are for jobs of the service and for tasks of a run with DevTools alike. Without --url the service is asked
# first, if one runs; an id that it does not have is looked for among the runs.
SHARED: Final = ("why", "cancel", "pause", "resume")


def run_verb(verb: str, args: list[str]) -> int:
    """Run one verb with its arguments; return the exit code."""
    module = import_module(f"whywait.cli.machine.{verb}")
    code: int = module.run(make_parser(verb).parse_args(args))
    return code


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Writes help: `-s, --long VALUE`, as Python does since 3.13, so that all versions print the same."""

    if sys.version_info < (3, 13):

        def _format_action_invocation(self, action: argparse.Action) -> str:
            if not action.option_strings or action.nargs == 0:
                return super()._format_action_invocation(action)
            value = self._format_args(action, self._get_default_metavar_for_optional(action))
            return f"{', '.join(action.option_strings)} {value}"


def _formatter(prog: str) -> argparse.HelpFormatter:
    """Return what writes help; told its width, it does not load `shutil` to find that out for every option."""
    return _Formatter(prog, width=WIDTH)


class _Parser(argparse.ArgumentParser):
    """Says in one sentence what is wrong, as everything here does."""

    def error(self, message: str) -> NoReturn:
        """Refuse arguments."""
        raise ConfigError(f"{message}; see {self.prog} --help")


def make_parser(verb: str) -> argparse.ArgumentParser:
    """Return what reads the arguments of a verb."""
    module = import_module(f"whywait.cli.machine.{verb}")
    parser = _Parser(
        prog=f"whywait {verb}",
        description=module.HELP,
        formatter_class=_formatter,
        allow_abbrev=False,
    )
    module.add_options(parser)
    parser.add_argument("--debug", action="store_true", help=argparse.SUPPRESS)
    return parser
