"""The benchmark behind ``whywait bench``: one fixed mixed workload (a DAG, priorities, a budget) on a scheduler.

The workload is the same in every run and on every machine: families of tasks, each with a source, several parts that
need it, and a join of the parts. Parts differ in priority and in what they demand; some compute, some wait as for a
disk. So the figures of two schedulers, or of two versions, can be held against each other.
"""

from __future__ import annotations

import os
import platform
import statistics
import sys
import threading
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, Literal, NamedTuple

from whywait.runtime.authority import Authority
from whywait.runtime.handle import Handle
from whywait.support.version import __version__

SCHEDULERS: Final[dict[str, Literal["simple", "thread"]]] = {
    "simple": "simple",
    "threadpool": "thread",
}  # the engine behind each
FAMILIES: Final = 60
PARTS: Final = 8
TASKS: Final = FAMILIES * (PARTS + 2)
_PRIORITIES: Final = ("background", "low", "normal", "high", "critical")
_WORK: Final = 2_000  # additions of a task that computes
_WAIT_S: Final = 0.0005


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

    def compute(self) -> int:
        with self:
            return sum(range(_WORK))

    def wait(self) -> None:
        with self:
            time.sleep(_WAIT_S)

    def __enter__(self) -> None:
        with self._lock:
            self._now += 1
            self.peak = max(self.peak, self._now)

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._now -= 1


def run_once(scheduler: str, slots: int) -> Figures:
    """Run the workload once; return its figures."""
    meter = _Meter()
    ended: list[float] = []

    def note(begin: float, _: Handle[Any]) -> None:
        ended.append(time.perf_counter() - begin)

    began = time.perf_counter()
    with Authority(slots=slots, cpu=2 * slots, ram="4GB", engine=SCHEDULERS[scheduler]) as authority:
        for family in range(FAMILIES):
            source = authority.submit(meter.compute, priority="normal", cpu=1)
            parts: list[Handle[Any]] = []
            for part in range(PARTS):
                body = meter.wait if part % 4 == 3 else meter.compute  # noqa: PLR2004  every fourth waits
                priority = _PRIORITIES[(family + part) % len(_PRIORITIES)]
                parts.append(
                    authority.submit(body, after=[source], priority=priority, cpu=1 + part % 2, ram=f"{part * 100}MB")
                )
            join = authority.submit(meter.compute, after=parts, priority="high")
            family_handles: list[Handle[Any]] = [source, *parts, join]
            for handle in family_handles:
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
    return {
        "scheduler": scheduler,
        "slots": 1 if scheduler == "simple" else slots,
        "tasks": TASKS,
        "runs": [run._asdict() for run in runs],
        "median": {
            "wall_s": statistics.median(run.wall_s for run in runs),
            "per_second": statistics.median(run.per_second for run in runs),
            "latency_ms": {key: statistics.median(run.latency_ms[key] for run in runs) for key in runs[0].latency_ms},
            "wait_ms": {key: statistics.median(run.wait_ms[key] for run in runs) for key in runs[0].wait_ms},
        },
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
