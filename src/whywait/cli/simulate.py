"""``whywait simulate``: a workload file in virtual time."""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Any, Final

from whywait.cli.shared import add_json, is_terminal, parse_gpus, parse_slots, print_text
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

HELP: Final = """Work out how tasks would run, and which would wait for what, without running them.

Nothing is executed and no time passes: the same decisions are made, and the clock jumps.

A first example:
  echo '{"config": {"slots": 1}, "tasks": [
    {"id": "big", "at_ms": 0, "duration_ms": 9000, "priority": "low"},
    {"id": "urgent", "at_ms": 5, "duration_ms": 20, "priority": "high"}]}' \\
  | whywait simulate -

What if more could run at once, or if the order were strict? Every combination, side by side:
  whywait simulate farm.json --order aging --order strict --slots 2 --slots 4

A workflow file will do if its tasks have durations:
  whywait simulate flow.toml --slots 2 --slots 8

What if a run that was recorded (whywait run --record run.rec) had had a third GPU, or more licences?
  whywait simulate run.rec --gpus 24GB,24GB --gpus 24GB,24GB,24GB
  whywait simulate run.rec --resource licence=3

Exit code: 0, or 2 if the file or an option is malformed."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the verb."""
    add = parser.add_argument
    add("file", metavar="FILE", help="a workload (JSON), a recorded run, or a workflow with durations; - reads stdin")
    add_json(parser, "events, final outcomes and summary")
    more: dict[str, Any] = {"action": "append", "default": []}
    add("--order", choices=("strict", "aging"), **more, help="use this order, not the file's; repeat to compare")
    add("--slots", metavar="N|none", **more, help="use so many slots, not the file's; repeat to compare")
    add("--cpu", metavar="N|none", help="use this cpu limit, not the file's")
    add("--ram", metavar="SIZE|none", help="use this ram limit, not the file's")
    add("--vram", metavar="SIZE|none", help="use this vram limit, not the file's")
    add("--gpus", metavar="N|SIZES|none", **more, help="use GPUs of these sizes, not the file's; repeat to compare")
    add("--resource", metavar="NAME=AMOUNT", **more, help="use this limit of a named resource, not the file's; repeat")
    add("--seed", metavar="N", type=int, default=0, help="where the jitter of periodics starts from")


def run(options: argparse.Namespace) -> int:
    """Run a workload in virtual time: how long it takes, which tasks wait, and for what."""
    file = options.file
    axes: list[list[dict[str, Any]]] = [
        [{"order": name} for name in options.order] or [{}],
        [{"slots": parse_slots(text)} for text in options.slots] or [{}],
        [{"gpus": parse_gpus(text)} for text in options.gpus] or [{}],
    ]
    gc.disable()  # this process does one thing and leaves; a million tasks are no garbage
    workload = _read(file)
    budget = _parse_budget({name: getattr(options, name) for name in ("cpu", "ram", "vram")})
    budget |= _parse_resources(options.resource, workload)
    choices = [{**order, **slots, **gpus, **budget} for order, slots, gpus in product(*axes)]
    bar = _Bar(len(choices))
    results = [
        Simulation(workload, seed=options.seed, progress=bar.for_run(number), **choice).run()
        for number, choice in enumerate(choices)
    ]
    bar.clear()
    if options.json:
        _print_json(results)
    else:
        title = workload.name or (Path(file).stem if file != _STDIN else "standard input")
        summaries = [result.summary for result in results]
        print_text(render(summaries[0], title) if len(summaries) == 1 else render_side_by_side(summaries, title))
    return 0


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
            raise ConfigError(f"--{name}: {error}") from None
    return budget


def _parse_resources(given: Sequence[str], workload: Workload) -> dict[str, Any]:
    """Return the named limits of the file with what is given instead; units of a device are a number or names."""
    tables: dict[str, dict[str, Any]] = {name: dict(workload.config.get(name, {})) for name in ("resources", "soft")}
    units: dict[str, Any] = {kind: list(names) for kind, names in workload.config.get("devices", {}).items()}
    for text in given:
        name, _, amount = text.partition("=")
        if not name or not amount or name in _OWN_OPTIONS:
            wrong = "it has an option of its own" if name in _OWN_OPTIONS else "it is written NAME=AMOUNT"
            raise ConfigError(f"--resource {text}: {wrong}")
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
    if is_workflow or (isinstance(_json(file).get("task"), dict) and "tasks" not in _json(file)):
        from whywait.workflow import load
        from whywait.workflow.plan import to_workload

        return Workload(to_workload(load(file)), file)
    if is_record(file):
        return workload_of(file)
    try:
        return Workload.from_file(file)
    except ConfigError:
        if is_event_file(file) and "tasks" not in _json(file):
            raise ConfigError(
                f"{file}: holds the events of a run, which do not tell all of its tasks: expected a workload, a "
                "workflow or a record (whywait run --record); whywait serve shows events"
            ) from None
        raise


def _json(file: str) -> dict[str, Any]:
    """Return the object that a JSON file of at most the size of a workflow holds; nothing of any other file."""
    try:
        data = json.loads(Path(file).read_bytes()) if Path(file).stat().st_size <= _LARGEST_WORKFLOW else None
    except (OSError, ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}


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
    """How far it is, in a line on stderr, if stderr is a terminal and it takes longer than a second."""

    def __init__(self, runs: int) -> None:
        self._runs = runs
        self._due = time.monotonic() + _PATIENCE_S
        self._is_drawn = False

    def for_run(self, run: int) -> Callable[[int, int], None] | None:
        """Return what shows the progress of one run, or None if stderr is no terminal."""

        def show(done: int, total: int) -> None:
            if time.monotonic() >= self._due:
                self._is_drawn = True
                sys.stderr.write(f"\rsimulating {(run + done / max(total, 1)) / self._runs:4.0%}")
                sys.stderr.flush()

        return show if is_terminal(sys.stderr) else None

    def clear(self) -> None:
        """Take the line away."""
        if self._is_drawn:
            sys.stderr.write("\r\x1b[K")
