"""The kinds of work: each takes a contestant and parameters and returns figures by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from contestants.base import Contestant
from works import bodies, dispose, fans, features, latency, patterns, pending, throughput, timers, workflows

Measure = Callable[[Contestant, dict[str, Any]], dict[str, float]]

WORKS: Final[dict[str, Measure]] = {
    "throughput": throughput.measure,
    "patterns": patterns.measure,
    "efficiency": patterns.measure_efficiency,
    "pending": pending.measure,
    "fans": fans.measure,
    "stream": fans.measure_stream,
    "latency": latency.measure,
    "timers": timers.measure,
    "dispose": dispose.measure,
    "workflows": workflows.measure,
    "features": features.measure,
    "bodies": bodies.measure,
}
