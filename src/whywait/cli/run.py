"""``whywait run``: a workflow file, for real."""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, chdir, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Final, TextIO

from whywait.bridges.chrome import write_trace
from whywait.cli.run_lines import LogLines
from whywait.cli.run_machine import refuse_options, run_on_machine
from whywait.cli.shared import add_json, add_workflow, is_terminal, parse_gpus, parse_slots, print_text
from whywait.devtools import need_packages
from whywait.errors import ConfigError
from whywait.kernel.events import Event
from whywait.runtime.authority import Authority
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

if TYPE_CHECKING:
    from whywait.cli.live import LiveView

_STEP_S: Final = 0.1
_FAILED: Final = 1
_STDOUT: Final = Path("/dev/stdout")
_FILES: Final = ("trace", "events", "record")  # options that name a file; `-` is standard output
_file_log = logging.getLogger("whywait.files")

HELP: Final = """Run the tasks of a workflow file and tell where the waiting went.

A first example, flow.toml:
  slots = 2
  [task.make]
  run = "echo 3 2 1 | tr ' ' '\\n' > numbers"
  [task.sort]
  run = "sort numbers"
  after = ["make"]

  whywait run flow.toml
  whywait run flow.toml --only sort --logs logs --trace trace.json
  whywait run flow.toml --set task.sort.priority=high --slots 4

On a terminal it shows what runs and what waits for what; elsewhere, a line for each start and end. Ctrl-C asks the
tasks to end, a second one kills them.

Exit code: 0 all succeeded, 1 something failed, 2 the file or an option is malformed, 130 after Ctrl-C."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the verb."""
    add_workflow(parser)
    add = parser.add_argument
    add("more", nargs="*", default=[], help=argparse.SUPPRESS)  # --only takes one word; further ones arrive here
    add("--only", metavar="TASK...", action="append", default=[], help="run these and what they need")
    add("--keep-going", action="store_true", help='go on after a failure even where the file says on_error = "abort"')
    add("--slots", metavar="N|none", help="run so many at once, whatever the file says")
    add("--gpus", metavar="auto|N|SIZES|none", help="use GPUs of these sizes, not the file's")
    add("--engine", metavar="NAME", help="run functions by thread, process, ray, ... unless the file says by which")
    add("--dry-run", action="store_true", help="show the plan, and how long it takes if that is known; run nothing")
    add("--logs", metavar="DIR", type=Path, help="keep all output of each task in a file there")
    add("--trace", metavar="FILE", help="write a Chrome Trace, for ui.perfetto.dev; - prints it")
    add("--events", metavar="FILE", help="write everything that happens, a line of JSON each; - prints it")
    add("--devtools", action="store_true", help="serve a page that shows the run, until it is over; prints its address")
    add("--port", metavar="N", type=int, default=0, help="serve --devtools on this port; 0 takes a free one")
    add("--record", metavar="FILE", help="record the run, for whywait simulate; - prints it")
    add("--history", metavar="FILE", type=Path, help="keep durations and peaks of memory there, and learn from them")
    add("--suggest", action="store_true", help="print the demands of memory that the file should have, at the end")
    add("--machine", action="store_true", help="leave the tasks to the service of this machine, under its budget")
    add("--detach", action="store_true", help="with --machine: print the scope of the jobs and do not wait for them")
    add("--quiet", "-q", action="store_true", help="say nothing but what went wrong")
    add_json(parser, "the result")


def run(options: argparse.Namespace) -> int:
    """Run the tasks of a workflow file."""
    _check(options)
    workflow = _workflow(options)
    as_json, quiet = options.json, options.quiet
    if options.dry_run:
        _show_plan(workflow, as_json=as_json, on_machine=options.machine)
        return 0
    if options.machine:
        return run_on_machine(workflow, detach=options.detach, quiet=quiet, as_json=as_json)
    files = _side_files(options)
    hooks = [_devtools_hook(workflow.name, options)] if options.devtools else []
    out = sys.stderr if _STDOUT in files.values() else sys.stdout
    signals = Signals()
    with _told_files() as told:
        settings = {"events_file": files["events"], "record": files["record"]}
        if options.engine is not None:
            settings["engine"] = options.engine
        logs = None if options.logs is None else options.logs.resolve()
        job = Run(workflow, logs=logs, hooks=hooks, authority_options=settings)
        try:
            carry_out(job, signals, None if quiet or as_json else out, is_debugging=options.debug)
        finally:
            job.close()
            _write_trace(files["trace"], job.authority.events())
    result = WorkflowResult(job, interrupted=bool(signals.exit_code))
    code = signals.exit_code or (0 if result.succeeded else _FAILED)
    sys.stderr.write("".join(f"whywait: {line}\n" for line in told))
    if as_json:
        sys.stdout.write(json.dumps({**result.to_dict(), "exit_code": code}) + "\n")
    elif quiet:
        sys.stderr.write("".join(f"{block}\n" for block in result.failures()))
    else:
        print_text(("" if out.isatty() else "\n") + str(result), out)
    if options.suggest and not as_json:
        print_text("\n".join(["", *suggestion_lines(result.suggestions()), ""]), out)
    if job.survivors:  # their threads would hold up the interpreter's end
        with suppress(OSError):  # the reader may have gone
            sys.stdout.flush()
        os._exit(code)
    return code


def _check(options: argparse.Namespace) -> None:
    """Refuse options that do not go together."""
    if options.detach and not options.machine:
        raise ConfigError("--detach needs --machine: only what was left to the service goes on by itself")
    if options.machine:
        refuse_options(options)
    if options.more and not options.only:
        raise ConfigError(f"{options.more[0]!r} is one argument too many; to choose tasks use --only")


def _workflow(options: argparse.Namespace) -> WorkflowSpec:
    """Return the workflow as the options have it."""
    gpus = [] if options.gpus is None else [f"budget.gpus={json.dumps(parse_gpus(options.gpus))}"]
    workflow = load(options.file, [*options.sets, *gpus])
    if options.slots is not None:
        workflow = replace(workflow, has_slots=True, slots=parse_slots(options.slots))
    if options.history is not None:
        workflow = replace(workflow, history=str(options.history.expanduser().absolute()))
    only = [*options.only, *options.more]
    return changed(workflow, only=only, engine=options.engine, keep_going=options.keep_going)


def _side_files(options: argparse.Namespace) -> dict[str, Path | None]:
    """Return the files that are written beside, by option; refuse what cannot be opened before anything runs."""
    files = {name: None if (text := getattr(options, name)) is None else _place(text) for name in _FILES}
    taken = ["--json"] * options.json + [f"--{name}" for name, path in files.items() if path == _STDOUT]
    if len(taken) > 1:
        raise ConfigError(f"{' and '.join(taken)} cannot both be standard output")
    for name, path in files.items():
        if path is not None and path != _STDOUT:
            try:
                path.open("ab").close()
            except OSError as error:
                raise ConfigError(f"--{name} {path}: cannot be written: {error.strerror or error}") from error
    return files


def _place(text: str) -> Path:
    return _STDOUT if text in {"-", str(_STDOUT), "/dev/fd/1"} else Path(text).absolute()


def _write_trace(path: Path | None, events: Iterable[Event]) -> None:
    """Write the trace, if there is to be one."""
    if path is not None:
        try:
            write_trace(path, events)
        except OSError as error:
            _file_log.error("the trace is not written to %s: %s", path, error.strerror or error)


@contextmanager
def _told_files() -> Iterator[list[str]]:
    """Collect what is said about files for the time of the block: a live view would overwrite it.

    A file that cannot be written (a full disk) costs that file alone: it is said once, when the run is over.
    """
    told: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: told.append(record.getMessage())  # type: ignore[method-assign]
    propagate = _file_log.propagate
    _file_log.addHandler(handler)
    _file_log.propagate = False
    try:
        yield told
    finally:
        _file_log.propagate = propagate
        _file_log.removeHandler(handler)


def _devtools_hook(name: str, options: argparse.Namespace) -> Callable[[Authority], Callable[[], None]]:
    """Return the hook that serves the run's page from before its first task until its end."""
    need_packages()
    return lambda authority: authority.devtools(options.port, name=name, file=options.file).close


def carry_out(job: Run, signals: Signals, out: TextIO | None, *, is_debugging: bool = False) -> None:
    """Run a workflow to its end, showing it on ``out`` if there is one, and heed the wishes to stop."""
    with ExitStack() as stack:
        stack.enter_context(chdir(job.workflow.folder))
        if not is_debugging:
            stack.enter_context(_no_log_lines())
        view = None if out is None else _view(job, out)
        stack.enter_context(routed())
        stack.callback(job.close)  # before the streams are as they were: a periodic may be printing
        job.prepare()
        stack.enter_context(signals.caught())
        job.start()
        if not isinstance(view, LogLines | None):
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


def _view(job: Run, out: TextIO) -> LiveView | LogLines:
    """Return what shows a run: a view that is drawn in place, or lines where that is not possible."""
    if is_terminal(out):
        with suppress(ImportError):  # rich is not installed
            from whywait.cli.live import LiveView

            return LiveView(job, out)
    return LogLines(job, out)


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
