"""``whywait serve``: a saved run, or a workflow while it runs and after, in the browser."""

from __future__ import annotations

import argparse
import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from whywait.devtools import need_packages
from whywait.errors import ConfigError
from whywait.observe.event_file import is_event_file
from whywait.observe.record import is_record

if TYPE_CHECKING:
    from whywait.devtools.server import DevTools

HELP: Final = """Show a run in the browser: saved events, a record, or a workflow that is run now.

  whywait run flow.toml --events run.jsonl
  whywait serve run.jsonl                # the same page, long after
  whywait serve flow.toml                # run it, and stay when it is over

It prints an address and serves until Ctrl-C.

Exit code: 0, or 2 if the file is malformed."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the verb."""
    add = parser.add_argument
    add("file", metavar="FILE", help="events (.jsonl), a record, or a workflow")
    add("--port", metavar="N", type=int, default=0, help="listen on this port; 0 takes a free one")
    add("--host", metavar="ADDRESS", default="127.0.0.1", help="listen on this address")
    add("--expose", action="store_true", help="allow an address that other machines can reach: they can read the run")


def run(options: argparse.Namespace) -> int:
    """Show a run in the browser."""
    need_packages()
    from whywait.devtools.saved import SavedRun
    from whywait.devtools.server import DevTools

    file, where = options.file, {"host": options.host, "port": options.port, "expose": options.expose}
    if not Path(file).is_file():
        raise ConfigError(f"{file}: there is no such file")
    if _is_workflow(file):
        return _run_workflow(file, where)
    with DevTools(SavedRun.from_file(file), **where) as tools:
        tools.announce(file)
        _stay(tools)
    return 0


def _run_workflow(file: str, where: dict[str, Any]) -> int:
    """Run a workflow with DevTools, which stays when it is over; return the exit code."""
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
    with DevTools(shown, **where) as tools:
        tools.announce(file)
        try:
            carry_out(job, signals, sys.stdout)
        finally:
            job.close()
        tools.finish()
        print_text(str(WorkflowResult(job, interrupted=bool(signals.exit_code))))
        if not signals.exit_code:
            sys.stderr.write(f"The run is over; its page stays until Ctrl-C: {tools.url}\n")
            _stay(tools)
    return signals.exit_code


def _stay(tools: DevTools) -> None:
    with contextlib.suppress(KeyboardInterrupt):
        tools.wait()


def _is_workflow(file: str) -> bool:
    """Return whether a file is no record of a run: those begin with a line of JSON."""
    if Path(file).suffix in {".toml", ".yaml", ".yml"}:
        return True
    return not (is_record(file) or is_event_file(file))
