"""Bodies that compute in Python, by number of workers: what a second thread brings depends on the interpreter."""

from __future__ import annotations

from functools import partial
from typing import Any

from contestants.base import Contestant
from task_bodies import compute


def measure(contestant: Contestant, params: dict[str, Any]) -> dict[str, float]:
    """Return microseconds for a task, for each length of a body and each number of workers."""
    figures = {}
    for us, steps in params["steps"].items():
        tasks = params["us"] // int(us)
        for workers in params["workers"]:
            seconds = contestant.no_ops(workers, tasks, partial(compute, steps))
            figures[f"{us}/{workers}"] = seconds["total"] / tasks * 1e6
    return figures
