"""One task that many depend on and that join in one again; a stream of tasks beside many that are blocked."""

from __future__ import annotations

from typing import Any

from contestants.base import Contestant
from task_bodies import nothing


def measure(contestant: Contestant, params: dict[str, Any]) -> dict[str, float]:
    """Return microseconds for a task of a fan that opens to so many tasks and closes again."""
    figures = {}
    for many in params["tasks"]:
        graph: list[tuple[int, ...]] = [(), *[(0,)] * many, tuple(range(1, many + 1))]
        seconds = contestant.graph(params["workers"], graph, nothing, [0] * len(graph))
        figures[str(many)] = seconds / len(graph) * 1e6
    return figures


def measure_stream(contestant: Contestant, params: dict[str, Any]) -> dict[str, float]:
    """Return microseconds for a task of a stream, alone and beside blocked ones."""
    tasks = params["tasks"]
    figures = {"alone": contestant.stream(0, tasks) / tasks * 1e6}
    figures["beside"] = contestant.stream(params["blocked"], tasks) / tasks * 1e6
    figures["ratio"] = figures["beside"] / figures["alone"]
    return figures
