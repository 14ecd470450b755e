"""The plots of the page."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from contestants import OURS, TITLES
from figures import Figures, Stat
from works.graphs import PATTERNS

mpl.use("svg")
mpl.rcParams.update(
    {"svg.hashsalt": "whywait", "svg.fonttype": "none", "font.size": 8, "axes.grid": True, "grid.alpha": 0.3}
)
_STYLE = {
    "whywait": "#c0392b",
    "whywait-executor": "#e67e22",
    "whywait-asyncio": "#c0392b",
    "whywait-process": "#c0392b",
}


def draw(figures: Figures, folder: Path) -> None:
    """Write a plot into a folder for each kind of work that has one and was measured."""
    folder.mkdir(parents=True, exist_ok=True)
    for work, plot in {
        "throughput": _throughput,
        "efficiency": _efficiency,
        "pending": _pending,
        "fans": _fans,
    }.items():
        if figures.keys(work):
            plot(figures, folder / f"{work}.svg")


def _save(path: Path) -> None:
    plt.tight_layout()
    plt.savefig(path, metadata={"Date": None})
    plt.close()


def _line(axes: Axes, name: str, points: list[tuple[float, Stat | None]]) -> None:
    found = [(x, stat) for x, stat in points if stat is not None]
    if found:
        xs = [x for x, _ in found]
        colour = _STYLE.get(name)
        width = 2.0 if name in OURS else 1.0
        (line,) = axes.plot(
            xs, [stat.median for _, stat in found], "o-", ms=2.5, lw=width, color=colour, label=TITLES[name]
        )
        axes.fill_between(xs, [s.low for _, s in found], [s.high for _, s in found], alpha=0.15, color=line.get_color())


def _throughput(figures: Figures, path: Path) -> None:
    found = [(name, figures.stat("throughput", name, "total/2")) for name in figures.contestants("throughput")]
    bars = sorted(((stat.median, name) for name, stat in found if stat is not None), reverse=True)
    _, axes = plt.subplots(figsize=(7, 3.2))
    colours = [_STYLE.get(name, "#7f8c8d") for _, name in bars]
    axes.barh([TITLES[name] for _, name in bars], [value for value, _ in bars], color=colours)
    axes.set_xscale("log")
    axes.set_xlabel("µs for a no-op task, 2 workers (less is better)")
    _save(path)


def _efficiency(figures: Figures, path: Path) -> None:
    known = {key.partition("/")[0] for key in figures.keys("efficiency")}
    patterns = [name for name in PATTERNS if name in known]
    columns = min(3, len(patterns))
    rows = -(-len(patterns) // columns)
    _, grid = plt.subplots(rows, columns, figsize=(3 * columns + 1, 2.4 * rows), squeeze=False, sharey=True)
    per_us = figures.results["bytes_per_us"]
    for axes, pattern in zip(grid.flat, patterns, strict=False):
        for name in figures.contestants("efficiency"):
            points = [(size / per_us, figures.efficiency(name, pattern, size)) for size in figures.kernel_sizes]
            _line(axes, name, [(x, stat) for x, stat in points])
        axes.axhline(0.5, color="black", lw=0.6, ls="--")
        axes.set(xscale="log", title=pattern, xlabel="kernel, µs", ylim=(0, 1.15))
    grid[0][0].set_ylabel("efficiency")
    grid[-1][-1].legend(fontsize=5)
    _save(path)


def _pending(figures: Figures, path: Path) -> None:
    _, axes = plt.subplots(figsize=(7, 3))
    for name in figures.contestants("pending"):
        points = [(tasks, figures.stat("pending", name, "start", tasks)) for tasks in figures.sizes("pending")]
        _line(axes, name, points)
    axes.set(xscale="log", yscale="log", xlabel="tasks pending", ylabel="µs to start and finish a task")
    axes.legend(fontsize=6)
    _save(path)


def _fans(figures: Figures, path: Path) -> None:
    _, axes = plt.subplots(figsize=(7, 3))
    for name in figures.contestants("fans"):
        _line(axes, name, [(int(key), figures.stat("fans", name, key)) for key in figures.keys("fans")])
    axes.set(xscale="log", yscale="log", xlabel="tasks between the first and the last", ylabel="µs for a task")
    axes.legend(fontsize=6)
    _save(path)
