"""What is measured: which contestants, with which sizes; full, and quick for a first look."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from contestants import SLOW
from works.graphs import PATTERNS

THREADS: Final = (
    "whywait", "whywait-executor", "threadpool", "hand", "anyio", "joblib", "dask", "distributed", "parsl", "parsl-quiet",
)  # fmt: skip
COROUTINES: Final = ("whywait-asyncio", "taskgroup", "trio")
PROCESSES: Final = ("whywait-process", "processpool", "ray")
GRAPHS: Final = ("whywait", "graphlib", "hand", "taskgroup", "dask", "distributed", "parsl", "ray")
HEAVY: Final = ("distributed", "parsl", "ray")  # seconds to start: left out of some kinds of quick work
WORKERS: Final = 2  # of graphs: the cores of the smallest machine there is
KERNEL_US: Final = (10, 32, 100, 316, 1000, 3162, 10_000)
LIMIT_S: Final = 300  # for one measurement; what takes longer is over


@dataclass(frozen=True)
class Cell:
    """One kind of work for one contestant."""

    work: str
    contestant: str
    params: dict[str, Any]


def cells(quick: bool, bytes_per_us: float) -> Iterator[Cell]:  # noqa: FBT001 - one of two plans
    """Yield everything that one round measures; contestants of one kind of work follow each other."""
    many = 5000 if quick else 20_000
    for name in (*THREADS, *COROUTINES, *PROCESSES):
        few = name in SLOW or name in PROCESSES
        params = {"workers": [2] if quick else [1, 2, 4, 8], "tasks": many // 20 if few else many}
        yield Cell("throughput", name, params)
    patterns = ["stencil"] if quick else list(PATTERNS)
    for name in GRAPHS:
        if not (quick and name in HEAVY):
            params = {"patterns": patterns, "workers": WORKERS, "width": 16, "steps": _steps(name, quick=quick)}
            yield Cell("patterns", name, params)
    sizes = [round(each * bytes_per_us) for each in (KERNEL_US[::3] if quick else KERNEL_US)]
    for name in ("bare", *GRAPHS):
        if not (quick and name in HEAVY):
            shape = {"patterns": patterns, "workers": WORKERS, "width": 16, "sizes": sizes}
            work = {"steps": _steps(name, quick=quick) // 2, "bytes": round(400_000 * bytes_per_us)}
            yield Cell("efficiency", name, shape | work)
    yield from _pending(quick=quick)
    yield from _fans(quick=quick)
    for name in ("whywait", "whywait-executor", "threadpool", "hand", "anyio", "joblib", *COROUTINES):
        yield Cell("latency", name, {"tasks": 200 if quick else 2000})
    for name in ("whywait", "apscheduler", "taskgroup", "trio"):
        yield Cell("timers", name, {"timers": 1000, "every_s": 0.5 if quick else 1.0, "ticks": 2 if quick else 5})
    for name in ("whywait", "whywait-executor", "threadpool", "hand", *COROUTINES, "processpool", "distributed", "ray"):
        if not (quick and name in HEAVY):
            yield Cell("dispose", name, {"tasks": 5000 if name in SLOW else 10_000 if quick else 100_000})
    for name in GRAPHS:
        if not (quick and name in HEAVY):
            shapes = {"montage": 10, "epigenomics": 8} if quick else {"montage": 60, "epigenomics": 48}
            yield Cell("workflows", name, {"slots": 4, "shapes": shapes})
    yield Cell("features", "whywait", {"tasks": many})


def _steps(name: str, *, quick: bool) -> int:
    if name in SLOW:
        return 16 if quick else 32
    return 64 if quick else 512


def _pending(*, quick: bool) -> Iterator[Cell]:
    """The slow ones stop where a measurement would take minutes."""
    sizes = (1000, 10_000) if quick else (1000, 10_000, 100_000, 1_000_000)
    for name in ("whywait", "whywait-executor", "threadpool", "hand", "distributed", "parsl", "ray"):
        for tasks in sizes:
            if not (name in SLOW and tasks > sizes[1]) and not (quick and name in HEAVY):
                yield Cell("pending", name, {"tasks": tasks, "memory_from": 10_000})


def _fans(*, quick: bool) -> Iterator[Cell]:
    for name in GRAPHS:
        if not (quick and name in HEAVY):
            sizes = [1, 100, 10_000] if quick else [1, 100, 1000, 10_000, 100_000]
            yield Cell("fans", name, {"workers": WORKERS, "tasks": [each for each in sizes if name not in SLOW or each <= 1000]})
    for name in ("whywait", "taskgroup", "distributed", "parsl", "ray"):
        if not (quick and name in HEAVY):
            yield Cell("stream", name, {"blocked": 1000 if quick else 10_000, "tasks": 200 if name in SLOW else 2000})
