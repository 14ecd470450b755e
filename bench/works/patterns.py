"""The patterns of Task Bench: tasks a second with empty bodies, efficiency with bodies that compute."""

from __future__ import annotations

from typing import Any

from contestants.base import Contestant
from task_bodies import kernel, nothing
from works.graphs import pattern


def measure(contestant: Contestant, params: dict[str, Any]) -> dict[str, float]:
    """Return microseconds for an empty task, by pattern."""
    figures = {}
    for name in params["patterns"]:
        graph = pattern(name, params["width"], params["steps"])
        seconds = contestant.graph(params["workers"], graph, nothing, [0] * len(graph))
        figures[name] = seconds / len(graph) * 1e6
    return figures


def measure_efficiency(contestant: Contestant, params: dict[str, Any]) -> dict[str, float]:
    """Return bytes computed in a second, and the granularity (workers x seconds / tasks), by pattern and size."""
    figures = {}
    workers, width = params["workers"], params["width"]
    for name in params["patterns"]:
        for size in params["sizes"]:
            steps = max(4, min(params["steps"], params["bytes"] // (size * width)))
            graph = pattern(name, width, steps)
            seconds = contestant.graph(workers, graph, kernel, [size] * len(graph))
            figures[f"{name}/{size}/rate"] = size * len(graph) / seconds
            figures[f"{name}/{size}/granularity"] = workers * seconds / len(graph) * 1e6
    return figures
