"""``whywait bench``: a fixed mixed workload, measured."""

from __future__ import annotations

import json
import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import typer

from whywait.cli.bench_workload import facts, run_once, summarise
from whywait.cli.shared import print_text
from whywait.errors import ConfigError
from whywait.observe.report_text import table
from whywait.support.words import counted

HELP: Final = """Measure this machine with a fixed set of tasks that wait for each other, with priorities and limits.

\b
Both schedulers, five runs each, figures also as a file:
  whywait bench --runs 5 --out bench.json
  whywait bench --scheduler threadpool --runs 20

Exit code: 0, or 2 if an option is malformed.
"""


class SchedulerName(StrEnum):
    """The schedulers that can be measured."""

    simple = "simple"
    threadpool = "threadpool"


def bench(
    *,
    scheduler: Annotated[
        list[SchedulerName] | None,
        typer.Option(metavar="simple|threadpool", help="Measure this one; repeat for several; default: both."),
    ] = None,
    runs: Annotated[int, typer.Option(metavar="N", min=1, max=1000, help="Run each so often.")] = 3,
    slots: Annotated[int | None, typer.Option(metavar="N", min=1, max=1000, help="Slots of the thread pool.")] = None,
    out: Annotated[Path | None, typer.Option(metavar="FILE.json", help="Write all figures there.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON, for programs.")] = False,
    debug: Annotated[bool, typer.Option("--debug", hidden=True)] = False,  # noqa: ARG001  `execute` looks for it
) -> None:
    """Measure a fixed mixed workload."""
    chosen = list(dict.fromkeys(each.value for each in scheduler or SchedulerName))
    count = slots or max(4, os.cpu_count() or 1)
    if out is not None:
        _write(out, "")  # a path that cannot be written is found before the work, not after
    results = [summarise(name, count, [run_once(name, count) for _ in range(runs)]) for name in chosen]
    text = json.dumps({"facts": facts(), "results": results}, indent=1) + "\n"
    if out is not None:
        _write(out, text)
    if as_json:
        sys.stdout.write(text)
        return
    rows = []
    for result in results:
        median = result["median"]
        latency, wait = median["latency_ms"], median["wait_ms"]
        rows.append(
            (
                result["scheduler"],
                str(result["slots"]),
                f"{median['per_second']:,.0f}",
                f"{latency['p50']:.1f} ms",
                f"{latency['p99']:.1f} ms",
                f"{wait['p50']:.1f} ms",
                str(result["peak_parallel"]),
            )
        )
    titles = ("scheduler", "slots", "tasks/s", "latency p50", "p99", "wait p50", "peak at once")
    heading = f"{counted(results[0]['tasks'], 'task')}, median of {counted(runs, 'run')}"
    print_text("\n".join([heading, *table(titles, rows)]) + "\n")


def _write(out: Path, text: str) -> None:
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"--out {out}: cannot be written: {error.strerror or error}") from error
