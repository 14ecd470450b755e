"""Graphs of tasks: the patterns of Task Bench, and two scientific workflows by their published shapes.

A graph lists for each task the numbers of those it depends on, which are smaller than its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Final

Graph = list[tuple[int, ...]]

PATTERNS: Final = ("trivial", "chain", "stencil", "fft", "tree", "random")
_RADIUS, _FRACTION = 5, 0.25  # of random nearest neighbours, as in Task Bench


def pattern(name: str, width: int, steps: int) -> Graph:
    """Return ``steps`` rows of ``width`` tasks (a tree: of 1, 2, 4 ... up to that) with a pattern's dependencies."""
    chance = Random(1)
    graph: Graph = []
    before: list[int] = []
    for step in range(steps):
        row = []
        for point in range(min(width, 1 << step) if name == "tree" else width):
            row.append(len(graph))
            columns = _depends_on(name, step, point, width, chance) if step else ()
            graph.append(tuple(before[column] for column in columns if 0 <= column < len(before)))
        before = row
    return graph


def _depends_on(name: str, step: int, point: int, width: int, chance: Random) -> Iterator[int]:
    """Yield the columns of the row before."""
    if name == "chain":
        yield point
    elif name == "stencil":
        yield from (point - 1, point, point + 1)
    elif name == "fft":
        distance = 1 << (step - 1) % max(1, width.bit_length() - 1)
        yield from (point - distance, point, point + distance)
    elif name == "tree":
        yield point // 2
    elif name == "random":
        for column in range(point - _RADIUS, point + _RADIUS + 1):
            if chance.random() < _FRACTION:
                yield column


def montage(images: int) -> tuple[list[str], Graph, list[int]]:
    """Return names, graph and milliseconds of a mosaic: project, fit differences, correct backgrounds, add up."""
    flow = _Workflow(Random(2))
    projects = [flow.add("project", 20) for _ in range(images)]
    fits = [
        flow.add("fit", 9, projects[left], projects[right])
        for left in range(images)
        for right in (left + 1, left + 5)
        if right < images
    ]
    concat = flow.add("concat", 50, *fits)
    model = flow.add("model", 120, concat)
    corrected = [flow.add("background", 20, model, project) for project in projects]
    table = flow.add("table", 15, *corrected)
    added = flow.add("add", 100, table)
    flow.add("jpeg", 5, flow.add("shrink", 30, added))
    return flow.names, flow.graph, flow.durations_ms


def epigenomics(lanes: int, chunks: int) -> tuple[list[str], Graph, list[int]]:
    """Return names, graph and milliseconds of a genome mapping: split each lane, a pipeline for each chunk, merge."""
    flow = _Workflow(Random(3))
    merged = []
    for _ in range(lanes):
        split = flow.add("split", 25)
        mapped = []
        for _ in range(chunks):
            last = split
            for step, mean_ms in (("filter", 8), ("convert", 4), ("pack", 4), ("map", 70)):
                last = flow.add(step, mean_ms, last)
            mapped.append(last)
        merged.append(flow.add("merge", 15, *mapped))
    joined = flow.add("join", 20, *merged)
    flow.add("pileup", 40, flow.add("index", 30, joined))
    return flow.names, flow.graph, flow.durations_ms


class _Workflow:
    """Tasks with durations that scatter by a quarter around the mean of their kind, from a seed."""

    def __init__(self, chance: Random) -> None:
        self.names: list[str] = []
        self.graph: Graph = []
        self.durations_ms: list[int] = []
        self._chance = chance

    def add(self, kind: str, mean_ms: int, *after: int) -> int:
        """Add a task and return its number."""
        number = len(self.graph)
        self.names.append(f"{kind}-{number:05}")  # the order by name is that of submission
        self.graph.append(after)
        self.durations_ms.append(max(1, round(mean_ms * self._chance.uniform(0.75, 1.25))))
        return number
