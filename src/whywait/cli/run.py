"""``whywait run``: a workflow file, for real."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, chdir, contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Annotated, Final, Protocol

import typer
from rich.console import Console

from whywait.cli.live import LiveView, LogLines
from whywait.cli.serve import devtools_hook
from whywait.cli.shared import complete_tasks, parse_slots, print_text
from whywait.settings import Given
from whywait.simulation import Simulation
from whywait.units import format_ms
from whywait.workflow import Workflow, load
from whywait.workflow.outputs import routed
from whywait.workflow.plan import levels, select, to_workload, without_duration
from whywait.workflow.recording import Wanted, file_hooks, write_files
from whywait.workflow.result import failures, succeeded, to_dict, to_text
from whywait.workflow.run import Run, authority_settings

_STEP_S: Final = 0.1
_FAILED: Final = 1

HELP: Final = """Run the tasks of a workflow file and tell where the waiting went.

\b
A first example, flow.toml:
  slots = 2
  [task.make]
  run = "echo 3 2 1 | tr ' ' '\\n' > numbers"
  [task.sort]
  run = "sort numbers"
  after = ["make"]

\b
  whywait run flow.toml
  whywait run flow.toml --only sort --logs logs --trace trace.json
  whywait run flow.toml --set task.sort.priority=high --slots 4

On a terminal it shows what runs and what waits for what; elsewhere, a line for each start and end. Ctrl-C asks the
tasks to end, a second one kills them.

Exit code: 0 all succeeded, 1 something failed, 2 the file or an option is malformed, 130 after Ctrl-C.
"""


class _View(Protocol):
    def note(self, text: str) -> None:
        """Say something about the run itself."""


def run(
    ctx: typer.Context,
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="The workflow: .toml, .yaml or .json; - reads standard input.")
    ],
    *,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="TASK...", help="Run these and what they need.", autocompletion=complete_tasks),
    ] = None,
    keep_going: Annotated[
        bool, typer.Option("--keep-going", help='Go on after a failure even where the file says on_error = "abort".')
    ] = False,
    slots: Annotated[str | None, typer.Option(metavar="N|none", help="Run so many at once, not the file's.")] = None,
    sets: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Set a variable of [vars], or any field by its path; repeat."),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Show the plan, and how long it takes if durations are known; run nothing."),
    ] = False,
    logs: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Keep all output of each task in a file there.")
    ] = None,
    trace: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a Chrome Trace, for ui.perfetto.dev.")
    ] = None,
    events: Annotated[Path | None, typer.Option(metavar="FILE", help="Write all events as JSON Lines.")] = None,
    devtools: Annotated[
        bool, typer.Option("--devtools", help="Serve a page that shows the run, until it is over; prints its address.")
    ] = False,
    port: Annotated[int, typer.Option(metavar="N", help="Serve --devtools on this port; 0 takes a free one.")] = 0,
    record: Annotated[Path | None, typer.Option(metavar="FILE", help="Record the run, for simulate.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing but what went wrong.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON, for programs.")] = False,
    debug: Annotated[bool, typer.Option("--debug", hidden=True)] = False,
) -> None:
    """Run the tasks of a workflow file."""
    more = ctx.args  # --only takes one value; further ones that follow it arrive here
    if more and not only:
        raise typer.BadParameter(
            f"{more[0]!r} is one argument too many; to choose tasks use --only", param_hint="'FILE'"
        )
    workflow = load(file, sets or ())
    if slots is not None:
        workflow = replace(workflow, has_slots=True, slots=parse_slots(slots))
    if only:
        workflow = select(workflow, [*only, *more])
    if dry_run:
        _show_plan(workflow, as_json=as_json)
        return
    wanted = Wanted(*(None if path is None else path.resolve() for path in (trace, events, record)))
    hooks = file_hooks(wanted)
    if devtools:
        hooks.append(devtools_hook(workflow.name, file, port=port))
    job = Run(
        workflow,
        logs=None if logs is None else logs.resolve(),
        keep_going=keep_going,
        hooks=hooks,
        authority_options={"events": max(10_000, 50 * len(workflow.tasks)), "record": wanted.record},
    )
    signals = Signals()
    try:
        carry_out(job, signals, is_silent=quiet or as_json, is_debugging=debug)
    finally:
        job.close()
        write_files(wanted, job)
    code = signals.exit_code or (0 if succeeded(job) else _FAILED)
    interrupted = bool(signals.exit_code)
    if as_json:
        sys.stdout.write(json.dumps({**to_dict(job, interrupted=interrupted), "exit_code": code}) + "\n")
    elif quiet:
        sys.stderr.write("".join(f"{block}\n" for block in failures(job, interrupted=interrupted)))
    else:
        print_text(("" if sys.stdout.isatty() else "\n") + to_text(job, interrupted=interrupted))
    if job.survivors:  # their threads would hold up the interpreter's end
        sys.stdout.flush()
        os._exit(code)
    raise typer.Exit(code)


def carry_out(job: Run, signals: Signals, *, is_silent: bool, is_debugging: bool = False) -> None:
    """Run a workflow to its end, showing it unless ``is_silent``, and heed the wishes to stop."""
    console = Console(highlight=False)
    with ExitStack() as stack:
        stack.enter_context(chdir(job.workflow.folder))
        if not is_debugging:
            stack.enter_context(_no_log_lines())
        view: _View | None = None
        if not is_silent:
            if console.is_terminal and not console.is_dumb_terminal:
                view = LiveView(job, console)
            else:
                view = LogLines(job, sys.stdout)
        stack.enter_context(routed())
        stack.callback(job.close)  # before the streams are as they were: a periodic may be printing
        job.prepare()
        stack.enter_context(signals.caught())
        job.start()
        if isinstance(view, LiveView):
            stack.enter_context(view)
        asked = False
        while not job.wait(_STEP_S):
            if signals.count and not asked:
                asked = True
                if view is not None:
                    running = len(job.authority.snapshot().running)
                    told = "1 running task is" if running == 1 else f"{running} running tasks are"
                    view.note(f"stopping: {told} asked to end; Ctrl-C again kills")
                job.interrupt()
            if signals.count > 1:
                job.kill()
                break
            if asked and job.survivors:
                break
        job.rest()  # while what iterations print still goes where it belongs


@contextmanager
def _no_log_lines() -> Iterator[None]:
    """Keep what the runtime logs (drops, say) out of the view, which tells the same."""
    log = logging.getLogger("whywait")
    before = log.disabled
    log.disabled = True
    try:
        yield
    finally:
        log.disabled = before


class Signals:
    """Counts the wishes to stop; the second is meant."""

    def __init__(self) -> None:
        self.count = 0
        self.exit_code = 0

    def _take(self, number: int, _: FrameType | None) -> None:
        self.count += 1
        self.exit_code = 128 + number

    @contextmanager
    def caught(self) -> Iterator[None]:
        """Take signals for the time of the block."""
        taken = (signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else []))
        heard = [number for number in taken if signal.getsignal(number) != signal.SIG_IGN]  # nohup, & in a script
        before = {number: signal.signal(number, self._take) for number in heard}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _show_plan(workflow: Workflow, *, as_json: bool) -> None:
    """Print what would run, by depth, and how long it would take if durations are known."""
    rows = levels(workflow)
    makespan_ms = None
    if not without_duration(workflow):
        slots = Given(**authority_settings(workflow)).settle().limits.slots
        makespan_ms = Simulation(to_workload(workflow), slots=slots).run().summary["makespan_ms"]
    if as_json:
        plan = [[task.id for task in row] for row in rows]
        sys.stdout.write(json.dumps({"workflow": workflow.name, "plan": plan, "predicted_ms": makespan_ms}) + "\n")
        return
    lines = [f"{workflow.name}: {len(workflow.tasks)} tasks, nothing is run"]
    for number, row in enumerate(rows, 1):
        lines.append(f"  step {number}")
        lines += [f"    {task.id}{_needs(task.needs)}" for task in row]
    lines += [f"  every {format_ms(each.every_ns / 1e6)}: {each.id}" for each in workflow.periodics]
    if makespan_ms is not None:
        lines.append(f"  predicted: {format_ms(makespan_ms)}")
    else:
        missing = without_duration(workflow)
        lines.append(f"  no prediction: {len(missing)} tasks have no duration, first {missing[0]}")
    print_text("\n".join(lines) + "\n")


def _needs(needs: tuple[str, ...]) -> str:
    if not needs:
        return ""
    named = ", ".join(needs[:3]) + (f" and {len(needs) - 3} more" if len(needs) > 3 else "")  # noqa: PLR2004  one line
    return f"  after {named}"
