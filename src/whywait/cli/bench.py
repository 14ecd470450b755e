"""``whywait bench``: one fixed mixed workload (a DAG, priorities, a budget), measured.

The workload is the same in every run and on every machine: families of tasks, each with a source, several parts that
need it, and a join of the parts. Parts differ in priority and in what they demand; some compute, some wait as for a
disk. So the figures of two schedulers, or of two versions, can be held against each other.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import threading
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from whywait.cli.shared import add_json, print_text, whole, write_out
from whywait.observe.report_text import table
from whywait.runtime.authority import Authority
from whywait.runtime.handle import Handle
from whywait.support.version import __version__
from whywait.support.words import counted

# The engine of each scheduler.
SCHEDULERS: Final[dict[str, Literal["simple", "thread"]]] = {
    "simple": "simple",
    "threadpool": "thread",
}  # the engine of each
FAMILIES: Final = 60
PARTS: Final = 8
TASKS: Final = FAMILIES * (PARTS + 2)
_PRIORITIES: Final = ("background", "low", "normal", "high", "critical")
_WORK: Final = 2_000  # additions of a task that computes
_WAIT_S: Final = 0.0005
HELP: Final = """Measure this machine with a fixed set of tasks that wait for each other, with priorities and limits.

Both schedulers, five runs each, figures also as a file:
  whywait bench --runs 5 --out bench.json
  whywait bench --scheduler threadpool --runs 20

Exit code: 0, or 2 if an option is malformed."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the verb."""
    add = parser.add_argument
    add("--scheduler", choices=SCHEDULERS, action="append", help="measure this one; repeat for several; default: both")
    add("--runs", metavar="N", type=whole(1, 1000), default=3, help="run each so often")
    add("--slots", metavar="N", type=whole(1, 1000), help="slots of the thread pool")
    add("--out", metavar="FILE.json", type=Path, help="write all figures there")
    add_json(parser, "the figures")


def run(options: argparse.Namespace) -> int:
    """Measure a fixed mixed workload."""
    slots = options.slots or max(4, os.cpu_count() or 1)
    if options.out is not None:
        write_out(options.out, "")  # a path that cannot be written is found before the work, not after
    results = [
        summarise(name, slots, [run_once(name, slots) for _ in range(options.runs)])
        for name in dict.fromkeys(options.scheduler or SCHEDULERS)
    ]
    text = json.dumps({"facts": facts(), "results": results}, indent=1) + "\n"
    if options.out is not None:
        write_out(options.out, text)
    if options.json:
        sys.stdout.write(text)
    else:
        titles = ("scheduler", "slots", "tasks/s", "latency p50", "p99", "wait p50", "peak at once")
        heading = f"{counted(TASKS, 'task')}, median of {counted(options.runs, 'run')}"
        print_text("\n".join([heading, *table(titles, list(map(_row, results)))]) + "\n")
    return 0


def _row(result: dict[str, Any]) -> tuple[str, ...]:
    median = result["median"]
    latency, wait = median["latency_ms"], median["wait_ms"]
    return (
        result["scheduler"], str(result["slots"]), f"{median['per_second']:,.0f}", f"{latency['p50']:.1f} ms",
        f"{latency['p99']:.1f} ms", f"{wait['p50']:.1f} ms", str(result["peak_parallel"]),
    )  # fmt: skip


class Figures(NamedTuple):
    """What one run showed."""

    wall_s: float
    per_second: float
    peak_parallel: int
    latency_ms: dict[str, float]  # from submission to end, of all tasks
    wait_ms: dict[str, float]  # from ready to start, of all tasks


class _Meter:
    """Counts how many bodies run at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._now = 0
        self.peak = 0

    def body(self, work: Callable[[], object]) -> None:
        with self._lock:
            self._now += 1
            self.peak = max(self.peak, self._now)
        work()
        with self._lock:
            self._now -= 1


def _compute() -> int:
    return sum(range(_WORK))


def _wait() -> None:
    time.sleep(_WAIT_S)


def run_once(scheduler: str, slots: int) -> Figures:
    """Run the workload once; return its figures."""
    meter = _Meter()
    ended: list[float] = []

    def note(begin: float, _: Handle[Any]) -> None:
        ended.append(time.perf_counter() - begin)

    began = time.perf_counter()
    with Authority(slots=slots, cpu=2 * slots, ram="4GB", engine=SCHEDULERS[scheduler]) as authority:
        submit = partial(authority.submit, meter.body)
        for family in range(FAMILIES):
            source = submit(_compute, priority="normal", cpu=1)
            parts: list[Handle[Any]] = []
            for part in range(PARTS):
                work = _wait if part % 4 == 3 else _compute  # noqa: PLR2004  every fourth waits
                priority = _PRIORITIES[(family + part) % len(_PRIORITIES)]
                parts.append(submit(work, after=[source], priority=priority, cpu=1 + part % 2, ram=f"{part * 100}MB"))
            for handle in (source, *parts, submit(_compute, after=parts, priority="high")):
                handle.add_done_callback(partial(note, time.perf_counter()))
    wall_s = time.perf_counter() - began
    waits = authority.stats()["wait_ns"]
    return Figures(
        wall_s=wall_s,
        per_second=TASKS / wall_s,
        peak_parallel=meter.peak,
        latency_ms=quantiles([1000 * each for each in ended]),
        wait_ms={name: ns / 1e6 for name, ns in waits.items()},
    )


def quantiles(values: Sequence[float]) -> dict[str, float]:
    """Return exact quantiles by name."""
    ordered = sorted(values)
    last = len(ordered) - 1
    return {f"p{share:g}": round(ordered[round(share / 100 * last)], 4) for share in (50, 90, 99)} if ordered else {}


def summarise(scheduler: str, slots: int, runs: Sequence[Figures]) -> dict[str, Any]:
    """Return the figures of several runs of one scheduler: each run, and the medians."""

    def medians(tables: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            key: medians([table[key] for table in tables]) if isinstance(first, dict)
            else statistics.median(table[key] for table in tables)
            for key, first in tables[0].items()
        }  # fmt: skip

    rows = [run._asdict() for run in runs]
    return {
        "scheduler": scheduler,
        "slots": 1 if scheduler == "simple" else slots,
        "tasks": TASKS,
        "runs": rows,
        "median": medians(rows),
        "peak_parallel": max(run.peak_parallel for run in runs),
    }


def facts() -> dict[str, Any]:
    """Return what the figures depend on: versions and machine."""
    return {
        "whywait": __version__,
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "gil": getattr(sys, "_is_gil_enabled", lambda: True)(),
        "system": platform.platform(),
        "machine": platform.machine(),
        "processors": os.cpu_count(),
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
    }
