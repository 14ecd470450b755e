"""Workflows with real shapes and scaled-down sleeps: the makespan against the simulated one and against bounds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from contestants.base import Contestant
from task_bodies import pause
from whywait import Simulation
from works.graphs import Graph, epigenomics, montage

Shape = tuple[list[str], Graph, list[int]]
SHAPES: Final[dict[str, Callable[[int], Shape]]] = {
    "montage": montage,
    "epigenomics": lambda size: epigenomics(2, size // 2),
}


def measure(contestant: Contestant, params: dict[str, Any]) -> dict[str, float]:
    """Return the makespan in ms for each shape."""
    figures = {}
    for shape, size in params["shapes"].items():
        _, graph, durations_ms = SHAPES[shape](size)
        sleeps = [duration / 1000 for duration in durations_ms]
        figures[shape] = contestant.graph(params["slots"], graph, pause, sleeps) * 1e3
    return figures


def bounds(shape: str, size: int, slots: int) -> dict[str, float]:
    """Return tasks, the simulated makespan, and what nobody can beat: critical path, and work over slots."""
    names, graph, durations_ms = SHAPES[shape](size)
    ends: list[int] = []
    for after, duration in zip(graph, durations_ms, strict=True):
        ends.append(max((ends[each] for each in after), default=0) + duration)
    tasks = [
        {"id": name, "at_ms": 0, "duration_ms": duration, "after": [names[each] for each in after]}
        for name, after, duration in zip(names, graph, durations_ms, strict=True)
    ]
    events = Simulation({"config": {"slots": slots}, "tasks": tasks}).run().to_dict()["events"]
    return {
        "tasks": len(graph),
        "simulated": events[-1][0],
        "critical path": max(ends),
        "work over slots": sum(durations_ms) / slots,
    }
