"""``whywait run``: a workflow file, for real."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, chdir, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Annotated, Final, Protocol, TextIO

import typer
from rich.console import Console

from whywait.cli.hooks import devtools_hook, side_files, told_files
from whywait.cli.live import LiveView, LogLines
from whywait.cli.run_machine import refuse_options, run_on_machine
from whywait.cli.shared import complete_tasks, parse_gpus, parse_slots, print_text
from whywait.errors import ConfigError
from whywait.runtime.settings import Settings
from whywait.simulation.simulation import Simulation
from whywait.support.units import format_ms
from whywait.support.words import counted
from whywait.workflow import WorkflowSpec, load
from whywait.workflow.honest import suggestion_lines
from whywait.workflow.one_run import Run, authority_settings
from whywait.workflow.outputs import routed
from whywait.workflow.plan import changed, levels, to_workload, without_duration
from whywait.workflow.result import WorkflowResult

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
    slots: Annotated[
        str | None, typer.Option(metavar="N|none", help="Run so many at once, whatever the file says.")
    ] = None,
    gpus: Annotated[
        str | None,
        typer.Option(metavar="auto|N|SIZE,SIZE...|none", help="Use these GPUs, by memory, not the file's."),
    ] = None,
    engine: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Run Python functions by thread, process, ray, ... unless the file says by which."
        ),
    ] = None,
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
        str | None, typer.Option(metavar="FILE", help="Write a Chrome Trace, for ui.perfetto.dev; - prints it.")
    ] = None,
    events: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Write everything that happens, a line of JSON each; - prints it."),
    ] = None,
    devtools: Annotated[
        bool, typer.Option("--devtools", help="Serve a page that shows the run, until it is over; prints its address.")
    ] = False,
    port: Annotated[int, typer.Option(metavar="N", help="Serve --devtools on this port; 0 takes a free one.")] = 0,
    record: Annotated[
        str | None, typer.Option(metavar="FILE", help="Record the run, for whywait simulate; - prints it.")
    ] = None,
    history: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Keep durations and peaks of memory there, and learn from those it has."),
    ] = None,
    suggest: Annotated[
        bool, typer.Option("--suggest", help="Print the demands of memory that the file should have, after the report.")
    ] = False,
    machine: Annotated[
        bool, typer.Option("--machine", help="Leave the tasks to the service of this machine, under its budget.")
    ] = False,
    detach: Annotated[
        bool, typer.Option("--detach", help="With --machine: print the scope of the jobs and do not wait for them.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing but what went wrong.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON, for programs.")] = False,
    debug: Annotated[bool, typer.Option("--debug", hidden=True)] = False,
) -> None:
    """Run the tasks of a workflow file."""
    if detach and not machine:
        raise ConfigError("--detach needs --machine: only what was left to the service goes on by itself")
    if machine:
        refuse_options(_written(ctx))
    more = ctx.args  # --only takes one value; further ones that follow it arrive here
    if more and not only:
        raise typer.BadParameter(
            f"{more[0]!r} is one argument too many; to choose tasks use --only", param_hint="'FILE'"
        )
    workflow = _changed(
        load(file, [*(sets or ()), *([] if gpus is None else [f"budget.gpus={json.dumps(parse_gpus(gpus))}"])]),
        slots=slots,
        history=history,
        engine=engine,
        only=[*(only or ()), *more],
        keep_going=keep_going,
    )
    if dry_run:
        _show_plan(workflow, as_json=as_json, on_machine=machine)
        return
    if machine:
        raise typer.Exit(run_on_machine(workflow, detach=detach, quiet=quiet, as_json=as_json))
    files = side_files(as_json=as_json, trace=trace, events=events, record=record)
    hooks = [devtools_hook(workflow.name, file, port=port)] if devtools else []
    out = sys.stderr if files.take_stdout else sys.stdout
    signals = Signals()
    with told_files() as told:
        job = Run(
            workflow,
            logs=None if logs is None else logs.resolve(),
            hooks=hooks,
            authority_options={**files.authority_options(), **({} if engine is None else {"engine": engine})},
        )
        try:
            carry_out(job, signals, None if quiet or as_json else out, is_debugging=debug)
        finally:
            job.close()
            files.finish(job.authority.events())
    result = WorkflowResult(job, interrupted=bool(signals.exit_code))
    code = signals.exit_code or (0 if result.succeeded else _FAILED)
    sys.stderr.write("".join(f"whywait: {line}\n" for line in told))
    _tell(result, code, out, quiet=quiet, as_json=as_json, suggest=suggest)
    if job.survivors:  # their threads would hold up the interpreter's end
        with suppress(OSError):  # the reader may have gone
            sys.stdout.flush()
        os._exit(code)
    raise typer.Exit(code)


def _changed(
    workflow: WorkflowSpec,
    *,
    slots: str | None,
    history: Path | None,
    engine: str | None,
    only: list[str],
    keep_going: bool,
) -> WorkflowSpec:
    """Return a workflow as the options have it."""
    if slots is not None:
        workflow = replace(workflow, has_slots=True, slots=parse_slots(slots))
    if history is not None:
        workflow = replace(workflow, history=str(history.expanduser().absolute()))
    return changed(workflow, only=only, engine=engine, keep_going=keep_going)


def _written(ctx: typer.Context) -> dict[str, str]:
    """Return the options that stand on the command line, as they are written there, by parameter."""
    names = {each.name or "": each.opts[-1] for each in ctx.command.params}
    sources = {name: ctx.get_parameter_source(name) for name in names}
    return {name: names[name] for name, source in sources.items() if source and source.name == "COMMANDLINE"}


def _tell(result: WorkflowResult, code: int, out: TextIO, *, quiet: bool, as_json: bool, suggest: bool) -> None:
    """Print what a run came to, as it was asked for."""
    if as_json:
        sys.stdout.write(json.dumps({**result.to_dict(), "exit_code": code}) + "\n")
    elif quiet:
        sys.stderr.write("".join(f"{block}\n" for block in result.failures()))
    else:
        print_text(("" if out.isatty() else "\n") + str(result), out)
    if suggest and not as_json:
        print_text("\n".join(["", *suggestion_lines(result.suggestions()), ""]), out)


def carry_out(job: Run, signals: Signals, out: TextIO | None, *, is_debugging: bool = False) -> None:
    """Run a workflow to its end, showing it on ``out`` if there is one, and heed the wishes to stop."""
    with ExitStack() as stack:
        stack.enter_context(chdir(job.workflow.folder))
        if not is_debugging:
            stack.enter_context(_no_log_lines())
        view: _View | None = None
        if out is not None:
            console = Console(highlight=False, file=out)
            if console.is_terminal and not console.is_dumb_terminal:
                view = LiveView(job, console)
            else:
                view = LogLines(job, out)
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


def _show_plan(workflow: WorkflowSpec, *, as_json: bool, on_machine: bool) -> None:
    """Print what would run, by depth, and how long it would take by itself if durations are known."""
    rows = levels(workflow)
    makespan_ms = None
    if not on_machine and not without_duration(workflow):
        slots = Settings(**authority_settings(workflow)).slots
        makespan_ms = Simulation(to_workload(workflow), slots=slots).run().summary["makespan_ms"]
    if as_json:
        plan = [[task.id for task in row] for row in rows]
        sys.stdout.write(json.dumps({"workflow": workflow.name, "plan": plan, "predicted_ms": makespan_ms}) + "\n")
        return
    lines = [f"{workflow.name}: {counted(len(workflow.tasks), 'task')}, nothing is run"]
    for number, row in enumerate(rows, 1):
        lines.append(f"  step {number}")
        lines += [f"    {task.id}{_needs(task.needs)}" for task in row]
    lines += [f"  every {format_ms(each.every_ns / 1e6)}: {each.id}" for each in workflow.periodics]
    if makespan_ms is not None:
        lines.append(f"  predicted: {format_ms(makespan_ms)}")
    elif on_machine:
        lines.append("  no prediction: the machine may have other jobs, too")
    else:
        missing = without_duration(workflow)
        have = "has" if len(missing) == 1 else "have"
        lines.append(f"  no prediction: {counted(len(missing), 'task')} {have} no duration, first {missing[0]}")
    print_text("\n".join(lines) + "\n")


def _needs(needs: tuple[str, ...]) -> str:
    if not needs:
        return ""
    named = ", ".join(needs[:3]) + (f" and {len(needs) - 3} more" if len(needs) > 3 else "")  # noqa: PLR2004  one line
    return f"  after {named}"
