"""``whywait simulate``: a workload file in virtual time."""

from __future__ import annotations

import gc
import json
import sys
import time
from collections.abc import Callable, Sequence
from enum import StrEnum
from itertools import product
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any, Final, Self

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeRemainingColumn

from whywait.cli.shared import parse_gpus, parse_slots, print_text
from whywait.errors import ConfigError
from whywait.observe.event_file import is_event_file
from whywait.observe.record import is_record
from whywait.observe.report_text import render, render_side_by_side
from whywait.simulation.simulation import Simulation
from whywait.simulation.tally import SimulationResult
from whywait.simulation.whatif import workload_of
from whywait.simulation.workload import Workload
from whywait.support.digits import number_in, number_or_text
from whywait.support.units import parse_size

_PATIENCE_S: Final = 1.0
_STDIN: Final = "-"
_WORKFLOWS: Final = (".toml", ".yaml", ".yml")
_TOLD_APART: Final = ("order", "slots", "gpus")  # what runs that are compared may differ in
_OWN_OPTIONS: Final = ("cpu", "ram", "vram", "gpu", "gpus")
_LARGEST_WORKFLOW: Final = 4_000_000  # bytes; a JSON file beyond it is a workload

# What --help says; \b keeps the lines of an example as they are.
HELP: Final = """Work out how tasks would run, and which would wait for what, without running them.

Nothing is executed and no time passes: the same decisions are made, and the clock jumps.

\b
A first example:
  echo '{"config": {"slots": 1}, "tasks": [
    {"id": "big", "at_ms": 0, "duration_ms": 9000, "priority": "low"},
    {"id": "urgent", "at_ms": 5, "duration_ms": 20, "priority": "high"}]}' \\
  | whywait simulate -

\b
What if more could run at once, or if the order were strict? Every combination, side by side:
  whywait simulate farm.json --order aging --order strict --slots 2 --slots 4

\b
A workflow file will do if its tasks have durations:
  whywait simulate flow.toml --slots 2 --slots 8

\b
What if a run that was recorded (whywait run --record run.rec) had had a third GPU, or more licences?
  whywait simulate run.rec --gpus 24GB,24GB --gpus 24GB,24GB,24GB
  whywait simulate run.rec --resource licence=3

Exit code: 0, or 2 if the file or an option is malformed.
"""


class OrderName(StrEnum):
    """The orders that can be chosen by name."""

    strict = "strict"
    aging = "aging"


def simulate(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="A workload (JSON), a recorded run, or a workflow with durations; - reads standard input.",
        ),
    ],
    *,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print events, final outcomes and summary as JSON, for programs.")
    ] = False,
    order: Annotated[
        list[OrderName] | None,
        typer.Option(metavar="strict|aging", help="Use this order instead of the file's; repeat to compare."),
    ] = None,
    slots: Annotated[
        list[str] | None,
        typer.Option(metavar="N|none", help="Use so many slots instead of the file's; repeat to compare."),
    ] = None,
    cpu: Annotated[str | None, typer.Option(metavar="N|none", help="Use this cpu limit instead of the file's.")] = None,
    ram: Annotated[
        str | None, typer.Option(metavar="SIZE|none", help="Use this ram limit instead of the file's.")
    ] = None,
    vram: Annotated[
        str | None, typer.Option(metavar="SIZE|none", help="Use this vram limit instead of the file's.")
    ] = None,
    gpus: Annotated[
        list[str] | None,
        typer.Option(
            metavar="N|SIZE,SIZE...|none", help="Use these GPUs instead of the file's, by memory; repeat to compare."
        ),
    ] = None,
    resource: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=AMOUNT", help="Use this limit of a named resource instead of the file's; repeat."),
    ] = None,
    seed: Annotated[int, typer.Option(metavar="N", help="Where the jitter of periodics starts from.")] = 0,
    debug: Annotated[bool, typer.Option("--debug", hidden=True)] = False,  # noqa: ARG001  `execute` looks for it
) -> None:
    """Run a workload in virtual time: how long it takes, which tasks wait, and for what."""
    orders: list[dict[str, Any]] = [{"order": name.value} for name in order or ()] or [{}]
    counts: list[dict[str, Any]] = [{"slots": parse_slots(text)} for text in slots or ()] or [{}]
    gc.disable()  # this process does one thing and leaves; a million tasks are no garbage
    workload = _read(file)
    budget = _parse_budget({"cpu": cpu, "ram": ram, "vram": vram}) | _parse_resources(resource or (), workload)
    cards: list[dict[str, Any]] = [{"gpus": parse_gpus(text)} for text in gpus or ()] or [{}]
    choices = [{**first, **second, **third, **budget} for first, second, third in product(orders, counts, cards)]
    with _Bar(len(choices)) as bar:
        results = [
            Simulation(workload, seed=seed, progress=bar.for_run(run), **options).run()
            for run, options in enumerate(choices)
        ]
    if as_json:
        _print_json(results)
    else:
        title = workload.name or (Path(file).stem if file != _STDIN else "standard input")
        summaries = [result.summary for result in results]
        print_text(render(summaries[0], title) if len(summaries) == 1 else render_side_by_side(summaries, title))


def _parse_budget(given: dict[str, str | None]) -> dict[str, int | None]:
    budget: dict[str, int | None] = {}
    for name, text in given.items():
        if text is None:
            continue
        if text.lower() == "none":
            budget[name] = None
            continue
        try:
            budget[name] = parse_size(number_or_text(text))
        except ConfigError as error:
            raise typer.BadParameter(str(error), param_hint=f"'--{name}'") from None
    return budget


def _parse_resources(given: Sequence[str], workload: Workload) -> dict[str, Any]:
    """Return the named limits of the file with what is given instead; units of a device are a number or names."""
    tables: dict[str, dict[str, Any]] = {name: dict(workload.config.get(name, {})) for name in ("resources", "soft")}
    units: dict[str, Any] = {kind: list(names) for kind, names in workload.config.get("devices", {}).items()}
    for text in given:
        name, _, amount = text.partition("=")
        if not name or not amount or name in _OWN_OPTIONS:
            wrong = "it has an option of its own" if name in _OWN_OPTIONS else "it is written NAME=AMOUNT"
            raise typer.BadParameter(f"{text}: {wrong}", param_hint="'--resource'")
        number = number_in(amount)
        if name in units:
            units[name] = [unit.strip() for unit in amount.split(",")] if number is None else number
        else:
            tables["soft" if name in tables["soft"] else "resources"][name] = amount if number is None else number
    return {**tables, "devices": units} if given else {}


def _read(file: str) -> Workload:
    """Read a workload or a record; or a workflow with durations, known by its suffix or by its tables."""
    if file == _STDIN:
        return Workload.from_stream(sys.stdin.buffer, "standard input")
    is_workflow = Path(file).suffix.lower() in _WORKFLOWS
    if not is_workflow and not Path(file).is_file():  # a pipe or a device can be read once only
        return Workload.from_file(file)
    if is_workflow or _holds_workflow(file):
        from whywait.workflow import load
        from whywait.workflow.plan import to_workload

        return Workload(to_workload(load(file)), file)
    if is_record(file):
        return workload_of(file)
    try:
        return Workload.from_file(file)
    except ConfigError:
        if is_event_file(file) and not _holds_tasks(file):
            raise ConfigError(
                f"{file}: holds the events of a run, which do not tell all of its tasks: expected a workload, a "
                "workflow or a record (whywait run --record); whywait serve shows events"
            ) from None
        raise


def _holds_tasks(file: str) -> bool:
    """Return whether the first line of a file is a whole workload, with something wrong in it."""
    with Path(file).open("rb") as lines:
        try:
            data = json.loads(lines.readline())
        except (ValueError, RecursionError):
            return False
    return isinstance(data, dict) and "tasks" in data


def _holds_workflow(file: str) -> bool:
    """Return whether a JSON file has the tables of a workflow; its reader tells what is wrong with it."""
    try:
        if Path(file).stat().st_size > _LARGEST_WORKFLOW:
            return False
        data = json.loads(Path(file).read_bytes())
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(data, dict) and isinstance(data.get("task"), dict) and "tasks" not in data


def _print_json(results: list[SimulationResult]) -> None:
    if len(results) == 1:
        data: Any = results[0].to_dict()
    else:
        data = [
            {**{key: result.run[key] for key in _TOLD_APART if key in result.run}, "result": result.to_dict()}
            for result in results
        ]
    sys.stdout.write(json.dumps(data))
    sys.stdout.write("\n")


class _Bar:
    """A progress bar on stderr, if stderr is a terminal and it takes longer than a second."""

    def __init__(self, runs: int) -> None:
        self._runs = runs
        self._since = time.monotonic()
        self._bar: Progress | None = None
        self._line = TaskID(0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def for_run(self, run: int) -> Callable[[int, int], None] | None:
        """Return what shows the progress of one run, or None if stderr is no terminal."""
        if not sys.stderr.isatty():
            return None

        def show(done: int, total: int) -> None:
            if self._bar is None:
                if time.monotonic() - self._since < _PATIENCE_S:
                    return
                columns = (TextColumn("simulating"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
                self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
                self._line = self._bar.add_task("simulating", total=self._runs)
                self._bar.start()
            self._bar.update(self._line, completed=run + done / max(total, 1))

        return show
