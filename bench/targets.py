"""The targets, and whether the figures meet them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from figures import Figures, Stat, short
from works.workflows import bounds

Row = tuple[str, str, str, bool]


def targets(figures: Figures) -> Iterator[Row]:
    """Yield (what, goal, measured, whether it is met) for everything that was measured."""
    yield from chain(_throughput(figures), _graphs(figures), _pending(figures), _workflows(figures))


def _throughput(figures: Figures) -> Iterator[Row]:
    for peer, title, goal in (
        ("threadpool", "ThreadPoolExecutor", 3),
        ("dask", "dask threads", 20),
        ("parsl", "Parsl threads", 30),
    ):
        workers = [key.partition("/")[2] for key in figures.keys("throughput") if key.startswith("total/")]
        ratios = {
            number: _ratio(
                figures.stat("throughput", peer, f"total/{number}"),
                figures.stat("throughput", "whywait", f"total/{number}"),
            )
            for number in workers
        }
        found = {number: ratio for number, ratio in ratios.items() if ratio is not None}
        if found:
            shown = ", ".join(f"{short(ratio)} ({number})" for number, ratio in found.items())
            what = f"no-op rate over {title}, by workers"
            yield what, f"at least {goal}", shown, min(found.values()) >= goal


def _graphs(figures: Figures) -> Iterator[Row]:
    worst = []
    for pattern in figures.keys("patterns"):
        mine = figures.stat("patterns", "whywait", pattern)
        for peer in figures.contestants("patterns"):
            ratio = _ratio(figures.stat("patterns", peer, pattern), mine)
            if peer != "whywait" and ratio is not None:
                worst.append((ratio, f"{short(ratio)} ({peer}, {pattern})"))
    if worst:
        ratio, shown = min(worst)
        yield "rate on DAG patterns over the best peer, worst pattern", "above 1", shown, ratio > 1


def _pending(figures: Figures) -> Iterator[Row]:
    sizes = figures.sizes("pending")
    for key in ("submit", "start"):
        if len(sizes) > 1:
            low, high = (figures.stat("pending", "whywait", key, tasks) for tasks in (sizes[0], sizes[-1]))
            ratio = _ratio(high, low)
            if ratio is not None:
                yield f"{key} with {sizes[-1]:,} pending over {sizes[0]:,}", "at most 1.3", short(ratio), ratio <= 1.3  # noqa: PLR2004


def _workflows(figures: Figures) -> Iterator[Row]:
    params = figures.params("workflows", "whywait")
    for shape, size in params.get("shapes", {}).items():
        stat = figures.stat("workflows", "whywait", shape)
        if stat is not None:
            limit = bounds(shape, size, params["slots"])
            over = (stat.median / limit["simulated"] - 1) * 100
            best = max(limit["critical path"], limit["work over slots"])
            shown = f"{short(over)} % (bound: {short(best)} ms, simulated: {short(limit['simulated'])} ms)"
            yield f"{shape} makespan over the simulated one", "at most 3 %", shown, over <= 3  # noqa: PLR2004


def _ratio(above: Stat | None, below: Stat | None) -> float | None:
    return above.median / below.median if above is not None and below is not None else None
