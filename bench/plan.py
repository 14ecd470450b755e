"""What is measured: which contestants, with which sizes; full, and quick for a first look."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

from contestants import SLOW
from works.graphs import PATTERNS

THREADS: Final = (
    "whywait", "whywait-executor", "threadpool", "hand", "anyio", "joblib",
    "dask", "distributed", "parsl", "parsl-quiet",
)  # fmt: skip
COROUTINES: Final = ("whywait-asyncio", "taskgroup", "trio")
PROCESSES: Final = ("whywait-process", "processpool", "ray")
GRAPHS: Final = ("whywait", "graphlib", "hand", "taskgroup", "dask", "distributed", "parsl", "ray")
NOT_QUICK: Final = ("distributed", "parsl", "ray", "dask", "trio", "anyio")  # of them, quick measures no-ops only
NEWER: Final = ("whywait", "threadpool", "whywait-asyncio", "taskgroup")  # what is measured on newer Pythons, too
BODIES_US: Final = (70, 700)  # of bodies that compute in Python
WORKERS: Final = 2  # of graphs: the cores of the smallest machine there is
KERNEL_US: Final = (10, 32, 100, 316, 1000, 3162, 10_000)
LIMIT_S: Final = 300  # for one measurement; what takes longer is over
QUICK_LIMIT_S: Final = 20


@dataclass(frozen=True)
class Cell:
    """One kind of work for one contestant."""

    work: str
    contestant: str
    params: dict[str, Any]


def cells(quick: bool, bytes_per_us: float) -> Iterator[Cell]:  # noqa: FBT001 - one of two plans
    """Yield everything that one round measures; contestants of one kind of work follow each other."""
    works = (_throughput, _patterns, _pending, _fans, _latency, _timers, _dispose, _workflows)
    for cell in chain(*[work(quick) for work in works], _efficiency(quick, bytes_per_us)):
        if not quick or cell.contestant not in NOT_QUICK or (cell.work == "throughput" and cell.contestant != "ray"):
            yield cell
    yield Cell("features", "whywait", {"tasks": 5000 if quick else 20_000})


def cells_of_newer(steps_per_us: float) -> Iterator[Cell]:
    """Yield what one round measures on a newer Python: no-ops, latency, and what a second thread brings."""
    yield from (each for each in chain(_throughput(False), _latency(False)) if each.contestant in NEWER)  # noqa: FBT003 - the full plan
    steps = {str(us): round(us * steps_per_us) for us in BODIES_US}
    for name in ("whywait", "threadpool"):
        yield Cell("bodies", name, {"workers": [1, 2], "steps": steps, "us": 700_000})


def _throughput(quick: bool) -> Iterator[Cell]:  # noqa: FBT001 - one of two plans, here and below
    many = 5000 if quick else 20_000
    for name in (*THREADS, *COROUTINES, *PROCESSES):
        workers = [2] if quick else [2, 4, 8] if name == "joblib" else [1, 2, 4, 8]  # joblib has no pool of one
        few = name in SLOW or name in PROCESSES or name == "anyio"
        yield Cell("throughput", name, {"workers": workers, "tasks": many // 20 if few else many})


def _patterns(quick: bool) -> Iterator[Cell]:  # noqa: FBT001
    for name in GRAPHS:
        yield Cell("patterns", name, {**_shape(quick), "steps": _steps(name, quick)})


def _efficiency(quick: bool, bytes_per_us: float) -> Iterator[Cell]:  # noqa: FBT001
    sizes = [round(each * bytes_per_us) for each in (KERNEL_US[:5:2] if quick else KERNEL_US)]
    limits = {"sizes": sizes, "bytes": round(200_000 * bytes_per_us)}
    for name in ("bare", *GRAPHS):
        yield Cell("efficiency", name, {**_shape(quick), **limits, "steps": _steps(name, quick) // 2})


def _shape(quick: bool) -> dict[str, Any]:  # noqa: FBT001
    return {"patterns": ["stencil"] if quick else list(PATTERNS), "workers": WORKERS, "width": 16}


def _steps(name: str, quick: bool) -> int:  # noqa: FBT001
    if name in SLOW:
        return 16 if quick else 32
    return 64 if quick else 512


def _pending(quick: bool) -> Iterator[Cell]:  # noqa: FBT001
    """The slow ones stop where a measurement would take minutes."""
    sizes = (1000, 10_000) if quick else (1000, 10_000, 100_000, 1_000_000)
    for name in ("whywait", "whywait-executor", "threadpool", "hand", "distributed", "parsl", "ray"):
        for tasks in sizes[:2] if name in SLOW else sizes:
            repeat = 1 if name in SLOW else max(1, 10_000 // tasks)
            yield Cell("pending", name, {"tasks": tasks, "repeat": repeat, "memory_from": 10_000})


def _fans(quick: bool) -> Iterator[Cell]:  # noqa: FBT001
    sizes = [100, 10_000] if quick else [100, 1000, 10_000, 100_000]
    for name in GRAPHS:
        tasks = [each for each in sizes if name not in SLOW or each <= 1000]  # noqa: PLR2004 - a few seconds
        yield Cell("fans", name, {"workers": WORKERS, "tasks": tasks})
    for name in ("whywait", "taskgroup", "distributed", "parsl", "ray"):
        yield Cell("stream", name, {"blocked": 1000 if quick else 10_000, "tasks": 200 if name in SLOW else 2000})


def _latency(quick: bool) -> Iterator[Cell]:  # noqa: FBT001
    for name in ("whywait", "whywait-executor", "threadpool", "hand", "anyio", *COROUTINES):
        yield Cell("latency", name, {"tasks": 200 if quick else 1000})


def _timers(quick: bool) -> Iterator[Cell]:  # noqa: FBT001
    for name in ("whywait", "apscheduler", "taskgroup", "trio"):
        yield Cell("timers", name, {"timers": 1000, "every_s": 0.5 if quick else 1.0, "ticks": 2 if quick else 5})


def _dispose(quick: bool) -> Iterator[Cell]:  # noqa: FBT001
    for name in ("whywait", "whywait-executor", "threadpool", "hand", *COROUTINES, "distributed", *PROCESSES):
        yield Cell("dispose", name, {"tasks": 5000 if name in SLOW else 10_000 if quick else 100_000})


def _workflows(quick: bool) -> Iterator[Cell]:  # noqa: FBT001
    shapes = {"montage": 10, "epigenomics": 8} if quick else {"montage": 60, "epigenomics": 48}
    for name in GRAPHS:
        yield Cell("workflows", name, {"slots": 4, "shapes": shapes})
