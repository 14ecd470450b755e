"""The verbs: each a module with ``HELP``, ``add_options(parser)`` and ``run(options)``, which returns the exit code.

Only the module of one verb is loaded, and argparse is all that reads arguments: anything else takes longer to load than
the rest of ``whywait add`` takes.
"""

from __future__ import annotations

import argparse
import sys
from importlib import import_module

from whywait.errors import ConfigError

TYPE_CHECKING = False  # see the package itself
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Final, NoReturn

WIDTH: Final = 100  # of help texts
# Each verb and what it does in a line.
OWN: Final = {
    "run": "Run the tasks of a workflow file.",
    "check": "Tell what is wrong with a workflow file.",
    "graph": "Draw what comes after what in a workflow file.",
    "simulate": "Work out how tasks would run, without running them.",
    "demo": "Show what this is about, on a page in the browser.",
    "serve": "Show a saved run, or run a file, in the browser.",
    "top": "Show a run in this terminal, live.",
    "why": "Say why a task waits.",
    "cancel": "End a task.",
    "pause": "Pause a task.",
    "resume": "Let a paused task go on.",
    "history": "List how long tasks took and how much memory they used.",
    "schema": "Print the JSON Schema of workflow files, for editors.",
    "bench": "Measure this machine with a fixed set of tasks.",
    "completion": "Print what makes a shell complete verbs, options and tasks.",
}
# Those of the machine, and the module of each: VERB is its help there, verb_options(parser) and verb(options) the rest.
MACHINE: Final = {
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
# The modules of verbs that are not called like their verb.
_MODULES: Final = {
    **dict.fromkeys(("why", "cancel", "pause", "resume"), "ask"), "graph": "drawing", "history": "lessons",
}  # fmt: skip
ABOUT: Final = "Runs tasks when there is room for them, and can always say why one waits."


def run_verb(verb: str, args: list[str]) -> int:
    """Run one verb with its arguments; return the exit code."""
    parser = make_parser(verb)
    # A command at the end of the arguments has options of its own; elsewhere options may stand anywhere.
    options = parser.parse_args(args) if verb in MACHINE else parser.parse_intermixed_args(args)
    code: int = _parts(verb)[2](options)
    return code


def program_help() -> str:
    """Return the help of the program: all verbs, each with a line."""
    lines = ["usage: whywait [--version] [--debug] VERB ...", "", ABOUT]
    for title, verbs in (("verbs:", OWN), ("the machine:", {verb: text for verb, (text, _) in MACHINE.items()})):
        lines += ["", title, *(f"  {verb:<12}{text}" for verb, text in verbs.items())]
    return "\n".join([*lines, "", "whywait VERB --help tells more.", ""])


def make_parser(verb: str) -> argparse.ArgumentParser:
    """Return what reads the arguments of a verb."""
    text, add_options, _ = _parts(verb)
    parser = _Parser(prog=f"whywait {verb}", description=text, formatter_class=_formatter, allow_abbrev=False)
    parser.set_defaults(verb=verb)
    add_options(parser)
    parser.add_argument("--debug", action="store_true", help=argparse.SUPPRESS)
    return parser


def _parts(verb: str) -> tuple[str, Callable[[argparse.ArgumentParser], None], Callable[[argparse.Namespace], int]]:
    """Return the help of a verb, what adds its options, and what runs it."""
    if verb in MACHINE:
        module: Any = import_module(f"whywait.cli.machine.{MACHINE[verb][1]}")
        return getattr(module, verb.upper()), getattr(module, f"{verb}_options"), getattr(module, verb)
    module = import_module(f"whywait.cli.{_MODULES.get(verb, verb)}")
    return module.HELP if isinstance(module.HELP, str) else module.HELP[verb], module.add_options, module.run


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
