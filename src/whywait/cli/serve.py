"""``whywait serve``: a saved run, or a workflow while it runs and after, in the browser."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from whywait.devtools import need_packages
from whywait.errors import ConfigError
from whywait.observe.event_file import is_event_file
from whywait.observe.record import is_record

if TYPE_CHECKING:
    from whywait.devtools.server import DevTools

HELP: Final = """Show a run in the browser: saved events, a record, or a workflow that is run now.

\b
  whywait run flow.toml --events run.jsonl
  whywait serve run.jsonl                # the same page, long after
  whywait serve flow.toml                # run it, and stay when it is over

It prints an address and serves until Ctrl-C.

Exit code: 0, or 2 if the file is malformed.
"""


def serve(
    file: Annotated[str, typer.Argument(metavar="FILE", help="Events (.jsonl), a record, or a workflow.")],
    *,
    port: Annotated[int, typer.Option(metavar="N", help="Listen on this port; 0 takes a free one.")] = 0,
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="Listen on this address.")] = "127.0.0.1",
    expose: Annotated[
        bool, typer.Option("--expose", help="Allow an address that other machines can reach: they can read the run.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", hidden=True)] = False,  # noqa: ARG001  `run` looks for it
) -> None:
    """Show a run in the browser."""
    need_packages()
    from whywait.devtools.saved import SavedRun
    from whywait.devtools.server import DevTools

    if not Path(file).is_file():
        raise ConfigError(f"{file}: there is no such file")
    if _is_workflow(file):
        _run_workflow(file, port, host, expose=expose)
        return
    with DevTools(SavedRun.from_file(file), host=host, port=port, expose=expose) as tools:
        tools.announce(file)
        _stay(tools)


def _run_workflow(file: str, port: int, host: str, *, expose: bool) -> None:
    """Run a workflow with DevTools, which stays when it is over."""
    from whywait.cli.run import Signals, carry_out
    from whywait.cli.shared import print_text
    from whywait.devtools.runs import LiveRun
    from whywait.devtools.server import DevTools
    from whywait.workflow import load
    from whywait.workflow.one_run import Run
    from whywait.workflow.result import WorkflowResult

    workflow = load(file, [])
    job = Run(workflow)
    signals = Signals()
    shown = LiveRun(job.authority, workflow.name, control=True)
    with DevTools(shown, host=host, port=port, expose=expose) as tools:
        tools.announce(file)
        try:
            carry_out(job, signals, sys.stdout)
        finally:
            job.close()
        tools.finish()
        print_text(str(WorkflowResult(job, interrupted=bool(signals.exit_code))))
        if signals.exit_code:
            raise typer.Exit(signals.exit_code)
        typer.echo(f"The run is over; its page stays until Ctrl-C: {tools.url}", err=True)
        _stay(tools)


def _stay(tools: DevTools) -> None:
    with contextlib.suppress(KeyboardInterrupt):
        tools.wait()


def _is_workflow(file: str) -> bool:
    """Return whether a file is no record of a run: those begin with a line of JSON."""
    if Path(file).suffix in {".toml", ".yaml", ".yml"}:
        return True
    return not (is_record(file) or is_event_file(file))
