"""The commands, put together into one program."""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated

import typer

from whywait.cli import ask, bench, check, demo, graph, run, schema, serve, simulate, top


def make_app() -> typer.Typer:
    """Return the program with all its commands."""
    app = typer.Typer(
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        # Boxes and colours are for eyes, not for logs and pipes.
        rich_markup_mode="rich" if sys.stdout.isatty() and sys.stderr.isatty() else None,
        help="A task runtime that always says whose permission a waiting task is waiting for.",
    )
    app.callback()(_options)
    app.command("run", help=run.HELP, context_settings={"allow_extra_args": True})(run.run)
    app.command("check", help=check.HELP)(check.check)
    app.command("graph", help=graph.HELP)(graph.graph)
    app.command("simulate", help=simulate.HELP)(simulate.simulate)
    app.command("bench", help=bench.HELP)(bench.bench)
    app.command("schema", help=schema.HELP)(schema.schema)
    app.command("serve", help=serve.HELP)(serve.serve)
    app.command("demo", help=demo.HELP)(demo.demo)
    app.command("top", help=top.HELP)(top.top)
    app.command("why", help=ask.WHY_HELP)(ask.why)
    for verb, text in ask.ACT_HELPS.items():
        app.command(verb, help=text)(ask.acting(verb))
    return app


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"whywait {_version()}")
        raise typer.Exit


def _options(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and leave.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Read what all commands share."""


def _version() -> str:
    try:
        return version("whywait")
    except PackageNotFoundError:  # run from a checkout that nobody installed
        return "(not installed)"
