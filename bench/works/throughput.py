"""No-op throughput by number of workers; what submitting and what collecting costs."""

from __future__ import annotations

from typing import Any

from contestants.base import Contestant
from task_bodies import nothing


def measure(contestant: Contestant, params: dict[str, Any]) -> dict[str, float]:
    """Return microseconds for a task: in total, to submit it, to collect it, for each number of workers."""
    tasks = params["tasks"]
    figures = {}
    for workers in params["workers"]:
        for part, seconds in contestant.no_ops(workers, tasks, nothing).items():
            figures[f"{part}/{workers}"] = seconds / tasks * 1e6
    return figures
