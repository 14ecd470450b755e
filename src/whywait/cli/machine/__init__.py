"""The verbs of the machine: for each ``VERB`` a module with the help ``VERB``, ``VERB_options(parser)`` and ``VERB``.

They do without typer and rich, which take longer to load than the rest of ``whywait add`` takes.
"""

from __future__ import annotations

import argparse
import sys
from importlib import import_module

from whywait.errors import ConfigError

TYPE_CHECKING = False  # see the package itself
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Final, NoReturn

WIDTH: Final = 100  # of help texts
# Each verb, what it does in a line, and its module.
VERBS: Final = {
    "up": ("Run the service of this machine.", "up"),
    "down": ("End the service of this machine.", "up"),
    "status": ("Show what the machine has, what runs and what waits.", "showing"),
    "do": ("Run a command in this terminal when the machine permits it.", "asking"),
    "add": ("Leave a command to the service; print its id.", "asking"),
    "ls": ("List the jobs of the service.", "showing"),
    "log": ("Show the output of a job.", "showing"),
    "wait": ("Wait for jobs; leave with their status.", "acting"),
    "retry": ("Run jobs again that have ended.", "acting"),
    "forget": ("List ended jobs no longer.", "acting"),
}
# These are for jobs of the service and for tasks of a run with DevTools alike. Without --url the service is asked
# first, if one runs; an id that it does not have is looked for among the runs.
SHARED: Final = ("why", "cancel", "pause", "resume")


def run_verb(verb: str, args: list[str]) -> int:
    """Run one verb with its arguments; return the exit code."""
    code: int = getattr(_module(verb), verb)(make_parser(verb).parse_args(args))
    return code


def _module(verb: str) -> ModuleType:
    return import_module(f"whywait.cli.machine.{VERBS[verb][1]}")


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
    module = _module(verb)
    parser = _Parser(
        prog=f"whywait {verb}",
        description=getattr(module, verb.upper()),
        formatter_class=_formatter,
        allow_abbrev=False,
    )
    getattr(module, f"{verb}_options")(parser)
    parser.add_argument("--debug", action="store_true", help=argparse.SUPPRESS)
    return parser
