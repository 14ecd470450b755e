"""The commands, put together into one program."""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable
from typing import Annotated, Any, Final

import typer

from whywait.cli import ask, bench, check, demo, graph, history, run, schema, serve, simulate, top
from whywait.cli.machine import VERBS
from whywait.support.core import why_interpreted
from whywait.support.version import __version__

# Each verb: its function, its help, and the line of it in the list of all, which has to fit.
_COMMANDS: Final[dict[str, tuple[Callable[..., Any], str, str]]] = {
    "run": (run.run, run.HELP, "Run the tasks of a workflow file."),
    "check": (check.check, check.HELP, "Tell what is wrong with a workflow file."),
    "graph": (graph.graph, graph.HELP, "Draw what comes after what in a workflow file."),
    "simulate": (simulate.simulate, simulate.HELP, "Work out how tasks would run, without running them."),
    "demo": (demo.demo, demo.HELP, "Show what this is about, on a page in the browser."),
    "serve": (serve.serve, serve.HELP, "Show a saved run, or run a file, in the browser."),
    "top": (top.top, top.HELP, "Show a run in this terminal, live."),
    "why": (ask.why, ask.WHY_HELP, "Say why a task waits."),
    **{verb: (ask.acting(verb), text, in_short) for verb, (text, in_short) in ask.ACT_HELPS.items()},
    "history": (history.history, history.HELP, "List how long tasks took and how much memory they used."),
    "schema": (schema.schema, schema.HELP, "Print the JSON Schema of workflow files, for editors."),
    "bench": (bench.bench, bench.HELP, "Measure this machine with a fixed set of tasks."),
}


def make_app() -> typer.Typer:
    """Return the program with all its commands."""
    app = typer.Typer(
        no_args_is_help=True,
        context_settings={"help_option_names": ["-h", "--help"]},
        pretty_exceptions_enable=False,
        # Boxes and colours are for eyes, not for logs and pipes.
        rich_markup_mode="rich" if sys.stdout.isatty() and sys.stderr.isatty() else None,
        help="Runs tasks when there is room for them, and can always say why one waits.",
    )
    app.callback()(_options)
    for verb, (function, text, in_short) in _COMMANDS.items():
        settings = {"allow_extra_args": True} if verb == "run" else None
        app.command(verb, help=text, short_help=in_short, context_settings=settings)(function)
    for verb, (text, _) in VERBS.items():  # only listed here: running one does not come this way
        app.command(verb, help=text, rich_help_panel="The machine")(lambda: None)
    return app


def _show_version(wanted: bool) -> None:
    if wanted:
        core = "interpreted" if why_interpreted else "compiled"
        typer.echo(f"whywait {__version__} (core: {core}, Python {platform.python_version()})")
        if why_interpreted:
            typer.echo(f"the core is interpreted: {why_interpreted}")
        raise typer.Exit


def _options(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and leave.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Read what all commands share."""
