"""``whywait simulate``: a workload file in virtual time."""

from __future__ import annotations

import gc
import json
import sys
import time
from collections.abc import Callable
from enum import StrEnum
from itertools import product
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any, Final, Self

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeRemainingColumn

from whywait.cli.shared import parse_slots, print_text
from whywait.errors import ConfigError
from whywait.record import is_record
from whywait.report import render, render_side_by_side
from whywait.simulation import Simulation
from whywait.tally import SimulationResult
from whywait.units import parse_size
from whywait.whatif import workload_of
from whywait.workload import Workload

_PATIENCE_S: Final = 1.0
_STDIN: Final = "-"
_WORKFLOWS: Final = (".toml", ".yaml", ".yml")
_LARGEST_WORKFLOW: Final = 4_000_000  # bytes; a JSON file beyond it is a workload

# What --help says; \b keeps the lines of an example as they are.
HELP: Final = """Run a workload in virtual time and tell who waits for what.

Nothing is executed and no time passes: the scheduler decides as it would, and the clock jumps.

\b
A first example:
  echo '{"config": {"slots": 1}, "tasks": [
    {"id": "big", "at_ms": 0, "duration_ms": 9000, "priority": "low"},
    {"id": "urgent", "at_ms": 5, "duration_ms": 20, "priority": "high"}]}' \\
  | whywait simulate -

\b
What if there were more slots, or no aging? Every combination, side by side:
  whywait simulate farm.json --order aging --order strict --slots 2 --slots 4

\b
A workflow file will do if its tasks have durations:
  whywait simulate flow.toml --slots 2 --slots 8

\b
What if a run that run --record (or Authority(record="run.rec")) recorded had had 12 GB of VRAM?
  whywait simulate run.rec --vram 12GB

Exit code: 0, or 2 if the workload or an option is malformed.
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
    seed: Annotated[int, typer.Option(metavar="N", help="Where the jitter of periodics starts from.")] = 0,
    debug: Annotated[bool, typer.Option("--debug", hidden=True)] = False,  # noqa: ARG001  `execute` looks for it
) -> None:
    """Run a workload in virtual time: how long it takes, who waits, and for what."""
    orders: list[dict[str, Any]] = [{"order": name.value} for name in order or ()] or [{}]
    counts: list[dict[str, Any]] = [{"slots": parse_slots(text)} for text in slots or ()] or [{}]
    gc.disable()  # this process does one thing and leaves; a million tasks are no garbage
    workload = _read(file)
    budget = _parse_budget({"cpu": cpu, "ram": ram, "vram": vram})
    choices = [{**first, **second, **budget} for first, second in product(orders, counts)]
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
            budget[name] = parse_size(int(text) if text.isascii() and text.isdigit() else text)
        except ConfigError as error:
            raise typer.BadParameter(str(error), param_hint=f"'--{name}'") from None
    return budget


def _read(file: str) -> Workload:
    """Read a workload or a record; or a workflow, known by its suffix or by its tables, whose durations are known."""
    if file == _STDIN:
        return Workload.from_stream(sys.stdin.buffer, "standard input")
    if Path(file).suffix.lower() in _WORKFLOWS or _holds_workflow(file):
        from whywait.workflow import load
        from whywait.workflow.plan import to_workload

        return Workload(to_workload(load(file)), file)
    if is_record(file):
        return workload_of(file)
    return Workload.from_file(file)


def _holds_workflow(file: str) -> bool:
    """Return whether a JSON file has the tables of a workflow; what is wrong with it is told by whoever reads it."""
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
            {"order": result.run["order"], "slots": result.run["slots"], "result": result.to_dict()}
            for result in results
        ]
    sys.stdout.write(json.dumps(data))
    sys.stdout.write("\n")


class _Bar:
    """A progress bar on stderr, if somebody watches and it takes longer than a second."""

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
        """Return what shows the progress of one run, or None if nobody watches."""
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
